/*-------------------------------------------------------------------------
 *
 * limiter.c
 *	  register_limiter, drop_limiter, pause_limiter, resume_limiter, limiter_usage.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

#include "api/args.h"
#include "api/limiter.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/names.h"
#include "base/security.h"
#include "engine/limiter_claim.h"
#include "engine/limiter.h"
#include "store/limited.h"
#include "store/limiter_slot.h"

DURABLE_FUNCTION(durable_register_limiter);
DURABLE_FUNCTION(durable_drop_limiter);
DURABLE_FUNCTION(durable_pause_limiter);
DURABLE_FUNCTION(durable_resume_limiter);
DURABLE_FUNCTION(durable_limiter_usage);

/* A sliding window keeps each of its admissions. */
#define SLIDING_MAX 100000

void
durable_arg_limiter(FunctionCallInfo fcinfo, int n, text **limiter, text **fairness_key)
{
	*limiter = durable_arg_name(fcinfo, n, "limiter", true);
	*fairness_key = durable_arg_name(fcinfo, n + 1, "fairness_key", true);
	if (*fairness_key != NULL && *limiter == NULL)
		durable_error_value("fairness_key", "It is a key of a limiter, so limiter must be given, too.");
}

static int
limit_argument(FunctionCallInfo fcinfo, int n, const char *argument)
{
	if (PG_ARGISNULL(n))
		return DURABLE_NO_LIMIT;
	if (PG_GETARG_INT32(n) < 1)
		durable_error_value(argument, "It must be at least 1, or null for no limit.");
	return PG_GETARG_INT32(n);
}

/* One of two words. */
static bool
word_argument(FunctionCallInfo fcinfo, int n, const char *argument, const char *no,
			  const char *yes)
{
	if (PG_ARGISNULL(n))
		durable_error_null(argument);
	if (durable_text_is(PG_GETARG_TEXT_PP(n), yes))
		return true;
	if (!durable_text_is(PG_GETARG_TEXT_PP(n), no))
		durable_error_value(argument, psprintf("It must be \"%s\" or \"%s\".", no, yes));
	return false;
}

static void
read_limits(FunctionCallInfo fcinfo, DurableLimiterSpec *spec)
{
	DurableLimiter *limits = &spec->limits;

	limits->concurrency = limit_argument(fcinfo, 1, "concurrency");
	limits->rate_limit = limit_argument(fcinfo, 2, "rate_limit");
	spec->rate_period = durable_arg_window(fcinfo, 3, "rate_period");
	limits->sliding = word_argument(fcinfo, 4, "rate_kind", "fixed", "sliding");
	limits->by_key = word_argument(fcinfo, 5, "fairness", "fifo", "key");
	limits->lifo = word_argument(fcinfo, 6, "ordering", "fifo", "lifo");
	limits->key_concurrency = limit_argument(fcinfo, 8, "key_concurrency");
	if ((limits->rate_limit == DURABLE_NO_LIMIT) != (spec->rate_period == NULL))
		durable_error_value(spec->rate_period == NULL ? "rate_period" : "rate_limit",
							"rate_limit and rate_period must be given together.");
	if (limits->sliding && limits->rate_limit > SLIDING_MAX)
		durable_error_value("rate_limit", "With rate_kind \"sliding\" it must be at most 100000.");
	if (spec->rate_period != NULL)
		limits->rate_us = durable_interval_us(spec->rate_period);
}

Datum
durable_register_limiter(PG_FUNCTION_ARGS)
{
	DurableLimiterSpec spec = {0};

	durable_require_writable("durable.register_limiter()");
	spec.name = durable_arg_name(fcinfo, 0, "name", false);
	spec.namespace = durable_arg_namespace(fcinfo, 7);
	read_limits(fcinfo, &spec);
	durable_access_require(spec.namespace, PRIVILEGE_MANAGE);
	PG_RETURN_BOOL(durable_limiter_register(&spec));
}

Datum
durable_drop_limiter(PG_FUNCTION_ARGS)
{
	text	   *name = durable_arg_name(fcinfo, 0, "name", false);
	text	   *namespace = durable_arg_namespace(fcinfo, 1);
	DurableDropped result;

	durable_require_writable("durable.drop_limiter()");
	durable_access_require(namespace, PRIVILEGE_MANAGE);
	result = durable_limiter_drop(namespace, name);
	if (result == LIMITER_IN_USE)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_IN_USE),
				errmsg("limiter \"%s\" is in use", text_to_cstring(name)),
				errdetail("Tasks that are not settled name it, or a transaction under way does."),
				errhint("Let them end or cancel them, or lift the limits with durable.register_limiter()."));
	PG_RETURN_BOOL(result == LIMITER_DROPPED);
}

static bool
set_paused(FunctionCallInfo fcinfo, bool paused)
{
	text	   *name = durable_arg_name(fcinfo, 0, "name", false);
	text	   *namespace = durable_arg_namespace(fcinfo, 1);
	int64		id;
	bool		changed;

	durable_access_require(namespace, PRIVILEGE_MANAGE);
	id = durable_limiter_require(namespace, name);
	changed = durable_limiter_set_paused(id, paused, durable_clock_now());
	if (changed && !paused)
		durable_limiter_wake(id, PG_INT32_MAX);
	return changed;
}

Datum
durable_pause_limiter(PG_FUNCTION_ARGS)
{
	durable_require_writable("durable.pause_limiter()");
	PG_RETURN_BOOL(set_paused(fcinfo, true));
}

Datum
durable_resume_limiter(PG_FUNCTION_ARGS)
{
	durable_require_writable("durable.resume_limiter()");
	PG_RETURN_BOOL(set_paused(fcinfo, false));
}

Datum
durable_limiter_usage(PG_FUNCTION_ARGS)
{
	TupleDesc	desc = durable_result_desc(fcinfo);
	text	   *namespace = durable_arg_namespace(fcinfo, 0);
	text	   *name = durable_arg_name(fcinfo, 1, "name", false);
	DurableLimiter limiter;
	Datum		values[4];
	bool		nulls[4] = {true, true, true, true};
	TimestampTz opens_at;
	int			used;

	durable_access_require(namespace, PRIVILEGE_READ);
	if (durable_limiter_find(namespace, name, &limiter))
	{
		values[0] = Int64GetDatum(durable_limiter_slot_count(limiter.id));
		values[1] = Int64GetDatum(durable_limited_count(limiter.id));
		nulls[0] = nulls[1] = false;
		used = durable_limits_window(&limiter, durable_clock_now(), &opens_at);
		values[2] = Int32GetDatum(used);
		nulls[2] = used < 0;
		values[3] = TimestampTzGetDatum(opens_at);
		nulls[3] = opens_at == 0;
	}
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(desc, values, nulls)));
}
