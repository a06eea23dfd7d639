/*-------------------------------------------------------------------------
 *
 * cron.c
 *	  Cron expressions: parsing them, and which local times they name.
 *
 * An expression becomes a set of bits per field. The next match is found by
 * arithmetic on the fields: months that are not in the set are passed over
 * whole, days are looked at one by one, and within a day the time is the next
 * bit of each field. The calendar repeats after 400 years exactly, days of the
 * week included, so an expression that matches no date of 400 years matches none
 * at all; that bounds every search, and finds 30 February when it is written.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "mb/pg_wchar.h"
#include "port/pg_bitutils.h"
#include "utils/datetime.h"

#include "engine/cron.h"

#define SECONDS_PER_DAY 86400
#define DAYS_PER_CALENDAR 146097	/* 400 years */
#define EXPRESSION_MAX 1000		/* bytes */
#define EXAMPLE_HINT "Write five fields, minute hour day-of-month month day-of-week, or six with the seconds first; for example \"30 2 * * *\"."

typedef enum FieldKind
{
	FIELD_SECOND,
	FIELD_MINUTE,
	FIELD_HOUR,
	FIELD_DAY,
	FIELD_MONTH,
	FIELD_WEEKDAY,
	FIELD_KINDS
} FieldKind;

static const char *const month_names[] = {
	"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"
};

static const char *const weekday_names[] = {
	"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"
};

static const struct
{
	const char *name;
	int			min;
	int			max;			/* of a number */
	int			cycle;			/* so many different values */
	const char *const *names;	/* the first one stands for min */
}			fields[FIELD_KINDS] = {
	[FIELD_SECOND] = {"second", 0, 59, 60, NULL},
	[FIELD_MINUTE] = {"minute", 0, 59, 60, NULL},
	[FIELD_HOUR] = {"hour", 0, 23, 24, NULL},
	[FIELD_DAY] = {"day of month", 1, 31, 31, NULL},
	[FIELD_MONTH] = {"month", 1, 12, 12, month_names},
	[FIELD_WEEKDAY] = {"day of week", 0, 7, 7, weekday_names},	/* 7 is Sunday, too */
};

static const struct
{
	const char *name;
	const char *expression;
}			macros[] = {
	{"@yearly", "0 0 1 1 *"},
	{"@annually", "0 0 1 1 *"},
	{"@monthly", "0 0 1 * *"},
	{"@weekly", "0 0 * * 0"},
	{"@daily", "0 0 * * *"},
	{"@midnight", "0 0 * * *"},
	{"@hourly", "0 * * * *"},
};

typedef struct Parser
{
	const char *text;			/* the whole expression */
	const char *p;
	FieldKind	kind;
	int			number;			/* of the field, from 1, as it is written */
	DurableCron *cron;
	DurableComplaint *complaint;
} Parser;

/* ------------------------------------------------------------------ parsing */

static bool
complain(Parser *parser, char *detail, const char *hint)
{
	parser->complaint->code = ERRCODE_INVALID_PARAMETER_VALUE;
	parser->complaint->message = psprintf("invalid cron expression \"%s\"", parser->text);
	parser->complaint->detail = detail;
	parser->complaint->hint = hint;
	return false;
}

static bool
complain_in_field(Parser *parser, const char *problem, const char *hint)
{
	return complain(parser, psprintf("Field %d (%s): %s", parser->number,
									 fields[parser->kind].name, problem), hint);
}

/* What stands at the cursor, up to the end of its item, for a message. */
static char *
rest_of_item(const Parser *parser)
{
	return pnstrdup(parser->p, strcspn(parser->p, ", \t\n\r"));
}

static bool
at_item_end(const Parser *parser)
{
	return *parser->p == '\0' || *parser->p == ',' || isspace((unsigned char) *parser->p);
}

static bool
accept(Parser *parser, char c)
{
	if (*parser->p == '\0' || toupper((unsigned char) *parser->p) != c)
		return false;
	parser->p++;
	return true;
}

static bool
parse_number(Parser *parser, const char *what, int min, int max, int *value)
{
	const char *start = parser->p;
	const char *hint = NULL;

	*value = 0;
	while (isdigit((unsigned char) *parser->p))
	{
		*value = Min(*value * 10 + (*parser->p - '0'), 100000);
		parser->p++;
	}
	if (parser->p == start)
		return complain_in_field(parser, at_item_end(parser) ? psprintf("%s is missing.", what) :
								 psprintf("\"%s\" is not %s.", rest_of_item(parser), what), NULL);
	if (*value >= min && *value <= max)
		return true;
	if (strcmp(what, "a step") == 0 && *value > max)
		hint = "Steps begin anew in every minute, hour, day, month or year; for other distances use \"every\".";
	return complain_in_field(parser, psprintf("%s is out of range, it must be from %d to %d.",
											  pnstrdup(start, parser->p - start), min, max), hint);
}

static bool
parse_value(Parser *parser, int *value)
{
	FieldKind	kind = parser->kind;

	for (int i = 0; fields[kind].names != NULL && i < fields[kind].cycle; i++)
	{
		if (pg_strncasecmp(parser->p, fields[kind].names[i], 3) == 0)
		{
			parser->p += 3;
			*value = fields[kind].min + i;
			return true;
		}
	}
	return parse_number(parser, fields[kind].names != NULL ? "a number or a three-letter name" :
						"a number", fields[kind].min, fields[kind].max, value);
}

static uint64 *
set_of(DurableCron *cron, FieldKind kind)
{
	switch (kind)
	{
		case FIELD_SECOND:
			return &cron->seconds;
		case FIELD_MINUTE:
			return &cron->minutes;
		case FIELD_HOUR:
			return &cron->hours;
		case FIELD_DAY:
			return &cron->days;
		case FIELD_MONTH:
			return &cron->months;
		default:
			return &cron->weekdays;
	}
}

/* A range may run over the end of the field: FRI-MON, 22-2. */
static void
add_range(Parser *parser, int first, int last, int step)
{
	int			min = fields[parser->kind].min;
	int			cycle = fields[parser->kind].cycle;
	uint64	   *set = set_of(parser->cron, parser->kind);

	if (last < first)
		last += cycle;
	for (int v = first; v <= last; v += step)
		*set |= UINT64CONST(1) << ((v - min) % cycle + min);
}

static void
note_star(Parser *parser)
{
	if (parser->kind <= FIELD_HOUR)
		parser->cron->elapsed = true;
	else if (parser->kind == FIELD_DAY)
		parser->cron->any_day = true;
	else if (parser->kind == FIELD_WEEKDAY)
		parser->cron->any_weekday = true;
}

/* L, L-3, LW: the cursor is behind the L. */
static bool
parse_last_day(Parser *parser)
{
	int			before = 0;

	if (accept(parser, 'W'))
		parser->cron->last_workday = true;
	else
	{
		if (accept(parser, '-') && !parse_number(parser, "a number", 0, 30, &before))
			return false;
		parser->cron->days_before_last |= UINT64CONST(1) << before;
	}
	return true;
}

/* 15W, 5L, 5#2: the cursor is behind the value. *special is false where it is none. */
static bool
parse_suffix(Parser *parser, int value, bool *special)
{
	DurableCron *cron = parser->cron;
	int			nth;

	*special = true;
	if (parser->kind == FIELD_DAY && accept(parser, 'W'))
		cron->workdays_near |= UINT64CONST(1) << value;
	else if (parser->kind == FIELD_WEEKDAY && accept(parser, 'L'))
		cron->last_weekdays |= UINT64CONST(1) << (value % 7);
	else if (parser->kind == FIELD_WEEKDAY && accept(parser, '#'))
	{
		if (!parse_number(parser, "a number", 1, 5, &nth))
			return false;
		cron->nth_weekdays[nth - 1] |= UINT64CONST(1) << (value % 7);
	}
	else
		*special = false;
	return true;
}

/* One of "*", "a", "a-b", and perhaps a step. A single value with a step is the
 * start of a range. */
static bool
parse_range(Parser *parser)
{
	FieldKind	kind = parser->kind;
	int			first = fields[kind].min;
	int			last = fields[kind].min + fields[kind].cycle - 1;
	int			step = 1;

	if (accept(parser, '*'))
		note_star(parser);
	else
	{
		bool		special;

		if (!parse_value(parser, &first) || !parse_suffix(parser, first, &special))
			return false;
		if (special)
			return true;
		last = Max(first, last);
		if (accept(parser, '-'))
		{
			if (!parse_value(parser, &last))
				return false;
		}
		else if (*parser->p != '/')
			last = first;
	}
	if (accept(parser, '/') && !parse_number(parser, "a step", 1, fields[kind].cycle, &step))
		return false;
	add_range(parser, first, last, step);
	return true;
}

static bool
parse_item(Parser *parser)
{
	bool		day = parser->kind == FIELD_DAY || parser->kind == FIELD_WEEKDAY;

	if (at_item_end(parser))
		return complain_in_field(parser, "a value is missing.", NULL);
	if (day && accept(parser, '?'))
	{
		note_star(parser);
		add_range(parser, fields[parser->kind].min,
				  fields[parser->kind].min + fields[parser->kind].cycle - 1, 1);
	}
	else if (parser->kind == FIELD_DAY && accept(parser, 'L'))
	{
		if (!parse_last_day(parser))
			return false;
	}
	else if (parser->kind == FIELD_WEEKDAY && toupper((unsigned char) *parser->p) == 'L')
		return complain_in_field(parser, "\"L\" needs a day before it.",
								 "The last Friday of the month is 5L or FRIL; the last day of the month is L in the field of the days.");
	else if (!parse_range(parser))
		return false;
	if (!at_item_end(parser))
		return complain_in_field(parser, psprintf("\"%s\" is not expected here.",
												  rest_of_item(parser)), NULL);
	return true;
}

static void
skip_space(Parser *parser)
{
	while (isspace((unsigned char) *parser->p))
		parser->p++;
}

static int
count_fields(const char *text)
{
	int			n = 0;

	for (const char *p = text; *p; p++)
	{
		if (!isspace((unsigned char) *p) &&
			(p == text || isspace((unsigned char) p[-1])))
			n++;
	}
	return n;
}

static bool
parse_fields(Parser *parser, int nfields)
{
	parser->kind = nfields == FIELD_KINDS ? FIELD_SECOND : FIELD_MINUTE;
	if (parser->kind == FIELD_MINUTE)
		parser->cron->seconds = 1;
	for (parser->number = 1; parser->number <= nfields; parser->number++, parser->kind++)
	{
		skip_space(parser);
		do
		{
			if (!parse_item(parser))
				return false;
		} while (accept(parser, ','));
	}
	return true;
}

static const char *
expand_macro(const char *text)
{
	for (int i = 0; i < lengthof(macros); i++)
	{
		if (pg_strcasecmp(text, macros[i].name) == 0)
			return macros[i].expression;
	}
	return text;
}

bool
durable_cron_parse(const char *text, DurableCron *cron, DurableComplaint *complaint)
{
	Parser		parser = {.text = text, .cron = cron, .complaint = complaint};
	int			nfields;
	int64		match;

	memset(cron, 0, sizeof(DurableCron));
	if (strlen(text) > EXPRESSION_MAX)
	{
		parser.text = psprintf("%s...", pnstrdup(text, pg_mbcliplen(text, strlen(text), 50)));
		return complain(&parser, psprintf("It may have at most %d bytes.", EXPRESSION_MAX), NULL);
	}
	parser.p = expand_macro(text);
	skip_space(&parser);
	if (*parser.p == '@')
		return complain(&parser, psprintf("\"%s\" is not known.", parser.p),
						"The short forms are @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly; for fixed distances use \"every\".");
	nfields = count_fields(parser.p);
	if (nfields != FIELD_KINDS && nfields != FIELD_KINDS - 1)
		return complain(&parser, psprintf("There must be 5 or 6 fields, not %d.", nfields),
						EXAMPLE_HINT);
	if (!parse_fields(&parser, nfields))
		return false;
	if (!durable_cron_match(cron, 0, (int64) DAYS_PER_CALENDAR * SECONDS_PER_DAY, &match))
		return complain(&parser, pstrdup("It never fires: no date matches its days and months."),
						"February has no 30th day, and four other months have no 31st.");
	return true;
}

/* ----------------------------------------------------------------- matching */

static inline bool
has(uint64 set, int value)
{
	return (set >> value & 1) != 0;
}

/* The least member from "value" on, or -1. */
static inline int
next_in(uint64 set, int value)
{
	if (value > 63 || set >> value == 0)
		return -1;
	return value + pg_rightmost_one_pos64(set >> value);
}

/* The first matching second of the day from "tod" on, or -1. */
static int
match_time(const DurableCron *cron, int tod)
{
	int			hour = tod / SECS_PER_HOUR;
	int			minute = tod / SECS_PER_MINUTE % MINS_PER_HOUR;
	int			second = next_in(cron->seconds, tod % SECS_PER_MINUTE);

	if (has(cron->hours, hour))
	{
		if (second < 0 || !has(cron->minutes, minute))
		{
			second = next_in(cron->seconds, 0);
			minute = next_in(cron->minutes, minute + 1);
		}
		if (minute >= 0)
			return (hour * MINS_PER_HOUR + minute) * SECS_PER_MINUTE + second;
	}
	hour = next_in(cron->hours, hour + 1);
	if (hour < 0)
		return -1;
	return (hour * MINS_PER_HOUR + next_in(cron->minutes, 0)) * SECS_PER_MINUTE +
		next_in(cron->seconds, 0);
}

/* The workday nearest to a day, in the same month. */
static int
workday_near(int day, int weekday, int last)
{
	if (weekday == 6)
		return day > 1 ? day - 1 : day + 2;
	if (weekday == 0)
		return day < last ? day + 1 : day - 2;
	return day;
}

static bool
is_near_workday(const DurableCron *cron, int day, int weekday, int last)
{
	/* the days that may have moved here stand around it */
	for (int d = Max(day - 2, 1); d <= Min(day + 2, last); d++)
	{
		int			w = (weekday + d - day + 7) % 7;

		if ((has(cron->workdays_near, d) || (cron->last_workday && d == last)) &&
			workday_near(d, w, last) == day)
			return true;
	}
	return false;
}

static bool
match_day(const DurableCron *cron, int day, int weekday, int last)
{
	bool		in_month = has(cron->days, day) ||
		has(cron->days_before_last, last - day) ||
		is_near_workday(cron, day, weekday, last);
	bool		in_week = has(cron->weekdays, weekday) ||
		(day + 7 > last && has(cron->last_weekdays, weekday)) ||
		has(cron->nth_weekdays[(day - 1) / 7], weekday);

	/* the old rule of cron: two restrictions mean either */
	return cron->any_day || cron->any_weekday ? in_month && in_week : in_month || in_week;
}

static int64
floor_day(int64 seconds)
{
	int64		day = seconds / SECONDS_PER_DAY;

	return seconds % SECONDS_PER_DAY < 0 ? day - 1 : day;
}

bool
durable_cron_match(const DurableCron *cron, int64 from, int64 until, int64 *match)
{
	int64		date = floor_day(from);
	int64		last_date = floor_day(until);
	int			tod = (int) (from - date * SECONDS_PER_DAY);
	int			year;
	int			month;
	int			day;

	while (date <= last_date)
	{
		int			last;

		j2date((int) date + UNIX_EPOCH_JDATE, &year, &month, &day);
		last = day_tab[isleap(year)][month - 1];
		if (!has(cron->months, month))
			date += last - day + 1;
		else
		{
			if (match_day(cron, day, j2day((int) date + UNIX_EPOCH_JDATE), last) &&
				(tod = match_time(cron, tod)) >= 0)
			{
				*match = date * SECONDS_PER_DAY + tod;
				return *match <= until;
			}
			date++;
		}
		tod = 0;
	}
	return false;
}
