/*-------------------------------------------------------------------------
 *
 * turn.c
 *	  One run in the hands of this process: its history, and replaying the body
 *	  against it.
 *
 * The body is an ordinary function. The functions that it calls look their
 * position up in the history; the first that cannot answer notes why and raises
 * an error of class "query canceled", which WHEN OTHERS does not catch. A body
 * that catches it by name is found out: the next call raises an error that not even
 * that catches, and if it returns all the same its run fails, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
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
#include "base/executing.h"
#include "base/guc.h"
#include "base/json.h"
#include "base/names.h"
#include "engine/check.h"
#include "engine/turn.h"
#include "store/lease.h"

/* A body that asks for more and more and never waits must not take all memory. */
#define MAX_HISTORY 1000000

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

/* The body has caught the end of its turn, perhaps in a loop. A failed assertion is
 * the other thing that WHEN OTHERS does not catch. */
static void
end_swallower(DurableTurn *turn)
{
	turn->swallowed = true;
	ereport(ERROR,
			errcode(ERRCODE_ASSERT_FAILURE),
			errmsg("the turn has ended, and its body went on"),
			errhint("A workflow body must let the error that ends its turn pass."));
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
	if (durable_current_turn->ended)
		end_swallower(durable_current_turn);
	if (durable_current_turn->fatal)
		end_turn(durable_current_turn);
	return durable_current_turn;
}

/* Final, whatever the body makes of the error. */
void
durable_turn_mismatch(DurableTurn *turn, int seq, DurableKind kind, const text *name)
{
	MemoryContext before = MemoryContextSwitchTo(turn->context);
	char	   *message = psprintf("the history of run \"%s\" does not match its workflow at position %d",
								   text_to_cstring(turn->run_id), seq);
	char	   *asked = psprintf("The body asks for %s \"%s\"",
								 durable_kind_name(kind), text_to_cstring(name));
	char	   *detail = seq >= turn->nhistory ?
		psprintf("%s; the history ends before it.", asked) :
		psprintf("%s; recorded is %s \"%s\".", asked,
				 durable_kind_name(turn->history[seq].kind),
				 text_to_cstring(turn->history[seq].name));

	turn->fatal = true;
	turn->error = durable_json_error_details(message, unpack_sql_state(ERRCODE_DURABLE_HISTORY),
											 detail, CHANGED_BODY_HINT, NULL);
	MemoryContextSwitchTo(before);
	ereport(ERROR,
			errcode(ERRCODE_DURABLE_HISTORY),
			errmsg("%s", message),
			errdetail("%s", detail),
			errhint("%s", CHANGED_BODY_HINT));
	pg_unreachable();
}

/* How many subtransactions have been rolled back in this session: whoever catches an
 * error rolls one back. */
static int	aborts = 0;

static void
count_aborts(SubXactEvent event, SubTransactionId subxact, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		aborts++;
}

void
durable_turn_init(void)
{
	RegisterSubXactCallback(count_aborts, NULL);
}

bool
durable_turn_ask(DurableTurn *turn, DurableKind kind)
{
	const DurableCheckpoint *checkpoint = turn->next_seq < turn->nhistory ?
		&turn->history[turn->next_seq] : NULL;

	return ++turn->asked == 1 && turn->aborts == aborts &&
		checkpoint != NULL && checkpoint->plain && checkpoint->kind == kind &&
		checkpoint->status != CHECKPOINT_PENDING;
}

void
durable_turn_asked(DurableTurn *turn)
{
	turn->plain = turn->asked == 1 && turn->aborts == aborts;
}

/* Returns the position. */
static int
take_position(DurableTurn *turn)
{
	turn->asked = 0;
	turn->aborts = aborts;
	return turn->next_seq++;
}

DurableCheckpoint *
durable_turn_next(DurableTurn *turn, DurableKind kind, const text *name, int *seq)
{
	DurableCheckpoint *checkpoint;
	bool		plain = turn->plain;

	*seq = take_position(turn);
	if (*seq >= turn->nhistory)
		return NULL;			/* durable_turn_record() uses turn->plain */
	turn->plain = false;
	checkpoint = &turn->history[*seq];
	checkpoint->plain = plain;
	if (checkpoint->kind != kind || !durable_text_same(checkpoint->name, name))
		durable_turn_mismatch(turn, *seq, kind, name);
	return checkpoint;
}

DurableCheckpoint *
durable_turn_record(DurableTurn *turn, int seq, DurableKind kind, text *name,
					DurableCheckpointStatus status, Jsonb *output)
{
	MemoryContext before = MemoryContextSwitchTo(turn->context);
	DurableCheckpoint *checkpoint;
	TimestampTz now = durable_clock_now();

	Assert(seq == turn->nhistory);
	if (seq >= MAX_HISTORY)
		ereport(ERROR,
				errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				errmsg("the history of a run cannot have more than %d positions", MAX_HISTORY),
				errhint("Let child workflows do parts of the work."));
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
	durable_turn_changed(turn, checkpoint);
	checkpoint->plain = turn->plain;
	turn->plain = false;
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
durable_turn_changed(DurableTurn *turn, DurableCheckpoint *checkpoint)
{
	checkpoint->unsaved = true;
	turn->first_unsaved = Min(turn->first_unsaved, (int) (checkpoint - turn->history));
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
	durable_turn_changed(turn, checkpoint);
	MemoryContextSwitchTo(before);
}

DurableOperation *
durable_turn_operation(DurableTurn *turn, int seq)
{
	MemoryContext before;
	DurableOperation *operation;

	for (int i = 0; i < turn->carried; i++)
	{
		operation = list_nth(turn->operations, i);
		if (operation->seq == seq)
			return operation;
	}
	before = MemoryContextSwitchTo(turn->context);
	operation = palloc0(sizeof(DurableOperation));
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
durable_turn_suspend_at(DurableTurn *turn, const DurableLimitedBy *gate)
{
	MemoryContext before = MemoryContextSwitchTo(turn->context);

	turn->limited = true;
	turn->gate.limiter = gate->limiter;
	turn->gate.key = DatumGetTextPCopy(PointerGetDatum(gate->key));
	MemoryContextSwitchTo(before);
	durable_turn_suspend(turn, 0);
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
body_went_on(DurableTurn *turn)
{
	turn->decision = DECISION_FAILED;
	if (turn->fatal)
		return;
	turn->error = durable_json_error_full("the body caught the error that ends its turn and went on",
										  unpack_sql_state(ERRCODE_DURABLE_TURN_SWALLOWED),
										  false);
}

bool
durable_turn_has_body(DurableTurn *turn)
{
	/* dropped meanwhile, and perhaps created anew */
	if (!SearchSysCacheExists1(PROCOID, ObjectIdGetDatum(turn->body)))
		turn->body = durable_function_find(turn->workflow.body, &turn->body_strict);
	return OidIsValid(turn->body);
}

static void
body_returned(DurableTurn *turn, Jsonb *output)
{
	if (turn->fatal || turn->ended)
	{
		body_went_on(turn);
		return;
	}
	turn->decision = DECISION_COMPLETED;
	turn->output = output == NULL ? NULL : DatumGetJsonbPCopy(PointerGetDatum(output));
}

/* What an earlier replay asked for and is not written yet stays asked for. */
static void
begin_replay(DurableTurn *turn)
{
	if (turn->scratch == NULL)
		turn->scratch = AllocSetContextCreate(turn->context, "durable replay",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(turn->scratch);
	durable_lease_keep();
	turn->next_seq = 0;
	turn->carried = list_length(turn->operations);
	turn->asked = 0;
	turn->aborts = aborts;
	turn->plain = false;
	turn->ended = false;
	turn->swallowed = false;
	turn->fatal = false;
	turn->output = turn->error = NULL;
	turn->step = NULL;
	turn->wake_at = 0;
	turn->awaited_first = turn->awaited_last = -1;
	turn->fail_fast = false;
	turn->limited = false;
}

/* Sees every error that the body meets, also those that it catches. */
static void
note_interrupt(void *arg)
{
	DurableTurn *turn = arg;
	MemoryContext before;
	ErrorData  *error;

	if (geterrcode() != ERRCODE_QUERY_CANCELED)
		return;
	before = MemoryContextSwitchTo(turn->context);
	error = CopyErrorData();
	turn->interrupted |= durable_is_interrupt(error);
	FreeErrorData(error);
	MemoryContextSwitchTo(before);
}

/* An interrupt that the body has caught is not lost: it comes again. */
static void
repeat_interrupt(DurableTurn *turn)
{
	if (turn->interrupted)
		InterruptPending = QueryCancelPending = true;
	turn->interrupted = false;
	CHECK_FOR_INTERRUPTS();
}

void
durable_turn_replay(DurableTurn *turn)
{
	MemoryContext before = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorContextCallback callback;

	callback.previous = error_context_stack;
	callback.callback = note_interrupt;
	callback.arg = turn;
	begin_replay(turn);
	turn->interrupted = false;
	error_context_stack = &callback;
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(turn->scratch);
	PG_TRY();
	{
		int			settings = NewGUCNestLevel();
		Jsonb	   *output;

		XactReadOnly = true;
		/* F-START-5: what was stored may not pass today's check */
		if (!turn->input_checked)
			durable_check_require(turn->workflow.input_check, turn->workflow.owner, turn->input,
								  "input of workflow", turn->workflow.name);
		turn->input_checked = true;
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
		MemoryContextSwitchTo(turn->scratch);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(turn->context);
		CurrentResourceOwner = owner;
		if (durable_is_interrupt(error))
			ReThrowError(error);
		if (turn->swallowed)
			body_went_on(turn);
		else if (!turn->ended || turn->fatal || error->sqlerrcode != ERRCODE_QUERY_CANCELED)
			body_failed(turn, error);
	}
	PG_END_TRY();
	error_context_stack = callback.previous;
	MemoryContextSwitchTo(before);
	CurrentResourceOwner = owner;
	durable_lease_keep();
	repeat_interrupt(turn);
}

Jsonb *
durable_error_to_json(ErrorData *error)
{
	return durable_json_error_details(error->message ? error->message : "",
									  unpack_sql_state(error->sqlerrcode),
									  error->detail, error->hint, error->context);
}

/* A code that is not a SQLSTATE is told in the detail. */
static char *
detail_with_code(char *detail, const char *code, bool is_state)
{
	if (code == NULL || is_state)
		return detail;
	return detail == NULL ? psprintf("Its code is \"%s\".", code) :
		psprintf("%s\nIts code is \"%s\".", detail, code);
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

	detail = detail_with_code(detail, code, is_state);
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
fits(Oid oid, Oid returns, bool *strict)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(oid));
	Form_pg_proc proc;
	bool		result;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", oid);
	proc = (Form_pg_proc) GETSTRUCT(tuple);
	result = proc->prokind == PROKIND_FUNCTION && !proc->proretset &&
		proc->prorettype == returns && proc->pronargs == 1 &&
		proc->proargtypes.values[0] == JSONBOID;
	*strict = proc->proisstrict;
	ReleaseSysCache(tuple);
	return result;
}

Oid
durable_function_find_as(text *signature, Oid returns, bool *strict)
{
	LOCAL_FCINFO(fcinfo, 1);
	Oid			oid;

	InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = PointerGetDatum(signature);
	fcinfo->args[0].isnull = false;
	oid = DatumGetObjectId(to_regprocedure(fcinfo));
	if (fcinfo->isnull || !fits(oid, returns, strict) || !compat_may_execute(oid, GetUserId()))
		return InvalidOid;
	return oid;
}

Oid
durable_function_find(text *signature, bool *strict)
{
	return durable_function_find_as(signature, JSONBOID, strict);
}

Oid
durable_function_lookup_as(text *name, Oid returns, bool *strict)
{
	Oid			oid = resolve(name);

	if (!fits(oid, returns, strict))
		ereport(ERROR,
				errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
				errmsg("function %s cannot be used here", format_procedure(oid)),
				errdetail("It must take one argument of type jsonb and return %s.",
						  format_type_be(returns)));
	if (!compat_may_execute(oid, GetUserId()))
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				errmsg("permission denied for function %s", format_procedure(oid)));
	return oid;
}

Oid
durable_function_lookup(text *name, bool *strict)
{
	return durable_function_lookup_as(name, JSONBOID, strict);
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
	if (fcinfo->isnull)
		return NULL;
	if (toast_raw_datum_size(result) > (Size) durable_max_payload * 1024)
		ereport(ERROR,
				errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				errmsg("output is too large"),
				errdetail("It has %zu bytes; the limit is %d kB.",
						  (size_t) toast_raw_datum_size(result), durable_max_payload),
				errhint("Store it elsewhere and return a reference, or raise durable.max_payload."));
	return DatumGetJsonbP(result);
}
