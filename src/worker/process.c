/*-------------------------------------------------------------------------
 *
 * process.c
 *	  What the background workers share: being started, signals, sleeping.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "worker/process.h"

#define BACKOFF_FIRST USECS_PER_SEC
#define BACKOFF_DOUBLINGS 6

static volatile sig_atomic_t told_to_end = false;

StaticAssertDecl(sizeof(DurableProcessArgs) <= BGW_EXTRALEN,
				 "what a worker is told fits into bgw_extra");

static const struct
{
	const char *type;
	const char *function;
}			kinds[] = {
	[WORKER_SCHEDULER] = {"durable scheduler", "durable_scheduler_main"},
	[WORKER_EXECUTOR] = {"durable executor", "durable_executor_main"},
};

DurableStart
durable_process_start(DurableWorkerKind kind, Oid database, Oid role, DurableProcess *process)
{
	BackgroundWorker worker = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_library_name = "durable",
		.bgw_notify_pid = MyProcPid,
	};
	DurableProcessArgs args = {.database = database, .role = role};
	bool		held;

	process->handle = NULL;
	process->slot = durable_worker_reserve(kind, database, role, &process->generation, &held);
	if (process->slot < 0)
		return held ? START_HELD : START_NO_SLOT;
	args.slot = process->slot;
	args.generation = process->generation;
	memcpy(worker.bgw_extra, &args, sizeof(args));
	strlcpy(worker.bgw_type, kinds[kind].type, BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, kinds[kind].function, BGW_MAXLEN);
	snprintf(worker.bgw_name, BGW_MAXLEN, "%s for database %u", kinds[kind].type, database);
	if (RegisterDynamicBackgroundWorker(&worker, &process->handle))
		return START_DONE;
	durable_process_forget(process);
	return START_NO_SLOT;
}

bool
durable_process_read(const DurableProcess *process, DurableWorkerInfo *info)
{
	pid_t		pid;

	if (process->slot < 0)
		return false;
	durable_worker_read(process->slot, info);
	if (info->generation != process->generation || info->state == WORKER_FREE)
		return false;
	if (info->state == WORKER_STARTING && process->handle != NULL &&
		GetBackgroundWorkerPid(process->handle, &pid) == BGWH_STOPPED)
		info->state = WORKER_ENDED;
	return true;
}

void
durable_process_forget(DurableProcess *process)
{
	if (process->slot >= 0)
		durable_worker_forget(process->slot, process->generation);
	if (process->handle != NULL)
		pfree(process->handle);
	process->slot = -1;
	process->handle = NULL;
}

/* A step that terminates its own session must not get off uncounted. */
static void
on_sigterm(int signo, siginfo_t *info, void *context)
{
	int			save_errno = errno;

	if (info->si_pid != MyProcPid)
		told_to_end = true;
	die(signo);
	errno = save_errno;
}

void
durable_process_begin(DurableProcessArgs *args)
{
	struct sigaction action = {.sa_sigaction = on_sigterm, .sa_flags = SA_RESTART | SA_SIGINFO};

	memcpy(args, MyBgworkerEntry->bgw_extra, sizeof(*args));
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGINT, StatementCancelHandler);
	sigemptyset(&action.sa_mask);
	sigaction(SIGTERM, &action, NULL);
	BackgroundWorkerUnblockSignals();
	if (!durable_worker_attach(args->slot, args->generation))
		proc_exit(0);
}

void
durable_process_harden(const char *name)
{
	static const char *const settings[][2] = {
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_read_only", "off"},
		{"default_transaction_deferrable", "off"},
	};

	for (int i = 0; i < lengthof(settings); i++)
		SetConfigOption(settings[i][0], settings[i][1], PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("application_name", name, PGC_USERSET, PGC_S_OVERRIDE);
}

bool
durable_process_was_told_to_end(void)
{
	return told_to_end;
}

bool
durable_process_sleep(long ms, uint32 wait_event)
{
	(void) WaitLatch(MyLatch,
					 WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (ms >= 0 ? WL_TIMEOUT : 0),
					 ms, wait_event);
	ResetLatch(MyLatch);
	/* there is nothing to cancel */
	QueryCancelPending = false;
	CHECK_FOR_INTERRUPTS();
	if (!ConfigReloadPending)
		return false;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	return true;
}

void
durable_process_begin_transaction(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
}

bool
durable_extension_exists(void)
{
	return OidIsValid(get_extension_oid("durable", true));
}

void
durable_process_leave(DurableWorkerEnd end)
{
	durable_worker_set_end(end);
	proc_exit(0);
}

int64
durable_process_backoff(int failures)
{
	int64		backoff = BACKOFF_FIRST << Min(Max(failures - 1, 0), BACKOFF_DOUBLINGS);

	return Min(backoff, USECS_PER_MINUTE);
}
