/*-------------------------------------------------------------------------
 *
 * queue.c
 *	  durable.queue: queues with a setting of their own.
 *
 * Most databases pause nothing, so sessions remember that no queue is paused
 * and ask the table only while one is. The table's trigger makes them forget.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/snapmgr.h"

#include "base/plan.h"
#include "base/rel.h"
#include "base/wakeup.h"
#include "store/queue.h"
#include "store/ready.h"

enum
{
	QUEUE_NAMESPACE,
	QUEUE_QUEUE,
	QUEUE_PAUSED_AT,
	QUEUE_PAUSED_BY,
	QUEUE_COLUMNS
};

static bool none_paused = false;
static Oid	queue_table = InvalidOid;

static void
forget_paused(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == queue_table)
		none_paused = false;
}

void
durable_queue_init(void)
{
	CacheRegisterRelcacheCallback(forget_paused, (Datum) 0);
}

/* The snapshot is taken after the lock, which delivers what others committed:
 * an older one could answer for a time before a pause whose message is gone. */
static bool
table_is_empty(void)
{
	Relation	rel = durable_table_open(REL_QUEUE, AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);
	bool		empty = !table_scan_getnextslot(scan, ForwardScanDirection, slot);

	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	return empty;
}

bool
durable_queue_is_paused(text *namespace, text *queue)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		keys[2] = {PointerGetDatum(namespace), PointerGetDatum(queue)};
	bool		paused;

	if (none_paused)
		return false;
	/* set first: an invalidation that arrives while reading clears it again */
	none_paused = true;
	queue_table = durable_rel(REL_QUEUE);
	if (table_is_empty())
		return false;
	none_paused = false;
	durable_probe_open(&probe, REL_QUEUE, IDX_QUEUE_PKEY, durable_snapshot_push(), 2);
	paused = durable_probe_find(&probe, keys, &row) && !row.nulls[QUEUE_PAUSED_AT];
	durable_probe_close(&probe);
	durable_snapshot_pop();
	return paused;
}

static DurablePlan pause_plan = {
	.name = "pause queue",
	.sql =
	"INSERT INTO durable.queue AS q (namespace, queue, paused_at, paused_by)"
	" VALUES ($1, $2, pg_catalog.clock_timestamp(), $3)"
	" ON CONFLICT ON CONSTRAINT queue_pkey DO UPDATE"
	" SET paused_at = excluded.paused_at, paused_by = excluded.paused_by"
	" WHERE q.paused_at IS NULL",
	.nargs = 3,
	.argtypes = {TEXTOID, TEXTOID, TEXTOID},
};

static DurablePlan resume_plan = {
	.name = "resume queue",
	.sql =
	"DELETE FROM durable.queue q"
	" WHERE q.namespace OPERATOR(pg_catalog.=) $1"
	" AND q.queue OPERATOR(pg_catalog.=) $2 AND q.paused_at IS NOT NULL",
	.nargs = 2,
	.argtypes = {TEXTOID, TEXTOID},
};

bool
durable_queue_set_paused(text *namespace, text *queue, bool paused)
{
	Datum		values[] = {
		PointerGetDatum(namespace), PointerGetDatum(queue),
		CStringGetTextDatum(GetUserNameFromId(GetUserId(), false))
	};
	uint64		changed;

	durable_plan_begin();
	changed = durable_plan_run(paused ? &pause_plan : &resume_plan, values, NULL);
	durable_plan_end();
	if (changed > 0 && !paused && durable_shared != NULL)
	{
		DurableKey	key = durable_queue_key(namespace, queue);

		durable_wakeup_note(&key, PG_INT32_MAX);
	}
	return changed > 0;
}
