/*-------------------------------------------------------------------------
 *
 * schedule.c
 *	  create_schedule, upsert_schedule, pause_schedule, resume_schedule,
 *	  trigger_schedule, backfill_schedule, delete_schedule, next_fires.
 *
 * A schedule acts for its owner, the role that wrote its definition. It may be
 * changed by the owner and by whoever may manage its namespace.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

#include "api/args.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/names.h"
#include "base/security.h"
#include "base/wakeup.h"
#include "engine/schedule.h"

DURABLE_FUNCTION(durable_create_schedule);
DURABLE_FUNCTION(durable_upsert_schedule);
DURABLE_FUNCTION(durable_pause_schedule);
DURABLE_FUNCTION(durable_resume_schedule);
DURABLE_FUNCTION(durable_trigger_schedule);
DURABLE_FUNCTION(durable_backfill_schedule);
DURABLE_FUNCTION(durable_delete_schedule);
DURABLE_FUNCTION(durable_next_fires);

/* "sched:", ":manual:" and the window have to fit into a run id as well. */
#define SCHEDULE_ID_MAX 200

enum
{
	ARG_ID,
	ARG_WORKFLOW,
	ARG_INPUT,
	ARG_CRON,
	ARG_EVERY,
	ARG_TIMEZONE,
	ARG_JITTER,
	ARG_OVERLAP,
	ARG_CATCHUP,
	ARG_MAX_CATCHUP,
	ARG_PAUSED,
	ARG_TAGS,
	ARG_NAMESPACE,
	ARG_VERSION,
	ARG_PRIORITY,
	ARG_SEARCH_ATTRIBUTES,
	ARG_HEADERS,
	ARG_NOTE,
	ARG_CONCURRENCY_KEY,
	ARG_CONCURRENCY_LIMIT
};

static text *
arg_schedule_id(FunctionCallInfo fcinfo)
{
	text	   *id;
	int			length;

	if (PG_ARGISNULL(ARG_ID))
		durable_error_null("schedule_id");
	id = PG_GETARG_TEXT_PP(ARG_ID);
	length = VARSIZE_ANY_EXHDR(id);
	if (length == 0 || length > SCHEDULE_ID_MAX)
		durable_error_value("schedule_id",
							psprintf("It must have between 1 and %d bytes.", SCHEDULE_ID_MAX));
	return id;
}

static text *
arg_note(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? NULL : durable_check_name(PG_GETARG_TEXT_PP(n), "note");
}

/* -------------------------------------------------------------- definitions */

static void
read_policies(FunctionCallInfo fcinfo, DurableRow *row)
{
	if (PG_ARGISNULL(ARG_OVERLAP))
		durable_error_null("overlap");
	if (PG_ARGISNULL(ARG_CATCHUP))
		durable_error_null("catchup");
	if (!durable_overlap_known(PG_GETARG_TEXT_PP(ARG_OVERLAP)))
		durable_error_value("overlap", "It must be \"allow\" or \"skip\".");
	durable_row_set(row, SCHEDULE_OVERLAP, PG_GETARG_DATUM(ARG_OVERLAP));
	if (!durable_catchup_known(PG_GETARG_TEXT_PP(ARG_CATCHUP)))
		durable_error_value("catchup", "It must be \"one\", \"skip\" or \"all\".");
	durable_row_set(row, SCHEDULE_CATCHUP, PG_GETARG_DATUM(ARG_CATCHUP));
	if (PG_ARGISNULL(ARG_MAX_CATCHUP))
		return;
	if (PG_GETARG_INT32(ARG_MAX_CATCHUP) < 0 ||
		PG_GETARG_INT32(ARG_MAX_CATCHUP) > DURABLE_CATCHUP_MAX)
		durable_error_value("max_catchup",
							psprintf("It must be between 0 and %d.", DURABLE_CATCHUP_MAX));
	if (!durable_text_is(PG_GETARG_TEXT_PP(ARG_CATCHUP), "all"))
		durable_error_value("max_catchup", "It goes only with the catch-up policy \"all\".");
	durable_row_set(row, SCHEDULE_MAX_CATCHUP, PG_GETARG_DATUM(ARG_MAX_CATCHUP));
}

/* The zone is stored in the spelling of the zone files. */
static void
read_times(FunctionCallInfo fcinfo, DurableRow *row)
{
	DurableComplaint complaint;
	pg_tz	   *zone;

	if (PG_ARGISNULL(ARG_TIMEZONE))
		durable_error_null("timezone");
	if (PG_ARGISNULL(ARG_JITTER))
		durable_error_null("jitter");
	if (!durable_timing_zone(text_to_cstring(PG_GETARG_TEXT_PP(ARG_TIMEZONE)), &zone, &complaint))
		durable_complaint_raise(&complaint);
	durable_row_set(row, SCHEDULE_TIMEZONE, CStringGetTextDatum(pg_get_timezone_name(zone)));
	if (!PG_ARGISNULL(ARG_CRON))
		durable_row_set(row, SCHEDULE_CRON, PG_GETARG_DATUM(ARG_CRON));
	if (!PG_ARGISNULL(ARG_EVERY))
		durable_row_set(row, SCHEDULE_EVERY, PG_GETARG_DATUM(ARG_EVERY));
	durable_row_set(row, SCHEDULE_JITTER, PG_GETARG_DATUM(ARG_JITTER));
}

/* Everything that the caller says, and a history that is empty. */
static void
read_definition(FunctionCallInfo fcinfo, DurableRow *row, TimestampTz now)
{
	for (int i = 0; i < SCHEDULE_COLUMNS; i++)
		durable_row_set_null(row, i);
	durable_row_set(row, SCHEDULE_ID, PointerGetDatum(arg_schedule_id(fcinfo)));
	durable_row_set(row, SCHEDULE_WORKFLOW,
					PointerGetDatum(durable_arg_name(fcinfo, ARG_WORKFLOW, "workflow", false)));
	durable_row_set_pointer(row, SCHEDULE_VERSION,
							durable_arg_name(fcinfo, ARG_VERSION, "version", true));
	durable_row_set(row, SCHEDULE_NAMESPACE,
					PointerGetDatum(durable_arg_namespace(fcinfo, ARG_NAMESPACE)));
	read_policies(fcinfo, row);
	read_times(fcinfo, row);
	durable_row_set_pointer(row, SCHEDULE_INPUT, durable_arg_payload(fcinfo, ARG_INPUT, "input"));
	durable_row_set_pointer(row, SCHEDULE_SEARCH_ATTRIBUTES,
							durable_arg_payload(fcinfo, ARG_SEARCH_ATTRIBUTES, "search_attributes"));
	durable_row_set_pointer(row, SCHEDULE_HEADERS,
							durable_arg_payload(fcinfo, ARG_HEADERS, "headers"));
	durable_row_set(row, SCHEDULE_TAGS, PG_ARGISNULL(ARG_TAGS) ?
					PointerGetDatum(construct_empty_array(TEXTOID)) : PG_GETARG_DATUM(ARG_TAGS));
	durable_row_set(row, SCHEDULE_PRIORITY,
					Int32GetDatum(PG_ARGISNULL(ARG_PRIORITY) ? 0 : PG_GETARG_INT32(ARG_PRIORITY)));
	durable_row_set_pointer(row, SCHEDULE_NOTE, arg_note(fcinfo, ARG_NOTE));
	durable_row_set_pointer(row, SCHEDULE_CONCURRENCY_KEY,
							durable_arg_name(fcinfo, ARG_CONCURRENCY_KEY, "concurrency_key", true));
	if (!PG_ARGISNULL(ARG_CONCURRENCY_LIMIT))
		durable_row_set(row, SCHEDULE_CONCURRENCY_LIMIT, PG_GETARG_DATUM(ARG_CONCURRENCY_LIMIT));
	durable_row_set(row, SCHEDULE_OWNER, ObjectIdGetDatum(GetUserId()));
	durable_row_set(row, SCHEDULE_CREATED_AT, TimestampTzGetDatum(now));
	durable_row_set(row, SCHEDULE_UPDATED_AT, TimestampTzGetDatum(now));
	durable_row_set(row, SCHEDULE_FIRES, Int64GetDatum(0));
	durable_row_set(row, SCHEDULE_SKIPS, Int64GetDatum(0));
	durable_row_set(row, SCHEDULE_PAUSED,
					BoolGetDatum(!PG_ARGISNULL(ARG_PAUSED) && PG_GETARG_BOOL(ARG_PAUSED)));
}

static void
return_next_fire(FunctionCallInfo fcinfo, const DurableRow *row)
{
	fcinfo->isnull = row->nulls[SCHEDULE_NEXT_FIRE];
	/* whoever sweeps may have to do so earlier than it thinks */
	durable_wakeup_note_all();
	CommandCounterIncrement();
}

/* A new one needs the namespace's manager; a role that owns one may replace it. */
static bool
try_create(DurableRow *row, TimestampTz now)
{
	DurableSchedulePlan plan;

	durable_access_require(DatumGetTextPP(row->values[SCHEDULE_NAMESPACE]), PRIVILEGE_MANAGE);
	durable_access_require(DatumGetTextPP(row->values[SCHEDULE_NAMESPACE]), PRIVILEGE_START);
	durable_schedule_require(row, true, now, &plan);
	if (!DatumGetBool(row->values[SCHEDULE_PAUSED]))
		durable_schedule_go_on(row, &plan.timing, now);
	return durable_schedule_insert(row);
}

Datum
durable_create_schedule(PG_FUNCTION_ARGS)
{
	DurableRow	row;
	TimestampTz now = durable_clock_now();

	durable_require_writable("durable.create_schedule()");
	read_definition(fcinfo, &row, now);
	if (!try_create(&row, now))
		ereport(ERROR,
				errcode(ERRCODE_DUPLICATE_OBJECT),
				errmsg("schedule \"%s\" already exists",
					   TextDatumGetCString(row.values[SCHEDULE_ID])),
				errhint("Replace its definition with durable.upsert_schedule()."));
	return_next_fire(fcinfo, &row);
	return row.values[SCHEDULE_NEXT_FIRE];
}

/* ---------------------------------------------------------- existing ones */

static void
no_such_schedule(text *id)
{
	ereport(ERROR,
			errcode(ERRCODE_UNDEFINED_OBJECT),
			errmsg("schedule \"%s\" does not exist", text_to_cstring(id)));
}

static bool
is_owner(const DurableRow *row)
{
	return has_privs_of_role(GetUserId(), DatumGetObjectId(row->values[SCHEDULE_OWNER]));
}

static void
require_control(const DurableRow *row)
{
	text	   *namespace = DatumGetTextPP(row->values[SCHEDULE_NAMESPACE]);

	if (is_owner(row) || durable_access_has(namespace, PRIVILEGE_MANAGE))
		return;
	ereport(ERROR,
			errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			errmsg("permission denied for schedule \"%s\"",
				   TextDatumGetCString(row->values[SCHEDULE_ID])),
			errdetail("The role \"%s\" neither owns it nor holds the privilege \"manage\" in namespace \"%s\".",
					  GetUserNameFromId(GetUserId(), false), text_to_cstring(namespace)));
}

/* Locked, and the caller may change it. */
static bool
open_schedule(FunctionCallInfo fcinfo, DurableSchedule *schedule, const char *function)
{
	durable_require_writable(function);
	if (!durable_schedule_open(schedule, arg_schedule_id(fcinfo)))
		return false;
	require_control(&schedule->row);
	return true;
}

static bool
same_value(const DurableRow *a, const DurableRow *b, int column)
{
	if (a->nulls[column] || b->nulls[column])
		return a->nulls[column] && b->nulls[column];
	if (column == SCHEDULE_EVERY || column == SCHEDULE_JITTER)
		return memcmp(DatumGetIntervalP(a->values[column]),
					  DatumGetIntervalP(b->values[column]), sizeof(Interval)) == 0;
	return durable_text_same(DatumGetTextPP(a->values[column]), DatumGetTextPP(b->values[column]));
}

static void
require_same_namespace(const DurableRow *old, const DurableRow *new)
{
	if (same_value(old, new, SCHEDULE_NAMESPACE))
		return;
	ereport(ERROR,
			errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			errmsg("schedule \"%s\" exists in another namespace",
				   TextDatumGetCString(old->values[SCHEDULE_ID])),
			errdetail("It belongs to \"%s\", not to \"%s\".",
					  TextDatumGetCString(old->values[SCHEDULE_NAMESPACE]),
					  TextDatumGetCString(new->values[SCHEDULE_NAMESPACE])),
			errhint("Ids are unique in the database; delete the schedule there first."));
}

/* What is not of the definition stays as it was. */
static void
keep_history(const DurableRow *old, DurableRow *new, bool keep_paused)
{
	static const int history[] = {
		SCHEDULE_CREATED_AT, SCHEDULE_NEXT_WINDOW, SCHEDULE_NEXT_FIRE, SCHEDULE_CATCHUP_UNTIL,
		SCHEDULE_LAST_WINDOW, SCHEDULE_LAST_FIRE_AT, SCHEDULE_FIRES, SCHEDULE_SKIPS,
		SCHEDULE_LAST_RUN_ID, SCHEDULE_LAST_SKIP, SCHEDULE_LAST_ERROR
	};

	for (int i = 0; i < lengthof(history); i++)
	{
		new->values[history[i]] = old->values[history[i]];
		new->nulls[history[i]] = old->nulls[history[i]];
	}
	new->tid = old->tid;
	if (keep_paused)
		durable_row_set(new, SCHEDULE_PAUSED, old->values[SCHEDULE_PAUSED]);
	if (new->nulls[SCHEDULE_NOTE] && !old->nulls[SCHEDULE_NOTE])
		durable_row_set(new, SCHEDULE_NOTE, old->values[SCHEDULE_NOTE]);
	/* a manager's own definition is the manager's */
	if (is_owner(old) && SearchSysCacheExists1(AUTHOID, old->values[SCHEDULE_OWNER]))
		durable_row_set(new, SCHEDULE_OWNER, old->values[SCHEDULE_OWNER]);
}

/* A window that is due already is not lost by writing the same times again. */
static void
replan(const DurableRow *old, DurableRow *new, const DurableTiming *timing, TimestampTz now)
{
	bool		paused = DatumGetBool(new->values[SCHEDULE_PAUSED]);

	if (paused)
	{
		durable_row_set_null(new, SCHEDULE_NEXT_WINDOW);
		durable_row_set_null(new, SCHEDULE_NEXT_FIRE);
		durable_row_set_null(new, SCHEDULE_CATCHUP_UNTIL);
	}
	else if (old->nulls[SCHEDULE_NEXT_WINDOW] || !same_value(old, new, SCHEDULE_CRON) ||
			 !same_value(old, new, SCHEDULE_EVERY) || !same_value(old, new, SCHEDULE_TIMEZONE) ||
			 !same_value(old, new, SCHEDULE_JITTER))
		durable_schedule_go_on(new, timing, now);
}

static void
replace(DurableSchedule *schedule, DurableRow *new, bool keep_paused, TimestampTz now)
{
	DurableSchedulePlan plan;

	require_control(&schedule->row);
	require_same_namespace(&schedule->row, new);
	durable_access_require(DatumGetTextPP(new->values[SCHEDULE_NAMESPACE]), PRIVILEGE_START);
	keep_history(&schedule->row, new, keep_paused);
	durable_schedule_require(new, true, now, &plan);
	replan(&schedule->row, new, &plan.timing, now);
	durable_row_set_null(new, SCHEDULE_LAST_ERROR);
	schedule->row = *new;
	durable_schedule_update(schedule);
}

Datum
durable_upsert_schedule(PG_FUNCTION_ARGS)
{
	DurableRow	row;
	DurableSchedule schedule;
	TimestampTz now = durable_clock_now();
	bool		done = false;

	durable_require_writable("durable.upsert_schedule()");
	read_definition(fcinfo, &row, now);
	while (!done)
	{
		CHECK_FOR_INTERRUPTS();
		if (!durable_schedule_open(&schedule, DatumGetTextPP(row.values[SCHEDULE_ID])))
			done = try_create(&row, now);
		else
		{
			replace(&schedule, &row, PG_ARGISNULL(ARG_PAUSED), now);
			durable_schedule_close(&schedule);
			done = true;
		}
	}
	return_next_fire(fcinfo, &row);
	return row.values[SCHEDULE_NEXT_FIRE];
}

Datum
durable_pause_schedule(PG_FUNCTION_ARGS)
{
	DurableSchedule schedule;
	DurableRow *row = &schedule.row;
	text	   *note = arg_note(fcinfo, 1);
	bool		was_paused;

	if (!open_schedule(fcinfo, &schedule, "durable.pause_schedule()"))
		no_such_schedule(PG_GETARG_TEXT_PP(0));
	was_paused = DatumGetBool(row->values[SCHEDULE_PAUSED]);
	durable_row_set(row, SCHEDULE_PAUSED, BoolGetDatum(true));
	durable_row_set_null(row, SCHEDULE_NEXT_WINDOW);
	durable_row_set_null(row, SCHEDULE_NEXT_FIRE);
	durable_row_set_null(row, SCHEDULE_CATCHUP_UNTIL);
	if (note != NULL)
		durable_row_set_pointer(row, SCHEDULE_NOTE, note);
	durable_schedule_set_time(row, SCHEDULE_UPDATED_AT, durable_clock_now());
	durable_schedule_update(&schedule);
	durable_schedule_close(&schedule);
	CommandCounterIncrement();
	PG_RETURN_BOOL(!was_paused);
}

Datum
durable_resume_schedule(PG_FUNCTION_ARGS)
{
	DurableSchedule schedule;
	DurableRow *row = &schedule.row;
	DurableSchedulePlan plan;
	TimestampTz now = durable_clock_now();
	Datum		next;

	if (!open_schedule(fcinfo, &schedule, "durable.resume_schedule()"))
		no_such_schedule(PG_GETARG_TEXT_PP(0));
	if (DatumGetBool(row->values[SCHEDULE_PAUSED]))
	{
		durable_schedule_require(row, false, now, &plan);
		durable_row_set(row, SCHEDULE_PAUSED, BoolGetDatum(false));
		durable_row_set_null(row, SCHEDULE_LAST_ERROR);
		durable_schedule_go_on(row, &plan.timing, now);
		durable_schedule_set_time(row, SCHEDULE_UPDATED_AT, now);
		durable_schedule_update(&schedule);
	}
	return_next_fire(fcinfo, row);
	next = row->values[SCHEDULE_NEXT_FIRE];
	durable_schedule_close(&schedule);
	return next;
}

Datum
durable_delete_schedule(PG_FUNCTION_ARGS)
{
	DurableSchedule schedule;

	if (!open_schedule(fcinfo, &schedule, "durable.delete_schedule()"))
		PG_RETURN_BOOL(false);
	durable_schedule_delete(&schedule);
	durable_schedule_close(&schedule);
	CommandCounterIncrement();
	PG_RETURN_BOOL(true);
}

/* Without a lock: it does not hold up the schedule's windows. */
Datum
durable_trigger_schedule(PG_FUNCTION_ARGS)
{
	DurableRow	row;
	DurableSchedulePlan plan;
	TimestampTz now = durable_clock_now();

	durable_require_writable("durable.trigger_schedule()");
	if (!durable_schedule_read(arg_schedule_id(fcinfo), &row))
		no_such_schedule(PG_GETARG_TEXT_PP(0));
	require_control(&row);
	durable_schedule_require(&row, false, now, &plan);
	PG_RETURN_TEXT_P(durable_schedule_trigger(&row, &plan, now));
}

/* ----------------------------------------------------------- past and future */

static TimestampTz
arg_instant(FunctionCallInfo fcinfo, int n, const char *argument, TimestampTz absent)
{
	TimestampTz t = PG_ARGISNULL(n) ? absent : PG_GETARG_TIMESTAMPTZ(n);

	if (TIMESTAMP_NOT_FINITE(t))
		durable_error_value(argument, "It must not be infinity.");
	return t;
}

static void
return_row(ReturnSetInfo *result, Datum value)
{
	bool		isnull = false;

	tuplestore_putvalues(result->setResult, result->setDesc, &value, &isnull);
}

/* Without "since" it begins behind the last window that was dealt with. */
static void
read_backfill(FunctionCallInfo fcinfo, const DurableRow *row, TimestampTz now,
			  DurableBackfill *backfill)
{
	TimestampTz created = durable_schedule_time(row, SCHEDULE_CREATED_AT, now);
	TimestampTz last = durable_schedule_time(row, SCHEDULE_LAST_WINDOW, created - 1);

	backfill->since = arg_instant(fcinfo, 1, "since", last + 1);
	backfill->until = arg_instant(fcinfo, 2, "until", now);
	if (backfill->until > now)
		durable_error_value("until", "It must not be in the future.");
	if (backfill->since > backfill->until && !PG_ARGISNULL(1))
		durable_error_value("since", "It must not be later than until.");
	backfill->max_runs = -1;
	if (PG_ARGISNULL(3))
		return;
	backfill->max_runs = PG_GETARG_INT32(3);
	if (backfill->max_runs < 1 || backfill->max_runs > DURABLE_BACKFILL_MAX)
		durable_error_value("max_runs",
							psprintf("It must be between 1 and %d.", DURABLE_BACKFILL_MAX));
}

Datum
durable_backfill_schedule(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	DurableSchedule schedule;
	DurableSchedulePlan plan;
	DurableBackfill backfill;
	TimestampTz now = durable_clock_now();

	if (!open_schedule(fcinfo, &schedule, "durable.backfill_schedule()"))
		no_such_schedule(PG_GETARG_TEXT_PP(0));
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	read_backfill(fcinfo, &schedule.row, now, &backfill);
	durable_schedule_require(&schedule.row, false, now, &plan);
	durable_schedule_backfill(&schedule, &plan, now, &backfill);
	durable_schedule_update(&schedule);
	durable_schedule_close(&schedule);
	CommandCounterIncrement();
	for (int i = 0; i < backfill.nstarted; i++)
		return_row(result, PointerGetDatum(backfill.started[i]));
	return (Datum) 0;
}

Datum
durable_next_fires(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	const Interval none = {0};
	DurableTimingText given = {.jitter = &none};
	DurableTiming timing;
	DurableComplaint complaint;
	TimestampTz window;
	int			n;

	if (PG_ARGISNULL(0))
		durable_error_null("cron");
	given.cron = text_to_cstring(PG_GETARG_TEXT_PP(0));
	if (PG_ARGISNULL(1))
		durable_error_null("timezone");
	given.timezone = text_to_cstring(PG_GETARG_TEXT_PP(1));
	n = durable_arg_count(fcinfo, 2, "n");
	window = arg_instant(fcinfo, 3, "after", durable_clock_now());
	if (!durable_timing_read(&given, &timing, &complaint))
		durable_complaint_raise(&complaint);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	while (n-- > 0 && (window = durable_window_next(&timing, window)) != DT_NOEND)
	{
		CHECK_FOR_INTERRUPTS();
		return_row(result, TimestampTzGetDatum(window));
	}
	return (Datum) 0;
}
