/*-------------------------------------------------------------------------
 *
 * workers.c
 *	  The table of background workers in shared memory.
 *
 * One lock protects everything but what a worker reports about the work in its
 * hand; that is written by the worker alone, under the slot's spinlock. The lock
 * is never held across anything that can fail. A latch belongs to a PGPROC, so
 * setting it after its owner has left is harmless.
 *
 * A slot is given back in the last exit callback but those of the server itself:
 * when it says ENDED, the process is in none of the server's lists, and a DROP
 * DATABASE that waited for it does not meet it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "base/wakeup.h"
#include "base/workers.h"

#define HOLDS 32
#define LOOKS 32

/* A launcher that died leaves slots behind, and so does who dies before its worker came
 * up; after this they count as ended, and are taken again. A worker that comes so late
 * leaves when it finds that. */
#define STALE_US (60 * USECS_PER_SEC)

typedef struct Slot
{
	DurableWorkerInfo info;
	Latch	   *latch;
	bool		old_settings;	/* it started with others than there are now */
	int			starter;		/* the slot of who started it; -1: the launcher */
	uint32		starter_generation;
	slock_t		lock;			/* state, since, namespace, run_id, step */
} Slot;

typedef struct Hold
{
	Oid			database;		/* InvalidOid: free */
	pid_t		holder;
} Hold;

typedef struct WorkerTable
{
	Latch	   *launcher;
	bool		look_at_all;
	int			nlooks;
	Oid			looks[LOOKS];
	Hold		holds[HOLDS];
	int			nslots;
	Slot		slots[FLEXIBLE_ARRAY_MEMBER];
} WorkerTable;

static WorkerTable *table = NULL;
static LWLock *table_lock = NULL;
static Slot *my_slot = NULL;

/* this transaction's notes */
static Oid	noted_look = InvalidOid;
static bool noted_looks = false;
static bool noted_change = false;
static bool noted_settings = false;
static Oid	settings_database = InvalidOid; /* InvalidOid: of all */
static Oid	settings_role = InvalidOid;
static bool holds_here = false;

Size
durable_workers_shmem_size(void)
{
	return MAXALIGN(offsetof(WorkerTable, slots) +
					mul_size(sizeof(Slot), max_worker_processes));
}

void
durable_workers_shmem_startup(LWLock *lock)
{
	bool		found;

	table_lock = lock;
	table = ShmemInitStruct("durable workers", durable_workers_shmem_size(), &found);
	if (found)
		return;
	memset(table, 0, durable_workers_shmem_size());
	table->nslots = max_worker_processes;
	for (int i = 0; i < table->nslots; i++)
		SpinLockInit(&table->slots[i].lock);
}

static bool
is_held(Oid database)
{
	for (int i = 0; i < HOLDS; i++)
	{
		if (OidIsValid(database) && table->holds[i].database == database)
			return true;
	}
	return false;
}

/* The lock must be held exclusively. */
static Slot *
find_room(TimestampTz now)
{
	Slot	   *ended = NULL;

	for (int i = 0; i < table->nslots; i++)
	{
		Slot	   *slot = &table->slots[i];

		if (slot->info.state == WORKER_FREE)
			return slot;
		if ((slot->info.state == WORKER_ENDED || slot->info.state == WORKER_STARTING) &&
			now - slot->info.since > STALE_US)
			ended = slot;
	}
	return ended;
}

int
durable_worker_reserve(DurableWorkerKind kind, Oid database, Oid role,
					   uint32 *generation, bool *held)
{
	TimestampTz now = GetCurrentTimestamp();
	Slot	   *slot;

	LWLockAcquire(table_lock, LW_EXCLUSIVE);
	*held = is_held(database);
	slot = *held ? NULL : find_room(now);
	if (slot != NULL)
	{
		*generation = slot->info.generation + 1;
		memset(&slot->info, 0, sizeof(slot->info));
		slot->info.generation = *generation;
		slot->info.kind = kind;
		slot->info.state = WORKER_STARTING;
		slot->info.database = database;
		slot->info.role = role;
		slot->info.started_at = slot->info.since = now;
		slot->latch = NULL;
		slot->old_settings = false;
		slot->starter = my_slot == NULL ? -1 : (int) (my_slot - table->slots);
		slot->starter_generation = my_slot == NULL ? 0 : my_slot->info.generation;
	}
	LWLockRelease(table_lock);
	return slot == NULL ? -1 : (int) (slot - table->slots);
}

void
durable_worker_forget(int slot, uint32 generation)
{
	LWLockAcquire(table_lock, LW_EXCLUSIVE);
	if (table->slots[slot].info.generation == generation)
		table->slots[slot].info.state = WORKER_FREE;
	LWLockRelease(table_lock);
}

static void
copy_info(int slot, DurableWorkerInfo *worker)
{
	SpinLockAcquire(&table->slots[slot].lock);
	*worker = table->slots[slot].info;
	SpinLockRelease(&table->slots[slot].lock);
	worker->slot = slot;
	/* it never came up, and its starter did not live to see that */
	if (worker->state == WORKER_STARTING && GetCurrentTimestamp() - worker->since > STALE_US)
		worker->state = WORKER_ENDED;
}

void
durable_worker_read(int slot, DurableWorkerInfo *worker)
{
	LWLockAcquire(table_lock, LW_SHARED);
	copy_info(slot, worker);
	LWLockRelease(table_lock);
}

int
durable_workers_list(Oid database, DurableWorkerInfo **workers)
{
	int			n = 0;

	*workers = NULL;
	if (table == NULL)
		return 0;
	*workers = palloc(sizeof(DurableWorkerInfo) * table->nslots);
	LWLockAcquire(table_lock, LW_SHARED);
	for (int i = 0; i < table->nslots; i++)
	{
		const DurableWorkerInfo *info = &table->slots[i].info;

		if (info->state != WORKER_FREE &&
			(!OidIsValid(database) || info->database == database))
			copy_info(i, &(*workers)[n++]);
	}
	LWLockRelease(table_lock);
	return n;
}

/* The lock must be held exclusively. */
static void
ask_to_leave(Slot *slot)
{
	slot->info.leave = true;
	if (slot->latch != NULL)
		SetLatch(slot->latch);
}

void
durable_worker_ask_to_leave(int slot, uint32 generation)
{
	LWLockAcquire(table_lock, LW_EXCLUSIVE);
	if (table->slots[slot].info.generation == generation)
		ask_to_leave(&table->slots[slot]);
	LWLockRelease(table_lock);
}

void
durable_workers_ask_to_leave(Oid database, bool now)
{
	LWLockAcquire(table_lock, LW_EXCLUSIVE);
	for (int i = 0; i < table->nslots; i++)
	{
		Slot	   *slot = &table->slots[i];

		if (slot->info.state == WORKER_FREE || slot->info.state == WORKER_ENDED ||
			slot->info.database != database)
			continue;
		ask_to_leave(slot);
		/* the slot is given back before the process ends: the pid is its own */
		if (now && slot->info.state == WORKER_BUSY && slot->info.pid != 0)
			kill(slot->info.pid, SIGTERM);
	}
	LWLockRelease(table_lock);
}

bool
durable_workers_present(Oid database)
{
	bool		present = false;

	if (table == NULL)
		return false;
	LWLockAcquire(table_lock, LW_SHARED);
	for (int i = 0; i < table->nslots && !present; i++)
		present = table->slots[i].info.state != WORKER_FREE &&
			table->slots[i].info.state != WORKER_ENDED &&
			table->slots[i].info.database == database;
	LWLockRelease(table_lock);
	return present;
}

/* Whether whoever started it will still look what became of it. */
static bool
is_looked_after(const Slot *slot)
{
	const Slot *starter;

	if (slot->starter < 0)
		return true;
	starter = &table->slots[slot->starter];
	return starter->info.generation == slot->starter_generation &&
		starter->info.state != WORKER_FREE && starter->info.state != WORKER_ENDED;
}

/* A scheduler leaves, and with it who looks after its executors: those that are gone
 * make room, as those that go later do by themselves. */
static void
free_orphans(void)
{
	for (int i = 0; i < table->nslots; i++)
	{
		Slot	   *slot = &table->slots[i];

		if (slot->info.state == WORKER_ENDED && !is_looked_after(slot))
			slot->info.state = WORKER_FREE;
	}
}

/* Registered before the process joins the server's lists, so it runs after it
 * has left them. */
static void
at_worker_exit(int code, Datum arg)
{
	Oid			database;
	bool		executor;

	if (my_slot == NULL)
		return;
	LWLockAcquire(table_lock, LW_EXCLUSIVE);
	database = my_slot->info.database;
	SpinLockAcquire(&my_slot->lock);
	my_slot->info.state = is_looked_after(my_slot) ? WORKER_ENDED : WORKER_FREE;
	my_slot->info.since = GetCurrentTimestamp();
	my_slot->info.pid = 0;
	my_slot->latch = NULL;
	SpinLockRelease(&my_slot->lock);
	executor = my_slot->info.kind == WORKER_EXECUTOR;
	if (!executor)
		free_orphans();
	if (table->launcher != NULL)
		SetLatch(table->launcher);
	LWLockRelease(table_lock);
	if (executor)
		durable_scheduler_wake(database, SCHEDULER_LOOK_DEMAND | SCHEDULER_LOOK_DEAD);
	my_slot = NULL;
}

bool
durable_worker_attach(int slot, uint32 generation)
{
	LWLockAcquire(table_lock, LW_EXCLUSIVE);
	if (table->slots[slot].info.generation == generation &&
		table->slots[slot].info.state == WORKER_STARTING)
	{
		my_slot = &table->slots[slot];
		my_slot->info.pid = MyProcPid;
		my_slot->info.state = WORKER_CONNECTING;
		my_slot->info.end = END_FAILED;
		my_slot->info.since = GetCurrentTimestamp();
		my_slot->latch = MyLatch;
	}
	LWLockRelease(table_lock);
	if (my_slot != NULL)
		on_shmem_exit(at_worker_exit, (Datum) 0);
	return my_slot != NULL;
}

/* Only the owner writes it while the slot is in use. */
void
durable_worker_set_end(DurableWorkerEnd end)
{
	my_slot->info.end = end;
}

bool
durable_worker_should_leave(void)
{
	bool		leave;

	LWLockAcquire(table_lock, LW_SHARED);
	leave = my_slot->info.leave || my_slot->old_settings;
	LWLockRelease(table_lock);
	return leave;
}

static void
set_text(char *target, int size, const text *source)
{
	int			length = 0;

	if (source != NULL)
		length = pg_mbcliplen(VARDATA_ANY(source), VARSIZE_ANY_EXHDR(source), size - 1);
	memset(target, 0, size);
	if (length > 0)
		memcpy(target, VARDATA_ANY(source), length);
}

void
durable_worker_report(bool busy, const text *namespace, const text *run_id, const text *step)
{
	DurableWorkerInfo report;
	bool		first;

	if (my_slot == NULL)
		return;
	first = my_slot->info.state == WORKER_CONNECTING;
	pgstat_report_activity(busy ? STATE_RUNNING : STATE_IDLE, NULL);
	report.since = GetCurrentTimestamp();
	set_text(report.namespace, sizeof(report.namespace), namespace);
	set_text(report.run_id, sizeof(report.run_id), run_id);
	set_text(report.step, sizeof(report.step), step);
	SpinLockAcquire(&my_slot->lock);
	my_slot->info.state = busy ? WORKER_BUSY : WORKER_IDLE;
	my_slot->info.since = report.since;
	my_slot->info.came_up = true;
	memcpy(my_slot->info.namespace, report.namespace, sizeof(report.namespace));
	memcpy(my_slot->info.run_id, report.run_id, sizeof(report.run_id));
	memcpy(my_slot->info.step, report.step, sizeof(report.step));
	SpinLockRelease(&my_slot->lock);
	/* perhaps there is work for one more */
	if (first && my_slot->info.kind == WORKER_EXECUTOR)
		durable_scheduler_wake(my_slot->info.database, SCHEDULER_LOOK_DEMAND);
}

void
durable_worker_report_step(const text *step)
{
	char		report[DURABLE_WORKER_TEXT];

	if (my_slot == NULL)
		return;
	set_text(report, sizeof(report), step);
	SpinLockAcquire(&my_slot->lock);
	memcpy(my_slot->info.step, report, sizeof(report));
	SpinLockRelease(&my_slot->lock);
}

bool
durable_workers_hold(Oid database)
{
	bool		noted = false;

	LWLockAcquire(table_lock, LW_EXCLUSIVE);
	for (int i = 0; i < HOLDS && !noted; i++)
	{
		if (OidIsValid(table->holds[i].database))
			continue;
		table->holds[i].database = database;
		table->holds[i].holder = MyProcPid;
		noted = true;
	}
	LWLockRelease(table_lock);
	if (noted)
		durable_workers_ask_to_leave(database, true);
	return noted;
}

/* The lock must be held exclusively. */
static void
add_look(Oid database)
{
	for (int i = 0; i < table->nlooks; i++)
	{
		if (table->looks[i] == database)
			return;
	}
	if (table->nlooks == LOOKS)
		table->look_at_all = true;
	else
		table->looks[table->nlooks++] = database;
}

void
durable_workers_release(Oid database)
{
	LWLockAcquire(table_lock, LW_EXCLUSIVE);
	for (int i = 0; i < HOLDS; i++)
	{
		if (table->holds[i].database == database && table->holds[i].holder == MyProcPid)
		{
			table->holds[i].database = InvalidOid;
			break;
		}
	}
	add_look(database);
	if (table->launcher != NULL)
		SetLatch(table->launcher);
	LWLockRelease(table_lock);
}

bool
durable_workers_hold_here(void)
{
	if (!holds_here)
		holds_here = durable_workers_hold(MyDatabaseId);
	return holds_here;
}

void
durable_workers_note_look(Oid database)
{
	if (table == NULL)
		return;
	if (noted_looks && noted_look != database)
		noted_look = InvalidOid;	/* several: all */
	else
		noted_look = database;
	noted_looks = true;
}

void
durable_workers_note_change(void)
{
	noted_change = table != NULL;
}

void
durable_workers_note_settings(Oid database, Oid role)
{
	if (table == NULL)
		return;
	settings_database = !noted_settings || settings_database == database ? database : InvalidOid;
	settings_role = !noted_settings || settings_role == role ? role : InvalidOid;
	noted_settings = true;
}

/* The lock must be held. */
static bool
is_concerned(const Slot *slot)
{
	if (slot->latch == NULL || slot->info.state == WORKER_ENDED)
		return false;
	return slot->old_settings || (noted_looks && !OidIsValid(noted_look)) ||
		(noted_looks && slot->info.database == noted_look) ||
		(noted_change && slot->info.database == MyDatabaseId);
}

/* The lock must be held. Whether the worker started with settings that have changed. */
static bool
has_old_settings(const Slot *slot)
{
	Oid			role = slot->info.kind == WORKER_SCHEDULER ? BOOTSTRAP_SUPERUSERID : slot->info.role;

	return noted_settings &&
		slot->info.state != WORKER_FREE && slot->info.state != WORKER_ENDED &&
		(!OidIsValid(settings_database) || settings_database == slot->info.database) &&
		(!OidIsValid(settings_role) || settings_role == role);
}

/* Runs after the commit is visible and must not fail. */
static void
pass_on_notes(void)
{
	LWLockAcquire(table_lock, LW_EXCLUSIVE);
	if (noted_looks && OidIsValid(noted_look))
		add_look(noted_look);
	else if (noted_looks)
		table->look_at_all = true;
	for (int i = 0; i < table->nslots; i++)
	{
		if (has_old_settings(&table->slots[i]))
			table->slots[i].old_settings = true;
		if (is_concerned(&table->slots[i]))
			SetLatch(table->slots[i].latch);
	}
	if (noted_looks && table->launcher != NULL)
		SetLatch(table->launcher);
	LWLockRelease(table_lock);
	if (noted_looks)
		durable_scheduler_wake(noted_look, SCHEDULER_LOOK_ALL);
	if (noted_change)
		durable_scheduler_wake(MyDatabaseId, SCHEDULER_LOOK_ALL);
}

static void
at_transaction_end(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT &&
		event != XACT_EVENT_PREPARE)
		return;
	if (event == XACT_EVENT_COMMIT && (noted_looks || noted_change || noted_settings))
		pass_on_notes();
	if (holds_here)
		durable_workers_release(MyDatabaseId);
	holds_here = false;
	noted_looks = noted_change = noted_settings = false;
}

void
durable_workers_init(void)
{
	RegisterXactCallback(at_transaction_end, NULL);
}

static void
at_launcher_exit(int code, Datum arg)
{
	LWLockAcquire(table_lock, LW_EXCLUSIVE);
	if (table->launcher == MyLatch || table->launcher == &MyProc->procLatch)
		table->launcher = NULL;
	LWLockRelease(table_lock);
}

void
durable_launcher_attach(void)
{
	LWLockAcquire(table_lock, LW_EXCLUSIVE);
	table->launcher = MyLatch;
	table->look_at_all = true;
	LWLockRelease(table_lock);
	on_shmem_exit(at_launcher_exit, (Datum) 0);
}

int
durable_launcher_take_looks(Oid **databases, bool *all)
{
	int			n;

	*databases = palloc(sizeof(Oid) * LOOKS);
	LWLockAcquire(table_lock, LW_EXCLUSIVE);
	n = table->nlooks;
	*all = table->look_at_all;
	memcpy(*databases, table->looks, sizeof(Oid) * table->nlooks);
	table->nlooks = 0;
	table->look_at_all = false;
	LWLockRelease(table_lock);
	return n;
}

void
durable_launcher_wake(void)
{
	LWLockAcquire(table_lock, LW_EXCLUSIVE);
	if (table->launcher != NULL)
		SetLatch(table->launcher);
	LWLockRelease(table_lock);
}
