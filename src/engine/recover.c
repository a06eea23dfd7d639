/*-------------------------------------------------------------------------
 *
 * recover.c
 *	  When execution breaks off, and trying again what has ended.
 *
 * Three things end a claim without an outcome. Its session dies: the lease lapses,
 * and whoever takes it over counts. The session gets an error that is not the
 * step's: it hands the claim back itself, uncounted where the work is not to
 * blame. Or the run was ended or taken away by somebody else, who interrupts the
 * session (base/executing.c): then there is nothing to hand back.
 *
 * Requeueing locks all runs that it concerns first, ascending by number. They are
 * found without a lock, so each is looked at again under its own.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/spi.h"
#include "miscadmin.h"
#include "tcop/pquery.h"
#include "utils/builtins.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/executing.h"
#include "base/guc.h"
#include "base/json.h"
#include "base/names.h"
#include "base/plan.h"
#include "engine/admission.h"
#include "engine/handoff.h"
#include "engine/outcome.h"
#include "engine/recover.h"
#include "engine/run.h"
#include "engine/settle.h"
#include "engine/step.h"
#include "store/checkpoint.h"
#include "store/ready.h"
#include "store/retention.h"
#include "store/task.h"

#define CHILD_PREFIX "child:"

/* Why a run is not taken over once more, or NULL. */
static Jsonb *
reason_to_die(int attempts, int reclaims)
{
	if (durable_max_recovery_attempts >= 0 && attempts > durable_max_recovery_attempts)
		return durable_json_error_full(psprintf("the run was lost more than %d times in all",
												durable_max_recovery_attempts),
									   "max_recovery_attempts", false);
	if (reclaims > durable_max_reclaims)
		return durable_json_error_full(psprintf("claim lapsed more than %d times",
												durable_max_reclaims),
									   "max_reclaims", false);
	return NULL;
}

TM_Result
durable_recover_turn(DurableTables *tables, DurableRow *task, int64 lease, TimestampTz now,
					 bool wait)
{
	DurableRun	run;
	int64		id = DatumGetInt64(task->values[TASK_ID]);
	int			attempts;
	int			reclaims = DatumGetInt32(task->values[TASK_RECLAIMS]) + 1;
	Jsonb	   *reason;
	TM_Result	result;

	durable_snapshot_push();
	result = durable_run_open(&run, id, wait);
	if (result == TM_Ok)
	{
		attempts = DatumGetInt32(run.row.values[RUN_RECOVERY_ATTEMPTS]) + 1;
		reason = reason_to_die(attempts, reclaims);
		durable_row_set(task, TASK_RECLAIMS, Int32GetDatum(reclaims));
		durable_row_set(&run.row, RUN_RECOVERY_ATTEMPTS, Int32GetDatum(attempts));
		/* first the task: others who change it do so without the run */
		if (durable_run_has_ended(&run.row))
			result = TM_Deleted;
		else if (reason == NULL)
			result = durable_outcome_requeue(tables, task, lease, now, now, wait);
		if (result == TM_Ok && reason == NULL)
			durable_run_update(&run);
		durable_run_close(&run);
		if (result == TM_Ok && reason != NULL)
			result = durable_run_die(id, reason);
	}
	durable_snapshot_pop();
	return result == TM_WouldBlock ? TM_BeingModified : result;
}

/* ---------------------------------------------------------------- errors -- */

/* The error may have left snapshots of the engine's own active, and plans of its own
 * connected above the procedure that executes, which is the first that may end
 * transactions. */
static void
roll_back(void)
{
	MemoryContext before = CurrentMemoryContext;

	while (!SPI_inside_nonatomic_context())
	{
		if (SPI_finish() != SPI_OK_FINISH)
			break;
	}
	while (ActiveSnapshotSet() &&
		   (ActivePortal == NULL || GetActiveSnapshot() != ActivePortal->portalSnapshot))
		PopActiveSnapshot();
	MemoryContextSwitchTo(before);
	SPI_rollback();
}

/* Transient by definition: the work is not to blame. */
static bool
is_conflict(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_T_R_SERIALIZATION_FAILURE ||
		error->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED;
}

/* As if its lease had lapsed now. What somebody holds lapses later. */
static void
count_as_lapsed(const DurableWorkItem *item)
{
	DurableTables tables;
	DurableProbe by_id;
	DurableRow	task;

	durable_tables_init(&tables);
	durable_task_open_by_id(&by_id, durable_snapshot_push());
	if (durable_task_find_number(&by_id, item->id, &task) &&
		durable_task_held_by(&task, item->lease.id))
		(void) durable_outcome_lapsed(&tables, &task, item->lease.id, durable_clock_now(), false);
	durable_probe_close(&by_id);
	durable_tables_close(&tables);
	durable_snapshot_pop();
}

bool
durable_recover_from_error(const DurableWorkItem *item, const ErrorData *error)
{
	bool		interrupted = durable_is_interrupt(error);
	DurableTarget target = {.id = item->id};
	int			held = 0;

	roll_back();
	if ((interrupted && !durable_executing_cancelled_itself()) || is_conflict(error))
		held = durable_settle_as_worker(&item->lease.token, SETTLE_RELEASE, &target, 1);
	else
		count_as_lapsed(item);
	SPI_commit();
	return held == 0 && durable_is_cancel_request(error);
}

/* --------------------------------------------------------------- requeue -- */

typedef struct RunSet
{
	DurableRedrive *runs;
	int			n;
	int			space;
} RunSet;

/* false: it is in it already, as in a cycle of runs that wait for each other */
static bool
add_run(RunSet *set, int64 id, TimestampTz at)
{
	for (int i = 0; i < set->n; i++)
	{
		if (set->runs[i].id == id)
			return false;
	}
	if (set->n == set->space)
	{
		set->space = Max(8, set->space * 2);
		set->runs = set->runs == NULL ? palloc(sizeof(DurableRedrive) * set->space) :
			repalloc(set->runs, sizeof(DurableRedrive) * set->space);
	}
	set->runs[set->n++] = (DurableRedrive) {.id = id, .at = at};
	return true;
}

static bool
may_go_on(DurableRunStatus status)
{
	return status == RUN_FAILED || status == RUN_DEAD;
}

/* Has failed, though it has not ended: another run has taken its failure. */
static bool
has_handed_over(const DurableRow *row)
{
	int			seq;

	return durable_run_in_handoff(row, &seq);
}

static text *
child_id(const DurableCheckpoint *checkpoint)
{
	return cstring_to_text(text_to_cstring(checkpoint->name) + strlen(CHILD_PREFIX));
}

/* A run that was started with retry_with_input() for this one, and has completed. */
static DurablePlan retry_plan = {
	.name = "completed retry of a run",
	.sql =
	"SELECT r.id FROM durable.run r"
	" WHERE r.run_id OPERATOR(pg_catalog.>=) ($1 OPERATOR(pg_catalog.||) '~retry~')"
	" AND r.run_id OPERATOR(pg_catalog.<) ($1 OPERATOR(pg_catalog.||) '~retry~g')"
	" AND r.namespace OPERATOR(pg_catalog.=) $2"
	" AND r.status OPERATOR(pg_catalog.=) 'completed'"
	" ORDER BY r.id DESC LIMIT 1",
	.nargs = 2,
	.argtypes = {TEXTOID, TEXTOID},
};

static bool
find_completed_retry(text *run_id, text *namespace, DurableRow *row)
{
	Datum		values[] = {PointerGetDatum(run_id), PointerGetDatum(namespace)};
	int64		id = 0;
	bool		isnull = true;

	durable_plan_begin();
	if (durable_plan_run(&retry_plan, values, NULL) > 0)
		id = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc,
										 1, &isnull));
	durable_plan_end();
	return !isnull && durable_run_read(id, row);
}

/* The run, and the children whose failure is recorded in its history, if they can go
 * on. Reads without locks. */
static void
collect_runs(RunSet *set, int64 id, text *namespace, TimestampTz at)
{
	DurableCheckpoint *history;
	int			n;

	check_stack_depth();
	CHECK_FOR_INTERRUPTS();
	if (!add_run(set, id, at))
		return;
	history = durable_checkpoints_load(id, &n);
	for (int i = 0; i < n; i++)
	{
		int64		child;
		DurableRow	row;

		if (history[i].kind != KIND_CHILD || history[i].status != CHECKPOINT_FAILED ||
			!durable_run_number(child_id(&history[i]), &child) ||
			!durable_run_read(child, &row) ||
			!durable_text_same(DatumGetTextPP(row.values[RUN_NAMESPACE]), namespace) ||
			!may_go_on(durable_run_status(&row)) ||
			find_completed_retry(child_id(&history[i]), namespace, &row))
			continue;
		collect_runs(set, child, namespace, at);
	}
}

static int
compare_runs(const void *a, const void *b)
{
	int64		x = ((const DurableRedrive *) a)->id;
	int64		y = ((const DurableRedrive *) b)->id;

	return (x > y) - (x < y);
}

static void
sort_runs(RunSet *set)
{
	qsort(set->runs, set->n, sizeof(DurableRedrive), compare_runs);
}

static void
start_again(DurableCheckpoint *checkpoint)
{
	checkpoint->status = CHECKPOINT_PENDING;
	checkpoint->attempts = 1;
	checkpoint->task = 0;
	checkpoint->finished_at = checkpoint->wake_at = 0;
	checkpoint->unsaved = true;
}

/*
 * What failed is pending again; its last error stays to be seen until there is an
 * outcome. A dispatched step is dispatched anew when the body asks for it: its
 * task went with the run's end. A wait that timed out keeps to that, as the time is
 * over.
 */
static void
reset_checkpoint(DurableCheckpoint *checkpoint, text *namespace)
{
	bool		failed = checkpoint->status == CHECKPOINT_FAILED ||
		checkpoint->status == CHECKPOINT_CANCELLED;
	DurableRow	retry;

	switch (checkpoint->kind)
	{
		case KIND_LOCAL:
		case KIND_STEP:
			if (checkpoint->status != CHECKPOINT_COMPLETED)
				start_again(checkpoint);
			break;
		case KIND_CHILD:
			if (!failed)
				break;
			if (find_completed_retry(child_id(checkpoint), namespace, &retry))
			{
				checkpoint->status = CHECKPOINT_COMPLETED;
				checkpoint->output = retry.nulls[RUN_OUTPUT] ? NULL :
					DatumGetJsonbP(retry.values[RUN_OUTPUT]);
				checkpoint->error = NULL;
				checkpoint->unsaved = true;
			}
			else
				start_again(checkpoint);
			break;
		default:
			break;
	}
}

static void
reset_history(int64 id, text *namespace)
{
	DurableWriter writer;
	DurableCheckpoint *history;
	int			n;

	durable_snapshot_push();
	history = durable_checkpoints_load(id, &n);
	durable_writer_open(&writer, REL_CHECKPOINT);
	for (int i = 0; i < n; i++)
	{
		reset_checkpoint(&history[i], namespace);
		if (history[i].unsaved)
			durable_checkpoint_write(&writer, id, &history[i]);
	}
	durable_writer_close(&writer);
	durable_snapshot_pop();
}

/* The version that the run is pinned to. */
static bool
find_workflow(const DurableRow *row, DurableWorkflow *workflow)
{
	return durable_workflow_find(DatumGetTextPP(row->values[RUN_NAMESPACE]),
								 DatumGetTextPP(row->values[RUN_WORKFLOW]),
								 DatumGetTextPP(row->values[RUN_VERSION]), workflow);
}

static void
require_workflow(const DurableRow *row, DurableWorkflow *workflow)
{
	if (!find_workflow(row, workflow))
		ereport(ERROR,
				errcode(ERRCODE_UNDEFINED_OBJECT),
				errmsg("workflow \"%s\"@\"%s\" is not registered",
					   TextDatumGetCString(row->values[RUN_WORKFLOW]),
					   TextDatumGetCString(row->values[RUN_VERSION])),
				errhint("Register it again before the run \"%s\" is requeued.",
						TextDatumGetCString(row->values[RUN_RUN_ID])));
}

/* What has failed is done again, by the body: a handler's outcome is not that. */
static void
forget_failure(DurableRow *row, int64 id)
{
	reset_history(id, DatumGetTextPP(row->values[RUN_NAMESPACE]));
	durable_handoffs_retire(id);
	durable_row_set(row, RUN_RECOVERY_ATTEMPTS, Int32GetDatum(0));
	durable_step_end_window(row);
}

/* A new turn task under the old number, due then. No lease that the old one left holds
 * it. */
static void
resurrect(DurableRun *run, int64 id, TimestampTz at, TimestampTz now)
{
	DurableRow *row = &run->row;
	DurableWorkflow workflow;
	DurableRunSpec spec = {
		.workflow = &workflow, .run_id = DatumGetTextPP(row->values[RUN_RUN_ID]),
		.priority = DatumGetInt32(row->values[RUN_PRIORITY]), .start_at = at
	};

	require_workflow(row, &workflow);
	forget_failure(row, id);
	if (row->nulls[RUN_PARENT])
		durable_retention_note_again(id, DatumGetTimestampTz(row->values[RUN_FINISHED_AT]));
	durable_row_set_null(row, RUN_FINISHED_AT);
	durable_row_set_null(row, RUN_OUTPUT);
	durable_row_set_null(row, RUN_ERROR);
	durable_run_insert_turn(&spec, id, now, durable_sequence_next(SEQ_LEASE));
	durable_admission_enter(row, at > now);
}

/* false: it is in no list, and not at the gate of a singleton key either, where a slot may
 * put it into one any time. */
static bool
take_turn(const DurableRow *run, const DurableRow *task, TimestampTz delayed_until)
{
	ItemPointerData before;
	ItemPointerData after;
	bool		found = false;

	durable_snapshot_push();
	(void) durable_admission_unpark(run, &after);
	do
	{
		CHECK_FOR_INTERRUPTS();
		before = after;
		found = durable_outcome_unlist(task, delayed_until);
		if (!found)
			(void) durable_admission_unpark(run, &after);
	} while (!found && !ItemPointerEquals(&before, &after));
	durable_snapshot_pop();
	return found;
}

/* Queued, delayed or parked: it is ready now. Claimed: the claim is void, and whoever
 * executes it is interrupted. It goes to the queue where its workflow is served now. */
static void
requeue_turn(const DurableRow *run, const DurableWorkflow *workflow, TimestampTz delayed_until)
{
	int64		id = DatumGetInt64(run->values[RUN_ID]);
	TM_Result	result = TM_Updated;

	while (result == TM_Updated)
	{
		DurableTables tables;
		DurableProbe by_id;
		DurableRow	task;
		TimestampTz now = durable_clock_now();

		CHECK_FOR_INTERRUPTS();
		result = TM_Deleted;
		durable_tables_init(&tables);
		durable_task_open_by_id(&by_id, durable_snapshot_push());
		if (durable_task_find_number(&by_id, id, &task))
		{
			if (!take_turn(run, &task, delayed_until))
				durable_executing_interrupt(id);
			durable_row_set(&task, TASK_RECLAIMS, Int32GetDatum(0));
			if (workflow != NULL)
			{
				durable_row_set(&task, TASK_QUEUE, PointerGetDatum(workflow->queue));
				durable_run_set_turn_policy(&task, workflow);
			}
			result = durable_outcome_requeue(&tables, &task, durable_sequence_next(SEQ_LEASE),
											 now, now, true);
		}
		durable_probe_close(&by_id);
		durable_tables_close(&tables);
		durable_snapshot_pop();
	}
}

/* at: when a run that has ended goes on, if later than now */
static void
requeue_locked(DurableRun *run, int64 id, TimestampTz at)
{
	DurableRow *row = &run->row;
	DurableWorkflow workflow;
	TimestampTz delayed_until = row->nulls[RUN_WAKE_AT] ? 0 :
		DatumGetTimestampTz(row->values[RUN_WAKE_AT]);
	TimestampTz now = durable_clock_now();
	bool		later = !row->nulls[RUN_FINISHED_AT] && at > now;

	durable_run_refuse_own(DatumGetTextPP(row->values[RUN_RUN_ID]));
	if (has_handed_over(row))
	{
		forget_failure(row, id);
		durable_admission_take_back(row);
	}
	if (!row->nulls[RUN_FINISHED_AT])
		resurrect(run, id, later ? at : DT_NOBEGIN, now);
	else
		requeue_turn(row, find_workflow(row, &workflow) ? &workflow : NULL, delayed_until);
	(void) durable_run_unblock(row);
	durable_run_set_status(row, later ? RUN_SUSPENDED : RUN_PENDING);
	durable_run_set_turn_state(row, later ? TURN_DELAYED : TURN_READY);
	durable_run_awaits_nothing(row);
	if (later)
		durable_row_set(row, RUN_WAKE_AT, TimestampTzGetDatum(at));
	durable_row_set(row, RUN_WAKES, Int32GetDatum(DatumGetInt32(row->values[RUN_WAKES]) + 1));
	durable_run_update(run);
}

/* Whether the run that was asked for may be requeued, under its lock. */
static DurableRequeued
check_run(const DurableRow *row, bool must_have_ended)
{
	DurableRunStatus status = durable_run_status(row);

	if (status == RUN_COMPLETED || status == RUN_CANCELLED)
		return REQUEUE_FINAL;
	if (must_have_ended && !durable_run_has_ended(row))
		return REQUEUE_LIVE;
	return REQUEUED;
}

/* handler: 0, or the run that the one asked for had handed its failure over to */
static DurableRequeued
requeue_all(const RunSet *set, int64 asked, bool must_have_ended, int64 *handler)
{
	DurableRun *runs = palloc(sizeof(DurableRun) * set->n);
	bool	   *open = palloc0(sizeof(bool) * set->n);
	DurableRequeued result = REQUEUE_UNKNOWN;

	*handler = 0;

	for (int i = 0; i < set->n; i++)
	{
		durable_snapshot_push();
		open[i] = durable_run_open(&runs[i], set->runs[i].id, true) == TM_Ok;
		durable_snapshot_pop();
		if (open[i] && set->runs[i].id == asked)
			result = check_run(&runs[i].row, must_have_ended);
		if (open[i] && set->runs[i].id == asked && result == REQUEUED &&
			has_handed_over(&runs[i].row))
			(void) durable_handoff_handler(&runs[i].row, handler);
	}
	for (int i = 0; i < set->n; i++)
	{
		if (!open[i])
			continue;
		/* of the others only those that are still as they were found */
		durable_snapshot_push();
		if (result == REQUEUED &&
			(set->runs[i].id == asked || may_go_on(durable_run_status(&runs[i].row))))
			requeue_locked(&runs[i], set->runs[i].id, DT_NOBEGIN);
		durable_snapshot_pop();
		durable_run_close(&runs[i]);
	}
	CommandCounterIncrement();
	return result;
}

DurableRequeued
durable_requeue(int64 run, bool must_have_ended)
{
	RunSet		set = {0};
	DurableRow	row;
	DurableRequeued result;
	int64		handler;

	durable_snapshot_push();
	if (durable_run_read(run, &row))
	{
		if (may_go_on(durable_run_status(&row)) || has_handed_over(&row))
			collect_runs(&set, run, DatumGetTextPP(row.values[RUN_NAMESPACE]), DT_NOBEGIN);
		else
			(void) add_run(&set, run, DT_NOBEGIN);
	}
	durable_snapshot_pop();
	if (set.n == 0)
		return REQUEUE_UNKNOWN;
	sort_runs(&set);
	result = requeue_all(&set, run, must_have_ended, &handler);
	/* younger than all of these, so it is locked after them */
	if (handler != 0)
		(void) durable_run_end(handler, RUN_CANCELLED, NULL,
							   durable_json_error("the run that it was started for was requeued", false),
							   true, NULL, NULL);
	return result;
}

/* --------------------------------------------------------------- redrive -- */

/* Waits for whoever holds it; the lock stays when it is closed again. */
static void
lock_run(int64 id)
{
	DurableRun	run;

	durable_snapshot_push();
	if (durable_run_open(&run, id, true) == TM_Ok)
		durable_run_close(&run);
	durable_snapshot_pop();
}

/* Only if it is still as it was found. */
static bool
redrive_one(const DurableRedrive *asked)
{
	DurableRun	run;
	bool		requeued = false;

	durable_snapshot_push();
	if (durable_run_open(&run, asked->id, true) == TM_Ok)
	{
		requeued = may_go_on(durable_run_status(&run.row));
		if (requeued)
			requeue_locked(&run, asked->id, asked->at);
		durable_run_close(&run);
	}
	durable_snapshot_pop();
	return requeued;
}

int
durable_redrive(const DurableRedrive *runs, int n, DurableRedrive **requeued)
{
	RunSet		set = {0};
	int			count = 0;

	durable_snapshot_push();
	for (int i = 0; i < n; i++)
	{
		DurableRow	row;

		if (durable_run_read(runs[i].id, &row) && may_go_on(durable_run_status(&row)))
			collect_runs(&set, runs[i].id, DatumGetTextPP(row.values[RUN_NAMESPACE]), runs[i].at);
	}
	durable_snapshot_pop();
	sort_runs(&set);
	for (int i = 0; i < set.n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		lock_run(set.runs[i].id);
	}
	for (int i = 0; i < set.n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (redrive_one(&set.runs[i]))
			set.runs[count++] = set.runs[i];
	}
	CommandCounterIncrement();
	*requeued = set.runs;
	return count;
}
