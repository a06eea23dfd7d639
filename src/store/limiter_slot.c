/*-------------------------------------------------------------------------
 *
 * limiter_slot.c
 *	  durable.limiter_slot: who holds a slot; and what is counted of limiters
 *	  (durable.limiter_freed, _state, _key, _tick).
 *
 * A row of limiter_slot belongs to whoever has its task in hand; rows of
 * limiter_freed are inserted by them. All else is written under the limiter's lock.
 *
 * What changes all the time is not updated: its next version is a new row, with the
 * next number, and the one before is deleted. The live one is then the first that a
 * backward scan meets, but for versions of transactions that were rolled back, which
 * every scan removes. So an old snapshot that keeps all the dead ones costs nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/hint.h"
#include "base/plan.h"
#include "store/due.h"
#include "store/limiter.h"
#include "store/limiter_slot.h"

#define FREED_LIST "freed"

enum
{
	STATE_LIMITER,
	STATE_VERSION,
	STATE_WINDOW_START,
	STATE_OPENS_AT,
	STATE_FIRST_TICK,
	STATE_NEXT_TICK,
	STATE_STAMP,
	STATE_FLOOR,
	STATE_FLOOR_TASK,
	STATE_BLOCKED,
	STATE_RUNNING,
	STATE_USED,
	STATE_KEY_LIMIT,
	STATE_COLUMNS
};

enum
{
	KEY_LIMITER,
	KEY_VERSION,
	KEY_SERVED,
	KEY_RUNNING,
	KEY_BLOCKED,
	KEY_KEY,
	KEY_COLUMNS
};

enum
{
	SLOT_ID,
	SLOT_LIMITER,
	SLOT_KEY,
	SLOT_COLUMNS
};

enum
{
	FREED_N,
	FREED_LIMITER,
	FREED_KEY,
	FREED_COLUMNS
};

enum
{
	TICK_LIMITER,
	TICK_N,
	TICK_AT,
	TICK_COLUMNS
};

void
durable_limiter_state_read(int64 limiter, Snapshot snapshot, DurableLimiterState *state)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		key = Int64GetDatum(limiter);

	memset(state, 0, sizeof(*state));
	state->key_limit = DURABLE_NO_LIMIT;
	durable_probe_open(&probe, REL_LIMITER_STATE, IDX_LIMITER_STATE, snapshot, 1);
	if (durable_probe_find_last(&probe, &key, &row))
	{
		state->stored = true;
		state->tid = row.tid;
		state->version = DatumGetInt64(row.values[STATE_VERSION]);
		state->window_start = DatumGetTimestampTz(row.values[STATE_WINDOW_START]);
		state->opens_at = row.nulls[STATE_OPENS_AT] ? 0 :
			DatumGetTimestampTz(row.values[STATE_OPENS_AT]);
		state->first_tick = DatumGetInt64(row.values[STATE_FIRST_TICK]);
		state->next_tick = DatumGetInt64(row.values[STATE_NEXT_TICK]);
		state->seen_tick = state->next_tick;
		state->stamp = DatumGetInt64(row.values[STATE_STAMP]);
		state->floor = DatumGetInt64(row.values[STATE_FLOOR]);
		state->floor_task = DatumGetInt64(row.values[STATE_FLOOR_TASK]);
		state->blocked = DatumGetInt64(row.values[STATE_BLOCKED]);
		state->running = DatumGetInt32(row.values[STATE_RUNNING]);
		state->used = DatumGetInt32(row.values[STATE_USED]);
		state->key_limit = row.nulls[STATE_KEY_LIMIT] ? DURABLE_NO_LIMIT :
			DatumGetInt32(row.values[STATE_KEY_LIMIT]);
	}
	durable_probe_close(&probe);
}

/* Nobody else may delete it: the lock is ours. */
static void
delete_version(DurableWriter *writer, ItemPointer tid)
{
	if (durable_writer_delete(writer, tid, true) != TM_Ok)
		elog(ERROR, "a limiter's count was changed without its lock");
}

void
durable_limiter_state_write(DurableWriter *writer, int64 limiter, DurableLimiterState *state)
{
	DurableRow	row;

	durable_row_set(&row, STATE_LIMITER, Int64GetDatum(limiter));
	durable_row_set(&row, STATE_VERSION, Int64GetDatum(state->version + 1));
	durable_row_set(&row, STATE_WINDOW_START, TimestampTzGetDatum(state->window_start));
	durable_row_set(&row, STATE_OPENS_AT, TimestampTzGetDatum(state->opens_at));
	row.nulls[STATE_OPENS_AT] = state->opens_at == 0;
	durable_row_set(&row, STATE_FIRST_TICK, Int64GetDatum(state->first_tick));
	durable_row_set(&row, STATE_NEXT_TICK, Int64GetDatum(state->next_tick));
	durable_row_set(&row, STATE_STAMP, Int64GetDatum(state->stamp));
	durable_row_set(&row, STATE_FLOOR, Int64GetDatum(state->floor));
	durable_row_set(&row, STATE_FLOOR_TASK, Int64GetDatum(state->floor_task));
	durable_row_set(&row, STATE_BLOCKED, Int64GetDatum(state->blocked));
	durable_row_set(&row, STATE_RUNNING, Int32GetDatum(state->running));
	durable_row_set(&row, STATE_USED, Int32GetDatum(state->used));
	durable_row_set(&row, STATE_KEY_LIMIT, Int32GetDatum(state->key_limit));
	row.nulls[STATE_KEY_LIMIT] = state->key_limit == DURABLE_NO_LIMIT;
	durable_writer_insert(writer, &row);
	if (state->stored)
		delete_version(writer, &state->tid);
}

void
durable_key_state_read(const DurableLimitedBy *gate, Snapshot snapshot, DurableKeyState *state)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		keys[] = {Int64GetDatum(gate->limiter), PointerGetDatum(gate->key)};

	memset(state, 0, sizeof(*state));
	state->key = gate->key;
	durable_probe_open(&probe, REL_LIMITER_KEY, IDX_LIMITER_KEY, snapshot, 2);
	if (durable_probe_find_last(&probe, keys, &row))
	{
		state->stored = true;
		state->tid = row.tid;
		state->version = DatumGetInt64(row.values[KEY_VERSION]);
		state->served = DatumGetInt64(row.values[KEY_SERVED]);
		state->running = DatumGetInt32(row.values[KEY_RUNNING]);
		state->blocked = DatumGetInt32(row.values[KEY_BLOCKED]);
	}
	durable_probe_close(&probe);
}

void
durable_key_state_write(DurableWriter *writer, int64 limiter, int64 version,
						DurableKeyState *state)
{
	DurableRow	row;

	durable_row_set(&row, KEY_LIMITER, Int64GetDatum(limiter));
	durable_row_set(&row, KEY_VERSION, Int64GetDatum(version));
	durable_row_set(&row, KEY_SERVED, Int64GetDatum(state->served));
	durable_row_set(&row, KEY_RUNNING, Int32GetDatum(state->running));
	durable_row_set(&row, KEY_BLOCKED, Int32GetDatum(state->blocked));
	durable_row_set(&row, KEY_KEY, PointerGetDatum(state->key));
	durable_writer_insert(writer, &row);
	if (state->stored)
		delete_version(writer, &state->tid);
}

/* ------------------------------------------------------------------ slots -- */

void
durable_limiter_slot_insert(DurableWriter *writer, int64 id, const DurableLimitedBy *gate)
{
	DurableRow	row;

	durable_row_set(&row, SLOT_ID, Int64GetDatum(id));
	durable_row_set(&row, SLOT_LIMITER, Int64GetDatum(gate->limiter));
	durable_row_set(&row, SLOT_KEY, PointerGetDatum(gate->key));
	durable_writer_insert(writer, &row);
}

bool
durable_limiter_slot_find(int64 id, DurableLimitedBy *gate, ItemPointer tid)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		key = Int64GetDatum(id);
	bool		found;

	durable_probe_open(&probe, REL_LIMITER_SLOT, IDX_LIMITER_SLOT, GetActiveSnapshot(), 1);
	found = durable_probe_find(&probe, &key, &row);
	if (found)
	{
		gate->limiter = DatumGetInt64(row.values[SLOT_LIMITER]);
		gate->key = DatumGetTextPCopy(row.values[SLOT_KEY]);
		*tid = row.tid;
	}
	durable_probe_close(&probe);
	return found;
}

static DurablePlan count_plan = {
	.name = "slots of a limiter",
	.sql =
	"SELECT pg_catalog.count(*) FROM durable.limiter_slot s"
	" WHERE s.limiter OPERATOR(pg_catalog.=) $1",
	.nargs = 1,
	.argtypes = {INT8OID},
};

int64
durable_limiter_slot_count(int64 limiter)
{
	Datum		value = Int64GetDatum(limiter);

	return durable_plan_number(&count_plan, &value);
}

static DurablePlan mend_plan = {
	.name = "slots of lost tasks",
	.sql =
	"WITH lost AS (SELECT s.id FROM durable.limiter_slot s WHERE s.limiter OPERATOR(pg_catalog.=) $1"
	"  AND NOT EXISTS (SELECT FROM durable.task t WHERE t.id OPERATOR(pg_catalog.=) s.id)"
	"  FOR UPDATE SKIP LOCKED)"
	" DELETE FROM durable.limiter_slot s USING lost WHERE s.id OPERATOR(pg_catalog.=) lost.id"
	" RETURNING s.key",
	.nargs = 1,
	.argtypes = {INT8OID},
};

int
durable_limiter_slots_mend(int64 limiter)
{
	MemoryContext caller = CurrentMemoryContext;
	Datum		value = Int64GetDatum(limiter);
	DurableLimitedBy gate = {.limiter = limiter};
	DurableWriter writer;
	text	  **keys;
	int			n;

	durable_plan_begin();
	n = (int) durable_plan_run(&mend_plan, &value, NULL);
	keys = MemoryContextAlloc(caller, sizeof(text *) * Max(n, 1));
	for (int i = 0; i < n; i++)
		keys[i] = durable_plan_text(i, 1, caller);
	durable_plan_end();
	if (n == 0)
		return 0;
	durable_writer_open(&writer, REL_LIMITER_FREED);
	for (int i = 0; i < n; i++)
	{
		gate.key = keys[i];
		durable_freed_insert(&writer, &gate);
	}
	durable_writer_close(&writer);
	return n;
}

/* ------------------------------------------------------------------ freed -- */

static DurableKey
freed_list(int64 limiter)
{
	char		buffer[MAXINT8LEN + 1];
	text	   *list;

	pg_lltoa(limiter, buffer);
	list = cstring_to_text(buffer);
	return durable_list_key(FREED_LIST, list, list);
}

void
durable_freed_insert(DurableWriter *writer, const DurableLimitedBy *gate)
{
	DurableRow	row;
	DurableKey	list;
	int64		n = durable_sequence_next(SEQ_LIMITER);

	durable_row_set(&row, FREED_N, Int64GetDatum(n));
	durable_row_set(&row, FREED_LIMITER, Int64GetDatum(gate->limiter));
	durable_row_set(&row, FREED_KEY, PointerGetDatum(gate->key));
	durable_writer_insert(writer, &row);
	if (durable_shared == NULL)
		return;
	list = freed_list(gate->limiter);
	durable_hint_inserted(&list, 0, n, n);
}

void
durable_freed_open(DurableWalk *walk, Snapshot snapshot, int64 limiter)
{
	ScanKeyData keys[2];
	DurableKey	list = freed_list(limiter);
	DurableHint hint;

	durable_hint_begin(&hint, &list, 0);
	durable_walk_open(walk, REL_LIMITER_FREED, IDX_LIMITER_FREED, snapshot, 2, 2);
	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(limiter));
	ScanKeyInit(&keys[1], 2, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(hint.start));
	durable_walk_start(walk, keys, &hint);
}

bool
durable_freed_next(DurableWalk *walk, ItemPointer tid, text **key)
{
	while (durable_walk_next(walk))
	{
		DurableRow	row;

		CHECK_FOR_INTERRUPTS();
		if (!durable_walk_visible(walk))
			continue;
		durable_slot_row(walk->slot, &row);
		*tid = row.tid;
		*key = DatumGetTextPP(row.values[FREED_KEY]);
		return true;
	}
	durable_walk_stop(walk, true);
	return false;
}

bool
durable_freed_is_spent(int64 limiter)
{
	DurableKey	list;

	if (durable_shared == NULL)
		return false;
	list = freed_list(limiter);
	return durable_hint_is_spent(&list, 0);
}

bool
durable_freed_exists(Snapshot snapshot, int64 limiter)
{
	DurableWalk walk;
	ItemPointerData tid;
	text	   *key;
	bool		found;

	durable_freed_open(&walk, snapshot, limiter);
	found = durable_freed_next(&walk, &tid, &key);
	durable_walk_close(&walk);
	return found;
}

/* ------------------------------------------------------------------ ticks -- */

void
durable_tick_insert(DurableWriter *writer, int64 limiter, int64 n, TimestampTz at)
{
	DurableRow	row;

	durable_row_set(&row, TICK_LIMITER, Int64GetDatum(limiter));
	durable_row_set(&row, TICK_N, Int64GetDatum(n));
	durable_row_set(&row, TICK_AT, TimestampTzGetDatum(at));
	durable_writer_insert(writer, &row);
}

bool
durable_tick_find(int64 limiter, int64 n, Snapshot snapshot, TimestampTz *at, ItemPointer tid)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		keys[] = {Int64GetDatum(limiter), Int64GetDatum(n)};
	bool		found;

	durable_probe_open(&probe, REL_LIMITER_TICK, IDX_LIMITER_TICK, snapshot, 2);
	found = durable_probe_find(&probe, keys, &row);
	if (found)
	{
		*at = DatumGetTimestampTz(row.values[TICK_AT]);
		*tid = row.tid;
	}
	durable_probe_close(&probe);
	return found;
}
