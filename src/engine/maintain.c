/*-------------------------------------------------------------------------
 *
 * maintain.c
 *	  What becomes due by itself: delayed tasks, lapsed claims, timeouts.
 *
 * Every claim calls this first, for its own queues, so a queue needs no process
 * of its own. Scan hints make the calls that find nothing cost nothing; without
 * shared memory each is one descent of a small index. What is moved stays locked
 * until the caller's transaction ends, so a claim moves little, and inside a
 * transaction block no more than it can use.
 *
 * Locks: rows of task_delayed, or a lease and then its tasks. Nothing here
 * waits for a row lock: what somebody holds is left for the next pass. That is
 * also why taking a lease before its tasks cannot deadlock with settling,
 * which takes the task first.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_collation_d.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/guc.h"
#include "base/ids.h"
#include "base/plan.h"
#include "base/security.h"
#include "engine/limiter_claim.h"
#include "engine/limiter.h"
#include "engine/maintain.h"
#include "engine/outcome.h"
#include "engine/retention.h"
#include "engine/schedule.h"
#include "engine/timeout.h"
#include "store/blocked.h"
#include "store/delayed.h"
#include "store/lease.h"
#include "store/progress.h"
#include "store/ready.h"
#include "store/result.h"
#include "store/signal.h"
#include "store/task.h"
#include "store/worker.h"

static void
promote(DurableTables *tables, const DurableRow *row, text *namespace, text *queue)
{
	DurableLimitedBy space;
	int64		id = DatumGetInt64(row->values[DELAYED_ID]);

	durable_limiter_enlist(tables,
						   durable_limited_by_from_row(row, DELAYED_LIMITER, DELAYED_LIMITER_KEY,
												 &space),
						   &id, 1, DatumGetInt32(row->values[DELAYED_PRIORITY]),
						   namespace, queue);
}

/* Skips what another transaction holds, and says in *next when it is worth looking
 * again. Returns how many tasks went to their queue. */
static int
promote_due(text *namespace, text *queue, TimestampTz now, int max, TimestampTz *next)
{
	DurableDueScan scan;
	DurableTables tables;
	DurableRow	row;
	int			promoted = 0;

	if (!durable_delayed_begin(&scan, namespace, queue, now))
	{
		*next = scan.next;
		return 0;
	}
	durable_tables_init(&tables);
	durable_due_open(&scan, durable_snapshot_push());
	while (promoted < max && durable_delayed_next(&scan, &row))
	{
		DurableWriter *delayed = durable_tables_get(&tables, TABLE_DELAYED);

		if (durable_writer_delete(delayed, &row.tid, false) != TM_Ok)
			continue;
		durable_hint_rescue(&scan.walk.hint, scan.walk.position);
		promote(&tables, &row, namespace, queue);
		promoted++;
	}
	durable_due_close(&scan);
	durable_tables_close(&tables);
	durable_snapshot_pop();
	*next = scan.next;
	return promoted;
}

/* The lease is locked; what somebody is settling right now stays in
 * lease->ids. Returns how many tasks went back or ended. */
static int
take_over_tasks(DurableTables *tables, DurableLease *lease, TimestampTz now)
{
	DurableProbe by_id;
	int			taken = 0;
	int			held = 0;

	durable_task_open_by_id(&by_id, GetActiveSnapshot());
	for (int i = 0; i < lease->nids; i++)
	{
		DurableRow	row;

		CHECK_FOR_INTERRUPTS();
		if (!durable_task_find_number(&by_id, lease->ids[i], &row))
			continue;			/* settled */
		if (!durable_task_held_by(&row, lease->id))
			continue;			/* went back to its queue */
		if (durable_outcome_lapsed(tables, &row, lease->id, now, false) == TM_Ok)
			taken++;
		else
			lease->ids[held++] = lease->ids[i];
	}
	durable_probe_close(&by_id);
	lease->nids = held;
	return taken;
}

static int
take_over_results(DurableLease *lease)
{
	ArrayType  *ids = durable_ids_to_array(lease->ids, lease->nids);
	int			before = lease->nids;

	durable_plan_begin();
	lease->nids = (int) durable_result_unclaim(lease->id, ids);
	for (int i = 0; i < lease->nids; i++)
	{
		bool		isnull;

		lease->ids[i] = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[i],
													SPI_tuptable->tupdesc, 1, &isnull));
	}
	durable_plan_end();
	return before - lease->nids;
}

/* How many went back; -1 when others hold the lease or everything in it, and
 * nothing was changed. */
static int
take_over(DurableTables *tables, DurableLease *lease, TimestampTz now)
{
	int			taken;
	int			listed;

	if (!durable_lease_lock(lease))
		return -1;
	if (durable_lease_is_alive(lease))
	{
		/* it is busy inside a step: we renew for it */
		lease->until = now + DURABLE_SESSION_LEASE_US;
		durable_snapshot_push();
		(void) durable_lease_update(lease, true);
		durable_snapshot_pop();
		return -1;
	}
	listed = lease->nids;
	taken = lease->kind == LEASE_OF_TASKS ?
		take_over_tasks(tables, lease, now) : take_over_results(lease);
	/* changed in place: whoever waits for the row, with a task of it in hand,
	 * has to find the rest of the list afterwards. Our lock is on it, so
	 * "wait" does not. */
	durable_snapshot_push();
	if (lease->nids == 0)
		(void) durable_lease_delete(lease, true);
	else if (lease->nids < listed)
	{
		lease->stored_ids = NULL;
		(void) durable_lease_update(lease, true);
	}
	durable_snapshot_pop();
	return lease->nids == listed && listed > 0 ? -1 : taken;
}

static bool
is_one_of(Datum queue, text **queues, int nqueues)
{
	for (int i = 0; i < nqueues; i++)
	{
		if (DatumGetBool(DirectFunctionCall2Coll(texteq, C_COLLATION_OID, queue,
												 PointerGetDatum(queues[i]))))
			return true;
	}
	return false;
}

bool
durable_lease_concerns(const DurableLease *lease, text **queues, int nqueues)
{
	DurableProbe by_id;
	bool		concerns = false;

	if (lease->kind != LEASE_OF_TASKS)
		return false;
	if (VARSIZE_ANY_EXHDR(lease->queue) > 0)
		return is_one_of(PointerGetDatum(lease->queue), queues, nqueues);
	durable_task_open_by_id(&by_id, GetActiveSnapshot());
	for (int i = 0; i < lease->nids && !concerns; i++)
	{
		DurableRow	row;

		concerns = durable_task_find_number(&by_id, lease->ids[i], &row) &&
			durable_task_held_by(&row, lease->id) &&
			is_one_of(row.values[TASK_QUEUE], queues, nqueues);
	}
	durable_probe_close(&by_id);
	return concerns;
}

int
durable_take_over_lapsed(text *namespace, text *queue, TimestampTz now, int max_rounds,
						 int *rounds, TimestampTz *next)
{
	DurableDueScan scan;
	DurableLease lease;
	DurableTables tables;
	int			taken = 0;
	int			passed = 0;

	if (!durable_lapsed_begin(&scan, namespace, queue, now))
	{
		*next = scan.next;
		return 0;
	}
	durable_tables_init(&tables);
	durable_due_open(&scan, durable_snapshot_push());
	while (max_rounds > 0 && passed < DURABLE_ROUNDS_SEEN &&
		   durable_lapsed_next(&scan, &lease))
	{
		int			tasks = take_over(&tables, &lease, now);

		/* an empty one costs little, and nobody else wants it */
		if (tasks > 0)
			max_rounds--;
		else
			passed++;
		if (tasks < 0)
			continue;
		durable_hint_rescue(&scan.walk.hint, scan.walk.position);
		taken += tasks;
		(*rounds)++;
	}
	durable_due_close(&scan);
	durable_tables_close(&tables);
	durable_snapshot_pop();
	*next = scan.next;
	return taken;
}

TimestampTz
durable_maintain(text *namespace, text **queues, int nqueues, TimestampTz now,
				 int max_tasks, int max_rounds, int *moved)
{
	TimestampTz next = DURABLE_POSITION_END;
	int			rounds = 0;

	/* the last list is that of the rounds with tasks of several queues */
	for (int i = 0; i <= nqueues; i++)
	{
		TimestampTz due;

		(void) durable_take_over_lapsed(namespace,
										i < nqueues ? queues[i] : cstring_to_text(""),
										now, max_rounds, &rounds, &due);
		next = Min(next, due);
		if (i == nqueues)
			break;
		*moved += promote_due(namespace, queues[i], now, max_tasks, &due);
		next = Min(next, due);
		(void) durable_timeout_expire(namespace, queues[i], now, max_tasks, &due);
		next = Min(next, due);
	}
	return next;
}

/* Due tasks are older than what came since, and all at once they would go first. A
 * queue that has ready tasks gets them by and by; who claims from it moves more when it
 * has claimed what was ready (claim.c). */
static bool
is_busy(const DurableListName *list)
{
	bool		busy = durable_ready_has(durable_snapshot_push(), list->namespace, list->queue);

	durable_snapshot_pop();
	return busy;
}

static bool
out_of_time(const DurableSweep *sweep)
{
	CHECK_FOR_INTERRUPTS();
	return GetCurrentTimestamp() > sweep->end;
}

static void
promote_all(DurableSweep *sweep)
{
	DurableListName *lists;
	int			n = durable_delayed_lists(&lists);

	for (int i = 0; i < n; i++)
	{
		TimestampTz due = sweep->now;
		int			left = sweep->max - (int) sweep->counts[COUNT_PROMOTED];
		bool		busy = sweep->slowly && is_busy(&lists[i]);

		if (left > 0 && !out_of_time(sweep))
			sweep->counts[COUNT_PROMOTED] +=
				promote_due(lists[i].namespace, lists[i].queue, sweep->now,
									busy ? Min(left, DURABLE_CLAIM_TASKS) : left, &due);
		if (busy && due <= sweep->now)
			due = sweep->now + DURABLE_BUSY_QUEUE_US;
		sweep->next = Min(sweep->next, due);
	}
}

/* So many rounds, or tasks of them. */
static void
take_over_all(DurableSweep *sweep)
{
	DurableListName *lists;
	int			ended = 0;
	int64		taken = 0;
	int			n = durable_lease_lists(&lists);

	for (int i = 0; i < n; i++)
	{
		TimestampTz due = sweep->now;

		if (ended < sweep->max && taken < sweep->max && !out_of_time(sweep))
			taken += durable_take_over_lapsed(lists[i].namespace, lists[i].queue, sweep->now,
											  sweep->max - ended, &ended, &due);
		sweep->next = Min(sweep->next, due);
	}
	sweep->counts[COUNT_TAKEN_OVER] += taken;
	sweep->counts[COUNT_LEASES_ENDED] += ended;
}

/* The claims of sessions that are gone, whatever their leases say. */
static void
take_over_dead(DurableSweep *sweep)
{
	DurableTables tables;
	DurableLease *leases;
	int			n;

	if (!sweep->dead)
		return;
	n = durable_lease_sessions(durable_snapshot_push(), &leases);
	durable_tables_init(&tables);
	for (int i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!durable_lease_is_alive(&leases[i]))
			sweep->counts[COUNT_TAKEN_OVER] += Max(0, take_over(&tables, &leases[i], sweep->now));
	}
	durable_tables_close(&tables);
	durable_snapshot_pop();
}

static void
time_out_all(DurableSweep *sweep)
{
	TimestampTz due;

	sweep->counts[COUNT_TIMED_OUT] += durable_timeout_expire_all(sweep->now, sweep->max, &due);
	sweep->next = Min(sweep->next, due);
}

static void
fire_schedules(DurableSweep *sweep)
{
	TimestampTz due;

	sweep->counts[COUNT_FIRED] += durable_schedules_fire(sweep->now, sweep->max);
	due = durable_schedules_next_due();
	sweep->next = Min(sweep->next, due);
}

/* Windows of limiters that are open now: those who wait look. */
static void
open_windows(DurableSweep *sweep)
{
	TimestampTz due = durable_limits_windows(sweep->now);

	sweep->next = Min(sweep->next, due);
}

static void
tidy_limiters(DurableSweep *sweep)
{
	durable_limiters_expire(sweep->now, sweep->max);
}

/* Looks before it deletes: that is a statement, and the look is not. */
static void
expire_results(DurableSweep *sweep)
{
	TimestampTz before = sweep->now - (int64) durable_result_retention * USECS_PER_MINUTE;

	if (durable_result_retention < 0 || !durable_result_is_old(before))
		return;
	durable_plan_begin();
	sweep->counts[COUNT_RESULTS_EXPIRED] += durable_result_expire(before, sweep->max);
	durable_plan_end();
}

static void
expire_heartbeats(DurableSweep *sweep)
{
	if (!durable_progress_exists())
		return;
	durable_plan_begin();
	sweep->counts[COUNT_HEARTBEATS_EXPIRED] += durable_progress_expire(sweep->max);
	durable_plan_end();
}

/* The deletion makes every session read the access rights again. */
static void
expire_grants(DurableSweep *sweep)
{
	if (!durable_access_is_stale())
		return;
	durable_plan_begin();
	sweep->counts[COUNT_GRANTS_EXPIRED] += durable_access_expire();
	durable_plan_end();
}

static void
expire_signals(DurableSweep *sweep)
{
	if (durable_signal_retention >= 0)
		sweep->counts[COUNT_SIGNALS_EXPIRED] +=
			durable_signals_expire(sweep->now - (int64) durable_signal_retention * USECS_PER_MINUTE,
								   sweep->max);
}

static void
delete_runs(DurableSweep *sweep)
{
	bool		more;

	sweep->counts[COUNT_RUNS_DELETED] += durable_retention_pass(sweep->now, sweep->max, &more);
	if (more)
		sweep->next = Min(sweep->next, sweep->now);
}

/* Nothing to count: who is not alive was not there for anybody. */
static void
expire_workers(DurableSweep *sweep)
{
	if (!durable_worker_exists())
		return;
	durable_plan_begin();
	durable_worker_expire(sweep->now, sweep->now - DURABLE_WORKER_KEPT_US, sweep->max);
	durable_plan_end();
}

/* What was left by who deleted or changed runs by hand. */
static void
expire_blocked(DurableSweep *sweep)
{
	if (!durable_blocked_exists())
		return;
	durable_plan_begin();
	durable_blocked_expire(sweep->max);
	durable_plan_end();
}

const char *const durable_count_names[COUNTS] = {
	[COUNT_PROMOTED] = "promoted",
	[COUNT_TAKEN_OVER] = "taken_over",
	[COUNT_LEASES_ENDED] = "leases_ended",
	[COUNT_RESULTS_EXPIRED] = "results_expired",
	[COUNT_HEARTBEATS_EXPIRED] = "heartbeats_expired",
	[COUNT_GRANTS_EXPIRED] = "grants_expired",
	[COUNT_TIMED_OUT] = "timed_out",
	[COUNT_FIRED] = "fired",
	[COUNT_SIGNALS_EXPIRED] = "signals_expired",
	[COUNT_RUNS_DELETED] = "runs_deleted",
	[COUNT_FAILED] = "failed",
};

const DurablePart durable_parts[DURABLE_PARTS] = {
	{"delayed tasks", false, promote_all},
	{"dead sessions", false, take_over_dead},
	{"lapsed claims", false, take_over_all},
	{"timeouts", false, time_out_all},
	{"schedules", false, fire_schedules},
	{"windows of limiters", false, open_windows},
	{"old results", true, expire_results},
	{"old heartbeats", true, expire_heartbeats},
	{"old grants", true, expire_grants},
	{"old signals", true, expire_signals},
	{"old workers", true, expire_workers},
	{"blocked runs", true, expire_blocked},
	{"limiters", true, tidy_limiters},
	[DURABLE_PART_RETENTION] = {"retention", true, delete_runs},
};
