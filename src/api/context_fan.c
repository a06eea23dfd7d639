/*-------------------------------------------------------------------------
 *
 * context_fan.c
 *	  What a body calls: step_all, one step for each of many inputs.
 *
 * A fan takes a position for each of its inputs, all at once, in their order.
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
#include "api/context_step.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/json.h"
#include "base/names.h"
#include "engine/command.h"
#include "engine/step.h"

DURABLE_FUNCTION(durable_step_all);

typedef enum FanMode
{
	FAN_WAIT_ALL,
	FAN_FAIL_FAST,
	FAN_SETTLED
} FanMode;

static const char *const mode_names[] = {
	[FAN_WAIT_ALL] = "wait_all",
	[FAN_FAIL_FAST] = "fail_fast",
	[FAN_SETTLED] = "settled",
};

typedef struct Fan
{
	text	   *name;
	ArrayType  *inputs;
	int			n;
	FanMode		mode;
	int			first;			/* position */
	DurableOperation op;
} Fan;

static FanMode
mode_argument(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		durable_error_null("mode");
	for (int mode = 0; mode < lengthof(mode_names); mode++)
	{
		if (durable_text_is(PG_GETARG_TEXT_PP(n), mode_names[mode]))
			return mode;
	}
	durable_error_value("mode", "It must be \"wait_all\", \"fail_fast\" or \"settled\".");
	pg_unreachable();
}

/* name, inputs, mode, max_in_flight, the options of a step */
static void
read_fan(FunctionCallInfo fcinfo, Fan *fan)
{
	fan->name = durable_arg_name(fcinfo, 0, "name", false);
	if (PG_ARGISNULL(1))
		durable_error_null("inputs");
	fan->inputs = PG_GETARG_ARRAYTYPE_P(1);
	fan->n = ArrayGetNItems(ARR_NDIM(fan->inputs), ARR_DIMS(fan->inputs));
	if (fan->n > DURABLE_FAN_MAX)
		ereport(ERROR,
				errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				errmsg("too many inputs"),
				errdetail("There are %d; the limit of one fan is %d.", fan->n, DURABLE_FAN_MAX),
				errhint("Give each step several of them, or start children that have a fan each."));
	fan->mode = mode_argument(fcinfo, 2);
	memset(&fan->op, 0, sizeof(fan->op));
	fan->op.count = fan->n;
	if (!PG_ARGISNULL(3))
	{
		fan->op.max_in_flight = PG_GETARG_INT32(3);
		if (fan->op.max_in_flight < 1)
			durable_error_value("max_in_flight", "It must be at least 1.");
	}
	durable_context_step_options(fcinfo, 4, &fan->op);
}

/* New: one checkpoint for each input. */
static void
record_fan(DurableTurn *turn, const Fan *fan)
{
	Datum	   *inputs;
	bool	   *nulls;
	int			n;

	durable_context_check_limiter(turn, &fan->op);
	deconstruct_array(fan->inputs, JSONBOID, -1, false, TYPALIGN_INT, &inputs, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		if (!nulls[i])
			inputs[i] = PointerGetDatum(durable_check_payload(inputs[i], "an element of inputs"));
	}
	for (int i = 0; i < n; i++)
	{
		DurableCheckpoint *checkpoint;
		int			seq;

		CHECK_FOR_INTERRUPTS();
		(void) durable_turn_next(turn, KIND_STEP, fan->name, &seq);
		checkpoint = durable_turn_record(turn, seq, KIND_STEP, fan->name, CHECKPOINT_PENDING, NULL);
		if (!nulls[i])
			checkpoint->input = durable_context_keep(turn, DatumGetJsonbP(inputs[i]));
	}
	(void) durable_context_operation(turn, fan->first, &fan->op);
}

/* Recorded: each position has to be a step of this name. Those whose tasks are
 * known to be lost are dispatched again. */
static void
match_fan(DurableTurn *turn, const Fan *fan)
{
	bool		lost = false;

	for (int i = 0; i < fan->n; i++)
	{
		int			seq;
		DurableCheckpoint *checkpoint = durable_turn_next(turn, KIND_STEP, fan->name, &seq);

		/* the whole fan was recorded at once: a longer one is another */
		if (checkpoint == NULL)
			durable_turn_mismatch(turn, seq, KIND_STEP, fan->name);
		lost |= checkpoint->status == CHECKPOINT_PENDING && checkpoint->task == 0 &&
			!checkpoint->unsaved;
	}
	if (lost)
		(void) durable_context_operation(turn, fan->first, &fan->op);
}

/* The steps that are still out, when one has failed already. */
static void
call_off(DurableTurn *turn, const Fan *fan)
{
	for (int i = fan->first; i < fan->first + fan->n; i++)
	{
		if (turn->history[i].status != CHECKPOINT_PENDING)
			continue;
		durable_step_call_off(turn, &turn->history[i]);
		turn->fan_changed = true;
		turn->fan_next = -1;
	}
}

typedef struct Failure
{
	const Fan  *fan;
	int			failed;
	int			index;
} Failure;

static void
add_context(void *arg)
{
	const Failure *failure = arg;

	errcontext("step %d of %d of the fan \"%s\", of which %d failed", failure->index + 1,
			   failure->fan->n, text_to_cstring(failure->fan->name), failure->failed);
}

static void
raise_first(const DurableTurn *turn, const Fan *fan, int first_failed, int failed)
{
	Failure		failure = {.fan = fan, .failed = failed, .index = first_failed - fan->first};
	ErrorContextCallback callback;

	callback.previous = error_context_stack;
	callback.callback = add_context;
	callback.arg = &failure;
	error_context_stack = &callback;
	durable_raise(turn->history[first_failed].error);
}

static Datum
return_settled(const DurableTurn *turn, const Fan *fan)
{
	Datum	   *objects = palloc(sizeof(Datum) * fan->n);

	for (int i = 0; i < fan->n; i++)
	{
		const DurableCheckpoint *checkpoint = &turn->history[fan->first + i];
		bool		completed = checkpoint->status == CHECKPOINT_COMPLETED;

		objects[i] = JsonbPGetDatum(durable_json_settled(completed ? "completed" : "failed",
														 completed ? "value" : "error",
														 completed ? checkpoint->output :
														 checkpoint->error));
	}
	PG_RETURN_ARRAYTYPE_P(construct_array(objects, fan->n, JSONBOID, -1, false, TYPALIGN_INT));
}

static Datum
return_outputs(const DurableTurn *turn, const Fan *fan)
{
	const DurableCheckpoint **checkpoints = palloc(sizeof(DurableCheckpoint *) * fan->n);

	for (int i = 0; i < fan->n; i++)
		checkpoints[i] = &turn->history[fan->first + i];
	return durable_context_outputs(checkpoints, fan->n);
}

Datum
durable_step_all(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.step_all()");
	Fan			fan;
	int			pending = 0;
	int			failed = 0;
	int			first_failed = -1;

	read_fan(fcinfo, &fan);
	if (fan.n == 0)
		PG_RETURN_ARRAYTYPE_P(construct_empty_array(JSONBOID));
	fan.first = turn->next_seq;
	if (fan.first < turn->nhistory)
		match_fan(turn, &fan);
	else
		record_fan(turn, &fan);
	for (int i = fan.first; i < fan.first + fan.n; i++)
	{
		pending += turn->history[i].status == CHECKPOINT_PENDING;
		if (turn->history[i].status != CHECKPOINT_FAILED)
			continue;
		if (failed++ == 0)
			first_failed = i;
	}
	if (failed > 0 && fan.mode == FAN_FAIL_FAST)
		call_off(turn, &fan);
	else if (pending > 0)
	{
		turn->fail_fast = fan.mode == FAN_FAIL_FAST;
		durable_context_await(turn, fan.first, fan.first + fan.n - 1);
	}
	if (fan.mode == FAN_SETTLED)
		return return_settled(turn, &fan);
	if (failed > 0)
		raise_first(turn, &fan, first_failed, failed);
	return return_outputs(turn, &fan);
}
