/*-------------------------------------------------------------------------
 *
 * result.c
 *	  durable.task_result: how stand-alone tasks ended.
 *
 * Rows arrive through the settle path, written directly; reading, taking and
 * deleting them are statements. A result is unread while lease_id is null.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/plan.h"
#include "store/hop.h"
#include "store/result.h"
#include "store/task.h"

StaticAssertDecl(RESULT_TASK_ID == DURABLE_RESULT_TASK_ID_COLUMN &&
				 RESULT_LEASE_ID == DURABLE_RESULT_LEASE_COLUMN,
				 "partial indexes depend on these columns");

static const char *const status_names[] = {
	[TASK_COMPLETED] = "completed",
	[TASK_FAILED] = "failed",
	[TASK_CANCELLED] = "cancelled",
};

/* result column <- task column */
static const int copied_columns[][2] = {
	{RESULT_ID, TASK_ID},
	{RESULT_CREATED_AT, TASK_CREATED_AT},
	{RESULT_PRIORITY, TASK_PRIORITY},
	{RESULT_ATTEMPT, TASK_ATTEMPT},
	{RESULT_RECLAIMS, TASK_RECLAIMS},
	{RESULT_NAMESPACE, TASK_NAMESPACE},
	{RESULT_QUEUE, TASK_QUEUE},
	{RESULT_NAME, TASK_NAME},
	{RESULT_TASK_ID, TASK_TASK_ID},
	{RESULT_HEADERS, TASK_HEADERS},
	{RESULT_INPUT, TASK_INPUT},
};

void
durable_result_of(const DurableRow *task, const DurableOutcome *outcome,
				  TimestampTz finished_at, DurableRow *result)
{
	for (int i = 0; i < lengthof(copied_columns); i++)
	{
		result->values[copied_columns[i][0]] = task->values[copied_columns[i][1]];
		result->nulls[copied_columns[i][0]] = task->nulls[copied_columns[i][1]];
	}
	durable_row_set(result, RESULT_FINISHED_AT, TimestampTzGetDatum(finished_at));
	durable_row_set_null(result, RESULT_LEASE_ID);
	durable_row_set(result, RESULT_STATUS,
					CStringGetTextDatum(status_names[outcome->status]));
	durable_row_set_pointer(result, RESULT_OUTPUT, outcome->output);
	durable_row_set_pointer(result, RESULT_ERROR, outcome->error);
	durable_row_set_pointer(result, RESULT_EVENTS, outcome->events);
	if (outcome->status == TASK_COMPLETED)
	{
		durable_row_set_null(result, RESULT_HEADERS);
		durable_row_set_null(result, RESULT_INPUT);
	}
}

bool
durable_result_exists(text *namespace, text *task_id)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		keys[2] = {PointerGetDatum(namespace), PointerGetDatum(task_id)};
	bool		found;

	durable_probe_open(&probe, REL_TASK_RESULT, IDX_RESULT_TASK_ID,
					   durable_snapshot_push(), 2);
	found = durable_probe_find(&probe, keys, &row);
	durable_probe_close(&probe);
	durable_snapshot_pop();
	return found;
}

bool
durable_result_remove(text *namespace, text *task_id)
{
	Datum		keys[2] = {PointerGetDatum(namespace), PointerGetDatum(task_id)};
	TM_Result	result = TM_Updated;

	/* a claim of results replaces the row: look again */
	while (result == TM_Updated)
	{
		DurableProbe probe;
		DurableRow	row;

		CHECK_FOR_INTERRUPTS();
		result = TM_Deleted;
		durable_probe_open(&probe, REL_TASK_RESULT, IDX_RESULT_TASK_ID,
						   durable_snapshot_push(), 2);
		if (durable_probe_find(&probe, keys, &row))
		{
			DurableWriter writer;

			durable_writer_open(&writer, REL_TASK_RESULT);
			result = durable_writer_delete(&writer, &row.tid, true);
			durable_writer_close(&writer);
		}
		durable_probe_close(&probe);
		durable_snapshot_pop();
	}
	return result == TM_Ok;
}

/* One look-up per name keeps the index order; a name's surplus candidates stay
 * locked, not taken, until the end of the transaction. */
static DurablePlan claim_plan = {
	.name = "claim results",
	.sql =
	"WITH candidate AS ("
	" SELECT c.id, c.finished_at"
	" FROM (SELECT DISTINCT u.name FROM pg_catalog.unnest($2) AS u(name)) n"
	" CROSS JOIN LATERAL ("
	"  SELECT r.id, r.finished_at FROM durable.task_result r"
	"  WHERE r.namespace OPERATOR(pg_catalog.=) $1"
	"  AND r.name OPERATOR(pg_catalog.=) n.name AND r.lease_id IS NULL"
	"  ORDER BY r.finished_at, r.id LIMIT $3 FOR UPDATE SKIP LOCKED) c"
	" ORDER BY c.finished_at, c.id LIMIT $3), "
	"taken AS ("
	" UPDATE durable.task_result r SET lease_id = $4 FROM candidate c"
	" WHERE r.id OPERATOR(pg_catalog.=) c.id RETURNING r.*) "
	"SELECT t.id, t.task_id, t.name, t.queue, t.status, t.output, t.error,"
	" t.events, t.attempt, t.created_at, t.finished_at"
	" FROM taken t ORDER BY t.finished_at, t.id",
	.nargs = 4,
	.argtypes = {TEXTOID, TEXTARRAYOID, INT4OID, INT8OID},
};

uint64
durable_result_claim(text *namespace, ArrayType *names, int max, int64 lease_id)
{
	Datum		values[] = {
		PointerGetDatum(namespace), PointerGetDatum(names),
		Int32GetDatum(max), Int64GetDatum(lease_id)
	};

	return durable_plan_run(&claim_plan, values, NULL);
}

static DurablePlan acknowledge_plan = {
	.name = "acknowledge results",
	.sql =
	"DELETE FROM durable.task_result r"
	" WHERE r.id OPERATOR(pg_catalog.=) ANY ($2)"
	" AND r.lease_id OPERATOR(pg_catalog.=) $1"
	" AND ($3 IS NULL OR"
	" COALESCE(r.task_id, pg_catalog.concat('~', r.id)) OPERATOR(pg_catalog.=) ANY ($3))",
	.nargs = 3,
	.argtypes = {INT8OID, INT8ARRAYOID, TEXTARRAYOID},
};

uint64
durable_result_acknowledge(int64 lease_id, ArrayType *ids, ArrayType *task_ids)
{
	Datum		values[] = {
		Int64GetDatum(lease_id), PointerGetDatum(ids), PointerGetDatum(task_ids)
	};

	return durable_plan_run(&acknowledge_plan, values,
							task_ids == NULL ? "  n" : NULL);
}

static DurablePlan unclaim_plan = {
	.name = "unclaim results",
	.sql =
	"UPDATE durable.task_result r SET lease_id = NULL"
	" FROM (SELECT f.id FROM durable.task_result f"
	"  WHERE f.id OPERATOR(pg_catalog.=) ANY ($2)"
	"  AND f.lease_id OPERATOR(pg_catalog.=) $1"
	"  FOR UPDATE SKIP LOCKED) free"
	" WHERE r.id OPERATOR(pg_catalog.=) free.id",
	.nargs = 2,
	.argtypes = {INT8OID, INT8ARRAYOID},
};

static DurablePlan held_plan = {
	.name = "held results",
	.sql =
	"SELECT r.id FROM durable.task_result r"
	" WHERE r.id OPERATOR(pg_catalog.=) ANY ($2)"
	" AND r.lease_id OPERATOR(pg_catalog.=) $1 ORDER BY r.id",
	.nargs = 2,
	.argtypes = {INT8OID, INT8ARRAYOID},
};

int
durable_result_count_held(int64 lease_id, ArrayType *ids)
{
	Datum		values[] = {Int64GetDatum(lease_id), PointerGetDatum(ids)};

	return (int) durable_plan_run(&held_plan, values, NULL);
}

uint64
durable_result_unclaim(int64 lease_id, ArrayType *ids)
{
	Datum		values[] = {Int64GetDatum(lease_id), PointerGetDatum(ids)};

	(void) durable_plan_run(&unclaim_plan, values, NULL);
	return durable_plan_run(&held_plan, values, NULL);
}

/* Hops from name to name along the index of unread results, so that the cost
 * follows what is deleted and not what is kept. */
bool
durable_result_is_old(TimestampTz before)
{
	DurableHop	hop;
	DurableRow	row;
	bool		old = false;

	durable_hop_open(&hop, REL_TASK_RESULT, IDX_RESULT_UNREAD, RESULT_NAMESPACE, RESULT_NAME);
	while (!old && durable_hop_next(&hop, &row))
		old = DatumGetTimestampTz(row.values[RESULT_FINISHED_AT]) < before;
	durable_hop_close(&hop);
	return old;
}

static DurablePlan expire_plan = {
	.name = "expire results",
	.sql =
	"WITH RECURSIVE hop AS ("
	" (SELECT r.namespace, r.name FROM durable.task_result r"
	"  WHERE r.lease_id IS NULL ORDER BY r.namespace, r.name LIMIT 1)"
	" UNION ALL"
	" SELECT n.namespace, n.name FROM hop CROSS JOIN LATERAL ("
	"  SELECT r.namespace, r.name FROM durable.task_result r"
	"  WHERE r.lease_id IS NULL"
	"  AND ROW(r.namespace, r.name) OPERATOR(pg_catalog.>) ROW(hop.namespace, hop.name)"
	"  ORDER BY r.namespace, r.name LIMIT 1) n), "
	"old AS ("
	" SELECT o.id FROM hop CROSS JOIN LATERAL ("
	"  SELECT r.id FROM durable.task_result r"
	"  WHERE r.lease_id IS NULL AND r.namespace OPERATOR(pg_catalog.=) hop.namespace"
	"  AND r.name OPERATOR(pg_catalog.=) hop.name"
	"  AND r.finished_at OPERATOR(pg_catalog.<) $1"
	"  ORDER BY r.finished_at, r.id LIMIT $2 FOR UPDATE SKIP LOCKED) o"
	" LIMIT $2)"
	"DELETE FROM durable.task_result r USING old"
	" WHERE r.id OPERATOR(pg_catalog.=) old.id",
	.nargs = 2,
	.argtypes = {TIMESTAMPTZOID, INT4OID},
};

uint64
durable_result_expire(TimestampTz before, int max)
{
	Datum		values[] = {TimestampTzGetDatum(before), Int32GetDatum(max)};

	return durable_plan_run(&expire_plan, values, NULL);
}
