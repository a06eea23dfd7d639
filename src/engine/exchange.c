/*-------------------------------------------------------------------------
 *
 * exchange.c
 *	  What a worker has done since it last asked: of any claims, in one command.
 *
 * Lock order: the keys of starts that are counted; tasks of their own first, then what belongs to runs, by run and within
 * it by number. Where runs end that others wait for, those and all of ours are locked before that, ascending. The leases are read once. That holds for the whole command, since a
 * lease's list does not change, and whether a task has left it is told by the task's
 * row, which is read anew for each.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "base/ids.h"
#include "base/rel.h"
#include "base/security.h"
#include "engine/decision.h"
#include "engine/exchange.h"
#include "engine/run.h"
#include "store/run.h"
#include "store/task.h"

/* The command that starts a child. */
#define START_CHILD "start_child"
/* The status of a decision that does not end its run. */
#define GOES_ON "continue"

static const DurableLease *
read_lease(const pg_uuid_t *token)
{
	DurableLease *lease = palloc(sizeof(DurableLease));

	if (!durable_lease_find(token, lease) || lease->kind != LEASE_OF_TASKS)
		return NULL;
	durable_access_require(lease->namespace, PRIVILEGE_WORK);
	return lease;
}

static int
compare_tokens(const void *a, const void *b)
{
	const DurableExchangeItem *x = a;
	const DurableExchangeItem *y = b;
	int			result = memcmp(&x->token, &y->token, UUID_LEN);

	return result != 0 ? result : x->index - y->index;
}

/* Those of one claim are of one lease. */
static void
find_leases(DurableExchangeItem *items, int n)
{
	qsort(items, n, sizeof(DurableExchangeItem), compare_tokens);
	for (int i = 0; i < n; i++)
	{
		bool		same = i > 0 && memcmp(&items[i].token, &items[i - 1].token, UUID_LEN) == 0;

		items[i].lease = same ? items[i - 1].lease : read_lease(&items[i].token);
	}
}

static bool
find_task(const DurableExchangeItem *item, DurableProbe *by_id, DurableProbe *by_task_id,
		  DurableRow *task)
{
	return durable_task_find(by_id, by_task_id, item->lease->namespace, item->target.task_id,
							 task);
}

/* What each item is about. One whose task is not there has no lease any more. The run of a
 * step is looked at, with its id, when it is locked. */
static void
find_tasks(DurableExchangeItem *items, int n)
{
	DurableProbe by_id;
	DurableProbe by_task_id;

	durable_task_open_by_id(&by_id, GetActiveSnapshot());
	durable_task_open_by_task_id(&by_task_id, GetActiveSnapshot());
	for (int i = 0; i < n; i++)
	{
		DurableExchangeItem *item = &items[i];
		DurableRow	task;

		if (item->lease == NULL)
			continue;
		if (!find_task(item, &by_id, &by_task_id, &task))
		{
			item->lease = NULL;
			continue;
		}
		item->target.id = DatumGetInt64(task.values[TASK_ID]);
		item->is_turn = durable_task_is(&task, "turn");
		if (item->is_turn)
			item->run = item->target.id;
		else if (durable_task_is(&task, "step"))
			(void) durable_run_number_supposed(DatumGetTextPP(task.values[TASK_RUN_ID]), &item->run);
		if (item->run != 0)
			item->run_id = DatumGetTextPCopy(task.values[TASK_RUN_ID]);
	}
	durable_probe_close(&by_task_id);
	durable_probe_close(&by_id);
}

static int
compare_places(const void *a, const void *b)
{
	const DurableExchangeItem *x = a;
	const DurableExchangeItem *y = b;

	if (x->run != y->run)
		return x->run > y->run ? 1 : -1;
	if (x->target.id != y->target.id)
		return x->target.id > y->target.id ? 1 : -1;
	return x->index - y->index;
}

/* A token begins with its lease's number. Who holds the step may do this, so the rest of
 * the turn's token need not be known any more. */
static int64
lease_number(const pg_uuid_t *token)
{
	uint64		number;

	memcpy(&number, token->data, sizeof(number));
	return (int64) pg_ntoh64(number);
}

static void
fill_after(const DurableExchangeItem *item, DurableAfterStep *after)
{
	*after = (DurableAfterStep) {
		.task = item->target.id, .lease = item->lease, .output = item->target.output,
		.turn_lease = lease_number(&item->turn_token), .history_end = item->history_end
	};
}

static bool
decide_after(DurableExchangeItem *item, DurableFresh *fresh)
{
	DurableAfterStep after;

	fill_after(item, &after);
	return item->has_turn && !item->failed && item->run != 0 &&
		durable_decide_after(item->run, &after, item->decision, fresh);
}

/* Whether its decision may start children; the strings of a jsonb are in it as they are. */
static bool
may_start(const DurableExchangeItem *item)
{
	return item->lease != NULL && item->run != 0 && item->decision != NULL && !item->failed &&
		memmem(item->decision, VARSIZE(item->decision), START_CHILD, strlen(START_CHILD)) != NULL;
}

/* Starts that are counted may wait for somebody, so it is done before any run is held. */
static void
prepare_starts(const DurableExchangeItem *item)
{
	DurableAfterStep after;

	fill_after(item, &after);
	durable_decide_prepare(item->run, item->lease, item->has_turn ? &after : NULL,
						   item->decision);
}

/* Unless there is something wrong with its decision. */
static bool
ends_run(const DurableExchangeItem *item)
{
	JsonbValue	space;
	JsonbValue *status;

	if (item->lease == NULL || item->decision == NULL || item->failed ||
		!JB_ROOT_IS_OBJECT(item->decision))
		return false;
	status = getKeyJsonValueFromContainer(&item->decision->root, "status", strlen("status"), &space);
	return status != NULL && status->type == jbvString &&
		(status->val.string.len != strlen(GOES_ON) ||
		 memcmp(status->val.string.val, GOES_ON, status->val.string.len) != 0);
}

/*
 * The end of a child locks the run that waits for it, too, which may have any number: of
 * several ends, and other items, in one call that would be in no order, and two workers
 * that end the children of two runs would meet. So then all are locked at first.
 */
static void
lock_runs(const DurableExchangeItem *items, int n)
{
	int64	   *runs;
	int			nruns = 0;
	bool		told = false;

	/* somebody may be about to wait for the first time: then it is as if this were not here */
	if (durable_table_is_unused(REL_WAITER))
		return;
	runs = palloc(sizeof(int64) * 2 * n);
	for (int i = 0; i < n; i++)
	{
		int64		waiting = 0;

		CHECK_FOR_INTERRUPTS();
		if (ends_run(&items[i]))
			waiting = durable_run_waiting(items[i].lease->namespace, items[i].run_id);
		if (items[i].lease != NULL)
			runs[nruns++] = items[i].run;
		if (waiting != 0)
			runs[nruns++] = waiting;
		told = told || waiting != 0;
	}
	if (told)
		durable_ids_sort(runs, nruns);
	durable_snapshot_push();
	for (int i = 0; i < nruns && told; i++)
	{
		DurableRun	run;

		CHECK_FOR_INTERRUPTS();
		if ((i == 0 || runs[i] != runs[i - 1]) && durable_run_open(&run, runs[i], true) == TM_Ok)
			durable_run_close(&run);
	}
	durable_snapshot_pop();
	pfree(runs);
}

static DurableExchanged
settle(DurableExchangeItem *item, DurableFresh *fresh)
{
	if (item->lease == NULL || !durable_lease_holds(item->lease, item->target.id))
		return EXCHANGE_LOST;
	if (item->is_turn)
		return item->decision != NULL && !item->has_turn &&
			durable_decide(item->run, item->lease, item->decision, fresh) ?
			EXCHANGE_SETTLED : EXCHANGE_LOST;
	if (item->decision != NULL && !item->has_turn)
		return EXCHANGE_LOST;
	if (decide_after(item, fresh))
		return EXCHANGE_DECIDED;
	return durable_settle_one(item->lease, item->failed ? SETTLE_FAIL : SETTLE_COMPLETE,
							  &item->target) ? EXCHANGE_SETTLED : EXCHANGE_LOST;
}

/* Rounds that were settled in their order, as most are, have ended with their youngest
 * task. Turns look after it themselves. */
static void
end_rounds(const DurableExchangeItem *items, int n)
{
	for (int i = 0; i < n; i++)
	{
		const DurableLease *lease = items[i].lease;

		if (items[i].result != EXCHANGE_LOST && !items[i].is_turn &&
			lease->ids[lease->nids - 1] == items[i].target.id)
			durable_settle_end_round(lease);
	}
}

void
durable_exchange(DurableExchangeItem *items, int n, DurableFresh *fresh)
{
	MemoryContext before = CurrentMemoryContext;
	MemoryContext scratch = AllocSetContextCreate(before, "durable exchange",
												  ALLOCSET_DEFAULT_SIZES);

	durable_snapshot_push();
	find_leases(items, n);
	find_tasks(items, n);
	durable_snapshot_pop();
	qsort(items, n, sizeof(DurableExchangeItem), compare_places);
	for (int i = 0; i < n && n > 1; i++)
	{
		CHECK_FOR_INTERRUPTS();
		MemoryContextSwitchTo(scratch);
		if (may_start(&items[i]))
			prepare_starts(&items[i]);
		MemoryContextSwitchTo(before);
		MemoryContextReset(scratch);
	}
	for (int i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		MemoryContextSwitchTo(scratch);
		/* from here on they belong to runs */
		if (items[i].run != 0 && (i == 0 || items[i - 1].run == 0) && i + 1 < n)
			lock_runs(&items[i], n - i);
		items[i].result = settle(&items[i], fresh);
		MemoryContextSwitchTo(before);
		MemoryContextReset(scratch);
	}
	end_rounds(items, n);
	MemoryContextDelete(scratch);
}
