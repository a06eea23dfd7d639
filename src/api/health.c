/*-------------------------------------------------------------------------
 *
 * health.c
 *	  health, queue_list: for people and for monitoring.
 *
 * Which namespaces the caller may read is found out here; the queries run as the
 * extension's owner, because row security would keep them from using the indexes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "base/compat.h"
#include "base/errors.h"
#include "base/extension_state.h"
#include "base/plan.h"
#include "base/security.h"

DURABLE_FUNCTION(durable_health);
DURABLE_FUNCTION(durable_queue_list);
DURABLE_FUNCTION(durable_shows_active);

static DurablePlan health_plan = {
	.name = "health",
	.sql = "SELECT * FROM durable.health_checks($1, $2, $3)",
	.nargs = 3,
	.argtypes = {TEXTARRAYOID, BOOLOID, JSONBOID},
};

static DurablePlan queues_plan = {
	.name = "queues",
	.sql = "SELECT * FROM durable.queue_counts($1)",
	.nargs = 1,
	.argtypes = {TEXTARRAYOID},
};

/* What the caller may read. */
typedef struct Reader
{
	bool		all;
	ArrayType  *namespaces;		/* when not all */
} Reader;

static void
find_reader(Reader *reader)
{
	int			n;

	reader->all = durable_access_is_owner() || has_privs_of_role(GetUserId(), ROLE_PG_MONITOR);
	if (reader->all)
		return;
	reader->namespaces = durable_access_namespaces(PRIVILEGE_READ, &n);
	if (n == 0)
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				errmsg("permission denied to see the state of the work"),
				errdetail("The role \"%s\" is no member of pg_monitor and may not read any namespace.",
						  GetUserNameFromId(GetUserId(), false)),
				errhint("The extension's owner can grant it with durable.grant_usage(..., '{read}')."));
}

/* The rows of the last plan, to the caller of the function. */
static void
show_rows(ReturnSetInfo *result)
{
	for (uint64 i = 0; i < SPI_processed; i++)
		tuplestore_puttuple(result->setResult, SPI_tuptable->vals[i]);
}

Datum
durable_health(PG_FUNCTION_ARGS)
{
	Reader		reader;
	Datum		values[3];
	char		nulls[] = {' ', ' ', ' '};

	if (PG_ARGISNULL(0))
		durable_error_null("thresholds");
	find_reader(&reader);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	values[0] = PointerGetDatum(reader.namespaces);
	nulls[0] = reader.all ? 'n' : ' ';
	values[1] = BoolGetDatum(reader.all);
	values[2] = PG_GETARG_DATUM(0);
	durable_plan_begin();
	(void) durable_plan_run(&health_plan, values, nulls);
	show_rows((ReturnSetInfo *) fcinfo->resultinfo);
	durable_plan_end();
	return (Datum) 0;
}

Datum
durable_queue_list(PG_FUNCTION_ARGS)
{
	Reader		reader;
	Datum		value;

	find_reader(&reader);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	value = PointerGetDatum(reader.namespaces);
	durable_plan_begin();
	(void) durable_plan_run(&queues_plan, &value, reader.all ? "n" : " ");
	show_rows((ReturnSetInfo *) fcinfo->resultinfo);
	durable_plan_end();
	return (Datum) 0;
}

Datum
durable_shows_active(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(durable_is_active());
}
