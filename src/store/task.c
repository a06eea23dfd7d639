/*-------------------------------------------------------------------------
 *
 * task.c
 *	  durable.task: tasks that are not settled yet.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/skey.h"
#include "access/stratnum.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"

#include "base/names.h"
#include "base/plan.h"
#include "base/walk.h"
#include "store/task.h"

StaticAssertDecl(TASK_TASK_ID == DURABLE_TASK_ID_COLUMN,
				 "the index on task_id depends on this column");

#define GENERATED_MARK '~'
#define GENERATED_DIGITS 18

text *
durable_task_id_text(int64 id, const text *explicit_id)
{
	char		buffer[MAXINT8LEN + 2];

	if (explicit_id != NULL)
		return (text *) explicit_id;
	buffer[0] = GENERATED_MARK;
	pg_lltoa(id, buffer + 1);
	return cstring_to_text(buffer);
}

/* Exactly the form above: no sign, no leading zero, no other id reads the same. */
bool
durable_task_id_generated(const text *task_id, int64 *id)
{
	const char *digits = VARDATA_ANY(task_id);
	int			length = VARSIZE_ANY_EXHDR(task_id);
	int64		value = 0;

	if (length < 2 || length > GENERATED_DIGITS + 1 ||
		digits[0] != GENERATED_MARK || digits[1] == '0')
		return false;
	for (int i = 1; i < length; i++)
	{
		if (digits[i] < '0' || digits[i] > '9')
			return false;
		value = value * 10 + (digits[i] - '0');
	}
	*id = value;
	return true;
}

void
durable_task_open_by_id(DurableProbe *probe, Snapshot snapshot)
{
	durable_probe_open(probe, REL_TASK, IDX_TASK_PKEY, snapshot, 1);
}

void
durable_task_open_by_task_id(DurableProbe *probe, Snapshot snapshot)
{
	durable_probe_open(probe, REL_TASK, IDX_TASK_ID, snapshot, 2);
}

bool
durable_task_find_number(DurableProbe *by_id, int64 id, DurableRow *row)
{
	Datum		key = Int64GetDatum(id);

	return durable_probe_find(by_id, &key, row);
}

bool
durable_task_find(DurableProbe *by_id, DurableProbe *by_task_id,
				  text *namespace, text *task_id, DurableRow *row)
{
	int64		id;

	if (durable_task_id_generated(task_id, &id))
		return durable_task_find_number(by_id, id, row) &&
			row->nulls[TASK_TASK_ID] &&
			durable_text_same(DatumGetTextPP(row->values[TASK_NAMESPACE]), namespace);
	else
	{
		Datum		keys[2] = {PointerGetDatum(namespace), PointerGetDatum(task_id)};

		return durable_probe_find(by_task_id, keys, row);
	}
}

bool
durable_task_is(const DurableRow *row, const char *kind)
{
	return durable_text_is(DatumGetTextPP(row->values[TASK_KIND]), kind);
}

bool
durable_task_was_replaced(const DurableRow *row)
{
	return !row->nulls[TASK_REPLACED] && DatumGetBool(row->values[TASK_REPLACED]);
}

bool
durable_task_held_by(const DurableRow *row, int64 lease)
{
	return row->nulls[TASK_LAST_LEASE] ||
		lease > DatumGetInt64(row->values[TASK_LAST_LEASE]);
}

/* A range this many times as wide as the list is still read as one. */
#define RANGE_FACTOR 4

static int
count_by_probe(const int64 *ids, int n, int64 lease, Snapshot snapshot)
{
	DurableProbe by_id;
	DurableRow	row;
	int			found = 0;

	durable_task_open_by_id(&by_id, snapshot);
	for (int i = 0; i < n; i++)
		found += durable_task_find_number(&by_id, ids[i], &row) &&
			durable_task_held_by(&row, lease);
	durable_probe_close(&by_id);
	return found;
}

/* A merge of the list with the index range that it spans. */
int
durable_task_count_held(const int64 *ids, int n, int64 lease, Snapshot snapshot)
{
	DurableWalk walk;
	ScanKeyData keys[2];
	int			found = 0;
	int			next = 0;

	if (n == 0)
		return 0;
	if (ids[n - 1] - ids[0] >= (int64) n * RANGE_FACTOR)
		return count_by_probe(ids, n, lease, snapshot);
	durable_walk_open(&walk, REL_TASK, IDX_TASK_PKEY, snapshot, 2, 1);
	ScanKeyInit(&keys[0], 1, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(ids[0]));
	ScanKeyInit(&keys[1], 1, BTLessEqualStrategyNumber, F_INT8LE, Int64GetDatum(ids[n - 1]));
	durable_walk_start(&walk, keys, NULL);
	while (next < n && durable_walk_next(&walk))
	{
		while (next < n && ids[next] < walk.position)
			next++;
		if (next < n && ids[next] == walk.position && durable_walk_visible(&walk))
		{
			DurableRow	row;

			durable_slot_row(walk.slot, &row);
			found += durable_task_held_by(&row, lease);
			next++;
		}
	}
	durable_walk_close(&walk);
	return found;
}

/*
 * Leases are not part of a dump, so a restored task that was claimed stands
 * nowhere. Its row is written too: that is what refuses an old token.
 */
static DurablePlan orphan_plan = {
	.name = "requeue orphaned tasks",
	.sql =
	"WITH gone AS (DELETE FROM durable.lease),"
	" next AS (SELECT pg_catalog.nextval('durable.lease_seq') AS lease),"
	" unread AS (UPDATE durable.task_result SET lease_id = NULL WHERE lease_id IS NOT NULL),"
	" orphan AS (UPDATE durable.task t SET last_lease = next.lease, replaced = NULL FROM next"
	"  WHERE NOT EXISTS (SELECT FROM durable.task_ready r"
	"   WHERE r.namespace OPERATOR(pg_catalog.=) t.namespace"
	"   AND r.queue OPERATOR(pg_catalog.=) t.queue"
	"   AND r.priority OPERATOR(pg_catalog.=) t.priority"
	"   AND r.id OPERATOR(pg_catalog.=) t.id)"
	"  AND NOT EXISTS (SELECT FROM durable.task_delayed d"
	"   WHERE d.namespace OPERATOR(pg_catalog.=) t.namespace"
	"   AND d.queue OPERATOR(pg_catalog.=) t.queue"
	"   AND d.run_at OPERATOR(pg_catalog.=) t.run_at"
	"   AND d.id OPERATOR(pg_catalog.=) t.id)"
	/* a run that waits has its turn in no list, as have steps that wait for
	 * their place in a fan */
	"  AND NOT EXISTS (SELECT FROM durable.run p"
	"   WHERE p.id OPERATOR(pg_catalog.=) t.id"
	"   AND p.turn_state OPERATOR(pg_catalog.=) 'parked')"
	/* nor has one that waits for a slot of its singleton key */
	"  AND NOT EXISTS (SELECT FROM durable.singleton w"
	"   WHERE w.run OPERATOR(pg_catalog.=) t.id AND w.parked)"
	/* the turn of one that sleeps stands where the run says, not the task */
	"  AND NOT EXISTS (SELECT FROM durable.run s, durable.task_delayed d"
	"   WHERE s.id OPERATOR(pg_catalog.=) t.id"
	"   AND d.namespace OPERATOR(pg_catalog.=) t.namespace"
	"   AND d.queue OPERATOR(pg_catalog.=) t.queue"
	"   AND d.run_at OPERATOR(pg_catalog.=) s.wake_at"
	"   AND d.id OPERATOR(pg_catalog.=) t.id)"
	"  AND NOT EXISTS (SELECT FROM durable.run f"
	"   WHERE f.run_id OPERATOR(pg_catalog.=) t.run_id"
	"   AND t.seq OPERATOR(pg_catalog.>=) f.fan_next"
	"   AND t.seq OPERATOR(pg_catalog.<=) f.fan_last)"
	"  AND NOT EXISTS (SELECT FROM durable.task_limited w"
	"   WHERE w.limiter OPERATOR(pg_catalog.=) t.limiter"
	"   AND w.key OPERATOR(pg_catalog.=) t.limiter_key"
	"   AND w.queue OPERATOR(pg_catalog.=) t.queue"
	"   AND w.priority OPERATOR(pg_catalog.=) t.priority"
	"   AND w.id OPERATOR(pg_catalog.=) t.id)"
	"  RETURNING t.id, t.priority, t.namespace, t.queue, t.kind, t.limiter, t.limiter_key),"
	/* at its limiter, but for a turn whose step asks again */
	" waiting AS (INSERT INTO durable.task_limited (id, limiter, priority, namespace, queue, key)"
	"  SELECT o.id, o.limiter, o.priority, o.namespace, o.queue, o.limiter_key FROM orphan o"
	"  WHERE o.limiter IS NOT NULL AND o.kind OPERATOR(pg_catalog.<>) 'turn'"
	"  RETURNING id),"
	" ready AS ("
	" INSERT INTO durable.task_ready (id, priority, namespace, queue)"
	" SELECT o.id, o.priority, o.namespace, o.queue FROM orphan o"
	" WHERE o.limiter IS NULL OR o.kind OPERATOR(pg_catalog.=) 'turn' RETURNING id)"
	" SELECT FROM ready UNION ALL SELECT FROM waiting",
};

uint64
durable_task_requeue_orphans(void)
{
	return durable_plan_run(&orphan_plan, NULL, NULL);
}
