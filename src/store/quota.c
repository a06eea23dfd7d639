/*-------------------------------------------------------------------------
 *
 * quota.c
 *	  durable.quota: live runs that were started under a concurrency key.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/snapmgr.h"

#include "base/lock_class.h"
#include "base/rel.h"
#include "store/quota.h"

enum
{
	QUOTA_RUN,
	QUOTA_NAMESPACE,
	QUOTA_KEY,
	QUOTA_COLUMNS
};

void
durable_quota_lock(text *namespace, text *key)
{
	LOCKTAG		tag;
	uint64		hash = hash_bytes_extended((const unsigned char *) VARDATA_ANY(namespace),
										   VARSIZE_ANY_EXHDR(namespace), 0);

	hash = hash_bytes_extended((const unsigned char *) VARDATA_ANY(key),
							   VARSIZE_ANY_EXHDR(key), hash);
	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (hash >> 32), (uint32) hash,
						 QUOTA_LOCK_CLASS);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
}

int
durable_quota_count(text *namespace, text *key, int max)
{
	DurableProbe probe;
	Datum		keys[2] = {PointerGetDatum(namespace), PointerGetDatum(key)};
	int			n;

	durable_probe_open(&probe, REL_QUOTA, IDX_QUOTA_PKEY, GetActiveSnapshot(), 2);
	n = durable_probe_count(&probe, keys, max);
	durable_probe_close(&probe);
	return n;
}

void
durable_quota_insert(text *namespace, text *key, int64 run)
{
	DurableWriter writer;
	DurableRow	row;

	durable_row_set(&row, QUOTA_RUN, Int64GetDatum(run));
	durable_row_set(&row, QUOTA_NAMESPACE, PointerGetDatum(namespace));
	durable_row_set(&row, QUOTA_KEY, PointerGetDatum(key));
	durable_writer_open(&writer, REL_QUOTA);
	durable_writer_insert(&writer, &row);
	durable_writer_close(&writer);
}

void
durable_quota_delete(text *namespace, text *key, int64 run)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		keys[3] = {PointerGetDatum(namespace), PointerGetDatum(key), Int64GetDatum(run)};

	durable_probe_open(&probe, REL_QUOTA, IDX_QUOTA_PKEY, durable_snapshot_push(), 3);
	if (durable_probe_find(&probe, keys, &row))
	{
		DurableWriter writer;

		durable_writer_open(&writer, REL_QUOTA);
		(void) durable_writer_delete(&writer, &row.tid, true);
		durable_writer_close(&writer);
	}
	durable_probe_close(&probe);
	durable_snapshot_pop();
}
