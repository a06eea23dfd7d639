/*-------------------------------------------------------------------------
 *
 * limiter.c
 *	  durable.limiter: what limiters allow, and durable.limiter_queue: where they
 *	  are named.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/names.h"
#include "base/plan.h"
#include "store/limiter.h"

enum
{
	LIMITER_ID,
	LIMITER_CREATED_AT,
	LIMITER_CHANGED_AT,
	LIMITER_PAUSED_AT,
	LIMITER_RATE_US,
	LIMITER_CONCURRENCY,
	LIMITER_KEY_CONCURRENCY,
	LIMITER_RATE_LIMIT,
	LIMITER_RATE_PERIOD,
	LIMITER_RATE_KIND,
	LIMITER_FAIRNESS,
	LIMITER_ORDERING,
	LIMITER_NAMESPACE,
	LIMITER_NAME,
	LIMITER_PAUSED_BY,
	LIMITER_COLUMNS
};

enum
{
	PAIR_LIMITER,
	PAIR_NAMESPACE,
	PAIR_QUEUE,
	PAIR_COLUMNS
};

static int
limit_of(const DurableRow *row, int column)
{
	return row->nulls[column] ? DURABLE_NO_LIMIT : DatumGetInt32(row->values[column]);
}

static bool
find(DurableRel index, const Datum *keys, int nkeys, DurableLimiter *limiter)
{
	DurableProbe probe;
	DurableRow	row;
	bool		found;

	durable_probe_open(&probe, REL_LIMITER, index, durable_snapshot_push(), nkeys);
	found = durable_probe_find(&probe, keys, &row);
	if (found)
	{
		limiter->id = DatumGetInt64(row.values[LIMITER_ID]);
		limiter->concurrency = limit_of(&row, LIMITER_CONCURRENCY);
		limiter->key_concurrency = limit_of(&row, LIMITER_KEY_CONCURRENCY);
		limiter->rate_limit = limit_of(&row, LIMITER_RATE_LIMIT);
		limiter->rate_us = row.nulls[LIMITER_RATE_US] ? 0 :
			DatumGetInt64(row.values[LIMITER_RATE_US]);
		limiter->sliding = durable_text_is(DatumGetTextPP(row.values[LIMITER_RATE_KIND]), "sliding");
		limiter->by_key = durable_text_is(DatumGetTextPP(row.values[LIMITER_FAIRNESS]), "key");
		limiter->lifo = durable_text_is(DatumGetTextPP(row.values[LIMITER_ORDERING]), "lifo");
		limiter->paused = !row.nulls[LIMITER_PAUSED_AT];
	}
	durable_probe_close(&probe);
	durable_snapshot_pop();
	return found;
}

bool
durable_limiter_find(text *namespace, text *name, DurableLimiter *limiter)
{
	Datum		keys[] = {PointerGetDatum(namespace), PointerGetDatum(name)};

	return find(IDX_LIMITER_PKEY, keys, 2, limiter);
}

bool
durable_limiter_read(int64 id, DurableLimiter *limiter)
{
	Datum		key = Int64GetDatum(id);

	return find(IDX_LIMITER_ID, &key, 1, limiter);
}

static DurablePlan put_plan = {
	.name = "register limiter",
	.sql =
	"INSERT INTO durable.limiter AS l (id, created_at, changed_at, rate_us, concurrency,"
	"  key_concurrency, rate_limit, rate_period, rate_kind, fairness, ordering, namespace, name)"
	" VALUES (pg_catalog.nextval('durable.limiter_seq'), $1, $1, $2, $3, $4, $5, $6, $7, $8, $9,"
	"  $10, $11)"
	" ON CONFLICT ON CONSTRAINT limiter_pkey DO UPDATE"
	" SET changed_at = excluded.changed_at, rate_us = excluded.rate_us,"
	"  concurrency = excluded.concurrency, key_concurrency = excluded.key_concurrency,"
	"  rate_limit = excluded.rate_limit, rate_period = excluded.rate_period,"
	"  rate_kind = excluded.rate_kind, fairness = excluded.fairness,"
	"  ordering = excluded.ordering"
	" RETURNING l.id, l.xmax OPERATOR(pg_catalog.=) '0'::pg_catalog.xid",
	.nargs = 11,
	.argtypes = {TIMESTAMPTZOID, INT8OID, INT4OID, INT4OID, INT4OID, INTERVALOID, TEXTOID,
	TEXTOID, TEXTOID, TEXTOID, TEXTOID},
};

int64
durable_limiter_put(const DurableLimiterSpec *spec, TimestampTz now, bool *inserted)
{
	const DurableLimiter *limits = &spec->limits;
	Datum		values[] = {
		TimestampTzGetDatum(now), Int64GetDatum(limits->rate_us),
		Int32GetDatum(limits->concurrency), Int32GetDatum(limits->key_concurrency),
		Int32GetDatum(limits->rate_limit), IntervalPGetDatum(spec->rate_period),
		CStringGetTextDatum(limits->sliding ? "sliding" : "fixed"),
		CStringGetTextDatum(limits->by_key ? "key" : "fifo"),
		CStringGetTextDatum(limits->lifo ? "lifo" : "fifo"),
		PointerGetDatum(spec->namespace), PointerGetDatum(spec->name)
	};
	char		nulls[] = "           ";
	bool		isnull;
	int64		id;

	if (limits->rate_limit == DURABLE_NO_LIMIT)
		nulls[1] = nulls[4] = nulls[5] = 'n';
	if (limits->concurrency == DURABLE_NO_LIMIT)
		nulls[2] = 'n';
	if (limits->key_concurrency == DURABLE_NO_LIMIT)
		nulls[3] = 'n';
	durable_plan_begin();
	(void) durable_plan_run(&put_plan, values, nulls);
	id = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	*inserted = DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2,
										   &isnull));
	durable_plan_end();
	return id;
}

static DurablePlan pause_plan = {
	.name = "pause limiter",
	.sql =
	"UPDATE durable.limiter SET paused_at = $2, paused_by = $3"
	" WHERE id OPERATOR(pg_catalog.=) $1 AND (paused_at IS NULL) OPERATOR(pg_catalog.<>) ($2 IS NULL)",
	.nargs = 3,
	.argtypes = {INT8OID, TIMESTAMPTZOID, TEXTOID},
};

bool
durable_limiter_set_paused(int64 id, bool paused, TimestampTz now)
{
	Datum		values[] = {
		Int64GetDatum(id), TimestampTzGetDatum(now),
		CStringGetTextDatum(GetUserNameFromId(GetUserId(), false))
	};
	uint64		changed;

	durable_plan_begin();
	changed = durable_plan_run(&pause_plan, values, paused ? "   " : " nn");
	durable_plan_end();
	return changed > 0;
}

#define DELETE_FROM(table) \
	"DELETE FROM durable." table " WHERE limiter OPERATOR(pg_catalog.=) $1"

static DurablePlan delete_plan = {
	.name = "drop limiter",
	.sql =
	"WITH a AS (" DELETE_FROM("limiter_queue") "), b AS (" DELETE_FROM("limiter_blocked") "),"
	" c AS (" DELETE_FROM("limiter_freed") "), d AS (" DELETE_FROM("limiter_state") "),"
	" e AS (" DELETE_FROM("limiter_key") "), f AS (" DELETE_FROM("limiter_tick") "),"
	" g AS (DELETE FROM durable.limiter_turn"
	"  WHERE list OPERATOR(pg_catalog.=) ($1::pg_catalog.text))"
	" DELETE FROM durable.limiter WHERE id OPERATOR(pg_catalog.=) $1",
	.nargs = 1,
	.argtypes = {INT8OID},
};

void
durable_limiter_delete(int64 id)
{
	Datum		value = Int64GetDatum(id);

	durable_plan_begin();
	(void) durable_plan_run(&delete_plan, &value, NULL);
	durable_plan_end();
}

static DurablePlan named_plan = {
	.name = "tasks of a limiter",
	.sql =
	"SELECT WHERE EXISTS (SELECT FROM durable.task_limited w"
	"  WHERE w.limiter OPERATOR(pg_catalog.=) $1)"
	" OR EXISTS (SELECT FROM durable.limiter_slot s WHERE s.limiter OPERATOR(pg_catalog.=) $1)"
	/* the turn of a run, once it neither waits nor holds a slot, only remembers it */
	" OR EXISTS (SELECT FROM durable.task t WHERE t.limiter OPERATOR(pg_catalog.=) $1"
	"  AND t.kind OPERATOR(pg_catalog.<>) 'turn')",
	.nargs = 1,
	.argtypes = {INT8OID},
};

bool
durable_limiter_is_named(int64 id)
{
	Datum		value = Int64GetDatum(id);
	bool		named;

	durable_plan_begin();
	named = durable_plan_run(&named_plan, &value, NULL) > 0;
	durable_plan_end();
	return named;
}

/* One turn for each key, queue and priority that has waiting tasks, where the new
 * order has it. Blocked keys are found to be so again. */
static DurablePlan reorder_plan = {
	.name = "reorder limiter",
	.sql =
	"WITH turns AS (DELETE FROM durable.limiter_turn"
	"  WHERE list OPERATOR(pg_catalog.=) ($1::pg_catalog.text)),"
	" blocked AS (DELETE FROM durable.limiter_blocked WHERE limiter OPERATOR(pg_catalog.=) $1),"
	" state AS (UPDATE durable.limiter_state SET blocked = 0, floor = 0, floor_task = 0"
	"  WHERE limiter OPERATOR(pg_catalog.=) $1),"
	" keys AS (UPDATE durable.limiter_key SET blocked = 0"
	"  WHERE limiter OPERATOR(pg_catalog.=) $1 AND blocked OPERATOR(pg_catalog.>) 0),"
	" waiting AS (SELECT w.queue, w.priority, w.key, pg_catalog.min(w.id) AS first,"
	"   pg_catalog.max(w.id) AS last FROM durable.task_limited w"
	"  WHERE w.limiter OPERATOR(pg_catalog.=) $1 GROUP BY w.queue, w.priority, w.key)"
	" INSERT INTO durable.limiter_turn (\"position\", head, priority, list, queue, key)"
	" SELECT CASE WHEN $2 THEN COALESCE((SELECT pg_catalog.max(k.served) FROM durable.limiter_key k"
	"   WHERE k.limiter OPERATOR(pg_catalog.=) $1 AND k.key OPERATOR(pg_catalog.=) w.key), w.first)"
	"  WHEN $3 THEN OPERATOR(pg_catalog.-) w.last ELSE w.first END,"
	"  w.first, w.priority, $1::pg_catalog.text, w.queue, w.key FROM waiting w",
	.nargs = 3,
	.argtypes = {INT8OID, BOOLOID, BOOLOID},
};

void
durable_limiter_reorder(const DurableLimiter *limiter)
{
	Datum		values[] = {
		Int64GetDatum(limiter->id), BoolGetDatum(limiter->by_key), BoolGetDatum(limiter->lifo)
	};

	durable_plan_begin();
	(void) durable_plan_run(&reorder_plan, values, NULL);
	durable_plan_end();
}

/* Between durable_plan_begin() and _end(), after what was claimed has gone back. */
static DurablePlan rebuild_plan = {
	.name = "rebuild limiters",
	.sql =
	"WITH a AS (DELETE FROM durable.limiter_blocked), b AS (DELETE FROM durable.limiter_freed),"
	" c AS (DELETE FROM durable.limiter_state), d AS (DELETE FROM durable.limiter_key),"
	" e AS (DELETE FROM durable.limiter_tick), f AS (DELETE FROM durable.limiter_slot),"
	" g AS (DELETE FROM durable.limiter_turn)"
	" INSERT INTO durable.limiter_turn (\"position\", head, priority, list, queue, key)"
	" SELECT CASE WHEN l.fairness OPERATOR(pg_catalog.=) 'key' THEN pg_catalog.min(w.id)"
	"  WHEN l.ordering OPERATOR(pg_catalog.=) 'lifo' THEN OPERATOR(pg_catalog.-) pg_catalog.max(w.id)"
	"  ELSE pg_catalog.min(w.id) END,"
	"  pg_catalog.min(w.id), w.priority, w.limiter::pg_catalog.text, w.queue, w.key"
	" FROM durable.task_limited w JOIN durable.limiter l ON l.id OPERATOR(pg_catalog.=) w.limiter"
	" GROUP BY l.fairness, l.ordering, w.priority, w.limiter, w.queue, w.key",
};

void
durable_limiters_rebuild(void)
{
	(void) durable_plan_run(&rebuild_plan, NULL, NULL);
}

/* Under the limiter's lock the newest version of a key is the only live one. */
static DurablePlan expire_plan = {
	.name = "forget keys of a limiter",
	.sql =
	"DELETE FROM durable.limiter_key WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY("
	" SELECT k.ctid FROM durable.limiter_key k WHERE k.limiter OPERATOR(pg_catalog.=) $1"
	"  AND k.running OPERATOR(pg_catalog.=) 0 AND k.blocked OPERATOR(pg_catalog.=) 0"
	"  AND k.served OPERATOR(pg_catalog.<) $2 LIMIT $3))",
	.nargs = 3,
	.argtypes = {INT8OID, INT8OID, INT4OID},
};

uint64
durable_limiter_keys_expire(int64 limiter, int64 served_before, int max)
{
	Datum		values[] = {
		Int64GetDatum(limiter), Int64GetDatum(served_before), Int32GetDatum(max)
	};
	uint64		n;

	durable_plan_begin();
	n = durable_plan_run(&expire_plan, values, NULL);
	durable_plan_end();
	return n;
}

static void
add_number(int64 **numbers, int *n, int *space, int64 number)
{
	for (int i = 0; i < *n; i++)
	{
		if ((*numbers)[i] == number)
			return;
	}
	if (*n == *space)
	{
		*space = Max(8, *space * 2);
		*numbers = *numbers == NULL ? palloc(sizeof(int64) * *space) :
			repalloc(*numbers, sizeof(int64) * *space);
	}
	(*numbers)[(*n)++] = number;
}

int
durable_limiters_of_queue(text *namespace, text *queue, int64 **limiters)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		keys[] = {PointerGetDatum(namespace), PointerGetDatum(queue)};
	int			n = 0;
	int			space = 0;
	bool		found;

	*limiters = NULL;
	if (durable_table_is_unused(REL_LIMITER_QUEUE))
		return 0;
	durable_probe_open(&probe, REL_LIMITER_QUEUE, IDX_LIMITER_QUEUE_PAIR,
					   durable_snapshot_push(), 2);
	for (found = durable_probe_find(&probe, keys, &row); found;
		 found = durable_probe_next(&probe, &row))
		add_number(limiters, &n, &space, DatumGetInt64(row.values[PAIR_LIMITER]));
	durable_probe_close(&probe);
	durable_snapshot_pop();
	return n;
}

static bool
is_known(text **queues, int n, const text *queue)
{
	for (int i = 0; i < n; i++)
	{
		if (durable_text_same(queues[i], queue))
			return true;
	}
	return false;
}

int
durable_limiter_queues(int64 limiter, text **namespace, text ***queues)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		key = Int64GetDatum(limiter);
	int			n = 0;
	int			space = 8;
	bool		found;

	*namespace = NULL;
	*queues = palloc(sizeof(text *) * space);
	durable_probe_open(&probe, REL_LIMITER_QUEUE, IDX_LIMITER_QUEUE_LIMITER,
					   durable_snapshot_push(), 1);
	for (found = durable_probe_find(&probe, &key, &row); found;
		 found = durable_probe_next(&probe, &row))
	{
		if (is_known(*queues, n, DatumGetTextPP(row.values[PAIR_QUEUE])))
			continue;
		if (n == space)
			*queues = repalloc(*queues, sizeof(text *) * (space *= 2));
		*namespace = DatumGetTextPCopy(row.values[PAIR_NAMESPACE]);
		(*queues)[n++] = DatumGetTextPCopy(row.values[PAIR_QUEUE]);
	}
	durable_probe_close(&probe);
	durable_snapshot_pop();
	return n;
}

void
durable_limiter_add_queue(int64 limiter, text *namespace, text *queue)
{
	DurableProbe probe;
	DurableWriter writer;
	DurableRow	row;
	Datum		keys[] = {
		PointerGetDatum(namespace), PointerGetDatum(queue), Int64GetDatum(limiter)
	};
	bool		found;

	durable_probe_open(&probe, REL_LIMITER_QUEUE, IDX_LIMITER_QUEUE_PAIR,
					   durable_snapshot_push(), 3);
	found = durable_probe_find(&probe, keys, &row);
	durable_probe_close(&probe);
	durable_snapshot_pop();
	if (found)
		return;
	durable_row_set(&row, PAIR_LIMITER, Int64GetDatum(limiter));
	durable_row_set(&row, PAIR_NAMESPACE, PointerGetDatum(namespace));
	durable_row_set(&row, PAIR_QUEUE, PointerGetDatum(queue));
	durable_writer_open(&writer, REL_LIMITER_QUEUE);
	durable_writer_insert(&writer, &row);
	durable_writer_close(&writer);
}

static DurablePlan in_use_plan = {
	.name = "limiters in use",
	.sql = "SELECT DISTINCT q.limiter FROM durable.limiter_queue q",
};

int
durable_limiters_in_use(int64 **limiters)
{
	MemoryContext caller = CurrentMemoryContext;
	int			n;

	*limiters = NULL;
	if (durable_table_is_unused(REL_LIMITER_QUEUE))
		return 0;
	durable_plan_begin();
	n = (int) durable_plan_run(&in_use_plan, NULL, NULL);
	*limiters = MemoryContextAlloc(caller, sizeof(int64) * Max(n, 1));
	for (int i = 0; i < n; i++)
	{
		bool		isnull;

		(*limiters)[i] = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[i],
													 SPI_tuptable->tupdesc, 1, &isnull));
	}
	durable_plan_end();
	return n;
}
