/*-------------------------------------------------------------------------
 *
 * retention.c
 *	  set_retention, drop_retention, delete_run, purge_runs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "api/args.h"
#include "api/filter.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/names.h"
#include "base/security.h"
#include "engine/retention.h"
#include "engine/turn.h"
#include "store/retention.h"
#include "store/run.h"

DURABLE_FUNCTION(durable_set_retention);
DURABLE_FUNCTION(durable_drop_retention);
DURABLE_FUNCTION(durable_delete_run);
DURABLE_FUNCTION(durable_purge_runs);

#define STATUSES_MAX 16

static const char *const terminal[] = {"cancelled", "completed", "dead", "failed"};

static bool
is_among(const char *text, const char *const *names, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (strcmp(text, names[i]) == 0)
			return true;
	}
	return false;
}

/* In the order of "terminal", each once. */
static ArrayType *
arg_statuses(FunctionCallInfo fcinfo)
{
	int			n;
	text	  **given = durable_arg_texts(fcinfo, 0, "statuses", STATUSES_MAX, &n);
	Datum		found[lengthof(terminal)];
	int			nfound = 0;

	if (n == 0)
		durable_error_value("statuses", "It must name at least one.");
	for (int i = 0; i < n; i++)
	{
		if (!is_among(text_to_cstring(given[i]), terminal, lengthof(terminal)))
			ereport(ERROR,
					errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("invalid value for statuses"),
					errdetail("\"%s\" is no status in which a run has ended.",
							  text_to_cstring(given[i])),
					errhint("These are completed, failed, cancelled and dead."));
	}
	for (int i = 0; i < lengthof(terminal); i++)
	{
		for (int j = 0; j < n; j++)
		{
			if (!durable_text_is(given[j], terminal[i]))
				continue;
			found[nfound++] = PointerGetDatum(given[j]);
			break;
		}
	}
	return construct_array(found, nfound, TEXTOID, -1, false, TYPALIGN_INT);
}

static void
read_limits(FunctionCallInfo fcinfo, DurableRetentionPolicy *policy)
{
	policy->max_age = PG_ARGISNULL(1) ? NULL : PG_GETARG_INTERVAL_P(1);
	policy->max_count = PG_ARGISNULL(2) ? -1 : PG_GETARG_INT32(2);
	if (PG_ARGISNULL(1) && PG_ARGISNULL(2))
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("a retention policy needs max_age or max_count"),
				errhint("Give one of them, or both: a run goes when it is past either."));
	if (policy->max_age != NULL &&
		(durable_interval_negative(policy->max_age) ||
		 durable_interval_us(policy->max_age) > INT64CONST(36600) * USECS_PER_DAY))
		durable_error_value("max_age", "It must be between zero and a hundred years.");
	if (!PG_ARGISNULL(2) && policy->max_count < 0)
		durable_error_value("max_count", "It must not be negative.");
}

/* The session's own namespace, or all of them. Whoever gets the runs' contents may
 * read them. */
static text *
arg_scope(FunctionCallInfo fcinfo, int n, bool reads)
{
	text	   *namespace = durable_arg_namespace(fcinfo, n);

	durable_scope_require(namespace, PRIVILEGE_MANAGE);
	if (reads)
		durable_scope_require(namespace, PRIVILEGE_READ);
	return namespace;
}

Datum
durable_set_retention(PG_FUNCTION_ARGS)
{
	DurableRetentionPolicy policy = {.owner = GetUserId()};
	bool		strict;

	durable_require_writable("durable.set_retention()");
	policy.statuses = arg_statuses(fcinfo);
	read_limits(fcinfo, &policy);
	policy.workflow = durable_arg_name(fcinfo, 3, "workflow", true);
	policy.namespace = arg_scope(fcinfo, 4, !PG_ARGISNULL(6));
	policy.tag = durable_arg_name(fcinfo, 5, "tag", true);
	if (!PG_ARGISNULL(6))
		policy.archive =
			durable_function_signature(durable_function_lookup(PG_GETARG_TEXT_PP(6), &strict));
	PG_RETURN_INT64(durable_retention_store(&policy, durable_clock_now()));
}

Datum
durable_drop_retention(PG_FUNCTION_ARGS)
{
	text	   *namespace;

	durable_require_writable("durable.drop_retention()");
	if (PG_ARGISNULL(0))
		durable_error_null("id");
	namespace = durable_retention_namespace(PG_GETARG_INT64(0));
	if (namespace == NULL)
		PG_RETURN_BOOL(false);
	durable_scope_require(namespace, PRIVILEGE_MANAGE);
	PG_RETURN_BOOL(durable_retention_forget(PG_GETARG_INT64(0)));
}

static void
refuse_live(text *run_id, int64 id, int64 live)
{
	DurableRow	row;
	bool		found;

	durable_snapshot_push();
	found = durable_run_read(live, &row);
	durable_snapshot_pop();
	ereport(ERROR,
			errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			errmsg("run \"%s\" cannot be deleted", text_to_cstring(run_id)),
			!found ? errdetail("It has not ended.") :
			live == id ?
			errdetail("Its status is %s.", TextDatumGetCString(row.values[RUN_STATUS])) :
			errdetail("The run \"%s\", which it started, has not ended: its status is %s.",
					  TextDatumGetCString(row.values[RUN_RUN_ID]),
					  TextDatumGetCString(row.values[RUN_STATUS])),
			errhint("Cancel it first, with durable.cancel()."));
}

Datum
durable_delete_run(PG_FUNCTION_ARGS)
{
	text	   *run_id;
	int64		id;
	int64		live;
	int64		deleted;
	DurableRow	row;
	bool		found;

	durable_require_writable("durable.delete_run()");
	if (PG_ARGISNULL(0))
		durable_error_null("run_id");
	run_id = PG_GETARG_TEXT_PP(0);
	durable_snapshot_push();
	found = durable_run_number(run_id, &id) && durable_run_read(id, &row);
	durable_snapshot_pop();
	if (!found)
		PG_RETURN_INT32(0);
	durable_access_require(DatumGetTextPP(row.values[RUN_NAMESPACE]), PRIVILEGE_MANAGE);
	deleted = durable_run_delete(id, &live);
	if (deleted < 0)
		refuse_live(run_id, id, live);
	PG_RETURN_INT32((int32) deleted);
}

Datum
durable_purge_runs(PG_FUNCTION_ARGS)
{
	Jsonb	   *filter;
	text	   *namespace;
	int			max_runs;

	durable_require_writable("durable.purge_runs()");
	filter = durable_arg_filter(fcinfo, 0);
	if (PG_ARGISNULL(1))
		durable_error_null("force");
	max_runs = durable_arg_count(fcinfo, 2, "max_runs");
	namespace = durable_filter_namespace(filter, PRIVILEGE_MANAGE);
	PG_RETURN_INT32((int32) durable_runs_purge(filter, namespace, PG_GETARG_BOOL(1), max_runs));
}
