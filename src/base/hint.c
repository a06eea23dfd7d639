/*-------------------------------------------------------------------------
 *
 * hint.c
 *	  Scan hints: how far the head of an ordered list is dead for good.
 *
 * Why a hint never hides a row. A scan moves the hint to P only when every
 * entry that it met before P was dead: inserted by an aborted transaction, or
 * deleted by a committed one. An insertion or deletion in progress ends that
 * prefix. What it did not meet is an entry that was put behind its back: with
 * a position before P, into a part of the index that it had passed. Whoever
 * inserts an entry therefore reports it here after it stands in the index,
 * still inside its transaction:
 *
 *	- reported after the scan set P: the report moves the hint back;
 *	- reported before the scan set P: the report raised the generation since
 *	  the scan began, and the scan clips P to the reported position. Only the
 *	  last RECENT reports are kept; a scan that missed more sets nothing.
 *
 * A scan that begins after the report meets the entry itself, and it ends the
 * prefix until the inserter commits. So nothing depends on when commits happen,
 * and prepared transactions need no care.
 *
 * The table is a fixed array of small buckets, each under its own spinlock;
 * when a bucket is full the least recently used entry is given up, which
 * only loses an optimisation. At times (FULL_PASS_US) a scan is sent over the
 * whole list all the same: if it finds a row before the hint, that row is
 * claimed, the hint is mended and the event counted. The count has to stay 0.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/timestamp.h"

#include "base/guc.h"
#include "base/hint.h"

#define BUCKETS 512
#define BUCKET_ENTRIES 4
#define RECENT 32
#define FULL_PASS_US (10 * USECS_PER_SEC)

typedef struct Entry
{
	DurableKey	key;			/* database 0: unused */
	int32		level;
	int64		position;
	uint64		generation;		/* reports so far; never goes back */
	uint64		used;			/* for choosing a victim */
	TimestampTz last_full;
	int64		recent[RECENT]; /* positions of the last reports */
} Entry;

/* Everything in a bucket is protected by its lock. */
typedef struct Bucket
{
	slock_t		lock;
	uint64		clock;
	uint64		generation;		/* the highest of any entry so far */
	Entry		entries[BUCKET_ENTRIES];
} Bucket;

typedef struct HintTable
{
	pg_atomic_uint64 full_passes;
	pg_atomic_uint64 rescued;
	Bucket		buckets[BUCKETS];
} HintTable;

static HintTable *table = NULL;

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
	pg_atomic_init_u64(&table->full_passes, 0);
	pg_atomic_init_u64(&table->rescued, 0);
	for (int i = 0; i < BUCKETS; i++)
		SpinLockInit(&table->buckets[i].lock);
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
	/* no two lives of a list share a generation, in whichever slot: reports
	 * between them went unheard, and whoever began before has missed them */
	bucket->generation += 2 * RECENT;
	victim->generation = bucket->generation;
	victim->used = ++bucket->clock;
	victim->last_full = now;
	return victim;
}

void
durable_hint_begin(DurableHint *hint, const DurableKey *key, int32 level)
{
	Bucket	   *bucket;
	Entry	   *entry;
	TimestampTz now;
	bool		full;

	hint->start = hint->expected = DURABLE_POSITION_MIN;
	hint->tracked = false;
	if (table == NULL || !durable_use_scan_hints)
		return;

	now = GetCurrentTimestamp();
	bucket = bucket_of(key, level);
	SpinLockAcquire(&bucket->lock);
	entry = find_entry(bucket, key, level);
	if (entry == NULL)
		entry = make_entry(bucket, key, level, now);
	full = now - entry->last_full >= FULL_PASS_US;
	if (full)
		entry->last_full = now;
	else
		hint->start = entry->position;
	hint->expected = entry->position;
	hint->generation = entry->generation;
	SpinLockRelease(&bucket->lock);

	hint->key = *key;
	hint->level = level;
	hint->tracked = true;
	if (full)
		pg_atomic_fetch_add_u64(&table->full_passes, 1);
}

void
durable_hint_advance(const DurableHint *hint, int64 position)
{
	Bucket	   *bucket;
	Entry	   *entry;

	if (!hint->tracked || position <= hint->expected)
		return;

	bucket = bucket_of(&hint->key, hint->level);
	SpinLockAcquire(&bucket->lock);
	entry = find_entry(bucket, &hint->key, hint->level);
	if (entry != NULL && entry->generation - hint->generation <= RECENT)
	{
		for (uint64 g = hint->generation; g < entry->generation; g++)
			position = Min(position, entry->recent[g % RECENT]);
		entry->position = Max(entry->position, position);
	}
	SpinLockRelease(&bucket->lock);
}

void
durable_hint_rescue(const DurableHint *hint, int64 position)
{
	Bucket	   *bucket;
	Entry	   *entry;

	if (!hint->tracked || position >= hint->expected)
		return;

	bucket = bucket_of(&hint->key, hint->level);
	SpinLockAcquire(&bucket->lock);
	entry = find_entry(bucket, &hint->key, hint->level);
	/* reports since the scan began explain the row: then nothing was wrong */
	if (entry != NULL && entry->generation == hint->generation &&
		entry->position > position)
		entry->position = position;
	else
		entry = NULL;
	SpinLockRelease(&bucket->lock);

	if (entry != NULL)
		pg_atomic_fetch_add_u64(&table->rescued, 1);
}

void
durable_hint_inserted(const DurableKey *key, int32 level, int64 position)
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
		entry->recent[entry->generation % RECENT] = position;
		entry->generation++;
		bucket->generation = Max(bucket->generation, entry->generation);
		entry->position = Min(entry->position, position);
	}
	SpinLockRelease(&bucket->lock);
}

void
durable_hint_forget(void)
{
	for (int i = 0; table != NULL && i < BUCKETS; i++)
	{
		Bucket	   *bucket = &table->buckets[i];

		SpinLockAcquire(&bucket->lock);
		for (int j = 0; j < BUCKET_ENTRIES; j++)
		{
			Entry	   *entry = &bucket->entries[j];

			if (entry->key.database != MyDatabaseId)
				continue;
			/* as in make_entry: scans under way have missed something */
			bucket->generation += 2 * RECENT;
			entry->generation = bucket->generation;
			entry->position = DURABLE_POSITION_MIN;
		}
		SpinLockRelease(&bucket->lock);
	}
}

void
durable_hint_counters(uint64 *full_passes, uint64 *rescued)
{
	*full_passes = table ? pg_atomic_read_u64(&table->full_passes) : 0;
	*rescued = table ? pg_atomic_read_u64(&table->rescued) : 0;
}
