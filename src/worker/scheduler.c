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
#include "engine/retention.h"
#include "engine/stalled.h"
#include "engine/sweep.h"
#include "store/pause.h"
#include "store/sweep.h"
#include "worker/demand.h"
#include "worker/process.h"
#include "worker/scheduler.h"

/* What one part of a pass moves; it stays locked until the part commits. */
#define PASS_TASKS 500

/* What somebody else holds is looked at again. */
#define HELD_US (100 * USECS_PER_SEC / 1000)

/* Below the wake-ups, a net: for demand, and for time. */
#define DEMAND_NET_US (5 * USECS_PER_SEC)
#define NET_US (30 * USECS_PER_SEC)

/* What is old is deleted that often, so much at a time. */
#define OLD_US USECS_PER_MINUTE
#define OLD_ROWS 10000

/* Runs are deleted that often; between two batches is a pause of so many times what the
 * last one took. */
#define RETENTION_US USECS_PER_MINUTE
#define RETENTION_REST 9
/* Stalled runs are looked for that often, with the setting. */
#define STALLED_US USECS_PER_MINUTE

/* Beside those of the sweep. */
#define PART_STALLED DURABLE_PARTS

/* One part of the sweep, or of what only the scheduler does. A part that fails is tried
 * again ever more rarely, and concerns no other. */
typedef struct Part
{
	int			failures;		/* in a row; the launcher's back-off applies */
	int			code;			/* of the last one, which was logged */
	TimestampTz next_try;
} Part;

typedef struct Schedule
{
	MemoryContext context;		/* of one pass */
	TimestampTz due;			/* the next, by the engine's clock */
	TimestampTz next_net;
	TimestampTz next_old;
	TimestampTz next_retention;
	TimestampTz next_stalled;
	TimestampTz next_demand;	/* when executors are looked at again by itself */
	bool		paused;
	bool		looked;			/* once at least */
	bool		dead;			/* claims of sessions that are gone are to be looked for */
	bool		failures_noted;
	Part		parts[DURABLE_PARTS + 1];
} Schedule;

static void
tell_of_stalled(DurableSweep *sweep)
{
	if (durable_stalled_after > 0)
		durable_stalled_report(durable_stalled_after);
}

static const DurablePart *
part_of(int nr)
{
	static const DurablePart stalled = {"stalled runs", true, tell_of_stalled};

	return nr == PART_STALLED ? &stalled : &durable_parts[nr];
}

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

/* In a transaction: with it the note is lost. */
static void
note_success(Schedule *schedule, int nr)
{
	if (!schedule->failures_noted)
		return;
	durable_sweep_note_success(part_of(nr)->name);
	schedule->failures_noted = durable_sweep_any_failure();
}

/* The same error is logged once; what it is about is in durable.sweep_failure. */
static void
note_failure(Schedule *schedule, int nr, ErrorData *error)
{
	Part	   *part = &schedule->parts[nr];

	if (part->failures++ == 0 || part->code != error->sqlerrcode)
		ereport(WARNING,
				errcode(error->sqlerrcode),
				errmsg("durable cannot look after a part of its work: %s", part_of(nr)->name),
				errdetail_internal("%s", error->message),
				errhint("It is tried again, ever more rarely; durable.health() tells whether it still fails."),
				error->context == NULL ? 0 : (errcontext("%s", error->context)));
	part->code = error->sqlerrcode;
	part->next_try = GetCurrentTimestamp() + durable_process_backoff(part->failures);
	PG_TRY();
	{
		durable_process_begin_transaction();
		durable_sweep_note_failure(part_of(nr)->name, error);
		CommitTransactionCommand();
		schedule->failures_noted = true;
	}
	PG_CATCH();
	{
		/* it is in the log */
		FlushErrorState();
		AbortOutOfAnyTransaction();
	}
	PG_END_TRY();
}

/* The error that ended the transaction, which is over; leaves when there is nothing to do
 * in this database any more. */
static ErrorData *
take_error(MemoryContext context)
{
	ErrorData  *error;

	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	FlushErrorState();
	AbortOutOfAnyTransaction();
	durable_process_begin_transaction();
	if (!durable_extension_exists())
		durable_process_leave(END_NO_EXTENSION);
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	return error;
}

/* In a transaction of its own; false: it failed. No lock on a whole table keeps it, and
 * with it the parts that come after it, for long. */
static bool
do_part(Schedule *schedule, int nr, DurableSweep *sweep)
{
	DurableSweep before = *sweep;
	volatile bool done = false;

	SetConfigOption("lock_timeout", DURABLE_PART_PATIENCE, PGC_SUSET, PGC_S_OVERRIDE);
	PG_TRY();
	{
		durable_process_begin_transaction();
		MemoryContextSwitchTo(schedule->context);
		part_of(nr)->run(sweep);
		note_success(schedule, nr);
		CommitTransactionCommand();
		schedule->parts[nr].failures = 0;
		done = true;
	}
	PG_CATCH();
	{
		ErrorData  *error = take_error(schedule->context);

		*sweep = before;
		note_failure(schedule, nr, error);
	}
	PG_END_TRY();
	SetConfigOption("lock_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	MemoryContextSwitchTo(TopMemoryContext);
	MemoryContextReset(schedule->context);
	return done;
}

/* When this part has to be looked at again, by the engine's clock. */
static TimestampTz
look_at_part(Schedule *schedule, int nr)
{
	TimestampTz now = GetCurrentTimestamp();
	Part	   *part = &schedule->parts[nr];
	DurableSweep sweep;

	part->next_try = Min(part->next_try, now + USECS_PER_MINUTE);
	durable_sweep_begin(&sweep, PASS_TASKS);
	if (part->failures > 0 && part->next_try > now)
		return sweep.now + (part->next_try - now);
	sweep.slowly = true;
	sweep.dead = schedule->dead;
	if (!do_part(schedule, nr, &sweep))
		return sweep.now + (part->next_try - GetCurrentTimestamp());
	if (sweep.next > sweep.now)
		return sweep.next;
	for (int i = 0; i < COUNTS; i++)
	{
		if (sweep.counts[i] > 0)
			return sweep.now;
	}
	return sweep.now + HELD_US;
}

/* Whether there is more. */
static bool
move_what_is_due(Schedule *schedule)
{
	bool		failed = false;

	durable_process_begin_transaction();
	check_database(schedule);
	CommitTransactionCommand();
	schedule->due = DT_NOEND;
	for (int nr = 0; nr < DURABLE_PARTS; nr++)
	{
		if (!durable_parts[nr].old)
			schedule->due = Min(schedule->due, look_at_part(schedule, nr));
		failed = failed || schedule->parts[nr].failures > 0;
	}
	schedule->dead = schedule->dead && failed;
	return schedule->due <= durable_clock_now();
}

static bool
has_filled(const DurableSweep *sweep)
{
	for (int i = 0; i < COUNTS; i++)
	{
		if (sweep->counts[i] >= sweep->max)
			return true;
	}
	return false;
}

static void
delete_what_is_old(Schedule *schedule)
{
	TimestampTz now = GetCurrentTimestamp();

	if (now < schedule->next_old)
		return;
	schedule->next_old = now + OLD_US;
	for (int nr = 0; nr < DURABLE_PARTS; nr++)
	{
		DurableSweep sweep;

		if (!durable_parts[nr].old || nr == DURABLE_PART_RETENTION)
			continue;
		durable_sweep_begin(&sweep, OLD_ROWS);
		if (do_part(schedule, nr, &sweep) && has_filled(&sweep))
			schedule->next_old = now;
	}
}

/* Rests between two batches, so that retention takes a part of a processor only. */
static void
delete_runs(Schedule *schedule)
{
	TimestampTz since = GetCurrentTimestamp();
	DurableSweep sweep;
	bool		more;

	if (since < schedule->next_retention)
		return;
	schedule->next_retention = since + RETENTION_US;
	durable_process_begin_transaction();
	check_database(schedule);
	CommitTransactionCommand();
	durable_sweep_begin(&sweep, durable_retention_batch_size());
	if (!do_part(schedule, DURABLE_PART_RETENTION, &sweep))
		return;
	more = sweep.next <= sweep.now;
	durable_retention_adapt(GetCurrentTimestamp() - since, more);
	if (more)
		schedule->next_retention = GetCurrentTimestamp() +
			RETENTION_REST * (GetCurrentTimestamp() - since);
}

/* Once more when the setting was taken away, so that no failure stays noted. */
static void
report_stalled(Schedule *schedule)
{
	TimestampTz now = GetCurrentTimestamp();
	DurableSweep sweep;

	if ((durable_stalled_after == 0 && !schedule->failures_noted) || now < schedule->next_stalled)
		return;
	schedule->next_stalled = now + STALLED_US;
	durable_sweep_begin(&sweep, PASS_TASKS);
	(void) do_part(schedule, PART_STALLED, &sweep);
}

/* A clock that was put back does not put off the nets. */
static void
follow_clock_back(Schedule *schedule)
{
	TimestampTz now = GetCurrentTimestamp();

	schedule->next_net = Min(schedule->next_net, now + NET_US);
	schedule->next_old = Min(schedule->next_old, now + OLD_US);
	schedule->next_retention = Min(schedule->next_retention, now + RETENTION_US);
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
	bool		asked;

	if (schedule->looked)
		delete_runs(schedule);
	if (!timely && reasons == 0 && GetCurrentTimestamp() < schedule->next_demand)
		return;
	/* while there was no demand for long, it is answered at once */
	if (!timely && !durable_demand_may_look())
		return;
	reasons = durable_scheduler_begin();
	if (timely)
	{
		/* others may have noted something meanwhile */
		schedule->failures_noted = schedule->failures_noted || net;
		schedule->dead = schedule->dead || !schedule->looked || (reasons & SCHEDULER_LOOK_DEAD) != 0;
		more = move_what_is_due(schedule);
		delete_what_is_old(schedule);
		report_stalled(schedule);
		schedule->looked = true;
		schedule->next_net = GetCurrentTimestamp() + NET_US;
	}
	durable_process_begin_transaction();
	MemoryContextSwitchTo(schedule->context);
	asked = (reasons & (SCHEDULER_LOOK_DEMAND | SCHEDULER_LOOK_ALL)) != 0;
	schedule->next_demand = Min(durable_demand_serve(schedule->paused, asked),
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
	TimestampTz until = Min(Min(schedule->next_net, schedule->next_old),
							Min(schedule->next_retention, schedule->next_demand));
	double		us = until - now;

	us = Min(us, (double) schedule->due - (double) durable_clock_now());
	if (durable_scheduler_reasons() != 0)
		us = Min(us, durable_demand_delay());
	return us <= 0 ? 0 : (long) (us / 1000.0 + 0.999);
}

/* An error that is not of a part: the launcher starts another scheduler, after a while. */
static void
recover(void)
{
	ThrowErrorData(take_error(TopMemoryContext));
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
		/* other settings: perhaps for nobody to be here, or of another time */
		if (durable_process_sleep(sleep_time(&schedule), wait_event))
			schedule.next_net = 0;
	}
}
