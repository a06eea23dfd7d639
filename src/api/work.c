/*-------------------------------------------------------------------------
 *
 * work.c
 *	  work: execute what the current role registered; wait_for_run.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "api/args.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/extension_state.h"
#include "base/guc.h"
#include "base/security.h"
#include "engine/limiter_claim.h"
#include "engine/work.h"
#include "store/run.h"

DURABLE_FUNCTION(durable_work);
DURABLE_FUNCTION(durable_wait_for_run);

static void
sleep_until_work(TimestampTz deadline)
{
	static uint32 wait_event = 0;
	TimestampTz now = durable_clock_now();
	double		ms = Min((deadline - now) / 1000.0, durable_poll_interval);

	ms = Min(ms, ((double) durable_limits_again() - (double) now) / 1000.0);
	if (wait_event == 0)
		wait_event = compat_wait_event("DurableWork");
	SPI_commit();
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 Max(1, (long) ms), wait_event);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/* At most "left" tasks, or as many as there are (-1). */
static void
work_until_done(DurableWork *work, TimestampTz deadline, int left)
{
	while (left != 0)
	{
		CHECK_FOR_INTERRUPTS();
		if (durable_work_once(work))
			left -= left > 0;
		else if (durable_clock_now() >= deadline)
			break;
		else
			sleep_until_work(deadline);
	}
}

Datum
durable_work(PG_FUNCTION_ARGS)
{
	DurableWork work = {0};
	volatile TimestampTz deadline;
	volatile int left = -1;

	durable_require_writable("durable.work()");
	if (durable_call_is_atomic(fcinfo))
		ereport(ERROR,
				errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				errmsg("durable.work() cannot run inside a transaction block"),
				errdetail("It commits after each step, so that what is done stays done."),
				errhint("Call it by itself, with autocommit."));
	if (!PG_ARGISNULL(0))
		work.queues = durable_arg_names(fcinfo, 0, "queues", &work.nqueues);
	deadline = durable_arg_deadline(fcinfo, 1, "duration");
	if (!PG_ARGISNULL(2))
		left = durable_arg_count(fcinfo, 2, "max_tasks");
	durable_require_active();
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		ereport(ERROR,
				errcode(ERRCODE_INTERNAL_ERROR),
				errmsg("could not enter the server programming interface"));
	durable_work_begin(&work, CurrentMemoryContext);
	PG_TRY();
	{
		work_until_done(&work, deadline, left);
	}
	PG_FINALLY();
	{
		durable_work_end(&work);
	}
	PG_END_TRY();
	SPI_finish();
	PG_RETURN_VOID();
}

/* false: unknown run */
static bool
look_at_run(text *run_id, bool terminal, bool *done, DurableRow *row)
{
	int64		id;
	bool		found;

	durable_snapshot_push();
	found = durable_run_number(run_id, &id) && durable_run_read(id, row);
	durable_snapshot_pop();
	*done = found && (durable_run_has_ended(row) ||
					  (!terminal && (durable_run_status(row) == RUN_SUSPENDED ||
									durable_run_status(row) == RUN_BLOCKED)));
	return found;
}

static Datum
run_row(TupleDesc desc, const DurableRow *row)
{
	static const int columns[] = {RUN_STATUS, RUN_OUTPUT, RUN_ERROR};
	Datum		values[3];
	bool		nulls[3];

	for (int i = 0; i < 3; i++)
	{
		values[i] = row->values[columns[i]];
		nulls[i] = row->nulls[columns[i]];
	}
	return HeapTupleGetDatum(heap_form_tuple(desc, values, nulls));
}

static void
sleep_for_run(TimestampTz deadline, bool atomic, int *polls)
{
	static uint32 wait_event = 0;
	double		ms = Min((deadline - durable_clock_now()) / 1000.0,
						 Min(durable_poll_interval, 5 << Min((*polls)++, 5)));

	if (wait_event == 0)
		wait_event = compat_wait_event("DurableWaitForRun");
	if (!atomic)
		SPI_commit();
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 Max(1, (long) ms), wait_event);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	AcceptInvalidationMessages();
}

Datum
durable_wait_for_run(PG_FUNCTION_ARGS)
{
	TupleDesc	desc = durable_result_desc(fcinfo);
	TimestampTz deadline = durable_arg_deadline(fcinfo, 1, "timeout");
	bool		terminal = PG_ARGISNULL(2) || PG_GETARG_BOOL(2);
	bool		atomic = durable_call_is_atomic(fcinfo);
	text	   *run_id;
	DurableRow	row;
	bool		done;
	int			polls = 0;

	if (atomic && IsolationUsesXactSnapshot())
		ereport(ERROR,
				errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				errmsg("durable.wait_for_run() cannot wait in a transaction at isolation level %s",
					   XactIsoLevel == XACT_SERIALIZABLE ? "serializable" : "repeatable read"),
				errhint("Call it outside a transaction block, or at READ COMMITTED."));
	if (PG_ARGISNULL(0))
		durable_error_null("run_id");
	run_id = PG_GETARG_TEXT_PP(0);
	if (SPI_connect_ext(atomic ? 0 : SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		ereport(ERROR,
				errcode(ERRCODE_INTERNAL_ERROR),
				errmsg("could not enter the server programming interface"));
	while (look_at_run(run_id, terminal, &done, &row) && !done &&
		   durable_clock_now() < deadline)
		sleep_for_run(deadline, atomic, &polls);
	SPI_finish();
	if (!look_at_run(run_id, terminal, &done, &row))
		ereport(ERROR,
				errcode(ERRCODE_UNDEFINED_OBJECT),
				errmsg("run \"%s\" does not exist", text_to_cstring(run_id)));
	durable_access_require(DatumGetTextPP(row.values[RUN_NAMESPACE]), PRIVILEGE_READ);
	PG_RETURN_DATUM(run_row(desc, &row));
}
