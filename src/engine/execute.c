/*-------------------------------------------------------------------------
 *
 * execute.c
 *	  Executing claimed turns and steps in this session.
 *
 * A turn is replayed until its run suspends or ends. Local steps run between
 * replays: the handler, its checkpoint and whatever else is new are one
 * transaction. After a step the body is replayed at once, in the same
 * transaction, and when that ends the run the end is part of it too.
 *
 * While user code runs nothing of the engine's is locked. If the claim is lost
 * meanwhile, the transaction is rolled back, the step's effects with it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/trigger.h"
#include "common/pg_prng.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/json.h"
#include "engine/apply.h"
#include "engine/claim.h"
#include "engine/execute.h"
#include "engine/maintain.h"
#include "engine/outcome.h"
#include "engine/run.h"
#include "engine/settle.h"
#include "engine/turn.h"
#include "store/task.h"

static const Interval work_lease = {.time = DURABLE_SESSION_LEASE_US};

/* A turn or step whose function this role does not have now is tried again this
 * soon. */
#define NOT_OURS_US (5 * USECS_PER_SEC)

/* The claim whose lock this session holds, or 0. */
static int64 lease_in_hand = 0;

static void
keep_item(const DurableRow *task, DurableLease *lease, void *arg)
{
	DurableWorkItem *item = arg;

	item->lease = *lease;
	item->id = DatumGetInt64(task->values[TASK_ID]);
	item->namespace = DatumGetTextPCopy(task->values[TASK_NAMESPACE]);
	item->name = DatumGetTextPCopy(task->values[TASK_NAME]);
	item->input = task->nulls[TASK_INPUT] ? NULL :
		DatumGetJsonbPCopy(task->values[TASK_INPUT]);
	item->run_id = task->nulls[TASK_RUN_ID] ? NULL :
		DatumGetTextPCopy(task->values[TASK_RUN_ID]);
	item->is_turn = durable_task_is(task, "turn");
}

bool
durable_claim_work(text *namespace, text **queues, int nqueues, DurableWorkItem *item)
{
	DurableClaim claim = {
		.namespace = namespace, .queues = queues, .nqueues = nqueues,
		.max_tasks = 1, .lease = &work_lease,
		.worker = cstring_to_text(DURABLE_SESSION_WORKER)
	};

	if (durable_claim_tasks(&claim, keep_item, item) != 1)
		return false;
	durable_lease_hold(item->lease.id);
	lease_in_hand = item->lease.id;
	return true;
}

/*
 * Looks a handler up and calls it, in a subtransaction. On failure *error is what
 * was raised, and nothing of it is left. Its deferred constraints are checked
 * here, too: at the commit it would be too late to record that they failed.
 * Cancel and shutdown requests go through.
 */
static bool
call_handler(text *handler, Jsonb *input, MemoryContext context,
			 Jsonb **output, Jsonb **error)
{
	MemoryContext before = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool succeeded = false;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(before);
	PG_TRY();
	{
		bool		strict;
		Oid			function = durable_function_lookup(handler, &strict);
		int			settings = NewGUCNestLevel();
		Jsonb	   *result;

		durable_snapshot_push();
		result = durable_function_call(function, strict, input);
		durable_snapshot_pop();
		AfterTriggerFireDeferred();
		/* what it SET, the role included, is not for others */
		AtEOXact_GUC(false, settings);
		MemoryContextSwitchTo(context);
		*output = result == NULL ? NULL : DatumGetJsonbPCopy(PointerGetDatum(result));
		MemoryContextSwitchTo(before);
		ReleaseCurrentSubTransaction();
		succeeded = true;
	}
	PG_CATCH();
	{
		ErrorData  *data;

		durable_current_step = NULL;
		MemoryContextSwitchTo(context);
		data = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(before);
		CurrentResourceOwner = owner;
		if (data->sqlerrcode == ERRCODE_QUERY_CANCELED ||
			data->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN)
			ReThrowError(data);
		MemoryContextSwitchTo(context);
		*error = durable_error_to_json(data);
		MemoryContextSwitchTo(before);
	}
	PG_END_TRY();
	CurrentResourceOwner = owner;
	return succeeded;
}

static int64
backoff_after(const DurableOperation *op, int attempt)
{
	DurableRetryPolicy policy = {
		.backoff = op->backoff ? durable_interval_us(op->backoff) : 0,
		.backoff_max = op->backoff_max ? durable_interval_us(op->backoff_max) : -1,
		.exponential = op->exponential,
		.jitter = op->jitter,
	};

	return durable_retry_delay(&policy, attempt, pg_prng_double(&pg_global_prng_state));
}

/* The step's function, once. Its checkpoint then says what came of it. */
static void
run_local_step(DurableTurn *turn)
{
	DurableOperation *op = turn->step;
	DurableCheckpoint *checkpoint = &turn->history[op->seq];
	Jsonb	   *output = NULL;
	Jsonb	   *error = NULL;
	bool		succeeded;

	durable_current_step = turn;
	succeeded = call_handler(op->target, checkpoint->input, turn->context,
							 &output, &error);
	durable_current_step = NULL;
	checkpoint->changed = true;
	checkpoint->wake_at = 0;
	if (succeeded || checkpoint->attempts >= op->retries ||
		!durable_json_is_retryable(error))
	{
		checkpoint->status = succeeded ? CHECKPOINT_COMPLETED : CHECKPOINT_FAILED;
		checkpoint->output = output;
		checkpoint->error = error;
		checkpoint->finished_at = durable_clock_now();
	}
	else
	{
		checkpoint->error = error;
		checkpoint->wake_at = durable_clock_now() + backoff_after(op, checkpoint->attempts);
		checkpoint->attempts++;
	}
}

/* The end of a run, in the transaction of its last step if that may be. */
static bool
may_end_here(DurableTurn *turn)
{
	return (turn->decision == DECISION_COMPLETED || turn->decision == DECISION_FAILED) &&
		!durable_run_is_awaited(turn->namespace, turn->run_id);
}

/* Whether others have something to do before the step at hand has ended. */
static bool
dispatches(const DurableTurn *turn)
{
	ListCell   *lc;

	foreach(lc, turn->operations)
	{
		DurableOperation *op = lfirst(lc);

		if (turn->history[op->seq].kind != KIND_LOCAL)
			return true;
	}
	return false;
}

/* false: the claim is lost, and the transaction has been rolled back; or it was
 * because something came in that the step rests on: then *again */
static bool
do_local_step(DurableTurn *turn, const DurableLease *lease, bool *replayed, bool *again)
{
	DurableApplied applied = APPLIED;

	if (!turn->workflow.atomic && dispatches(turn))
	{
		applied = durable_apply_step(turn, lease);
		if (applied == APPLIED)
			SPI_commit();
	}
	if (applied == APPLIED)
	{
		run_local_step(turn);
		applied = durable_apply_step(turn, lease);
	}
	*again = applied == APPLY_AGAIN;
	if (applied != APPLIED)
	{
		SPI_rollback();
		return false;
	}
	*replayed = true;
	durable_turn_replay(turn);
	if (!turn->workflow.atomic && !may_end_here(turn))
		SPI_commit();
	return true;
}

static DurableTurn *
new_turn(void)
{
	MemoryContext context = AllocSetContextCreate(PortalContext, "durable turn",
												  ALLOCSET_DEFAULT_SIZES);
	DurableTurn *turn = MemoryContextAllocZero(context, sizeof(DurableTurn));

	turn->context = context;
	return turn;
}

/* Back to the queue, for whoever has the function. */
static void
give_back(const DurableWorkItem *item)
{
	TimestampTz until = durable_clock_now() + NOT_OURS_US;
	DurableTables tables;
	DurableProbe by_id;
	DurableRow	task;

	durable_tables_init(&tables);
	durable_task_open_by_id(&by_id, durable_snapshot_push());
	if (durable_task_find_number(&by_id, item->id, &task) &&
		durable_task_held_by(&task, item->lease.id))
	{
		if (item->is_turn)
			(void) durable_run_postpone(&tables, &task, item->lease.id, until,
										durable_clock_now());
		else
			(void) durable_outcome_requeue(&tables, &task, item->lease.id, until,
										   durable_clock_now(), true);
	}
	durable_probe_close(&by_id);
	durable_tables_close(&tables);
	durable_snapshot_pop();
	SPI_commit();
}

/* The run as it is now; false: it is not ours to go on with. */
static bool
load_turn(DurableTurn *turn, const DurableWorkItem *item)
{
	if (!durable_turn_load(turn, item->id))
		SPI_commit();
	else if (!OidIsValid(turn->body))
		give_back(item);
	else
		return true;
	return false;
}

/* One decision. true: go on with this turn. */
static bool
apply_decision(DurableTurn *turn, const DurableWorkItem *item, bool *replayed)
{
	DurableApplied applied;
	bool		again;

	*replayed = false;
	if (turn->decision == DECISION_LOCAL_STEP)
		return do_local_step(turn, &item->lease, replayed, &again) ||
			(again && load_turn(turn, item));
	applied = turn->decision == DECISION_SUSPEND ?
		durable_apply_suspend(turn, &item->lease) : durable_apply_end(turn, &item->lease);
	if (applied == APPLY_LOST)
	{
		SPI_rollback();
		return false;
	}
	SPI_commit();
	if (applied == APPLY_AGAIN)
		return load_turn(turn, item);
	return applied == APPLIED_GO_ON;
}

static void
execute_turn(const DurableWorkItem *item)
{
	DurableTurn *turn = new_turn();
	bool		replayed = false;
	bool		going = load_turn(turn, item);

	while (going)
	{
		CHECK_FOR_INTERRUPTS();
		if (!replayed)
			durable_turn_replay(turn);
		going = apply_decision(turn, item, &replayed);
	}
	MemoryContextDelete(turn->context);
}

/* A dispatched step that a SQL function serves: the function's effects and the
 * step's result are one transaction. */
static void
execute_step(const DurableWorkItem *item)
{
	DurableHandler handler;
	DurableTarget target = {.id = item->id};
	bool		succeeded;
	Jsonb	   *output = NULL;
	Jsonb	   *error = NULL;
	DurableTurn *step;

	if (!durable_handler_find(item->namespace, item->name, &handler) ||
		handler.owner != GetUserId())
	{
		give_back(item);
		return;
	}
	step = new_turn();

	step->namespace = item->namespace;
	step->run_id = item->run_id;
	durable_current_step = step;
	succeeded = call_handler(handler.handler, item->input, step->context, &output, &error);
	durable_current_step = NULL;
	target.output = output;
	target.error = error;
	if (durable_settle_as_worker(&item->lease.token,
								 succeeded ? SETTLE_COMPLETE : SETTLE_FAIL, &target, 1) == 1)
		SPI_commit();
	else
		SPI_rollback();
	MemoryContextDelete(step->context);
}

void
durable_execute(const DurableWorkItem *item)
{
	if (item->is_turn)
		execute_turn(item);
	else
		execute_step(item);
	durable_execute_end();
}

void
durable_execute_end(void)
{
	if (lease_in_hand != 0)
		durable_lease_let_go(lease_in_hand);
	lease_in_hand = 0;
	durable_current_turn = NULL;
	durable_current_step = NULL;
}
