/*-------------------------------------------------------------------------
 *
 * settle.c
 *	  Settling claimed tasks: complete, fail, release, cancel.
 *
 * A token holds a task while its lease lists the task, the task's row exists,
 * and the lease is younger than the last one that the task left for its queue.
 * No lock is taken to check that. The lease and the task's row are read under
 * one snapshot, and then that very version of the row is deleted or replaced:
 * whoever took the task away in between (takeover, release, a failed attempt)
 * has replaced it too, and whoever settled it has deleted it. Then everything is
 * read again.
 *
 * Locks: tasks, ascending by number; then, of several steps at once, their runs,
 * ascending by number, each before its tasks. A round that is settled whole is deleted,
 * not waiting for who may be renewing it; otherwise the lease keeps its row and
 * list until it lapses, so settling one of many writes nothing that the others
 * would wait for.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/guc.h"
#include "base/ids.h"
#include "base/plan.h"
#include "base/security.h"
#include "engine/limiter.h"
#include "engine/outcome.h"
#include "engine/settle.h"
#include "engine/timeout.h"
#include "store/run.h"
#include "store/task.h"

/* Results written at once by one complete_many. */
#define RESULT_BATCH 1000

typedef struct Settle
{
	bool		as_worker;		/* may settle turns */
	const pg_uuid_t *token;
	DurableSettleAction action;
	DurableLease lease;
	DurableProbe by_id;
	DurableTables tables;
	TimestampTz now;
	/* completed tasks whose results are not written yet */
	DurableRow *results;
	int			nresults;
} Settle;

/* false: the token is not known (any more), and nothing stays open */
static bool
look(Settle *settle)
{
	Snapshot	snapshot = durable_snapshot_push();

	if (!durable_lease_find(settle->token, &settle->lease) ||
		settle->lease.kind != LEASE_OF_TASKS)
	{
		durable_snapshot_pop();
		return false;
	}
	durable_task_open_by_id(&settle->by_id, snapshot);
	return true;
}

static void
look_away(Settle *settle)
{
	durable_probe_close(&settle->by_id);
	durable_snapshot_pop();
}

static void
flush_results(Settle *settle)
{
	if (settle->nresults == 0)
		return;
	durable_writer_insert_many(durable_tables_get(&settle->tables, TABLE_RESULT),
							   settle->results, settle->nresults);
	settle->nresults = 0;
}

/* The row's own texts live in the probe's slot; a queued result needs copies. */
static void
copy_references(DurableRow *row, int first, int last)
{
	for (int i = first; i <= last; i++)
	{
		if (!row->nulls[i])
			row->values[i] = datumCopy(row->values[i], false, -1);
	}
}

static TM_Result
complete_in_batch(Settle *settle, DurableRow *task, const DurableOutcome *outcome)
{
	DurableRow *row;
	TM_Result	result =
		durable_writer_delete(durable_tables_get(&settle->tables, TABLE_TASK),
							  &task->tid, true);

	if (result != TM_Ok)
		return result;
	durable_limiter_leave(&settle->tables, task);
	if (settle->nresults == RESULT_BATCH)
		flush_results(settle);
	row = &settle->results[settle->nresults++];
	durable_result_of(task, outcome, settle->now, row);
	copy_references(row, RESULT_NAMESPACE, RESULT_TASK_ID);
	return TM_Ok;
}

static TM_Result
act(Settle *settle, DurableRow *task, DurableTarget *target)
{
	DurableOutcome outcome = {
		.status = TASK_COMPLETED, .output = target->output, .events = target->events
	};

	switch (settle->action)
	{
		case SETTLE_COMPLETE:
			/* what was done is not what is asked for any more */
			if (durable_task_was_replaced(task))
				return durable_outcome_requeue(&settle->tables, task, settle->lease.id,
											   settle->now, settle->now, true);
			if (settle->results != NULL && durable_task_is(task, "task"))
				return complete_in_batch(settle, task, &outcome);
			return durable_outcome_end(&settle->tables, task, &outcome,
									   settle->now, true);
		case SETTLE_FAIL:
			return durable_outcome_failed(&settle->tables, task, settle->lease.id, target->error,
										  target->events, settle->now, true);
		case SETTLE_RELEASE:
			return durable_outcome_requeue(&settle->tables, task, settle->lease.id, settle->now,
										   settle->now, true);
	}
	return TM_Deleted;
}

/* The target's row, if the round holds it. A number's public form does not name
 * a task that has an id of its own. */
static bool
find_held(Settle *settle, const DurableTarget *target, DurableRow *task)
{
	int64		id;

	return durable_lease_holds(&settle->lease, target->id) &&
		durable_task_find_number(&settle->by_id, target->id, task) &&
		durable_task_held_by(task, settle->lease.id) &&
		(settle->as_worker || settle->action == SETTLE_RELEASE ||
		 !durable_task_is(task, "turn")) &&
		(target->task_id == NULL ||
		 durable_task_id_generated(target->task_id, &id) == task->nulls[TASK_TASK_ID]);
}

/* Whether the task is a step of a run, by whose number it is put in order. */
static bool
comes_later(const DurableRow *task, DurableTarget *target)
{
	return durable_task_is(task, "step") &&
		durable_run_number_supposed(DatumGetTextPP(task->values[TASK_RUN_ID]), &target->run);
}

/* Looks again under a new snapshot as long as others change the task first. "alone":
 * steps of runs are only noted. */
static bool
settle_one(Settle *settle, DurableTarget *target, bool alone, bool *looking)
{
	while (*looking)
	{
		DurableRow	task;
		TM_Result	result;

		CHECK_FOR_INTERRUPTS();
		if (!find_held(settle, target, &task))
			return false;
		if (alone && comes_later(&task, target))
			return false;
		result = act(settle, &task, target);
		if (result == TM_Ok)
			return true;
		if (result != TM_Updated)
			return false;
		look_away(settle);
		*looking = look(settle);
	}
	return false;
}

static int
compare_targets(const void *a, const void *b)
{
	int64		x = ((const DurableTarget *) a)->id;
	int64		y = ((const DurableTarget *) b)->id;

	return (x > y) - (x < y);
}

/* Explicit ids become numbers, so that rows are locked in one order. An id
 * that is not there gets 0, which no round holds. */
static void
number_targets(Settle *settle, DurableTarget *targets, int n)
{
	DurableProbe by_task_id;
	bool		open = false;

	for (int i = 0; i < n; i++)
	{
		Datum		keys[2];
		DurableRow	row;

		if (targets[i].task_id == NULL ||
			durable_task_id_generated(targets[i].task_id, &targets[i].id))
			continue;
		if (!open)
			durable_task_open_by_task_id(&by_task_id, GetActiveSnapshot());
		open = true;
		keys[0] = PointerGetDatum(settle->lease.namespace);
		keys[1] = PointerGetDatum(targets[i].task_id);
		targets[i].id = durable_probe_find(&by_task_id, keys, &row) ?
			DatumGetInt64(row.values[TASK_ID]) : 0;
	}
	if (open)
		durable_probe_close(&by_task_id);
	qsort(targets, n, sizeof(DurableTarget), compare_targets);
}

/* Gone with its last task; if somebody renews it at this moment it lapses later
 * and is found empty. */
static void
end_round(Settle *settle)
{
	(void) durable_lease_delete(&settle->lease, false);
}

/* Most workers settle a round in its order: with the youngest task they have
 * probably settled all, and then a look is worth it. */
static bool
was_last(Settle *settle, const DurableTarget *targets, int n)
{
	bool		last = false;

	if (targets[n - 1].settled &&
		targets[n - 1].id == settle->lease.ids[settle->lease.nids - 1])
	{
		last = durable_task_count_held(settle->lease.ids, settle->lease.nids,
									   settle->lease.id, durable_snapshot_push()) == 0;
		durable_snapshot_pop();
	}
	return last;
}

static int
compare_runs(const void *a, const void *b)
{
	const DurableTarget *x = *(const DurableTarget *const *) a;
	const DurableTarget *y = *(const DurableTarget *const *) b;

	if (x->run != y->run)
		return x->run > y->run ? 1 : -1;
	return (x->id > y->id) - (x->id < y->id);
}

/* The steps among them, which settle_one() has noted, by run. */
static int
settle_steps(Settle *settle, DurableTarget *targets, int n, bool *looking)
{
	DurableTarget **steps = palloc(sizeof(DurableTarget *) * n);
	int			nsteps = 0;
	int			settled = 0;

	for (int i = 0; i < n; i++)
	{
		if (targets[i].run != 0)
			steps[nsteps++] = &targets[i];
	}
	qsort(steps, nsteps, sizeof(DurableTarget *), compare_runs);
	for (int i = 0; i < nsteps; i++)
	{
		steps[i]->settled = settle_one(settle, steps[i], false, looking);
		settled += steps[i]->settled;
	}
	pfree(steps);
	return settled;
}

static int
settle_targets(Settle *settle, DurableTarget *targets, int n)
{
	bool		looking = true;
	bool		several = settle->action == SETTLE_COMPLETE && n > 1;
	int			settled = 0;

	if (several)
		settle->results = palloc(sizeof(DurableRow) * Min(n, RESULT_BATCH));
	for (int i = 0; i < n; i++)
	{
		targets[i].run = 0;
		targets[i].settled = settle_one(settle, &targets[i], several, &looking);
		settled += targets[i].settled;
	}
	if (several)
		settled += settle_steps(settle, targets, n, &looking);
	flush_results(settle);
	durable_tables_close(&settle->tables);
	if (looking)
	{
		if (settled > 0 &&
			(settled == settle->lease.nids || was_last(settle, targets, n)))
			end_round(settle);
		look_away(settle);
	}
	CommandCounterIncrement();
	return settled;
}

static int
settle_checked(const pg_uuid_t *token, DurableSettleAction action, DurableTarget *targets,
			   int n, bool check)
{
	Settle		settle = {
		.token = token, .action = action, .as_worker = !check, .now = durable_clock_now()
	};

	durable_tables_init(&settle.tables);
	if (!look(&settle))
		return 0;
	if (check)
		durable_access_require(settle.lease.namespace, PRIVILEGE_WORK);
	number_targets(&settle, targets, n);
	return settle_targets(&settle, targets, n);
}

int
durable_settle(const pg_uuid_t *token, DurableSettleAction action,
			   DurableTarget *targets, int n)
{
	return settle_checked(token, action, targets, n, true);
}

int
durable_settle_as_worker(const pg_uuid_t *token, DurableSettleAction action,
						 DurableTarget *targets, int n)
{
	return settle_checked(token, action, targets, n, false);
}

bool
durable_settle_one(const DurableLease *lease, DurableSettleAction action, DurableTarget *target)
{
	Settle		settle = {
		.token = &lease->token, .action = action, .lease = *lease, .now = durable_clock_now()
	};
	TM_Result	result = TM_Updated;

	durable_tables_init(&settle.tables);
	while (result == TM_Updated)
	{
		DurableRow	task;

		CHECK_FOR_INTERRUPTS();
		durable_task_open_by_id(&settle.by_id, durable_snapshot_push());
		result = find_held(&settle, target, &task) ? act(&settle, &task, target) : TM_Deleted;
		look_away(&settle);
	}
	durable_tables_close(&settle.tables);
	CommandCounterIncrement();
	return result == TM_Ok;
}

void
durable_settle_end_round(const DurableLease *lease)
{
	DurableLease current;

	durable_snapshot_push();
	if (durable_task_count_held(lease->ids, lease->nids, lease->id, GetActiveSnapshot()) == 0 &&
		durable_lease_find(&lease->token, &current))
		(void) durable_lease_delete(&current, false);
	durable_snapshot_pop();
}

int
durable_release_all(const pg_uuid_t *token)
{
	Settle		settle = {.token = token, .action = SETTLE_RELEASE, .as_worker = true, .now = durable_clock_now()};
	DurableTarget *targets;
	int			n;

	durable_tables_init(&settle.tables);
	if (!look(&settle))
		return 0;
	durable_access_require(settle.lease.namespace, PRIVILEGE_WORK);
	n = settle.lease.nids;
	targets = palloc0(sizeof(DurableTarget) * Max(n, 1));
	for (int i = 0; i < n; i++)
		targets[i].id = settle.lease.ids[i];
	return settle_targets(&settle, targets, n);
}

/* Exact, and cheap for a round whose numbers lie together, as they mostly do:
 * the tasks are then read as one range. */
static int
count_held(const DurableLease *lease)
{
	int			held;

	if (lease->kind == LEASE_OF_RESULTS)
	{
		durable_plan_begin();
		held = durable_result_count_held(lease->id,
										 durable_ids_to_array(lease->ids, lease->nids));
		durable_plan_end();
		return held;
	}
	return durable_task_count_held(lease->ids, lease->nids, lease->id, GetActiveSnapshot());
}

int
durable_renew_lease(const pg_uuid_t *token, const Interval *span)
{
	for (;;)
	{
		DurableLease lease;
		TM_Result	result = TM_Deleted;
		int			held = 0;

		CHECK_FOR_INTERRUPTS();
		durable_snapshot_push();
		if (durable_lease_find(token, &lease))
		{
			durable_access_require(lease.namespace,
								   lease.kind == LEASE_OF_TASKS ?
								   PRIVILEGE_WORK : PRIVILEGE_START);
			held = count_held(&lease);
			lease.until = durable_lease_until(durable_clock_now(), span);
			if (held > 0)
				result = durable_lease_update(&lease, true);
		}
		durable_snapshot_pop();
		if (result == TM_Ok || held == 0)
			return held;
	}
}

static bool
token_holds(const pg_uuid_t *token, text *task_id, bool turn, int64 *id, DurableLease *lease,
			int64 *least)
{
	Settle		settle = {.token = token, .as_worker = true};
	DurableTarget target = {.task_id = task_id};
	DurableRow	row;
	bool		holds;

	if (!look(&settle))
		return false;
	durable_access_require(settle.lease.namespace, PRIVILEGE_WORK);
	number_targets(&settle, &target, 1);
	holds = find_held(&settle, &target, &row) && (!turn || durable_task_is(&row, "turn"));
	if (holds && least != NULL)
		*least = durable_timeout_beat(&row, (int64) durable_heartbeat_interval * 1000);
	look_away(&settle);
	*id = target.id;
	*lease = settle.lease;
	return holds;
}

bool
durable_token_holds(const pg_uuid_t *token, text *task_id, int64 *id, TimestampTz *since,
					int64 *least)
{
	DurableLease lease;
	bool		holds = token_holds(token, task_id, false, id, &lease, least);

	if (holds)
		*since = lease.claimed_at;
	return holds;
}

bool
durable_token_holds_turn(const pg_uuid_t *token, text *task_id, int64 *run, DurableLease *lease)
{
	return token_holds(token, task_id, true, run, lease, NULL);
}

/*
 * The list entry goes first: a transaction that claims a task and settles it
 * has the entry before the row, too. So this is called twice, with tid invalid
 * to take the entry and learn the row's version, and then to end that version:
 * a newer one has been listed again. *result is what became of the row.
 */
static bool
try_cancel(text *namespace, text *task_id, ItemPointer tid, TM_Result *result)
{
	DurableOutcome outcome = {.status = TASK_CANCELLED};
	DurableTables tables;
	DurableProbe by_id;
	DurableProbe by_task_id;
	DurableRow	task;
	Snapshot	snapshot = durable_snapshot_push();
	bool		found;

	durable_tables_init(&tables);
	durable_task_open_by_id(&by_id, snapshot);
	durable_task_open_by_task_id(&by_task_id, snapshot);
	found = durable_task_find(&by_id, &by_task_id, namespace, task_id, &task);
	*result = TM_Updated;
	/* steps and turns end with their run */
	found = found && durable_task_is(&task, "task");
	if (found && !ItemPointerIsValid(tid))
	{
		(void) durable_outcome_unlist(&task, 0);
		*tid = task.tid;
	}
	else if (found && ItemPointerEquals(tid, &task.tid))
		*result = durable_outcome_end(&tables, &task, &outcome, durable_clock_now(), true);
	durable_tables_close(&tables);
	durable_probe_close(&by_task_id);
	durable_probe_close(&by_id);
	durable_snapshot_pop();
	return found;
}

bool
durable_cancel(text *namespace, text *task_id)
{
	TM_Result	result = TM_Updated;

	while (result == TM_Updated)
	{
		ItemPointerData tid;

		CHECK_FOR_INTERRUPTS();
		ItemPointerSetInvalid(&tid);
		if (!try_cancel(namespace, task_id, &tid, &result) ||
			!try_cancel(namespace, task_id, &tid, &result))
			return false;
	}
	return result == TM_Ok;
}
