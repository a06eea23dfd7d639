/*-------------------------------------------------------------------------
 *
 * limiter.c
 *	  Putting tasks under a limiter, giving slots back, changing limiters.
 *
 * Nobody here waits for who admits, and nobody who admits waits for those here.
 *
 * Dispatching inserts the entries first, and then looks whether the key has a turn
 * that nobody is taking away; if not, it inserts another. Whoever takes a turn away
 * deletes it first, and then looks whether entries are on their way. So one of the two
 * sees the other, and a key with waiting tasks always has a turn. It may have several
 * for a while, which admission joins.
 *
 * Giving a slot back deletes its row and adds one to the list of what is to be counted
 * off. Admission does that.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

#include "base/clock.h"
#include "base/lock_class.h"
#include "base/wakeup.h"
#include "engine/limiter.h"
#include "store/limited.h"
#include "store/limiter_slot.h"
#include "store/task.h"

/* A key that was not served for so long counts as never served. */
#define KEY_MEMORY_US USECS_PER_HOUR

static void
lock_tag(LOCKTAG *tag, int64 limiter, uint16 class)
{
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, (uint32) ((uint64) limiter >> 32),
						 (uint32) limiter, class);
}

bool
durable_limiter_try_lock(int64 limiter)
{
	LOCKTAG		tag;

	lock_tag(&tag, limiter, COUNT_LOCK_CLASS);
	return LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

void
durable_limiter_unlock(int64 limiter)
{
	LOCKTAG		tag;

	lock_tag(&tag, limiter, COUNT_LOCK_CLASS);
	(void) LockRelease(&tag, ExclusiveLock, false);
}

bool
durable_limiter_use(text *namespace, text *name, int64 *id)
{
	DurableLimiter limiter;
	LOCKTAG		tag;

	if (!durable_limiter_find(namespace, name, &limiter))
		return false;
	*id = limiter.id;
	lock_tag(&tag, limiter.id, NAME_LOCK_CLASS);
	/* it may have been dropped before we had the lock */
	return LockAcquire(&tag, ShareLock, false, false) == LOCKACQUIRE_ALREADY_HELD ||
		durable_limiter_read(limiter.id, &limiter);
}

int64
durable_limiter_require(text *namespace, text *name)
{
	int64		id;

	if (!durable_limiter_use(namespace, name, &id))
		ereport(ERROR,
				errcode(ERRCODE_UNDEFINED_OBJECT),
				errmsg("limiter \"%s\" does not exist in namespace \"%s\"",
					   text_to_cstring(name), text_to_cstring(namespace)),
				errhint("Make it with durable.register_limiter()."));
	return id;
}

/* Between rollbacks and the like a key may have more turns than it needs, never
 * fewer. */
static bool
has_turn(const DurableLimitedBy *gate, const DurableLimiter *limiter, text *queue, int32 priority,
		 int64 first)
{
	/* the newest first: its key comes before where it stood */
	bool		own = limiter->lifo && !limiter->by_key;
	DurableKeyState key;

	if (own)
		return false;
	if (durable_turn_row_is_there(gate, queue, priority, first, limiter->lifo))
		return true;
	durable_key_state_read(gate, GetActiveSnapshot(), &key);
	return key.blocked > 0 &&
		durable_blocked_is_there(gate, key.blocked, queue, priority, first, limiter->lifo);
}

/* While the order is being changed, or the limiter dropped: before all others, whatever
 * the order. Admission puts it where it belongs. */
#define FIRST_OF_ALL (PG_INT64_MIN / 2)

static bool
order_is_settled(int64 limiter)
{
	LOCKTAG		tag;

	lock_tag(&tag, limiter, NAME_LOCK_CLASS);
	return LockAcquire(&tag, ShareLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

static void
add_turn(DurableTables *tables, const DurableLimitedBy *gate, const DurableLimiter *limiter,
		 text *queue, int32 priority, int64 first, int64 last, bool settled)
{
	DurableTurnRow turn = {
		.head = first, .priority = priority, .queue = queue, .key = gate->key,
		.position = limiter->lifo ? -last : first
	};

	if (!settled)
		turn.position = FIRST_OF_ALL;
	else if (limiter->by_key)
	{
		DurableLimiterState state;

		/* No key waits before the floor, so one that was never served comes first; and
		 * those in the order of their tasks. Each needs a position of its own, or the
		 * hint would stay at the first of them. */
		durable_limiter_state_read(gate->limiter, GetActiveSnapshot(), &state);
		turn.position = state.floor + Min(Max(first - state.floor_task, 0), DURABLE_STAMP(USECS_PER_SEC));
	}
	durable_turn_row_insert(durable_tables_get(tables, TABLE_TURN), gate->limiter, &turn);
}

static void
wake_queue(text *namespace, text *queue, int count)
{
	Oid			owner = durable_queue_owner(queue);
	DurableKey	key;

	if (durable_shared == NULL)
		return;
	if (OidIsValid(owner))
		durable_wakeup_note_owner(owner, count);
	else
	{
		key = durable_queue_key(namespace, queue);
		durable_wakeup_note(&key, count);
	}
}

static void
wait_at_limiter(DurableTables *tables, const DurableLimitedBy *gate, const int64 *ids, int n,
				int32 priority, text *namespace, text *queue)
{
	DurableLimiter limiter;
	int64		first = ids[0];
	int64		last = ids[0];
	bool		settled = order_is_settled(gate->limiter);

	if (!durable_limiter_read(gate->limiter, &limiter))
		ereport(ERROR,
				errcode(ERRCODE_DATA_CORRUPTED),
				errmsg("the limiter of task " INT64_FORMAT " does not exist", ids[0]));
	for (int i = 1; i < n; i++)
	{
		first = Min(first, ids[i]);
		last = Max(last, ids[i]);
	}
	durable_limiter_add_queue(gate->limiter, namespace, queue);
	durable_limited_insert(durable_tables_get(tables, TABLE_LIMITED), gate, ids, n, priority,
						   namespace, queue);
	durable_snapshot_push();
	if (!settled || !has_turn(gate, &limiter, queue, priority, first))
		add_turn(tables, gate, &limiter, queue, priority, first, last, settled);
	durable_snapshot_pop();
	wake_queue(namespace, queue, n);
}

void
durable_limiter_enlist(DurableTables *tables, const DurableLimitedBy *gate, const int64 *ids, int n,
					   int32 priority, text *namespace, text *queue)
{
	if (gate != NULL)
		wait_at_limiter(tables, gate, ids, n, priority, namespace, queue);
	else if (n == 1)
		durable_ready_insert(durable_tables_get(tables, TABLE_READY), ids[0], priority,
							 namespace, queue);
	else
		durable_ready_insert_many(durable_tables_get(tables, TABLE_READY), ids, n, priority,
								  namespace, queue);
}

void
durable_limiter_enlist_new(DurableTables *tables, const DurableLimitedBy *gate, const int64 *ids,
						   int n, int32 priority, text *namespace, text *queue)
{
	if (gate == NULL && n == 1)
		durable_ready_insert_new(durable_tables_get(tables, TABLE_READY), ids[0], priority,
								 namespace, queue);
	else
		durable_limiter_enlist(tables, gate, ids, n, priority, namespace, queue);
}

void
durable_limiter_wake(int64 limiter, int count)
{
	text	   *namespace;
	text	  **queues;
	int			n;

	if (durable_shared == NULL)
		return;
	n = durable_limiter_queues(limiter, &namespace, &queues);
	for (int i = 0; i < n; i++)
		wake_queue(namespace, queues[i], count);
}

/* Those queues where somebody waits for it: any key, or this one behind its limit. */
static void
wake_for_slot(const DurableLimitedBy *gate)
{
	DurableKeyState key;
	text	   *namespace;
	text	  **queues;
	int			n;

	if (durable_shared == NULL)
		return;
	n = durable_limiter_queues(gate->limiter, &namespace, &queues);
	durable_key_state_read(gate, GetActiveSnapshot(), &key);
	for (int i = 0; i < n; i++)
	{
		if (key.blocked > 0 ||
			durable_turn_exists(GetActiveSnapshot(), gate->limiter, queues[i]))
			wake_queue(namespace, queues[i], 1);
	}
}

void
durable_limiter_leave(DurableTables *tables, const DurableRow *task)
{
	/* the turn of a run may have it for a local step; what was claimed, before it was
	 * replaced, may have been under another limiter */
	if (!task->nulls[TASK_LIMITER] || durable_task_is(task, "turn") ||
		durable_task_was_replaced(task))
		durable_limiter_leave_number(tables, DatumGetInt64(task->values[TASK_ID]));
}

/*
 * A slot comes with the claim, so one that is the task's was in the table when the claim's
 * lease was read, which was before anything was settled in this command. The table was empty
 * after that: then none of the tasks that it settles has one, whoever has put something
 * into it since.
 */
static bool
none_is_held(void)
{
	static uint64 empty_in = 0;
	MemoryContext context;
	uint64		batch = durable_batch_current(&context);

	if (batch != 0 && batch == empty_in)
		return true;
	if (!durable_table_is_unused(REL_LIMITER_SLOT))
		return false;
	empty_in = batch;
	return true;
}

void
durable_limiter_leave_settled(DurableTables *tables, const DurableRow *task)
{
	if (!none_is_held())
		durable_limiter_leave(tables, task);
}

void
durable_limiter_leave_number(DurableTables *tables, int64 id)
{
	DurableLimitedBy gate;
	ItemPointerData tid;

	if (durable_table_is_unused(REL_LIMITER_SLOT))
		return;
	durable_snapshot_push();
	if (durable_limiter_slot_find(id, &gate, &tid) &&
		durable_writer_delete(durable_tables_get(tables, TABLE_SLOT), &tid, true) == TM_Ok)
	{
		durable_freed_insert(durable_tables_get(tables, TABLE_FREED), &gate);
		wake_for_slot(&gate);
	}
	durable_snapshot_pop();
}

/* ------------------------------------------------------------ definitions -- */

/* A turn with nothing behind it, in each queue: the next claim looks at the limiter,
 * although nothing else has happened there, and drops it. */
static void
have_it_looked_at(int64 limiter)
{
	DurableTables tables;
	text	   *namespace;
	text	  **queues;
	int			n = durable_limiter_queues(limiter, &namespace, &queues);

	durable_tables_init(&tables);
	for (int i = 0; i < n; i++)
	{
		DurableTurnRow turn = {
			.position = FIRST_OF_ALL, .queue = queues[i], .key = cstring_to_text("")
		};

		durable_turn_row_insert(durable_tables_get(&tables, TABLE_TURN), limiter, &turn);
	}
	durable_tables_close(&tables);
	CommandCounterIncrement();
}

bool
durable_limiter_register(const DurableLimiterSpec *spec)
{
	DurableLimiterSpec stored = *spec;
	DurableLimiter before;
	bool		existed = durable_limiter_find(spec->namespace, spec->name, &before);
	bool		inserted;
	int64		id = durable_limiter_put(spec, durable_clock_now(), &inserted);
	bool		reordered = existed && !inserted &&
		(before.by_key != spec->limits.by_key || before.lifo != spec->limits.lifo);

	stored.limits.id = id;
	if (reordered)
	{
		LOCKTAG		tag;

		lock_tag(&tag, id, NAME_LOCK_CLASS);
		(void) LockAcquire(&tag, ExclusiveLock, false, false);
		lock_tag(&tag, id, COUNT_LOCK_CLASS);
		(void) LockAcquire(&tag, ExclusiveLock, false, false);
		durable_limiter_reorder(&stored.limits);
	}
	if (!inserted)
	{
		have_it_looked_at(id);
		durable_limiter_wake(id, PG_INT32_MAX);
	}
	return inserted;
}

DurableDropped
durable_limiter_drop(text *namespace, text *name)
{
	DurableLimiter limiter;
	LOCKTAG		tag;

	if (!durable_limiter_find(namespace, name, &limiter))
		return LIMITER_UNKNOWN;
	lock_tag(&tag, limiter.id, NAME_LOCK_CLASS);
	if (LockAcquire(&tag, ExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL ||
		!durable_limiter_try_lock(limiter.id))
		return LIMITER_IN_USE;
	if (!durable_limiter_read(limiter.id, &limiter))
		return LIMITER_UNKNOWN;
	if (durable_limiter_is_named(limiter.id))
		return LIMITER_IN_USE;
	durable_limiter_delete(limiter.id);
	return LIMITER_DROPPED;
}

void
durable_limiters_expire(TimestampTz now, int max)
{
	int64	   *limiters;
	int			n = durable_limiters_in_use(&limiters);

	for (int i = 0; i < n; i++)
	{
		int64		expired;
		int64		mended;

		CHECK_FOR_INTERRUPTS();
		if (!durable_limiter_try_lock(limiters[i]))
			continue;
		expired = durable_limiter_keys_expire(limiters[i], DURABLE_STAMP(now - KEY_MEMORY_US),
											  max);
		mended = durable_limiter_slots_mend(limiters[i]);
		if (mended > 0)
			durable_limiter_wake(limiters[i], PG_INT32_MAX);
		/* else claims would be turned away until this transaction ends */
		if (expired == 0 && mended == 0)
			durable_limiter_unlock(limiters[i]);
	}
}
