/*-------------------------------------------------------------------------
 *
 * deadletter.c
 *	  set_dead_letter_workflow.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "api/args.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/security.h"
#include "store/deadletter.h"

DURABLE_FUNCTION(durable_set_dead_letter_workflow);

/* It need not be registered yet, nor stay so: that shows when a run dies. */
Datum
durable_set_dead_letter_workflow(PG_FUNCTION_ARGS)
{
	DurableDeadLetter given = {
		.workflow = durable_arg_name(fcinfo, 0, "workflow", true),
		.owner = GetUserId()
	};
	text	   *namespace = durable_arg_namespace(fcinfo, 1);

	durable_require_writable("durable.set_dead_letter_workflow()");
	durable_access_require(namespace, PRIVILEGE_MANAGE);
	if (given.workflow == NULL)
		durable_dead_letter_delete(namespace);
	else
	{
		durable_access_require(namespace, PRIVILEGE_START);
		durable_dead_letter_store(namespace, &given);
	}
	PG_RETURN_VOID();
}
