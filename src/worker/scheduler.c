/*-------------------------------------------------------------------------
 *
 * scheduler.c
 *	  The background worker of one database that looks after time and executors.
 *
 * It sleeps until the next delayed task is due or the next lease lapses, and is
 * woken before by commits that change that. It moves what is due, takes over what
 * was lost, deletes what is old, and sees to it that there are executors where there
 * is work; who starts them is demand.c. It runs no user code.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/extension_state.h"
#include "base/guc.h"
#include "base/wakeup.h"
#include "engine/maintain.h"
#include "engine/stalled.h"
#include "store/pause.h"
#include "worker/demand.h"
#include "worker/process.h"
#include "worker/scheduler.h"

/* What one pass moves; it stays locked until the pass commits. */
#define PASS_TASKS 500

/* What somebody else holds is looked at again. */
#define HELD_US (100 * USECS_PER_SEC / 1000)

/* Below the wake-ups, a net: for demand, and for time. */
#define DEMAND_NET_US (5 * USECS_PER_SEC)
#define NET_US (30 * USECS_PER_SEC)

/* What is old is deleted that often, so much at a time. */
#define OLD_US USECS_PER_MINUTE
#define OLD_ROWS 10000

/* Stalled runs are looked for that often, with the setting. */
#define STALLED_US USECS_PER_MINUTE

typedef struct Schedule
{
	MemoryContext context;		/* of one pass */
	TimestampTz due;			/* the next, by the engine's clock */
	TimestampTz next_net;
	TimestampTz next_old;
	TimestampTz next_stalled;
	TimestampTz next_demand;	/* when executors are looked at again by itself */
	bool		paused;
	bool		looked;			/* once at least */
} Schedule;

static void
at_exit(int code, Datum arg)
{
	/* no failure: the launcher need not wait before it starts another one */
	if (durable_process_was_told_to_end())
		durable_worker_set_end(END_ASKED);
	durable_scheduler_detach();
}

/* In a transaction. Leaves when there is nothing to do in this database. */
static void
check_database(Schedule *schedule)
{
	if (!durable_background)
		durable_process_leave(END_OFF);
	if (!durable_extension_exists())
		durable_process_leave(END_NO_EXTENSION);
	if (!durable_is_active())
	{
		ereport(LOG,
				errmsg("durable executes nothing in this database, because it is a copy"),
				errhint("If the original no longer runs this work, the owner of the extension can call durable.activate()."));
		durable_process_leave(END_COPY);
	}
	schedule->paused = durable_workers_are_paused();
}

static void
begin(Schedule *schedule)
{
	DurableProcessArgs args;

	durable_process_begin(&args);
	BackgroundWorkerInitializeConnectionByOid(args.database, InvalidOid, 0);
	durable_process_harden("durable scheduler");
	SetConfigOption("search_path", "pg_catalog, pg_temp", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("row_security", "off", PGC_SUSET, PGC_S_OVERRIDE);
	/* the owner of the database may have set it for all of its sessions */
	SetConfigOption("lock_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	compat_no_transaction_timeout();
	schedule->context = AllocSetContextCreate(TopMemoryContext, "durable scheduler",
											  ALLOCSET_DEFAULT_SIZES);
	durable_process_begin_transaction();
	check_database(schedule);
	CommitTransactionCommand();
	before_shmem_exit(at_exit, (Datum) 0);
	if (!durable_scheduler_attach())
		durable_process_leave(END_ASKED);
	durable_demand_begin();
	durable_worker_report(false, NULL, NULL, NULL);
	/* the launcher may look into the next database */
	durable_launcher_wake();
}

/* Whether there is more. */
static bool
move_what_is_due(Schedule *schedule, bool dead)
{
	TimestampTz now = durable_clock_now();
	DurableMaintained done = {0};

	durable_process_begin_transaction();
	check_database(schedule);
	MemoryContextSwitchTo(schedule->context);
	if (dead)
		done.taken_over += durable_take_over_dead(now);
	schedule->due = durable_maintain_all(now, PASS_TASKS, true, &done);
	CommitTransactionCommand();
	MemoryContextReset(schedule->context);
	if (done.promoted + done.taken_over + done.rounds + done.timed_out + done.fired == 0 && schedule->due <= now)
		schedule->due = now + HELD_US;
	return schedule->due <= now;
}

static void
delete_what_is_old(Schedule *schedule)
{
	TimestampTz now = GetCurrentTimestamp();
	int64		counts[3] = {0};

	if (now < schedule->next_old)
		return;
	durable_process_begin_transaction();
	durable_maintain_old(durable_clock_now(), OLD_ROWS, &counts[0], &counts[1], &counts[2]);
	CommitTransactionCommand();
	schedule->next_old = Max(counts[0], counts[1]) >= OLD_ROWS ? now : now + OLD_US;
}

static void
report_stalled(Schedule *schedule)
{
	TimestampTz now = GetCurrentTimestamp();

	if (durable_stalled_after == 0 || now < schedule->next_stalled)
		return;
	durable_process_begin_transaction();
	MemoryContextSwitchTo(schedule->context);
	durable_stalled_report(durable_stalled_after);
	CommitTransactionCommand();
	MemoryContextReset(schedule->context);
	schedule->next_stalled = now + STALLED_US;
}

/* A clock that was put back does not put off the nets. */
static void
follow_clock_back(Schedule *schedule)
{
	TimestampTz now = GetCurrentTimestamp();

	schedule->next_net = Min(schedule->next_net, now + NET_US);
	schedule->next_old = Min(schedule->next_old, now + OLD_US);
	schedule->next_stalled = Min(schedule->next_stalled, now + STALLED_US);
	schedule->next_demand = Min(schedule->next_demand, now + DEMAND_NET_US);
}

/* One look at everything that there is a reason to look at. */
static void
look(Schedule *schedule)
{
	uint32		reasons = durable_scheduler_reasons();
	bool		net = GetCurrentTimestamp() >= schedule->next_net;
	bool		timely = net || !schedule->looked || durable_clock_now() >= schedule->due ||
		(reasons & ~SCHEDULER_LOOK_DEMAND) != 0;
	bool		more = false;

	if (!timely && reasons == 0 && GetCurrentTimestamp() < schedule->next_demand)
		return;
	/* while there was no demand for long, it is answered at once */
	if (!timely && !durable_demand_may_look())
		return;
	reasons = durable_scheduler_begin();
	if (timely)
	{
		more = move_what_is_due(schedule,
								!schedule->looked || (reasons & SCHEDULER_LOOK_DEAD) != 0);
		delete_what_is_old(schedule);
		report_stalled(schedule);
		schedule->looked = true;
		schedule->next_net = GetCurrentTimestamp() + NET_US;
	}
	durable_process_begin_transaction();
	MemoryContextSwitchTo(schedule->context);
	schedule->next_demand = Min(durable_demand_serve(schedule->paused),
								GetCurrentTimestamp() + DEMAND_NET_US);
	CommitTransactionCommand();
	MemoryContextReset(schedule->context);
	if (!more)
		durable_scheduler_sleeps_until(schedule->due);
}

static long
sleep_time(const Schedule *schedule)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz until = Min(Min(schedule->next_net, schedule->next_old), schedule->next_demand);
	double		us = until - now;

	us = Min(us, (double) schedule->due - (double) durable_clock_now());
	if (durable_scheduler_reasons() != 0)
		us = Min(us, durable_demand_delay());
	return us <= 0 ? 0 : (long) (us / 1000.0 + 0.999);
}

static void
recover(void)
{
	ErrorData  *error;

	MemoryContextSwitchTo(TopMemoryContext);
	error = CopyErrorData();
	FlushErrorState();
	AbortOutOfAnyTransaction();
	durable_process_begin_transaction();
	if (!durable_extension_exists())
		durable_process_leave(END_NO_EXTENSION);
	CommitTransactionCommand();
	/* the launcher starts another one, after a while */
	ThrowErrorData(error);
}

void
durable_scheduler_main(Datum arg)
{
	Schedule	schedule = {0};
	uint32		wait_event;

	begin(&schedule);
	wait_event = compat_wait_event("DurableScheduler");
	for (;;)
	{
		if (durable_worker_should_leave())
			durable_process_leave(END_ASKED);
		follow_clock_back(&schedule);
		PG_TRY();
		{
			look(&schedule);
		}
		PG_CATCH();
		{
			recover();
		}
		PG_END_TRY();
		(void) pgstat_report_stat(false);
		(void) durable_process_sleep(sleep_time(&schedule), wait_event);
	}
}
