/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  durable.worker and durable.worker_queue: workers outside that have announced
 *	  themselves.
 *
 * The worker's own row says what it serves; worker_queue repeats it by queue, so
 * that who asks for a queue's workers reads no others. It is written by whoever has
 * just written the worker's row and so holds its lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/names.h"
#include "base/plan.h"
#include "store/worker.h"

/* columns, in table order */
enum
{
	ANNOUNCED_FIRST_SEEN,
	ANNOUNCED_LAST_SEEN,
	ANNOUNCED_EXPIRES_AT,
	ANNOUNCED_ROLE,
	ANNOUNCED_PROTOCOL_MIN,
	ANNOUNCED_PROTOCOL_MAX,
	ANNOUNCED_NAMESPACE,
	ANNOUNCED_WORKER,
	ANNOUNCED_QUEUES,
	ANNOUNCED_WORKFLOWS,
	ANNOUNCED_CAPABILITIES,
	ANNOUNCED_STATUS,
	ANNOUNCED_COLUMNS
};

enum
{
	SERVES_NAMESPACE,
	SERVES_QUEUE,
	SERVES_WORKER,
	SERVES_COLUMNS
};

static void
to_row(const DurableWorkerRow *worker, DurableRow *row)
{
	row->tid = worker->tid;
	durable_row_set(row, ANNOUNCED_FIRST_SEEN, TimestampTzGetDatum(worker->first_seen));
	durable_row_set(row, ANNOUNCED_LAST_SEEN, TimestampTzGetDatum(worker->last_seen));
	durable_row_set(row, ANNOUNCED_EXPIRES_AT, TimestampTzGetDatum(worker->expires_at));
	durable_row_set(row, ANNOUNCED_ROLE, ObjectIdGetDatum(worker->role));
	durable_row_set(row, ANNOUNCED_PROTOCOL_MIN, Int32GetDatum(worker->protocol_min));
	durable_row_set(row, ANNOUNCED_PROTOCOL_MAX, Int32GetDatum(worker->protocol_max));
	durable_row_set(row, ANNOUNCED_NAMESPACE, PointerGetDatum(worker->namespace));
	durable_row_set(row, ANNOUNCED_WORKER, PointerGetDatum(worker->worker));
	durable_row_set(row, ANNOUNCED_QUEUES, PointerGetDatum(worker->queues));
	durable_row_set(row, ANNOUNCED_WORKFLOWS, PointerGetDatum(worker->workflows));
	durable_row_set(row, ANNOUNCED_CAPABILITIES, PointerGetDatum(worker->capabilities));
	durable_row_set_pointer(row, ANNOUNCED_STATUS, worker->status);
}

/* Everything points into the row, and the sets are as they are stored. */
static void
from_row(const DurableRow *row, DurableWorkerRow *worker)
{
	worker->tid = row->tid;
	worker->first_seen = DatumGetTimestampTz(row->values[ANNOUNCED_FIRST_SEEN]);
	worker->last_seen = DatumGetTimestampTz(row->values[ANNOUNCED_LAST_SEEN]);
	worker->expires_at = DatumGetTimestampTz(row->values[ANNOUNCED_EXPIRES_AT]);
	worker->role = DatumGetObjectId(row->values[ANNOUNCED_ROLE]);
	worker->protocol_min = DatumGetInt32(row->values[ANNOUNCED_PROTOCOL_MIN]);
	worker->protocol_max = DatumGetInt32(row->values[ANNOUNCED_PROTOCOL_MAX]);
	worker->namespace = DatumGetTextPP(row->values[ANNOUNCED_NAMESPACE]);
	worker->worker = DatumGetTextPP(row->values[ANNOUNCED_WORKER]);
	worker->queues = (ArrayType *) DatumGetPointer(row->values[ANNOUNCED_QUEUES]);
	worker->workflows = (ArrayType *) DatumGetPointer(row->values[ANNOUNCED_WORKFLOWS]);
	worker->capabilities = (ArrayType *) DatumGetPointer(row->values[ANNOUNCED_CAPABILITIES]);
	worker->status = row->nulls[ANNOUNCED_STATUS] ? NULL :
		DatumGetPointer(row->values[ANNOUNCED_STATUS]);
}

static void
copy_values(DurableWorkerRow *worker)
{
	worker->namespace = DatumGetTextPCopy(PointerGetDatum(worker->namespace));
	worker->worker = DatumGetTextPCopy(PointerGetDatum(worker->worker));
	worker->queues = DatumGetArrayTypePCopy(PointerGetDatum(worker->queues));
	worker->workflows = DatumGetArrayTypePCopy(PointerGetDatum(worker->workflows));
	worker->capabilities = DatumGetArrayTypePCopy(PointerGetDatum(worker->capabilities));
	if (worker->status != NULL)
		worker->status = PG_DETOAST_DATUM_COPY(PointerGetDatum(worker->status));
}

bool
durable_worker_find(text *namespace, text *worker, DurableWorkerRow *found)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		keys[2] = {PointerGetDatum(namespace), PointerGetDatum(worker)};
	bool		exists;

	if (durable_table_is_unused(REL_WORKER))
		return false;
	durable_probe_open(&probe, REL_WORKER, IDX_WORKER_PKEY, durable_snapshot_push(), 2);
	exists = durable_probe_find(&probe, keys, &row);
	if (exists)
	{
		from_row(&row, found);
		copy_values(found);
	}
	durable_probe_close(&probe);
	durable_snapshot_pop();
	return exists;
}

bool
durable_worker_insert(const DurableWorkerRow *worker)
{
	DurableWriter writer;
	DurableRow	row;
	bool		inserted;

	to_row(worker, &row);
	durable_writer_open(&writer, REL_WORKER);
	inserted = durable_writer_insert_unless(&writer, IDX_WORKER_PKEY, &row);
	durable_writer_close(&writer);
	return inserted;
}

TM_Result
durable_worker_update(const DurableWorkerRow *worker)
{
	DurableWriter writer;
	DurableRow	row;
	TM_Result	result;

	to_row(worker, &row);
	durable_snapshot_push();
	durable_writer_open(&writer, REL_WORKER);
	result = durable_writer_update(&writer, &row, true);
	durable_writer_close(&writer);
	durable_snapshot_pop();
	return result;
}

TM_Result
durable_worker_delete(const DurableWorkerRow *worker)
{
	DurableWriter writer;
	ItemPointerData tid = worker->tid;
	TM_Result	result;

	durable_snapshot_push();
	durable_writer_open(&writer, REL_WORKER);
	result = durable_writer_delete(&writer, &tid, true);
	durable_writer_close(&writer);
	durable_snapshot_pop();
	return result;
}

static void
forget_queue(DurableWriter *writer, text *namespace, text *queue, text *worker)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		keys[3] = {
		PointerGetDatum(namespace), PointerGetDatum(queue), PointerGetDatum(worker)
	};

	durable_probe_open(&probe, REL_WORKER_QUEUE, IDX_WORKER_QUEUE_PKEY, durable_snapshot_push(), 3);
	if (durable_probe_find(&probe, keys, &row))
		(void) durable_writer_delete(writer, &row.tid, true);
	durable_probe_close(&probe);
	durable_snapshot_pop();
}

void
durable_worker_store_queues(text *namespace, text *worker, ArrayType *before, ArrayType *after)
{
	DurableWriter writer;
	int			nbefore;
	int			nafter;
	text	  **old = durable_set_members(before, &nbefore);
	text	  **new = durable_set_members(after, &nafter);

	durable_writer_open(&writer, REL_WORKER_QUEUE);
	for (int i = 0; i < nbefore; i++)
	{
		if (!durable_set_has(after, old[i]))
			forget_queue(&writer, namespace, old[i], worker);
	}
	for (int i = 0; i < nafter; i++)
	{
		DurableRow	row;

		durable_row_set(&row, SERVES_NAMESPACE, PointerGetDatum(namespace));
		durable_row_set(&row, SERVES_QUEUE, PointerGetDatum(new[i]));
		durable_row_set(&row, SERVES_WORKER, PointerGetDatum(worker));
		(void) durable_writer_insert_unless(&writer, IDX_WORKER_QUEUE_PKEY, &row);
	}
	durable_writer_close(&writer);
}

void
durable_worker_scan_open(DurableWorkerScan *scan, text *namespace, text *queue, TimestampTz now)
{
	Snapshot	snapshot = durable_snapshot_push();

	scan->namespace = namespace;
	scan->name = queue;
	scan->now = now;
	scan->begun = false;
	durable_probe_open(&scan->queue, REL_WORKER_QUEUE, IDX_WORKER_QUEUE_PKEY, snapshot, 2);
	durable_probe_open(&scan->worker, REL_WORKER, IDX_WORKER_PKEY, snapshot, 2);
}

bool
durable_worker_scan_next(DurableWorkerScan *scan, DurableWorkerRow *worker)
{
	for (;;)
	{
		Datum		keys[2] = {PointerGetDatum(scan->namespace), PointerGetDatum(scan->name)};
		DurableRow	serves;
		DurableRow	row;
		bool		more = scan->begun ? durable_probe_next(&scan->queue, &serves) :
			durable_probe_find(&scan->queue, keys, &serves);

		scan->begun = true;
		if (!more)
			return false;
		keys[1] = serves.values[SERVES_WORKER];
		if (durable_probe_find(&scan->worker, keys, &row) &&
			DatumGetTimestampTz(row.values[ANNOUNCED_EXPIRES_AT]) > scan->now)
		{
			from_row(&row, worker);
			return true;
		}
	}
}

bool
durable_worker_set_has(ArrayType *packed, ArrayType *members)
{
	ArrayType  *set = DatumGetArrayTypeP(PointerGetDatum(packed));
	bool		has = durable_set_contains(set, members);

	if (set != packed)
		pfree(set);
	return has;
}

void
durable_worker_scan_close(DurableWorkerScan *scan)
{
	durable_probe_close(&scan->worker);
	durable_probe_close(&scan->queue);
	durable_snapshot_pop();
}

bool
durable_worker_exists(void)
{
	DurableProbe probe;
	DurableRow	row;
	bool		found;

	durable_probe_open(&probe, REL_WORKER, IDX_WORKER_PKEY, durable_snapshot_push(), 0);
	found = durable_probe_find(&probe, NULL, &row);
	durable_probe_close(&probe);
	durable_snapshot_pop();
	return found;
}

/* Whoever is not alive announces himself anew, and enters all his queues. A beat that
 * comes meanwhile has changed the row: it is looked at again when it is locked. */
static DurablePlan unlist_plan = {
	.name = "unlist dead workers",
	.sql =
	"WITH dead AS MATERIALIZED (SELECT w.namespace, w.worker, w.queues FROM durable.worker w"
	"  WHERE w.expires_at OPERATOR(pg_catalog.<=) $1"
	"  AND EXISTS (SELECT FROM durable.worker_queue q"
	"   WHERE q.namespace OPERATOR(pg_catalog.=) w.namespace"
	"   AND q.queue OPERATOR(pg_catalog.=) w.queues[1]"
	"   AND q.worker OPERATOR(pg_catalog.=) w.worker)"
	"  LIMIT $2 FOR UPDATE SKIP LOCKED)"
	" DELETE FROM durable.worker_queue q USING dead d"
	" WHERE q.namespace OPERATOR(pg_catalog.=) d.namespace"
	" AND q.queue OPERATOR(pg_catalog.=) ANY (d.queues)"
	" AND q.worker OPERATOR(pg_catalog.=) d.worker",
	.nargs = 2,
	.argtypes = {TIMESTAMPTZOID, INT4OID},
};

static DurablePlan expire_plan = {
	.name = "expire workers",
	.sql =
	"WITH gone AS MATERIALIZED (SELECT w.namespace, w.worker FROM durable.worker w"
	"  WHERE w.expires_at OPERATOR(pg_catalog.<=) $1"
	"  AND NOT EXISTS (SELECT FROM durable.worker_queue q"
	"   WHERE q.namespace OPERATOR(pg_catalog.=) w.namespace"
	"   AND q.queue OPERATOR(pg_catalog.=) w.queues[1]"
	"   AND q.worker OPERATOR(pg_catalog.=) w.worker)"
	"  LIMIT $2 FOR UPDATE SKIP LOCKED)"
	" DELETE FROM durable.worker w USING gone g"
	" WHERE w.namespace OPERATOR(pg_catalog.=) g.namespace"
	" AND w.worker OPERATOR(pg_catalog.=) g.worker",
	.nargs = 2,
	.argtypes = {TIMESTAMPTZOID, INT4OID},
};

void
durable_worker_expire(TimestampTz now, TimestampTz before, int max)
{
	Datum		unlist[] = {TimestampTzGetDatum(now), Int32GetDatum(max)};
	Datum		expire[] = {TimestampTzGetDatum(before), Int32GetDatum(max)};

	(void) durable_plan_run(&unlist_plan, unlist, NULL);
	(void) durable_plan_run(&expire_plan, expire, NULL);
}
