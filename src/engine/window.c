/*-------------------------------------------------------------------------
 *
 * window.c
 *	  When a schedule is due: its windows, in its time zone.
 *
 * The zone data is PostgreSQL's own. A zone is a row of segments in which its
 * clock differs from UTC by a constant; pg_next_dst_boundary() tells them apart.
 * Two rules say what happens where two segments meet:
 *
 * - An expression with a "*" in its seconds, minutes or hours runs by elapsed
 *	 time: at every instant at which the zone's clock reads a time that matches.
 *	 An hour that is skipped has none, an hour that is repeated has them twice.
 * - Any other names its times of day, and each fires once: at the first instant
 *	 at which the clock reads that time or a later one. A time that is skipped fires
 *	 when the clock jumps over it, one that comes twice fires the first time.
 *
 * The second rule maps local times to instants in their order, so the next window
 * is that of the next local time which the clock has not read or passed before.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "base/clock.h"
#include "base/compat.h"
#include "engine/window.h"

/* More than any zone's clock differs from UTC or was ever turned. */
#define TWO_DAYS (INT64CONST(2) * SECS_PER_DAY)
#define HORIZON (INT64CONST(146097) * SECS_PER_DAY)	/* 400 years */

/* PostgreSQL's last and first instants, in seconds since 1970 */
#define LAST_SECOND ((END_TIMESTAMP - 1) / USECS_PER_SEC + EPOCH_SHIFT)
#define FIRST_SECOND (MIN_TIMESTAMP / USECS_PER_SEC + EPOCH_SHIFT)
#define EPOCH_SHIFT \
	((int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY)

#define EVERY_MAX_US (INT64CONST(366000) * USECS_PER_DAY)	/* a thousand years */
#define GAPS_CHECKED 64

static inline int64
floor_div(int64 a, int64 b)
{
	return a / b - (a % b < 0 ? 1 : 0);
}

static inline int64
to_seconds(TimestampTz t)
{
	return floor_div(t, USECS_PER_SEC) + EPOCH_SHIFT;
}

static inline TimestampTz
from_seconds(int64 seconds)
{
	return (seconds - EPOCH_SHIFT) * USECS_PER_SEC;
}

/* ------------------------------------------------------------------- zones */

/* From an instant on, up to "end", the zone's clock is ahead of UTC by "offset". */
typedef struct Segment
{
	int64		end;
	int64		offset;
} Segment;

static Segment
segment_at(pg_tz *zone, int64 instant)
{
	pg_time_t	t = (pg_time_t) instant;
	pg_time_t	boundary;
	long int	before = 0;
	long int	after;
	int			before_dst;
	int			after_dst;
	Segment		segment = {.end = PG_INT64_MAX};

	if (pg_next_dst_boundary(&t, &before, &before_dst, &boundary, &after, &after_dst, zone) > 0)
		segment.end = (int64) boundary;
	segment.offset = before;
	return segment;
}

/* The latest that the clock has read up to an instant; a clock that was put back
 * has read more than it shows. */
static int64
latest_reading(pg_tz *zone, int64 instant)
{
	int64		latest = PG_INT64_MIN;
	Segment		segment;

	for (int64 t = instant - TWO_DAYS;; t = segment.end)
	{
		segment = segment_at(zone, t);
		latest = Max(latest, Min(segment.end - 1, instant) + segment.offset);
		if (segment.end > instant)
			return latest;
	}
}

/* The first instant at which the clock reads a local time or a later one. */
static int64
first_instant(pg_tz *zone, int64 local)
{
	Segment		segment;

	for (int64 t = local - TWO_DAYS;; t = segment.end)
	{
		int64		instant;

		segment = segment_at(zone, t);
		instant = Max(t, local - segment.offset);
		if (instant < segment.end)
			return instant;
	}
}

/* -------------------------------------------------------- cron in its zone */

static bool
next_elapsed(const DurableTiming *timing, int64 after, int64 horizon, int64 *next)
{
	Segment		segment;

	for (int64 t = after + 1; t <= horizon; t = segment.end)
	{
		int64		local;

		segment = segment_at(timing->zone, t);
		if (durable_cron_match(&timing->cron, t + segment.offset,
							   Min(segment.end - 1, horizon) + segment.offset, &local))
		{
			*next = local - segment.offset;
			return true;
		}
	}
	return false;
}

static bool
next_named(const DurableTiming *timing, int64 after, int64 horizon, int64 *next)
{
	int64		local;

	if (!durable_cron_match(&timing->cron, latest_reading(timing->zone, after) + 1,
							horizon + TWO_DAYS, &local))
		return false;
	*next = first_instant(timing->zone, local);
	return *next <= horizon;
}

/* The first fire after an instant, in seconds. */
static bool
next_fire(const DurableTiming *timing, int64 after, int64 *next)
{
	int64		horizon = Min(after + HORIZON, LAST_SECOND);

	return timing->cron.elapsed ? next_elapsed(timing, after, horizon, next) :
		next_named(timing, after, horizon, next);
}

/*
 * The last fire up to an instant. There is no way to look backwards, so this
 * looks forward: from further and further back until there is a fire at all, and
 * then by bisection.
 */
static bool
last_fire(const DurableTiming *timing, int64 at, int64 *last)
{
	int64		span = SECS_PER_MINUTE;
	int64		fire;

	while (!next_fire(timing, Max(at - span, FIRST_SECOND), &fire) || fire > at)
	{
		if (span > HORIZON || at - span < FIRST_SECOND)
			return false;
		span *= 4;
	}
	*last = fire;
	while (next_fire(timing, *last, &fire) && fire <= at)
	{
		int64		middle;

		*last = fire;
		middle = fire + (at - fire) / 2;
		if (next_fire(timing, middle, &fire) && fire <= at)
			*last = fire;
		else
			at = middle;
	}
	return true;
}

/* ------------------------------------------------------------------ windows */

int64
durable_window_ms(TimestampTz window)
{
	return floor_div(window, 1000) + EPOCH_SHIFT * 1000;
}

static TimestampTz
from_ms(int64 ms)
{
	return (ms - EPOCH_SHIFT * 1000) * 1000;
}

TimestampTz
durable_window_next(const DurableTiming *timing, TimestampTz after)
{
	int64		next;

	if (!timing->is_cron)
	{
		next = (floor_div(durable_window_ms(after), timing->every) + 1) * timing->every;
		return next <= LAST_SECOND * 1000 ? from_ms(next) : DT_NOEND;
	}
	return next_fire(timing, to_seconds(after), &next) ? from_seconds(next) : DT_NOEND;
}

TimestampTz
durable_window_last(const DurableTiming *timing, TimestampTz at)
{
	int64		last;

	if (!timing->is_cron)
	{
		last = floor_div(durable_window_ms(at), timing->every) * timing->every;
		return last >= FIRST_SECOND * 1000 ? from_ms(last) : DT_NOBEGIN;
	}
	return last_fire(timing, to_seconds(at), &last) ? from_seconds(last) : DT_NOBEGIN;
}

/* FNV-1a, so that every release agrees with every other. */
static uint32
hash_window(const text *schedule_id, TimestampTz window)
{
	uint32		hash = 2166136261u;
	char	   *tail = psprintf("@%lld", (long long) durable_window_ms(window));

	for (int i = 0; i < VARSIZE_ANY_EXHDR(schedule_id); i++)
		hash = (hash ^ (unsigned char) VARDATA_ANY(schedule_id)[i]) * 16777619u;
	for (const char *p = tail; *p; p++)
		hash = (hash ^ (unsigned char) *p) * 16777619u;
	return hash;
}

TimestampTz
durable_window_due(const DurableTiming *timing, const text *schedule_id, TimestampTz window)
{
	if (timing->jitter == 0 || TIMESTAMP_NOT_FINITE(window))
		return window;
	return window + (int64) (hash_window(schedule_id, window) % timing->jitter) * 1000;
}

/* -------------------------------------------------------------- definitions */

static bool
complain(DurableComplaint *complaint, const char *message, const char *detail, const char *hint)
{
	complaint->code = ERRCODE_INVALID_PARAMETER_VALUE;
	complaint->message = message;
	complaint->detail = detail;
	complaint->hint = hint;
	return false;
}

/*
 * PostgreSQL takes "Nowhere5" for a zone, too: a POSIX rule of its own. All of
 * those have a digit, and of the names in the zone files few have one.
 */
static bool
is_posix_rule(const char *name)
{
	static const char *const with_digits[] = {
		"GMT0", "GMT+0", "GMT-0", "EST5EDT", "CST6CDT", "MST7MDT", "PST8PDT"
	};

	if (strpbrk(name, "0123456789") == NULL)
		return false;
	for (int i = 0; i < lengthof(with_digits); i++)
	{
		if (pg_strcasecmp(name, with_digits[i]) == 0)
			return false;
	}
	if (pg_strncasecmp(name, "Etc/GMT", 7) == 0)
	{
		const char *digits = name + 7 + (name[7] == '+' || name[7] == '-');

		return strlen(digits) > 2 || strtol(digits, NULL, 10) > (name[7] == '-' ? 14 : 12);
	}
	return true;
}

bool
durable_timing_zone(const char *name, pg_tz **zone, DurableComplaint *complaint)
{
	*zone = is_posix_rule(name) ? NULL : pg_tzset(name);
	if (*zone != NULL && pg_tz_acceptable(*zone))
		return true;
	return complain(complaint, psprintf("time zone \"%s\" is not known", name), NULL,
					"Use a name from pg_timezone_names, such as \"Europe/Berlin\".");
}

/* Whole milliseconds of a fixed length. */
static bool
read_span(const Interval *span, const char *what, bool zero, int64 *ms,
		  DurableComplaint *complaint)
{
	const char *message = psprintf("invalid value for %s", what);
	int64		us;

	if (durable_interval_negative(span) || (!zero && !durable_interval_positive(span)))
		return complain(complaint, message, zero ? "It must not be negative." :
						"It must be longer than zero.", NULL);
	if (durable_interval_us(span) > EVERY_MAX_US)
		return complain(complaint, message, "It must not be longer than 366000 days.", NULL);
	if (span->month != 0)
		return complain(complaint, message, "Months and years have no fixed length.",
						"Give days or hours, or use a cron expression for times of the calendar.");
	us = span->time + span->day * USECS_PER_DAY;
	if (us % 1000 != 0)
		return complain(complaint, message, "It must be a whole number of milliseconds.", NULL);
	*ms = us / 1000;
	return true;
}

bool
durable_timing_read(const DurableTimingText *given, DurableTiming *timing,
					DurableComplaint *complaint)
{
	memset(timing, 0, sizeof(DurableTiming));
	if ((given->cron != NULL) == (given->every != NULL))
		return complain(complaint, given->cron != NULL ? "both cron and every are given" :
						"neither cron nor every is given", NULL,
						"Say either at which times the schedule fires or how often.");
	if (!durable_timing_zone(given->timezone, &timing->zone, complaint))
		return false;
	timing->is_cron = given->cron != NULL;
	if (timing->is_cron ? !durable_cron_parse(given->cron, &timing->cron, complaint) :
		!read_span(given->every, "every", false, &timing->every, complaint))
		return false;
	if (!read_span(given->jitter, "jitter", true, &timing->jitter, complaint))
		return false;
	if (timing->jitter > PG_UINT32_MAX)
		return complain(complaint, "invalid value for jitter",
						"It must not be longer than 49 days.", NULL);
	return true;
}

bool
durable_timing_check(const DurableTiming *timing, TimestampTz now, DurableComplaint *complaint)
{
	TimestampTz window = durable_window_next(timing, now);

	if (window == DT_NOEND)
		return complain(complaint, "the schedule would never fire",
						psprintf("The clocks of %s never show such a time again.",
								 pg_get_timezone_name(timing->zone)),
						"A time that is skipped whenever it would come matches nothing.");
	for (int i = 0; timing->jitter > 0 && i < GAPS_CHECKED; i++)
	{
		TimestampTz next = durable_window_next(timing, window);

		if (next == DT_NOEND)
			break;
		if (next - window < timing->jitter * 1000)
			return complain(complaint, "invalid value for jitter",
							psprintf("It is longer than the time between two fires, which can be %lld ms.",
									 (long long) ((next - window) / 1000)), NULL);
		window = next;
	}
	return true;
}
