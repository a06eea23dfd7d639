/*-------------------------------------------------------------------------
 *
 * run.c
 *	  What happens to runs: started, woken, ended; results and signals for them.
 *
 * A run's lock serialises everything that concerns it. Deliveries write the
 * checkpoint at once and wake the run. A wake that finds a turn under way, or
 * queued, raises the run's count of wakes; a turn that is about to suspend
 * compares the count with the one it began with and looks again when they
 * differ. So no wake is lost, and a needless one costs a replay.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/executing.h"
#include "base/json.h"
#include "base/names.h"
#include "engine/admission.h"
#include "engine/deadletter.h"
#include "engine/handoff.h"
#include "engine/limiter.h"
#include "engine/outcome.h"
#include "engine/run.h"
#include "engine/start_limit.h"
#include "engine/step.h"
#include "engine/timeout.h"
#include "engine/turn.h"
#include "store/blocked.h"
#include "store/checkpoint.h"
#include "store/delayed.h"
#include "store/limited.h"
#include "store/ready.h"
#include "store/retention.h"
#include "store/signal.h"
#include "store/task.h"

text *
durable_child_token(text *run_id)
{
	return cstring_to_text(psprintf("child:%s", text_to_cstring(run_id)));
}

const char *
durable_run_child_prefix(text *run_id, const char *child_id)
{
	const char *own = psprintf("%s.", text_to_cstring(run_id));

	if (strncmp(child_id, own, strlen(own)) == 0)
		return NULL;
	return durable_reserved_prefix(cstring_to_text(child_id));
}

static void
fill_run(const DurableRunSpec *spec, int64 id, TimestampTz now, DurableRow *row)
{
	bool		later = spec->start_at > now;

	for (int i = 0; i < RUN_COLUMNS; i++)
		durable_row_set_null(row, i);
	durable_row_set(row, RUN_ID, Int64GetDatum(id));
	if (spec->parent != 0)
	{
		durable_row_set(row, RUN_PARENT, Int64GetDatum(spec->parent));
		durable_row_set(row, RUN_PARENT_SEQ, Int32GetDatum(spec->parent_seq));
	}
	durable_row_set(row, RUN_CREATED_AT, TimestampTzGetDatum(now));
	if (later)
		durable_row_set(row, RUN_WAKE_AT, TimestampTzGetDatum(spec->start_at));
	durable_row_set(row, RUN_PRIORITY, Int32GetDatum(spec->priority));
	durable_row_set(row, RUN_WAKES, Int32GetDatum(0));
	durable_row_set(row, RUN_RECOVERY_ATTEMPTS, Int32GetDatum(0));
	durable_run_set_status(row, later ? RUN_SUSPENDED : RUN_PENDING);
	durable_run_set_turn_state(row, later ? TURN_DELAYED : TURN_READY);
	durable_row_set(row, RUN_RUN_ID, PointerGetDatum(spec->run_id));
	durable_row_set(row, RUN_NAMESPACE, PointerGetDatum(spec->workflow->namespace));
	durable_row_set(row, RUN_WORKFLOW, PointerGetDatum(spec->workflow->name));
	durable_row_set(row, RUN_VERSION, PointerGetDatum(spec->workflow->version));
	durable_row_set_pointer(row, RUN_TAGS, spec->tags);
	durable_row_set_pointer(row, RUN_SEARCH_ATTRIBUTES, spec->search_attributes);
	durable_row_set_pointer(row, RUN_HEADERS, spec->headers);
	durable_row_set_pointer(row, RUN_INPUT, spec->input);
	durable_row_set_pointer(row, RUN_SINGLETON_KEY, spec->singleton_key);
	durable_row_set_pointer(row, RUN_CONCURRENCY_KEY, spec->computed_key);
}

void
durable_run_set_turn_policy(DurableRow *task, const DurableWorkflow *workflow)
{
	durable_row_set_pointer(task, TASK_TIMEOUT, workflow->turn_silence);
	durable_row_set_pointer(task, TASK_REQUIRES, workflow->requires);
}

void
durable_run_insert_turn(const DurableRunSpec *spec, int64 id, TimestampTz now, int64 last_lease)
{
	DurableTables tables;
	DurableRow	row;
	const DurableWorkflow *workflow = spec->workflow;

	for (int i = 0; i < TASK_COLUMNS; i++)
		durable_row_set_null(&row, i);
	durable_row_set(&row, TASK_ID, Int64GetDatum(id));
	durable_row_set(&row, TASK_CREATED_AT, TimestampTzGetDatum(now));
	if (spec->start_at > now)
		durable_row_set(&row, TASK_RUN_AT, TimestampTzGetDatum(spec->start_at));
	durable_row_set(&row, TASK_PRIORITY, Int32GetDatum(spec->priority));
	durable_row_set(&row, TASK_ATTEMPT, Int32GetDatum(1));
	durable_row_set(&row, TASK_MAX_ATTEMPTS, Int32GetDatum(1));
	durable_row_set(&row, TASK_RECLAIMS, Int32GetDatum(0));
	durable_row_set(&row, TASK_NAMESPACE, PointerGetDatum(workflow->namespace));
	durable_row_set(&row, TASK_QUEUE, PointerGetDatum(workflow->queue));
	durable_row_set(&row, TASK_NAME, PointerGetDatum(workflow->name));
	durable_row_set(&row, TASK_KIND, CStringGetTextDatum("turn"));
	durable_row_set(&row, TASK_RUN_ID, PointerGetDatum(spec->run_id));
	if (last_lease != 0)
		durable_row_set(&row, TASK_LAST_LEASE, Int64GetDatum(last_lease));
	durable_run_set_turn_policy(&row, workflow);
	durable_tables_init(&tables);
	durable_writer_insert(durable_tables_get(&tables, TABLE_TASK), &row);
	if (spec->start_at > now)
		durable_delayed_insert(durable_tables_get(&tables, TABLE_DELAYED), id, spec->start_at,
							   spec->priority, workflow->namespace, workflow->queue, NULL);
	else if (last_lease == 0)
		durable_ready_insert_new(durable_tables_get(&tables, TABLE_READY), id,
								 spec->priority, workflow->namespace, workflow->queue);
	else
		durable_ready_insert(durable_tables_get(&tables, TABLE_READY), id,
							 spec->priority, workflow->namespace, workflow->queue);
	durable_tables_close(&tables);
}

bool
durable_run_start(DurableRunSpec *spec)
{
	DurableWriter writer;
	DurableRow	row;
	TimestampTz now;
	int64		id;
	bool		generated = spec->run_id == NULL;
	bool		inserted = true;

	if (!durable_start_check(spec))
		return false;
	/* after the wait, if there was one */
	now = durable_clock_now();
	id = durable_sequence_next(SEQ_TASK);
	if (generated)
		spec->run_id = durable_task_id_text(id, NULL);
	fill_run(spec, id, now, &row);
	durable_writer_open(&writer, REL_RUN);
	if (generated)
		durable_writer_insert(&writer, &row);
	else
		inserted = durable_run_insert(&writer, &row);
	durable_writer_close(&writer);
	if (inserted)
	{
		durable_run_insert_turn(spec, id, now, 0);
		durable_admission_enter(&row, spec->start_at > now);
	}
	CommandCounterIncrement();
	return inserted;
}

/* A jsonb value has less than 256 MB: an input beyond this is left out. */
#define INPUT_PASSED_ON_MAX ((Size) 128 * 1024 * 1024)

Jsonb *
durable_run_describe(const DurableRow *row, const char *id_key, Jsonb *error, const text *step)
{
	JsonbParseState *state = NULL;
	Jsonb	   *input = row->nulls[RUN_INPUT] ? NULL : DatumGetJsonbP(row->values[RUN_INPUT]);

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	durable_json_add_text(&state, id_key, DatumGetTextPP(row->values[RUN_RUN_ID]));
	durable_json_add_text(&state, "workflow", DatumGetTextPP(row->values[RUN_WORKFLOW]));
	durable_json_add_text(&state, "version", DatumGetTextPP(row->values[RUN_VERSION]));
	if (input != NULL && VARSIZE(input) <= INPUT_PASSED_ON_MAX)
		durable_json_add_value(&state, "input", input);
	durable_json_add_value(&state, "error", error);
	durable_json_add_text(&state, "step", step);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

static bool
find_turn_task(int64 id, DurableRow *task, DurableProbe *by_id)
{
	durable_task_open_by_id(by_id, GetActiveSnapshot());
	return durable_task_find_number(by_id, id, task);
}

/* false: a claim has it */
static bool
leave_limiter(const DurableRow *task, int64 id, text *queue)
{
	DurableLimitedBy space;
	const DurableLimitedBy *gate = durable_limited_by_from_row(task, TASK_LIMITER, TASK_LIMITER_KEY, &space);

	return gate != NULL &&
		durable_limited_remove(gate, id, DatumGetInt32(task->values[TASK_PRIORITY]), queue,
							   true) == TM_Ok;
}

/* Parked, delayed or at a limiter: into the list of ready ones. false: it was promoted already. */
static bool
make_ready(DurableRow *row, const DurableRow *task)
{
	int64		id = DatumGetInt64(row->values[RUN_ID]);
	text	   *namespace = DatumGetTextPP(task->values[TASK_NAMESPACE]);
	text	   *queue = DatumGetTextPP(task->values[TASK_QUEUE]);
	DurableWriter writer;

	if (durable_run_turn_state(row) == TURN_DELAYED &&
		!durable_delayed_remove(id, DatumGetTimestampTz(row->values[RUN_WAKE_AT]),
								namespace, queue))
		return false;
	if (durable_run_turn_state(row) == TURN_LIMITED && !leave_limiter(task, id, queue))
		return false;
	durable_writer_open(&writer, REL_TASK_READY);
	durable_ready_insert(&writer, id, DatumGetInt32(task->values[TASK_PRIORITY]),
						 namespace, queue);
	durable_writer_close(&writer);
	return true;
}

void
durable_run_awaits_nothing(DurableRow *row)
{
	durable_row_set_null(row, RUN_WAKE_AT);
	durable_row_set_null(row, RUN_AWAITED_FIRST);
	durable_row_set_null(row, RUN_AWAITED_LAST);
	durable_row_set_null(row, RUN_AWAITED_ON);
	durable_row_set_null(row, RUN_FAIL_FAST);
}

bool
durable_run_unblock(DurableRow *row)
{
	if (durable_run_status(row) != RUN_BLOCKED)
		return false;
	durable_run_set_status(row, RUN_SUSPENDED);
	durable_row_set_null(row, RUN_ERROR);
	durable_blocked_remove(DatumGetInt64(row->values[RUN_ID]));
	return true;
}

void
durable_run_wake(DurableRun *run)
{
	DurableRow *row = &run->row;
	DurableTurnState state = durable_run_turn_state(row);
	DurableProbe by_id;
	DurableRow	task;
	bool		queued = false;
	int			seq;

	/* the end of its handler ends it, too; nothing else concerns it */
	if (state == TURN_NONE || durable_run_in_handoff(row, &seq))
		return;
	if (state != TURN_READY)
	{
		if (find_turn_task(DatumGetInt64(row->values[RUN_ID]), &task, &by_id))
			queued = make_ready(row, &task);
		durable_probe_close(&by_id);
	}
	if (!queued)
		durable_row_set(row, RUN_WAKES,
						Int32GetDatum(DatumGetInt32(row->values[RUN_WAKES]) + 1));
	durable_run_set_turn_state(row, TURN_READY);
	durable_run_awaits_nothing(row);
	(void) durable_run_unblock(row);
	durable_run_update(run);
}

static void
leave_slot(const DurableRow *task, bool settled)
{
	DurableTables tables;

	durable_tables_init(&tables);
	if (settled)
		durable_limiter_leave_settled(&tables, task);
	else
		durable_limiter_leave(&tables, task);
	durable_tables_close(&tables);
}

/* This version of it; it is in no list. "settled": who decides has it in hand, or nobody. */
static TM_Result
delete_task(const DurableRow *task, bool settled)
{
	DurableWriter writer;
	ItemPointerData tid = task->tid;
	TM_Result	result;

	durable_writer_open(&writer, REL_TASK);
	result = durable_writer_delete(&writer, &tid, true);
	durable_writer_close(&writer);
	if (result == TM_Ok)
	{
		durable_timeout_ended(task);
		leave_slot(task, settled);
	}
	return result;
}

/* Who executes it is interrupted when that commits. The task may go back to its queue
 * meanwhile, for that takes no lock of the run: then once more. */
static TM_Result
find_and_drop(int64 id, TimestampTz delayed_until, bool parked)
{
	DurableProbe by_id;
	DurableRow	task;
	TM_Result	result = TM_Deleted;

	durable_task_open_by_id(&by_id, durable_snapshot_push());
	if (durable_task_find_number(&by_id, id, &task))
	{
		if (!parked && !durable_outcome_unlist(&task, delayed_until))
			durable_executing_interrupt(id);
		result = delete_task(&task, false);
	}
	durable_probe_close(&by_id);
	durable_snapshot_pop();
	return result;
}

static void
drop_task(int64 id, TimestampTz delayed_until, bool parked)
{
	TM_Result	result;

	do
	{
		CHECK_FOR_INTERRUPTS();
		result = find_and_drop(id, delayed_until, parked);
	} while (result == TM_Updated);
}

void
durable_run_drop_task(int64 id, TimestampTz delayed_until)
{
	drop_task(id, delayed_until, false);
}

void
durable_run_abandon(const DurableRow *row)
{
	int64		id = DatumGetInt64(row->values[RUN_ID]);
	text	   *namespace = DatumGetTextPP(row->values[RUN_NAMESPACE]);
	DurableCheckpoint *history;
	int			n;

	durable_snapshot_push();
	history = durable_checkpoints_load(id, &n);
	durable_snapshot_pop();
	for (int i = 0; i < n; i++)
	{
		if (history[i].status != CHECKPOINT_PENDING)
			continue;
		if (history[i].kind == KIND_STEP && history[i].task != 0)
			durable_run_drop_task(history[i].task, 0);
		else if (history[i].kind == KIND_SIGNAL || history[i].kind == KIND_CHILD)
			(void) durable_waiter_remove(namespace, history[i].name, id, history[i].seq);
	}
}

/* Ends a locked run: its turn task, its pending steps and waits go, its slot is given on. */
static void
finish(DurableRun *run, DurableRunStatus status, void *output, void *error)
{
	DurableRow *row = &run->row;
	int64		id = DatumGetInt64(row->values[RUN_ID]);
	/* one that was requeued is pending again, and what it waited for is out */
	bool		may_wait = !row->nulls[RUN_STARTED_AT];
	TimestampTz delayed_until = row->nulls[RUN_WAKE_AT] ? 0 :
		DatumGetTimestampTz(row->values[RUN_WAKE_AT]);
	/* in no list, and nobody executes it */
	bool		parked = durable_run_turn_state(row) == TURN_PARKED;

	if (status == RUN_COMPLETED)
		durable_step_outlive(row);
	(void) durable_run_unblock(row);
	durable_run_set_status(row, status);
	durable_run_set_turn_state(row, TURN_NONE);
	durable_row_set(row, RUN_FINISHED_AT, TimestampTzGetDatum(durable_clock_now()));
	durable_row_set_null(row, RUN_WAKE_AT);
	durable_row_set_pointer(row, RUN_OUTPUT, output);
	durable_row_set_pointer(row, RUN_ERROR, error);
	durable_run_update(run);
	/* a child goes with the run that started it */
	if (row->nulls[RUN_PARENT])
		durable_retention_note_end(id, DatumGetTimestampTz(row->values[RUN_FINISHED_AT]));
	if (may_wait && status != RUN_COMPLETED)
		durable_run_abandon(row);
	if (run->task == NULL || delete_task(run->task, true) != TM_Ok)
		drop_task(id, delayed_until, parked);
	durable_admission_leave(row);
}

/* Whoever records the first position sets the time of the start with it, under the run's
 * lock (update_run() in apply.c), and nobody takes that back. So where the row has none,
 * there is no history in any snapshot that sees it; nor can there be one in a newer
 * snapshot, when the row is locked. */
int
durable_run_history_end(const DurableRow *run)
{
	return run->nulls[RUN_STARTED_AT] ? 0 :
		durable_checkpoints_end(DatumGetInt64(run->values[RUN_ID]));
}

void
durable_run_deliver(DurableRun *run, int seq, DurableCheckpointStatus status, int attempts,
					Jsonb *output, Jsonb *error)
{
	DurableCheckpoint outcome = {
		.seq = seq, .status = status, .output = output, .error = error, .attempts = attempts,
		.finished_at = durable_clock_now()
	};

	if (!durable_run_has_ended(&run->row))
		durable_checkpoint_settle(DatumGetInt64(run->row.values[RUN_ID]), &outcome);
}

static void
tell_waiting(DurableRun *waiting, int seq, text *token, text *namespace,
			 DurableRunStatus status, void *output, void *error)
{
	int64		id = DatumGetInt64(waiting->row.values[RUN_ID]);

	if (!durable_waiter_remove(namespace, token, id, seq))
		return;
	durable_snapshot_push();
	if (status == RUN_COMPLETED)
		durable_run_deliver(waiting, seq, CHECKPOINT_COMPLETED, 0, output, NULL);
	else
		durable_run_deliver(waiting, seq, CHECKPOINT_FAILED, 0, NULL, error);
	durable_run_wake(waiting);
	durable_snapshot_pop();
}

/* The handler of its failure. */
static void
cancel_handler(int64 id)
{
	DurableRow	row;
	int64		handler;

	if (!durable_run_read(id, &row) || !durable_handoff_handler(&row, &handler))
		return;
	durable_handoff_call_off(&row);
	(void) durable_run_end(handler, RUN_CANCELLED, NULL,
						   durable_json_error("cancelled with the run that it was started for", false),
						   true, NULL, NULL);
}

/* The children that a run has started and waits for. */
static void
cancel_children(int64 id)
{
	DurableCheckpoint *history;
	int			n;

	durable_snapshot_push();
	cancel_handler(id);
	history = durable_checkpoints_load(id, &n);
	for (int i = 0; i < n; i++)
	{
		int64		child;
		DurableRow	row;
		const char *name = text_to_cstring(history[i].name);

		CHECK_FOR_INTERRUPTS();
		/* not those that it only joined */
		if (history[i].kind == KIND_CHILD && strncmp(name, "child:", 6) == 0 &&
			durable_run_number(cstring_to_text(name + 6), &child) &&
			durable_run_read(child, &row) && !row.nulls[RUN_PARENT] &&
			DatumGetInt64(row.values[RUN_PARENT]) == id)
			(void) durable_run_end(child, RUN_CANCELLED, NULL,
								   durable_json_error("cancelled with its parent", false), true,
								   NULL, NULL);
	}
	durable_snapshot_pop();
}

/* A step whose own transaction ended its run could not be recorded any more, and
 * would be executed again and again. */
void
durable_run_refuse_own(text *run_id)
{
	if (durable_current_step != NULL && durable_current_step->run_id != NULL &&
		durable_text_same(durable_current_step->run_id, run_id))
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_IN_USE),
				errmsg("run \"%s\" cannot be cancelled or requeued by a step of its own",
					   text_to_cstring(run_id)),
				errhint("Return a value from which its body can tell that it is to end, with durable.fail_run() for example."));
}

/*
 * A run that ends, at first, and who learns of it: the run that waits for it. When that
 * one has handed its failure over to it, it ends with it, and who waits for that one
 * learns of it, too. (A handler's own failure is not handed over: so there are no more.)
 */
#define ENDING_MAX 3

typedef struct Ending
{
	int			n;
	int64		ids[ENDING_MAX];
	int			seqs[ENDING_MAX];	/* where each waits for the one before it */
	text	   *tokens[ENDING_MAX]; /* on which each is waited for; NULL: it is a handler */
	DurableRun	runs[ENDING_MAX];
	bool		open[ENDING_MAX];
	text	   *namespace;
	const DurableRow *seen;		/* the first one's, under a snapshot that is still active */
} Ending;

/* Who waits for one of them, whose row was read without a lock. false: somebody is
 * busy with its token. */
static bool
find_next(Ending *ending, int i, const DurableRow *row, bool wait)
{
	ending->n = i + 1;
	ending->tokens[i] = NULL;
	if (!row->nulls[RUN_PARENT_SEQ] && durable_is_handoff(DatumGetInt32(row->values[RUN_PARENT_SEQ])))
	{
		ending->ids[i + 1] = DatumGetInt64(row->values[RUN_PARENT]);
		ending->seqs[i + 1] = DatumGetInt32(row->values[RUN_PARENT_SEQ]);
		ending->n++;
		return true;
	}
	ending->tokens[i] = durable_child_token(DatumGetTextPP(row->values[RUN_RUN_ID]));
	if (wait)
		durable_token_share(ending->namespace, ending->tokens[i]);
	else if (!durable_token_share_now(ending->namespace, ending->tokens[i]))
		return false;
	if (durable_waiter_find(ending->namespace, ending->tokens[i], &ending->ids[i + 1],
							&ending->seqs[i + 1]))
		ending->n++;
	return true;
}

static bool
find_waiting(Ending *ending, const DurableRow *seen, bool wait)
{
	DurableRow	row;

	if (!find_next(ending, 0, seen, wait))
		return false;
	if (ending->tokens[0] != NULL)
		return true;
	/* one that has handed over ends, too, unless it is gone */
	if (durable_run_read_lightly(ending->ids[1], &row))
		return find_next(ending, 1, &row, wait);
	ending->n = 1;
	return true;
}

static void
close_ending(Ending *ending)
{
	for (int i = 0; i < ending->n; i++)
	{
		if (ending->open[i])
			durable_run_close(&ending->runs[i]);
	}
}

/* Locks them ascending by number; anything but TM_Ok leaves nothing open. Those that
 * are gone, but for the first, stay closed. */
static TM_Result
open_in_order(Ending *ending, bool wait)
{
	TM_Result	result = TM_Ok;
	int64		last = 0;

	for (int k = 0; k < ending->n && result == TM_Ok; k++)
	{
		int			next = -1;

		for (int i = 0; i < ending->n; i++)
		{
			if (ending->ids[i] > last && (next < 0 || ending->ids[i] < ending->ids[next]))
				next = i;
		}
		if (next < 0)
			break;
		last = ending->ids[next];
		result = next == 0 ? durable_run_open_seen(&ending->runs[0], ending->seen, wait) :
			durable_run_open(&ending->runs[next], last, wait);
		ending->open[next] = result == TM_Ok;
		if (next > 0 && result != TM_WouldBlock)
			result = TM_Ok;
	}
	if (result != TM_Ok)
		close_ending(ending);
	return result;
}

/* Who waits may have been started by the transaction that held the token until now: a
 * snapshot from before does not see its run. */
static TM_Result
lock_ending(Ending *ending, bool wait)
{
	TM_Result	result;

	if (ending->n == 1)
		return open_in_order(ending, wait);
	durable_snapshot_push();
	result = open_in_order(ending, wait);
	durable_snapshot_pop();
	return result;
}

/* The outcome of one of them, to the next. */
static void
pass_on(Ending *ending, int i, DurableRunStatus status, void *output, void *error)
{
	DurableRun *waiting;
	int64		id;
	int			seq;

	if (i + 1 >= ending->n || !ending->open[i + 1])
		return;
	waiting = &ending->runs[i + 1];
	id = ending->ids[i + 1];
	seq = ending->seqs[i + 1];
	if (ending->tokens[i] != NULL)
	{
		tell_waiting(waiting, seq, ending->tokens[i], ending->namespace, status, output, error);
		return;
	}
	if (!durable_handoff_is_for(&waiting->row, &ending->runs[i].row))
		return;
	durable_snapshot_push();
	if (status == RUN_COMPLETED)
		durable_run_deliver(waiting, seq, CHECKPOINT_COMPLETED, 0, output, NULL);
	else
	{
		durable_run_deliver(waiting, seq, CHECKPOINT_FAILED, 0, NULL, error);
		error = durable_handoff_error(id, seq, error);
		status = RUN_FAILED;
	}
	durable_snapshot_pop();
	durable_run_awaits_nothing(&waiting->row);
	finish(waiting, status, output, error);
	pass_on(ending, i + 1, status, output, error);
}

/* TM_Ok: ended. TM_WouldBlock: somebody holds what is needed (never when waiting).
 * Else it has ended before, is unknown, or the check refused. */
static TM_Result
end_run(const DurableRow *seen, DurableRunStatus status, void *output, void *error,
		DurableRunCheck check, void *arg, bool wait)
{
	Ending		ending = {.seen = seen};
	DurableRun *run = &ending.runs[0];
	TM_Result	result;

	if (durable_run_has_ended(seen))
		return TM_Deleted;
	durable_run_refuse_own(DatumGetTextPP(seen->values[RUN_RUN_ID]));
	ending.namespace = DatumGetTextPP(seen->values[RUN_NAMESPACE]);
	ending.ids[0] = DatumGetInt64(seen->values[RUN_ID]);
	if (!find_waiting(&ending, seen, wait))
		return TM_WouldBlock;
	result = lock_ending(&ending, wait);
	if (result != TM_Ok)
		return result;
	if (durable_run_has_ended(&run->row) || (check != NULL && !check(run, arg)))
		result = TM_Deleted;
	else
	{
		finish(run, status, output, error);
		if (status == RUN_DEAD)
			durable_dead_letter_start(run);
		pass_on(&ending, 0, status, output, error);
	}
	close_ending(&ending);
	return result;
}

bool
durable_run_end_seen(int64 id, const DurableRow *seen, DurableRunStatus status, void *output,
					 void *error, bool cascade, DurableRunCheck check, void *arg)
{
	bool		ended;
	DurableRow	row;

	durable_snapshot_push();
	if (seen == NULL && durable_run_read_lightly(id, &row))
		seen = &row;
	ended = seen != NULL && end_run(seen, status, output, error, check, arg, true) == TM_Ok;
	durable_snapshot_pop();
	if (ended && cascade)
		cancel_children(id);
	return ended;
}

bool
durable_run_end(int64 id, DurableRunStatus status, void *output, void *error, bool cascade,
				DurableRunCheck check, void *arg)
{
	return durable_run_end_seen(id, NULL, status, output, error, cascade, check, arg);
}

TM_Result
durable_run_die(int64 id, void *error)
{
	TM_Result	result = TM_Deleted;
	DurableRow	seen;

	durable_snapshot_push();
	if (durable_run_read_lightly(id, &seen))
		result = end_run(&seen, RUN_DEAD, NULL, error, NULL, NULL, false);
	durable_snapshot_pop();
	return result == TM_WouldBlock ? TM_BeingModified : result;
}

int64
durable_run_waiting(text *namespace, text *run_id)
{
	text	   *token = durable_child_token(run_id);
	int64		waiting;
	int			seq;

	durable_token_share(namespace, token);
	return durable_waiter_find(namespace, token, &waiting, &seq) ? waiting : 0;
}

/* The run of that id, as durable_run_open(). *known: there is one. */
static TM_Result
open_by_id(DurableRun *run, text *run_id, bool wait, bool *known)
{
	int64		id;
	TM_Result	result;

	*known = durable_run_number_supposed(run_id, &id);
	if (!*known)
		return TM_Deleted;
	result = durable_run_open(run, id, wait);
	if (result == TM_Ok && !durable_text_same(DatumGetTextPP(run->row.values[RUN_RUN_ID]), run_id))
	{
		durable_run_close(run);
		result = TM_Deleted;
	}
	if (result != TM_Deleted)
		return result;
	*known = durable_run_number(run_id, &id);
	return *known ? durable_run_open(run, id, wait) : TM_Deleted;
}

/* A run that has completed wants no result any more, but what it has asked for is done:
 * a step that waits for its place in a fan follows all the same. */
static void
take_result(DurableTables *tables, DurableRun *run, const DurableRow *task,
			const DurableOutcome *outcome)
{
	int			seq = DatumGetInt32(task->values[TASK_SEQ]);
	bool		failed = outcome->status != TASK_COMPLETED;
	bool		changed = false;

	if (durable_run_has_ended(&run->row))
	{
		if (durable_step_release_next(tables, &run->row, seq))
			durable_run_update(run);
		return;
	}
	durable_run_deliver(run, seq, failed ? CHECKPOINT_FAILED : CHECKPOINT_COMPLETED,
						DatumGetInt32(task->values[TASK_ATTEMPT]),
						outcome->output == NULL ? NULL : DatumGetJsonbP(PointerGetDatum(outcome->output)),
						outcome->error == NULL ? NULL : DatumGetJsonbP(PointerGetDatum(outcome->error)));
	if (durable_step_result(tables, &run->row, seq, failed, &changed))
		durable_run_wake(run);
	else if (changed)
		durable_run_update(run);
}

TM_Result
durable_run_step_ended(DurableTables *tables, DurableRow *task,
					   const DurableOutcome *outcome, bool wait)
{
	DurableRun	run;
	bool		known;
	TM_Result	result;

	/* another step of this run may have ended a moment ago, in this command */
	CommandCounterIncrement();
	durable_snapshot_push();
	result = open_by_id(&run, DatumGetTextPP(task->values[TASK_RUN_ID]), wait, &known);
	durable_snapshot_pop();
	if (!known)
	{
		result = durable_writer_delete(durable_tables_get(tables, TABLE_TASK), &task->tid, wait);
		if (result == TM_Ok)
			durable_limiter_leave(tables, task);
		return result;
	}
	if (result != TM_Ok)
		return result == TM_WouldBlock ? TM_BeingModified : result;
	result = durable_writer_delete(durable_tables_get(tables, TABLE_TASK), &task->tid, wait);
	if (result == TM_Ok)
	{
		durable_timeout_ended(task);
		durable_limiter_leave(tables, task);
	}
	if (result == TM_Ok)
	{
		durable_snapshot_push();
		take_result(tables, &run, task, outcome);
		durable_snapshot_pop();
	}
	durable_run_close(&run);
	return result;
}

text *
durable_run_signal(text *namespace, text *token, Jsonb *payload)
{
	int64		id;
	int			seq;
	text	   *woken = NULL;

	durable_token_share(namespace, token);
	while (woken == NULL && durable_waiter_find(namespace, token, &id, &seq))
	{
		DurableRun	run;

		CHECK_FOR_INTERRUPTS();
		durable_snapshot_push();
		if (durable_run_open(&run, id, true) == TM_Ok)
		{
			/* somebody may have been faster, or the wait timed out; a run that has ended
			 * may have left a wait that was not its last */
			if (durable_waiter_remove(namespace, token, id, seq) &&
				!durable_run_has_ended(&run.row))
			{
				durable_snapshot_push();
				durable_run_deliver(&run, seq, CHECKPOINT_COMPLETED, 0, payload, NULL);
				durable_run_wake(&run);
				durable_snapshot_pop();
				woken = DatumGetTextPCopy(run.row.values[RUN_RUN_ID]);
			}
			durable_run_close(&run);
		}
		else					/* the run is gone */
			(void) durable_waiter_remove(namespace, token, id, seq);
		durable_snapshot_pop();
	}
	if (woken == NULL)
		durable_signal_buffer(namespace, token, payload);
	CommandCounterIncrement();
	return woken;
}

bool
durable_run_postpone(DurableTables *tables, DurableRow *task, int64 lease,
					 TimestampTz until, TimestampTz now)
{
	DurableRun	run;
	bool		postponed = false;

	if (durable_run_open(&run, DatumGetInt64(task->values[TASK_ID]), true) != TM_Ok)
		return false;
	if (!durable_run_has_ended(&run.row) &&
		durable_outcome_requeue(tables, task, lease, until, now, true) == TM_Ok)
	{
		durable_run_set_turn_state(&run.row, TURN_DELAYED);
		durable_row_set(&run.row, RUN_WAKE_AT, TimestampTzGetDatum(until));
		durable_run_update(&run);
		postponed = true;
	}
	durable_run_close(&run);
	return postponed;
}
