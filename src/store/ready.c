/*-------------------------------------------------------------------------
 *
 * ready.c
 *	  durable.task_ready: the ids that can be claimed now, in claim order.
 *
 * Rows are only ever inserted and deleted. The index (namespace, queue,
 * priority DESC, id) is the claim order. With shared memory the scan goes
 * priority by priority: each has a hint of its own, so that a new row of a
 * higher priority does not send the scan through the dead rows of the lower
 * ones again, and the priorities themselves are remembered, so that finding
 * them does not either. Without, it is one walk over the queue.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/skey.h"
#include "access/stratnum.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"

#include "base/guc.h"
#include "base/wakeup.h"
#include "store/due.h"
#include "store/ready.h"

/* columns of the index */
enum
{
	ORDER_NAMESPACE = 1,
	ORDER_QUEUE,
	ORDER_PRIORITY,
	ORDER_ID,
	ORDER_COLUMNS = ORDER_ID
};

DurableKey
durable_queue_key(const text *namespace, const text *queue)
{
	return durable_list_key("queue", namespace, queue);
}

static void
fill_row(DurableRow *row, int64 id, int32 priority, text *namespace, text *queue)
{
	durable_row_set(row, READY_ID, Int64GetDatum(id));
	durable_row_set(row, READY_PRIORITY, Int32GetDatum(priority));
	durable_row_set(row, READY_NAMESPACE, PointerGetDatum(namespace));
	durable_row_set(row, READY_QUEUE, PointerGetDatum(queue));
}

Oid
durable_queue_owner(const text *queue)
{
	const char *name = VARDATA_ANY(queue);
	int			length = VARSIZE_ANY_EXHDR(queue);
	Oid			owner = 0;

	if (length < 2 || name[0] != '#')
		return InvalidOid;
	for (int i = 1; i < length; i++)
	{
		if (name[i] < '0' || name[i] > '9')
			return InvalidOid;
		owner = owner * 10 + (name[i] - '0');
	}
	return owner;
}

static void
announce(text *namespace, text *queue, int32 priority, int64 first, int64 last, int count)
{
	DurableKey	key;
	Oid			owner;

	if (durable_shared == NULL)
		return;
	key = durable_queue_key(namespace, queue);
	durable_hint_inserted(&key, priority, first, last);
	durable_levels_inserted(&key, priority);
	owner = durable_queue_owner(queue);
	if (OidIsValid(owner))
		durable_wakeup_note_owner(owner, count);
	else
		durable_wakeup_note(&key, count);
}

void
durable_ready_insert(DurableWriter *writer, int64 id, int32 priority,
					 text *namespace, text *queue)
{
	DurableRow	row;

	fill_row(&row, id, priority, namespace, queue);
	/* a task that came to stand here twice would stop every claim from
	 * putting it back: once is as good */
	if (durable_writer_insert_unless(writer, IDX_READY_ORDER, &row))
		announce(namespace, queue, priority, id, id, 1);
}

/* Twice is an error, as with several: looking first, and inserting so that it can be taken
 * back, costs as much as the insertion. */
void
durable_ready_insert_new(DurableWriter *writer, int64 id, int32 priority,
						 text *namespace, text *queue)
{
	DurableRow	row;

	fill_row(&row, id, priority, namespace, queue);
	durable_writer_insert(writer, &row);
	announce(namespace, queue, priority, id, id, 1);
}

void
durable_ready_insert_many(DurableWriter *writer, const int64 *ids, int n,
						  int32 priority, text *namespace, text *queue)
{
	DurableRow *rows = palloc(sizeof(DurableRow) * n);
	int64		first = ids[0];
	int64		last = ids[0];

	for (int i = 0; i < n; i++)
	{
		fill_row(&rows[i], ids[i], priority, namespace, queue);
		first = Min(first, ids[i]);
		last = Max(last, ids[i]);
	}
	durable_writer_insert_many(writer, rows, n);
	announce(namespace, queue, priority, first, last, n);
	pfree(rows);
}

static TM_Result
remove_entry(int64 id, int32 priority, text *namespace, text *queue, bool wait)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		keys[ORDER_COLUMNS] = {
		PointerGetDatum(namespace), PointerGetDatum(queue),
		Int32GetDatum(priority), Int64GetDatum(id)
	};
	TM_Result	result = TM_Deleted;

	durable_probe_open(&probe, REL_TASK_READY, IDX_READY_ORDER,
					   GetActiveSnapshot(), ORDER_COLUMNS);
	if (durable_probe_find(&probe, keys, &row))
	{
		DurableWriter writer;

		durable_writer_open(&writer, REL_TASK_READY);
		result = durable_writer_delete(&writer, &row.tid, wait);
		durable_writer_close(&writer);
	}
	durable_probe_close(&probe);
	return result;
}

bool
durable_ready_remove(int64 id, int32 priority, text *namespace, text *queue)
{
	return remove_entry(id, priority, namespace, queue, true) == TM_Ok;
}

TM_Result
durable_ready_take(int64 id, int32 priority, text *namespace, text *queue)
{
	return remove_entry(id, priority, namespace, queue, false);
}

/* Keys for "this queue, priority <op> p, id >= first". */
static void
start_walk(DurableReadyScan *scan, StrategyNumber op, RegProcedure op_proc,
		   int32 priority, int64 first, const DurableHint *hint)
{
	ScanKeyData keys[ORDER_COLUMNS];

	ScanKeyInit(&keys[0], ORDER_NAMESPACE, BTEqualStrategyNumber, F_TEXTEQ,
				PointerGetDatum(scan->namespace));
	ScanKeyInit(&keys[1], ORDER_QUEUE, BTEqualStrategyNumber, F_TEXTEQ,
				PointerGetDatum(scan->queue));
	ScanKeyInit(&keys[2], ORDER_PRIORITY, op, op_proc, Int32GetDatum(priority));
	ScanKeyInit(&keys[3], ORDER_ID, BTGreaterEqualStrategyNumber, F_INT8GE,
				Int64GetDatum(first));
	durable_walk_start(&scan->walk, keys, hint);
}

static int32
entry_priority(DurableReadyScan *scan)
{
	bool		isnull;

	return DatumGetInt32(index_getattr(scan->walk.scan->xs_itup, ORDER_PRIORITY,
									   scan->walk.scan->xs_itupdesc, &isnull));
}

/* The first priority, below "above", that has index entries, dead or alive. */
static bool
find_level(DurableReadyScan *scan, const int32 *above, int32 *level)
{
	if (above != NULL && *above == PG_INT32_MIN)
		return false;
	if (above == NULL)
		start_walk(scan, BTLessEqualStrategyNumber, F_INT4LE, PG_INT32_MAX,
				   DURABLE_POSITION_MIN, NULL);
	else
		start_walk(scan, BTLessStrategyNumber, F_INT4LT, *above,
				   DURABLE_POSITION_MIN, NULL);
	if (!durable_walk_next(&scan->walk))
		return false;
	*level = entry_priority(scan);
	return true;
}

/* Too many priorities are not worth a hint each: then the scan goes without. */
static void
learn_levels(DurableReadyScan *scan)
{
	int32		found[DURABLE_LEVELS + 1];
	uint64		life;
	int			n = 0;

	scan->nlevels = durable_levels_begin(&scan->key, scan->levels, &life);
	if (scan->nlevels == DURABLE_LEVELS_UNKNOWN)
	{
		while (n <= DURABLE_LEVELS &&
			   find_level(scan, n == 0 ? NULL : &found[n - 1], &found[n]))
			n++;
		durable_levels_learn(&scan->key, life, found, n);
		scan->nlevels = n <= DURABLE_LEVELS ? n : DURABLE_LEVELS_TOO_MANY;
		memcpy(scan->levels, found, sizeof(scan->levels));
	}
	scan->hinted = scan->nlevels != DURABLE_LEVELS_TOO_MANY;
}

void
durable_ready_scan_open(DurableReadyScan *scan, Snapshot snapshot,
						text *namespace, text *queue)
{
	DurableKey	key = durable_queue_key(namespace, queue);

	durable_level_scan_open(scan, REL_TASK_READY, IDX_READY_ORDER, &key, snapshot,
							namespace, queue);
}

void
durable_level_scan_open(DurableReadyScan *scan, DurableRel table, DurableRel index,
						const DurableKey *key, Snapshot snapshot, text *first, text *second)
{
	scan->namespace = first;
	scan->queue = second;
	scan->key = *key;
	scan->hinted = false;
	scan->in_level = false;
	scan->exhausted = false;
	scan->next_level = 0;
	durable_walk_open(&scan->walk, table, index, snapshot, ORDER_COLUMNS, ORDER_ID);
	if (durable_shared != NULL && durable_use_scan_hints)
		learn_levels(scan);
	if (!scan->hinted)
		start_walk(scan, BTLessEqualStrategyNumber, F_INT4LE, PG_INT32_MAX,
				   DURABLE_POSITION_MIN, NULL);
}

/*
 * Begin the next priority, at its hint. The hint is begun before any of the
 * entries that it will vouch for are read. A list that is all dead is passed
 * over without a look.
 */
static bool
enter_level(DurableReadyScan *scan)
{
	DurableHint hint;

	for (;;)
	{
		if (scan->next_level == scan->nlevels)
			return false;
		scan->priority = scan->levels[scan->next_level++];
		durable_hint_begin(&hint, &scan->key, scan->priority);
		if (hint.start != DURABLE_POSITION_END || hint.nholes > 0 || hint.check)
			break;
		durable_hint_end(&hint);
	}
	start_walk(scan, BTEqualStrategyNumber, F_INT4EQ, scan->priority, hint.start, &hint);
	scan->in_level = true;
	return true;
}

bool
durable_ready_scan_next(DurableReadyScan *scan)
{
	while (!scan->exhausted)
	{
		CHECK_FOR_INTERRUPTS();
		if (scan->hinted && !scan->in_level && !enter_level(scan))
			break;
		if (!durable_walk_next(&scan->walk))
		{
			if (!scan->hinted)
				break;
			durable_walk_stop(&scan->walk, true);
			scan->in_level = false;
			continue;
		}
		if (durable_walk_visible(&scan->walk))
		{
			if (!scan->hinted)
				scan->priority = entry_priority(scan);
			scan->id = scan->walk.position;
			return true;
		}
	}
	scan->exhausted = true;
	return false;
}

void
durable_ready_scan_taken(DurableReadyScan *scan)
{
	if (scan->hinted)
		durable_hint_rescue(&scan->walk.hint, scan->id);
}

void
durable_ready_scan_close(DurableReadyScan *scan)
{
	durable_walk_close(&scan->walk);
}

bool
durable_ready_has(Snapshot snapshot, text *namespace, text *queue)
{
	DurableReadyScan scan;
	bool		found = false;

	durable_ready_scan_open(&scan, snapshot, namespace, queue);
	while (!found && durable_ready_scan_next(&scan))
		found = durable_row_is_live(scan.walk.rel, &scan.walk.slot->tts_tid);
	durable_ready_scan_close(&scan);
	return found;
}
