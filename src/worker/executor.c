/*-------------------------------------------------------------------------
 *
 * executor.c
 *	  A background worker that executes what one role registered in one database.
 *
 * It is connected as that role and never was anyone else, so user code that it
 * runs cannot reach for more. It sleeps without a transaction; commits of new
 * work wake it. It leaves when it has been idle for durable.worker_idle_timeout,
 * and when it is asked to, between two tasks.
 *
 * It is one session for many runs, and drops between them what they leave in it.
 *
 * When it is told to end in the middle of a task, the task goes back to its queue in
 * the first exit callback, uncounted. In all other cases, a crash of the server
 * among them, the scheduler finds that the claim's session is gone.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "commands/prepare.h"
#include "commands/sequence.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lock.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/executing.h"
#include "base/guc.h"
#include "engine/limiter_claim.h"
#include "engine/execute.h"
#include "engine/work.h"
#include "worker/executor.h"
#include "worker/process.h"

/* After an error that was not the task's, a cancel among them: a step may cancel itself
 * each time. No longer, as nothing wakes a session that has not looked since. */
#define ERROR_PAUSE_MS 1000

/* Statistics that could not be sent yet. */
#define STATISTICS_MS 1000

/* Runs before the server aborts what is open: user code may have left anything. What
 * is not handed back here, the scheduler takes over. */
static void
at_exit(int code, Datum arg)
{
	if (!durable_execute_has_claim() || !durable_process_was_told_to_end())
		return;
	AbortOutOfAnyTransaction();
	/* no standby is waited for: nothing interrupts that any more */
	synchronous_commit = SYNCHRONOUS_COMMIT_LOCAL_FLUSH;
	durable_execute_hand_back(false, false);
}

typedef struct Executor
{
	DurableWork work;
	MemoryContext context;
	MemoryContext portal;		/* what outlives a transaction inside SPI */
	bool		looked;			/* once at least */
	bool		worked;			/* since it last slept */
	bool		failed;			/* at the last look */
	TimestampTz idle_since;
} Executor;

static void
begin(Executor *executor)
{
	DurableProcessArgs args;

	durable_process_begin(&args);
	BackgroundWorkerInitializeConnectionByOid(args.database, args.role, COMPAT_ANY_ROLE);
	durable_process_harden("durable executor");
	before_shmem_exit(at_exit, (Datum) 0);
	executor->context = AllocSetContextCreate(TopMemoryContext, "durable executor",
											  ALLOCSET_DEFAULT_SIZES);
	executor->portal = AllocSetContextCreate(executor->context, "durable executor portal",
											 ALLOCSET_DEFAULT_SIZES);
	PortalContext = executor->portal;
	durable_work_begin(&executor->work, executor->context);
}

static bool
should_leave(void)
{
	return durable_worker_should_leave() || !durable_background;
}

/* Before the next task. New settings are read where it sleeps. */
static bool
should_stop(void)
{
	return ConfigReloadPending || should_leave();
}

/* The next task is another run's. In a transaction. */
static void
clear_session(void)
{
	Oid			temporary;
	Oid			toast;

	PortalHashTableDeleteAll();
	DropAllPreparedStatements();
	LockReleaseSession(USER_LOCKMETHOD);
	ResetSequenceCaches();
	GetTempNamespaceState(&temporary, &toast);
	if (!OidIsValid(temporary))
		return;
	PushActiveSnapshot(GetTransactionSnapshot());
	ResetTempTableNamespace();
	PopActiveSnapshot();
}

/* Everything that there is to do. */
static void
serve(Executor *executor)
{
	durable_process_begin_transaction();
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		ereport(ERROR,
				errcode(ERRCODE_INTERNAL_ERROR),
				errmsg("could not enter the server programming interface"));
	while (!should_stop() && durable_work_once(&executor->work))
	{
		CHECK_FOR_INTERRUPTS();
		clear_session();
		SetCurrentStatementStartTimestamp();
		(void) pgstat_report_stat(false);
		executor->worked = true;
	}
	SPI_finish();
	CommitTransactionCommand();
}

/* The error is logged, the task goes back. */
static void
recover(Executor *executor)
{
	bool		has_claim = durable_execute_has_claim();
	bool		cancelled;
	bool		exists;
	ErrorData  *error;

	HOLD_INTERRUPTS();
	MemoryContextSwitchTo(executor->context);
	error = CopyErrorData();
	FlushErrorState();
	AbortOutOfAnyTransaction();
	/* the abort has left the levels of SPI, and not freed what they had */
	MemoryContextReset(executor->portal);
	RESUME_INTERRUPTS();
	cancelled = durable_is_cancel_request(error);
	durable_process_begin_transaction();
	exists = durable_extension_exists();
	CommitTransactionCommand();
	MemoryContextSwitchTo(executor->context);
	if (!exists)
	{
		durable_execute_end();
		durable_process_leave(END_NO_EXTENSION);
	}
	error->elevel = WARNING;
	ThrowErrorData(error);
	FreeErrorData(error);
	durable_execute_hand_back(!cancelled, true);
	durable_process_begin_transaction();
	clear_session();
	CommitTransactionCommand();
	if (!has_claim && !cancelled)
		durable_process_leave(END_FAILED);
	executor->worked = true;
	executor->failed = true;
}

static void
serve_or_recover(Executor *executor)
{
	executor->failed = false;
	PG_TRY();
	{
		serve(executor);
	}
	PG_CATCH();
	{
		recover(executor);
	}
	PG_END_TRY();
}

static long
sleep_time(const Executor *executor)
{
	TimestampTz again = durable_limits_again();
	double		ms = -1;

	if (ConfigReloadPending)
		return 0;
	if (executor->failed)
		return ERROR_PAUSE_MS;
	if (durable_worker_idle_timeout >= 0)
		ms = Max(0, durable_worker_idle_timeout -
				 (GetCurrentTimestamp() - executor->idle_since) / 1000.0);
	/* a limiter was in use, or its window is full */
	if (again != DURABLE_POSITION_END)
	{
		double		wait = Max(1, ((double) again - (double) durable_clock_now()) / 1000.0);

		ms = ms < 0 ? wait : Min(ms, wait);
	}
	if (pgstat_report_stat(false) > 0)
		ms = ms < 0 ? STATISTICS_MS : Min(ms, STATISTICS_MS);
	return ms < 0 ? -1 : (long) (ms + 0.999);
}

static void
leave_if_idle(const Executor *executor)
{
	if (should_leave())
		durable_process_leave(END_ASKED);
	if (durable_worker_idle_timeout >= 0 &&
		GetCurrentTimestamp() - executor->idle_since >= (int64) durable_worker_idle_timeout * 1000)
		durable_process_leave(END_IDLE);
}

void
durable_executor_main(Datum arg)
{
	Executor	executor = {0};
	uint32		wait_event;

	begin(&executor);
	wait_event = compat_wait_event("DurableExecutor");
	for (;;)
	{
		serve_or_recover(&executor);
		if (executor.worked || !executor.looked)
		{
			durable_worker_report(false, NULL, NULL, NULL);
			executor.idle_since = GetCurrentTimestamp();
			executor.worked = false;
			executor.looked = true;
		}
		leave_if_idle(&executor);
		(void) durable_process_sleep(sleep_time(&executor), wait_event);
	}
}
