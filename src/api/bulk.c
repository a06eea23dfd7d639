/*-------------------------------------------------------------------------
 *
 * bulk.c
 *	  redrive, cancel_where.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "api/args.h"
#include "api/filter.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/json.h"
#include "engine/recover.h"
#include "engine/run.h"
#include "store/find.h"
#include "store/run.h"

DURABLE_FUNCTION(durable_redrive_runs);
DURABLE_FUNCTION(durable_cancel_where);

/* Slower than one run in a day is a mistake. */
#define RATE_MIN (1.0 / 86400)

/* Of these statuses; at most so many. */
static int64 *
find_runs(Jsonb *filter, text *namespace, const char *statuses, bool to_requeue, int max, int *n)
{
	DurableSought sought = {
		.filter = filter, .namespace = namespace, .now = durable_clock_now(),
		.statuses = statuses, .to_requeue = to_requeue, .max = max
	};

	return durable_runs_find(&sought, n);
}

/* Runs per second, or 0 for all at once. */
static double
rate_argument(FunctionCallInfo fcinfo, int n)
{
	double		rate = PG_ARGISNULL(n) ? 0 : PG_GETARG_FLOAT8(n);

	if (!PG_ARGISNULL(n) && !(rate >= RATE_MIN && isfinite(rate)))
		durable_error_value("rate", "It must be at least one run in a day, given in runs per second.");
	return rate;
}

/* The n-th run goes on n intervals after the first. */
static DurableRedrive *
spread(const int64 *ids, int n, TimestampTz first, double rate)
{
	DurableRedrive *runs = palloc(sizeof(DurableRedrive) * Max(n, 1));

	for (int i = 0; i < n; i++)
	{
		int64		after = rate == 0 ? 0 : (int64) (i / rate * USECS_PER_SEC);

		if (!IS_VALID_TIMESTAMP(first + after))
			durable_error_value("start_at", "The last of the runs would go on too late for a timestamp.");
		runs[i] = (DurableRedrive) {.id = ids[i], .at = first + after};
	}
	return runs;
}

static void
put_run(ReturnSetInfo *result, int64 id, bool with_time)
{
	DurableRow	row;
	Datum		values[2] = {0};
	bool		nulls[2] = {false, true};

	durable_snapshot_push();
	if (durable_run_read(id, &row))
	{
		values[0] = row.values[RUN_RUN_ID];
		values[1] = with_time ? row.values[RUN_WAKE_AT] : row.values[RUN_STATUS];
		nulls[1] = with_time ? row.nulls[RUN_WAKE_AT] : false;
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	durable_snapshot_pop();
}

Datum
durable_redrive_runs(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Jsonb	   *filter;
	text	   *namespace;
	int			max_runs;
	double		rate;
	TimestampTz first;
	int64	   *ids;
	DurableRedrive *requeued;
	int			n;

	durable_require_writable("durable.redrive()");
	InitMaterializedSRF(fcinfo, 0);
	filter = durable_arg_filter(fcinfo, 0);
	max_runs = durable_arg_count(fcinfo, 1, "max_runs");
	rate = rate_argument(fcinfo, 2);
	first = PG_ARGISNULL(3) ? durable_clock_now() : PG_GETARG_TIMESTAMPTZ(3);
	if (TIMESTAMP_NOT_FINITE(first))
		durable_error_value("start_at", "It must not be infinity.");
	namespace = durable_filter_namespace(filter, PRIVILEGE_MANAGE);
	ids = find_runs(filter, namespace, "{failed,dead}", true, max_runs, &n);
	n = durable_redrive(spread(ids, n, first, rate), n, &requeued);
	for (int i = 0; i < n; i++)
		put_run(result, requeued[i].id, true);
	return (Datum) 0;
}

/* Those that have ended are told only where the filter asks for them, and stay. */
Datum
durable_cancel_where(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Jsonb	   *filter;
	text	   *namespace;
	const char *reason;
	int			max_runs;
	int64	   *ids;
	int			n;

	durable_require_writable("durable.cancel_where()");
	InitMaterializedSRF(fcinfo, 0);
	filter = durable_arg_filter(fcinfo, 0);
	reason = PG_ARGISNULL(1) ? "cancelled" : text_to_cstring(PG_GETARG_TEXT_PP(1));
	max_runs = durable_arg_count(fcinfo, 2, "max_runs");
	namespace = durable_filter_namespace(filter, PRIVILEGE_START);
	ids = find_runs(filter, namespace,
					durable_filter_has(filter, "status") ? NULL : DURABLE_LIVE_STATUSES,
					false, max_runs, &n);
	for (int i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		(void) durable_run_end(ids[i], RUN_CANCELLED, NULL, durable_json_error(reason, false),
							   true, NULL, NULL);
		put_run(result, ids[i], false);
	}
	return (Datum) 0;
}
