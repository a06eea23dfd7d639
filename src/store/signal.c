/*-------------------------------------------------------------------------
 *
 * signal.c
 *	  durable.waiter and durable.signal_buffer: signals and who waits for them.
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
#include "base/plan.h"
#include "store/signal.h"

enum
{
	WAITER_RUN,
	WAITER_SEQ,
	WAITER_NAMESPACE,
	WAITER_TOKEN,
	WAITER_COLUMNS
};

enum
{
	SIGNAL_ID,
	SIGNAL_CREATED_AT,
	SIGNAL_NAMESPACE,
	SIGNAL_TOKEN,
	SIGNAL_PAYLOAD,
	SIGNAL_COLUMNS
};

static void
token_tag(LOCKTAG *tag, text *namespace, text *token)
{
	uint64		hash = hash_bytes_extended((const unsigned char *) VARDATA_ANY(namespace),
										   VARSIZE_ANY_EXHDR(namespace), 0);

	hash = hash_bytes_extended((const unsigned char *) VARDATA_ANY(token),
							   VARSIZE_ANY_EXHDR(token), hash);
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, (uint32) (hash >> 32), (uint32) hash,
						 TOKEN_LOCK_CLASS);
}

void
durable_token_share(text *namespace, text *token)
{
	LOCKTAG		tag;

	token_tag(&tag, namespace, token);
	(void) LockAcquire(&tag, ShareLock, false, false);
}

bool
durable_token_share_now(text *namespace, text *token)
{
	LOCKTAG		tag;

	token_tag(&tag, namespace, token);
	return LockAcquire(&tag, ShareLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

bool
durable_token_take(text *namespace, text *token)
{
	LOCKTAG		tag;

	token_tag(&tag, namespace, token);
	return LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

static bool
find_waiter(DurableProbe *probe, text *namespace, text *token, DurableRow *row)
{
	Datum		keys[2] = {PointerGetDatum(namespace), PointerGetDatum(token)};

	durable_probe_open(probe, REL_WAITER, IDX_WAITER_PKEY, durable_snapshot_push(), 2);
	return durable_probe_find(probe, keys, row);
}

static void
end_find(DurableProbe *probe)
{
	durable_probe_close(probe);
	durable_snapshot_pop();
}

bool
durable_waiter_find(text *namespace, text *token, int64 *run, int *seq)
{
	DurableProbe probe;
	DurableRow	row;
	bool		found = find_waiter(&probe, namespace, token, &row);

	if (found)
	{
		*run = DatumGetInt64(row.values[WAITER_RUN]);
		*seq = DatumGetInt32(row.values[WAITER_SEQ]);
	}
	end_find(&probe);
	return found;
}

void
durable_waiter_register(text *namespace, text *token, int64 run, int seq)
{
	DurableProbe probe;
	DurableWriter writer;
	DurableRow	row;
	bool		found = find_waiter(&probe, namespace, token, &row);

	durable_writer_open(&writer, REL_WAITER);
	durable_row_set(&row, WAITER_RUN, Int64GetDatum(run));
	durable_row_set(&row, WAITER_SEQ, Int32GetDatum(seq));
	durable_row_set(&row, WAITER_NAMESPACE, PointerGetDatum(namespace));
	durable_row_set(&row, WAITER_TOKEN, PointerGetDatum(token));
	if (!found || durable_writer_update(&writer, &row, true) != TM_Ok)
		(void) durable_writer_insert_unless(&writer, IDX_WAITER_PKEY, &row);
	durable_writer_close(&writer);
	end_find(&probe);
}

bool
durable_waiter_remove(text *namespace, text *token, int64 run, int seq)
{
	DurableProbe probe;
	DurableRow	row;
	bool		removed = find_waiter(&probe, namespace, token, &row) &&
		DatumGetInt64(row.values[WAITER_RUN]) == run &&
		DatumGetInt32(row.values[WAITER_SEQ]) == seq;

	if (removed)
	{
		DurableWriter writer;

		durable_writer_open(&writer, REL_WAITER);
		removed = durable_writer_delete(&writer, &row.tid, true) == TM_Ok;
		durable_writer_close(&writer);
	}
	end_find(&probe);
	return removed;
}

void
durable_signal_buffer(text *namespace, text *token, Jsonb *payload)
{
	DurableWriter writer;
	DurableRow	row;

	durable_row_set(&row, SIGNAL_ID, Int64GetDatum(durable_sequence_next(SEQ_TASK)));
	durable_row_set(&row, SIGNAL_CREATED_AT, TimestampTzGetDatum(durable_clock_now()));
	durable_row_set(&row, SIGNAL_NAMESPACE, PointerGetDatum(namespace));
	durable_row_set(&row, SIGNAL_TOKEN, PointerGetDatum(token));
	durable_row_set_pointer(&row, SIGNAL_PAYLOAD, payload);
	durable_writer_open(&writer, REL_SIGNAL_BUFFER);
	durable_writer_insert(&writer, &row);
	durable_writer_close(&writer);
}

bool
durable_signal_take(text *namespace, text *token, Jsonb **payload)
{
	DurableProbe probe;
	DurableWriter writer;
	DurableRow	row;
	Datum		keys[2] = {PointerGetDatum(namespace), PointerGetDatum(token)};
	bool		taken = false;
	bool		more;

	durable_probe_open(&probe, REL_SIGNAL_BUFFER, IDX_SIGNAL_PKEY, durable_snapshot_push(), 2);
	durable_writer_open(&writer, REL_SIGNAL_BUFFER);
	for (more = durable_probe_find(&probe, keys, &row); more && !taken;
		 more = durable_probe_next(&probe, &row))
	{
		Jsonb	   *copy = row.nulls[SIGNAL_PAYLOAD] ? NULL :
			DatumGetJsonbPCopy(row.values[SIGNAL_PAYLOAD]);

		taken = durable_writer_delete(&writer, &row.tid, true) == TM_Ok;
		if (taken)
			*payload = copy;
	}
	durable_writer_close(&writer);
	durable_probe_close(&probe);
	durable_snapshot_pop();
	return taken;
}

/* Also those with a key that a wait may take at this moment: that waits, and finds the
 * next one, or none. */
static DurablePlan expire_plan = {
	.name = "expire signals",
	.sql =
	"WITH old AS (SELECT s.namespace, s.token, s.id FROM durable.signal_buffer s"
	" WHERE s.created_at OPERATOR(pg_catalog.<) $1"
	" ORDER BY s.created_at LIMIT $2 FOR UPDATE SKIP LOCKED)"
	" DELETE FROM durable.signal_buffer s USING old"
	" WHERE s.namespace OPERATOR(pg_catalog.=) old.namespace"
	" AND s.token OPERATOR(pg_catalog.=) old.token AND s.id OPERATOR(pg_catalog.=) old.id",
	.nargs = 2,
	.argtypes = {TIMESTAMPTZOID, INT4OID},
};

int64
durable_signals_expire(TimestampTz before, int max)
{
	Datum		values[] = {TimestampTzGetDatum(before), Int32GetDatum(max)};
	int64		expired;

	durable_plan_begin();
	expired = (int64) durable_plan_run(&expire_plan, values, NULL);
	durable_plan_end();
	return expired;
}
