/*-------------------------------------------------------------------------
 *
 * wakeup.c
 *	  Waking idle sessions when work for them commits.
 *
 * A session that waits for work owns a slot in shared memory that names its
 * queues. A transaction that queues tasks remembers the queues, and its commit
 * callback sets the latch of as many waiters as there are tasks. A wake-up is
 * a hint: the woken session looks for itself, and every wait looks again by
 * itself after a while, so a waiter that dies after it was woken delays
 * nobody for long.
 *
 * Order that makes it safe: a waiter takes its slot, then takes a snapshot and
 * looks. A producer becomes visible (ProcArrayLock), then reads the slots. If
 * the snapshot missed the producer, the producer sees the slot.
 *
 * The scheduler of a database has an entry of its own, read without a lock: when
 * it will wake by itself, and why it should wake before. The order is the same:
 * it says "wake me for anything", then looks, and then says until when it sleeps.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/shmem.h"

#include "base/wakeup.h"

/* Queues remembered exactly per transaction; beyond, every waiter is woken. */
#define NOTES 16

/* Protected by the table's lock; the latch belongs to a PGPROC, so setting it
 * after its owner has left is harmless. */
typedef struct Waiter
{
	Latch	   *latch;			/* NULL: free */
	Oid			database;
	Oid			owner;			/* executes this role's queues, or InvalidOid */
	bool		woken;
	int			nkeys;			/* 0: any queue of the database */
	DurableKey	keys[DURABLE_WAITER_KEYS];
} Waiter;

/* The scheduler of a database. Taken and left under the table's lock. */
typedef struct Scheduler
{
	Oid			database;		/* InvalidOid: free */
	Latch	   *latch;
	pg_atomic_uint64 at;		/* it wakes by itself then, by the engine's clock */
	pg_atomic_uint32 reasons;	/* why it should look now */
} Scheduler;

typedef struct WaiterTable
{
	pg_atomic_uint32 waiting;	/* taken slots; read without the lock */
	int			nslots;
	Waiter		slots[FLEXIBLE_ARRAY_MEMBER];
} WaiterTable;

typedef struct Note
{
	DurableKey	key;
	Oid			owner;			/* InvalidOid: the key counts */
	int			count;
} Note;

static WaiterTable *table = NULL;
static Scheduler *schedulers = NULL;	/* behind the waiters */
static int	nschedulers = 0;
static LWLock *table_lock = NULL;
static Waiter *my_slot = NULL;
static Scheduler *my_schedule = NULL;

/* this transaction's notes */
static Note notes[NOTES];
static int	nnotes = 0;
static bool wake_all = false;
static TimestampTz noted_due = PG_INT64_MAX;

static Size
schedulers_offset(void)
{
	return MAXALIGN(offsetof(WaiterTable, slots) +
					mul_size(sizeof(Waiter), MaxBackends));
}

Size
durable_wakeup_shmem_size(void)
{
	return MAXALIGN(schedulers_offset() +
					mul_size(sizeof(Scheduler), max_worker_processes));
}

void
durable_wakeup_shmem_startup(LWLock *lock)
{
	bool		found;

	table_lock = lock;
	table = ShmemInitStruct("durable waiters", durable_wakeup_shmem_size(), &found);
	schedulers = (Scheduler *) ((char *) table + schedulers_offset());
	nschedulers = max_worker_processes;
	if (found)
		return;
	memset(table, 0, durable_wakeup_shmem_size());
	pg_atomic_init_u32(&table->waiting, 0);
	table->nslots = MaxBackends;
	for (int i = 0; i < nschedulers; i++)
	{
		pg_atomic_init_u64(&schedulers[i].at, PG_INT64_MAX);
		pg_atomic_init_u32(&schedulers[i].reasons, 0);
	}
}

static bool
waiter_wants(const Waiter *waiter, const Note *note)
{
	if (waiter->latch == NULL || waiter->woken ||
		waiter->database != note->key.database)
		return false;
	if (OidIsValid(note->owner) || OidIsValid(waiter->owner))
		return waiter->owner == note->owner;
	if (waiter->nkeys == 0)
		return true;
	for (int i = 0; i < waiter->nkeys; i++)
	{
		if (durable_key_equal(&waiter->keys[i], &note->key))
			return true;
	}
	return false;
}

/* The table's lock must be held exclusively. Returns for how many there was
 * nobody. */
static int
wake(const Note *note)
{
	int			left = note->count;

	for (int i = 0; i < table->nslots && left > 0; i++)
	{
		Waiter	   *waiter = &table->slots[i];

		if (!waiter_wants(waiter, note))
			continue;
		waiter->woken = true;
		SetLatch(waiter->latch);
		left--;
	}
	return left;
}

/* The table's lock must be held exclusively. */
static void
wake_database(void)
{
	for (int i = 0; i < table->nslots; i++)
	{
		if (table->slots[i].latch != NULL &&
			table->slots[i].database == MyDatabaseId)
		{
			table->slots[i].woken = true;
			SetLatch(table->slots[i].latch);
		}
	}
}

/* Once per reason until the scheduler has taken it. */
static void
wake_scheduler(Scheduler *scheduler, uint32 reasons)
{
	Latch	   *latch = scheduler->latch;
	uint32		before = pg_atomic_fetch_or_u32(&scheduler->reasons, reasons);

	if ((before & reasons) != reasons && latch != NULL)
		SetLatch(latch);
}

void
durable_scheduler_wake(Oid database, uint32 reasons)
{
	if (table == NULL)
		return;
	for (int i = 0; i < nschedulers; i++)
	{
		Scheduler  *scheduler = &schedulers[i];

		if (OidIsValid(scheduler->database) &&
			(!OidIsValid(database) || scheduler->database == database))
			wake_scheduler(scheduler, reasons);
	}
}

static void
wake_for_due(TimestampTz due)
{
	for (int i = 0; i < nschedulers; i++)
	{
		Scheduler  *scheduler = &schedulers[i];

		if (scheduler->database == MyDatabaseId &&
			due < (TimestampTz) pg_atomic_read_u64(&scheduler->at))
			wake_scheduler(scheduler, SCHEDULER_LOOK_DUE);
	}
}

static void
wake_waiters(bool *unserved)
{
	LWLockAcquire(table_lock, LW_EXCLUSIVE);
	if (wake_all)
		wake_database();
	for (int i = 0; i < nnotes; i++)
	{
		if (wake(&notes[i]) > 0 && OidIsValid(notes[i].owner))
			*unserved = true;
	}
	LWLockRelease(table_lock);
}

/* Runs after the commit is visible and must not fail. */
static void
wake_noted(void)
{
	bool		unserved = false;

	pg_memory_barrier();
	if (pg_atomic_read_u32(&table->waiting) > 0)
		wake_waiters(&unserved);
	else
	{
		for (int i = 0; i < nnotes; i++)
			unserved = unserved || OidIsValid(notes[i].owner);
	}
	if (wake_all)
		durable_scheduler_wake(MyDatabaseId, SCHEDULER_LOOK_ALL);
	else if (unserved)
		durable_scheduler_wake(MyDatabaseId, SCHEDULER_LOOK_DEMAND);
	if (noted_due != PG_INT64_MAX)
		wake_for_due(noted_due);
}

static void
at_transaction_end(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT &&
		event != XACT_EVENT_PREPARE)
		return;
	if (event == XACT_EVENT_COMMIT &&
		(nnotes > 0 || wake_all || noted_due != PG_INT64_MAX))
		wake_noted();
	nnotes = 0;
	wake_all = false;
	noted_due = PG_INT64_MAX;
}

static void
note(const DurableKey *key, Oid owner, int count)
{
	for (int i = 0; i < nnotes; i++)
	{
		if (notes[i].owner == owner &&
			(OidIsValid(owner) || durable_key_equal(&notes[i].key, key)))
		{
			notes[i].count += Min(count, PG_INT32_MAX - notes[i].count);
			return;
		}
	}
	if (nnotes == NOTES)
	{
		wake_all = true;
		return;
	}
	notes[nnotes].key = *key;
	notes[nnotes].owner = owner;
	notes[nnotes].count = count;
	nnotes++;
}

void
durable_wakeup_note(const DurableKey *key, int count)
{
	if (table != NULL)
		note(key, InvalidOid, count);
}

void
durable_wakeup_note_owner(Oid owner, int count)
{
	DurableKey	key = {.database = MyDatabaseId};

	if (table != NULL)
		note(&key, owner, count);
}

void
durable_wakeup_note_due(TimestampTz at)
{
	if (table != NULL)
		noted_due = Min(noted_due, at);
}

void
durable_wakeup_note_all(void)
{
	if (table != NULL)
		wake_all = true;
}

/* A session that is terminated while it waits leaves no slot behind. */
static void
at_backend_exit(int code, Datum arg)
{
	durable_waiter_end();
}

bool
durable_waiter_begin(const DurableKey *keys, int nkeys, Oid owner)
{
	static bool exit_registered = false;

	if (table == NULL || my_slot != NULL)
		return false;
	if (!exit_registered)
		before_shmem_exit(at_backend_exit, (Datum) 0);
	exit_registered = true;

	LWLockAcquire(table_lock, LW_EXCLUSIVE);
	for (int i = 0; i < table->nslots; i++)
	{
		Waiter	   *waiter = &table->slots[i];

		if (waiter->latch != NULL)
			continue;
		waiter->latch = MyLatch;
		waiter->database = MyDatabaseId;
		waiter->owner = owner;
		waiter->woken = false;
		waiter->nkeys = nkeys <= DURABLE_WAITER_KEYS ? nkeys : 0;
		memcpy(waiter->keys, keys, sizeof(DurableKey) * waiter->nkeys);
		pg_atomic_fetch_add_u32(&table->waiting, 1);
		my_slot = waiter;
		break;
	}
	LWLockRelease(table_lock);
	return my_slot != NULL;
}

/* Call after waking and before looking: the next commit wakes this session again. */
void
durable_waiter_rearm(void)
{
	if (my_slot == NULL)
		return;
	LWLockAcquire(table_lock, LW_EXCLUSIVE);
	my_slot->woken = false;
	LWLockRelease(table_lock);
}

/* The lock must be held exclusively. Whether there was anyone to pass it on to. */
static bool
pass_on(const Waiter *waiter)
{
	Note		passed = {.owner = waiter->owner, .count = 1};

	passed.key.database = MyDatabaseId;
	return wake(&passed) == 0;
}

/* true: it was woken for work of its owner's, and nobody else was there */
static bool
stop_waiting(Waiter *waiter)
{
	bool		was_woken = waiter->woken;

	waiter->woken = true;
	return was_woken && OidIsValid(waiter->owner) && !pass_on(waiter);
}

void
durable_waiter_busy(void)
{
	bool		unserved;

	if (my_slot == NULL)
		return;
	LWLockAcquire(table_lock, LW_EXCLUSIVE);
	unserved = stop_waiting(my_slot);
	LWLockRelease(table_lock);
	if (unserved)
		durable_scheduler_wake(MyDatabaseId, SCHEDULER_LOOK_DEMAND);
}

void
durable_waiter_end(void)
{
	bool		unserved;

	if (my_slot == NULL)
		return;
	LWLockAcquire(table_lock, LW_EXCLUSIVE);
	unserved = stop_waiting(my_slot);
	my_slot->latch = NULL;
	pg_atomic_fetch_sub_u32(&table->waiting, 1);
	LWLockRelease(table_lock);
	my_slot = NULL;
	if (unserved)
		durable_scheduler_wake(MyDatabaseId, SCHEDULER_LOOK_DEMAND);
}

bool
durable_scheduler_attach(void)
{
	LWLockAcquire(table_lock, LW_EXCLUSIVE);
	for (int i = 0; i < nschedulers; i++)
	{
		Scheduler  *scheduler = &schedulers[i];

		if (scheduler->database == MyDatabaseId)
		{
			my_schedule = NULL;
			break;
		}
		if (OidIsValid(scheduler->database) || my_schedule != NULL)
			continue;
		my_schedule = scheduler;
	}
	if (my_schedule != NULL)
	{
		my_schedule->latch = MyLatch;
		pg_atomic_write_u64(&my_schedule->at, PG_INT64_MAX);
		pg_atomic_write_u32(&my_schedule->reasons, SCHEDULER_LOOK_ALL);
		my_schedule->database = MyDatabaseId;
	}
	LWLockRelease(table_lock);
	return my_schedule != NULL;
}

void
durable_scheduler_detach(void)
{
	if (my_schedule == NULL)
		return;
	LWLockAcquire(table_lock, LW_EXCLUSIVE);
	my_schedule->database = InvalidOid;
	my_schedule->latch = NULL;
	LWLockRelease(table_lock);
	my_schedule = NULL;
}

uint32
durable_scheduler_begin(void)
{
	pg_atomic_write_u64(&my_schedule->at, PG_INT64_MAX);
	/* a full barrier: what commits from now on sees the line above */
	return pg_atomic_exchange_u32(&my_schedule->reasons, 0);
}

void
durable_scheduler_sleeps_until(TimestampTz at)
{
	pg_atomic_write_u64(&my_schedule->at, (uint64) at);
}

uint32
durable_scheduler_reasons(void)
{
	return pg_atomic_read_u32(&my_schedule->reasons);
}

void
durable_wakeup_init(void)
{
	RegisterXactCallback(at_transaction_end, NULL);
}
