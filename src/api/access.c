/*-------------------------------------------------------------------------
 *
 * access.c
 *	  has_access, require_access, activate, and the trigger that tells sessions
 *	  to forget what they cached.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/rel.h"

#include "api/args.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/extension_state.h"
#include "base/hint.h"
#include "base/plan.h"
#include "base/rel.h"
#include "base/security.h"
#include "base/wakeup.h"
#include "base/workers.h"
#include "store/limiter.h"
#include "store/task.h"

DURABLE_FUNCTION(durable_settings_changed);
DURABLE_FUNCTION(durable_list_changed);
DURABLE_FUNCTION(durable_has_access);
DURABLE_FUNCTION(durable_require_access);
DURABLE_FUNCTION(durable_activate);

Datum
durable_settings_changed(PG_FUNCTION_ARGS)
{
	Relation	rel;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				errmsg("durable.settings_changed() must be called as a trigger"));
	rel = ((TriggerData *) fcinfo->context)->tg_relation;
	CacheInvalidateRelcache(rel);
	/* the database may have become one to serve */
	if (RelationGetRelid(rel) == durable_rel(REL_IDENTITY))
		durable_workers_note_look(MyDatabaseId);
	else
		durable_workers_note_change();
	return PointerGetDatum(NULL);
}

Datum
durable_list_changed(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				errmsg("durable.list_changed() must be called as a trigger"));
	durable_hint_forget();
	durable_wakeup_note_all();
	return PointerGetDatum(NULL);
}

static DurablePrivilege
privilege_argument(FunctionCallInfo fcinfo, int n)
{
	DurablePrivilege privilege;

	if (PG_ARGISNULL(n))
		durable_error_null("privilege");
	if (!durable_privilege_by_name(text_to_cstring(PG_GETARG_TEXT_PP(n)), &privilege))
		durable_error_value("privilege",
							"The privileges are start, signal, work, read and manage.");
	return privilege;
}

Datum
durable_has_access(PG_FUNCTION_ARGS)
{
	DurablePrivilege privilege = privilege_argument(fcinfo, 1);

	PG_RETURN_BOOL(durable_access_has(durable_arg_namespace(fcinfo, 0), privilege));
}

Datum
durable_require_access(PG_FUNCTION_ARGS)
{
	DurablePrivilege privilege = privilege_argument(fcinfo, 1);
	text	   *namespace = durable_arg_namespace(fcinfo, 0);

	durable_access_require(namespace, privilege);
	PG_RETURN_TEXT_P(namespace);
}

static DurablePlan disown_plan = {
	.name = "forget the identity",
	.sql = "DELETE FROM durable.identity",
};

static DurablePlan activate_plan = {
	.name = "activate",
	.sql =
	"INSERT INTO durable.identity (system_identifier, database) VALUES ($1, $2)",
	.nargs = 2,
	.argtypes = {INT8OID, OIDOID},
};

static DurablePlan owner_plan = {
	.name = "owner",
	.sql =
	"SELECT FROM pg_catalog.pg_class c"
	" WHERE c.oid OPERATOR(pg_catalog.=) 'durable.identity'::pg_catalog.regclass"
	" AND pg_catalog.pg_has_role($1, c.relowner, 'USAGE')",
	.nargs = 1,
	.argtypes = {OIDOID},
};

Datum
durable_activate(PG_FUNCTION_ARGS)
{
	Datum		values[] = {
		Int64GetDatum(durable_system_identifier()), ObjectIdGetDatum(MyDatabaseId)
	};
	Datum		role = ObjectIdGetDatum(GetUserId());
	int64		back;

	durable_require_writable("durable.activate()");
	durable_plan_begin();
	if (durable_plan_run(&owner_plan, &role, NULL) == 0)
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				errmsg("permission denied to activate this database"),
				errhint("Only the role that owns the extension may do that."));
	(void) durable_plan_run(&disown_plan, NULL, NULL);
	(void) durable_plan_run(&activate_plan, values, NULL);
	back = (int64) durable_task_requeue_orphans();
	durable_limiters_rebuild();
	durable_plan_end();
	PG_RETURN_INT64(back);
}
