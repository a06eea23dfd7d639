/*-------------------------------------------------------------------------
 *
 * delayed.c
 *	  durable.task_delayed: the ids whose time has not come.
 *
 * The index (run_at, id) is a list with a hint like any other, and here the
 * hint is also the alarm clock: it stands at the first row that is alive, so a
 * hint in the future means that nothing is due.
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

#include "base/wakeup.h"
#include "store/delayed.h"
#include "store/ready.h"

static DurableKey
delayed_key(void)
{
	DurableKey	none = {{0, 0}, InvalidOid};

	return durable_shared == NULL ? none : durable_key("delayed", NULL, 0, NULL, 0);
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
	list = delayed_key();
	durable_hint_inserted(&list, 0, run_at);
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
durable_delayed_remove(int64 id, TimestampTz run_at)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		keys[2] = {TimestampTzGetDatum(run_at), Int64GetDatum(id)};
	bool		removed = false;

	durable_probe_open(&probe, REL_TASK_DELAYED, IDX_DELAYED_DUE,
					   GetActiveSnapshot(), 2);
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
durable_delayed_scan_open(DurableDelayedScan *scan, Snapshot snapshot, TimestampTz now)
{
	DurableKey	list = delayed_key();
	DurableHint hint;
	ScanKeyData key;

	durable_hint_begin(&hint, &list, 0);
	scan->now = now;
	scan->patience = DURABLE_WALK_PATIENCE;
	scan->next = hint.start;
	if (hint.start > now)
		return false;
	durable_walk_open(&scan->walk, REL_TASK_DELAYED, IDX_DELAYED_DUE, snapshot, 1, 1);
	ScanKeyInit(&key, 1, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE,
				TimestampTzGetDatum(hint.start));
	durable_walk_start(&scan->walk, &key, &hint);
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
