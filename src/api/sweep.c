/*-------------------------------------------------------------------------
 *
 * sweep.c
 *	  sweep, keep_sweeping.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "access/htup_details.h"

#include "api/args.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/extension_state.h"
#include "engine/sweep.h"

DURABLE_FUNCTION(durable_sweep);
DURABLE_FUNCTION(durable_keep_sweeping);

Datum
durable_sweep(PG_FUNCTION_ARGS)
{
	DurableSweep sweep;
	int			max;

	durable_require_writable("durable.sweep()");
	max = durable_arg_count(fcinfo, 0, "max_work");
	durable_require_active();
	durable_sweep_begin(&sweep, max);
	durable_sweep_run(&sweep);
	durable_sweep_tell(&sweep);
	PG_RETURN_JSONB_P(durable_sweep_json(&sweep));
}

typedef struct Loop
{
	TimestampTz deadline;
	int64		every;			/* microseconds */
	int			max;
	MemoryContext context;		/* of one pass */
	DurableSweep total;
} Loop;

/* In a transaction of its own; whether there is more to do at once. */
static bool
sweep_once(Loop *loop)
{
	MemoryContext before = MemoryContextSwitchTo(loop->context);
	DurableSweep sweep;
	bool		more = false;

	durable_require_active();
	durable_sweep_begin(&sweep, loop->max);
	durable_sweep_run(&sweep);
	for (int i = 0; i < COUNTS; i++)
	{
		loop->total.counts[i] += sweep.counts[i];
		more = more || (i != COUNT_FAILED && sweep.counts[i] > 0 && sweep.next <= sweep.now);
	}
	durable_sweep_tell(&sweep);
	MemoryContextSwitchTo(before);
	MemoryContextReset(loop->context);
	SPI_commit();
	return more;
}

/* Without a transaction, and so without a snapshot. */
static void
sleep_until(TimestampTz t)
{
	static uint32 wait_event = 0;
	TimestampTz now;

	if (wait_event == 0)
		wait_event = compat_wait_event("DurableSweep");
	while ((now = durable_clock_now()) < t)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 (long) Min((t - now) / 1000 + 1, 60000), wait_event);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

static void
keep_sweeping(Loop *loop)
{
	for (;;)
	{
		TimestampTz next = durable_clock_now() + loop->every;

		if (sweep_once(loop))
			continue;
		if (next > loop->deadline)
			break;
		sleep_until(next);
	}
}

Datum
durable_keep_sweeping(PG_FUNCTION_ARGS)
{
	MemoryContext caller = CurrentMemoryContext;
	TupleDesc	desc = durable_result_desc(fcinfo);
	Loop		loop = {0};
	Interval   *every;
	Datum		value;
	bool		isnull = false;

	durable_require_writable("durable.keep_sweeping()");
	if (durable_call_is_atomic(fcinfo))
		ereport(ERROR,
				errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				errmsg("durable.keep_sweeping() cannot run inside a transaction block"),
				errdetail("It commits after each pass, so that what was moved is not locked while it waits for the next."),
				errhint("Call it by itself, with autocommit."));
	loop.deadline = durable_arg_deadline(fcinfo, 0, "duration");
	every = durable_arg_window(fcinfo, 1, "every");
	if (every == NULL)
		durable_error_null("every");
	loop.every = durable_interval_us(every);
	loop.max = durable_arg_count(fcinfo, 2, "max_work");
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		ereport(ERROR,
				errcode(ERRCODE_INTERNAL_ERROR),
				errmsg("could not enter the server programming interface"));
	loop.context = AllocSetContextCreate(CurrentMemoryContext, "durable sweep",
										 ALLOCSET_DEFAULT_SIZES);
	keep_sweeping(&loop);
	SPI_finish();
	MemoryContextSwitchTo(caller);
	value = JsonbPGetDatum(durable_sweep_json(&loop.total));
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(desc, &value, &isnull)));
}
