/*-------------------------------------------------------------------------
 *
 * executing.c
 *	  Which task a session executes, and interrupting it from another one.
 *
 * A session that executes a task holds a session-level lock that is named after
 * it. Whoever ends the task or takes it away finds the session through the lock
 * table, with or without preload, and cancels its query, like
 * pg_cancel_backend(), once that has committed.
 *
 * No interrupt may hit the session when it is at something else already:
 *
 * - A session that settles its task itself gives up the lock before it commits,
 *	 while it still holds the row that the canceller needs. So a canceller that
 *	 comes later finds nobody, and one that came earlier has won.
 * - A session that finds its task gone passes a gate: a second lock, which the
 *	 canceller holds from the moment it ended the task until after it has sent the
 *	 signal. Behind the gate the signal has arrived; it is dropped.
 *
 * Locks: the gate is waited for only by a session that holds no row, as its
 * transaction is over. The canceller takes it while it holds the run, and never
 * waits for it, because two cancellers share it and a session that passes it lets
 * go at once.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/timeout.h"

#include "base/compat.h"
#include "base/executing.h"
#include "base/lock_class.h"

/* How often a session that is between two transactions is looked for again, and how
 * long it is given each time. */
#define FIND_TRIES 100
#define FIND_PAUSE_MS 1

/* What this session executes, or 0. */
static int64 my_task = 0;

/* Whether user code has cancelled the session that it runs in. */
static volatile sig_atomic_t cancelled_by_itself = false;

/* What handles SIGINT otherwise. */
static struct sigaction usual_action;

typedef struct Interrupt
{
	int64		task;
	SubTransactionId subtransaction;
} Interrupt;

/* this transaction's, in TopTransactionContext */
static Interrupt *interrupts = NULL;
static int	ninterrupts = 0;
static int	space = 0;

/* whom they concern, known shortly before the commit; in TopTransactionContext */
typedef struct Target
{
	PGPROC	   *proc;
	int			pid;
} Target;

static Target *targets = NULL;
static int	ntargets = 0;

static void
task_tag(LOCKTAG *tag, int64 task, uint16 class)
{
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, (uint32) ((uint64) task >> 32),
						 (uint32) task, class);
}

void
durable_lock_release_session(const LOCKTAG *tag, LOCKMODE mode)
{
	LockAcquireResult held = LockAcquire(tag, mode, true, true);

	if (held == LOCKACQUIRE_ALREADY_HELD)
		(void) LockRelease(tag, mode, true);
	if (held != LOCKACQUIRE_NOT_AVAIL)
		(void) LockRelease(tag, mode, true);
}

/* Work that cancels its own session must not get off uncounted: it would be begun
 * again and again. The session's timeouts send the signal from here, too, and have
 * set their indicators by then. */
static void
on_sigint(int signo, siginfo_t *info, void *context)
{
	if (info->si_pid == MyProcPid && !get_timeout_indicator(STATEMENT_TIMEOUT, false) &&
		!get_timeout_indicator(LOCK_TIMEOUT, false))
		cancelled_by_itself = true;
	usual_action.sa_handler(signo);
}

void
durable_executing_watch(void)
{
	struct sigaction action = {.sa_sigaction = on_sigint, .sa_flags = SA_RESTART | SA_SIGINFO};

	sigemptyset(&action.sa_mask);
	(void) sigaction(SIGINT, &action, &usual_action);
}

void
durable_executing_unwatch(void)
{
	(void) sigaction(SIGINT, &usual_action, NULL);
}

bool
durable_executing_cancelled_itself(void)
{
	return cancelled_by_itself;
}

void
durable_executing_begin(int64 task)
{
	LOCKTAG		tag;

	cancelled_by_itself = false;
	task_tag(&tag, task, EXECUTING_LOCK_CLASS);
	/* shared: whoever lost the task may not have noticed yet */
	(void) LockAcquire(&tag, ShareLock, true, false);
	my_task = task;
}

void
durable_executing_end(void)
{
	LOCKTAG		tag;

	if (my_task == 0)
		return;
	task_tag(&tag, my_task, EXECUTING_LOCK_CLASS);
	my_task = 0;
	durable_lock_release_session(&tag, ShareLock);
}

bool
durable_executing_lost(void)
{
	LOCKTAG		gate;

	if (my_task == 0)
		return false;
	task_tag(&gate, my_task, GATE_LOCK_CLASS);
	/* not even the interrupt itself shall interrupt this; what ends the session may */
	HOLD_CANCEL_INTERRUPTS();
	(void) LockAcquire(&gate, ExclusiveLock, true, false);
	(void) LockRelease(&gate, ExclusiveLock, true);
	durable_executing_end();
	/* a signal that was sent is delivered at the end of any system call */
	(void) getppid();
	if (!get_timeout_indicator(STATEMENT_TIMEOUT, false))
		QueryCancelPending = false;
	/* nor shall a later cancel look like the end of the wait for the gate */
	(void) get_timeout_indicator(LOCK_TIMEOUT, true);
	RESUME_CANCEL_INTERRUPTS();
	return true;
}

/* Whether anybody but this session holds the lock. */
static bool
is_executed(int64 task)
{
	LOCKTAG		tag;

	task_tag(&tag, task, EXECUTING_LOCK_CLASS);
	if (LockAcquire(&tag, ExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		return true;
	(void) LockRelease(&tag, ExclusiveLock, false);
	return false;
}

void
durable_executing_interrupt(int64 task)
{
	LOCKTAG		gate;
	MemoryContext before;

	/* there is a gate only where somebody may pass it: a run may have more steps in
	 * the hands of external workers than the lock table has room */
	if (task == my_task || !is_executed(task))
		return;
	before = MemoryContextSwitchTo(TopTransactionContext);
	if (ninterrupts == space)
	{
		space = Max(8, space * 2);
		interrupts = interrupts == NULL ? palloc(sizeof(Interrupt) * space) :
			repalloc(interrupts, sizeof(Interrupt) * space);
	}
	MemoryContextSwitchTo(before);
	task_tag(&gate, task, GATE_LOCK_CLASS);
	(void) LockAcquire(&gate, ShareLock, false, false);
	interrupts[ninterrupts].task = task;
	interrupts[ninterrupts].subtransaction = GetCurrentSubTransactionId();
	ninterrupts++;
}

static void
add_target(const VirtualTransactionId *vxid)
{
	PGPROC	   *proc = compat_vxid_proc(vxid);

	if (proc == NULL || proc->pid == 0)
		return;
	targets[ntargets].proc = proc;
	targets[ntargets].pid = proc->pid;
	ntargets++;
}

static void
make_room(int n)
{
	MemoryContext before = MemoryContextSwitchTo(TopTransactionContext);
	Target	   *more = palloc(sizeof(Target) * (ntargets + n));

	if (ntargets > 0)
		memcpy(more, targets, sizeof(Target) * ntargets);
	targets = more;
	MemoryContextSwitchTo(before);
}

/*
 * The lock table lists only holders that are in a transaction. A session that
 * executes is in one but for moments, so a lock whose holder is not listed is
 * looked at again.
 */
static void
find_targets(int64 task)
{
	static uint32 wait_event = 0;
	LOCKTAG		tag;

	if (wait_event == 0)
		wait_event = compat_wait_event("DurableInterrupt");
	task_tag(&tag, task, EXECUTING_LOCK_CLASS);
	for (int i = 0; i < FIND_TRIES && is_executed(task); i++)
	{
		int			n;
		VirtualTransactionId *holders = GetLockConflicts(&tag, ExclusiveLock, &n);

		if (n > 0)
		{
			make_room(n);
			for (int j = 0; j < n; j++)
				add_target(&holders[j]);
			return;
		}
		CHECK_FOR_INTERRUPTS();
		(void) WaitLatch(NULL, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, FIND_PAUSE_MS, wait_event);
	}
}

/* After the commit, before its locks go. Must not fail. */
static void
send_interrupts(void)
{
	for (int i = 0; i < ntargets; i++)
	{
		/* nobody else's: a process that has left takes its pid along */
		if (targets[i].proc->pid == targets[i].pid &&
			BackendPidGetProc(targets[i].pid) == targets[i].proc)
			(void) kill(targets[i].pid, SIGINT);
	}
}

static void
at_transaction_end(XactEvent event, void *arg)
{
	if (ninterrupts == 0)
		return;
	if (event == XACT_EVENT_PRE_COMMIT)
	{
		for (int i = 0; i < ninterrupts; i++)
			find_targets(interrupts[i].task);
		return;
	}
	if (event == XACT_EVENT_COMMIT)
		send_interrupts();
	else if (event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	interrupts = NULL;
	targets = NULL;
	ninterrupts = ntargets = space = 0;
}

static void
at_subtransaction_end(SubXactEvent event, SubTransactionId mine,
					  SubTransactionId parent, void *arg)
{
	int			kept = 0;

	if (event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB)
		return;
	for (int i = 0; i < ninterrupts; i++)
	{
		Interrupt	interrupt = interrupts[i];

		if (interrupt.subtransaction == mine)
		{
			if (event == SUBXACT_EVENT_ABORT_SUB)
				continue;
			interrupt.subtransaction = parent;
		}
		interrupts[kept++] = interrupt;
	}
	ninterrupts = kept;
}

bool
durable_is_interrupt(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_QUERY_CANCELED && error->funcname != NULL &&
		strcmp(error->funcname, "ProcessInterrupts") == 0;
}

bool
durable_is_cancel_request(const ErrorData *error)
{
	return durable_is_interrupt(error) && error->message_id != NULL &&
		strcmp(error->message_id, "canceling statement due to user request") == 0;
}

void
durable_executing_init(void)
{
	RegisterXactCallback(at_transaction_end, NULL);
	RegisterSubXactCallback(at_subtransaction_end, NULL);
}
