/*-------------------------------------------------------------------------
 *
 * apply.c
 *	  Applying what a turn came to.
 *
 * Every function locks the run, checks that the claim still holds by locking
 * that very version of the turn's task, and, where the decision rests on what had
 * come in, that nothing else has since (the run's count of wakes). Then it
 * writes. The transaction, and with it the effects of a local step, is the
 * caller's.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/names.h"
#include "engine/apply.h"
#include "engine/capability.h"
#include "engine/check.h"
#include "engine/convention.h"
#include "engine/handoff.h"
#include "engine/limiter.h"
#include "engine/outcome.h"
#include "engine/run.h"
#include "engine/start_limit.h"
#include "engine/step.h"
#include "engine/timeout.h"
#include "store/delayed.h"
#include "store/ready.h"
#include "store/run_log.h"
#include "store/signal.h"
#include "store/limiter_slot.h"
#include "store/task.h"

/* A registration whose token somebody is signalling looks again this soon. */
#define RECHECK_US (200 * 1000)
/* … and one that another run waits for, too, for whom alone the waiter stands */
#define SHARED_CHILD_US (2 * USECS_PER_SEC)

static text *
copy_text(const DurableRow *row, int column)
{
	return DatumGetTextPCopy(row->values[column]);
}

/* What the claim of this turn was given by a limiter. */
static void
load_slot(DurableTurn *turn)
{
	ItemPointerData tid;

	turn->slot_spent = false;
	turn->has_slot = !durable_table_is_unused(REL_LIMITER_SLOT) &&
		durable_limiter_slot_find(turn->run, &turn->slot, &tid);
}

/* The step that the slot was for is being recorded, or the turn ends without it. */
static void
leave_slot(DurableTurn *turn, bool turn_ends)
{
	DurableTables tables;

	if (!turn->has_slot || (!turn->slot_spent && !turn_ends))
		return;
	durable_tables_init(&tables);
	durable_limiter_leave_number(&tables, turn->run);
	durable_tables_close(&tables);
	turn->has_slot = false;
}

bool
durable_turn_load(DurableTurn *turn, int64 id)
{
	MemoryContext before = MemoryContextSwitchTo(turn->context);
	DurableRow	row;
	bool		alive;

	durable_snapshot_push();
	alive = durable_run_read(id, &row) && !durable_run_has_ended(&row);
	if (alive)
	{
		turn->run = id;
		turn->run_id = copy_text(&row, RUN_RUN_ID);
		turn->namespace = copy_text(&row, RUN_NAMESPACE);
		turn->priority = DatumGetInt32(row.values[RUN_PRIORITY]);
		turn->wakes = DatumGetInt32(row.values[RUN_WAKES]);
		turn->headers = row.nulls[RUN_HEADERS] ? NULL :
			DatumGetJsonbPCopy(row.values[RUN_HEADERS]);
		/* a run that was requeued starts again */
		turn->started = !row.nulls[RUN_STARTED_AT] &&
			durable_run_status(&row) != RUN_PENDING;
		turn->input = row.nulls[RUN_INPUT] ? NULL : DatumGetJsonbPCopy(row.values[RUN_INPUT]);
		turn->history = durable_checkpoints_load(id, &turn->nhistory);
		turn->first_unsaved = turn->nhistory;
		turn->space = Max(16, turn->nhistory);
		turn->history = repalloc_huge(turn->history, sizeof(DurableCheckpoint) * turn->space);
		turn->operations = turn->logs = NIL;
		turn->attributes = NULL;
		turn->fan_changed = false;
		turn->done = 0;
		load_slot(turn);
		turn->body = InvalidOid;
		if (durable_workflow_find(turn->namespace, copy_text(&row, RUN_WORKFLOW),
								  copy_text(&row, RUN_VERSION), &turn->workflow) &&
			turn->workflow.owner == GetUserId() && turn->workflow.body != NULL &&
			durable_check_exists(turn->workflow.input_check))
			turn->body = durable_function_find(turn->workflow.body, &turn->body_strict);
	}
	durable_snapshot_pop();
	MemoryContextSwitchTo(before);
	return alive;
}

/* Only the claim's own holder adds to a history, but it may do so twice at once: whether
 * what an external turn is about to write was written meanwhile. The run is locked; "end"
 * is where its history ends. */
static bool
history_has_grown(const DurableTurn *turn, int end)
{
	DurableCheckpoint other;
	bool		grown = end != turn->history_end;

	for (int i = 0; i < turn->nhistory && !grown; i++)
	{
		const DurableCheckpoint *checkpoint = &turn->history[i];

		grown = checkpoint->unsaved && checkpoint->seq < turn->history_end &&
			durable_checkpoint_find(turn->run, checkpoint->seq, &other) &&
			(!checkpoint->stored || other.status != CHECKPOINT_PENDING);
	}
	return grown;
}

/* Where an external turn's entries are, whatever is registered meanwhile; and how many
 * before it have added nothing, which its attempt counts. */
static void
keep_queue(DurableTurn *turn, const DurableRow *task)
{
	if (!turn->external)
		return;
	turn->workflow.queue = DatumGetTextPCopy(task->values[TASK_QUEUE]);
	turn->idle_turns = DatumGetInt32(task->values[TASK_ATTEMPT]) - 1;
}

/* The version of an external turn's task that is locked, or that its parked run had. */
static void
keep_task(DurableTurn *turn, const DurableRow *task, Relation tasks)
{
	turn->task = palloc(sizeof(DurableRow));
	durable_row_copy(tasks, task, turn->task);
}

/* The step's own claim, as settling it would find it. Its task goes. */
static bool
settle_step(const DurableTurn *turn, DurableProbe *by_id, int *seq, int *attempt)
{
	const DurableAfterStep *after = turn->after;
	DurableWriter writer;
	DurableRow	task;
	bool		settled;

	if (!durable_task_find_number(by_id, after->task, &task) ||
		!durable_task_held_by(&task, after->lease->id) || !durable_task_is(&task, "step") ||
		!durable_text_same(DatumGetTextPP(task.values[TASK_RUN_ID]), turn->run_id))
		return false;
	*seq = DatumGetInt32(task.values[TASK_SEQ]);
	*attempt = DatumGetInt32(task.values[TASK_ATTEMPT]);
	durable_writer_open(&writer, REL_TASK);
	settled = durable_writer_delete(&writer, &task.tid, true) == TM_Ok;
	durable_writer_close(&writer);
	if (settled)
	{
		DurableTables tables;

		durable_timeout_ended(&task);
		durable_tables_init(&tables);
		durable_limiter_leave(&tables, &task);
		durable_tables_close(&tables);
	}
	return settled;
}

/* The result of a step, to its checkpoint, which is mostly the last of the history. */
static void
deliver_after_step(DurableRun *run, const DurableAfterStep *after, int seq, int attempt,
				   DurableRow *last)
{
	DurableCheckpoint outcome = {
		.seq = seq, .status = CHECKPOINT_COMPLETED, .output = after->output, .attempts = attempt,
		.finished_at = durable_clock_now()
	};

	if (seq == after->history_end - 1)
		durable_checkpoint_settle_row(last, &outcome);
	else
		durable_checkpoint_settle(DatumGetInt64(run->row.values[RUN_ID]), &outcome);
}

/*
 * Instead of a claim: nothing has come to the run since the worker decided its last
 * turn, so nobody has taken another one, and with the step's result its history is what
 * the decision rests on. The lease that the turn's task has left names that turn. A result
 * that wakes nobody, as the run waits for more than one, is none that the decision may
 * call off.
 */
static DurableApplied
lock_after_step(DurableTurn *turn, DurableRun *run)
{
	const DurableAfterStep *after = turn->after;
	DurableProbe by_id;
	DurableProbe history;
	DurableRow	task;
	DurableRow	last;
	int			seq = 0;
	int			attempt = 0;
	int			end;
	bool		holds;

	if (durable_run_has_ended(&run->row) ||
		durable_run_turn_state(&run->row) != TURN_PARKED || !run->row.nulls[RUN_FAN_NEXT])
		return APPLY_LOST;
	durable_task_open_by_id(&by_id, durable_snapshot_push());
	end = durable_checkpoints_last(&history, turn->run, &last);
	holds = durable_task_find_number(&by_id, turn->run, &task) &&
		!task.nulls[TASK_LAST_LEASE] &&
		DatumGetInt64(task.values[TASK_LAST_LEASE]) == after->turn_lease &&
		!history_has_grown(turn, end);
	if (holds)
		keep_queue(turn, &task);
	if (holds && turn->decision != DECISION_SUSPEND)
		keep_task(turn, &task, by_id.rel);
	holds = holds && settle_step(turn, &by_id, &seq, &attempt);
	durable_probe_close(&by_id);
	if (holds)
	{
		deliver_after_step(run, after, seq, attempt, &last);
		durable_run_awaits_nothing(&run->row);
		turn->wakes = DatumGetInt32(run->row.values[RUN_WAKES]);
		CommandCounterIncrement();
	}
	durable_probe_close(&history);
	durable_snapshot_pop();
	return holds ? APPLIED : APPLY_LOST;
}

/* Locks the claim; the run is locked already. */
static DurableApplied
lock_claim(DurableTurn *turn, const DurableLease *lease, bool check_wakes, DurableRun *run)
{
	DurableProbe by_id;
	DurableRow	task;
	DurableWriter writer;
	bool		holds;
	bool		grown = false;

	if (turn->after != NULL)
		return lock_after_step(turn, run);
	if (durable_run_has_ended(&run->row))
		return APPLY_LOST;
	durable_snapshot_push();
	durable_task_open_by_id(&by_id, GetActiveSnapshot());
	durable_writer_open(&writer, REL_TASK);
	holds = durable_task_find_number(&by_id, turn->run, &task) &&
		durable_task_held_by(&task, lease->id) &&
		durable_writer_lock(&writer, &task.tid, true, true, NULL) == TM_Ok;
	if (holds)
	{
		grown = turn->external && turn->nhistory > 0 &&
			history_has_grown(turn, durable_run_history_end(&run->row));
		keep_queue(turn, &task);
	}
	/* a turn that gets this far is progress: earlier lapses count no more */
	if (holds && DatumGetInt32(task.values[TASK_RECLAIMS]) > 0)
	{
		durable_row_set(&task, TASK_RECLAIMS, Int32GetDatum(0));
		(void) durable_writer_update(&writer, &task, true);
	}
	else if (holds && turn->external)
		keep_task(turn, &task, writer.rel);
	durable_writer_close(&writer);
	durable_probe_close(&by_id);
	durable_snapshot_pop();
	if (!holds)
		return APPLY_LOST;
	return !grown &&
		(!check_wakes || DatumGetInt32(run->row.values[RUN_WAKES]) == turn->wakes) ?
		APPLIED : APPLY_AGAIN;
}

static Jsonb *
refused(const DurableOperation *op, const DurableRefusal *refusal)
{
	return durable_json_error_details(psprintf("child workflow \"%s\" failed to start: %s",
											   text_to_cstring(op->workflow), refusal->message),
									  pstrdup(unpack_sql_state(refusal->sqlstate)),
									  refusal->detail, refusal->hint, NULL);
}

/* The children that the turn starts, and the operations that ask for them. */
static List *
list_starts(DurableTurn *turn, List **ops)
{
	ListCell   *lc;
	List	   *specs = NIL;

	*ops = NIL;
	foreach(lc, turn->operations)
	{
		DurableOperation *op = lfirst(lc);
		DurableCheckpoint *checkpoint = durable_turn_at(turn, op->seq);
		DurableWorkflow *workflow;
		DurableRunSpec *spec;

		if (checkpoint->kind != KIND_CHILD)
			continue;
		CHECK_FOR_INTERRUPTS();
		workflow = palloc(sizeof(DurableWorkflow));
		if (!durable_workflow_for_start(turn->namespace, op->workflow, op->version, workflow))
			continue;
		spec = palloc0(sizeof(DurableRunSpec));
		spec->workflow = workflow;
		spec->input = checkpoint->input;
		spec->refusal = palloc0(sizeof(DurableRefusal));
		spec->run_id = cstring_to_text(text_to_cstring(checkpoint->name) + strlen("child:"));
		specs = lappend(specs, spec);
		*ops = lappend(*ops, op);
	}
	return specs;
}

/*
 * Before the run is locked: a start that has to be counted, or registers its workflow by
 * convention, may wait for others. None of the children is there yet, so each is counted with those that come before it. What is
 * wrong with the start of a child that is waited for is that step's error. The body has gone
 * on after any other: the run cannot know better than to fail. Returns why, or NULL.
 */
static Jsonb *
prepare_starts(DurableTurn *turn)
{
	List	   *ops;
	List	   *specs = list_starts(turn, &ops);
	List	   *ahead = NIL;
	ListCell   *lc;
	ListCell   *lc2;

	durable_start_lock_all(specs);
	forboth(lc, ops, lc2, specs)
	{
		DurableOperation *op = lfirst(lc);
		DurableRunSpec *spec = lfirst(lc2);
		DurableRefusal refusal = {0};

		CHECK_FOR_INTERRUPTS();
		spec->refusal = &refusal;
		spec->ahead = ahead;
		if (durable_start_check(spec))
			ahead = spec->singleton_key == NULL && spec->computed_key == NULL ? ahead :
				lappend(ahead, spec);
		else if (refusal.message != NULL &&
				 durable_turn_at(turn, op->seq)->status != CHECKPOINT_PENDING)
			return refused(op, &refusal);
	}
	return NULL;
}

void
durable_apply_prepare(DurableTurn *turn)
{
	(void) prepare_starts(turn);
}

/* Instead of what the body came to. */
static DurableApplied
fail_instead(DurableTurn *turn, const DurableLease *lease, Jsonb *error)
{
	turn->decision = DECISION_FAILED;
	turn->output = NULL;
	turn->error = error;
	return durable_apply_end(turn, lease);
}

/* Locks the run and the claim. Snapshot pushed and run open only when APPLIED. */
static DurableApplied
open_claimed(DurableTurn *turn, const DurableLease *lease, bool check_wakes, DurableRun *run)
{
	DurableApplied result;
	TM_Result	opened;

	durable_snapshot_push();
	opened = turn->seen != NULL ? durable_run_open_seen(run, turn->seen, true) :
		durable_run_open(run, turn->run, true);
	if (opened != TM_Ok)
	{
		durable_snapshot_pop();
		return APPLY_LOST;
	}
	result = lock_claim(turn, lease, check_wakes, run);
	if (result != APPLIED)
	{
		durable_run_close(run);
		durable_snapshot_pop();
	}
	return result;
}

static void
close_claimed(DurableRun *run)
{
	durable_run_close(run);
	durable_snapshot_pop();
}

static void
complete(DurableTurn *turn, DurableCheckpoint *checkpoint, DurableCheckpointStatus status,
		 Jsonb *output, Jsonb *error)
{
	MemoryContext before = MemoryContextSwitchTo(turn->context);

	checkpoint->status = status;
	checkpoint->output = output == NULL ? NULL : DatumGetJsonbPCopy(PointerGetDatum(output));
	checkpoint->error = error == NULL ? NULL : DatumGetJsonbPCopy(PointerGetDatum(error));
	checkpoint->finished_at = durable_clock_now();
	checkpoint->wake_at = 0;
	durable_turn_changed(turn, checkpoint);
	MemoryContextSwitchTo(before);
}

/* A signal that is there already is taken. When to look again; 0: it will be told. */
static int64
register_signal(DurableTurn *turn, DurableCheckpoint *checkpoint)
{
	Jsonb	   *payload = NULL;
	bool		alone = durable_token_take(turn->namespace, checkpoint->name);

	if (durable_signal_take(turn->namespace, checkpoint->name, &payload))
		complete(turn, checkpoint, CHECKPOINT_COMPLETED, payload, NULL);
	else
		durable_waiter_register(turn->namespace, checkpoint->name, turn->run, checkpoint->seq);
	return alone ? 0 : RECHECK_US;
}

static bool
same_namespace(const DurableTurn *turn, const DurableRow *run)
{
	return durable_text_same(DatumGetTextPP(run->values[RUN_NAMESPACE]), turn->namespace);
}

/* The child may have ended before anybody waited for it. When to look again; 0: it
 * will be told. */
static int64
register_child(DurableTurn *turn, const DurableOperation *op, DurableCheckpoint *checkpoint)
{
	int64		recheck = 0;
	text	   *child_id = cstring_to_text(text_to_cstring(checkpoint->name) + strlen("child:"));
	DurableWorkflow workflow;
	DurableRefusal refusal = {0};
	DurableRow	child;
	int64		id;
	int64		waiting;
	int			seq;

	if (!durable_workflow_for_start(turn->namespace, op->workflow, op->version, &workflow))
	{
		complete(turn, checkpoint, CHECKPOINT_FAILED, NULL,
				 durable_json_error(psprintf("child workflow \"%s\" failed to start: it is not registered",
											 text_to_cstring(op->workflow)), false));
		return 0;
	}
	else
	{
		DurableRunSpec spec = {
			.workflow = &workflow, .run_id = child_id, .start_at = DT_NOBEGIN,
			.priority = op->has_priority ? op->priority : turn->priority,
			.tags = workflow.tags, .input = checkpoint->input,
			.parent = turn->run, .parent_seq = checkpoint->seq, .refusal = &refusal
		};

		(void) durable_run_start(&spec);
	}
	if (refusal.message != NULL)
	{
		complete(turn, checkpoint, CHECKPOINT_FAILED, NULL, refused(op, &refusal));
		return 0;
	}
	if (checkpoint->status != CHECKPOINT_PENDING)
		return 0;				/* start_child does not wait */
	if (!durable_token_take(turn->namespace, checkpoint->name))
		recheck = RECHECK_US;
	durable_snapshot_push();
	if (!durable_run_number(child_id, &id) || !durable_run_read(id, &child) ||
		!same_namespace(turn, &child))
		complete(turn, checkpoint, CHECKPOINT_FAILED, NULL,
				 durable_json_error(psprintf("child workflow \"%s\" failed to start: the run id is taken in another namespace",
											 text_to_cstring(op->workflow)), false));
	else if (durable_run_has_ended(&child))
		complete(turn, checkpoint,
				 durable_run_status(&child) == RUN_COMPLETED ?
				 CHECKPOINT_COMPLETED : CHECKPOINT_FAILED,
				 child.nulls[RUN_OUTPUT] ? NULL : DatumGetJsonbP(child.values[RUN_OUTPUT]),
				 child.nulls[RUN_ERROR] ? NULL : DatumGetJsonbP(child.values[RUN_ERROR]));
	else if (durable_waiter_find(turn->namespace, checkpoint->name, &waiting, &seq) &&
			 waiting != turn->run)
		recheck = SHARED_CHILD_US;
	else
		durable_waiter_register(turn->namespace, checkpoint->name, turn->run, checkpoint->seq);
	durable_snapshot_pop();
	return recheck;
}

static void
write_logs(DurableTurn *turn)
{
	DurableWriter writer;
	ListCell   *lc;

	if (turn->logs == NIL)
		return;
	durable_writer_open(&writer, REL_RUN_LOG);
	foreach(lc, turn->logs)
	{
		DurableLogEntry *entry = lfirst(lc);
		DurableRow	row;

		durable_row_set(&row, LOG_RUN, Int64GetDatum(turn->run));
		durable_row_set(&row, LOG_AT, TimestampTzGetDatum(durable_clock_now()));
		durable_row_set(&row, LOG_SEQ, Int32GetDatum(entry->seq));
		durable_row_set(&row, LOG_NUMBER, Int32GetDatum(entry->number));
		durable_row_set(&row, LOG_LEVEL, PointerGetDatum(entry->level));
		durable_row_set(&row, LOG_MESSAGE, PointerGetDatum(entry->message));
		durable_row_set_pointer(&row, LOG_DATA, entry->data);
		/* a wait that takes no position comes here on each replay */
		(void) durable_writer_insert_unless(&writer, IDX_RUN_LOG, &row);
	}
	durable_writer_close(&writer);
	turn->logs = NIL;
}

/* What the operations below a position ask for. Returns when to look again at what was
 * busy, or 0. */
static int64
do_operations(DurableTurn *turn, int below)
{
	ListCell   *lc;
	int64		recheck = 0;

	turn->blocked_queue = NULL;
	turn->blocked_soon = false;
	foreach(lc, turn->operations)
	{
		DurableOperation *op = lfirst(lc);
		DurableCheckpoint *checkpoint = durable_turn_at(turn, op->seq);
		int64		wait = 0;

		if (op->seq >= below)
			continue;
		/* one that nobody can do stays: this need not be where the turn is parked */
		if (checkpoint->kind == KIND_STEP && !durable_step_dispatch(turn, op))
			continue;
		turn->operations = foreach_delete_current(turn->operations, lc);
		if (checkpoint->kind == KIND_SIGNAL)
			wait = register_signal(turn, checkpoint);
		else if (checkpoint->kind == KIND_CHILD)
			wait = register_child(turn, op, checkpoint);
		if (wait != 0 && (recheck == 0 || wait < recheck))
			recheck = wait;
	}
	return recheck;
}

/* The operations' effects, then every checkpoint that is new or has changed, below a
 * position. What was logged, and all about the run's row, goes along in any case. */
static int64
write_history(DurableTurn *turn, int below)
{
	DurableWriter writer;
	int64		recheck = do_operations(turn, below);
	int			end = Min(below, turn->nhistory);

	turn->done = 0;
	write_logs(turn);
	durable_writer_open(&writer, REL_CHECKPOINT);
	for (int i = turn->first_unsaved; i < end; i++)
	{
		DurableCheckpoint *checkpoint = &turn->history[i];

		if (!checkpoint->unsaved)
			continue;
		/* a wait that is over in another way than by its signal, or its child's end */
		if ((checkpoint->kind == KIND_SIGNAL || checkpoint->kind == KIND_CHILD) &&
			checkpoint->stored && checkpoint->status != CHECKPOINT_PENDING)
			(void) durable_waiter_remove(turn->namespace, checkpoint->name,
										 turn->run, checkpoint->seq);
		if (checkpoint->status == CHECKPOINT_CANCELLED && checkpoint->task != 0)
			durable_run_drop_task(checkpoint->task, 0);
		durable_checkpoint_write(&writer, turn->run, checkpoint);
	}
	durable_writer_close(&writer);
	turn->first_unsaved = Max(turn->first_unsaved, end);
	return recheck;
}

/* What every write of the run's row carries along. */
static bool
update_run(DurableTurn *turn, DurableRun *run)
{
	bool		changed = durable_run_unblock(&run->row);

	if (changed)
		durable_run_set_status(&run->row, RUN_RUNNING);
	if (!turn->started)
	{
		if (run->row.nulls[RUN_STARTED_AT])
			durable_row_set(&run->row, RUN_STARTED_AT,
							TimestampTzGetDatum(durable_clock_now()));
		durable_run_set_status(&run->row, RUN_RUNNING);
		turn->started = changed = true;
	}
	if (turn->attributes != NULL)
	{
		Jsonb	   *old = run->row.nulls[RUN_SEARCH_ATTRIBUTES] ? NULL :
			DatumGetJsonbP(run->row.values[RUN_SEARCH_ATTRIBUTES]);

		durable_row_set(&run->row, RUN_SEARCH_ATTRIBUTES,
						JsonbPGetDatum(durable_json_merge(old, turn->attributes)));
		turn->attributes = NULL;
		changed = true;
	}
	if (turn->fan_changed)
	{
		durable_step_store_window(turn, &run->row);
		changed = true;
	}
	return changed;
}

/* Whether this replay has ended a wait, or called off a step, that a delivery may
 * have ended, too. */
static bool
rests_on_waits(const DurableTurn *turn)
{
	for (int i = turn->first_unsaved; i < turn->nhistory; i++)
	{
		const DurableCheckpoint *checkpoint = &turn->history[i];

		if (checkpoint->unsaved && checkpoint->stored &&
			(checkpoint->kind == KIND_SIGNAL || checkpoint->kind == KIND_STEP))
			return true;
	}
	return false;
}

DurableApplied
durable_apply_step(DurableTurn *turn, const DurableLease *lease, int below)
{
	DurableRun	run;
	DurableApplied result;

	/* what is refused is recorded, and raised by the next replay */
	(void) prepare_starts(turn);
	result = open_claimed(turn, lease, rests_on_waits(turn), &run);
	if (result != APPLIED)
		return result;
	(void) write_history(turn, below);
	leave_slot(turn, false);
	if (update_run(turn, &run))
		durable_run_update(&run);
	close_claimed(&run);
	CommandCounterIncrement();
	return APPLIED;
}

/* Where the history has the end of the awaited range; -1: it waits for no range. A
 * worker outside may have named a range that goes beyond what it asked for. */
static int
last_in_range(const DurableTurn *turn)
{
	int			i;

	if (turn->awaited_first < 0)
		return -1;
	if (!turn->external)
		return turn->awaited_last;
	i = turn->nhistory - 1;
	while (i >= 0 && turn->history[i].seq > turn->awaited_last)
		i--;
	return i;
}

/* A result of the awaited range that is out; -1: none, or it waits for no range. The
 * last, because that one mostly comes last. */
static int
result_awaited(const DurableTurn *turn)
{
	for (int i = last_in_range(turn); i >= 0; i--)
	{
		if (turn->history[i].seq < turn->awaited_first)
			break;
		if (turn->history[i].status == CHECKPOINT_PENDING)
			return turn->history[i].seq;
	}
	return -1;
}

/* Whether what the suspended turn asked for came with the registration. */
static bool
something_came(const DurableCheckpoint *last, bool was_pending)
{
	return was_pending && last->status != CHECKPOINT_PENDING;
}

/* Whether all of an awaited range has ended, as steps do that could not be dispatched. */
static bool
nothing_is_out(const DurableTurn *turn)
{
	return turn->awaited_first >= 0 && result_awaited(turn) < 0;
}

/* The turn's task waits at the limiter; its row says so, for whoever takes it out. */
static void
wait_at_limiter(DurableTurn *turn)
{
	DurableTables tables;
	DurableProbe by_id;
	DurableRow	task;

	durable_tables_init(&tables);
	durable_task_open_by_id(&by_id, durable_snapshot_push());
	if (!durable_task_find_number(&by_id, turn->run, &task))
		elog(ERROR, "a locked turn has no task");
	durable_limited_by_to_row(&turn->gate, &task, TASK_LIMITER, TASK_LIMITER_KEY);
	if (durable_writer_update(durable_tables_get(&tables, TABLE_TASK), &task, true) != TM_Ok)
		elog(ERROR, "a locked turn was changed by somebody else");
	durable_limiter_enlist(&tables, &turn->gate, &turn->run, 1,
						   DatumGetInt32(task.values[TASK_PRIORITY]), turn->namespace,
						   turn->workflow.queue);
	durable_probe_close(&by_id);
	durable_tables_close(&tables);
	durable_snapshot_pop();
}

static void
park(DurableTurn *turn, DurableRun *run, TimestampTz wake_at, int on)
{
	DurableRow *row = &run->row;

	(void) update_run(turn, run);
	durable_run_set_status(row, RUN_SUSPENDED);
	durable_row_set_null(row, RUN_WAKE_AT);
	if (turn->blocked_queue != NULL)
	{
		TimestampTz look_at = durable_block(row, turn->blocked_queue, turn->blocked_requires,
											turn->blocked_route, turn->blocked_soon);

		wake_at = wake_at == 0 ? look_at : Min(wake_at, look_at);
	}
	if (on >= 0)
	{
		durable_row_set(row, RUN_AWAITED_FIRST, Int32GetDatum(turn->awaited_first));
		durable_row_set(row, RUN_AWAITED_LAST, Int32GetDatum(turn->awaited_last));
		durable_row_set(row, RUN_AWAITED_ON, Int32GetDatum(on));
		durable_row_set(row, RUN_FAIL_FAST, BoolGetDatum(turn->fail_fast));
	}
	if (wake_at != 0)
	{
		DurableWriter writer;

		durable_row_set(row, RUN_WAKE_AT, TimestampTzGetDatum(wake_at));
		durable_run_set_turn_state(row, TURN_DELAYED);
		durable_writer_open(&writer, REL_TASK_DELAYED);
		durable_delayed_insert(&writer, turn->run, wake_at, turn->priority,
							   turn->namespace, turn->workflow.queue, NULL);
		durable_writer_close(&writer);
	}
	else if (turn->limited)
	{
		wait_at_limiter(turn);
		durable_run_set_turn_state(row, TURN_LIMITED);
	}
	else
		durable_run_set_turn_state(row, TURN_PARKED);
	durable_run_update(run);
}

/* The claim is over for this turn. A round of several, which only external workers
 * have, stays for the others; with its youngest task it is mostly done. false: the
 * lease is still there, also because somebody is renewing it. */
static bool
end_claim(const DurableTurn *turn, const DurableLease *lease)
{
	DurableLease current;
	bool		ended;

	if (lease->nids > 1 && lease->ids[lease->nids - 1] != turn->run)
		return false;
	durable_snapshot_push();
	ended = (lease->nids <= 1 ||
			 durable_task_count_held(lease->ids, lease->nids, lease->id, GetActiveSnapshot()) == 0) &&
		durable_lease_find(&lease->token, &current) &&
		durable_lease_delete(&current, false) == TM_Ok;
	durable_snapshot_pop();
	return ended;
}

DurableApplied
durable_apply_suspend(DurableTurn *turn, const DurableLease *lease)
{
	DurableRun	run;
	DurableCheckpoint *last = turn->next_seq > 0 && turn->next_seq <= turn->nhistory ?
		&turn->history[turn->next_seq - 1] : NULL;
	bool		was_pending = last != NULL && last->status == CHECKPOINT_PENDING;
	int64		recheck;
	TimestampTz wake_at = turn->wake_at;
	Jsonb	   *refusal = prepare_starts(turn);
	DurableApplied result;

	if (refusal != NULL)
		return fail_instead(turn, lease, refusal);
	result = open_claimed(turn, lease, true, &run);
	if (result != APPLIED)
		return result;
	recheck = write_history(turn, DURABLE_ALL_POSITIONS);
	leave_slot(turn, true);
	if ((last != NULL && something_came(last, was_pending)) || nothing_is_out(turn))
	{
		if (update_run(turn, &run))
			durable_run_update(&run);
		result = APPLIED_GO_ON;
	}
	else
	{
		TimestampTz soon = durable_clock_now() + recheck;

		if (recheck != 0 && (wake_at == 0 || soon < wake_at))
			wake_at = soon;
		park(turn, &run, wake_at, result_awaited(turn));
		(void) end_claim(turn, lease);
	}
	close_claimed(&run);
	CommandCounterIncrement();
	return result;
}

static bool
has_stored_waits(const DurableTurn *turn)
{
	for (int i = 0; i < turn->nhistory; i++)
	{
		if (turn->history[i].stored && turn->history[i].status == CHECKPOINT_PENDING)
			return true;
	}
	return false;
}

/* The run is locked: what has come in since the decision was looked at is as final as
 * what had before, and a wait that is overdue ends now. */
static void
refresh_waits(DurableTurn *turn)
{
	TimestampTz now = durable_clock_now();
	ListCell   *lc;

	if (!has_stored_waits(turn))
		return;

	durable_snapshot_push();
	for (int i = 0; i < turn->nhistory; i++)
	{
		DurableCheckpoint *checkpoint = &turn->history[i];

		if (!checkpoint->stored || checkpoint->status != CHECKPOINT_PENDING)
			continue;
		(void) durable_checkpoint_find(turn->run, checkpoint->seq, checkpoint);
		if (checkpoint->status == CHECKPOINT_PENDING && checkpoint->kind == KIND_SIGNAL &&
			checkpoint->wake_at != 0 && checkpoint->wake_at <= now)
			durable_turn_time_out(turn, checkpoint);
	}
	durable_snapshot_pop();
	foreach(lc, turn->operations)
	{
		DurableOperation *op = lfirst(lc);
		DurableCheckpoint *checkpoint = durable_turn_at(turn, op->seq);

		if (checkpoint->stored && checkpoint->status != CHECKPOINT_PENDING)
			turn->operations = foreach_delete_current(turn->operations, lc);
	}
}

/* Whether what one wait is for is there; *wake_at is when a single one ends by itself. */
static bool
is_over(const DurableTurn *turn, const DurableWait *wait, TimestampTz now, TimestampTz *wake_at)
{
	bool		pending = false;

	*wake_at = 0;
	for (int i = wait->first; i <= wait->last; i++)
	{
		const DurableCheckpoint *checkpoint = durable_turn_at(turn, i);

		if (wait->fail_fast && checkpoint->status == CHECKPOINT_FAILED)
			return true;
		pending |= checkpoint->kind == KIND_SLEEP ? checkpoint->wake_at > now :
			checkpoint->status == CHECKPOINT_PENDING;
		if (pending)
			*wake_at = checkpoint->wake_at;
	}
	return !pending;
}

/* When the first of the waits ends by itself (0: none does); *over: one has ended
 * already, or there is none. */
static TimestampTz
first_wake(const DurableTurn *turn, TimestampTz now, bool *over)
{
	TimestampTz first = 0;
	ListCell   *lc;

	*over = turn->waits == NIL;
	foreach(lc, turn->waits)
	{
		TimestampTz wake_at;

		if (is_over(turn, lfirst(lc), now, &wake_at))
			*over = true;
		else if (wake_at != 0 && (first == 0 || wake_at < first))
			first = wake_at;
	}
	return first;
}

/* It waits for what its worker was told is there, and asks for nothing else: the same
 * history would give the same decision for ever. */
static bool
is_idle(const DurableTurn *turn, const DurableLease *lease, const DurableRun *run)
{
	bool		over;

	if (turn->after != NULL || turn->waits == NIL || turn->logs != NIL || turn->attributes != NULL ||
		DatumGetInt32(run->row.values[RUN_WAKES]) != turn->wakes)
		return false;
	for (int i = 0; i < turn->nhistory; i++)
	{
		if (turn->history[i].unsaved)
			return false;
	}
	(void) first_wake(turn, lease->claimed_at, &over);
	return over;
}

/* The first of such turns follows at once, like any other; the worker may not have seen
 * all. Then it takes longer each time: 0.1 s to 10 s. */
static TimestampTz
idle_until(const DurableTurn *turn)
{
	int			doublings = Min(turn->idle_turns - 1, 7);

	return turn->idle_turns == 0 ? 0 :
		durable_clock_now() + Min((100 * 1000) << doublings, 10 * USECS_PER_SEC);
}

/* Back to its queue at once, or only out of the round. The row is locked. */
static void
leave_round(DurableTurn *turn, const DurableLease *lease, bool again, int idle_turns)
{
	DurableTables tables;
	DurableProbe by_id;
	DurableRow	found;
	DurableRow *task = turn->task;
	TimestampTz now = durable_clock_now();
	TM_Result	result = TM_Deleted;

	durable_tables_init(&tables);
	durable_task_open_by_id(&by_id, durable_snapshot_push());
	if (task == NULL && durable_task_find_number(&by_id, turn->run, &found))
		task = &found;
	if (task != NULL)
	{
		durable_row_set(task, TASK_LAST_LEASE, Int64GetDatum(lease->id));
		durable_row_set(task, TASK_ATTEMPT, Int32GetDatum(idle_turns + 1));
		result = again ?
			durable_outcome_requeue(&tables, task, lease->id, now, now, true) :
			durable_writer_update(durable_tables_get(&tables, TABLE_TASK), task, true);
	}
	if (result != TM_Ok)
		elog(ERROR, "a locked turn was changed by somebody else");
	durable_probe_close(&by_id);
	durable_tables_close(&tables);
	durable_snapshot_pop();
}

/* Whether something has come in since the turn was claimed that its decision must not
 * miss. */
static bool
is_superseded(const DurableTurn *turn, const DurableRun *run)
{
	return turn->rests_on_latest && DatumGetInt32(run->row.values[RUN_WAKES]) != turn->wakes;
}

/* Its turn is parked, and is due again. */
static void
wake_again(DurableTurn *turn, DurableRun *run)
{
	(void) update_run(turn, run);
	durable_snapshot_push();
	durable_run_wake(run);
	durable_snapshot_pop();
}

/* What it waits for is parked on; when that is there, the turn is due again. */
static bool
suspend_external(DurableTurn *turn, DurableRun *run, TimestampTz idle_until)
{
	int64		recheck = write_history(turn, DURABLE_ALL_POSITIONS);
	TimestampTz now = durable_clock_now();
	bool		again;
	TimestampTz wake_at = first_wake(turn, now, &again);

	/* whatever came while the turn was out, the worker has not seen */
	again = again || DatumGetInt32(run->row.values[RUN_WAKES]) != turn->wakes;
	if (recheck != 0 && (wake_at == 0 || now + recheck < wake_at))
		wake_at = now + recheck;
	if (again && idle_until != 0)
	{
		again = false;
		wake_at = idle_until;
	}
	if (!again)
		park(turn, run, wake_at, result_awaited(turn));
	else if (turn->after != NULL)
		wake_again(turn, run);
	else if (update_run(turn, run))
		durable_run_update(run);
	return again;
}

DurableApplied
durable_apply_external(DurableTurn *turn, const DurableLease *lease)
{
	DurableRun	run;
	bool		again;
	bool		idle;
	Jsonb	   *refusal = prepare_starts(turn);
	DurableApplied result;

	if (refusal != NULL)
		return fail_instead(turn, lease, refusal);
	result = open_claimed(turn, lease, false, &run);
	if (result != APPLIED)
		return result;
	refresh_waits(turn);
	idle = is_idle(turn, lease, &run);
	if (is_superseded(turn, &run) || (idle && turn->idle_turns >= DURABLE_IDLE_TURNS))
	{
		result = idle ? APPLY_STUCK : APPLY_SUPERSEDED;
		close_claimed(&run);
		return result;
	}
	again = suspend_external(turn, &run, idle ? idle_until(turn) : 0);
	/* the fence of a parked turn: its task has left the round */
	if (turn->after == NULL)
	{
		leave_round(turn, lease, again, idle ? turn->idle_turns + 1 : 0);
		(void) end_claim(turn, lease);
	}
	close_claimed(&run);
	CommandCounterIncrement();
	return again ? APPLIED_GO_ON : APPLIED;
}

DurableApplied
durable_apply_superseded(DurableTurn *turn, const DurableLease *lease)
{
	DurableRun	run;
	DurableApplied result = open_claimed(turn, lease, false, &run);

	if (result != APPLIED)
		return result;
	leave_round(turn, lease, true, 0);
	(void) end_claim(turn, lease);
	close_claimed(&run);
	CommandCounterIncrement();
	return APPLIED_GO_ON;
}

/* The run fails, and another one takes the failure: it is parked until that one ends. */
static DurableApplied
apply_handoff(DurableTurn *turn, const DurableLease *lease, DurableHandoff *handoff)
{
	DurableRun	run;
	DurableApplied result = open_claimed(turn, lease, !turn->external, &run);

	if (result != APPLIED)
		return result;
	if (is_superseded(turn, &run))
	{
		close_claimed(&run);
		return APPLY_SUPERSEDED;
	}
	turn->ending = true;
	(void) write_history(turn, DURABLE_ALL_POSITIONS);
	leave_slot(turn, true);
	durable_handoff_begin(turn, &run, handoff);
	turn->fan_changed = false;
	park(turn, &run, 0, -1);
	if (turn->after == NULL)
	{
		if (turn->external)
			leave_round(turn, lease, false, 0);
		(void) end_claim(turn, lease);
	}
	close_claimed(&run);
	CommandCounterIncrement();
	return APPLIED;
}

typedef struct EndCheck
{
	DurableTurn *turn;
	const DurableLease *lease;
	const char *note;			/* for the run's log, or NULL */
	DurableApplied result;
} EndCheck;

/* All locks of the end are held: is the claim, too? */
static bool
check_end(DurableRun *run, void *arg)
{
	EndCheck   *check = arg;

	check->result = lock_claim(check->turn, check->lease, !check->turn->external, run);
	if (check->result == APPLIED && is_superseded(check->turn, run))
		check->result = APPLY_SUPERSEDED;
	if (check->result != APPLIED)
		return false;
	/* nobody has it in hand but who decides */
	run->task = check->turn->task;
	check->turn->ending = true;
	(void) write_history(check->turn, DURABLE_ALL_POSITIONS);
	(void) update_run(check->turn, run);
	if (check->note != NULL)
		durable_run_note(check->turn->run, "warning", check->note, NULL);
	return true;
}

DurableApplied
durable_apply_end(DurableTurn *turn, const DurableLease *lease)
{
	EndCheck	check = {.turn = turn, .lease = lease, .result = APPLY_LOST};
	DurableHandoff handoff;
	Jsonb	   *refusal = prepare_starts(turn);
	DurableRunStatus status;

	if (refusal != NULL && turn->decision == DECISION_COMPLETED)
	{
		turn->decision = DECISION_FAILED;
		turn->output = NULL;
		turn->error = refusal;
	}
	status = turn->decision == DECISION_COMPLETED ? RUN_COMPLETED :
		turn->decision == DECISION_CANCELLED ? RUN_CANCELLED : RUN_FAILED;
	if (status == RUN_FAILED)
	{
		if (durable_handoff_choose(turn, &handoff))
			return apply_handoff(turn, lease, &handoff);
		check.note = handoff.problem;
	}
	if (!durable_run_end_seen(turn->run, turn->seen, status, turn->output, turn->error,
							  status == RUN_CANCELLED, check_end, &check))
		return check.result == APPLIED ? APPLY_LOST : check.result;
	if (turn->after == NULL)
		(void) end_claim(turn, lease);
	CommandCounterIncrement();
	return APPLIED;
}
