/*-------------------------------------------------------------------------
 *
 * deadletter.c
 *	  durable.dead_letter: each namespace's default dead-letter workflow.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"

#include "base/plan.h"
#include "base/rel.h"
#include "store/deadletter.h"

enum
{
	DEAD_LETTER_SET_AT,
	DEAD_LETTER_OWNER,
	DEAD_LETTER_NAMESPACE,
	DEAD_LETTER_WORKFLOW,
	DEAD_LETTER_COLUMNS
};

static DurablePlan store_plan = {
	.name = "store dead-letter workflow",
	.sql =
	"INSERT INTO durable.dead_letter AS d (namespace, workflow, owner, set_at)"
	" VALUES ($1, $2, $3, pg_catalog.clock_timestamp())"
	" ON CONFLICT ON CONSTRAINT dead_letter_pkey DO UPDATE SET"
	" workflow = excluded.workflow, owner = excluded.owner, set_at = excluded.set_at",
	.nargs = 3,
	.argtypes = {TEXTOID, TEXTOID, REGROLEOID},
};

static DurablePlan delete_plan = {
	.name = "delete dead-letter workflow",
	.sql =
	"DELETE FROM durable.dead_letter d WHERE d.namespace OPERATOR(pg_catalog.=) $1",
	.nargs = 1,
	.argtypes = {TEXTOID},
};

/* Not by a plan: a session that is ending asks, too. */
bool
durable_dead_letter_find(text *namespace, DurableDeadLetter *found)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		key = PointerGetDatum(namespace);
	bool		exists;

	durable_probe_open(&probe, REL_DEAD_LETTER, IDX_DEAD_LETTER_PKEY, durable_snapshot_push(), 1);
	exists = durable_probe_find(&probe, &key, &row);
	if (exists)
	{
		found->owner = DatumGetObjectId(row.values[DEAD_LETTER_OWNER]);
		found->workflow = DatumGetTextPCopy(row.values[DEAD_LETTER_WORKFLOW]);
	}
	durable_probe_close(&probe);
	durable_snapshot_pop();
	return exists;
}

void
durable_dead_letter_store(text *namespace, const DurableDeadLetter *given)
{
	Datum		values[] = {
		PointerGetDatum(namespace), PointerGetDatum(given->workflow),
		ObjectIdGetDatum(given->owner)
	};

	durable_plan_begin();
	(void) durable_plan_run(&store_plan, values, NULL);
	durable_plan_end();
}

void
durable_dead_letter_delete(text *namespace)
{
	Datum		value = PointerGetDatum(namespace);

	durable_plan_begin();
	(void) durable_plan_run(&delete_plan, &value, NULL);
	durable_plan_end();
}
