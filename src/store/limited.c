/*-------------------------------------------------------------------------
 *
 * limited.c
 *	  durable.task_limited: tasks that wait at a limiter, and the turns of their keys
 *	  (durable.limiter_turn, durable.limiter_blocked).
 *
 * Rows are only inserted and deleted. Entries and turns are inserted by anybody;
 * turns are deleted only by who holds the limiter's lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "access/table.h"
#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "base/compat.h"
#include "base/hint.h"
#include "base/names.h"
#include "base/plan.h"
#include "base/walk.h"
#include "store/due.h"
#include "store/limited.h"

#define TURN_LIST "turn"

enum
{
	LIMITED_ID,
	LIMITED_LIMITER,
	LIMITED_PRIORITY,
	LIMITED_NAMESPACE,
	LIMITED_QUEUE,
	LIMITED_KEY,
	LIMITED_COLUMNS
};

/* columns of its index */
enum
{
	ENTRY_LIMITER = 1,
	ENTRY_KEY,
	ENTRY_QUEUE,
	ENTRY_PRIORITY,
	ENTRY_ID,
	ENTRY_COLUMNS = ENTRY_ID
};

enum
{
	TURN_POSITION,
	TURN_HEAD,
	TURN_PRIORITY,
	TURN_LIST_ID,
	TURN_QUEUE,
	TURN_KEY,
	TURN_COLUMNS
};

enum
{
	BLOCKED_LIMITER,
	BLOCKED_N,
	BLOCKED_HEAD,
	BLOCKED_PRIORITY,
	BLOCKED_QUEUE,
	BLOCKED_KEY,
	BLOCKED_COLUMNS
};

void
durable_limited_insert(DurableWriter *writer, const DurableLimitedBy *gate, const int64 *ids, int n,
					   int32 priority, text *namespace, text *queue)
{
	DurableRow *rows = palloc(sizeof(DurableRow) * n);

	for (int i = 0; i < n; i++)
	{
		durable_row_set(&rows[i], LIMITED_ID, Int64GetDatum(ids[i]));
		durable_row_set(&rows[i], LIMITED_LIMITER, Int64GetDatum(gate->limiter));
		durable_row_set(&rows[i], LIMITED_PRIORITY, Int32GetDatum(priority));
		durable_row_set(&rows[i], LIMITED_NAMESPACE, PointerGetDatum(namespace));
		durable_row_set(&rows[i], LIMITED_QUEUE, PointerGetDatum(queue));
		durable_row_set(&rows[i], LIMITED_KEY, PointerGetDatum(gate->key));
	}
	durable_writer_insert_many(writer, rows, n);
	pfree(rows);
}

TM_Result
durable_limited_remove(const DurableLimitedBy *gate, int64 id, int32 priority, text *queue, bool wait)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		keys[] = {
		Int64GetDatum(gate->limiter), PointerGetDatum(gate->key), PointerGetDatum(queue),
		Int32GetDatum(priority), Int64GetDatum(id)
	};
	TM_Result	result = TM_Deleted;

	durable_probe_open(&probe, REL_TASK_LIMITED, IDX_LIMITED_ORDER, GetActiveSnapshot(),
					   ENTRY_COLUMNS);
	if (durable_probe_find(&probe, keys, &row))
	{
		DurableWriter writer;

		durable_writer_open(&writer, REL_TASK_LIMITED);
		result = durable_writer_delete(&writer, &row.tid, wait);
		durable_writer_close(&writer);
	}
	durable_probe_close(&probe);
	return result;
}

static void
entry_keys(const DurableLimitedBy *gate, const DurableTurnRow *turn, ScanKey keys)
{
	ScanKeyInit(&keys[0], ENTRY_LIMITER, BTEqualStrategyNumber, F_INT8EQ,
				Int64GetDatum(gate->limiter));
	ScanKeyInit(&keys[1], ENTRY_KEY, BTEqualStrategyNumber, F_TEXTEQ,
				PointerGetDatum(gate->key));
	ScanKeyInit(&keys[2], ENTRY_QUEUE, BTEqualStrategyNumber, F_TEXTEQ,
				PointerGetDatum(turn->queue));
	ScanKeyInit(&keys[3], ENTRY_PRIORITY, BTEqualStrategyNumber, F_INT4EQ,
				Int32GetDatum(turn->priority));
}

static void
entry_id(ScanKey key, StrategyNumber op, RegProcedure op_proc, int64 id)
{
	ScanKeyInit(key, ENTRY_ID, op, op_proc, Int64GetDatum(id));
}

/* The newest entry, from the end of the index. */
static bool
find_last(const DurableLimitedBy *gate, const DurableTurnRow *turn, Snapshot snapshot, int64 *id,
		  ItemPointer tid)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		keys[] = {
		Int64GetDatum(gate->limiter), PointerGetDatum(gate->key), PointerGetDatum(turn->queue),
		Int32GetDatum(turn->priority)
	};
	bool		found;

	durable_probe_open(&probe, REL_TASK_LIMITED, IDX_LIMITED_ORDER, snapshot, 4);
	for (found = durable_probe_find_last(&probe, keys, &row); found;
		 found = durable_probe_previous(&probe, &row))
	{
		if (durable_row_is_live(probe.rel, &row.tid))
			break;
	}
	if (found)
	{
		*id = DatumGetInt64(row.values[LIMITED_ID]);
		*tid = row.tid;
	}
	durable_probe_close(&probe);
	return found;
}

/* The newest before that one. */
static bool
find_last_before(const DurableLimitedBy *gate, const DurableTurnRow *turn, int64 before,
				 Snapshot snapshot, int64 *id, ItemPointer tid)
{
	Relation	rel = durable_table_open(REL_TASK_LIMITED, AccessShareLock);
	Relation	index = durable_index_open(IDX_LIMITED_ORDER);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	IndexScanDesc scan = compat_index_beginscan(rel, index, snapshot, ENTRY_COLUMNS);
	ScanKeyData keys[ENTRY_COLUMNS];
	bool		found = false;

	entry_keys(gate, turn, keys);
	entry_id(&keys[ENTRY_ID - 1], BTLessStrategyNumber, F_INT8LT, before);
	index_rescan(scan, keys, ENTRY_COLUMNS, NULL, 0);
	while (!found && index_getnext_slot(scan, BackwardScanDirection, slot))
	{
		DurableRow	row;

		CHECK_FOR_INTERRUPTS();
		durable_slot_row(slot, &row);
		*id = DatumGetInt64(row.values[LIMITED_ID]);
		*tid = row.tid;
		found = durable_row_is_live(rel, tid);
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, AccessShareLock);
	table_close(rel, NoLock);
	return found;
}

bool
durable_limited_first(const DurableLimitedBy *gate, const DurableTurnRow *turn, bool lifo,
					  const int64 *beyond, Snapshot snapshot, int64 *id, ItemPointer tid,
					  bool *undecided)
{
	DurableWalk walk;
	ScanKeyData keys[ENTRY_COLUMNS];
	int64		from = lifo ? PG_INT64_MIN : turn->head;
	bool		found = false;

	*undecided = false;
	if (lifo && (beyond == NULL ? find_last(gate, turn, snapshot, id, tid) :
				 find_last_before(gate, turn, *beyond, snapshot, id, tid)))
		return true;
	/* what is undecided does not matter to who has passed something by */
	if (lifo && beyond != NULL)
		return false;
	if (beyond != NULL)
		from = Max(from, *beyond + 1);
	durable_walk_open(&walk, REL_TASK_LIMITED, IDX_LIMITED_ORDER, snapshot, ENTRY_COLUMNS,
					  ENTRY_ID);
	entry_keys(gate, turn, keys);
	entry_id(&keys[ENTRY_ID - 1], BTGreaterEqualStrategyNumber, F_INT8GE, from);
	durable_walk_start(&walk, keys, NULL);
	while (!found && durable_walk_next(&walk))
	{
		ItemPointerData at = walk.scan->xs_heaptid;

		CHECK_FOR_INTERRUPTS();
		if (durable_walk_visible(&walk))
		{
			at = walk.slot->tts_tid;
			found = durable_row_is_live(walk.rel, &at);
		}
		if (!found)
			*undecided |= !durable_row_is_gone(walk.rel, &at);
	}
	if (found)
	{
		*id = walk.position;
		*tid = walk.slot->tts_tid;
	}
	durable_walk_close(&walk);
	return found;
}

static DurablePlan count_plan = {
	.name = "waiting at a limiter",
	.sql =
	"SELECT pg_catalog.count(*) FROM durable.task_limited w"
	" WHERE w.limiter OPERATOR(pg_catalog.=) $1",
	.nargs = 1,
	.argtypes = {INT8OID},
};

int64
durable_limited_count(int64 limiter)
{
	Datum		value = Int64GetDatum(limiter);

	return durable_plan_number(&count_plan, &value);
}

/* ------------------------------------------------------------------ turns -- */

static text *
list_text(int64 limiter)
{
	char		buffer[MAXINT8LEN + 1];

	pg_lltoa(limiter, buffer);
	return cstring_to_text(buffer);
}

void
durable_turn_row_insert(DurableWriter *writer, int64 limiter, const DurableTurnRow *turn)
{
	DurableRow	row;
	DurableKey	key;
	text	   *list = list_text(limiter);

	durable_row_set(&row, TURN_POSITION, Int64GetDatum(turn->position));
	durable_row_set(&row, TURN_HEAD, Int64GetDatum(turn->head));
	durable_row_set(&row, TURN_PRIORITY, Int32GetDatum(turn->priority));
	durable_row_set(&row, TURN_LIST_ID, PointerGetDatum(list));
	durable_row_set(&row, TURN_QUEUE, PointerGetDatum(turn->queue));
	durable_row_set(&row, TURN_KEY, PointerGetDatum(turn->key));
	durable_writer_insert(writer, &row);
	if (durable_shared == NULL)
		return;
	key = durable_list_key(TURN_LIST, list, turn->queue);
	durable_hint_inserted(&key, turn->priority, turn->position, turn->position);
	durable_levels_inserted(&key, turn->priority);
}

/* Live rows beyond these are not looked at: a second turn does no harm. */
#define TURNS_SEEN 4

bool
durable_turn_row_is_there(const DurableLimitedBy *gate, text *queue, int32 priority, int64 first,
						  bool any)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		keys[] = {
		PointerGetDatum(list_text(gate->limiter)), PointerGetDatum(gate->key),
		PointerGetDatum(queue), Int32GetDatum(priority)
	};
	bool		found;
	int			seen = 0;

	/* from the end, where the newest is: a key's position grows */
	durable_probe_open(&probe, REL_LIMITER_TURN, IDX_LIMITER_TURN_KEY, GetActiveSnapshot(), 4);
	for (found = durable_probe_find_last(&probe, keys, &row); found;
		 found = durable_probe_previous(&probe, &row))
	{
		if ((any || DatumGetInt64(row.values[TURN_HEAD]) <= first) &&
			durable_row_is_live(probe.rel, &row.tid))
			break;
		if (++seen == TURNS_SEEN)
		{
			found = false;
			break;
		}
	}
	durable_probe_close(&probe);
	return found;
}

void
durable_turn_scan_open(DurableReadyScan *scan, Snapshot snapshot, int64 limiter, text *queue)
{
	text	   *list = list_text(limiter);
	DurableKey	key = durable_list_key(TURN_LIST, list, queue);

	durable_level_scan_open(scan, REL_LIMITER_TURN, IDX_LIMITER_TURN_ORDER, &key, snapshot,
							list, queue);
}

void
durable_turn_scan_row(const DurableReadyScan *scan, DurableTurnRow *turn)
{
	DurableRow	row;

	durable_slot_row(scan->walk.slot, &row);
	turn->tid = row.tid;
	turn->position = DatumGetInt64(row.values[TURN_POSITION]);
	turn->head = DatumGetInt64(row.values[TURN_HEAD]);
	turn->priority = DatumGetInt32(row.values[TURN_PRIORITY]);
	turn->queue = scan->queue;
	turn->key = DatumGetTextPCopy(row.values[TURN_KEY]);
}

bool
durable_turns_are_spent(int64 limiter, text *queue)
{
	DurableKey	key;
	int32		levels[DURABLE_LEVELS];
	uint64		life;
	int			n;

	if (durable_shared == NULL)
		return false;
	key = durable_list_key(TURN_LIST, list_text(limiter), queue);
	n = durable_levels_begin(&key, levels, &life);
	if (n < 0)
		return false;
	for (int i = 0; i < n; i++)
	{
		if (!durable_hint_is_spent(&key, levels[i]))
			return false;
	}
	return true;
}

bool
durable_turn_exists(Snapshot snapshot, int64 limiter, text *queue)
{
	DurableReadyScan scan;
	bool		found;

	durable_turn_scan_open(&scan, snapshot, limiter, queue);
	found = durable_ready_scan_next(&scan);
	durable_ready_scan_close(&scan);
	return found;
}

/* ---------------------------------------------------------------- blocked -- */

void
durable_blocked_insert(DurableWriter *writer, int64 limiter, const DurableTurnRow *turn)
{
	DurableRow	row;

	durable_row_set(&row, BLOCKED_LIMITER, Int64GetDatum(limiter));
	durable_row_set(&row, BLOCKED_N, Int64GetDatum(durable_sequence_next(SEQ_LIMITER)));
	durable_row_set(&row, BLOCKED_HEAD, Int64GetDatum(turn->head));
	durable_row_set(&row, BLOCKED_PRIORITY, Int32GetDatum(turn->priority));
	durable_row_set(&row, BLOCKED_QUEUE, PointerGetDatum(turn->queue));
	durable_row_set(&row, BLOCKED_KEY, PointerGetDatum(turn->key));
	durable_writer_insert(writer, &row);
}

static void
turn_of_blocked(const DurableRow *row, DurableTurnRow *turn)
{
	turn->tid = row->tid;
	turn->position = turn->head = DatumGetInt64(row->values[BLOCKED_HEAD]);
	turn->priority = DatumGetInt32(row->values[BLOCKED_PRIORITY]);
	turn->queue = DatumGetTextPCopy(row->values[BLOCKED_QUEUE]);
	turn->key = DatumGetTextPCopy(row->values[BLOCKED_KEY]);
}

int
durable_blocked_find(const DurableLimitedBy *gate, int n, Snapshot snapshot, DurableTurnRow **rows)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		keys[] = {Int64GetDatum(gate->limiter), PointerGetDatum(gate->key)};
	int			found = 0;
	bool		more;

	*rows = palloc(sizeof(DurableTurnRow) * Max(n, 1));
	durable_probe_open(&probe, REL_LIMITER_BLOCKED, IDX_LIMITER_BLOCKED, snapshot, 2);
	for (more = durable_probe_find_last(&probe, keys, &row); more && found < n;
		 more = found < n && durable_probe_previous(&probe, &row))
		turn_of_blocked(&row, &(*rows)[found++]);
	durable_probe_close(&probe);
	return found;
}

int
durable_blocked_all(int64 limiter, Snapshot snapshot, DurableTurnRow **rows)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		key = Int64GetDatum(limiter);
	int			space = 64;
	int			found = 0;
	bool		more;

	*rows = palloc(sizeof(DurableTurnRow) * space);
	durable_probe_open(&probe, REL_LIMITER_BLOCKED, IDX_LIMITER_BLOCKED, snapshot, 1);
	for (more = durable_probe_find(&probe, &key, &row); more;
		 more = durable_probe_next(&probe, &row))
	{
		CHECK_FOR_INTERRUPTS();
		if (found == space)
			*rows = repalloc_huge(*rows, sizeof(DurableTurnRow) * (space *= 2));
		turn_of_blocked(&row, &(*rows)[found++]);
	}
	durable_probe_close(&probe);
	return found;
}

bool
durable_blocked_is_there(const DurableLimitedBy *gate, int n, text *queue, int32 priority,
						 int64 first, bool any)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		keys[] = {Int64GetDatum(gate->limiter), PointerGetDatum(gate->key)};
	bool		there = false;
	int			seen = 0;
	bool		more;

	durable_probe_open(&probe, REL_LIMITER_BLOCKED, IDX_LIMITER_BLOCKED, GetActiveSnapshot(), 2);
	for (more = durable_probe_find_last(&probe, keys, &row); more && seen < n && !there;
		 more = durable_probe_previous(&probe, &row))
	{
		seen++;
		there = DatumGetInt32(row.values[BLOCKED_PRIORITY]) == priority &&
			durable_text_same(DatumGetTextPP(row.values[BLOCKED_QUEUE]), queue) &&
			(any || DatumGetInt64(row.values[BLOCKED_HEAD]) <= first) &&
			durable_row_is_live(probe.rel, &row.tid);
	}
	durable_probe_close(&probe);
	return there;
}
