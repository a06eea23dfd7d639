/*-------------------------------------------------------------------------
 *
 * context_step.c
 *	  What a body calls: dispatched steps, one by one, and waiting for them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "nodes/bitmapset.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/numeric.h"

#include "api/args.h"
#include "api/context.h"
#include "api/context_step.h"
#include "api/limiter.h"
#include "api/replay.h"
#include "base/compat.h"
#include "base/errors.h"
#include "engine/limiter.h"

DURABLE_FUNCTION(durable_step);
DURABLE_FUNCTION(durable_step_async);
DURABLE_FUNCTION(durable_await);
DURABLE_FUNCTION(durable_await_all);
DURABLE_FUNCTION(durable_await_any);

void
durable_context_step_options(FunctionCallInfo fcinfo, int first, DurableOperation *op)
{
	durable_context_policy(fcinfo, first, op);
	op->timeout = durable_arg_window(fcinfo, first + 5, "timeout");
	op->pickup_timeout = durable_arg_window(fcinfo, first + 6, "pickup_timeout");
	op->target = durable_check_queue(durable_arg_name(fcinfo, first + 7, "queue", true));
	op->has_priority = !PG_ARGISNULL(first + 8);
	op->priority = op->has_priority ? PG_GETARG_INT32(first + 8) : 0;
	op->requires = durable_arg_requires(fcinfo, first + 11);
	durable_arg_limiter(fcinfo, first + 9, &op->limiter, &op->fairness_key);
}

void
durable_context_check_limiter(DurableTurn *turn, const DurableOperation *op)
{
	if (op->limiter != NULL)
		(void) durable_limiter_require(turn->namespace, op->limiter);
}

void
durable_context_await(DurableTurn *turn, int first, int last)
{
	turn->awaited_first = first;
	turn->awaited_last = last;
	durable_turn_suspend(turn, 0);
	pg_unreachable();
}

/* The step's checkpoint, dispatched when it is new, or again when its task is
 * known to be lost. */
static int
dispatch(DurableTurn *turn, FunctionCallInfo fcinfo)
{
	text	   *name = durable_arg_name(fcinfo, 0, "name", false);
	Jsonb	   *input = durable_arg_jsonb(fcinfo, 1, "input");
	DurableOperation op = {.count = 1};
	DurableCheckpoint *checkpoint;
	int			seq;

	durable_context_step_options(fcinfo, 2, &op);
	if (durable_call_has_asked(fcinfo))
		durable_turn_asked(turn);
	checkpoint = durable_turn_next(turn, KIND_STEP, name, &seq);
	if (checkpoint != NULL && (checkpoint->status != CHECKPOINT_PENDING ||
							   checkpoint->task != 0 || checkpoint->unsaved))
		return seq;
	durable_context_check_limiter(turn, &op);
	(void) durable_context_operation(turn, seq, &op);
	if (checkpoint == NULL)
	{
		checkpoint = durable_turn_record(turn, seq, KIND_STEP, name, CHECKPOINT_PENDING, NULL);
		checkpoint->input = durable_context_keep(turn, input);
	}
	return seq;
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
		durable_context_await(turn, seq, seq);
	return durable_context_return(fcinfo, durable_context_outcome(&turn->history[seq]));
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
		durable_context_await(turn, handle, handle);
	return durable_context_return(fcinfo, durable_context_outcome(checkpoint));
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

/* Suspends when one of the handles is pending: for the last of them, and those
 * before it down to the first that is pending and not one of them. So a run that
 * awaits some of its steps is not woken by each of the others. */
static void
await_pending(DurableTurn *turn, const int *handles, int n)
{
	Bitmapset  *wanted = NULL;
	int			first;
	int			last = -1;

	for (int i = 0; i < n; i++)
	{
		if (handle_checkpoint(turn, handles[i])->status == CHECKPOINT_PENDING)
			last = Max(last, handles[i]);
	}
	if (last < 0)
		return;
	wanted = bms_add_member(wanted, last);
	for (int i = 0; i < n; i++)
		wanted = bms_add_member(wanted, handles[i]);
	for (first = last; first > 0; first--)
	{
		if (turn->history[first - 1].status == CHECKPOINT_PENDING &&
			!bms_is_member(first - 1, wanted))
			break;
	}
	durable_context_await(turn, first, last);
}

Datum
durable_context_outputs(const DurableCheckpoint *const *checkpoints, int n)
{
	Datum	   *outputs = palloc(sizeof(Datum) * Max(n, 1));
	bool	   *nulls = palloc(sizeof(bool) * Max(n, 1));
	int			lower = 1;

	for (int i = 0; i < n; i++)
	{
		Jsonb	   *output = durable_context_outcome(checkpoints[i]);

		outputs[i] = PointerGetDatum(output);
		nulls[i] = output == NULL;
	}
	PG_RETURN_ARRAYTYPE_P(construct_md_array(outputs, nulls, 1, &n, &lower,
											 JSONBOID, -1, false, TYPALIGN_INT));
}

Datum
durable_await_all(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.await_all()");
	int			n;
	int		   *handles = handles_argument(fcinfo, &n);
	const DurableCheckpoint **checkpoints = palloc(sizeof(DurableCheckpoint *) * Max(n, 1));

	await_pending(turn, handles, n);
	for (int i = 0; i < n; i++)
		checkpoints[i] = handle_checkpoint(turn, handles[i]);
	return durable_context_outputs(checkpoints, n);
}

static int
recorded_handle(const DurableCheckpoint *checkpoint)
{
	JsonbValue	value;

	if (checkpoint->output == NULL || !JB_ROOT_IS_SCALAR(checkpoint->output) ||
		!JsonbExtractScalar(&checkpoint->output->root, &value) || value.type != jbvNumeric)
		ereport(ERROR,
				errcode(ERRCODE_DATA_CORRUPTED),
				errmsg("the recorded handle at position %d is not a number", checkpoint->seq));
	return DatumGetInt32(DirectFunctionCall1(numeric_int4, NumericGetDatum(value.val.numeric)));
}

/* The choice is recorded: on the next replay others will have ended, too. */
Datum
durable_await_any(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.await_any()");
	int			n;
	int		   *handles = handles_argument(fcinfo, &n);
	text	   *name = cstring_to_text("await_any");
	int			seq;
	int			ended = -1;
	DurableCheckpoint *checkpoint;

	if (n == 0)
		durable_error_value("handles", "It must have at least one element.");
	for (int i = 0; i < n && ended < 0; i++)
	{
		if (handle_checkpoint(turn, handles[i])->status != CHECKPOINT_PENDING)
			ended = handles[i];
	}
	checkpoint = durable_turn_next(turn, KIND_VALUE, name, &seq);
	if (checkpoint == NULL && ended >= 0)
	{
		JsonbValue	value;

		value.type = jbvNumeric;
		value.val.numeric = int64_to_numeric(ended);
		checkpoint = durable_turn_record(turn, seq, KIND_VALUE, name, CHECKPOINT_COMPLETED,
										 JsonbValueToJsonb(&value));
	}
	/* no range: any result wakes the run */
	if (checkpoint == NULL)
		durable_turn_suspend(turn, 0);
	PG_RETURN_INT32(recorded_handle(checkpoint));
}
