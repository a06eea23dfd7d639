/*-------------------------------------------------------------------------
 *
 * dispatch.c
 *	  dispatch, dispatch_many.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "api/args.h"
#include "api/limiter.h"
#include "api/conflict.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/security.h"
#include "engine/dispatch.h"

DURABLE_FUNCTION(durable_dispatch);
DURABLE_FUNCTION(durable_dispatch_many);

static Interval *
interval_argument(FunctionCallInfo fcinfo, int n, const char *argument)
{
	Interval   *span = PG_ARGISNULL(n) ? NULL : PG_GETARG_INTERVAL_P(n);

	if (span != NULL && durable_interval_negative(span))
		durable_error_value(argument, "It must not be negative.");
	return span;
}

/* NULL: exponential when a maximum is given, else fixed */
static bool
exponential_argument(FunctionCallInfo fcinfo, int n, bool has_max)
{
	char	   *kind;

	if (PG_ARGISNULL(n))
		return has_max;
	kind = text_to_cstring(PG_GETARG_TEXT_PP(n));
	if (strcmp(kind, "exp") != 0 && strcmp(kind, "fixed") != 0)
		durable_error_value("backoff_kind", "It must be \"fixed\" or \"exp\".");
	return strcmp(kind, "exp") == 0;
}

/*
 * Both functions take the same arguments from "queue" on; "first" is where they
 * begin: queue, namespace, priority, run_at, max_attempts, backoff,
 * backoff_max, headers, backoff_kind, jitter.
 */
static void
read_spec(FunctionCallInfo fcinfo, int first, DurableTaskSpec *spec)
{
	spec->name = durable_arg_name(fcinfo, 0, "name", false);
	spec->queue = durable_arg_name(fcinfo, first, "queue", true);
	if (spec->queue == NULL)
		spec->queue = spec->name;
	(void) durable_check_queue(spec->queue);
	spec->namespace = durable_arg_namespace(fcinfo, first + 1);
	spec->priority = PG_ARGISNULL(first + 2) ? 0 : PG_GETARG_INT32(first + 2);
	spec->run_at = PG_ARGISNULL(first + 3) ? DT_NOBEGIN : PG_GETARG_TIMESTAMPTZ(first + 3);
	if (TIMESTAMP_IS_NOEND(spec->run_at))
		durable_error_value("run_at", "It must not be infinity.");
	spec->max_attempts = PG_ARGISNULL(first + 4) ? 1 : PG_GETARG_INT32(first + 4);
	if (spec->max_attempts < 1)
		durable_error_value("max_attempts", "It must be at least 1.");
	spec->backoff = interval_argument(fcinfo, first + 5, "backoff");
	spec->backoff_max = interval_argument(fcinfo, first + 6, "backoff_max");
	spec->headers = durable_arg_payload(fcinfo, first + 7, "headers");
	spec->exponential = exponential_argument(fcinfo, first + 8, spec->backoff_max != NULL);
	spec->jitter = !PG_ARGISNULL(first + 9) && PG_GETARG_BOOL(first + 9);
}

/* A generated id starts with ~, so no other may. */
static text *
check_explicit_id(text *task_id)
{
	(void) durable_check_task_id(task_id);
	if (VARDATA_ANY(task_id)[0] == '~')
		durable_error_value("task_id", "Ids that start with \"~\" are reserved for generated ones.");
	return task_id;
}

Datum
durable_dispatch(PG_FUNCTION_ARGS)
{
	DurableTaskSpec spec = {0};
	DurableTaskItem item = {0};

	durable_require_writable("durable.dispatch()");
	item.input = durable_arg_payload(fcinfo, 1, "input");
	if (!PG_ARGISNULL(2))
		item.task_id = check_explicit_id(PG_GETARG_TEXT_PP(2));
	/* the arguments after task_id are those of dispatch_many after inputs */
	read_spec(fcinfo, 3, &spec);
	durable_arg_limiter(fcinfo, 13, &spec.limiter, &spec.fairness_key);
	durable_arg_conflict(fcinfo, &spec.conflict, &spec.run_at, "run_at");
	if (item.task_id == NULL)
		durable_conflict_needs_id(&spec.conflict, "task_id");
	durable_access_require(spec.namespace, PRIVILEGE_START);
	durable_dispatch_find_limiter(&spec);
	durable_dispatch_tasks(&spec, &item, 1);
	if (item.taken && spec.conflict.policy == CONFLICT_REJECT)
		ereport(ERROR,
				errcode(ERRCODE_UNIQUE_VIOLATION),
				errmsg("task \"%s\" exists already", text_to_cstring(item.task_id)),
				errdetail("Key (namespace, task_id)=(%s, %s) is taken: the task is not settled, or its result is not acknowledged.",
						  text_to_cstring(spec.namespace), text_to_cstring(item.task_id)),
				errhint("on_conflict => 'replace' lets the new one take its place."));
	PG_RETURN_TEXT_P(item.task_id);
}

/* A null element asks for a generated id. */
static void
read_task_ids(FunctionCallInfo fcinfo, int n, DurableTaskItem *items, int nitems)
{
	Datum	   *elements;
	bool	   *nulls;
	int			count;

	deconstruct_array(PG_GETARG_ARRAYTYPE_P(n), TEXTOID, -1, false, TYPALIGN_INT,
					  &elements, &nulls, &count);
	if (count != nitems)
		durable_error_value("task_ids", "It must have as many elements as inputs.");
	for (int i = 0; i < count; i++)
	{
		if (!nulls[i])
			items[i].task_id = check_explicit_id(DatumGetTextPP(elements[i]));
	}
}

static DurableTaskItem *
read_items(FunctionCallInfo fcinfo, int *count)
{
	Datum	   *elements;
	bool	   *nulls;
	DurableTaskItem *items;

	if (PG_ARGISNULL(1))
		durable_error_null("inputs");
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(1), JSONBOID, -1, false, TYPALIGN_INT,
					  &elements, &nulls, count);
	items = palloc0(sizeof(DurableTaskItem) * Max(*count, 1));
	for (int i = 0; i < *count; i++)
	{
		items[i].position = i;
		if (!nulls[i])
			items[i].input = durable_check_payload(elements[i], "input");
	}
	if (!PG_ARGISNULL(12))
		read_task_ids(fcinfo, 12, items, *count);
	return items;
}

Datum
durable_dispatch_many(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	DurableTaskSpec spec = {0};
	DurableTaskItem *items;
	text	  **task_ids;
	int			n;

	durable_require_writable("durable.dispatch_many()");
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	items = read_items(fcinfo, &n);
	read_spec(fcinfo, 2, &spec);
	durable_arg_limiter(fcinfo, 13, &spec.limiter, &spec.fairness_key);
	durable_arg_conflict(fcinfo, &spec.conflict, &spec.run_at, "run_at");
	for (int i = 0; i < n; i++)
	{
		if (items[i].task_id == NULL)
			durable_conflict_needs_id(&spec.conflict, "task_ids");
	}
	durable_access_require(spec.namespace, PRIVILEGE_START);
	durable_dispatch_find_limiter(&spec);
	durable_dispatch_tasks(&spec, items, n);

	/* one conflict is no reason to refuse the others: NULL in its place */
	task_ids = palloc(sizeof(text *) * Max(n, 1));
	for (int i = 0; i < n; i++)
		task_ids[items[i].position] =
			items[i].taken && spec.conflict.policy == CONFLICT_REJECT ? NULL : items[i].task_id;
	for (int i = 0; i < n; i++)
	{
		Datum		value = PointerGetDatum(task_ids[i]);
		bool		isnull = (task_ids[i] == NULL);

		tuplestore_putvalues(result->setResult, result->setDesc, &value, &isnull);
	}
	return (Datum) 0;
}
