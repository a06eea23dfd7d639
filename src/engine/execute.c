/*-------------------------------------------------------------------------
 *
 * execute.c
 *	  Executing claimed turns and steps in this session.
 *
 * A turn is replayed until its run suspends or ends. Local steps run between
 * replays: the handler and its checkpoint are one transaction. After a step the body
 * is replayed at once, in the same transaction, and when that ends the run the end is
 * part of it too. Only then anything is written.
 *
 * So while user code runs nothing of the engine's is locked. If the claim is lost
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
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/commit.h"
#include "base/executing.h"
#include "base/json.h"
#include "base/names.h"
#include "base/wakeup.h"
#include "base/workers.h"
#include "engine/apply.h"
#include "engine/archive.h"
#include "engine/check.h"
#include "engine/claim.h"
#include "engine/execute.h"
#include "engine/maintain.h"
#include "engine/outcome.h"
#include "engine/recover.h"
#include "engine/run.h"
#include "engine/settle.h"
#include "engine/turn.h"
#include "store/lease.h"
#include "store/task.h"

static const Interval work_lease = {.time = DURABLE_SESSION_LEASE_US};

/* A turn or step whose function this role does not have now is tried again this
 * soon. */
#define NOT_OURS_US (5 * USECS_PER_SEC)

/* The claim whose lock this session holds, or 0, and the task that it is for. */
static int64 lease_in_hand = 0;
static pg_uuid_t token_in_hand;
static int64 task_in_hand;

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
	item->is_archive = durable_task_is(task, "archive");
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
	durable_executing_begin(item->id);
	token_in_hand = item->lease.token;
	task_in_hand = item->id;
	return true;
}

/* *checking says what is wrong with it when a check raises. */
static Jsonb *
call_checked(const DurableHandler *handler, Jsonb *input, const char *volatile *checking)
{
	bool		strict;
	Oid			function = durable_function_lookup(handler->handler, &strict);
	int			settings = NewGUCNestLevel();
	Jsonb	   *result;

	*checking = "invalid_input";
	durable_check_require(handler->input_check, handler->owner, input,
						  "input of step", handler->name);
	*checking = NULL;
	durable_snapshot_push();
	result = durable_function_call(function, strict, input);
	durable_snapshot_pop();
	AfterTriggerFireDeferred();
	*checking = "invalid_output";
	durable_check_require(handler->output_check, handler->owner, result,
						  "output of step", handler->name);
	*checking = NULL;
	/* what it SET, the role included, is not for others */
	AtEOXact_GUC(false, settings);
	return result;
}

/*
 * Looks a handler up and calls it, in a subtransaction. On failure *error is what
 * was raised, and nothing of it is left. Its deferred constraints are checked
 * here, too: at the commit it would be too late to record that they failed.
 * Cancel requests and statement timeouts go through.
 */
bool
durable_execute_call(const DurableHandler *handler, Jsonb *input, MemoryContext context,
					 Jsonb **output, Jsonb **error)
{
	MemoryContext before = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool succeeded = false;
	const char *volatile checking = NULL;

	durable_lease_keep();
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(before);
	PG_TRY();
	{
		Jsonb	   *result = call_checked(handler, input, &checking);

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
		if (durable_is_interrupt(data))
			ReThrowError(data);
		MemoryContextSwitchTo(context);
		*error = durable_error_to_json(data);
		if (checking != NULL)
			*error = durable_json_merge(*error, durable_json_rejected(checking));
		MemoryContextSwitchTo(before);
	}
	PG_END_TRY();
	CurrentResourceOwner = owner;
	durable_lease_keep();
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

/* The error with those of the attempts before it. */
static Jsonb *
keep_attempt(DurableTurn *turn, Jsonb *error)
{
	MemoryContext before = MemoryContextSwitchTo(turn->context);
	DurableCheckpoint *checkpoint = &turn->history[turn->step->seq];

	if (turn->step->retries > 1)
		error = durable_json_attempt(error, checkpoint->error, checkpoint->attempts,
									 durable_clock_now());
	MemoryContextSwitchTo(before);
	return error;
}

/* The step's function, once. Its checkpoint then says what came of it. */
static void
run_local_step(DurableTurn *turn)
{
	DurableOperation *op = turn->step;
	DurableCheckpoint *checkpoint = &turn->history[op->seq];
	DurableHandler handler = {.handler = op->target};
	Jsonb	   *output = NULL;
	Jsonb	   *error = NULL;
	bool		succeeded;

	durable_worker_report_step(checkpoint->name);
	durable_current_step = turn;
	succeeded = durable_execute_call(&handler, checkpoint->input, turn->context, &output, &error);
	durable_current_step = NULL;
	turn->slot_spent = true;
	durable_turn_changed(turn, checkpoint);
	checkpoint->wake_at = 0;
	if (!succeeded)
		error = keep_attempt(turn, error);
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
		/* the end of a handler is another run's, too */
		!durable_text_starts(turn->run_id, DURABLE_ID_ON_ERROR) &&
		durable_run_waiting(turn->namespace, turn->run_id) == 0;
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

/*
 * The step, and the replay that follows it, without a lock of the engine. Then what
 * the step did is written, and committed; at the end of a turn that commits once, and
 * of a run that nobody waits for, together with the decision.
 *
 * false: the claim is lost, and the transaction has been rolled back; or it was
 * because something came in that the step rests on: then *again. So it is when the step
 * was written, but the body is gone.
 */
static bool
do_local_step(DurableTurn *turn, const DurableLease *lease, bool *again)
{
	DurableApplied applied = APPLIED;
	bool		gone = false;

	if (!turn->workflow.atomic && dispatches(turn))
	{
		applied = durable_apply_step(turn, lease, turn->nhistory);
		if (applied == APPLIED)
			SPI_commit();
	}
	if (applied == APPLIED)
	{
		run_local_step(turn);
		turn->done = turn->step->seq + 1;
		gone = !durable_turn_has_body(turn);
		if (!gone)
		{
			durable_turn_replay(turn);
			if (turn->workflow.atomic || may_end_here(turn))
				return true;
		}
		applied = durable_apply_step(turn, lease, turn->done);
	}
	*again = applied == APPLY_AGAIN || (applied == APPLIED && gone);
	if (applied == APPLIED)
		SPI_commit();
	else
		SPI_rollback();
	return applied == APPLIED && !gone;
}

static DurableTurn *
new_turn(void)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "durable turn",
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
	bool		given = false;

	durable_tables_init(&tables);
	durable_task_open_by_id(&by_id, durable_snapshot_push());
	if (durable_task_find_number(&by_id, item->id, &task) &&
		durable_task_held_by(&task, item->lease.id))
	{
		if (item->is_turn)
			given = durable_run_postpone(&tables, &task, item->lease.id, until,
										 durable_clock_now());
		else
			given = durable_outcome_requeue(&tables, &task, item->lease.id, until,
											durable_clock_now(), true) == TM_Ok;
	}
	durable_probe_close(&by_id);
	durable_tables_close(&tables);
	durable_snapshot_pop();
	if (given)
		durable_executing_end();
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

/* Nothing was written: the claim is lost, or something came in. The steps that were
 * executed in this transaction are not done again for that, if they do not rest on
 * it. false: the turn is over. */
static bool
again_or_lost(DurableTurn *turn, const DurableWorkItem *item, DurableApplied applied)
{
	bool		keep = applied == APPLY_AGAIN;

	if (keep && turn->done > 0)
	{
		applied = durable_apply_step(turn, &item->lease, turn->done);
		keep = applied == APPLIED;
	}
	if (keep)
		SPI_commit();
	else
		SPI_rollback();
	return applied != APPLY_LOST && load_turn(turn, item);
}

/* One decision. true: go on with this turn, which has been replayed or not. */
static bool
apply_decision(DurableTurn *turn, const DurableWorkItem *item, bool *replayed)
{
	DurableApplied applied;
	bool		again;

	*replayed = false;
	if (turn->decision == DECISION_LOCAL_STEP)
	{
		*replayed = do_local_step(turn, &item->lease, &again);
		return *replayed || (again && load_turn(turn, item));
	}
	applied = turn->decision == DECISION_SUSPEND ?
		durable_apply_suspend(turn, &item->lease) : durable_apply_end(turn, &item->lease);
	if (applied == APPLY_LOST || applied == APPLY_AGAIN)
		return again_or_lost(turn, item, applied);
	if (applied == APPLIED)
		durable_executing_end();
	SPI_commit();
	return applied == APPLIED_GO_ON;
}

static void
execute_turn(const DurableWorkItem *item)
{
	MemoryContext before = CurrentMemoryContext;
	DurableTurn *turn = new_turn();
	MemoryContext scratch = AllocSetContextCreate(turn->context, "durable decision",
												  ALLOCSET_DEFAULT_SIZES);
	bool		replayed = false;
	bool		going = load_turn(turn, item);

	while (going)
	{
		CHECK_FOR_INTERRUPTS();
		/* a turn may have any number of steps */
		MemoryContextReset(scratch);
		MemoryContextSwitchTo(scratch);
		if (!replayed && !durable_turn_has_body(turn))
		{
			give_back(item);
			break;
		}
		if (!replayed)
			durable_turn_replay(turn);
		going = apply_decision(turn, item, &replayed);
	}
	MemoryContextSwitchTo(before);
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
	succeeded = durable_execute_call(&handler, item->input, step->context, &output, &error);
	durable_current_step = NULL;
	target.output = output;
	target.error = error;
	if (durable_settle_as_worker(&item->lease.token,
								 succeeded ? SETTLE_COMPLETE : SETTLE_FAIL, &target, 1) == 1)
	{
		durable_executing_end();
		SPI_commit();
	}
	else
		SPI_rollback();
	MemoryContextDelete(step->context);
}

/* If the item was not settled, somebody has ended it or taken it away. Its round has
 * nothing left to hold. */
static void
forget_lost(const DurableWorkItem *item)
{
	DurableLease lease;

	if (!durable_executing_lost())
		return;
	durable_snapshot_push();
	if (durable_lease_find(&item->lease.token, &lease))
		(void) durable_lease_delete(&lease, false);
	durable_snapshot_pop();
	SPI_commit();
}

static void
execute(const DurableWorkItem *item)
{
	durable_commit_flush_claim();
	durable_worker_report(true, item->namespace, item->run_id,
						  item->is_turn ? NULL : item->name);
	if (item->is_turn)
		execute_turn(item);
	else if (item->is_archive)
		durable_archive_execute(item);
	else
		execute_step(item);
	forget_lost(item);
}

void
durable_execute(const DurableWorkItem *item)
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		execute(item);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		durable_current_turn = durable_current_step = NULL;
		if (!durable_recover_from_error(item, error))
			ReThrowError(error);
		forget_lost(item);
	}
	PG_END_TRY();
	lease_in_hand = 0;
	durable_lease_let_go(item->lease.id);
}

void
durable_execute_end(void)
{
	if (lease_in_hand != 0)
	{
		durable_lease_let_go(lease_in_hand);
		/* nobody need wait until the lease ends */
		durable_scheduler_wake(MyDatabaseId, SCHEDULER_LOOK_DEAD);
	}
	lease_in_hand = 0;
	durable_executing_end();
	durable_current_turn = NULL;
	durable_current_step = NULL;
}

bool
durable_execute_has_claim(void)
{
	return lease_in_hand != 0;
}

/* Waits for nobody. What somebody else is changing right now, a cancel perhaps, is
 * left to the take-over. */
static void
hand_back_task(bool counted)
{
	TimestampTz now = durable_clock_now();
	DurableTables tables;
	DurableProbe by_id;
	DurableRow	task;
	DurableLease lease;

	durable_tables_init(&tables);
	durable_task_open_by_id(&by_id, durable_snapshot_push());
	if (durable_task_find_number(&by_id, task_in_hand, &task) &&
		durable_task_held_by(&task, lease_in_hand) &&
		durable_lease_find(&token_in_hand, &lease) &&
		durable_lease_lock(&lease))
	{
		TM_Result	result = counted ?
			durable_outcome_lapsed(&tables, &task, lease_in_hand, now, false) :
			durable_outcome_requeue(&tables, &task, lease_in_hand, now, now, false);

		durable_snapshot_push();
		if (result == TM_Ok)
			(void) durable_lease_delete(&lease, true);	/* our lock is on it */
		durable_snapshot_pop();
	}
	durable_probe_close(&by_id);
	durable_tables_close(&tables);
	durable_snapshot_pop();
}

/* What an uncounted return writes to, and reads of a step with a timeout; without
 * waiting for a VACUUM FULL or the like. */
static bool
can_lock_tables(void)
{
	static const DurableRel tables[] = {
		REL_TASK, REL_TASK_READY, REL_LEASE, REL_TASK_DEADLINE, REL_RUN, REL_TASK_LIMITED,
		REL_LIMITER, REL_LIMITER_QUEUE, REL_LIMITER_TURN, REL_LIMITER_BLOCKED, REL_LIMITER_SLOT,
		REL_LIMITER_FREED, REL_LIMITER_STATE, REL_LIMITER_KEY
	};

	for (int i = 0; i < lengthof(tables); i++)
	{
		if (!ConditionalLockRelationOid(durable_rel(tables[i]), RowExclusiveLock))
			return false;
	}
	return true;
}

void
durable_execute_hand_back(bool counted, bool wait)
{
	if (lease_in_hand == 0)
		return;
	StartTransactionCommand();
	if (wait || can_lock_tables())
		hand_back_task(counted);
	CommitTransactionCommand();
	durable_lease_let_go(lease_in_hand);
	lease_in_hand = 0;
	durable_executing_end();
	durable_current_turn = NULL;
	durable_current_step = NULL;
}
