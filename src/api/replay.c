/*-------------------------------------------------------------------------
 *
 * replay.c
 *	  Replayed steps without their arguments.
 *
 * A turn of n local steps replays its body n times, and a body spends most of that
 * building arguments that nobody looks at: the history has the result, and that
 * they are good was seen in an earlier replay. So the planner turns
 *
 *		durable.local_step(handler, input, name, ...)
 *
 * into
 *
 *		CASE WHEN durable.is_recorded(kind) THEN durable.recorded(name)
 *			 ELSE durable.local_step(handler, input, name, ...) END
 *
 * where leaving the arguments out cannot be seen: none of them is volatile, as a
 * nested step is, or has a subquery. A call that the planner does not see works as well.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/supportnodes.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "parser/parse_func.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "api/args.h"
#include "api/replay.h"
#include "base/compat.h"
#include "base/errors.h"
#include "engine/turn.h"

DURABLE_FUNCTION(durable_is_recorded);
DURABLE_FUNCTION(durable_recorded);
DURABLE_FUNCTION(durable_local_step_support);
DURABLE_FUNCTION(durable_step_support);

/* Marks the call behind ELSE; only messages use the location otherwise, and no
 * negative one. */
#define HAS_ASKED (-2)

bool
durable_call_has_asked(FunctionCallInfo fcinfo)
{
	Node	   *node = fcinfo->flinfo == NULL ? NULL : fcinfo->flinfo->fn_expr;

	return node != NULL && IsA(node, FuncExpr) && ((FuncExpr *) node)->location == HAS_ASKED;
}

/* What is out of order is left to the step itself. */
Datum
durable_is_recorded(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_current_turn;

	PG_RETURN_BOOL(!PG_ARGISNULL(0) && turn != NULL && durable_current_step == NULL &&
				   !turn->ended && !turn->fatal &&
				   durable_turn_ask(turn, (DurableKind) PG_GETARG_INT32(0)));
}

Datum
durable_recorded(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.recorded()");
	text	   *name = durable_arg_name(fcinfo, 0, "name", false);
	int			seq = turn->next_seq;
	DurableCheckpoint *checkpoint = seq < turn->nhistory ? &turn->history[seq] : NULL;

	if (checkpoint == NULL || checkpoint->status == CHECKPOINT_PENDING ||
		(checkpoint->kind != KIND_LOCAL && checkpoint->kind != KIND_STEP))
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("there is no recorded step here"),
				errhint("Call durable.local_step() or durable.step()."));
	durable_turn_asked(turn);
	checkpoint = durable_turn_next(turn, checkpoint->kind, name, &seq);
	if (checkpoint->status == CHECKPOINT_FAILED)
		durable_raise(checkpoint->error);
	if (checkpoint->output == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(checkpoint->output);
}

/* A function in the schema of the one that is called; InvalidOid without it, or
 * without the right to call it. */
static Oid
sibling(Oid function, const char *name, Oid argument)
{
	char	   *schema = get_namespace_name(get_func_namespace(function));
	Oid			found;

	if (schema == NULL)
		return InvalidOid;
	found = LookupFuncName(list_make2(makeString(schema), makeString(pstrdup(name))),
						   1, &argument, true);
	return OidIsValid(found) && compat_may_execute(found, GetUserId()) ? found : InvalidOid;
}

static bool
is_null_constant(const Node *node)
{
	return IsA(node, Const) && ((const Const *) node)->constisnull;
}

/* The name argument, or the other one when that is left out; NULL when only the
 * execution can tell. */
static Node *
name_argument(const FuncExpr *call, int name, int otherwise)
{
	Node	   *given = list_nth(call->args, name);

	if (is_null_constant(given))
		given = list_nth(call->args, otherwise);
	else if (name != otherwise && !IsA(given, Const))
		return NULL;
	return is_null_constant(given) ? NULL : given;
}

static Node *
look_first(const FuncExpr *call, DurableKind kind, Node *name)
{
	Oid			is_recorded = sibling(call->funcid, "is_recorded", INT4OID);
	Oid			recorded = sibling(call->funcid, "recorded", TEXTOID);
	CaseWhen   *when;
	CaseExpr   *result;
	Const	   *kind_constant;

	if (call->location == HAS_ASKED || name == NULL || !OidIsValid(is_recorded) || !OidIsValid(recorded) ||
		contain_volatile_functions((Node *) call->args) ||
		contain_subplans((Node *) call->args))
		return NULL;
	kind_constant = makeConst(INT4OID, -1, InvalidOid, sizeof(int32),
							  Int32GetDatum((int32) kind), false, true);
	when = makeNode(CaseWhen);
	when->expr = (Expr *) makeFuncExpr(is_recorded, BOOLOID, list_make1(kind_constant),
									   InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
	when->result = (Expr *) makeFuncExpr(recorded, JSONBOID, list_make1(copyObject(name)),
										 InvalidOid, call->inputcollid, COERCE_EXPLICIT_CALL);
	when->location = -1;
	result = makeNode(CaseExpr);
	result->casetype = JSONBOID;
	result->args = list_make1(when);
	result->defresult = (Expr *) copyObject(call);
	((FuncExpr *) result->defresult)->location = HAS_ASKED;
	result->location = -1;
	return (Node *) result;
}

static Node *
support(FunctionCallInfo fcinfo, DurableKind kind, int name, int otherwise)
{
	Node	   *request = (Node *) PG_GETARG_POINTER(0);
	const FuncExpr *call;

	if (!IsA(request, SupportRequestSimplify))
		return NULL;
	call = ((SupportRequestSimplify *) request)->fcall;
	return look_first(call, kind, name_argument(call, name, otherwise));
}

Datum
durable_local_step_support(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(support(fcinfo, KIND_LOCAL, 2, 0));
}

Datum
durable_step_support(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(support(fcinfo, KIND_STEP, 0, 0));
}
