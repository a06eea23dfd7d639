/*-------------------------------------------------------------------------
 *
 * step.c
 *	  Dispatched steps: their tasks, how many are in flight, which result wakes.
 *
 * A fan is one operation of many positions. What it costs per element must not
 * grow with their number. So a result does not write the run's row: the run
 * waits on one of its steps that is out (awaited_on), and only when that one ends
 * is another looked for, downwards. All together read each position once. The run
 * is woken when none is left.
 *
 * Where a fan bounds what is in flight, all tasks are there from the beginning, and
 * the run's row says which are not queued yet. Whoever settles one queues the
 * next. That is under the run's lock, so no two queue the same one, and a rollback
 * takes both back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/json.h"
#include "engine/capability.h"
#include "engine/limiter.h"
#include "engine/step.h"
#include "engine/timeout.h"
#include "store/deadline.h"
#include "store/ready.h"
#include "store/run.h"
#include "store/task.h"

/* Tasks that are written at once. */
#define BATCH 500

/* What the tasks of one operation have in common, and those to be written. */
typedef struct Dispatch
{
	DurableTurn *turn;
	const DurableOperation *op;
	text	   *queue;
	text	   *kind;
	int32		priority;
	TimestampTz now;
	DurableLimitedBy space;
	const DurableLimitedBy *gate;	/* or NULL */
	DurableTables tables;
	DurableRow *rows;
	int			nrows;
	int			nqueued;		/* of those, so many are to be queued: the first */
	int64	   *ids;			/* of these, while they are written */
} Dispatch;

static void
fill_task(const Dispatch *dispatch, const DurableCheckpoint *checkpoint, DurableRow *row)
{
	const DurableOperation *op = dispatch->op;
	DurableTurn *turn = dispatch->turn;

	for (int i = 0; i < TASK_COLUMNS; i++)
		durable_row_set_null(row, i);
	durable_row_set(row, TASK_ID, Int64GetDatum(checkpoint->task));
	durable_row_set(row, TASK_CREATED_AT, TimestampTzGetDatum(dispatch->now));
	durable_row_set(row, TASK_PRIORITY, Int32GetDatum(dispatch->priority));
	durable_row_set(row, TASK_ATTEMPT, Int32GetDatum(1));
	durable_row_set(row, TASK_MAX_ATTEMPTS, Int32GetDatum(Max(op->retries, 1)));
	durable_row_set(row, TASK_RECLAIMS, Int32GetDatum(0));
	durable_row_set(row, TASK_SEQ, Int32GetDatum(checkpoint->seq));
	durable_row_set_pointer(row, TASK_BACKOFF, op->backoff);
	durable_row_set_pointer(row, TASK_BACKOFF_MAX, op->backoff_max);
	durable_row_set(row, TASK_BACKOFF_EXP, BoolGetDatum(op->exponential));
	durable_row_set(row, TASK_JITTER, BoolGetDatum(op->jitter));
	durable_row_set_pointer(row, TASK_TIMEOUT, op->timeout);
	durable_row_set_pointer(row, TASK_PICKUP_TIMEOUT, op->pickup_timeout);
	durable_row_set(row, TASK_NAMESPACE, PointerGetDatum(turn->namespace));
	durable_row_set(row, TASK_QUEUE, PointerGetDatum(dispatch->queue));
	durable_row_set(row, TASK_NAME, PointerGetDatum(checkpoint->name));
	durable_row_set(row, TASK_KIND, PointerGetDatum(dispatch->kind));
	durable_row_set(row, TASK_RUN_ID, PointerGetDatum(turn->run_id));
	durable_row_set_pointer(row, TASK_HEADERS, turn->headers);
	durable_row_set_pointer(row, TASK_INPUT, checkpoint->input);
	durable_row_set_pointer(row, TASK_REQUIRES, op->requires);
	durable_limited_by_to_row(dispatch->gate, row, TASK_LIMITER, TASK_LIMITER_KEY);
}

/* Into their list, but for those that the command itself may claim. */
static void
enlist(Dispatch *dispatch, const DurableWriter *tasks)
{
	int			n = 0;

	for (int i = 0; i < dispatch->nqueued; i++)
	{
		const DurableRow *row = &dispatch->rows[i];

		if (dispatch->gate == NULL && durable_fresh_offer(dispatch->turn->fresh, tasks->rel, row))
			continue;
		dispatch->ids[n++] = DatumGetInt64(row->values[TASK_ID]);
	}
	if (n > 0)
		durable_limiter_enlist_new(&dispatch->tables, dispatch->gate, dispatch->ids, n,
								   dispatch->priority, dispatch->turn->namespace,
								   dispatch->queue);
}

static void
set_deadlines(Dispatch *dispatch, Interval *window)
{
	for (int i = 0; i < dispatch->nqueued; i++)
		dispatch->ids[i] = DatumGetInt64(dispatch->rows[i].values[TASK_ID]);
	if (dispatch->nqueued > 0)
		durable_deadline_insert_many(dispatch->ids, dispatch->nqueued,
									 durable_clock_add(dispatch->now, window),
									 dispatch->turn->namespace, dispatch->turn->workflow.queue);
}

/* The list entries go last: a claim that meets one finds the task. */
static void
flush(Dispatch *dispatch)
{
	const DurableOperation *op = dispatch->op;
	Interval   *window = op->pickup_timeout != NULL ? op->pickup_timeout : op->timeout;
	DurableWriter *tasks;

	if (dispatch->nrows == 0)
		return;
	tasks = durable_tables_get(&dispatch->tables, TABLE_TASK);
	durable_writer_insert_many(tasks, dispatch->rows, dispatch->nrows);
	enlist(dispatch, tasks);
	if (window != NULL)
		set_deadlines(dispatch, window);
	dispatch->nrows = dispatch->nqueued = 0;
}

static void
add_task(Dispatch *dispatch, DurableCheckpoint *checkpoint, bool queued)
{
	if (dispatch->nrows == BATCH)
		flush(dispatch);
	checkpoint->task = durable_sequence_next(SEQ_TASK);
	durable_turn_changed(dispatch->turn, checkpoint);
	fill_task(dispatch, checkpoint, &dispatch->rows[dispatch->nrows++]);
	/* nothing is queued behind what is not */
	Assert(!queued || dispatch->nqueued == dispatch->nrows - 1);
	dispatch->nqueued += queued;
}

/* How many may be queued now. When some are on their way already, and others were
 * lost, the bound is let go: it is a repair. */
static int
places(const DurableTurn *turn, const DurableOperation *op)
{
	if (op->max_in_flight == 0 || op->max_in_flight >= op->count)
		return op->count;
	for (int i = op->seq; i < op->seq + op->count; i++)
	{
		const DurableCheckpoint *checkpoint = durable_turn_at(turn, i);

		if (checkpoint->status == CHECKPOINT_PENDING && checkpoint->task != 0)
			return op->count;
	}
	return op->max_in_flight;
}

static void
dispatch_range(Dispatch *dispatch)
{
	DurableTurn *turn = dispatch->turn;
	int			first = dispatch->op->seq;
	int			last = first + dispatch->op->count - 1;
	int			left = places(turn, dispatch->op);
	bool		windowed = false;

	for (int i = first; i <= last; i++)
	{
		DurableCheckpoint *checkpoint = durable_turn_at(turn, i);

		CHECK_FOR_INTERRUPTS();
		if (checkpoint->status != CHECKPOINT_PENDING || checkpoint->task != 0)
			continue;
		/* in place of what is not written yet: the end of a fan that was called off */
		if (left == 0 && !windowed)
		{
			turn->fan_changed = windowed = true;
			turn->fan_first = first;
			turn->fan_next = i;
			turn->fan_last = last;
		}
		add_task(dispatch, checkpoint, left > 0);
		left -= left > 0;
	}
	flush(dispatch);
}

/* What the call does not say is as the handler was registered. */
static void
apply_policy(DurableOperation *op, const DurableStepPolicy *policy)
{
	if (op->retries == 0)
		op->retries = policy->retries;
	if (op->backoff == NULL)
		op->backoff = policy->backoff;
	if (op->backoff_max == NULL)
		op->backoff_max = policy->backoff_max;
	if (!op->has_exponential)
		op->exponential = policy->has_exponential ? policy->exponential : op->backoff_max != NULL;
	if (!op->has_jitter)
		op->jitter = policy->jitter;
	if (op->timeout == NULL)
		op->timeout = policy->timeout;
	if (op->pickup_timeout == NULL)
		op->pickup_timeout = policy->pickup_timeout;
}

/* The limiter was there when the body asked, and has been dropped since. */
static void
fail_undispatched(DurableTurn *turn, const DurableOperation *op)
{
	MemoryContext before = MemoryContextSwitchTo(turn->context);
	Jsonb	   *error =
		durable_json_error_full(psprintf("limiter \"%s\" does not exist in namespace \"%s\"",
										 text_to_cstring(op->limiter),
										 text_to_cstring(turn->namespace)),
								unpack_sql_state(ERRCODE_UNDEFINED_OBJECT), false);

	MemoryContextSwitchTo(before);
	for (int i = op->seq; i < op->seq + op->count; i++)
	{
		DurableCheckpoint *checkpoint = durable_turn_at(turn, i);

		if (checkpoint->status != CHECKPOINT_PENDING || checkpoint->task != 0)
			continue;
		checkpoint->status = CHECKPOINT_FAILED;
		checkpoint->error = error;
		checkpoint->finished_at = durable_clock_now();
		durable_turn_changed(turn, checkpoint);
	}
}

bool
durable_step_dispatch(DurableTurn *turn, const DurableOperation *given)
{
	DurableOperation op = *given;
	DurableHandler handler;
	text	   *name = durable_turn_at(turn, op.seq)->name;
	int			size = Min(op.count, BATCH);
	Dispatch	dispatch = {
		.turn = turn, .op = &op, .queue = op.target, .now = durable_clock_now(),
		.priority = op.has_priority ? op.priority : turn->priority,
		.kind = cstring_to_text("step")
	};

	if (durable_handler_find(turn->namespace, name, &handler))
	{
		apply_policy(&op, &handler.policy);
		if (dispatch.queue == NULL)
			dispatch.queue = durable_owner_queue(handler.owner);
	}
	else if (dispatch.queue == NULL)
		dispatch.queue = name;
	if (!durable_guard_step(turn, dispatch.queue, op.requires))
		return false;
	if (op.limiter != NULL)
	{
		if (!durable_limiter_use(turn->namespace, op.limiter, &dispatch.space.limiter))
		{
			fail_undispatched(turn, &op);
			return true;
		}
		dispatch.space.key = op.fairness_key != NULL ? op.fairness_key : turn->run_id;
		dispatch.gate = &dispatch.space;
	}
	dispatch.rows = palloc(sizeof(DurableRow) * size);
	dispatch.ids = palloc(sizeof(int64) * size);
	durable_tables_init(&dispatch.tables);
	dispatch_range(&dispatch);
	durable_tables_close(&dispatch.tables);
	pfree(dispatch.rows);
	pfree(dispatch.ids);
	return true;
}

static void
set_window(DurableRow *run, int first, int next, int last)
{
	durable_row_set(run, RUN_FAN_FIRST, Int32GetDatum(first));
	durable_row_set(run, RUN_FAN_NEXT, Int32GetDatum(next));
	durable_row_set(run, RUN_FAN_LAST, Int32GetDatum(last));
}

void
durable_step_end_window(DurableRow *run)
{
	durable_row_set_null(run, RUN_FAN_FIRST);
	durable_row_set_null(run, RUN_FAN_NEXT);
	durable_row_set_null(run, RUN_FAN_LAST);
}

void
durable_step_call_off(DurableTurn *turn, DurableCheckpoint *checkpoint)
{
	MemoryContext before;

	if (checkpoint->status != CHECKPOINT_PENDING)
		return;
	before = MemoryContextSwitchTo(turn->context);
	checkpoint->status = CHECKPOINT_CANCELLED;
	checkpoint->error = durable_json_error("cancelled: another step of the fan failed", false);
	checkpoint->finished_at = durable_clock_now();
	durable_turn_changed(turn, checkpoint);
	MemoryContextSwitchTo(before);
}

void
durable_step_store_window(DurableTurn *turn, DurableRow *run)
{
	if (turn->fan_next < 0)
		durable_step_end_window(run);
	else
		set_window(run, turn->fan_first, turn->fan_next, turn->fan_last);
	turn->fan_changed = false;
}

/* false: its task is gone */
static bool
queue_task(DurableTables *tables, int64 id)
{
	DurableProbe by_id;
	DurableRow	task;
	bool		found;

	durable_task_open_by_id(&by_id, GetActiveSnapshot());
	found = durable_task_find_number(&by_id, id, &task);
	if (found)
	{
		DurableLimitedBy space;

		durable_limiter_enlist(tables,
							   durable_limited_by_from_row(&task, TASK_LIMITER, TASK_LIMITER_KEY,
													 &space),
							   &id, 1, DatumGetInt32(task.values[TASK_PRIORITY]),
							   DatumGetTextPP(task.values[TASK_NAMESPACE]),
							   DatumGetTextPP(task.values[TASK_QUEUE]));
		durable_timeout_queued(&task, durable_clock_now());
	}
	durable_probe_close(&by_id);
	return found;
}

bool
durable_step_release_next(DurableTables *tables, DurableRow *run, int seq)
{
	DurableProbe history;
	int			next;
	int			last;
	bool		queued = false;

	if (run->nulls[RUN_FAN_NEXT])
		return false;
	next = DatumGetInt32(run->values[RUN_FAN_NEXT]);
	last = DatumGetInt32(run->values[RUN_FAN_LAST]);
	if (seq < DatumGetInt32(run->values[RUN_FAN_FIRST]) || seq >= next)
		return false;
	durable_checkpoint_open(&history);
	for (; next <= last && !queued; next++)
	{
		int64		task;

		queued = durable_checkpoint_is_pending(&history, DatumGetInt64(run->values[RUN_ID]),
											   next, &task) &&
			queue_task(tables, task);
	}
	durable_probe_close(&history);
	if (next > last)
		durable_step_end_window(run);
	else
		durable_row_set(run, RUN_FAN_NEXT, Int32GetDatum(next));
	return true;
}

/* The next position below "on", and not below "first", that is out; -1: none. */
static int
next_awaited(int64 run, int first, int on)
{
	DurableProbe history;
	int64		task;

	durable_checkpoint_open(&history);
	do
		on--;
	while (on >= first && !durable_checkpoint_is_pending(&history, run, on, &task));
	durable_probe_close(&history);
	return on >= first ? on : -1;
}

void
durable_step_outlive(DurableRow *run)
{
	DurableTables tables;
	int			first;

	if (run->nulls[RUN_FAN_NEXT])
		return;
	first = DatumGetInt32(run->values[RUN_FAN_FIRST]);
	durable_snapshot_push();
	if (next_awaited(DatumGetInt64(run->values[RUN_ID]), first,
					 DatumGetInt32(run->values[RUN_FAN_NEXT])) < 0)
	{
		durable_tables_init(&tables);
		(void) durable_step_release_next(&tables, run, first);
		durable_tables_close(&tables);
	}
	durable_snapshot_pop();
}

static bool
is_awaited(const DurableRow *run, int seq)
{
	return seq >= DatumGetInt32(run->values[RUN_AWAITED_FIRST]) &&
		seq <= DatumGetInt32(run->values[RUN_AWAITED_LAST]);
}

bool
durable_step_result(DurableTables *tables, DurableRow *run, int seq, bool failed,
					bool *changed)
{
	bool		waits = !run->nulls[RUN_AWAITED_ON];
	int			on;

	/* nothing follows: the rest is about to be called off */
	if (waits && failed && DatumGetBool(run->values[RUN_FAIL_FAST]) && is_awaited(run, seq))
		return true;
	*changed = durable_step_release_next(tables, run, seq);
	/* it waits for anything, or a turn is under way */
	if (!waits)
		return true;
	if (seq != DatumGetInt32(run->values[RUN_AWAITED_ON]))
		return false;
	/* what is above has ended before: positions are passed downwards only */
	on = next_awaited(DatumGetInt64(run->values[RUN_ID]),
					  DatumGetInt32(run->values[RUN_AWAITED_FIRST]), seq);
	if (on < 0)
		return true;
	durable_row_set(run, RUN_AWAITED_ON, Int32GetDatum(on));
	*changed = true;
	return false;
}

/* Everything of the fan that is left, at once: what is lost of it is queued when it
 * is dispatched again, and must not be queued a second time in its turn. */
static void
release_all(DurableRow *run, const DurableCheckpoint *history, int n)
{
	DurableTables tables;
	int			last;

	if (run->nulls[RUN_FAN_NEXT])
		return;
	last = DatumGetInt32(run->values[RUN_FAN_LAST]);
	durable_tables_init(&tables);
	for (int i = DatumGetInt32(run->values[RUN_FAN_NEXT]); i <= last && i < n; i++)
	{
		if (history[i].status == CHECKPOINT_PENDING && history[i].task != 0)
			(void) queue_task(&tables, history[i].task);
	}
	durable_tables_close(&tables);
	durable_step_end_window(run);
}

int
durable_step_forget_lost(DurableRun *run)
{
	int64		id = DatumGetInt64(run->row.values[RUN_ID]);
	DurableCheckpoint *history;
	DurableProbe by_id;
	DurableWriter writer;
	DurableRow	task;
	int			lost = 0;
	int			n;

	if (durable_run_has_ended(&run->row))
		return 0;
	durable_task_open_by_id(&by_id, durable_snapshot_push());
	durable_writer_open(&writer, REL_CHECKPOINT);
	history = durable_checkpoints_load(id, &n);
	for (int i = 0; i < n; i++)
	{
		if (history[i].kind != KIND_STEP || history[i].status != CHECKPOINT_PENDING ||
			history[i].task == 0 || durable_task_find_number(&by_id, history[i].task, &task))
			continue;
		history[i].task = 0;
		durable_checkpoint_write(&writer, id, &history[i]);
		lost++;
	}
	durable_writer_close(&writer);
	durable_probe_close(&by_id);
	if (lost > 0)
		release_all(&run->row, history, n);
	durable_snapshot_pop();
	return lost;
}
