/*-------------------------------------------------------------------------
 *
 * timeout.c
 *	  Steps that nobody picks up, and steps and turns that fall silent (catalogue F-TMO, F-TURN-11).
 *
 * Until an attempt is claimed the limit is its pickup_timeout, or its timeout when
 * it has no other; from then on the timeout, which every heartbeat begins anew.
 * Heartbeats do not write the deadline: whoever finds it due looks at the last
 * one and moves the deadline on. As heartbeats are not all stored, the last one
 * may be younger than what is seen by the interval at which they are. That much
 * is added: a step is never given up too early.
 *
 * A task's deadline is written by who has the task in hand. If the row is busy at
 * that moment it stays as it is. It is recognised later, because its lease does
 * not hold the task or its task is in no list, and gives the attempt another
 * full window.
 *
 * A turn of an external workflow has a timeout as well, its workflow's turn_silence. It
 * counts while the turn is out, and no longer. A turn that falls silent is lost like
 * one whose lease lapsed, and is handed out again.
 *
 * Locks, none of them waited for: the run, list entries, the task, the deadline.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/errors.h"
#include "base/guc.h"
#include "base/json.h"
#include "engine/limiter.h"
#include "engine/outcome.h"
#include "engine/timeout.h"
#include "store/deadline.h"
#include "store/delayed.h"
#include "store/lease.h"
#include "store/limited.h"
#include "store/progress.h"
#include "store/ready.h"
#include "store/run.h"
#include "store/task.h"

/* Heartbeats are stored this many times as often as they have to come. */
#define BEATS_PER_TIMEOUT 4

static bool
has_timeout(const DurableRow *task)
{
	return !task->nulls[TASK_TIMEOUT] || !task->nulls[TASK_PICKUP_TIMEOUT];
}

static const Interval *
pickup_window(const DurableRow *task)
{
	return DatumGetIntervalP(task->values[task->nulls[TASK_PICKUP_TIMEOUT] ?
										  TASK_TIMEOUT : TASK_PICKUP_TIMEOUT]);
}

static const Interval *
silence_window(const DurableRow *task)
{
	return task->nulls[TASK_TIMEOUT] ? NULL : DatumGetIntervalP(task->values[TASK_TIMEOUT]);
}

/* The queue of the turns of the task's run. */
static text *
list_of(const DurableRow *task)
{
	DurableProbe by_id;
	DurableRow	turn;
	int64		run;
	text	   *queue = NULL;

	durable_task_open_by_id(&by_id, durable_snapshot_push());
	if (durable_run_number(DatumGetTextPP(task->values[TASK_RUN_ID]), &run) &&
		durable_task_find_number(&by_id, run, &turn))
		queue = DatumGetTextPCopy(turn.values[TASK_QUEUE]);
	durable_probe_close(&by_id);
	durable_snapshot_pop();
	return queue;
}

static void
set_deadline(const DurableRow *task, TimestampTz due_at, int64 lease)
{
	DurableDeadline deadline = {
		.id = DatumGetInt64(task->values[TASK_ID]), .due_at = due_at, .lease = lease
	};
	text	   *queue;

	if (durable_deadline_set(deadline.id, due_at, lease) != TM_Deleted)
		return;
	queue = list_of(task);
	if (queue != NULL)
		(void) durable_deadline_insert(&deadline, DatumGetTextPP(task->values[TASK_NAMESPACE]),
									   queue);
}

void
durable_timeout_queued(const DurableRow *task, TimestampTz from)
{
	if (has_timeout(task) && !durable_task_is(task, "turn"))
		set_deadline(task, durable_clock_add(from, pickup_window(task)), 0);
}

void
durable_timeout_claimed(const DurableRow *task, int64 lease, TimestampTz now)
{
	if (!has_timeout(task))
		return;
	if (silence_window(task) != NULL)
		set_deadline(task, durable_clock_add(now, silence_window(task)), lease);
	else
		durable_deadline_remove(DatumGetInt64(task->values[TASK_ID]));
}

void
durable_timeout_ended(const DurableRow *task)
{
	if (has_timeout(task))
		durable_deadline_remove(DatumGetInt64(task->values[TASK_ID]));
}

int64
durable_timeout_beat(const DurableRow *task, int64 least)
{
	return task->nulls[TASK_TIMEOUT] ? least :
		Min(least, durable_interval_us(silence_window(task)) / BEATS_PER_TIMEOUT);
}

static Jsonb *
timed_out(const DurableRow *task, const Interval *window)
{
	char	   *message = psprintf("step %s:%d produced no result/heartbeat within " INT64_FORMAT "ms",
								   TextDatumGetCString(task->values[TASK_RUN_ID]),
								   DatumGetInt32(task->values[TASK_SEQ]),
								   durable_interval_us(window) / 1000);

	return durable_json_error_full(message, unpack_sql_state(ERRCODE_DURABLE_STEP_TIMED_OUT),
								   true);
}

/* Out of its queue, if nobody has it in hand. TM_Deleted: it is in no list. */
static TM_Result
take_from_queue(const DurableRow *task)
{
	int64		id = DatumGetInt64(task->values[TASK_ID]);
	text	   *namespace = DatumGetTextPP(task->values[TASK_NAMESPACE]);
	text	   *queue = DatumGetTextPP(task->values[TASK_QUEUE]);
	DurableLimitedBy space;
	const DurableLimitedBy *gate = durable_limited_by_from_row(task, TASK_LIMITER, TASK_LIMITER_KEY, &space);
	TM_Result	result = durable_ready_take(id, DatumGetInt32(task->values[TASK_PRIORITY]),
											namespace, queue);

	if (result == TM_Deleted && !task->nulls[TASK_RUN_AT])
		result = durable_delayed_take(id, DatumGetTimestampTz(task->values[TASK_RUN_AT]),
									  namespace, queue);
	if (result == TM_Deleted && gate != NULL)
		result = durable_limited_remove(gate, id, DatumGetInt32(task->values[TASK_PRIORITY]),
										queue, false);
	return result;
}

static void
put_back(DurableTables *tables, const DurableRow *task)
{
	DurableLimitedBy space;
	int64		id = DatumGetInt64(task->values[TASK_ID]);

	durable_limiter_enlist(tables,
						   durable_limited_by_from_row(task, TASK_LIMITER, TASK_LIMITER_KEY, &space),
						   &id, 1, DatumGetInt32(task->values[TASK_PRIORITY]),
						   DatumGetTextPP(task->values[TASK_NAMESPACE]),
						   DatumGetTextPP(task->values[TASK_QUEUE]));
}

static bool
expire_unclaimed(DurableTables *tables, DurableRow *task, TimestampTz now)
{
	int64		left = task->nulls[TASK_LAST_LEASE] ? 0 :
		DatumGetInt64(task->values[TASK_LAST_LEASE]);
	DurableRow	before = *task;
	TM_Result	result;

	if (!task->nulls[TASK_RUN_AT] && DatumGetTimestampTz(task->values[TASK_RUN_AT]) > now)
	{
		/* it went back to its queue when the deadline was busy */
		durable_timeout_queued(task, DatumGetTimestampTz(task->values[TASK_RUN_AT]));
		return false;
	}
	result = take_from_queue(task);
	if (result == TM_Deleted)
	{
		/* it was claimed when the deadline was busy */
		durable_timeout_claimed(task, 0, now);
		return false;
	}
	if (result != TM_Ok)
		return false;
	if (durable_outcome_failed(tables, task, left, timed_out(task, pickup_window(task)),
							   NULL, now, false) == TM_Ok)
		return true;
	put_back(tables, &before);
	return false;
}

/* When the claimed task has to have shown that it is alive; 0: it need not have. */
static TimestampTz
due_after_beat(const DurableRow *task)
{
	TimestampTz last;

	if (!durable_progress_last(DatumGetInt64(task->values[TASK_ID]), &last))
		return 0;
	return durable_clock_add(last, silence_window(task)) +
		durable_timeout_beat(task, (int64) durable_heartbeat_interval * 1000);
}

static bool
expire_claimed(DurableTables *tables, DurableRow *task, int64 lease, TimestampTz now)
{
	const Interval *window = silence_window(task);
	TimestampTz due;

	if (window == NULL || !durable_task_held_by(task, lease))
	{
		/* the deadline was busy when the task changed hands */
		durable_timeout_queued(task, now);
		return false;
	}
	due = due_after_beat(task);
	if (due > now)
	{
		set_deadline(task, due, lease);
		return false;
	}
	return durable_outcome_failed(tables, task, lease, timed_out(task, window), NULL, now,
								  false) == TM_Ok;
}

/* A turn that is not out any more keeps its deadline until somebody finds it. */
static bool
expire_turn(DurableTables *tables, const DurableDeadline *deadline, TimestampTz now)
{
	DurableProbe by_id;
	DurableRow	task;
	TimestampTz due;
	bool		expired = false;
	bool		out;

	durable_task_open_by_id(&by_id, durable_snapshot_push());
	out = durable_task_find_number(&by_id, deadline->id, &task) && silence_window(&task) != NULL &&
		durable_task_held_by(&task, deadline->lease) && durable_lease_is_there(deadline->lease);
	if (out)
	{
		due = due_after_beat(&task);
		if (due > now)
			set_deadline(&task, due, deadline->lease);
		else
			expired = durable_outcome_lapsed(tables, &task, deadline->lease, now, false) == TM_Ok;
	}
	durable_probe_close(&by_id);
	durable_snapshot_pop();
	if (!out || expired)
		durable_deadline_remove(deadline->id);
	return expired;
}

/* With the run in hand. */
static bool
expire_locked(DurableTables *tables, const DurableDeadline *deadline, TimestampTz now)
{
	DurableProbe by_id;
	DurableRow	task;
	bool		expired = false;

	durable_task_open_by_id(&by_id, durable_snapshot_push());
	if (durable_task_find_number(&by_id, deadline->id, &task))
		expired = deadline->lease == 0 ? expire_unclaimed(tables, &task, now) :
			expire_claimed(tables, &task, deadline->lease, now);
	durable_probe_close(&by_id);
	durable_snapshot_pop();
	return expired;
}

static bool
expire_one(DurableTables *tables, const DurableDeadline *deadline, TimestampTz now)
{
	DurableProbe by_id;
	DurableRow	task;
	DurableRun	run;
	int64		id = 0;
	bool		expired = false;
	bool		found;
	bool		turn;

	CommandCounterIncrement();
	durable_task_open_by_id(&by_id, durable_snapshot_push());
	found = durable_task_find_number(&by_id, deadline->id, &task) && has_timeout(&task);
	turn = found && durable_task_is(&task, "turn");
	if (turn)
		expired = expire_turn(tables, deadline, now);
	else if (found && durable_run_number(DatumGetTextPP(task.values[TASK_RUN_ID]), &id) &&
		durable_run_open(&run, id, false) == TM_Ok)
	{
		expired = expire_locked(tables, deadline, now);
		durable_run_close(&run);
	}
	durable_probe_close(&by_id);
	durable_snapshot_pop();
	/* left behind when it was busy, or when its task was deleted by hand */
	if (!found)
		durable_deadline_remove(deadline->id);
	return expired;
}

int
durable_timeout_expire(text *namespace, text *queue, TimestampTz now, int max,
					   TimestampTz *next)
{
	DurableDueScan scan;
	DurableTables tables;
	DurableDeadline deadline;
	int			expired = 0;

	if (!durable_deadline_begin(&scan, namespace, queue, now))
	{
		*next = scan.next;
		return 0;
	}
	durable_tables_init(&tables);
	durable_due_open(&scan, durable_snapshot_push());
	for (int seen = 0; seen < max && durable_deadline_next(&scan, &deadline); seen++)
	{
		CHECK_FOR_INTERRUPTS();
		expired += expire_one(&tables, &deadline, now);
	}
	durable_due_close(&scan);
	durable_tables_close(&tables);
	durable_snapshot_pop();
	*next = scan.next;
	return expired;
}

int
durable_timeout_expire_all(TimestampTz now, int max, TimestampTz *next)
{
	DurableListName *lists;
	int			expired = 0;
	int			n = durable_deadline_lists(&lists);

	*next = DURABLE_POSITION_END;
	for (int i = 0; i < n; i++)
	{
		TimestampTz due = now;

		CHECK_FOR_INTERRUPTS();
		if (expired < max)
			expired += durable_timeout_expire(lists[i].namespace, lists[i].queue, now,
											  max - expired, &due);
		*next = Min(*next, due);
	}
	return expired;
}
