/*-------------------------------------------------------------------------
 *
 * deadline.c
 *	  durable.task_deadline: when steps that have a timeout have to be looked at.
 *
 * The index (namespace, queue, due_at, id) is a list in order of time; see due.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/wakeup.h"
#include "store/deadline.h"
#include "store/ready.h"

#define DEADLINE_LIST "deadline"

enum
{
	DEADLINE_ID,
	DEADLINE_DUE_AT,
	DEADLINE_LEASE,
	DEADLINE_NAMESPACE,
	DEADLINE_QUEUE,
	DEADLINE_COLUMNS
};

static void
fill_row(DurableRow *row, int64 id, TimestampTz due_at, int64 lease, text *namespace,
		 text *queue)
{
	durable_row_set(row, DEADLINE_ID, Int64GetDatum(id));
	durable_row_set(row, DEADLINE_DUE_AT, TimestampTzGetDatum(due_at));
	if (lease == 0)
		durable_row_set_null(row, DEADLINE_LEASE);
	else
		durable_row_set(row, DEADLINE_LEASE, Int64GetDatum(lease));
	durable_row_set(row, DEADLINE_NAMESPACE, PointerGetDatum(namespace));
	durable_row_set(row, DEADLINE_QUEUE, PointerGetDatum(queue));
}

/* One of those who wait for work there may have to wake earlier now. */
static void
announce(TimestampTz due_at, text *namespace, text *queue)
{
	DurableKey	list;
	DurableKey	waiters;

	if (durable_shared == NULL)
		return;
	list = durable_list_key(DEADLINE_LIST, namespace, queue);
	durable_hint_inserted(&list, 0, due_at, due_at);
	durable_wakeup_note_due(due_at);
	waiters = durable_queue_key(namespace, queue);
	durable_wakeup_note(&waiters, 1);
}

void
durable_deadline_insert_many(const int64 *ids, int n, TimestampTz due_at, text *namespace,
							 text *queue)
{
	DurableWriter writer;
	DurableRow *rows = palloc(sizeof(DurableRow) * n);

	for (int i = 0; i < n; i++)
		fill_row(&rows[i], ids[i], due_at, 0, namespace, queue);
	durable_writer_open(&writer, REL_TASK_DEADLINE);
	durable_writer_insert_many(&writer, rows, n);
	durable_writer_close(&writer);
	announce(due_at, namespace, queue);
	pfree(rows);
}

bool
durable_deadline_insert(const DurableDeadline *deadline, text *namespace, text *queue)
{
	DurableWriter writer;
	DurableRow	row;
	bool		inserted;

	fill_row(&row, deadline->id, deadline->due_at, deadline->lease, namespace, queue);
	durable_writer_open(&writer, REL_TASK_DEADLINE);
	inserted = durable_writer_insert_unless(&writer, IDX_DEADLINE_PKEY, &row);
	durable_writer_close(&writer);
	if (inserted)
		announce(deadline->due_at, namespace, queue);
	return inserted;
}

static bool
find(DurableProbe *probe, int64 id, DurableRow *row)
{
	Datum		key = Int64GetDatum(id);

	durable_probe_open(probe, REL_TASK_DEADLINE, IDX_DEADLINE_PKEY,
					   durable_snapshot_push(), 1);
	return durable_probe_find(probe, &key, row);
}

static void
end_find(DurableProbe *probe)
{
	durable_probe_close(probe);
	durable_snapshot_pop();
}

TM_Result
durable_deadline_set(int64 id, TimestampTz due_at, int64 lease)
{
	DurableProbe probe;
	DurableRow	row;
	TM_Result	result = TM_Deleted;

	if (find(&probe, id, &row))
	{
		DurableWriter writer;
		text	   *namespace = DatumGetTextPP(row.values[DEADLINE_NAMESPACE]);
		text	   *queue = DatumGetTextPP(row.values[DEADLINE_QUEUE]);

		fill_row(&row, id, due_at, lease, namespace, queue);
		durable_writer_open(&writer, REL_TASK_DEADLINE);
		result = durable_writer_update(&writer, &row, false);
		durable_writer_close(&writer);
		if (result == TM_Ok)
			announce(due_at, namespace, queue);
	}
	end_find(&probe);
	return result;
}

void
durable_deadline_remove(int64 id)
{
	DurableProbe probe;
	DurableRow	row;

	if (find(&probe, id, &row))
	{
		DurableWriter writer;

		durable_writer_open(&writer, REL_TASK_DEADLINE);
		/* a row that was set in this transaction is locked by it, too: a deletion
		 * that does not wait would not get past that */
		if (durable_writer_lock(&writer, &row.tid, false, true, NULL) == TM_Ok)
			(void) durable_writer_delete(&writer, &row.tid, true);
		durable_writer_close(&writer);
	}
	end_find(&probe);
}

bool
durable_deadline_begin(DurableDueScan *scan, text *namespace, text *queue, TimestampTz now)
{
	return durable_due_begin(scan, DEADLINE_LIST, REL_TASK_DEADLINE, IDX_DEADLINE_DUE,
							 namespace, queue, now);
}

bool
durable_deadline_next(DurableDueScan *scan, DurableDeadline *deadline)
{
	DurableRow	row;

	if (!durable_due_next(scan))
		return false;
	durable_slot_row(scan->walk.slot, &row);
	deadline->id = DatumGetInt64(row.values[DEADLINE_ID]);
	deadline->due_at = DatumGetTimestampTz(row.values[DEADLINE_DUE_AT]);
	deadline->lease = row.nulls[DEADLINE_LEASE] ? 0 : DatumGetInt64(row.values[DEADLINE_LEASE]);
	deadline->tid = row.tid;
	return true;
}

int
durable_deadline_lists(DurableListName **lists)
{
	return durable_list_names(REL_TASK_DEADLINE, IDX_DEADLINE_DUE, DEADLINE_NAMESPACE, DEADLINE_QUEUE, lists);
}
