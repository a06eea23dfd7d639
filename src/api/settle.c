/*-------------------------------------------------------------------------
 *
 * settle.c
 *	  complete, complete_many, fail, cancel_task.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "api/args.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/json.h"
#include "base/security.h"
#include "engine/settle.h"

DURABLE_FUNCTION(durable_complete);
DURABLE_FUNCTION(durable_complete_many);
DURABLE_FUNCTION(durable_fail);
DURABLE_FUNCTION(durable_cancel_task);

Datum
durable_complete(PG_FUNCTION_ARGS)
{
	DurableTarget target = {0};
	const pg_uuid_t *token;

	durable_require_writable("durable.complete()");
	target.task_id = durable_arg_task_id(fcinfo, 0);
	token = durable_arg_token(fcinfo, 1);
	target.output = durable_arg_payload(fcinfo, 2, "output");
	target.events = durable_arg_payload(fcinfo, 3, "events");
	PG_RETURN_BOOL(durable_settle(token, SETTLE_COMPLETE, &target, 1) == 1);
}

Datum
durable_fail(PG_FUNCTION_ARGS)
{
	DurableTarget target = {0};
	const pg_uuid_t *token;
	void	   *error;

	durable_require_writable("durable.fail()");
	target.task_id = durable_arg_task_id(fcinfo, 0);
	token = durable_arg_token(fcinfo, 1);
	error = durable_arg_payload(fcinfo, 2, "error");
	target.error = durable_json_error_from(error == NULL ? NULL :
										   DatumGetJsonbP(PointerGetDatum(error)));
	target.events = durable_arg_payload(fcinfo, 3, "events");
	PG_RETURN_BOOL(durable_settle(token, SETTLE_FAIL, &target, 1) == 1);
}

/* outputs may be NULL: no task has one */
static DurableTarget *
read_targets(FunctionCallInfo fcinfo, int *count)
{
	text	  **task_ids = durable_arg_texts(fcinfo, 1, "task_ids", DURABLE_BATCH_MAX, count);
	DurableTarget *targets = palloc0(sizeof(DurableTarget) * Max(*count, 1));
	Datum	   *outputs;
	bool	   *nulls;
	int			noutputs;

	for (int i = 0; i < *count; i++)
	{
		targets[i].task_id = durable_check_task_id(task_ids[i]);
		targets[i].position = i;
	}
	if (PG_ARGISNULL(2))
		return targets;
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(2), JSONBOID, -1, false, TYPALIGN_INT,
					  &outputs, &nulls, &noutputs);
	if (noutputs != *count)
		durable_error_value("outputs", "It must have as many elements as task_ids.");
	for (int i = 0; i < *count; i++)
	{
		if (!nulls[i])
			targets[i].output = durable_check_payload(outputs[i], "output");
	}
	return targets;
}

/* Settled ids come back in the order in which they were given. */
Datum
durable_complete_many(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	const pg_uuid_t *token;
	DurableTarget *targets;
	text	  **settled;
	int			n;

	durable_require_writable("durable.complete_many()");
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	token = durable_arg_token(fcinfo, 0);
	targets = read_targets(fcinfo, &n);
	(void) durable_settle(token, SETTLE_COMPLETE, targets, n);

	settled = palloc0(sizeof(text *) * Max(n, 1));
	for (int i = 0; i < n; i++)
	{
		if (targets[i].settled)
			settled[targets[i].position] = targets[i].task_id;
	}
	for (int i = 0; i < n; i++)
	{
		Datum		value = PointerGetDatum(settled[i]);
		bool		isnull = false;

		if (settled[i] != NULL)
			tuplestore_putvalues(result->setResult, result->setDesc, &value, &isnull);
	}
	return (Datum) 0;
}

Datum
durable_cancel_task(PG_FUNCTION_ARGS)
{
	text	   *task_id;
	text	   *namespace;

	durable_require_writable("durable.cancel_task()");
	task_id = durable_arg_task_id(fcinfo, 0);
	namespace = durable_arg_namespace(fcinfo, 1);
	durable_access_require(namespace, PRIVILEGE_START);
	PG_RETURN_BOOL(durable_cancel(namespace, task_id));
}
