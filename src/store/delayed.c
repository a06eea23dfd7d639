/*-------------------------------------------------------------------------
 *
 * delayed.c
 *	  durable.task_delayed: the ids whose time has not come.
 *
 * The index (namespace, queue, run_at, id) is a list in order of time; see due.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/wakeup.h"
#include "store/delayed.h"
#include "store/ready.h"

#define DELAYED_LIST "delayed"

/* columns of the index */
enum
{
	DUE_NAMESPACE = 1,
	DUE_QUEUE,
	DUE_RUN_AT,
	DUE_ID,
	DUE_COLUMNS = DUE_ID
};

static void
fill_row(DurableRow *row, int64 id, TimestampTz run_at, int32 priority,
		 text *namespace, text *queue, const DurableLimitedBy *gate)
{
	durable_limited_by_to_row(gate, row, DELAYED_LIMITER, DELAYED_LIMITER_KEY);
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
	list = durable_list_key(DELAYED_LIST, namespace, queue);
	durable_hint_inserted(&list, 0, run_at, run_at);
	durable_wakeup_note_due(run_at);
	/* who executes a role's work looks often, or is woken by the scheduler */
	if (OidIsValid(durable_queue_owner(queue)))
		return;
	waiters = durable_queue_key(namespace, queue);
	durable_wakeup_note(&waiters, PG_INT32_MAX);
}

void
durable_delayed_insert(DurableWriter *writer, int64 id, TimestampTz run_at,
					   int32 priority, text *namespace, text *queue,
					   const DurableLimitedBy *gate)
{
	DurableRow	row;

	fill_row(&row, id, run_at, priority, namespace, queue, gate);
	durable_writer_insert(writer, &row);
	announce(run_at, namespace, queue);
}

void
durable_delayed_insert_many(DurableWriter *writer, const int64 *ids, int n,
							TimestampTz run_at, int32 priority,
							text *namespace, text *queue, const DurableLimitedBy *gate)
{
	DurableRow *rows = palloc(sizeof(DurableRow) * n);

	for (int i = 0; i < n; i++)
		fill_row(&rows[i], ids[i], run_at, priority, namespace, queue, gate);
	durable_writer_insert_many(writer, rows, n);
	announce(run_at, namespace, queue);
	pfree(rows);
}

static TM_Result
remove_entry(int64 id, TimestampTz run_at, text *namespace, text *queue, bool wait)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		keys[DUE_COLUMNS] = {
		PointerGetDatum(namespace), PointerGetDatum(queue),
		TimestampTzGetDatum(run_at), Int64GetDatum(id)
	};
	TM_Result	result = TM_Deleted;

	durable_probe_open(&probe, REL_TASK_DELAYED, IDX_DELAYED_DUE,
					   GetActiveSnapshot(), DUE_COLUMNS);
	if (durable_probe_find(&probe, keys, &row))
	{
		DurableWriter writer;

		durable_writer_open(&writer, REL_TASK_DELAYED);
		result = durable_writer_delete(&writer, &row.tid, wait);
		durable_writer_close(&writer);
	}
	durable_probe_close(&probe);
	return result;
}

bool
durable_delayed_remove(int64 id, TimestampTz run_at, text *namespace, text *queue)
{
	return remove_entry(id, run_at, namespace, queue, true) == TM_Ok;
}

TM_Result
durable_delayed_take(int64 id, TimestampTz run_at, text *namespace, text *queue)
{
	return remove_entry(id, run_at, namespace, queue, false);
}

bool
durable_delayed_begin(DurableDueScan *scan, text *namespace, text *queue, TimestampTz now)
{
	return durable_due_begin(scan, DELAYED_LIST, REL_TASK_DELAYED, IDX_DELAYED_DUE, namespace, queue, now);
}

bool
durable_delayed_next(DurableDueScan *scan, DurableRow *row)
{
	if (!durable_due_next(scan))
		return false;
	durable_slot_row(scan->walk.slot, row);
	return true;
}

int
durable_delayed_lists(DurableListName **lists)
{
	return durable_list_names(REL_TASK_DELAYED, IDX_DELAYED_DUE, DELAYED_NAMESPACE, DELAYED_QUEUE, lists);
}
