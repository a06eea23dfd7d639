/*-------------------------------------------------------------------------
 *
 * hint.c
 *	  Scan hints: how far the head of an ordered list is dead for good.
 *
 * Why a hint never hides a row. A scan moves the hint to P only when every
 * entry that it met before P was dead: inserted by an aborted transaction, or
 * deleted by a committed one. An entry whose insertion or deletion is in
 * progress becomes a hole, which every scan looks at by itself until it is dead,
 * and so one claim in a long transaction does not hold up the hint; when there are
 * too many, the prefix ends. What the scan did not meet is an entry that was
 * put behind its back: with a position before P, into a part of the index that
 * it had passed. Whoever inserts an entry therefore reports it here after it
 * stands in the index, still inside its transaction:
 *
 *	- reported after the scan set P: the report makes a hole, or moves the
 *	  hint back when there is no room;
 *	- reported before the scan set P: the scan took a watch when it began, in
 *	  which every report leaves its position if it is the least so far, and
 *	  the scan clips P to that. There are few watches; a scan that got none, or
 *	  lost it because it took very long, sets nothing.
 *
 * A scan that begins after the report meets the entry itself, and it is a hole
 * until the inserter commits. So nothing depends on when commits happen,
 * and prepared transactions need no care.
 *
 * The table is a fixed array of small buckets, each under its own spinlock;
 * when a bucket is full the least recently used entry is given up, which only
 * loses an optimisation. At times (CHECK_US) a scan first looks at a stretch of
 * what stands before the hint, each time the next one: if it finds a row there,
 * that row is claimed, the hint is mended and the event counted. The count has
 * to stay 0.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/timestamp.h"

#include "base/guc.h"
#include "base/hint.h"

#define BUCKETS 512
#define LEVEL_BUCKETS 256
#define BUCKET_ENTRIES 4
#define WATCHES 8
#define WATCH_US (60 * USECS_PER_SEC)
#define CHECK_US (10 * USECS_PER_SEC)
#define MANY_LEVELS_US (60 * USECS_PER_SEC)

/* What was reported while one scan is under way. */
typedef struct Watch
{
	uint64		id;				/* 0: free; never used twice in a bucket */
	TimestampTz since;
	int64		least;
} Watch;

typedef struct Entry
{
	DurableKey	key;			/* database 0: unused */
	int32		level;
	int64		position;
	uint64		used;			/* for choosing a victim */
	TimestampTz last_check;
	int64		checked;		/* the next check begins here */
	Watch		watches[WATCHES];
	int			nholes;
	int64		holes[DURABLE_HINT_HOLES];	/* ascending, before position */
} Entry;

/* Everything in a bucket is protected by its lock. */
typedef struct Bucket
{
	slock_t		lock;
	uint64		clock;
	uint64		last_watch;
	Entry		entries[BUCKET_ENTRIES];
} Bucket;

/* The priorities of one queue; in the bucket of the queue's key. */
typedef struct Levels
{
	DurableKey	key;			/* database 0: unused */
	uint64		life;			/* of this entry; never used twice */
	uint64		used;
	bool		known;			/* the list is complete */
	TimestampTz since;
	int			n;				/* more than DURABLE_LEVELS: too many to know */
	int32		levels[DURABLE_LEVELS]; /* highest first */
} Levels;

/* Everything in it is protected by its lock. */
typedef struct LevelBucket
{
	slock_t		lock;
	uint64		clock;
	Levels		entries[BUCKET_ENTRIES];
} LevelBucket;

typedef struct HintTable
{
	pg_atomic_uint64 checks;
	pg_atomic_uint64 rescued;
	Bucket		buckets[BUCKETS];
	LevelBucket level_buckets[LEVEL_BUCKETS];
} HintTable;

static HintTable *table = NULL;

/* The watches of this session's scans: an error must not leave them behind. */
#define HELD (2 * DURABLE_LEVELS)
static DurableHint held[HELD];
static int	nheld = 0;

Size
durable_hint_shmem_size(void)
{
	return MAXALIGN(sizeof(HintTable));
}

void
durable_hint_shmem_startup(void)
{
	bool		found;

	table = ShmemInitStruct("durable scan hints", sizeof(HintTable), &found);
	if (found)
		return;
	memset(table, 0, sizeof(HintTable));
	pg_atomic_init_u64(&table->checks, 0);
	pg_atomic_init_u64(&table->rescued, 0);
	for (int i = 0; i < BUCKETS; i++)
		SpinLockInit(&table->buckets[i].lock);
	for (int i = 0; i < LEVEL_BUCKETS; i++)
		SpinLockInit(&table->level_buckets[i].lock);
}

static Bucket *
bucket_of(const DurableKey *key, int32 level)
{
	return &table->buckets[(key->hash[0] + (uint32) level) % BUCKETS];
}

/* The bucket's lock must be held. */
static Entry *
find_entry(Bucket *bucket, const DurableKey *key, int32 level)
{
	for (int i = 0; i < BUCKET_ENTRIES; i++)
	{
		Entry	   *entry = &bucket->entries[i];

		if (entry->level == level && durable_key_equal(&entry->key, key))
		{
			entry->used = ++bucket->clock;
			return entry;
		}
	}
	return NULL;
}

/* The bucket's lock must be held. */
static Entry *
make_entry(Bucket *bucket, const DurableKey *key, int32 level, TimestampTz now)
{
	Entry	   *victim = &bucket->entries[0];

	for (int i = 1; i < BUCKET_ENTRIES; i++)
	{
		if (bucket->entries[i].used < victim->used)
			victim = &bucket->entries[i];
	}
	victim->key = *key;
	victim->level = level;
	victim->position = DURABLE_POSITION_MIN;
	victim->nholes = 0;
	/* scans of the old list have lost their watch */
	memset(victim->watches, 0, sizeof(victim->watches));
	victim->used = ++bucket->clock;
	victim->last_check = now;
	victim->checked = DURABLE_POSITION_MIN;
	return victim;
}

static bool
is_hole(const Entry *entry, int64 position)
{
	for (int i = 0; i < entry->nholes; i++)
	{
		if (entry->holes[i] == position)
			return true;
	}
	return false;
}

/* false: there is no room. The bucket's lock must be held. */
static bool
add_hole(Entry *entry, int64 position)
{
	int			i;

	if (is_hole(entry, position))
		return true;
	if (entry->nholes == DURABLE_HINT_HOLES)
		return false;
	for (i = entry->nholes++; i > 0 && entry->holes[i - 1] > position; i--)
		entry->holes[i] = entry->holes[i - 1];
	entry->holes[i] = position;
	return true;
}

/* The bucket's lock must be held. */
static void
move_back(Entry *entry, int64 position)
{
	entry->position = position;
	while (entry->nholes > 0 && entry->holes[entry->nholes - 1] >= position)
		entry->nholes--;
}

/* 0: there is none to be had. The bucket's lock must be held. */
static uint64
take_watch(Bucket *bucket, Entry *entry, TimestampTz now)
{
	for (int i = 0; i < WATCHES; i++)
	{
		Watch	   *watch = &entry->watches[i];

		/* one that old belongs to a scan that ended in an error, or hangs */
		if (watch->id != 0 && now - watch->since < WATCH_US)
			continue;
		watch->id = ++bucket->last_watch;
		watch->since = now;
		watch->least = DURABLE_POSITION_END;
		return watch->id;
	}
	return 0;
}

/* The bucket's lock must be held. */
static Watch *
find_watch(Entry *entry, uint64 id)
{
	for (int i = 0; id != 0 && i < WATCHES; i++)
	{
		if (entry->watches[i].id == id)
			return &entry->watches[i];
	}
	return NULL;
}

static void
forget_held(const DurableHint *hint)
{
	for (int i = 0; i < nheld; i++)
	{
		if (held[i].watch == hint->watch && held[i].level == hint->level &&
			durable_key_equal(&held[i].key, &hint->key))
		{
			held[i] = held[--nheld];
			return;
		}
	}
}

void
durable_hint_begin(DurableHint *hint, const DurableKey *key, int32 level)
{
	Bucket	   *bucket;
	Entry	   *entry;
	TimestampTz now;

	memset(hint, 0, sizeof(*hint));
	hint->start = hint->expected = DURABLE_POSITION_MIN;
	if (table == NULL || !durable_use_scan_hints)
		return;

	now = GetCurrentTimestamp();
	bucket = bucket_of(key, level);
	SpinLockAcquire(&bucket->lock);
	entry = find_entry(bucket, key, level);
	if (entry == NULL)
		entry = make_entry(bucket, key, level, now);
	if (now - entry->last_check >= CHECK_US)
	{
		entry->last_check = now;
		hint->check = true;
		hint->check_from = entry->checked;
	}
	hint->start = entry->position;
	hint->nholes = entry->nholes;
	memcpy(hint->holes, entry->holes, sizeof(hint->holes));
	hint->expected = entry->position;
	hint->watch = nheld < HELD ? take_watch(bucket, entry, now) : 0;
	SpinLockRelease(&bucket->lock);

	hint->key = *key;
	hint->level = level;
	hint->tracked = true;
	if (hint->watch != 0)
		held[nheld++] = *hint;
	if (hint->check)
		pg_atomic_fetch_add_u64(&table->checks, 1);
}

bool
durable_hint_is_spent(const DurableKey *key, int32 level)
{
	Bucket	   *bucket;
	Entry	   *entry;
	TimestampTz now;
	bool		spent;

	if (table == NULL || !durable_use_scan_hints)
		return false;
	now = GetCurrentTimestamp();
	bucket = bucket_of(key, level);
	SpinLockAcquire(&bucket->lock);
	entry = find_entry(bucket, key, level);
	spent = entry != NULL && entry->position == DURABLE_POSITION_END && entry->nholes == 0 &&
		now - entry->last_check < CHECK_US;
	SpinLockRelease(&bucket->lock);
	return spent;
}

void
durable_hint_end(const DurableHint *hint)
{
	Bucket	   *bucket;
	Entry	   *entry;
	Watch	   *watch;

	if (!hint->tracked || hint->watch == 0)
		return;
	bucket = bucket_of(&hint->key, hint->level);
	SpinLockAcquire(&bucket->lock);
	entry = find_entry(bucket, &hint->key, hint->level);
	watch = entry != NULL ? find_watch(entry, hint->watch) : NULL;
	if (watch != NULL)
		watch->id = 0;
	SpinLockRelease(&bucket->lock);
	forget_held(hint);
}

void
durable_hint_checked(const DurableHint *hint, int64 position)
{
	Bucket	   *bucket = bucket_of(&hint->key, hint->level);
	Entry	   *entry;

	SpinLockAcquire(&bucket->lock);
	entry = find_entry(bucket, &hint->key, hint->level);
	if (entry != NULL)
		entry->checked = position;
	SpinLockRelease(&bucket->lock);
}

void
durable_hint_advance(const DurableHint *hint, int64 position, const int64 *holes, int nholes,
					 bool over)
{
	Bucket	   *bucket;
	Entry	   *entry;
	Watch	   *watch;

	if (!hint->tracked)
		return;
	if (position < hint->expected)
	{
		durable_hint_end(hint);
		return;
	}

	bucket = bucket_of(&hint->key, hint->level);
	SpinLockAcquire(&bucket->lock);
	entry = find_entry(bucket, &hint->key, hint->level);
	watch = entry != NULL ? find_watch(entry, hint->watch) : NULL;
	if (watch != NULL)
	{
		position = Min(position, watch->least);
		if (over)
			watch->id = 0;
		/* whoever got further knows its own holes; at the same place every
		 * list is right, because what was dead for anyone is dead */
		if (position >= entry->position)
		{
			entry->position = position;
			entry->nholes = 0;
			for (int i = 0; i < nholes && holes[i] < position; i++)
				entry->holes[entry->nholes++] = holes[i];
		}
	}
	SpinLockRelease(&bucket->lock);
	if (over)
		forget_held(hint);
}

void
durable_hint_rescue(const DurableHint *hint, int64 position)
{
	Bucket	   *bucket;
	Entry	   *entry;
	Watch	   *watch;

	if (!hint->tracked || position >= hint->expected)
		return;
	for (int i = 0; i < hint->nholes; i++)
	{
		if (hint->holes[i] == position)
			return;
	}

	bucket = bucket_of(&hint->key, hint->level);
	SpinLockAcquire(&bucket->lock);
	entry = find_entry(bucket, &hint->key, hint->level);
	/* a report since the scan began explains the row: then nothing was wrong */
	watch = entry != NULL ? find_watch(entry, hint->watch) : NULL;
	if (watch != NULL && watch->least > position &&
		entry->position > position && !is_hole(entry, position))
		move_back(entry, position);
	else
		entry = NULL;
	SpinLockRelease(&bucket->lock);

	if (entry != NULL)
		pg_atomic_fetch_add_u64(&table->rescued, 1);
}

void
durable_hint_inserted(const DurableKey *key, int32 level, int64 first, int64 last)
{
	Bucket	   *bucket;
	Entry	   *entry;

	if (table == NULL)
		return;

	bucket = bucket_of(key, level);
	SpinLockAcquire(&bucket->lock);
	/* no entry, no hint: a scan that begins later meets the row itself */
	entry = find_entry(bucket, key, level);
	if (entry != NULL)
	{
		for (int i = 0; i < WATCHES; i++)
			entry->watches[i].least = Min(entry->watches[i].least, first);
		/* a hole is one position; behind a list that was all dead the hint
		 * loses nothing by moving to the new end of it */
		if (first < entry->position &&
			(first != last || entry->position == DURABLE_POSITION_END ||
			 !add_hole(entry, first)))
			move_back(entry, first);
	}
	SpinLockRelease(&bucket->lock);
}

static LevelBucket *
level_bucket_of(const DurableKey *queue)
{
	return &table->level_buckets[queue->hash[1] % LEVEL_BUCKETS];
}

/* The bucket's lock must be held. */
static Levels *
find_levels(LevelBucket *bucket, const DurableKey *queue)
{
	for (int i = 0; i < BUCKET_ENTRIES; i++)
	{
		if (durable_key_equal(&bucket->entries[i].key, queue))
		{
			bucket->entries[i].used = ++bucket->clock;
			return &bucket->entries[i];
		}
	}
	return NULL;
}

/* The bucket's lock must be held. */
static Levels *
make_levels(LevelBucket *bucket, const DurableKey *queue, TimestampTz now)
{
	Levels	   *victim = &bucket->entries[0];

	for (int i = 1; i < BUCKET_ENTRIES; i++)
	{
		if (bucket->entries[i].used < victim->used)
			victim = &bucket->entries[i];
	}
	victim->key = *queue;
	victim->used = ++bucket->clock;
	victim->life = bucket->clock;
	victim->since = now;
	victim->known = false;
	victim->n = 0;
	return victim;
}

/* The bucket's lock must be held. */
static void
add_level(Levels *entry, int32 level)
{
	int			i;

	if (entry->n > DURABLE_LEVELS)
		return;
	for (i = 0; i < entry->n; i++)
	{
		if (entry->levels[i] == level)
			return;
	}
	if (entry->n++ == DURABLE_LEVELS)
		return;
	for (i = entry->n - 1; i > 0 && entry->levels[i - 1] < level; i--)
		entry->levels[i] = entry->levels[i - 1];
	entry->levels[i] = level;
}

/*
 * The entry is made here, before the caller reads the index: what is inserted
 * later is reported to it, what is inserted earlier stands in the index.
 */
int
durable_levels_begin(const DurableKey *queue, int32 *levels, uint64 *life)
{
	LevelBucket *bucket = level_bucket_of(queue);
	Levels	   *entry;
	int			n = DURABLE_LEVELS_UNKNOWN;
	TimestampTz now = GetCurrentTimestamp();

	SpinLockAcquire(&bucket->lock);
	entry = find_levels(bucket, queue);
	/* a queue that had too many may have had them once */
	if (entry != NULL && entry->n > DURABLE_LEVELS && now - entry->since > MANY_LEVELS_US)
	{
		entry->key.database = InvalidOid;
		entry->used = 0;
		entry = NULL;
	}
	if (entry == NULL)
		entry = make_levels(bucket, queue, now);
	*life = entry->life;
	if (entry->n > DURABLE_LEVELS)
		n = DURABLE_LEVELS_TOO_MANY;
	else if (entry->known)
	{
		n = entry->n;
		memcpy(levels, entry->levels, sizeof(int32) * n);
	}
	SpinLockRelease(&bucket->lock);
	return n;
}

void
durable_levels_learn(const DurableKey *queue, uint64 life, const int32 *levels, int n)
{
	LevelBucket *bucket = level_bucket_of(queue);
	Levels	   *entry;

	SpinLockAcquire(&bucket->lock);
	entry = find_levels(bucket, queue);
	if (entry != NULL && entry->life == life)
	{
		for (int i = 0; i < n; i++)
			add_level(entry, levels[i]);
		entry->known = true;
	}
	SpinLockRelease(&bucket->lock);
}

void
durable_levels_inserted(const DurableKey *queue, int32 level)
{
	LevelBucket *bucket;
	Levels	   *entry;

	if (table == NULL)
		return;
	bucket = level_bucket_of(queue);
	SpinLockAcquire(&bucket->lock);
	entry = find_levels(bucket, queue);
	if (entry != NULL)
		add_level(entry, level);
	SpinLockRelease(&bucket->lock);
}

static void
forget_levels(void)
{
	for (int i = 0; i < LEVEL_BUCKETS; i++)
	{
		LevelBucket *bucket = &table->level_buckets[i];

		SpinLockAcquire(&bucket->lock);
		for (int j = 0; j < BUCKET_ENTRIES; j++)
		{
			if (bucket->entries[j].key.database == MyDatabaseId)
				bucket->entries[j].key.database = InvalidOid;
		}
		SpinLockRelease(&bucket->lock);
	}
}

void
durable_hint_forget(void)
{
	if (table == NULL)
		return;
	forget_levels();
	for (int i = 0; i < BUCKETS; i++)
	{
		Bucket	   *bucket = &table->buckets[i];

		SpinLockAcquire(&bucket->lock);
		for (int j = 0; j < BUCKET_ENTRIES; j++)
		{
			Entry	   *entry = &bucket->entries[j];

			if (entry->key.database != MyDatabaseId)
				continue;
			/* scans under way may have missed something */
			memset(entry->watches, 0, sizeof(entry->watches));
			move_back(entry, DURABLE_POSITION_MIN);
		}
		SpinLockRelease(&bucket->lock);
	}
}

void
durable_hint_counters(uint64 *checks, uint64 *rescued)
{
	*checks = table ? pg_atomic_read_u64(&table->checks) : 0;
	*rescued = table ? pg_atomic_read_u64(&table->rescued) : 0;
}

/* No scan outlives the (sub)transaction that began it, but by an error. */
static void
release_held(void)
{
	while (nheld > 0)
	{
		DurableHint last = held[nheld - 1];

		nheld--;
		durable_hint_end(&last);
	}
}

static void
at_transaction_end(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_ABORT)
		release_held();
}

static void
at_subtransaction_end(SubXactEvent event, SubTransactionId subid,
					  SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		release_held();
}

void
durable_hint_init(void)
{
	RegisterXactCallback(at_transaction_end, NULL);
	RegisterSubXactCallback(at_subtransaction_end, NULL);
}
