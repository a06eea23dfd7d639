/*-------------------------------------------------------------------------
 *
 * singleton.c
 *	  durable.singleton: live runs with a singleton key, and who of them holds a slot.
 *
 * The index (namespace, workflow, key, state, run) is the order in which slots are
 * given away. "parked" is not in it, so a run is parked in place.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

#include "base/lock_class.h"
#include "base/names.h"
#include "base/plan.h"
#include "store/singleton.h"

enum
{
	SINGLETON_RUN,
	SINGLETON_PARKED,
	SINGLETON_STATE,
	SINGLETON_NAMESPACE,
	SINGLETON_WORKFLOW,
	SINGLETON_VERSION,
	SINGLETON_KEY,
	SINGLETON_COLUMNS
};

/* columns of the index */
#define ORDER_COLUMNS 5

static const char *const state_names[] = {
	[SLOT_HELD] = "held",
	[SLOT_WAITING] = "waiting",
	[SLOT_DELAYED] = "delayed",
};

static uint64
hash_text(const text *value, uint64 seed)
{
	return hash_bytes_extended((const unsigned char *) VARDATA_ANY(value),
							   VARSIZE_ANY_EXHDR(value), seed);
}

static void
lock_tag(LOCKTAG *tag, const DurableSlotKey *key, int class)
{
	uint64		hash = hash_text(key->key, hash_text(key->workflow, hash_text(key->namespace, 0)));

	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, (uint32) (hash >> 32), (uint32) hash, class);
}

bool
durable_slots_lock(const DurableSlotKey *key)
{
	LOCKTAG		tag;

	lock_tag(&tag, key, SLOTS_LOCK_CLASS);
	return LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

void
durable_slots_lock_queue(const DurableSlotKey *key)
{
	LOCKTAG		tag;

	lock_tag(&tag, key, QUEUE_LOCK_CLASS);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
}

static void
fill_row(DurableRow *row, const DurableSlotKey *key, const DurableSlot *slot)
{
	row->tid = slot->tid;
	durable_row_set(row, SINGLETON_RUN, Int64GetDatum(slot->run));
	durable_row_set(row, SINGLETON_PARKED, BoolGetDatum(slot->parked));
	durable_row_set(row, SINGLETON_STATE, CStringGetTextDatum(state_names[slot->state]));
	durable_row_set(row, SINGLETON_NAMESPACE, PointerGetDatum(key->namespace));
	durable_row_set(row, SINGLETON_WORKFLOW, PointerGetDatum(key->workflow));
	durable_row_set(row, SINGLETON_VERSION, PointerGetDatum(slot->version));
	durable_row_set(row, SINGLETON_KEY, PointerGetDatum(key->key));
}

static void
slot_from_row(const DurableRow *row, DurableSlot *slot)
{
	slot->tid = row->tid;
	slot->run = DatumGetInt64(row->values[SINGLETON_RUN]);
	slot->state = durable_label_index(row->values[SINGLETON_STATE], state_names,
									  lengthof(state_names), "the state of a singleton entry");
	slot->parked = DatumGetBool(row->values[SINGLETON_PARKED]);
	slot->version = DatumGetTextPCopy(row->values[SINGLETON_VERSION]);
}

void
durable_slot_insert(const DurableSlotKey *key, const DurableSlot *slot)
{
	DurableWriter writer;
	DurableRow	row;

	fill_row(&row, key, slot);
	durable_writer_open(&writer, REL_SINGLETON);
	durable_writer_insert(&writer, &row);
	durable_writer_close(&writer);
}

bool
durable_slot_find(const DurableSlotKey *key, int64 run, DurableSlot *slot)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		keys[ORDER_COLUMNS] = {
		PointerGetDatum(key->namespace), PointerGetDatum(key->workflow),
		PointerGetDatum(key->key), (Datum) 0, Int64GetDatum(run)
	};
	bool		found = false;

	/* one snapshot for all states: the entry cannot slip from one to the other */
	durable_probe_open(&probe, REL_SINGLETON, IDX_SINGLETON_ORDER, durable_snapshot_push(),
					   ORDER_COLUMNS);
	for (int state = 0; state < lengthof(state_names) && !found; state++)
	{
		keys[3] = CStringGetTextDatum(state_names[state]);
		found = durable_probe_find(&probe, keys, &row);
	}
	if (found)
		slot_from_row(&row, slot);
	durable_probe_close(&probe);
	durable_snapshot_pop();
	return found;
}

TM_Result
durable_slot_set(const DurableSlotKey *key, DurableSlot *slot, DurableSlotState state,
				 bool parked, bool wait)
{
	DurableWriter writer;
	DurableRow	row;
	DurableSlot next = *slot;
	TM_Result	result;

	next.state = state;
	next.parked = parked;
	fill_row(&row, key, &next);
	durable_writer_open(&writer, REL_SINGLETON);
	result = durable_writer_update(&writer, &row, wait);
	if (result == TM_Ok)
	{
		*slot = next;
		slot->tid = writer.slot->tts_tid;
	}
	durable_writer_close(&writer);
	return result;
}

TM_Result
durable_slot_delete(const DurableSlot *slot, bool wait)
{
	DurableWriter writer;
	ItemPointerData tid = slot->tid;
	TM_Result	result;

	durable_writer_open(&writer, REL_SINGLETON);
	result = durable_writer_delete(&writer, &tid, wait);
	durable_writer_close(&writer);
	return result;
}

static void
open_state(DurableProbe *probe, const DurableSlotKey *key, Datum *keys, DurableSlotState state)
{
	keys[0] = PointerGetDatum(key->namespace);
	keys[1] = PointerGetDatum(key->workflow);
	keys[2] = PointerGetDatum(key->key);
	keys[3] = CStringGetTextDatum(state_names[state]);
	durable_probe_open(probe, REL_SINGLETON, IDX_SINGLETON_ORDER, GetActiveSnapshot(),
					   ORDER_COLUMNS - 1);
}

int
durable_slots_count(const DurableSlotKey *key, DurableSlotState state, int max)
{
	DurableProbe probe;
	Datum		keys[ORDER_COLUMNS];
	int			n;

	open_state(&probe, key, keys, state);
	n = durable_probe_count(&probe, keys, max);
	durable_probe_close(&probe);
	return n;
}

void
durable_slots_waiting_begin(DurableProbe *probe, const DurableSlotKey *key)
{
	Datum		keys[ORDER_COLUMNS];

	open_state(probe, key, keys, SLOT_WAITING);
	durable_probe_start(probe, keys);
}

bool
durable_slots_waiting_next(DurableProbe *probe, DurableSlot *slot)
{
	DurableRow	row;

	if (!durable_probe_next(probe, &row))
		return false;
	slot_from_row(&row, slot);
	return true;
}

void
durable_slots_waiting_end(DurableProbe *probe)
{
	durable_probe_close(probe);
}

text *
durable_slots_next_version(const DurableSlotKey *key)
{
	static const DurableSlotState states[] = {SLOT_WAITING, SLOT_DELAYED};
	text	   *version = NULL;

	durable_snapshot_push();
	for (int i = 0; i < lengthof(states) && version == NULL; i++)
	{
		DurableProbe probe;
		DurableRow	row;
		DurableSlot slot;
		Datum		keys[ORDER_COLUMNS];

		open_state(&probe, key, keys, states[i]);
		if (durable_probe_find(&probe, keys, &row))
		{
			slot_from_row(&row, &slot);
			version = slot.version;
		}
		durable_probe_close(&probe);
	}
	durable_snapshot_pop();
	return version;
}

static DurablePlan waited_for_plan = {
	.name = "singleton keys that are waited for",
	.sql =
	"SELECT DISTINCT s.key FROM durable.singleton s"
	" WHERE s.namespace OPERATOR(pg_catalog.=) $1 AND s.workflow OPERATOR(pg_catalog.=) $2"
	" AND s.state OPERATOR(pg_catalog.=) 'waiting'",
	.nargs = 2,
	.argtypes = {TEXTOID, TEXTOID},
};

text **
durable_slots_waited_for(text *namespace, text *workflow, int *n)
{
	MemoryContext caller = CurrentMemoryContext;
	Datum		values[] = {PointerGetDatum(namespace), PointerGetDatum(workflow)};
	text	  **keys;

	durable_plan_begin();
	*n = (int) durable_plan_run(&waited_for_plan, values, NULL);
	keys = MemoryContextAlloc(caller, sizeof(text *) * Max(*n, 1));
	for (int i = 0; i < *n; i++)
		keys[i] = durable_plan_text(i, 1, caller);
	durable_plan_end();
	return keys;
}
