/*-------------------------------------------------------------------------
 *
 * claim.c
 *	  Claiming tasks, and knowing whether there are any.
 *
 * A claim deletes rows of task_ready in index order, skipping without waiting
 * what another claim holds, and writes one lease that lists the ids. It reads
 * the tasks' own rows but does not write them, so a payload is never copied.
 * Several queues are merged by priority and age.
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
#include "base/commit.h"
#include "base/ids.h"
#include "engine/limiter_claim.h"
#include "engine/claim.h"
#include "engine/maintain.h"
#include "engine/timeout.h"
#include "store/delayed.h"
#include "store/queue.h"
#include "store/ready.h"
#include "store/task.h"

/* The scans of the queues that are not paused; each stands at its next
 * candidate. */
typedef struct Merge
{
	DurableReadyScan *scans;
	int			nscans;
} Merge;

static void
merge_open(Merge *merge, Snapshot snapshot, text *namespace, text **queues, int nqueues)
{
	merge->scans = palloc(sizeof(DurableReadyScan) * Max(nqueues, 1));
	merge->nscans = 0;
	for (int i = 0; i < nqueues; i++)
	{
		DurableReadyScan *scan = &merge->scans[merge->nscans];

		if (durable_queue_is_paused(namespace, queues[i]))
			continue;
		durable_ready_scan_open(scan, snapshot, namespace, queues[i]);
		(void) durable_ready_scan_next(scan);
		merge->nscans++;
	}
}

static void
merge_close(Merge *merge)
{
	for (int i = 0; i < merge->nscans; i++)
		durable_ready_scan_close(&merge->scans[i]);
	pfree(merge->scans);
}

/* The scan with the highest priority and, within it, the oldest task. */
static DurableReadyScan *
merge_best(Merge *merge)
{
	DurableReadyScan *best = NULL;

	for (int i = 0; i < merge->nscans; i++)
	{
		DurableReadyScan *scan = &merge->scans[i];

		if (scan->exhausted)
			continue;
		if (best == NULL || scan->priority > best->priority ||
			(scan->priority == best->priority && scan->id < best->id))
			best = scan;
	}
	return best;
}

/* What a claim has so far. */
typedef struct Round
{
	const DurableClaim *claim;
	TimestampTz now;
	DurableLease lease;			/* its ids are in claim order until the end */
	DurableClaimSink sink;
	void	   *arg;
} Round;

/* The round's number is drawn when the first task is at hand: the fence needs
 * it to be younger than any lease that the task has left. */
static void
begin_round(Round *round)
{
	DurableLease *lease = &round->lease;
	int64	   *ids = lease->ids;

	durable_lease_new(lease);
	lease->claimed_at = round->now;
	lease->until = durable_lease_until(round->now, round->claim->lease);
	lease->kind = LEASE_OF_TASKS;
	lease->namespace = round->claim->namespace;
	lease->worker = round->claim->worker;
	lease->ids = ids;
}

/* The row is out of task_ready; hand its task over. A row without a task can only
 * be left by hand, and is gone now. */
static void
deliver(Round *round, DurableProbe *by_id, int64 id, text *queue)
{
	DurableRow	task;

	if (!durable_task_find_number(by_id, id, &task))
		return;
	if (round->lease.nids == 0)
	{
		begin_round(round);
		round->lease.queue = queue;
	}
	else if (round->lease.queue != queue)
		round->lease.queue = cstring_to_text("");
	durable_timeout_claimed(&task, round->lease.id, round->now);
	round->sink(&task, &round->lease, round->arg);
	round->lease.ids[round->lease.nids++] = id;
}

/* Whether a task that waits at a limiter comes before the best ready one: then it is
 * taken. */
static bool
take_limited(Round *round, DurableLimits *admission, const DurableReadyScan *ready,
			 DurableProbe *by_id)
{
	int32		priority;
	int64		id;
	text	   *queue;

	if (!durable_limits_best(admission, &priority, &id))
		return false;
	if (ready != NULL && (priority < ready->priority ||
						  (priority == ready->priority && id > ready->id)))
		return false;
	if (durable_limits_take(admission, &queue))
		deliver(round, by_id, id, queue);
	return true;
}

static void
take_ready(Round *round, Snapshot snapshot, DurableLimits *admission)
{
	const DurableClaim *claim = round->claim;
	Merge		merge;
	DurableWriter writer;
	DurableProbe by_id;
	DurableReadyScan *scan;

	durable_writer_open(&writer, REL_TASK_READY);
	durable_task_open_by_id(&by_id, snapshot);
	merge_open(&merge, snapshot, claim->namespace, claim->queues, claim->nqueues);
	for (;;)
	{
		scan = merge_best(&merge);
		if (admission != NULL && take_limited(round, admission, scan, &by_id))
		{
			if (round->lease.nids == claim->max_tasks)
				break;
			continue;
		}
		if (scan == NULL)
			break;
		if (durable_writer_delete(&writer, &scan->walk.slot->tts_tid, false) == TM_Ok)
		{
			durable_ready_scan_taken(scan);
			deliver(round, &by_id, scan->id, scan->queue);
		}
		if (round->lease.nids == claim->max_tasks)
			break;
		(void) durable_ready_scan_next(scan);
	}
	merge_close(&merge);
	durable_probe_close(&by_id);
	durable_writer_close(&writer);
}

/*
 * Due tasks are older than what came since, so they go first. By the thousand, all
 * due at once, they would keep new work waiting until the last of them is done. So a
 * session that found more due tasks than it may move takes as many again of whatever
 * is ready before it moves more; unless nothing is ready.
 */
static int	owed_to_ready = 0;

static void
move_due(const Round *round)
{
	const DurableClaim *claim = round->claim;
	bool		block = IsTransactionBlock();
	int			wanted = claim->max_tasks - round->lease.nids;
	int			max = block ? wanted : Max(wanted, DURABLE_CLAIM_TASKS);
	int			moved = 0;

	(void) durable_maintain(claim->namespace, claim->queues, claim->nqueues, round->now, max,
							block ? DURABLE_BLOCK_ROUNDS : DURABLE_CLAIM_ROUNDS, &moved);
	owed_to_ready = moved < max ? 0 : Min(moved, PG_INT32_MAX / 2) * 2;
}

/* Of the queues that are not paused. */
static DurableLimits *
lock_limiters(const Round *round)
{
	const DurableClaim *claim = round->claim;
	text	  **queues = palloc(sizeof(text *) * Max(claim->nqueues, 1));
	int			n = 0;

	for (int i = 0; i < claim->nqueues; i++)
	{
		if (!durable_queue_is_paused(claim->namespace, claim->queues[i]))
			queues[n++] = claim->queues[i];
	}
	return durable_limits_lock(claim->namespace, queues, n, round->now);
}

/* Leaves its snapshot pushed. */
static void
take(Round *round)
{
	DurableLimits *admission = lock_limiters(round);
	Snapshot	snapshot = durable_snapshot_push();

	if (admission != NULL)
		durable_limits_open(admission, snapshot);
	take_ready(round, snapshot, admission);
	if (admission != NULL)
		durable_limits_close(admission);
	owed_to_ready -= Min(owed_to_ready, round->lease.nids);
}

int
durable_claim_tasks(const DurableClaim *claim, DurableClaimSink sink, void *arg)
{
	Round		round = {.claim = claim, .sink = sink, .arg = arg};
	bool		later = owed_to_ready > 0;

	round.now = durable_clock_now();
	round.lease.ids = palloc(sizeof(int64) * claim->max_tasks);
	durable_commit_claim_begin();
	if (!later)
		move_due(&round);
	take(&round);
	if (later && round.lease.nids < claim->max_tasks)
	{
		durable_snapshot_pop();
		move_due(&round);
		take(&round);
	}
	if (round.lease.nids > 0)
	{
		durable_ids_sort(round.lease.ids, round.lease.nids);
		durable_lease_insert(&round.lease);
	}
	durable_snapshot_pop();
	durable_commit_claim_end();
	pfree(round.lease.ids);
	return round.lease.nids;
}

static bool
ready_exists(Snapshot snapshot, text *namespace, text **queues, int nqueues)
{
	bool		found = false;

	for (int i = 0; i < nqueues && !found; i++)
		found = !durable_queue_is_paused(namespace, queues[i]) &&
			durable_ready_has(snapshot, namespace, queues[i]);
	return found;
}

bool
durable_ready_exists(text *namespace, text **queues, int nqueues)
{
	bool		found = ready_exists(durable_snapshot_push(), namespace, queues, nqueues);

	durable_snapshot_pop();
	return found;
}

/* Only for waits inside a transaction block, which must not write: elsewhere
 * maintenance has moved what is due. */
static bool
due_exists(Snapshot snapshot, text *namespace, text **queues, int nqueues, TimestampTz now)
{
	bool		found = false;

	for (int i = 0; i < nqueues && !found; i++)
	{
		DurableDueScan scan;
		DurableRow	row;

		if (durable_queue_is_paused(namespace, queues[i]) ||
			!durable_delayed_begin(&scan, namespace, queues[i], now))
			continue;
		durable_due_open(&scan, snapshot);
		while (!found && durable_delayed_next(&scan, &row))
			found = durable_row_is_live(scan.walk.rel, &row.tid);
		durable_due_close(&scan);
	}
	return found;
}

/* The mixed rounds last. */
static bool
lapsed_exists(Snapshot snapshot, text *namespace, text **queues, int nqueues, TimestampTz now)
{
	bool		found = false;

	for (int i = 0; i <= nqueues && !found; i++)
	{
		DurableDueScan scan;
		DurableLease lease;
		text	   *queue = i < nqueues ? queues[i] : cstring_to_text("");

		if (!durable_lapsed_begin(&scan, namespace, queue, now))
			continue;
		durable_due_open(&scan, snapshot);
		while (!found && durable_lapsed_next(&scan, &lease))
			found = durable_row_is_live(scan.walk.rel, &lease.tid) &&
				durable_lease_concerns(&lease, queues, nqueues);
		durable_due_close(&scan);
	}
	return found;
}

static bool
limited_exists(Snapshot snapshot, text *namespace, text **queues, int nqueues, TimestampTz now,
			   TimestampTz *next)
{
	bool		found = false;

	for (int i = 0; i < nqueues && !found; i++)
		found = !durable_queue_is_paused(namespace, queues[i]) &&
			durable_limits_exists(snapshot, namespace, &queues[i], 1, now, next);
	return found;
}

bool
durable_work_exists(text *namespace, text **queues, int nqueues, TimestampTz now,
					TimestampTz *next)
{
	Snapshot	snapshot = durable_snapshot_push();
	bool		found = ready_exists(snapshot, namespace, queues, nqueues) ||
		due_exists(snapshot, namespace, queues, nqueues, now) ||
		lapsed_exists(snapshot, namespace, queues, nqueues, now) ||
		limited_exists(snapshot, namespace, queues, nqueues, now, next);

	durable_snapshot_pop();
	return found;
}
