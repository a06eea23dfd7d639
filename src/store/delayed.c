/*-------------------------------------------------------------------------
 *
 * delayed.c
 *	  durable.task_delayed: the ids whose time has not come.
 *
 * The index is (namespace, queue, run_at, id). The delayed tasks of a queue are a
 * list with a hint like any other, and here the hint is also the alarm clock: it
 * stands at the first row that is alive, so a hint in the future means that
 * nothing is due.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/skey.h"
#include "access/stratnum.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/plan.h"
#include "base/wakeup.h"
#include "store/delayed.h"
#include "store/ready.h"

/* columns of the index */
enum
{
	DUE_NAMESPACE = 1,
	DUE_QUEUE,
	DUE_RUN_AT,
	DUE_ID,
	DUE_COLUMNS = DUE_ID
};

static DurableKey
delayed_key(const text *namespace, const text *queue)
{
	DurableKey	none = {{0, 0}, InvalidOid};

	if (durable_shared == NULL)
		return none;
	return durable_key("delayed", VARDATA_ANY(namespace), VARSIZE_ANY_EXHDR(namespace),
					   VARDATA_ANY(queue), VARSIZE_ANY_EXHDR(queue));
}

static void
fill_row(DurableRow *row, int64 id, TimestampTz run_at, int32 priority,
		 text *namespace, text *queue)
{
	durable_row_set(row, DELAYED_ID, Int64GetDatum(id));
	durable_row_set(row, DELAYED_RUN_AT, TimestampTzGetDatum(run_at));
	durable_row_set(row, DELAYED_PRIORITY, Int32GetDatum(priority));
	durable_row_set(row, DELAYED_NAMESPACE, PointerGetDatum(namespace));
	durable_row_set(row, DELAYED_QUEUE, PointerGetDatum(queue));
}

/* Waiters of the queue look again: one of them may have to wake earlier now. */
static void
announce(TimestampTz run_at, text *namespace, text *queue)
{
	DurableKey	list;
	DurableKey	waiters;

	if (durable_shared == NULL)
		return;
	list = delayed_key(namespace, queue);
	durable_hint_inserted(&list, 0, run_at, run_at);
	waiters = durable_queue_key(namespace, queue);
	durable_wakeup_note(&waiters, PG_INT32_MAX);
}

void
durable_delayed_insert(DurableWriter *writer, int64 id, TimestampTz run_at,
					   int32 priority, text *namespace, text *queue)
{
	DurableRow	row;

	fill_row(&row, id, run_at, priority, namespace, queue);
	durable_writer_insert(writer, &row);
	announce(run_at, namespace, queue);
}

void
durable_delayed_insert_many(DurableWriter *writer, const int64 *ids, int n,
							TimestampTz run_at, int32 priority,
							text *namespace, text *queue)
{
	DurableRow *rows = palloc(sizeof(DurableRow) * n);

	for (int i = 0; i < n; i++)
		fill_row(&rows[i], ids[i], run_at, priority, namespace, queue);
	durable_writer_insert_many(writer, rows, n);
	announce(run_at, namespace, queue);
	pfree(rows);
}

bool
durable_delayed_remove(int64 id, TimestampTz run_at, text *namespace, text *queue)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		keys[DUE_COLUMNS] = {
		PointerGetDatum(namespace), PointerGetDatum(queue),
		TimestampTzGetDatum(run_at), Int64GetDatum(id)
	};
	bool		removed = false;

	durable_probe_open(&probe, REL_TASK_DELAYED, IDX_DELAYED_DUE,
					   GetActiveSnapshot(), DUE_COLUMNS);
	if (durable_probe_find(&probe, keys, &row))
	{
		DurableWriter writer;

		durable_writer_open(&writer, REL_TASK_DELAYED, false);
		removed = (durable_writer_delete(&writer, &row.tid, true) == TM_Ok);
		durable_writer_close(&writer);
	}
	durable_probe_close(&probe);
	return removed;
}

bool
durable_delayed_scan_open(DurableDelayedScan *scan, Snapshot snapshot,
						  text *namespace, text *queue, TimestampTz now)
{
	DurableKey	list = delayed_key(namespace, queue);
	DurableHint hint;
	ScanKeyData keys[DUE_RUN_AT];

	durable_hint_begin(&hint, &list, 0);
	scan->now = now;
	scan->patience = DURABLE_WALK_PATIENCE;
	scan->next = hint.nholes > 0 ? hint.holes[0] : hint.start;
	if (scan->next > now && !hint.check)
		return false;
	durable_walk_open(&scan->walk, REL_TASK_DELAYED, IDX_DELAYED_DUE, snapshot,
					  DUE_RUN_AT, DUE_RUN_AT);
	ScanKeyInit(&keys[0], DUE_NAMESPACE, BTEqualStrategyNumber, F_TEXTEQ,
				PointerGetDatum(namespace));
	ScanKeyInit(&keys[1], DUE_QUEUE, BTEqualStrategyNumber, F_TEXTEQ,
				PointerGetDatum(queue));
	ScanKeyInit(&keys[2], DUE_RUN_AT, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE,
				TimestampTzGetDatum(hint.start));
	durable_walk_start(&scan->walk, keys, &hint);
	return true;
}

bool
durable_delayed_scan_next(DurableDelayedScan *scan, DurableRow *row)
{
	while (durable_walk_next(&scan->walk))
	{
		bool		visible;
		bool		later = (scan->walk.position > scan->now);

		CHECK_FOR_INTERRUPTS();
		visible = durable_walk_visible(&scan->walk);
		scan->next = scan->walk.position;
		if (later && (visible || !scan->walk.intact || --scan->patience == 0))
		{
			durable_walk_stop(&scan->walk, false);
			return false;
		}
		if (visible)
		{
			durable_slot_row(scan->walk.slot, row);
			return true;
		}
	}
	durable_walk_stop(&scan->walk, true);
	scan->next = DURABLE_POSITION_END;
	return false;
}

void
durable_delayed_scan_close(DurableDelayedScan *scan)
{
	durable_walk_close(&scan->walk);
}

/* Hops from queue to queue along the index. */
static DurablePlan lists_plan = {
	.name = "queues with delayed tasks",
	.sql =
	"WITH RECURSIVE hop AS ("
	" (SELECT d.namespace, d.queue FROM durable.task_delayed d"
	"  ORDER BY d.namespace, d.queue LIMIT 1)"
	" UNION ALL"
	" SELECT n.namespace, n.queue FROM hop CROSS JOIN LATERAL ("
	"  SELECT d.namespace, d.queue FROM durable.task_delayed d"
	"  WHERE ROW(d.namespace, d.queue) OPERATOR(pg_catalog.>) ROW(hop.namespace, hop.queue)"
	"  ORDER BY d.namespace, d.queue LIMIT 1) n)"
	" SELECT hop.namespace, hop.queue FROM hop",
};

int
durable_delayed_lists(DurableListName **lists)
{
	MemoryContext caller = CurrentMemoryContext;
	int			n;

	durable_plan_begin();
	n = (int) durable_plan_run(&lists_plan, NULL, NULL);
	*lists = MemoryContextAlloc(caller, sizeof(DurableListName) * Max(n, 1));
	for (int i = 0; i < n; i++)
	{
		(*lists)[i].namespace = durable_plan_text(i, 1, caller);
		(*lists)[i].queue = durable_plan_text(i, 2, caller);
	}
	durable_plan_end();
	return n;
}
