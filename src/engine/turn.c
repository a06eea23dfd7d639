/*-------------------------------------------------------------------------
 *
 * turn.c
 *	  One run in the hands of this process: its history, and replaying the body
 *	  against it.
 *
 * The body is an ordinary function. The functions that it calls look their
 * position up in the history; the first that cannot answer notes why and raises
 * an error of class "query canceled", which WHEN OTHERS does not catch. A body
 * that catches it by name is found out: every later call raises again, and if
 * it returns all the same its run fails.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/regproc.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/json.h"
#include "base/names.h"
#include "engine/turn.h"

#define CHANGED_BODY_HINT \
	"Guard changes of a body that has live runs with durable.patched(), or register them as a new version."

DurableTurn *durable_current_turn = NULL;
DurableTurn *durable_current_step = NULL;

static void
end_turn(DurableTurn *turn)
{
	turn->ended = true;
	ereport(ERROR,
			errcode(ERRCODE_QUERY_CANCELED),
			errmsg("the turn has ended"),
			errhint("A workflow body must let this error pass."));
	pg_unreachable();
}

DurableTurn *
durable_turn_require(const char *function)
{
	if (durable_current_step != NULL)
		ereport(ERROR,
				errcode(ERRCODE_DURABLE_IN_STEP),
				errmsg("%s cannot be called inside a step", function),
				errhint("Call it in the workflow's body."));
	if (durable_current_turn == NULL)
		ereport(ERROR,
				errcode(ERRCODE_DURABLE_NO_TURN),
				errmsg("%s can only be called by the body of a workflow", function),
				errhint("Register the calling function with durable.register_workflow and start it with durable.start."));
	if (durable_current_turn->ended || durable_current_turn->fatal)
		end_turn(durable_current_turn);
	return durable_current_turn;
}

/* Final, whatever the body makes of the error. */
static void
note_mismatch(DurableTurn *turn, int seq, DurableKind kind, const text *name)
{
	MemoryContext before = MemoryContextSwitchTo(turn->context);
	DurableCheckpoint *checkpoint = &turn->history[seq];

	turn->fatal = true;
	turn->error = durable_json_error_details(
		psprintf("the history of run \"%s\" does not match its workflow at position %d",
				 text_to_cstring(turn->run_id), seq),
		unpack_sql_state(ERRCODE_DURABLE_HISTORY),
		psprintf("The body asks for %s \"%s\"; recorded is %s \"%s\".",
				 durable_kind_name(kind), text_to_cstring(name),
				 durable_kind_name(checkpoint->kind), text_to_cstring(checkpoint->name)),
		CHANGED_BODY_HINT, NULL);
	MemoryContextSwitchTo(before);
}

DurableCheckpoint *
durable_turn_next(DurableTurn *turn, DurableKind kind, const text *name, int *seq)
{
	DurableCheckpoint *checkpoint;

	*seq = turn->next_seq++;
	if (*seq >= turn->nhistory)
		return NULL;
	checkpoint = &turn->history[*seq];
	if (checkpoint->kind == kind && durable_text_same(checkpoint->name, name))
		return checkpoint;
	note_mismatch(turn, *seq, kind, name);
	ereport(ERROR,
			errcode(ERRCODE_DURABLE_HISTORY),
			errmsg("the history of run \"%s\" does not match its workflow at position %d",
				   text_to_cstring(turn->run_id), *seq),
			errdetail("The body asks for %s \"%s\"; recorded is %s \"%s\".",
					  durable_kind_name(kind), text_to_cstring(name),
					  durable_kind_name(checkpoint->kind), text_to_cstring(checkpoint->name)),
			errhint("%s", CHANGED_BODY_HINT));
	return NULL;
}

DurableCheckpoint *
durable_turn_record(DurableTurn *turn, int seq, DurableKind kind, text *name,
					DurableCheckpointStatus status, Jsonb *output)
{
	MemoryContext before = MemoryContextSwitchTo(turn->context);
	DurableCheckpoint *checkpoint;
	TimestampTz now = durable_clock_now();

	Assert(seq == turn->nhistory);
	if (turn->nhistory == turn->space)
	{
		turn->space = Max(16, turn->space * 2);
		turn->history = turn->history == NULL ?
			palloc(sizeof(DurableCheckpoint) * turn->space) :
			repalloc_huge(turn->history, sizeof(DurableCheckpoint) * turn->space);
	}
	checkpoint = &turn->history[turn->nhistory++];
	memset(checkpoint, 0, sizeof(DurableCheckpoint));
	checkpoint->seq = seq;
	checkpoint->kind = kind;
	checkpoint->status = status;
	checkpoint->name = DatumGetTextPCopy(PointerGetDatum(name));
	checkpoint->output = output == NULL ? NULL : DatumGetJsonbPCopy(PointerGetDatum(output));
	checkpoint->attempts = 1;
	checkpoint->started_at = now;
	if (status != CHECKPOINT_PENDING)
		checkpoint->finished_at = now;
	checkpoint->changed = true;
	MemoryContextSwitchTo(before);
	return checkpoint;
}

DurableCheckpoint *
durable_turn_at(const DurableTurn *turn, int seq)
{
	int			low = 0;
	int			high = turn->nhistory - 1;

	if (!turn->external)
		return &turn->history[seq];
	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (turn->history[middle].seq < seq)
			low = middle + 1;
		else
			high = middle;
	}
	Assert(turn->history[low].seq == seq);
	return &turn->history[low];
}

void
durable_turn_time_out(DurableTurn *turn, DurableCheckpoint *checkpoint)
{
	MemoryContext before = MemoryContextSwitchTo(turn->context);

	checkpoint->status = CHECKPOINT_FAILED;
	checkpoint->error = durable_json_error_full(psprintf("timed out waiting for signal \"%s\"",
														 text_to_cstring(checkpoint->name)),
												unpack_sql_state(ERRCODE_DURABLE_WAIT_TIMED_OUT),
												false);
	checkpoint->finished_at = durable_clock_now();
	checkpoint->changed = true;
	MemoryContextSwitchTo(before);
}

DurableOperation *
durable_turn_operation(DurableTurn *turn, int seq)
{
	MemoryContext before = MemoryContextSwitchTo(turn->context);
	DurableOperation *operation = palloc0(sizeof(DurableOperation));

	operation->seq = seq;
	turn->operations = lappend(turn->operations, operation);
	MemoryContextSwitchTo(before);
	return operation;
}

void
durable_turn_suspend(DurableTurn *turn, TimestampTz wake_at)
{
	turn->decision = DECISION_SUSPEND;
	turn->wake_at = wake_at;
	end_turn(turn);
	pg_unreachable();
}

void
durable_turn_run_step(DurableTurn *turn, DurableOperation *step)
{
	turn->decision = DECISION_LOCAL_STEP;
	turn->step = step;
	end_turn(turn);
	pg_unreachable();
}

void
durable_turn_fail(DurableTurn *turn, Jsonb *error)
{
	MemoryContext before = MemoryContextSwitchTo(turn->context);

	turn->decision = DECISION_FAILED;
	turn->error = DatumGetJsonbPCopy(PointerGetDatum(error));
	MemoryContextSwitchTo(before);
	end_turn(turn);
	pg_unreachable();
}

/* The body raised something that is not the end of the turn. */
static void
body_failed(DurableTurn *turn, ErrorData *error)
{
	if (error->sqlerrcode == ERRCODE_READ_ONLY_SQL_TRANSACTION)
		error->hint = "A workflow body only decides; put what writes into a step, with durable.local_step().";
	turn->decision = DECISION_FAILED;
	/* a mismatch that the body caught and turned into something else */
	if (!turn->fatal || error->sqlerrcode == ERRCODE_DURABLE_HISTORY)
		turn->error = durable_error_to_json(error);
}

static void
body_returned(DurableTurn *turn, Jsonb *output)
{
	if (turn->fatal)
	{
		turn->decision = DECISION_FAILED;
		return;
	}
	if (turn->ended)
	{
		turn->decision = DECISION_FAILED;
		turn->error = durable_json_error_full("the body caught the error that ends its turn and went on",
											  unpack_sql_state(ERRCODE_DURABLE_TURN_SWALLOWED),
											  false);
		return;
	}
	turn->decision = DECISION_COMPLETED;
	turn->output = output == NULL ? NULL : DatumGetJsonbPCopy(PointerGetDatum(output));
}

static void
begin_replay(DurableTurn *turn)
{
	turn->next_seq = 0;
	turn->ended = false;
	turn->fatal = false;
	turn->operations = NIL;
	turn->logs = NIL;
	turn->attributes = NULL;
	turn->output = turn->error = NULL;
	turn->step = NULL;
	turn->wake_at = 0;
	turn->awaited_first = turn->awaited_last = -1;
	turn->fail_fast = false;
}

void
durable_turn_replay(DurableTurn *turn)
{
	MemoryContext before = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	begin_replay(turn);
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(turn->context);
	PG_TRY();
	{
		int			settings = NewGUCNestLevel();
		Jsonb	   *output;

		XactReadOnly = true;
		durable_current_turn = turn;
		durable_snapshot_push();
		output = durable_function_call(turn->body, turn->body_strict, turn->input);
		PopActiveSnapshot();
		AtEOXact_GUC(false, settings);
		durable_current_turn = NULL;
		MemoryContextSwitchTo(turn->context);
		body_returned(turn, output);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		durable_current_turn = NULL;
		MemoryContextSwitchTo(turn->context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(turn->context);
		CurrentResourceOwner = owner;
		if (!turn->ended && error->sqlerrcode == ERRCODE_QUERY_CANCELED)
			ReThrowError(error);
		if (!turn->ended || turn->fatal || error->sqlerrcode != ERRCODE_QUERY_CANCELED)
			body_failed(turn, error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(before);
	CurrentResourceOwner = owner;
}

Jsonb *
durable_error_to_json(ErrorData *error)
{
	return durable_json_error_details(error->message ? error->message : "",
									  unpack_sql_state(error->sqlerrcode),
									  error->detail, error->hint, error->context);
}

void
durable_raise(Jsonb *error)
{
	char	   *code = durable_json_string(error, "code");
	char	   *message = durable_json_string(error, "message");
	char	   *detail = durable_json_string(error, "detail");
	char	   *hint = durable_json_string(error, "hint");
	bool		is_state = code != NULL && strlen(code) == 5 &&
		strspn(code, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5 &&
		strncmp(code, "00", 2) != 0 && strcmp(code, "57014") != 0;

	ereport(ERROR,
			errcode(is_state ? MAKE_SQLSTATE(code[0], code[1], code[2], code[3], code[4]) :
					ERRCODE_DURABLE_STEP_FAILED),
			errmsg("%s", message != NULL ? message : "failed"),
			detail != NULL ? errdetail("%s", detail) : 0,
			hint != NULL ? errhint("%s", hint) : 0);
	pg_unreachable();
}

/* A bare name means name(jsonb). */
static Oid
resolve(text *name)
{
	char	   *given = text_to_cstring(name);

	if (strchr(given, '(') != NULL)
		return DatumGetObjectId(DirectFunctionCall1(regprocedurein, CStringGetDatum(given)));
	else
	{
		Oid			argument = JSONBOID;

		return LookupFuncName(compat_qualified_name(given), 1, &argument, false);
	}
}

static bool
fits(Oid oid, bool *strict)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(oid));
	Form_pg_proc proc;
	bool		result;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", oid);
	proc = (Form_pg_proc) GETSTRUCT(tuple);
	result = proc->prokind == PROKIND_FUNCTION && !proc->proretset &&
		proc->prorettype == JSONBOID && proc->pronargs == 1 &&
		proc->proargtypes.values[0] == JSONBOID;
	*strict = proc->proisstrict;
	ReleaseSysCache(tuple);
	return result;
}

Oid
durable_function_find(text *signature, bool *strict)
{
	LOCAL_FCINFO(fcinfo, 1);
	Oid			oid;

	InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = PointerGetDatum(signature);
	fcinfo->args[0].isnull = false;
	oid = DatumGetObjectId(to_regprocedure(fcinfo));
	if (fcinfo->isnull || !fits(oid, strict) || !compat_may_execute(oid, GetUserId()))
		return InvalidOid;
	return oid;
}

Oid
durable_function_lookup(text *name, bool *strict)
{
	Oid			oid = resolve(name);

	if (!fits(oid, strict))
		ereport(ERROR,
				errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
				errmsg("function %s cannot be used here", format_procedure(oid)),
				errdetail("It must take one argument of type jsonb and return jsonb."));
	if (!compat_may_execute(oid, GetUserId()))
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				errmsg("permission denied for function %s", format_procedure(oid)));
	return oid;
}

text *
durable_function_signature(Oid function)
{
	return cstring_to_text(format_procedure_qualified(function));
}

Jsonb *
durable_function_call(Oid function, bool strict, Jsonb *input)
{
	LOCAL_FCINFO(fcinfo, 1);
	FmgrInfo	flinfo;
	Datum		result;

	if (strict && input == NULL)
		return NULL;
	fmgr_info(function, &flinfo);
	InitFunctionCallInfoData(*fcinfo, &flinfo, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = PointerGetDatum(input);
	fcinfo->args[0].isnull = input == NULL;
	result = FunctionCallInvoke(fcinfo);
	return fcinfo->isnull ? NULL : DatumGetJsonbP(result);
}
