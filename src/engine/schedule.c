/*-------------------------------------------------------------------------
 *
 * schedule.c
 *	  Starting the runs of schedules.
 *
 * A window has one run, because the run's id is made of schedule and window: whoever
 * comes second finds it there. Starting the run and moving the schedule on to its
 * next window are one transaction, under the lock of the schedule's row, so a
 * window is neither lost by a crash nor started by two sweeps.
 *
 * What fails is recorded, and the schedule goes on with its next window; one bad
 * schedule does not keep the others. For that, a pass that has failed is made again
 * with a subtransaction per window. (With that many every time, each snapshot taken
 * meanwhile would have to look them up.) A definition that can start nothing any
 * more pauses itself instead.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/attempt.h"
#include "base/errors.h"
#include "base/names.h"
#include "base/security.h"
#include "engine/run.h"
#include "engine/schedule.h"

/* The policy "skip" still fires a window that is this late, jitter aside. A clock
 * that was put back by less is left to itself. */
#define GRACE_US (60 * USECS_PER_SEC)

/* So many windows of one schedule are caught up on before others have a turn. */
#define TURN_MAX 100

/* A run id that an open transaction of somebody else has taken is waited for this
 * long. */
#define RUN_ID_WAIT "50ms"

typedef enum Outcome
{
	STARTED,
	ALREADY_THERE,				/* by an earlier attempt; that is as good */
	SKIPPED,					/* the policies say so, or there are as many runs as may be */
	FAILED,						/* recorded; the window is over */
	NOT_NOW						/* nothing is known yet: the window comes again */
} Outcome;

/* -------------------------------------------------------------- definitions */

static bool
complain(DurableComplaint *complaint, int code, const char *message, const char *detail,
		 const char *hint)
{
	complaint->code = code;
	complaint->message = message;
	complaint->detail = detail;
	complaint->hint = hint;
	return false;
}

void
durable_complaint_raise(const DurableComplaint *complaint)
{
	ereport(ERROR,
			errcode(complaint->code),
			errmsg("%s", complaint->message),
			complaint->detail == NULL ? 0 : errdetail("%s", complaint->detail),
			complaint->hint == NULL ? 0 : errhint("%s", complaint->hint));
	pg_unreachable();
}

static bool
read_timing(const DurableRow *row, DurableTiming *timing, DurableComplaint *complaint)
{
	DurableTimingText given = {
		.cron = row->nulls[SCHEDULE_CRON] ? NULL :
		TextDatumGetCString(row->values[SCHEDULE_CRON]),
		.every = row->nulls[SCHEDULE_EVERY] ? NULL :
		DatumGetIntervalP(row->values[SCHEDULE_EVERY]),
		.timezone = TextDatumGetCString(row->values[SCHEDULE_TIMEZONE]),
		.jitter = DatumGetIntervalP(row->values[SCHEDULE_JITTER]),
	};

	return durable_timing_read(&given, timing, complaint);
}

static bool
check_owner(const DurableRow *row, DurableComplaint *complaint)
{
	Oid			owner = DatumGetObjectId(row->values[SCHEDULE_OWNER]);
	text	   *namespace = DatumGetTextPP(row->values[SCHEDULE_NAMESPACE]);
	char	   *name = GetUserNameFromId(owner, true);

	if (name == NULL)
		return complain(complaint, ERRCODE_UNDEFINED_OBJECT,
						psprintf("the schedule's owner, role %u, does not exist any more", owner),
						NULL, "Who replaces the definition with durable.upsert_schedule() becomes its owner.");
	if (!durable_access_role_has(owner, namespace, PRIVILEGE_START))
		return complain(complaint, ERRCODE_INSUFFICIENT_PRIVILEGE,
						psprintf("permission denied for namespace \"%s\"",
								 text_to_cstring(namespace)),
						psprintf("The schedule's owner \"%s\" does not hold the privilege \"start\" there.",
								 name),
						"The extension's owner can grant it with durable.grant_usage.");
	return true;
}

/* Key and limit, each from here or from the workflow, as for start(). */
static bool
check_quota(const DurableRow *row, const DurableWorkflow *workflow, DurableComplaint *complaint)
{
	bool		has_key = !row->nulls[SCHEDULE_CONCURRENCY_KEY];
	bool		has_limit = !row->nulls[SCHEDULE_CONCURRENCY_LIMIT];

	if (has_limit && !has_key && workflow->concurrency_key == NULL)
		return complain(complaint, ERRCODE_INVALID_PARAMETER_VALUE, "invalid value for concurrency_limit",
						"There is no concurrency_key, neither here nor in the workflow.", NULL);
	if (has_key && !has_limit && workflow->concurrency_limit < 0)
		return complain(complaint, ERRCODE_INVALID_PARAMETER_VALUE, "invalid value for concurrency_key",
						"There is no concurrency_limit, neither here nor in the workflow.", NULL);
	return true;
}

/* false: the definition cannot be executed, and the complaint says why. Strict
 * is for definitions that somebody writes just now. */
static bool
evaluate(const DurableRow *row, bool strict, TimestampTz now, DurableSchedulePlan *plan,
		 DurableComplaint *complaint)
{
	text	   *version = row->nulls[SCHEDULE_VERSION] ? NULL :
		DatumGetTextPP(row->values[SCHEDULE_VERSION]);
	text	   *workflow = DatumGetTextPP(row->values[SCHEDULE_WORKFLOW]);

	if (!read_timing(row, &plan->timing, complaint) ||
		(strict && !durable_timing_check(&plan->timing, now, complaint)) ||
		!check_owner(row, complaint))
		return false;
	if (durable_workflow_find(DatumGetTextPP(row->values[SCHEDULE_NAMESPACE]), workflow,
							  version, &plan->workflow))
		return check_quota(row, &plan->workflow, complaint);
	return complain(complaint, ERRCODE_UNDEFINED_OBJECT,
					version == NULL ?
					psprintf("workflow \"%s\" is not registered", text_to_cstring(workflow)) :
					psprintf("workflow \"%s\"@\"%s\" is not registered",
							 text_to_cstring(workflow), text_to_cstring(version)), NULL, NULL);
}

void
durable_schedule_require(const DurableRow *row, bool strict, TimestampTz now,
						 DurableSchedulePlan *plan)
{
	DurableComplaint complaint;

	if (!evaluate(row, strict, now, plan, &complaint))
		durable_complaint_raise(&complaint);
}

/* The window that comes next is this one. */
static void
set_next(DurableRow *row, const DurableTiming *timing, TimestampTz window)
{
	durable_schedule_set_time(row, SCHEDULE_NEXT_WINDOW, window);
	durable_schedule_set_time(row, SCHEDULE_NEXT_FIRE,
							  durable_window_due(timing,
												 DatumGetTextPP(row->values[SCHEDULE_ID]),
												 window));
	durable_row_set_null(row, SCHEDULE_CATCHUP_UNTIL);
}

void
durable_schedule_go_on(DurableRow *row, const DurableTiming *timing, TimestampTz now)
{
	set_next(row, timing, durable_window_next(timing, now));
}

static void
pause_itself(DurableSchedule *schedule, const DurableComplaint *complaint)
{
	DurableRow *row = &schedule->row;
	char	   *reason = complaint->detail == NULL ? pstrdup(complaint->message) :
		psprintf("%s: %s", complaint->message, complaint->detail);

	ereport(WARNING,
			errcode(complaint->code),
			errmsg("schedule \"%s\" pauses itself",
				   TextDatumGetCString(row->values[SCHEDULE_ID])),
			errdetail_internal("%s", reason));
	durable_row_set(row, SCHEDULE_PAUSED, BoolGetDatum(true));
	durable_row_set(row, SCHEDULE_LAST_ERROR,
					CStringGetTextDatum(psprintf("invalid schedule: %s", reason)));
	durable_row_set_null(row, SCHEDULE_NEXT_WINDOW);
	durable_row_set_null(row, SCHEDULE_NEXT_FIRE);
	durable_row_set_null(row, SCHEDULE_CATCHUP_UNTIL);
}

/* ------------------------------------------------------------ starting a run */

static text *
run_id_of(const DurableRow *row, const char *kind, TimestampTz t)
{
	return cstring_to_text(psprintf("sched:%s:%s%lld",
									TextDatumGetCString(row->values[SCHEDULE_ID]), kind,
									(long long) durable_window_ms(t)));
}

static void *
payload_of(const DurableRow *row, int column)
{
	return row->nulls[column] ? NULL : PG_DETOAST_DATUM(row->values[column]);
}

static bool
start_run(const DurableRow *row, const DurableSchedulePlan *plan, text *run_id, bool in_sweep)
{
	Datum		tag = CStringGetTextDatum(psprintf("schedule:%s",
												   TextDatumGetCString(row->values[SCHEDULE_ID])));
	ArrayType  *own = construct_array(&tag, 1, TEXTOID, -1, false, TYPALIGN_INT);
	ArrayType  *tags = durable_tags_unite(DatumGetArrayTypeP(row->values[SCHEDULE_TAGS]), own);
	DurableRunSpec spec = {
		.workflow = &plan->workflow,
		.run_id = run_id,
		.priority = DatumGetInt32(row->values[SCHEDULE_PRIORITY]),
		.start_at = DT_NOBEGIN,
		.tags = durable_tags_unite(plan->workflow.tags, tags),
		.search_attributes = payload_of(row, SCHEDULE_SEARCH_ATTRIBUTES),
		.headers = payload_of(row, SCHEDULE_HEADERS),
		.input = payload_of(row, SCHEDULE_INPUT),
		.concurrency_key = payload_of(row, SCHEDULE_CONCURRENCY_KEY),
		.has_concurrency_limit = !row->nulls[SCHEDULE_CONCURRENCY_LIMIT],
		.in_sweep = in_sweep,
	};

	if (spec.has_concurrency_limit)
		spec.concurrency_limit = DatumGetInt32(row->values[SCHEDULE_CONCURRENCY_LIMIT]);
	return durable_run_start(&spec);
}

/* The run of this id, if it can be seen. */
static bool
find_run(text *run_id, DurableRow *run)
{
	int64		number;
	bool		found;

	durable_snapshot_push();
	found = durable_run_number(run_id, &number) && durable_run_read(number, run);
	durable_snapshot_pop();
	return found;
}

/* Whether the run that was found in place of ours is ours: ids are free for all. */
static bool
is_run_of(const DurableRow *row, text *run_id)
{
	DurableRow	run;

	return find_run(run_id, &run) &&
		durable_text_same(DatumGetTextPP(run.values[RUN_NAMESPACE]),
						  DatumGetTextPP(row->values[SCHEDULE_NAMESPACE])) &&
		durable_text_same(DatumGetTextPP(run.values[RUN_WORKFLOW]),
						  DatumGetTextPP(row->values[SCHEDULE_WORKFLOW]));
}

static bool
last_run_lives(const DurableRow *row)
{
	DurableRow	run;

	return !row->nulls[SCHEDULE_LAST_RUN_ID] &&
		find_run(DatumGetTextPP(row->values[SCHEDULE_LAST_RUN_ID]), &run) &&
		!durable_run_has_ended(&run);
}

static void
note_error(DurableRow *row, const char *error)
{
	durable_row_set(row, SCHEDULE_LAST_ERROR, CStringGetTextDatum(error));
}

static void
note_skip(DurableRow *row, const text *run_id, const char *reason)
{
	durable_row_set(row, SCHEDULE_SKIPS,
					Int64GetDatum(DatumGetInt64(row->values[SCHEDULE_SKIPS]) + 1));
	durable_row_set(row, SCHEDULE_LAST_SKIP,
					CStringGetTextDatum(psprintf("%s: %s", text_to_cstring(run_id), reason)));
}

/* The run of one window, and what the row says about it; errors go through. A sweep does
 * not wait for who counts runs under the same key. */
static Outcome
start_window(DurableRow *row, const DurableSchedulePlan *plan, TimestampTz window,
			 TimestampTz now, bool in_sweep, text **run_id)
{
	Outcome		outcome = STARTED;

	*run_id = run_id_of(row, "", window);
	if (durable_schedule_overlap(row) == OVERLAP_SKIP && last_run_lives(row))
	{
		note_skip(row, *run_id,
				  psprintf("%s has not ended", TextDatumGetCString(row->values[SCHEDULE_LAST_RUN_ID])));
		return SKIPPED;
	}
	if (!start_run(row, plan, *run_id, in_sweep))
		outcome = is_run_of(row, *run_id) ? ALREADY_THERE : FAILED;
	if (outcome == FAILED)
	{
		note_error(row, psprintf("the run id \"%s\" is taken by another run",
								 text_to_cstring(*run_id)));
		return FAILED;
	}
	if (outcome == STARTED)
	{
		durable_row_set(row, SCHEDULE_FIRES,
						Int64GetDatum(DatumGetInt64(row->values[SCHEDULE_FIRES]) + 1));
		durable_schedule_set_time(row, SCHEDULE_LAST_FIRE_AT, now);
	}
	/* what a backfill finds there is not the last run */
	if (outcome == STARTED ||
		window > durable_schedule_time(row, SCHEDULE_LAST_WINDOW, DT_NOBEGIN))
		durable_row_set(row, SCHEDULE_LAST_RUN_ID, PointerGetDatum(*run_id));
	durable_row_set_null(row, SCHEDULE_LAST_ERROR);
	return outcome;
}

/* What is not the schedule's fault: the end of this session or statement, and what
 * another attempt may spare. */
static Outcome
judge_error(ErrorData *error)
{
	switch (error->sqlerrcode)
	{
		case ERRCODE_LOCK_NOT_AVAILABLE:
		case ERRCODE_T_R_DEADLOCK_DETECTED:
		case ERRCODE_T_R_SERIALIZATION_FAILURE:
			return NOT_NOW;
			/* as many runs as may be: as with a run that has not ended */
		case ERRCODE_DURABLE_QUOTA:
		case ERRCODE_DURABLE_QUEUE_FULL:
			return SKIPPED;
		case ERRCODE_QUERY_CANCELED:
		case ERRCODE_ADMIN_SHUTDOWN:
		case ERRCODE_CRASH_SHUTDOWN:
		case ERRCODE_DISK_FULL:
		case ERRCODE_OUT_OF_MEMORY:
			ReThrowError(error);
		default:
			return FAILED;
	}
}

/* start_window, whose errors are recorded */
static Outcome
try_window(DurableRow *row, const DurableSchedulePlan *plan, TimestampTz window, TimestampTz now)
{
	DurableAttempt attempt;
	volatile Outcome outcome = FAILED;

	durable_attempt_begin(&attempt, RUN_ID_WAIT);
	PG_TRY();
	{
		text	   *run_id;

		outcome = start_window(row, plan, window, now, true, &run_id);
		durable_attempt_end(&attempt);
	}
	PG_CATCH();
	{
		ErrorData  *error = durable_attempt_undo(&attempt);

		outcome = judge_error(error);
		if (outcome != NOT_NOW)
			note_error(row, error->message);
		if (outcome == SKIPPED)
			note_skip(row, run_id_of(row, "", window), error->message);
	}
	PG_END_TRY();
	return outcome;
}

/* ------------------------------------------------------------- what is due */

/* One look at everything that is due. */
typedef struct Pass
{
	TimestampTz now;
	int			max;			/* runs, and schedules */
	bool		careful;		/* what fails is recorded, not raised */
} Pass;

/* The newest window whose time has come, jitter included; not before "first". */
static TimestampTz
latest_due(const DurableTiming *timing, const text *id, TimestampTz first, TimestampTz now)
{
	TimestampTz latest = durable_window_last(timing, now);

	while (latest > first && durable_window_due(timing, id, latest) > now)
		latest = durable_window_last(timing, latest - 1);
	return latest;
}

/* The window "n" before another one, or "first" if that is later. */
static TimestampTz
windows_before(const DurableTiming *timing, TimestampTz window, int n, TimestampTz first)
{
	while (n-- > 0 && window > first)
	{
		CHECK_FOR_INTERRUPTS();
		window = durable_window_last(timing, window - 1);
	}
	return Max(window, first);
}

/* Where the policy begins, of all windows from first to latest. */
static TimestampTz
first_to_fire(DurableRow *row, const DurableTiming *timing, TimestampTz first,
			  TimestampTz latest)
{
	if (durable_schedule_catchup(row) != CATCHUP_ALL)
		return latest;
	/* after a change of the zone's rules it may be none */
	first = durable_window_next(timing, first - 1);
	/* decided once, when the first of them is caught up on */
	if (!row->nulls[SCHEDULE_MAX_CATCHUP] &&
		first > durable_schedule_time(row, SCHEDULE_CATCHUP_UNTIL, DT_NOBEGIN))
		first = windows_before(timing, latest, DatumGetInt32(row->values[SCHEDULE_MAX_CATCHUP]),
							   first);
	return first;
}

static bool
is_too_late(const DurableRow *row, const DurableTiming *timing, TimestampTz window,
			TimestampTz now)
{
	return durable_schedule_catchup(row) == CATCHUP_SKIP &&
		now - window > GRACE_US + timing->jitter * 1000;
}

/* From "window" to "latest"; how many runs were started. What the budget does not
 * reach is due at once, behind everything that is due already. */
static int
fire_windows(DurableRow *row, const DurableSchedulePlan *plan, TimestampTz window,
			 TimestampTz latest, const Pass *pass, int budget)
{
	TimestampTz now = pass->now;
	int			started = 0;

	for (; window <= latest && budget > 0; budget--)
	{
		Outcome		outcome = SKIPPED;
		text	   *run_id;

		CHECK_FOR_INTERRUPTS();
		if (is_too_late(row, &plan->timing, window, now))
			note_skip(row, run_id_of(row, "", window), "too late");
		else if (pass->careful)
			outcome = try_window(row, plan, window, now);
		else
			outcome = start_window(row, plan, window, now, true, &run_id);
		if (outcome == NOT_NOW)
			break;
		started += (outcome == STARTED);
		durable_schedule_set_time(row, SCHEDULE_LAST_WINDOW, window);
		window = durable_window_next(&plan->timing, window);
	}
	set_next(row, &plan->timing, window);
	if (window <= latest)
	{
		durable_schedule_set_time(row, SCHEDULE_NEXT_FIRE, now);
		durable_schedule_set_time(row, SCHEDULE_CATCHUP_UNTIL, latest);
	}
	return started;
}

/* A locked schedule that is due; how many runs were started. */
static int
fire(DurableSchedule *schedule, const Pass *pass, int budget)
{
	DurableRow *row = &schedule->row;
	TimestampTz now = pass->now;
	DurableSchedulePlan plan;
	DurableComplaint complaint;
	TimestampTz first = durable_schedule_time(row, SCHEDULE_NEXT_WINDOW, now);
	TimestampTz latest;
	int			started = 0;

	if (!evaluate(row, false, now, &plan, &complaint))
		pause_itself(schedule, &complaint);
	else
	{
		latest = latest_due(&plan.timing, DatumGetTextPP(row->values[SCHEDULE_ID]), first, now);
		if (latest < first)
			/* the zone's rules have changed since the window was computed */
			durable_schedule_go_on(row, &plan.timing, now);
		else
			started = fire_windows(row, &plan,
								   first_to_fire(row, &plan.timing, first, latest),
								   latest, pass, Min(budget, TURN_MAX));
	}
	durable_schedule_update(schedule);
	return started;
}

/*
 * This schedule has fired for a time which, as the clock tells now, is still to
 * come; it would start nothing until then. It goes on from now. The window that is
 * just over may have had its run: that is found by its id.
 */
static void
put_back(DurableRow *row, TimestampTz now)
{
	DurableTiming timing;
	DurableComplaint complaint;
	TimestampTz last = DT_NOBEGIN;

	if (read_timing(row, &timing, &complaint))
		last = durable_window_last(&timing, now);
	durable_schedule_set_time(row, SCHEDULE_LAST_WINDOW, last);
	if (TIMESTAMP_NOT_FINITE(last) || DatumGetBool(row->values[SCHEDULE_PAUSED]))
		return;
	if (last > durable_schedule_time(row, SCHEDULE_UPDATED_AT, now))
	{
		durable_row_set_null(row, SCHEDULE_LAST_WINDOW);
		set_next(row, &timing, last);
	}
	else
		durable_schedule_go_on(row, &timing, now);
}

static void
follow_clock_back(TimestampTz now, MemoryContext scratch)
{
	DurableScheduleScan scan;

	if (!durable_schedules_ahead(&scan, now + GRACE_US))
		return;
	while (durable_schedules_next(&scan))
	{
		MemoryContext before = MemoryContextSwitchTo(scratch);

		put_back(&scan.schedule.row, now);
		durable_schedule_update(&scan.schedule);
		MemoryContextSwitchTo(before);
		MemoryContextReset(scratch);
	}
	durable_schedules_close(&scan);
}

static int64
make_pass(const Pass *pass, MemoryContext scratch)
{
	DurableScheduleScan scan;
	int64		started = 0;
	int			looked = 0;

	if (!durable_schedules_due(&scan, pass->now))
		return 0;
	/* one that starts nothing costs as much as one that does */
	while (started < pass->max && looked < pass->max && durable_schedules_next(&scan))
	{
		MemoryContext before = MemoryContextSwitchTo(scratch);

		started += fire(&scan.schedule, pass, pass->max - (int) started);
		looked++;
		MemoryContextSwitchTo(before);
		MemoryContextReset(scratch);
	}
	durable_schedules_close(&scan);
	return started;
}

/* false: something failed, and all of it was undone */
static bool
try_pass(const Pass *pass, MemoryContext scratch, int64 *started)
{
	DurableAttempt attempt;
	volatile bool succeeded = false;

	durable_attempt_begin(&attempt, RUN_ID_WAIT);
	PG_TRY();
	{
		*started = make_pass(pass, scratch);
		durable_attempt_end(&attempt);
		succeeded = true;
	}
	PG_CATCH();
	{
		(void) judge_error(durable_attempt_undo(&attempt));
	}
	PG_END_TRY();
	return succeeded;
}

int64
durable_schedules_fire(TimestampTz now, int max)
{
	Pass		pass = {.now = now, .max = max};
	MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext, "durable schedules",
												  ALLOCSET_DEFAULT_SIZES);
	int64		started = 0;

	follow_clock_back(now, scratch);
	if (durable_schedules_first() <= now && !try_pass(&pass, scratch, &started))
	{
		MemoryContextReset(scratch);
		pass.careful = true;
		started = make_pass(&pass, scratch);
	}
	MemoryContextDelete(scratch);
	return started;
}

TimestampTz
durable_schedules_next_due(void)
{
	return durable_schedules_first();
}

/* -------------------------------------------------------------- by hand */

text *
durable_schedule_trigger(const DurableRow *row, const DurableSchedulePlan *plan, TimestampTz now)
{
	text	   *run_id;

	/* two in one millisecond are two runs */
	do
	{
		CHECK_FOR_INTERRUPTS();
		run_id = run_id_of(row, "manual:", now);
		now += 1000;
	} while (!start_run(row, plan, run_id, false));
	return run_id;
}

/* How many windows a backfill may start, DURABLE_BACKFILL_MAX when it does not matter. */
static int
backfill_limit(const DurableRow *row, int max_runs)
{
	if (max_runs >= 0)
		return max_runs;
	switch (durable_schedule_catchup(row))
	{
		case CATCHUP_ONE:
			return 1;
		case CATCHUP_SKIP:
			return 0;
		default:
			return row->nulls[SCHEDULE_MAX_CATCHUP] ? DURABLE_BACKFILL_MAX :
				DatumGetInt32(row->values[SCHEDULE_MAX_CATCHUP]) + 1;
	}
}

void
durable_schedule_backfill(DurableSchedule *schedule, const DurableSchedulePlan *plan,
						  TimestampTz now, DurableBackfill *backfill)
{
	DurableRow *row = &schedule->row;
	int			limit = backfill_limit(row, backfill->max_runs);
	TimestampTz first = durable_window_next(&plan->timing, backfill->since - 1);
	TimestampTz latest = durable_window_last(&plan->timing, backfill->until);
	TimestampTz window;

	backfill->nstarted = 0;
	backfill->started = palloc(sizeof(text *) * Max(limit, 1));
	if (limit == 0 || first > latest)
		return;
	window = windows_before(&plan->timing, latest, limit - 1, first);
	if (backfill->max_runs < 0 && limit == DURABLE_BACKFILL_MAX && window > first)
		ereport(ERROR,
				errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				errmsg("more than %d windows", DURABLE_BACKFILL_MAX),
				errhint("Narrow since and until, or give max_runs."));
	for (; window <= latest; window = durable_window_next(&plan->timing, window))
	{
		text	   *run_id;

		CHECK_FOR_INTERRUPTS();
		if (start_window(row, plan, window, now, false, &run_id) == STARTED)
			backfill->started[backfill->nstarted++] = run_id;
		durable_schedule_set_time(row, SCHEDULE_LAST_WINDOW,
								  Max(window, durable_schedule_time(row, SCHEDULE_LAST_WINDOW,
																	DT_NOBEGIN)));
	}
}
