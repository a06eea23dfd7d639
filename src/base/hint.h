/*-------------------------------------------------------------------------
 *
 * hint.h
 *	  Scan hints: how far the head of an ordered list is dead for good.
 *
 * A list is a range of an index (one priority of one queue, the delayed tasks,
 * the leases); a position in it is an int64 that grows along the index. The
 * hint of a list says: every entry before this position belongs to a row whose
 * deletion has committed, but for a few, its holes. A scan looks at the holes
 * and starts at the position. Without shared memory every hint is "the
 * beginning".
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_HINT_H
#define DURABLE_HINT_H

#include "postgres.h"

#include "base/shmem.h"

#define DURABLE_HINT_HOLES 8

/* What a scan took from the table when it began. */
typedef struct DurableHint
{
	DurableKey	key;
	int32		level;
	int64		start;			/* begin the scan here */
	int64		expected;		/* no live row should stand before this */
	uint64		watch;			/* what is inserted meanwhile, or 0 */
	bool		check;			/* first look at some entries from check_from on */
	int64		check_from;
	bool		tracked;		/* false: there is no entry to advance */
	int			nholes;			/* before start, ascending */
	int64		holes[DURABLE_HINT_HOLES];
} DurableHint;

#define DURABLE_POSITION_MIN PG_INT64_MIN
#define DURABLE_POSITION_END PG_INT64_MAX

extern Size durable_hint_shmem_size(void);
extern void durable_hint_shmem_startup(void);
extern void durable_hint_init(void);

/* Call before the scan looks at the first index entry. */
extern void durable_hint_begin(DurableHint *hint, const DurableKey *key, int32 level);

/* Whether all entries of the list are dead for good, so that a scan can be left out. Not
 * when a scan is due that checks just that. */
extern bool durable_hint_is_spent(const DurableKey *key, int32 level);

/* The scan is over without having advanced the hint. */
extern void durable_hint_end(const DurableHint *hint);

/* How far a check got; DURABLE_POSITION_MIN when it reached the hint. */
extern void durable_hint_checked(const DurableHint *hint, int64 position);

/* Before "position" the scan, which looked at the hint's holes too, saw only
 * entries that are dead for good, but for these (ascending). The scan goes on,
 * or is over. */
extern void durable_hint_advance(const DurableHint *hint, int64 position,
								 const int64 *holes, int nholes, bool over);

/* The scan took a row at "position": if the hint should have hidden it, mend
 * the hint and count. */
extern void durable_hint_rescue(const DurableHint *hint, int64 position);

/* Entries now stand in the index from "first" to "last". Call after inserting
 * them. */
extern void durable_hint_inserted(const DurableKey *key, int32 level, int64 first, int64 last);

/* All of this database's hints, after its tables were written by SQL. */
extern void durable_hint_forget(void);

/*
 * The priorities of a queue that may have rows, highest first: how many. When
 * they are not known yet the caller enumerates the index and teaches them;
 * "life" says to which incarnation of the table's entry, so that a lost one
 * learns nothing.
 */
#define DURABLE_LEVELS 16
#define DURABLE_LEVELS_UNKNOWN (-1)
#define DURABLE_LEVELS_TOO_MANY (-2)

extern int	durable_levels_begin(const DurableKey *queue, int32 *levels, uint64 *life);
extern void durable_levels_learn(const DurableKey *queue, uint64 life,
								 const int32 *levels, int n);
extern void durable_levels_inserted(const DurableKey *queue, int32 level);

extern void durable_hint_counters(uint64 *checks, uint64 *rescued);

#endif							/* DURABLE_HINT_H */
