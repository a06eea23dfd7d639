/*-------------------------------------------------------------------------
 *
 * context.c
 *	  What a body calls: local steps, sleeps, signals, children.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "api/args.h"
#include "api/context.h"
#include "api/limiter.h"
#include "api/replay.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/json.h"
#include "engine/limiter.h"
#include "engine/run.h"
#include "engine/turn.h"

DURABLE_FUNCTION(durable_local_step);
DURABLE_FUNCTION(durable_side_effect);
DURABLE_FUNCTION(durable_sleep);
DURABLE_FUNCTION(durable_sleep_until);
DURABLE_FUNCTION(durable_wait_for_signal);
DURABLE_FUNCTION(durable_child);
DURABLE_FUNCTION(durable_start_child);

Jsonb *
durable_arg_jsonb(FunctionCallInfo fcinfo, int n, const char *argument)
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

static ArrayType *
keep_set(DurableTurn *turn, ArrayType *value)
{
	MemoryContext before = MemoryContextSwitchTo(turn->context);
	ArrayType  *copy = value == NULL ? NULL : DatumGetArrayTypePCopy(PointerGetDatum(value));

	MemoryContextSwitchTo(before);
	return copy;
}

Jsonb *
durable_context_keep(DurableTurn *turn, Jsonb *value)
{
	MemoryContext before = MemoryContextSwitchTo(turn->context);
	Jsonb	   *copy = value == NULL ? NULL : DatumGetJsonbPCopy(PointerGetDatum(value));

	MemoryContextSwitchTo(before);
	return copy;
}

/* -1: not said */
static int
kind_argument(FunctionCallInfo fcinfo, int n)
{
	char	   *kind;

	if (PG_ARGISNULL(n))
		return -1;
	kind = text_to_cstring(PG_GETARG_TEXT_PP(n));
	if (strcmp(kind, "exp") != 0 && strcmp(kind, "fixed") != 0)
		durable_error_value("backoff_kind", "It must be \"fixed\" or \"exp\".");
	return strcmp(kind, "exp") == 0;
}

void
durable_context_policy(FunctionCallInfo fcinfo, int first, DurableOperation *op)
{
	int			kind;

	op->retries = PG_ARGISNULL(first) ? 0 : PG_GETARG_INT32(first);
	if (!PG_ARGISNULL(first) && op->retries < 1)
		durable_error_value("retries", "It must be at least 1.");
	op->backoff = interval_argument(fcinfo, first + 1, "backoff");
	kind = kind_argument(fcinfo, first + 2);
	op->backoff_max = interval_argument(fcinfo, first + 3, "backoff_max");
	op->has_exponential = kind >= 0;
	op->exponential = kind >= 0 ? kind > 0 : op->backoff_max != NULL;
	op->has_jitter = !PG_ARGISNULL(first + 4);
	op->jitter = op->has_jitter && PG_GETARG_BOOL(first + 4);
}

DurableOperation *
durable_context_operation(DurableTurn *turn, int seq, const DurableOperation *read)
{
	DurableOperation *op = durable_turn_operation(turn, seq);

	*op = *read;
	op->seq = seq;
	op->target = keep_text(turn, read->target);
	op->workflow = keep_text(turn, read->workflow);
	op->version = keep_text(turn, read->version);
	op->limiter = keep_text(turn, read->limiter);
	op->fairness_key = keep_text(turn, read->fairness_key);
	op->backoff = keep_interval(turn, read->backoff);
	op->backoff_max = keep_interval(turn, read->backoff_max);
	op->timeout = keep_interval(turn, read->timeout);
	op->pickup_timeout = keep_interval(turn, read->pickup_timeout);
	op->requires = keep_set(turn, read->requires);
	return op;
}

Jsonb *
durable_context_outcome(const DurableCheckpoint *checkpoint)
{
	if (checkpoint->status == CHECKPOINT_FAILED || checkpoint->status == CHECKPOINT_CANCELLED)
		durable_raise(checkpoint->error);
	return checkpoint->output;
}

Datum
durable_context_return(FunctionCallInfo fcinfo, Jsonb *value)
{
	if (value == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(value);
}

/* Returns when the turn's claim was given a slot for it; else the turn ends. */
static void
wait_for_slot(DurableTurn *turn, const DurableOperation *op)
{
	DurableLimitedBy gate = {
		.limiter = durable_limiter_require(turn->namespace, op->limiter),
		.key = op->fairness_key != NULL ? op->fairness_key : turn->run_id
	};

	if (!turn->has_slot || turn->slot_spent || turn->slot.limiter != gate.limiter)
		durable_turn_suspend_at(turn, &gate);
}

static Jsonb *
local_step(DurableTurn *turn, text *name, Jsonb *input, const DurableOperation *op)
{
	int			seq;
	DurableCheckpoint *checkpoint = durable_turn_next(turn, KIND_LOCAL, name, &seq);

	if (checkpoint != NULL && checkpoint->status != CHECKPOINT_PENDING)
		return durable_context_outcome(checkpoint);
	if (checkpoint != NULL && checkpoint->wake_at > durable_clock_now())
		durable_turn_suspend(turn, checkpoint->wake_at);
	if (checkpoint == NULL)
	{
		checkpoint = durable_turn_record(turn, seq, KIND_LOCAL, name, CHECKPOINT_PENDING, NULL);
		checkpoint->input = durable_context_keep(turn, input);
	}
	if (op->limiter != NULL)
		wait_for_slot(turn, op);
	durable_turn_run_step(turn, durable_context_operation(turn, seq, op));
	return NULL;
}

Datum
durable_local_step(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.local_step()");
	DurableOperation op = {.target = durable_arg_name(fcinfo, 0, "handler", false)};
	text	   *name = durable_arg_name(fcinfo, 2, "name", true);
	Jsonb	   *input = durable_arg_jsonb(fcinfo, 1, "input");

	durable_context_policy(fcinfo, 3, &op);
	durable_arg_limiter(fcinfo, 8, &op.limiter, &op.fairness_key);
	if (durable_call_has_asked(fcinfo))
		durable_turn_asked(turn);
	return durable_context_return(fcinfo, local_step(turn, name != NULL ? name : op.target,
													 input, &op));
}

Datum
durable_side_effect(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.side_effect()");
	DurableOperation op = {.target = durable_arg_name(fcinfo, 0, "handler", false)};
	Jsonb	   *input = durable_arg_jsonb(fcinfo, 1, "input");

	return durable_context_return(fcinfo, local_step(turn, cstring_to_text("sideEffect"),
													 input, &op));
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
	return durable_context_return(fcinfo, durable_context_outcome(checkpoint));
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
	if (durable_run_child_prefix(turn->run_id, id) != NULL)
		durable_error_value("child_id",
							psprintf("Ids that start with \"%s\" are reserved for runs that the engine itself starts.",
									 durable_run_child_prefix(turn->run_id, id)));
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
	Jsonb	   *input = durable_arg_jsonb(fcinfo, 1, "input");
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
		checkpoint->input = durable_context_keep(turn, input);
	}
	(void) durable_context_operation(turn, *seq, &op);
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
	return durable_context_return(fcinfo, durable_context_outcome(checkpoint));
}

Datum
durable_start_child(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.start_child()");
	int			seq;
	DurableCheckpoint *checkpoint = child_checkpoint(turn, fcinfo, false, &seq);

	/* it was refused; one whose workflow is not registered has no code, and is ignored */
	if (checkpoint->status == CHECKPOINT_FAILED &&
		durable_json_string(checkpoint->error, "code") != NULL)
		durable_raise(checkpoint->error);
	PG_RETURN_TEXT_P(cstring_to_text(text_to_cstring(checkpoint->name) + strlen("child:")));
}
