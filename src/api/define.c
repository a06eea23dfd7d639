/*-------------------------------------------------------------------------
 *
 * define.c
 *	  register_workflow, unregister_workflow, register_handler,
 *	  unregister_handler.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "api/args.h"
#include "api/context.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/security.h"
#include "engine/turn.h"
#include "store/workflow.h"

DURABLE_FUNCTION(durable_register_workflow);
DURABLE_FUNCTION(durable_unregister_workflow);
DURABLE_FUNCTION(durable_register_handler);
DURABLE_FUNCTION(durable_unregister_handler);

/* The signature of a function that fits, as it will be stored. */
static text *
function_argument(FunctionCallInfo fcinfo, int n, const char *argument)
{
	bool		strict;

	if (PG_ARGISNULL(n))
		durable_error_null(argument);
	return durable_function_signature(durable_function_lookup(PG_GETARG_TEXT_PP(n), &strict));
}

/* The same for a check, which need not be. */
static text *
check_argument(FunctionCallInfo fcinfo, int n)
{
	bool		strict;

	if (PG_ARGISNULL(n))
		return NULL;
	return durable_function_signature(durable_function_lookup_as(PG_GETARG_TEXT_PP(n), BOOLOID,
																 &strict));
}

static void
not_owner(const char *what, text *name)
{
	ereport(ERROR,
			errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			errmsg("%s \"%s\" belongs to another role", what, text_to_cstring(name)),
			errhint("Only the role that registered it may replace or remove it."));
}

/* A number of at least min; null: otherwise. */
static int
number_argument(FunctionCallInfo fcinfo, int n, const char *argument, int min, int otherwise)
{
	if (PG_ARGISNULL(n))
		return otherwise;
	if (PG_GETARG_INT32(n) < min)
		durable_error_value(argument, psprintf("It must be at least %d.", min));
	return PG_GETARG_INT32(n);
}

static void *
varlena_argument(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? NULL : PG_GETARG_VARLENA_P(n);
}

/* What the nine arguments from the first on say, each by itself. */
static void
read_workflow_policy(FunctionCallInfo fcinfo, int first, DurableWorkflow *workflow)
{
	workflow->singleton_key = varlena_argument(fcinfo, first);
	workflow->singleton_limit = number_argument(fcinfo, first + 1, "singleton_limit", 1, 1);
	workflow->singleton_max_queued = number_argument(fcinfo, first + 2, "singleton_max_queued", 0, -1);
	workflow->concurrency_key = varlena_argument(fcinfo, first + 3);
	workflow->concurrency_limit = number_argument(fcinfo, first + 4, "concurrency_limit", 0, -1);
	workflow->turn_silence = durable_arg_window(fcinfo, first + 5, "turn_silence");
	workflow->on_error = varlena_argument(fcinfo, first + 6);
	workflow->dead_letter_workflow = durable_arg_name(fcinfo, first + 7, "dead_letter_workflow", true);
	workflow->requires = varlena_argument(fcinfo, first + 8);
}

Datum
durable_register_workflow(PG_FUNCTION_ARGS)
{
	DurableWorkflow workflow = {.owner = GetUserId()};

	durable_require_writable("durable.register_workflow()");
	workflow.name = durable_arg_name(fcinfo, 0, "name", false);
	workflow.namespace = durable_arg_namespace(fcinfo, 3);
	durable_access_require(workflow.namespace, PRIVILEGE_WORK);
	workflow.body = PG_ARGISNULL(1) ? NULL : function_argument(fcinfo, 1, "body");
	workflow.version = durable_arg_name(fcinfo, 2, "version", false);
	workflow.tags = PG_ARGISNULL(4) ? construct_empty_array(TEXTOID) : PG_GETARG_ARRAYTYPE_P(4);
	workflow.queue = durable_check_queue(durable_arg_name(fcinfo, 5, "queue", true));
	if (workflow.queue == NULL)
		workflow.queue = workflow.body == NULL ? durable_check_queue(workflow.name) :
			durable_owner_queue(workflow.owner);
	workflow.input_check = check_argument(fcinfo, 6);
	read_workflow_policy(fcinfo, 7, &workflow);
	workflow.atomic = !PG_ARGISNULL(16) && PG_GETARG_BOOL(16);
	if (workflow.atomic && workflow.body == NULL)
		durable_error_value("atomic", "A workflow without a body has no turns in the database.");
	if (!durable_workflow_store(&workflow))
		not_owner("workflow", workflow.name);
	PG_RETURN_VOID();
}

Datum
durable_unregister_workflow(PG_FUNCTION_ARGS)
{
	text	   *name = durable_arg_name(fcinfo, 0, "name", false);
	text	   *version = durable_arg_name(fcinfo, 1, "version", true);
	text	   *namespace = durable_arg_namespace(fcinfo, 2);

	durable_require_writable("durable.unregister_workflow()");
	durable_access_require(namespace, PRIVILEGE_WORK);
	if (durable_workflow_in_use(namespace, name, version))
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_IN_USE),
				errmsg("workflow \"%s\" has live runs", text_to_cstring(name)),
				errhint("Wait for them to end, or cancel them."));
	PG_RETURN_INT32(durable_workflow_delete(namespace, name, version));
}

/* The arguments are those of a step. */
static void
read_policy(FunctionCallInfo fcinfo, int first, DurableStepPolicy *policy)
{
	DurableOperation op = {0};

	durable_context_policy(fcinfo, first, &op);
	policy->retries = op.retries;
	policy->backoff = op.backoff;
	policy->backoff_max = op.backoff_max;
	policy->exponential = op.exponential;
	policy->has_exponential = op.has_exponential;
	policy->jitter = op.jitter;
	policy->has_jitter = op.has_jitter;
	policy->timeout = durable_arg_window(fcinfo, first + 5, "timeout");
	policy->pickup_timeout = durable_arg_window(fcinfo, first + 6, "pickup_timeout");
}

Datum
durable_register_handler(PG_FUNCTION_ARGS)
{
	DurableHandler handler = {.owner = GetUserId()};

	durable_require_writable("durable.register_handler()");
	handler.name = durable_arg_name(fcinfo, 0, "name", false);
	handler.handler = function_argument(fcinfo, 1, "handler");
	handler.namespace = durable_arg_namespace(fcinfo, 2);
	durable_access_require(handler.namespace, PRIVILEGE_WORK);
	handler.input_check = check_argument(fcinfo, 3);
	handler.output_check = check_argument(fcinfo, 4);
	read_policy(fcinfo, 5, &handler.policy);
	if (!durable_handler_store(&handler))
		not_owner("handler", handler.name);
	PG_RETURN_VOID();
}

Datum
durable_unregister_handler(PG_FUNCTION_ARGS)
{
	text	   *name = durable_arg_name(fcinfo, 0, "name", false);
	text	   *namespace = durable_arg_namespace(fcinfo, 1);

	durable_require_writable("durable.unregister_handler()");
	durable_access_require(namespace, PRIVILEGE_WORK);
	PG_RETURN_BOOL(durable_handler_delete(namespace, name) > 0);
}
