/*-------------------------------------------------------------------------
 *
 * hint.h
 *	  Scan hints: how far the head of an ordered list is dead for good.
 *
 * A list is a range of an index (one priority of one queue, the delayed tasks,
 * the leases); a position in it is an int64 that grows along the index. The
 * hint of a list says: every entry before this position belongs to a row whose
 * deletion has committed. A scan may start there. Without shared memory every
 * hint is "the beginning".
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_HINT_H
#define DURABLE_HINT_H

#include "postgres.h"

#include "base/shmem.h"

/* What a scan took from the table when it began. */
typedef struct DurableHint
{
	DurableKey	key;
	int32		level;
	int64		start;			/* begin the scan here */
	int64		expected;		/* no live row should stand before this */
	uint64		generation;
	bool		tracked;		/* false: there is no entry to advance */
} DurableHint;

#define DURABLE_POSITION_MIN PG_INT64_MIN
#define DURABLE_POSITION_END PG_INT64_MAX

extern Size durable_hint_shmem_size(void);
extern void durable_hint_shmem_startup(void);

/* Call before the scan looks at the first index entry. */
extern void durable_hint_begin(DurableHint *hint, const DurableKey *key, int32 level);

/* The scan saw only entries that are dead for good before "position". */
extern void durable_hint_advance(const DurableHint *hint, int64 position);

/* The scan met a live row at "position", before the hint: mend the hint. */
extern void durable_hint_rescue(const DurableHint *hint, int64 position);

/* An entry now stands in the index at "position". Call after inserting it. */
extern void durable_hint_inserted(const DurableKey *key, int32 level, int64 position);

/* All of this database's hints, after its tables were written by SQL. */
extern void durable_hint_forget(void);

extern void durable_hint_counters(uint64 *full_passes, uint64 *rescued);

#endif							/* DURABLE_HINT_H */
