/*-------------------------------------------------------------------------
 *
 * maintain.c
 *	  What becomes due by itself: delayed tasks, lapsed claims, old results.
 *
 * Every claim calls this first, so a queue needs no process of its own. Scan
 * hints make the calls that find nothing cost nothing; without shared memory
 * each is one descent of a small index.
 *
 * Locks: rows of task_delayed, or a lease and then its tasks. Nothing here
 * waits for a row lock: what somebody holds is left for the next pass. That is
 * also why taking a lease before its tasks cannot deadlock with settling,
 * which takes the task first.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/ids.h"
#include "base/plan.h"
#include "engine/maintain.h"
#include "engine/outcome.h"
#include "store/delayed.h"
#include "store/lease.h"
#include "store/ready.h"
#include "store/task.h"

/* Claim rounds looked at in one pass. */
#define LEASES_PER_PASS 100

int
durable_promote_due(TimestampTz now, int max, TimestampTz *next)
{
	DurableDelayedScan scan;
	DurableTables tables;
	DurableRow	row;
	int			promoted = 0;
	bool		open;

	durable_tables_init(&tables);
	open = durable_delayed_scan_open(&scan, durable_snapshot_push(), now);
	while (open && promoted < max && durable_delayed_scan_next(&scan, &row))
	{
		DurableWriter *delayed = durable_tables_get(&tables, TABLE_DELAYED);

		if (durable_writer_delete(delayed, &row.tid, false) != TM_Ok)
			continue;
		durable_ready_insert(durable_tables_get(&tables, TABLE_READY),
							 DatumGetInt64(row.values[DELAYED_ID]),
							 DatumGetInt32(row.values[DELAYED_PRIORITY]),
							 DatumGetTextPP(row.values[DELAYED_NAMESPACE]),
							 DatumGetTextPP(row.values[DELAYED_QUEUE]));
		promoted++;
	}
	if (open)
		durable_delayed_scan_close(&scan);
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
		if (durable_outcome_lapsed(tables, &row, now, false) == TM_Ok)
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

/* 0 when another transaction works on the lease */
static int
take_over(DurableTables *tables, DurableLease *lease, TimestampTz now)
{
	int			taken;
	int			listed;

	if (!durable_lease_lock(lease))
		return 0;
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
		(void) durable_lease_update(lease, true);
	durable_snapshot_pop();
	return taken;
}

int
durable_take_over_lapsed(TimestampTz now, int max, TimestampTz *next)
{
	DurableLapsedScan scan;
	DurableLease leases[LEASES_PER_PASS];
	DurableTables tables;
	int			nleases = 0;
	int			taken = 0;

	if (durable_lapsed_scan_open(&scan, durable_snapshot_push(), now))
	{
		while (nleases < LEASES_PER_PASS &&
			   durable_lapsed_scan_next(&scan, &leases[nleases]))
			nleases++;
		durable_lapsed_scan_close(&scan);
	}
	durable_tables_init(&tables);
	for (int i = 0; i < nleases && taken < max; i++)
		taken += take_over(&tables, &leases[i], now);
	durable_tables_close(&tables);
	durable_snapshot_pop();
	*next = scan.next;
	return taken;
}

TimestampTz
durable_maintain(TimestampTz now, int max)
{
	TimestampTz due;
	TimestampTz lapse;

	(void) durable_promote_due(now, max, &due);
	(void) durable_take_over_lapsed(now, max, &lapse);
	return Min(due, lapse);
}

/* Tasks that neither wait nor are listed by a lease are claimed by nobody:
 * leases are not part of a dump. */
static DurablePlan orphan_plan = {
	.name = "orphaned tasks",
	.sql =
	"WITH gone AS (DELETE FROM durable.lease),"
	" unread AS (UPDATE durable.task_result SET lease_id = NULL WHERE lease_id IS NOT NULL)"
	" INSERT INTO durable.task_ready (id, priority, namespace, queue)"
	" SELECT t.id, t.priority, t.namespace, t.queue FROM durable.task t"
	" WHERE NOT EXISTS (SELECT FROM durable.task_ready r"
	"  WHERE r.namespace OPERATOR(pg_catalog.=) t.namespace"
	"  AND r.queue OPERATOR(pg_catalog.=) t.queue"
	"  AND r.priority OPERATOR(pg_catalog.=) t.priority"
	"  AND r.id OPERATOR(pg_catalog.=) t.id)"
	" AND NOT EXISTS (SELECT FROM durable.task_delayed d"
	"  WHERE d.run_at OPERATOR(pg_catalog.=) t.run_at"
	"  AND d.id OPERATOR(pg_catalog.=) t.id)",
};

int64
durable_reclaim_all(TimestampTz now)
{
	int64		back;

	durable_plan_begin();
	back = (int64) durable_plan_run(&orphan_plan, NULL, NULL);
	durable_plan_end();
	return back;
}
