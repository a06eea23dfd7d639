/*-------------------------------------------------------------------------
 *
 * limiter_slot.h
 *	  durable.limiter_slot: who holds a slot; and what is counted of limiters
 *	  (durable.limiter_freed, _state, _key, _tick).
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_LIMITER_SLOT_H
#define DURABLE_STORE_LIMITER_SLOT_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "base/walk.h"
#include "store/limited_by.h"

/* Stamps are times, in fractions of a microsecond: there is room between two of them for
 * the keys that come in between, each with a position of its own. */
#define DURABLE_STAMP(time) ((time) * INT64CONST(4096))

/* What is counted of a limiter; all 0 before the first admission. */
typedef struct DurableLimiterState
{
	bool		stored;
	ItemPointerData tid;
	int64		version;
	TimestampTz window_start;
	TimestampTz opens_at;		/* 0: the window is not full */
	int64		first_tick;
	int64		next_tick;
	int64		seen_tick;		/* next_tick when it was read: later ones are not seen */
	int64		stamp;
	int64		floor;
	int64		floor_task;
	int64		blocked;
	int			running;
	int			used;
	int			key_limit;		/* DURABLE_NO_LIMIT: none */
} DurableLimiterState;

/* … and of one of its keys */
typedef struct DurableKeyState
{
	bool		stored;
	bool		changed;
	ItemPointerData tid;
	int64		version;
	int64		served;
	int			running;
	int			blocked;
	text	   *key;
} DurableKeyState;

/* The newest that the snapshot sees; what is not there is all 0. */
extern void durable_limiter_state_read(int64 limiter, Snapshot snapshot,
									   DurableLimiterState *state);
extern void durable_key_state_read(const DurableLimitedBy *gate, Snapshot snapshot,
								   DurableKeyState *state);
/* Under the limiter's lock: the next version takes the place of what was read. */
extern void durable_limiter_state_write(DurableWriter *writer, int64 limiter,
										DurableLimiterState *state);
extern void durable_key_state_write(DurableWriter *writer, int64 limiter, int64 version,
									DurableKeyState *state);

extern void durable_limiter_slot_insert(DurableWriter *writer, int64 id, const DurableLimitedBy *gate);
/* By the active snapshot; the key is copied. */
extern bool durable_limiter_slot_find(int64 id, DurableLimitedBy *gate, ItemPointer tid);
extern int64 durable_limiter_slot_count(int64 limiter);
/* gives back those of tasks that are gone; how many */
extern int	durable_limiter_slots_mend(int64 limiter);

extern void durable_freed_insert(DurableWriter *writer, const DurableLimitedBy *gate);
/* over what was given back, oldest first; the key of a row holds until the next */
extern void durable_freed_open(DurableWalk *walk, Snapshot snapshot, int64 limiter);
extern bool durable_freed_next(DurableWalk *walk, ItemPointer tid, text **key);
/* whether the hint knows that there is nothing; false: look */
extern bool durable_freed_is_spent(int64 limiter);
extern bool durable_freed_exists(Snapshot snapshot, int64 limiter);

extern void durable_tick_insert(DurableWriter *writer, int64 limiter, int64 n, TimestampTz at);
/* false: it is not there */
extern bool durable_tick_find(int64 limiter, int64 n, Snapshot snapshot, TimestampTz *at,
							  ItemPointer tid);

#endif							/* DURABLE_STORE_LIMITER_SLOT_H */
