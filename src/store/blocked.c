/*-------------------------------------------------------------------------
 *
 * blocked.c
 *	  durable.run_blocked: runs that wait for a worker who can go on with them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/lock_class.h"
#include "base/names.h"
#include "base/plan.h"
#include "base/rel.h"
#include "store/blocked.h"

enum
{
	BLOCKED_RUN,
	BLOCKED_NAMESPACE,
	BLOCKED_QUEUE,
	BLOCKED_REQUIRES,
	BLOCKED_SINCE,
	BLOCKED_COLUMNS
};

static void
queue_tag(LOCKTAG *tag, text *namespace, text *queue)
{
	uint64		hash = hash_bytes_extended((const unsigned char *) VARDATA_ANY(namespace),
										   VARSIZE_ANY_EXHDR(namespace), 0);

	hash = hash_bytes_extended((const unsigned char *) VARDATA_ANY(queue),
							   VARSIZE_ANY_EXHDR(queue), hash);
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, (uint32) (hash >> 32), (uint32) hash,
						 ANNOUNCE_LOCK_CLASS);
}

void
durable_blocked_lock_announce(text *namespace, text *queue)
{
	LOCKTAG		tag;

	queue_tag(&tag, namespace, queue);
	(void) LockAcquire(&tag, ShareLock, false, false);
}

/* RowExclusiveLock goes with itself and not with ShareLock. */
bool
durable_blocked_lock_park(text *namespace, text *queue)
{
	LOCKTAG		tag;

	queue_tag(&tag, namespace, queue);
	return LockAcquire(&tag, RowExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

static bool
find(DurableProbe *probe, int64 run, DurableRow *row)
{
	Datum		key = Int64GetDatum(run);

	durable_probe_open(probe, REL_RUN_BLOCKED, IDX_RUN_BLOCKED_PKEY, durable_snapshot_push(), 1);
	return durable_probe_find(probe, &key, row);
}

static void
end_find(DurableProbe *probe)
{
	durable_probe_close(probe);
	durable_snapshot_pop();
}

void
durable_blocked_store(int64 run, text *namespace, text *queue, ArrayType *requires)
{
	DurableProbe probe;
	DurableWriter writer;
	DurableRow	row;
	bool		found = find(&probe, run, &row);

	durable_writer_open(&writer, REL_RUN_BLOCKED);
	durable_row_set(&row, BLOCKED_RUN, Int64GetDatum(run));
	durable_row_set(&row, BLOCKED_NAMESPACE, PointerGetDatum(namespace));
	durable_row_set(&row, BLOCKED_QUEUE, PointerGetDatum(queue));
	durable_row_set_pointer(&row, BLOCKED_REQUIRES, requires);
	if (!found)
		durable_row_set(&row, BLOCKED_SINCE, TimestampTzGetDatum(durable_clock_now()));
	if (!found || durable_writer_update(&writer, &row, true) != TM_Ok)
		(void) durable_writer_insert_unless(&writer, IDX_RUN_BLOCKED_PKEY, &row);
	durable_writer_close(&writer);
	end_find(&probe);
}

void
durable_blocked_remove(int64 run)
{
	DurableProbe probe;
	DurableRow	row;

	if (find(&probe, run, &row))
	{
		DurableWriter writer;

		durable_writer_open(&writer, REL_RUN_BLOCKED);
		(void) durable_writer_delete(&writer, &row.tid, true);
		durable_writer_close(&writer);
	}
	end_find(&probe);
}

int
durable_blocked_list(text *namespace, text *queue, ArrayType *capabilities,
					 int64 *ids, int n, int max)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		keys[2] = {PointerGetDatum(namespace), PointerGetDatum(queue)};
	bool		more;

	durable_probe_open(&probe, REL_RUN_BLOCKED, IDX_RUN_BLOCKED_QUEUE, durable_snapshot_push(), 2);
	for (more = durable_probe_find(&probe, keys, &row); more && n < max;
		 more = durable_probe_next(&probe, &row))
	{
		CHECK_FOR_INTERRUPTS();
		if (row.nulls[BLOCKED_REQUIRES] ||
			durable_set_contains(capabilities, DatumGetArrayTypeP(row.values[BLOCKED_REQUIRES])))
			ids[n++] = DatumGetInt64(row.values[BLOCKED_RUN]);
	}
	end_find(&probe);
	return n;
}

bool
durable_blocked_exists(void)
{
	DurableProbe probe;
	DurableRow	row;
	bool		found;

	durable_probe_open(&probe, REL_RUN_BLOCKED, IDX_RUN_BLOCKED_PKEY, durable_snapshot_push(), 0);
	found = durable_probe_find(&probe, NULL, &row);
	durable_probe_close(&probe);
	durable_snapshot_pop();
	return found;
}

#define IS_NOT_BLOCKED \
	" NOT EXISTS (SELECT FROM durable.run r WHERE r.id OPERATOR(pg_catalog.=) b.run" \
	"  AND r.status OPERATOR(pg_catalog.=) 'blocked')"

static DurablePlan left_plan = {
	.name = "entries of runs that are not blocked",
	.sql =
	"SELECT ARRAY(SELECT b.run FROM durable.run_blocked b WHERE" IS_NOT_BLOCKED
	" LIMIT $1 FOR UPDATE SKIP LOCKED)",
	.nargs = 1,
	.argtypes = {INT4OID},
};

static DurablePlan expire_plan = {
	.name = "expire blocked",
	.sql =
	"DELETE FROM durable.run_blocked b"
	" WHERE b.run OPERATOR(pg_catalog.=) ANY ($1) AND" IS_NOT_BLOCKED,
	.nargs = 1,
	.argtypes = {INT8ARRAYOID},
};

/* A run that becomes blocked writes the entry that was left of it, maybe between our look
 * and our lock; so we look once more, now that nobody can. */
void
durable_blocked_expire(int max)
{
	Datum		value = Int32GetDatum(max);
	bool		isnull;

	(void) durable_plan_run(&left_plan, &value, NULL);
	value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	(void) durable_plan_run(&expire_plan, &value, NULL);
}
