/*-------------------------------------------------------------------------
 *
 * walk.h
 *	  Walking an index in order, from where its hint says to begin.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_WALK_H
#define DURABLE_WALK_H

#include "postgres.h"

#include "access/skey.h"

#include "base/hint.h"
#include "base/rel.h"

/* How many dead entries a walk in order of time passes to find out when it is
 * worth looking again. */
#define DURABLE_WALK_PATIENCE 200

/* Entries before the hint that one check looks at. */
#define DURABLE_WALK_CHECK 2000

/* After so many dead entries the hint is moved, in case the walk is cancelled. */
#define DURABLE_WALK_PUBLISH 1000

#define DURABLE_WALK_KEYS 5

typedef struct DurableWalk
{
	Relation	rel;
	Relation	index;
	IndexScanDesc scan;
	TupleTableSlot *slot;
	int			nkeys;			/* the last is on the position */
	ScanKeyData keys[DURABLE_WALK_KEYS];
	int			position_column;	/* of the index, from 1; an 8-byte column */
	int64		position;			/* of the current entry */

	DurableHint hint;
	int			check_left;		/* entries that the check may still look at; 0: over */
	int			next_hole;		/* the hole to look at next */
	bool		in_holes;
	bool		intact;			/* all entries met are dead for good, but for */
	int			nholes;			/* these */
	int			unpublished;	/* dead entries since the hint was moved */
	int64		holes[DURABLE_HINT_HOLES];
} DurableWalk;

extern void durable_walk_open(DurableWalk *walk, DurableRel table, DurableRel index,
							  Snapshot snapshot, int nkeys, int position_column);
extern void durable_walk_close(DurableWalk *walk);

/* Start (over) with these keys, of which the last is "position >= something".
 * With a hint, durable_hint_begin() came first: the walk begins with its holes,
 * and what it meets moves the hint when it ends. */
extern void durable_walk_start(DurableWalk *walk, ScanKey keys, const DurableHint *hint);

/* The next index entry, dead or alive: its position. */
extern bool durable_walk_next(DurableWalk *walk);

/* Whether the entry's row is visible; it is then in walk->slot. */
extern bool durable_walk_visible(DurableWalk *walk);

/* The walk stops before its current entry, or has met them all. */
extern void durable_walk_stop(DurableWalk *walk, bool exhausted);

#endif							/* DURABLE_WALK_H */
