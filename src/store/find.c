/*-------------------------------------------------------------------------
 *
 * find.c
 *	  Which runs a filter means.
 *
 * All that take filters ask here: redrive, cancel_where, purge_runs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "executor/spi.h"
#include "utils/builtins.h"

#include "base/plan.h"
#include "store/find.h"

static DurablePlan find_plan = {
	.name = "runs of a filter",
	.sql =
	"SELECT f FROM durable.find_runs($1, $2, $3, $4::pg_catalog.text[], $5, $6, $7) f",
	.nargs = 7,
	.argtypes = {JSONBOID, TEXTOID, TIMESTAMPTZOID, TEXTOID, BOOLOID, INT4OID, INT8OID},
};

int64 *
durable_runs_find(const DurableSought *sought, int *n)
{
	MemoryContext context = CurrentMemoryContext;
	Datum		values[] = {
		JsonbPGetDatum(sought->filter), PointerGetDatum(sought->namespace),
		TimestampTzGetDatum(sought->now),
		sought->statuses == NULL ? (Datum) 0 : CStringGetTextDatum(sought->statuses),
		BoolGetDatum(sought->to_requeue), Int32GetDatum(sought->max), Int64GetDatum(sought->since)
	};
	int64	   *ids;

	durable_plan_begin();
	*n = (int) durable_plan_run(&find_plan, values,
								sought->statuses == NULL ? "   n   " : NULL);
	ids = MemoryContextAlloc(context, sizeof(int64) * Max(*n, 1));
	for (int i = 0; i < *n; i++)
	{
		bool		isnull;

		ids[i] = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc,
											 1, &isnull));
	}
	durable_plan_end();
	return ids;
}
