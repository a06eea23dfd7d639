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
	bool		woken;
	int			nkeys;			/* 0: any queue of the database */
	DurableKey	keys[DURABLE_WAITER_KEYS];
} Waiter;

typedef struct WaiterTable
{
	pg_atomic_uint32 waiting;	/* taken slots; read without the lock */
	int			nslots;
	Waiter		slots[FLEXIBLE_ARRAY_MEMBER];
} WaiterTable;

typedef struct Note
{
	DurableKey	key;
	int			count;
} Note;

static WaiterTable *table = NULL;
static LWLock *table_lock = NULL;
static Waiter *my_slot = NULL;

/* this transaction's notes */
static Note notes[NOTES];
static int	nnotes = 0;
static bool wake_all = false;

Size
durable_wakeup_shmem_size(void)
{
	return MAXALIGN(offsetof(WaiterTable, slots) +
					mul_size(sizeof(Waiter), MaxBackends));
}

void
durable_wakeup_shmem_startup(LWLock *lock)
{
	bool		found;

	table_lock = lock;
	table = ShmemInitStruct("durable waiters", durable_wakeup_shmem_size(), &found);
	if (found)
		return;
	memset(table, 0, durable_wakeup_shmem_size());
	pg_atomic_init_u32(&table->waiting, 0);
	table->nslots = MaxBackends;
}

static bool
waiter_wants(const Waiter *waiter, const DurableKey *key)
{
	if (waiter->latch == NULL || waiter->woken ||
		waiter->database != key->database)
		return false;
	if (waiter->nkeys == 0)
		return true;
	for (int i = 0; i < waiter->nkeys; i++)
	{
		if (durable_key_equal(&waiter->keys[i], key))
			return true;
	}
	return false;
}

/* The table's lock must be held exclusively. */
static void
wake(const Note *note)
{
	int			left = note->count;

	for (int i = 0; i < table->nslots && left > 0; i++)
	{
		Waiter	   *waiter = &table->slots[i];

		if (!waiter_wants(waiter, &note->key))
			continue;
		waiter->woken = true;
		SetLatch(waiter->latch);
		left--;
	}
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

/* Runs after the commit is visible and must not fail. */
static void
wake_noted(void)
{
	if (pg_atomic_read_u32(&table->waiting) == 0)
		return;
	LWLockAcquire(table_lock, LW_EXCLUSIVE);
	if (wake_all)
		wake_database();
	else
	{
		for (int i = 0; i < nnotes; i++)
			wake(&notes[i]);
	}
	LWLockRelease(table_lock);
}

static void
at_transaction_end(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT &&
		event != XACT_EVENT_PREPARE)
		return;
	if (event == XACT_EVENT_COMMIT && (nnotes > 0 || wake_all))
		wake_noted();
	nnotes = 0;
	wake_all = false;
}

void
durable_wakeup_note(const DurableKey *key, int count)
{
	if (table == NULL)
		return;
	for (int i = 0; i < nnotes; i++)
	{
		if (durable_key_equal(&notes[i].key, key))
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
	notes[nnotes].count = count;
	nnotes++;
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
durable_waiter_begin(const DurableKey *keys, int nkeys)
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

void
durable_waiter_end(void)
{
	if (my_slot == NULL)
		return;
	LWLockAcquire(table_lock, LW_EXCLUSIVE);
	my_slot->latch = NULL;
	pg_atomic_fetch_sub_u32(&table->waiting, 1);
	LWLockRelease(table_lock);
	my_slot = NULL;
}

void
durable_wakeup_init(void)
{
	RegisterXactCallback(at_transaction_end, NULL);
}
