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
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/commit.h"
#include "base/ids.h"
#include "engine/claim.h"
#include "engine/maintain.h"
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

/* Takes rows out of task_ready; their ids, in claim order. */
static int
take_ready(const DurableClaim *claim, Snapshot snapshot, int64 *ids)
{
	Merge		merge;
	DurableWriter writer;
	DurableReadyScan *scan;
	int			taken = 0;

	durable_writer_open(&writer, REL_TASK_READY, false);
	merge_open(&merge, snapshot, claim->namespace, claim->queues, claim->nqueues);
	while (taken < claim->max_tasks && (scan = merge_best(&merge)) != NULL)
	{
		if (durable_writer_delete(&writer, &scan->walk.slot->tts_tid, false) == TM_Ok)
		{
			durable_ready_scan_taken(scan);
			ids[taken++] = scan->id;
		}
		if (taken < claim->max_tasks)
			(void) durable_ready_scan_next(scan);
	}
	merge_close(&merge);
	durable_writer_close(&writer);
	return taken;
}

/* Hands over the tasks and keeps in ids those that exist; a row in task_ready
 * without its task can only be left by hand, and is gone now. */
static int
deliver(const DurableLease *lease, Snapshot snapshot, int64 *ids, int n,
		DurableClaimSink sink, void *arg)
{
	DurableProbe by_id;
	int			kept = 0;

	durable_task_open_by_id(&by_id, snapshot);
	for (int i = 0; i < n; i++)
	{
		DurableRow	task;

		if (!durable_task_find_number(&by_id, ids[i], &task))
			continue;
		sink(&task, lease, arg);
		ids[kept++] = ids[i];
	}
	durable_probe_close(&by_id);
	return kept;
}

int
durable_claim_tasks(const DurableClaim *claim, DurableClaimSink sink, void *arg)
{
	TimestampTz now = durable_clock_now();
	int64	   *ids = palloc(sizeof(int64) * claim->max_tasks);
	Snapshot	snapshot;
	int			taken;
	bool		block = IsTransactionBlock();

	durable_commit_claim_begin();
	(void) durable_maintain(claim->namespace, claim->queues, claim->nqueues, now,
							block ? claim->max_tasks : DURABLE_CLAIM_TASKS,
							block ? DURABLE_BLOCK_ROUNDS : DURABLE_CLAIM_ROUNDS);
	snapshot = durable_snapshot_push();
	taken = take_ready(claim, snapshot, ids);
	if (taken > 0)
	{
		DurableLease lease;

		durable_lease_new(&lease);
		lease.claimed_at = now;
		lease.until = durable_clock_add(now, claim->lease);
		lease.kind = LEASE_OF_TASKS;
		lease.namespace = claim->namespace;
		lease.worker = claim->worker;
		lease.nids = taken = deliver(&lease, snapshot, ids, taken, sink, arg);
		lease.ids = ids;
		durable_ids_sort(ids, taken);
		if (taken > 0)
			durable_lease_insert(&lease);
	}
	durable_snapshot_pop();
	durable_commit_claim_end();
	pfree(ids);
	return taken;
}

static bool
ready_exists(Snapshot snapshot, text *namespace, text **queues, int nqueues)
{
	Merge		merge;
	DurableReadyScan *scan;
	bool		found = false;

	merge_open(&merge, snapshot, namespace, queues, nqueues);
	/* a row that somebody is claiming right now is not worth waking for */
	while (!found && (scan = merge_best(&merge)) != NULL)
	{
		found = durable_row_is_live(scan->walk.rel, &scan->walk.slot->tts_tid);
		if (!found)
			(void) durable_ready_scan_next(scan);
	}
	merge_close(&merge);
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
		DurableDelayedScan scan;
		DurableRow	row;

		if (durable_queue_is_paused(namespace, queues[i]) ||
			!durable_delayed_scan_open(&scan, snapshot, namespace, queues[i], now))
			continue;
		while (!found && durable_delayed_scan_next(&scan, &row))
			found = durable_row_is_live(scan.walk.rel, &row.tid);
		durable_delayed_scan_close(&scan);
	}
	return found;
}

static bool
lapsed_exists(Snapshot snapshot, text *namespace, TimestampTz now)
{
	DurableLapsedScan scan;
	DurableLease lease;
	bool		found = false;

	if (!durable_lapsed_scan_open(&scan, snapshot, namespace, now))
		return false;
	while (!found && durable_lapsed_scan_next(&scan, &lease))
		found = durable_row_is_live(scan.walk.rel, &lease.tid);
	durable_lapsed_scan_close(&scan);
	return found;
}

bool
durable_work_exists(text *namespace, text **queues, int nqueues, TimestampTz now)
{
	Snapshot	snapshot = durable_snapshot_push();
	bool		found = ready_exists(snapshot, namespace, queues, nqueues) ||
		due_exists(snapshot, namespace, queues, nqueues, now) ||
		lapsed_exists(snapshot, namespace, now);

	durable_snapshot_pop();
	return found;
}
