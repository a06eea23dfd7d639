/*-------------------------------------------------------------------------
 *
 * check.c
 *	  Checks of inputs and outputs: functions that take a jsonb and return boolean.
 *
 * A check may be called in the session of somebody else, by start(). There it is
 * fenced in like a function of an index while that is built: it runs as its owner
 * in a security-restricted operation, so that it cannot become who called, leave
 * anything in the session, or be led astray by the caller's search_path; and it
 * cannot write. It runs the same way in its owner's own sessions, so that it
 * cannot pass in one place and fail in the other.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "base/rel.h"
#include "base/security.h"
#include "engine/check.h"
#include "engine/turn.h"

bool
durable_check_exists(text *check)
{
	bool		strict;

	return check == NULL || OidIsValid(durable_function_find_as(check, BOOLOID, &strict));
}

/* NULL is not true. */
static bool
call(text *check, Jsonb *value)
{
	LOCAL_FCINFO(fcinfo, 1);
	FmgrInfo	flinfo;
	bool		strict;
	Oid			function = durable_function_find_as(check, BOOLOID, &strict);
	bool		passes;

	if (!OidIsValid(function))
		ereport(ERROR,
				errcode(ERRCODE_UNDEFINED_FUNCTION),
				errmsg("check %s cannot be called", text_to_cstring(check)),
				errdetail("It does not exist any more, or its owner may not execute it."));
	if (strict && value == NULL)
		return false;
	fmgr_info(function, &flinfo);
	InitFunctionCallInfoData(*fcinfo, &flinfo, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = PointerGetDatum(value);
	fcinfo->args[0].isnull = value == NULL;
	durable_snapshot_push();
	passes = DatumGetBool(FunctionCallInvoke(fcinfo)) && !fcinfo->isnull;
	durable_snapshot_pop();
	return passes;
}

void
durable_check_require(text *check, Oid owner, Jsonb *value, const char *what, const text *name)
{
	DurableSecurity saved;
	DurableTurn *turn = durable_current_turn;
	DurableTurn *step = durable_current_step;
	bool		read_only = XactReadOnly;
	bool		passes = false;

	if (check == NULL)
		return;
	durable_security_become(owner, &saved);
	PG_TRY();
	{
		XactReadOnly = true;
		durable_current_turn = durable_current_step = NULL;
		passes = call(check, value);
	}
	PG_FINALLY();
	{
		XactReadOnly = read_only;
		durable_current_turn = turn;
		durable_current_step = step;
	}
	PG_END_TRY();
	durable_security_leave(&saved);
	if (!passes)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("invalid %s \"%s\"", what, text_to_cstring(name)),
				errdetail("It was rejected by %s.", text_to_cstring(check)));
}
