/*-------------------------------------------------------------------------
 *
 * claim.c
 *	  Claiming tasks, and knowing whether there are any.
 *
 * A claim deletes rows of task_ready in index order, skipping without waiting
 * what another claim holds, and writes one lease that lists the ids. It reads
 * the tasks' own rows but does not write them, so a payload is never copied.
 * Several queues are merged by priority and age. What the claimer is not fit for
 * stays where it is (claimer.c). A turn whose run has to wait for a slot of its
 * singleton key leaves the list and is not handed out (admission.c). Steps that the
 * same command has dispatched take part without standing in a list (fresh.c).
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
#include "engine/admission.h"
#include "engine/claim.h"
#include "engine/claimer.h"
#include "engine/limiter.h"
#include "engine/limiter_claim.h"
#include "engine/maintain.h"
#include "engine/timeout.h"
#include "store/delayed.h"
#include "store/queue.h"
#include "store/ready.h"
#include "store/run.h"
#include "store/task.h"
#include "store/workflow.h"

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
	DurableClaimer claimer;
	int			passed;			/* rows that it was not fit for */
	DurableGate gate;
	DurableTables tables;		/* what the gate writes to */
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

/* The row is out of task_ready; hand its task over. */
static void
deliver(Round *round, const DurableRow *task, int64 id, text *queue)
{
	if (round->lease.nids == 0)
	{
		begin_round(round);
		round->lease.queue = queue;
	}
	else if (round->lease.queue != queue)
		round->lease.queue = cstring_to_text("");
	durable_timeout_claimed(task, round->lease.id, round->now);
	round->sink(task, &round->lease, round->arg);
	round->lease.ids[round->lease.nids++] = id;
}

/* A session cannot execute the turns of external workflows, which are on queues that
 * clients claim from. */
static bool
is_for_others(const Round *round, const DurableRow *task)
{
	text	   *queue = DatumGetTextPP(task->values[TASK_QUEUE]);
	DurableRow	run;
	DurableWorkflow workflow;

	return round->claim->in_session && VARDATA_ANY(queue)[0] != '#' &&
		durable_task_is(task, "turn") &&
		durable_run_read(DatumGetInt64(task->values[TASK_ID]), &run) &&
		durable_workflow_find(DatumGetTextPP(run.values[RUN_NAMESPACE]),
							  DatumGetTextPP(run.values[RUN_WORKFLOW]),
							  DatumGetTextPP(run.values[RUN_VERSION]), &workflow) &&
		workflow.body == NULL;
}

/* The scan's row, unless somebody has it. A row without a task can only be left by
 * hand, and is gone now. */
static void
take_one(Round *round, DurableWriter *ready, DurableProbe *by_id, DurableReadyScan *scan)
{
	DurableRow	task;
	bool		found = durable_task_find_number(by_id, scan->id, &task);
	DurableFit	fit = CLAIMER_FITS;

	if (found && is_for_others(round, &task))
		return;
	if (found)
		fit = durable_claimer_fit(&round->claimer, &task);
	if (fit == CLAIMER_FITS)
	{
		if (durable_writer_delete(ready, &scan->walk.slot->tts_tid, false) != TM_Ok)
			return;
		durable_ready_scan_taken(scan);
		if (found && durable_gate_pass(&round->gate, &round->tables, &task, round->now))
			deliver(round, &task, scan->id, scan->queue);
		return;
	}
	round->passed++;
	if (fit == NOBODY_FITS &&
		durable_claimer_park(&round->claimer, &task, ready, &scan->walk.slot->tts_tid))
		durable_ready_scan_taken(scan);
}

/* A place in the order of all tasks. */
typedef struct Place
{
	bool		exists;
	int32		priority;
	int64		id;
} Place;

static bool
comes_before(int32 priority, int64 id, const Place *place)
{
	return !place->exists || priority > place->priority ||
		(priority == place->priority && id < place->id);
}

/* Into the list where it would have stood from the beginning. What came after it in this
 * command may have deleted it. */
static void
enlist_fresh(Round *round, const DurableFreshTask *fresh, DurableProbe *by_id)
{
	DurableRow	task;

	if (durable_task_find_number(by_id, fresh->id, &task))
		durable_ready_insert(durable_tables_get(&round->tables, TABLE_READY), fresh->id,
							 fresh->priority, round->claim->namespace, fresh->queue);
}

/* One that was dispatched a moment ago. */
static void
take_fresh(Round *round, DurableFreshTask *fresh, DurableProbe *by_id)
{
	if (durable_row_is_live(by_id->rel, &fresh->row.tid) &&
		durable_claimer_fit(&round->claimer, &fresh->row) == CLAIMER_FITS)
		deliver(round, &fresh->row, fresh->id, fresh->queue);
	else
	{
		round->passed++;
		enlist_fresh(round, fresh, by_id);
	}
	durable_fresh_remove_first(round->claim->fresh);
}

/* Whether a task that waits at a limiter comes before the best of the others. Then it is
 * taken, or left for this claim. */
static bool
take_limited(Round *round, DurableLimits *limits, const Place *others, DurableProbe *by_id)
{
	int32		priority;
	int64		id;
	text	   *queue;
	DurableRow	task;
	bool		found;

	if (!durable_limits_best(limits, &priority, &id) || !comes_before(priority, id, others))
		return false;
	found = durable_task_find_number(by_id, id, &task);
	if (found && (is_for_others(round, &task) ||
				  durable_claimer_fit(&round->claimer, &task) != CLAIMER_FITS))
	{
		round->passed++;
		durable_limits_pass_by(limits);
	}
	else if (durable_limits_take(limits, &queue))
	{
		/* a slot is no use to a run that has to wait for that of its singleton key */
		if (durable_gate_pass(&round->gate, &round->tables, &task, round->now))
			deliver(round, &task, id, queue);
		else
			durable_limiter_leave(&round->tables, &task);
	}
	return true;
}

/* The best of what is ready and what was dispatched a moment ago, and which it is: at most
 * one of them is not NULL. */
static Place
best_unlimited(Round *round, Merge *merge, DurableReadyScan **ready,
			   DurableFreshTask **fresh)
{
	Place		place = {0};

	*ready = merge_best(merge);
	*fresh = durable_fresh_first(round->claim->fresh);
	if (*ready != NULL)
		place = (Place) {true, (*ready)->priority, (*ready)->id};
	if (*fresh != NULL && comes_before((*fresh)->priority, (*fresh)->id, &place))
	{
		*ready = NULL;
		return (Place) {true, (*fresh)->priority, (*fresh)->id};
	}
	*fresh = NULL;
	return place;
}

/* One that is not fit for anything need not see all that there is. */
static bool
has_enough(const Round *round)
{
	return round->lease.nids == round->claim->max_tasks || durable_gate_is_tired(&round->gate) ||
		(round->passed >= DURABLE_UNFIT_TASKS && !round->claimer.fits_protocol);
}

static void
take_ready(Round *round, Snapshot snapshot, DurableLimits *limits)
{
	const DurableClaim *claim = round->claim;
	Merge		merge;
	DurableWriter writer;
	DurableProbe by_id;

	durable_writer_open(&writer, REL_TASK_READY);
	durable_task_open_by_id(&by_id, snapshot);
	merge_open(&merge, snapshot, claim->namespace, claim->queues, claim->nqueues);
	for (;;)
	{
		DurableReadyScan *ready;
		DurableFreshTask *fresh;
		Place		place = best_unlimited(round, &merge, &ready, &fresh);

		if (limits == NULL || !take_limited(round, limits, &place, &by_id))
		{
			if (!place.exists)
				break;
			if (fresh != NULL)
				take_fresh(round, fresh, &by_id);
			else
				take_one(round, &writer, &by_id, ready);
		}
		else
			ready = NULL;
		if (has_enough(round))
			break;
		if (ready != NULL)
			(void) durable_ready_scan_next(ready);
	}
	merge_close(&merge);
	durable_probe_close(&by_id);
	durable_writer_close(&writer);
}

/* What the claim has no room for, or came to too late. */
static void
enlist_rest(Round *round)
{
	DurableFreshTask *fresh = durable_fresh_first(round->claim->fresh);
	DurableProbe by_id;

	if (fresh == NULL)
		return;
	durable_task_open_by_id(&by_id, GetActiveSnapshot());
	while (fresh != NULL)
	{
		enlist_fresh(round, fresh, &by_id);
		durable_fresh_remove_first(round->claim->fresh);
		fresh = durable_fresh_first(round->claim->fresh);
	}
	durable_probe_close(&by_id);
}

/*
 * Due tasks are older than what came since, so they go first. By the thousand, all
 * due at once, they would keep new work waiting until the last of them is done. So a
 * session that found more due tasks than it may move takes as many again of whatever
 * is ready before it moves more; unless nothing is ready.
 */
static int	owed_to_ready = 0;

static bool ended_early = false;

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
	DurableLimits *limits = lock_limiters(round);
	Snapshot	snapshot = durable_snapshot_push();

	if (limits != NULL)
		durable_limits_open(limits, snapshot);
	take_ready(round, snapshot, limits);
	if (limits != NULL)
		durable_limits_close(limits);
	owed_to_ready -= Min(owed_to_ready, round->lease.nids);
}

int
durable_claim_tasks(const DurableClaim *claim, DurableClaimSink sink, void *arg)
{
	Round		round = {.claim = claim, .sink = sink, .arg = arg};
	bool		later = owed_to_ready > 0;

	round.now = durable_clock_now();
	round.lease.ids = palloc(sizeof(int64) * claim->max_tasks);
	durable_tables_init(&round.tables);
	durable_claimer_look(&round.claimer, claim->namespace, claim->worker);
	durable_commit_claim_begin();
	if (!later)
		move_due(&round);
	take(&round);
	if (later && round.lease.nids < claim->max_tasks && !durable_gate_is_tired(&round.gate))
	{
		durable_snapshot_pop();
		move_due(&round);
		take(&round);
	}
	enlist_rest(&round);
	if (round.lease.nids > 0)
	{
		durable_ids_sort(round.lease.ids, round.lease.nids);
		durable_lease_insert(&round.lease);
	}
	durable_snapshot_pop();
	durable_tables_close(&round.tables);
	durable_commit_claim_end();
	ended_early = durable_gate_is_tired(&round.gate) || round.gate.queued;
	pfree(round.lease.ids);
	return round.lease.nids;
}

bool
durable_claim_ended_early(void)
{
	bool		early = ended_early;

	ended_early = false;
	return early;
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
