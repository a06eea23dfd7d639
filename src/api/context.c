/*-------------------------------------------------------------------------
 *
 * context.c
 *	  What a body calls: steps, sleeps, signals, children, recorded values.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "common/pg_prng.h"
#include "fmgr.h"
#include "nodes/bitmapset.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "api/args.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/json.h"
#include "engine/run.h"
#include "engine/turn.h"

DURABLE_FUNCTION(durable_local_step);
DURABLE_FUNCTION(durable_step);
DURABLE_FUNCTION(durable_step_async);
DURABLE_FUNCTION(durable_await);
DURABLE_FUNCTION(durable_await_all);
DURABLE_FUNCTION(durable_await_any);
DURABLE_FUNCTION(durable_sleep);
DURABLE_FUNCTION(durable_sleep_until);
DURABLE_FUNCTION(durable_wait_for_signal);
DURABLE_FUNCTION(durable_child);
DURABLE_FUNCTION(durable_start_child);

static Jsonb *
jsonb_argument(FunctionCallInfo fcinfo, int n, const char *argument)
{
	void	   *payload = durable_arg_payload(fcinfo, n, argument);

	return payload == NULL ? NULL : DatumGetJsonbP(PointerGetDatum(payload));
}

static Interval *
interval_argument(FunctionCallInfo fcinfo, int n, const char *argument)
{
	if (PG_ARGISNULL(n))
		return NULL;
	if (durable_interval_negative(PG_GETARG_INTERVAL_P(n)))
		durable_error_value(argument, "It must not be negative.");
	return PG_GETARG_INTERVAL_P(n);
}

static Interval *
keep_interval(DurableTurn *turn, const Interval *value)
{
	Interval   *copy;

	if (value == NULL)
		return NULL;
	copy = MemoryContextAlloc(turn->context, sizeof(Interval));
	*copy = *value;
	return copy;
}

static text *
keep_text(DurableTurn *turn, text *value)
{
	MemoryContext before = MemoryContextSwitchTo(turn->context);
	text	   *copy = value == NULL ? NULL : DatumGetTextPCopy(PointerGetDatum(value));

	MemoryContextSwitchTo(before);
	return copy;
}

static Jsonb *
keep_jsonb(DurableTurn *turn, Jsonb *value)
{
	MemoryContext before = MemoryContextSwitchTo(turn->context);
	Jsonb	   *copy = value == NULL ? NULL : DatumGetJsonbPCopy(PointerGetDatum(value));

	MemoryContextSwitchTo(before);
	return copy;
}

/* retries, backoff, backoff_kind, backoff_max, jitter, from "first" on */
static void
read_policy(FunctionCallInfo fcinfo, int first, DurableOperation *op)
{
	char	   *kind = PG_ARGISNULL(first + 2) ? NULL :
		text_to_cstring(PG_GETARG_TEXT_PP(first + 2));

	op->retries = PG_ARGISNULL(first) ? 1 : PG_GETARG_INT32(first);
	if (op->retries < 1)
		durable_error_value("retries", "It must be at least 1.");
	op->backoff = interval_argument(fcinfo, first + 1, "backoff");
	op->backoff_max = interval_argument(fcinfo, first + 3, "backoff_max");
	if (kind != NULL && strcmp(kind, "exp") != 0 && strcmp(kind, "fixed") != 0)
		durable_error_value("backoff_kind", "It must be \"fixed\" or \"exp\".");
	op->exponential = kind != NULL ? strcmp(kind, "exp") == 0 : op->backoff_max != NULL;
	op->jitter = !PG_ARGISNULL(first + 4) && PG_GETARG_BOOL(first + 4);
}

/* All arguments are checked before a position is taken: a body may catch what
 * they raise, and its next operation has that position then. What was read is
 * copied here and not before, for most calls are replayed ones. */
static DurableOperation *
add_operation(DurableTurn *turn, int seq, const DurableOperation *read)
{
	DurableOperation *op = durable_turn_operation(turn, seq);

	*op = *read;
	op->seq = seq;
	op->target = keep_text(turn, read->target);
	op->workflow = keep_text(turn, read->workflow);
	op->version = keep_text(turn, read->version);
	op->backoff = keep_interval(turn, read->backoff);
	op->backoff_max = keep_interval(turn, read->backoff_max);
	return op;
}

/* What a settled checkpoint gives the body; NULL is SQL NULL. */
static Jsonb *
outcome_of(const DurableCheckpoint *checkpoint)
{
	if (checkpoint->status == CHECKPOINT_FAILED)
		durable_raise(checkpoint->error);
	return checkpoint->output;
}

static Datum
return_jsonb(FunctionCallInfo fcinfo, Jsonb *value)
{
	if (value == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(value);
}

Datum
durable_local_step(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.local_step()");
	text	   *handler = durable_arg_name(fcinfo, 0, "handler", false);
	text	   *name = durable_arg_name(fcinfo, 2, "name", true);
	Jsonb	   *input = jsonb_argument(fcinfo, 1, "input");
	DurableOperation policy = {0};
	DurableCheckpoint *checkpoint;
	int			seq;

	if (name == NULL)
		name = handler;
	read_policy(fcinfo, 3, &policy);
	checkpoint = durable_turn_next(turn, KIND_LOCAL, name, &seq);
	if (checkpoint != NULL && checkpoint->status != CHECKPOINT_PENDING)
		return return_jsonb(fcinfo, outcome_of(checkpoint));
	if (checkpoint != NULL && checkpoint->wake_at > durable_clock_now())
		durable_turn_suspend(turn, checkpoint->wake_at);
	if (checkpoint == NULL)
	{
		checkpoint = durable_turn_record(turn, seq, KIND_LOCAL, name, CHECKPOINT_PENDING, NULL);
		checkpoint->input = keep_jsonb(turn, input);
	}
	policy.target = handler;
	durable_turn_run_step(turn, add_operation(turn, seq, &policy));
	PG_RETURN_NULL();
}

/* The step's checkpoint, dispatched when it is new. */
static int
dispatch(DurableTurn *turn, FunctionCallInfo fcinfo)
{
	text	   *name = durable_arg_name(fcinfo, 0, "name", false);
	Jsonb	   *input = jsonb_argument(fcinfo, 1, "input");
	DurableOperation op = {0};
	DurableCheckpoint *checkpoint;
	int			seq;

	read_policy(fcinfo, 2, &op);
	op.target = durable_check_queue(durable_arg_name(fcinfo, 7, "queue", true));
	op.has_priority = !PG_ARGISNULL(8);
	op.priority = op.has_priority ? PG_GETARG_INT32(8) : 0;
	if (durable_turn_next(turn, KIND_STEP, name, &seq) != NULL)
		return seq;
	(void) add_operation(turn, seq, &op);
	checkpoint = durable_turn_record(turn, seq, KIND_STEP, name, CHECKPOINT_PENDING, NULL);
	checkpoint->input = keep_jsonb(turn, input);
	return seq;
}

static void
await_range(DurableTurn *turn, int first, int last)
{
	turn->awaited_first = first;
	turn->awaited_last = last;
	durable_turn_suspend(turn, 0);
}

static DurableCheckpoint *
handle_checkpoint(DurableTurn *turn, int handle)
{
	if (handle < 0 || handle >= turn->next_seq || turn->history[handle].kind != KIND_STEP)
		durable_error_value("handle", "It must be one that durable.step_async() returned in this run.");
	return &turn->history[handle];
}

Datum
durable_step(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.step()");
	int			seq = dispatch(turn, fcinfo);

	if (turn->history[seq].status == CHECKPOINT_PENDING)
		await_range(turn, seq, seq);
	return return_jsonb(fcinfo, outcome_of(&turn->history[seq]));
}

Datum
durable_step_async(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(dispatch(durable_turn_require("durable.step_async()"), fcinfo));
}

Datum
durable_await(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.await()");
	int			handle;
	DurableCheckpoint *checkpoint;

	if (PG_ARGISNULL(0))
		durable_error_null("handle");
	handle = PG_GETARG_INT32(0);
	checkpoint = handle_checkpoint(turn, handle);
	if (checkpoint->status == CHECKPOINT_PENDING)
		await_range(turn, handle, handle);
	return return_jsonb(fcinfo, outcome_of(checkpoint));
}

static int *
handles_argument(FunctionCallInfo fcinfo, int *n)
{
	ArrayType  *array;

	if (PG_ARGISNULL(0))
		durable_error_null("handles");
	array = PG_GETARG_ARRAYTYPE_P(0);
	if (ARR_HASNULL(array))
		durable_error_null("an element of handles");
	*n = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	return (int *) ARR_DATA_PTR(array);
}

/* Suspends when one of the handles is pending. What is pending between them but
 * is not one of them must not be waited for: then any result wakes the run. */
static void
await_pending(DurableTurn *turn, const int *handles, int n)
{
	Bitmapset  *wanted = NULL;
	int			first = PG_INT32_MAX;
	int			last = -1;

	for (int i = 0; i < n; i++)
	{
		if (handle_checkpoint(turn, handles[i])->status != CHECKPOINT_PENDING)
			continue;
		wanted = bms_add_member(wanted, handles[i]);
		first = Min(first, handles[i]);
		last = Max(last, handles[i]);
	}
	if (last < 0)
		return;
	for (int i = first; i <= last; i++)
	{
		if (turn->history[i].status == CHECKPOINT_PENDING && !bms_is_member(i, wanted))
			durable_turn_suspend(turn, 0);
	}
	await_range(turn, first, last);
}

Datum
durable_await_all(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.await_all()");
	int			n;
	int		   *handles = handles_argument(fcinfo, &n);
	Datum	   *outputs = palloc(sizeof(Datum) * Max(n, 1));
	bool	   *nulls = palloc(sizeof(bool) * Max(n, 1));
	int			lower = 1;

	await_pending(turn, handles, n);
	for (int i = 0; i < n; i++)
	{
		Jsonb	   *output = outcome_of(handle_checkpoint(turn, handles[i]));

		outputs[i] = PointerGetDatum(output);
		nulls[i] = output == NULL;
	}
	PG_RETURN_ARRAYTYPE_P(construct_md_array(outputs, nulls, 1, &n, &lower,
											 JSONBOID, -1, false, TYPALIGN_INT));
}

Datum
durable_await_any(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.await_any()");
	int			n;
	int		   *handles = handles_argument(fcinfo, &n);

	if (n == 0)
		durable_error_value("handles", "It must have at least one element.");
	for (int i = 0; i < n; i++)
	{
		if (handle_checkpoint(turn, handles[i])->status != CHECKPOINT_PENDING)
			PG_RETURN_INT32(handles[i]);
	}
	/* no range: any result wakes the run */
	durable_turn_suspend(turn, 0);
	PG_RETURN_NULL();
}

static void
sleep_until(DurableTurn *turn, TimestampTz until)
{
	text	   *name = cstring_to_text("sleep");
	DurableCheckpoint *checkpoint;
	int			seq;

	checkpoint = durable_turn_next(turn, KIND_SLEEP, name, &seq);
	if (checkpoint == NULL)
	{
		checkpoint = durable_turn_record(turn, seq, KIND_SLEEP, name,
										 CHECKPOINT_COMPLETED, NULL);
		checkpoint->wake_at = until;
	}
	if (checkpoint->wake_at > durable_clock_now())
		durable_turn_suspend(turn, checkpoint->wake_at);
}

Datum
durable_sleep(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.sleep()");

	if (PG_ARGISNULL(0))
		durable_error_null("duration");
	if (durable_interval_negative(PG_GETARG_INTERVAL_P(0)))
		durable_error_value("duration", "It must not be negative.");
	sleep_until(turn, durable_clock_add(durable_clock_now(), PG_GETARG_INTERVAL_P(0)));
	PG_RETURN_VOID();
}

Datum
durable_sleep_until(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.sleep_until()");

	if (PG_ARGISNULL(0))
		durable_error_null("t");
	if (TIMESTAMP_NOT_FINITE(PG_GETARG_TIMESTAMPTZ(0)))
		durable_error_value("t", "It must be a finite time.");
	sleep_until(turn, PG_GETARG_TIMESTAMPTZ(0));
	PG_RETURN_VOID();
}

Datum
durable_wait_for_signal(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.wait_for_signal()");
	text	   *token = durable_arg_name(fcinfo, 0, "token", false);
	TimestampTz deadline = 0;
	DurableCheckpoint *checkpoint;
	int			seq;

	if (!PG_ARGISNULL(1))
	{
		if (durable_interval_negative(PG_GETARG_INTERVAL_P(1)))
			durable_error_value("timeout", "It must not be negative.");
		deadline = durable_clock_add(durable_clock_now(), PG_GETARG_INTERVAL_P(1));
	}
	checkpoint = durable_turn_next(turn, KIND_SIGNAL, token, &seq);
	if (checkpoint == NULL)
	{
		checkpoint = durable_turn_record(turn, seq, KIND_SIGNAL, token, CHECKPOINT_PENDING, NULL);
		checkpoint->wake_at = deadline;
		(void) durable_turn_operation(turn, seq);
		durable_turn_suspend(turn, checkpoint->wake_at);
	}
	if (checkpoint->status == CHECKPOINT_PENDING)
	{
		if (checkpoint->wake_at == 0 || checkpoint->wake_at > durable_clock_now())
		{
			/* again: the registration may have met a sender on its way */
			(void) durable_turn_operation(turn, seq);
			durable_turn_suspend(turn, checkpoint->wake_at);
		}
		durable_turn_time_out(turn, checkpoint);
	}
	return return_jsonb(fcinfo, outcome_of(checkpoint));
}

/* A generated id grows with every generation. */
static void
check_child_id(DurableTurn *turn, const char *id)
{
	if (strlen(id) > DURABLE_NAME_MAX)
		ereport(ERROR,
				errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				errmsg("the id of a child of run \"%s\" would be too long",
					   text_to_cstring(turn->run_id)),
				errdetail("It must have between 1 and %d bytes.", DURABLE_NAME_MAX),
				errhint("Give the child an id of its own."));
	if (strcmp(id, text_to_cstring(turn->run_id)) == 0)
		durable_error_value("child_id", "A run cannot be its own child.");
}

/* workflow, input, child_id, priority, version: the checkpoint's name tells the
 * child's id. */
static DurableCheckpoint *
child_checkpoint(DurableTurn *turn, FunctionCallInfo fcinfo, bool waits, int *seq)
{
	text	   *workflow = durable_arg_name(fcinfo, 0, "workflow", false);
	text	   *given = durable_arg_name(fcinfo, 2, "child_id", true);
	char	   *id = given != NULL ? text_to_cstring(given) :
		psprintf("%s.child.%d", text_to_cstring(turn->run_id), turn->next_seq);
	text	   *name = durable_child_token(cstring_to_text(id));
	Jsonb	   *input = jsonb_argument(fcinfo, 1, "input");
	DurableOperation op = {0};
	DurableCheckpoint *checkpoint;

	check_child_id(turn, id);
	op.workflow = workflow;
	op.version = durable_arg_name(fcinfo, 4, "version", true);
	op.has_priority = !PG_ARGISNULL(3);
	op.priority = op.has_priority ? PG_GETARG_INT32(3) : 0;
	checkpoint = durable_turn_next(turn, KIND_CHILD, name, seq);

	if (checkpoint != NULL && (checkpoint->status != CHECKPOINT_PENDING || !waits))
		return checkpoint;
	if (checkpoint == NULL)
	{
		checkpoint = durable_turn_record(turn, *seq, KIND_CHILD, name,
										 waits ? CHECKPOINT_PENDING : CHECKPOINT_COMPLETED, NULL);
		checkpoint->input = keep_jsonb(turn, input);
	}
	(void) add_operation(turn, *seq, &op);
	return checkpoint;
}

Datum
durable_child(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.child()");
	int			seq;
	DurableCheckpoint *checkpoint = child_checkpoint(turn, fcinfo, true, &seq);

	if (checkpoint->status == CHECKPOINT_PENDING)
		durable_turn_suspend(turn, 0);
	return return_jsonb(fcinfo, outcome_of(checkpoint));
}

Datum
durable_start_child(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.start_child()");
	int			seq;
	DurableCheckpoint *checkpoint = child_checkpoint(turn, fcinfo, false, &seq);

	PG_RETURN_TEXT_P(cstring_to_text(text_to_cstring(checkpoint->name) + strlen("child:")));
}
