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
#include "engine/outcome.h"
#include "engine/recover.h"
#include "engine/run.h"
#include "engine/settle.h"
#include "engine/step.h"
#include "store/checkpoint.h"
#include "store/ready.h"
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
	int64	   *ids;
	int			n;
	int			space;
} RunSet;

/* false: it is in it already, as in a cycle of runs that wait for each other */
static bool
add_run(RunSet *set, int64 id)
{
	for (int i = 0; i < set->n; i++)
	{
		if (set->ids[i] == id)
			return false;
	}
	if (set->n == set->space)
	{
		set->space = Max(8, set->space * 2);
		set->ids = set->ids == NULL ? palloc(sizeof(int64) * set->space) :
			repalloc(set->ids, sizeof(int64) * set->space);
	}
	set->ids[set->n++] = id;
	return true;
}

static bool
may_go_on(DurableRunStatus status)
{
	return status == RUN_FAILED || status == RUN_DEAD;
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
collect_runs(RunSet *set, int64 id, text *namespace)
{
	DurableCheckpoint *history;
	int			n;

	check_stack_depth();
	CHECK_FOR_INTERRUPTS();
	if (!add_run(set, id))
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
		collect_runs(set, child, namespace);
	}
}

static int
compare_ids(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	return (x > y) - (x < y);
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

/* A new turn task under the old number. No lease that the old one left holds it. */
static void
resurrect(DurableRun *run, int64 id)
{
	DurableRow *row = &run->row;
	DurableWorkflow workflow;
	DurableRunSpec spec = {
		.workflow = &workflow, .run_id = DatumGetTextPP(row->values[RUN_RUN_ID]),
		.priority = DatumGetInt32(row->values[RUN_PRIORITY]), .start_at = DT_NOBEGIN
	};

	require_workflow(row, &workflow);
	reset_history(id, DatumGetTextPP(row->values[RUN_NAMESPACE]));
	durable_row_set(row, RUN_RECOVERY_ATTEMPTS, Int32GetDatum(0));
	durable_row_set_null(row, RUN_FINISHED_AT);
	durable_row_set_null(row, RUN_OUTPUT);
	durable_row_set_null(row, RUN_ERROR);
	durable_step_end_window(row);
	durable_run_insert_turn(&spec, id, durable_clock_now(), durable_sequence_next(SEQ_LEASE));
}

/* Queued, delayed or parked: it is ready now. Claimed: the claim is void, and whoever
 * executes it is interrupted. It goes to the queue where its workflow is served now. */
static void
requeue_turn(int64 id, const DurableWorkflow *workflow, TimestampTz delayed_until)
{
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
			if (!durable_outcome_unlist(&task, delayed_until))
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

static void
requeue_locked(DurableRun *run, int64 id)
{
	DurableRow *row = &run->row;
	DurableWorkflow workflow;
	TimestampTz delayed_until = row->nulls[RUN_WAKE_AT] ? 0 :
		DatumGetTimestampTz(row->values[RUN_WAKE_AT]);

	durable_run_refuse_own(DatumGetTextPP(row->values[RUN_RUN_ID]));
	if (!row->nulls[RUN_FINISHED_AT])
		resurrect(run, id);
	else
		requeue_turn(id, find_workflow(row, &workflow) ? &workflow : NULL, delayed_until);
	(void) durable_run_unblock(row);
	durable_run_set_status(row, RUN_PENDING);
	durable_run_set_turn_state(row, TURN_READY);
	durable_run_awaits_nothing(row);
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

static DurableRequeued
requeue_all(const RunSet *set, int64 asked, bool must_have_ended)
{
	DurableRun *runs = palloc(sizeof(DurableRun) * set->n);
	bool	   *open = palloc0(sizeof(bool) * set->n);
	DurableRequeued result = REQUEUE_UNKNOWN;

	for (int i = 0; i < set->n; i++)
	{
		durable_snapshot_push();
		open[i] = durable_run_open(&runs[i], set->ids[i], true) == TM_Ok;
		durable_snapshot_pop();
		if (open[i] && set->ids[i] == asked)
			result = check_run(&runs[i].row, must_have_ended);
	}
	for (int i = 0; i < set->n; i++)
	{
		if (!open[i])
			continue;
		/* of the others only those that are still as they were found */
		durable_snapshot_push();
		if (result == REQUEUED &&
			(set->ids[i] == asked || may_go_on(durable_run_status(&runs[i].row))))
			requeue_locked(&runs[i], set->ids[i]);
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

	durable_snapshot_push();
	if (durable_run_read(run, &row))
	{
		if (may_go_on(durable_run_status(&row)))
			collect_runs(&set, run, DatumGetTextPP(row.values[RUN_NAMESPACE]));
		else
			(void) add_run(&set, run);
	}
	durable_snapshot_pop();
	if (set.n == 0)
		return REQUEUE_UNKNOWN;
	qsort(set.ids, set.n, sizeof(int64), compare_ids);
	return requeue_all(&set, run, must_have_ended);
}
