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
#include "nodes/parsenodes.h"
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
#include "base/wakeup.h"
#include "engine/execute.h"
#include "engine/turn.h"
#include "store/ready.h"
#include "store/run.h"
#include "store/workflow.h"

DURABLE_FUNCTION(durable_work);
DURABLE_FUNCTION(durable_wait_for_run);

typedef struct Work
{
	text	  **queues;			/* NULL: the role's own */
	int			nqueues;
	TimestampTz deadline;
	int			left;			/* tasks it may still execute, or -1 */
	bool		registered;
} Work;

static void
must_not_be_atomic(FunctionCallInfo fcinfo, const char *procedure)
{
	if (fcinfo->context != NULL && IsA(fcinfo->context, CallContext) &&
		!castNode(CallContext, fcinfo->context)->atomic)
		return;
	ereport(ERROR,
			errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
			errmsg("%s cannot run inside a transaction block", procedure),
			errhint("It commits as it goes; call it by itself."));
}

static TimestampTz
deadline_argument(FunctionCallInfo fcinfo, int n, const char *argument)
{
	Interval   *span;

	if (PG_ARGISNULL(n))
		durable_error_null(argument);
	span = PG_GETARG_INTERVAL_P(n);
	if (durable_interval_negative(span))
		durable_error_value(argument, "It must not be negative.");
	return durable_clock_add(durable_clock_now(), span);
}

/* One task of any namespace where the role has something; executed. */
static bool
work_once(Work *work, MemoryContext context)
{
	text	   *own = durable_owner_queue(GetUserId());
	text	  **namespaces;
	int			n;
	bool		found = false;
	MemoryContext before = MemoryContextSwitchTo(context);

	namespaces = durable_namespaces_of(GetUserId(), &n);
	for (int i = 0; i < n && !found; i++)
	{
		DurableWorkItem item;

		found = durable_claim_work(namespaces[i], work->queues ? work->queues : &own,
								   work->queues ? work->nqueues : 1, &item);
		SPI_commit();
		if (found)
			durable_execute(&item);
	}
	MemoryContextSwitchTo(before);
	MemoryContextReset(context);
	return found;
}

static void
sleep_until_work(Work *work)
{
	static uint32 wait_event = 0;
	TimestampTz now = durable_clock_now();
	double		ms = Min((work->deadline - now) / 1000.0, durable_poll_interval);

	if (wait_event == 0)
		wait_event = compat_wait_event("DurableWork");
	SPI_commit();
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 Max(1, (long) ms), wait_event);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	AcceptInvalidationMessages();
	durable_waiter_rearm();
}

static void
work_until_done(Work *work)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "durable work",
												  ALLOCSET_DEFAULT_SIZES);

	work->registered = durable_waiter_begin(NULL, 0);
	PG_TRY();
	{
		while (work->left != 0)
		{
			CHECK_FOR_INTERRUPTS();
			if (work_once(work, context))
				work->left -= work->left > 0;
			else if (durable_clock_now() >= work->deadline)
				break;
			else
				sleep_until_work(work);
		}
	}
	PG_FINALLY();
	{
		durable_waiter_end();
		durable_execute_end();
	}
	PG_END_TRY();
}

Datum
durable_work(PG_FUNCTION_ARGS)
{
	Work		work = {.left = -1};

	durable_require_writable("durable.work()");
	must_not_be_atomic(fcinfo, "durable.work()");
	if (!PG_ARGISNULL(0))
		work.queues = durable_arg_names(fcinfo, 0, "queues", &work.nqueues);
	work.deadline = deadline_argument(fcinfo, 1, "duration");
	if (!PG_ARGISNULL(2))
		work.left = durable_arg_count(fcinfo, 2, "max_tasks");
	durable_require_active();
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		ereport(ERROR,
				errcode(ERRCODE_INTERNAL_ERROR),
				errmsg("could not enter the server programming interface"));
	work_until_done(&work);
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
					  (!terminal && durable_run_status(row) == RUN_SUSPENDED));
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
sleep_for_run(TimestampTz deadline, int *polls)
{
	static uint32 wait_event = 0;
	double		ms = Min((deadline - durable_clock_now()) / 1000.0,
						 Min(durable_poll_interval, 5 << Min((*polls)++, 5)));

	if (wait_event == 0)
		wait_event = compat_wait_event("DurableWaitForRun");
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
	TimestampTz deadline = deadline_argument(fcinfo, 1, "timeout");
	bool		terminal = PG_ARGISNULL(2) || PG_GETARG_BOOL(2);
	text	   *run_id;
	DurableRow	row;
	bool		done;
	int			polls = 0;

	must_not_be_atomic(fcinfo, "durable.wait_for_run()");
	if (PG_ARGISNULL(0))
		durable_error_null("run_id");
	run_id = PG_GETARG_TEXT_PP(0);
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		ereport(ERROR,
				errcode(ERRCODE_INTERNAL_ERROR),
				errmsg("could not enter the server programming interface"));
	while (look_at_run(run_id, terminal, &done, &row) && !done &&
		   durable_clock_now() < deadline)
		sleep_for_run(deadline, &polls);
	SPI_finish();
	if (!look_at_run(run_id, terminal, &done, &row))
		ereport(ERROR,
				errcode(ERRCODE_UNDEFINED_OBJECT),
				errmsg("run \"%s\" does not exist", text_to_cstring(run_id)));
	durable_access_require(DatumGetTextPP(row.values[RUN_NAMESPACE]), PRIVILEGE_READ);
	PG_RETURN_DATUM(run_row(desc, &row));
}
