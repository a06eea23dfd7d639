/*-------------------------------------------------------------------------
 *
 * limiter_claim.h
 *	  Which of the tasks that wait at limiters a claim may have.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_LIMITER_CLAIM_H
#define DURABLE_LIMITER_CLAIM_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/snapshot.h"
#include "utils/timestamp.h"

#include "store/limiter.h"

/* Who found a limiter in use comes again this soon. */
#define DURABLE_TURNED_AWAY_US (20 * USECS_PER_SEC / 1000)

typedef struct DurableLimits DurableLimits;

/* Locks those limiters of the queues that nobody else has in hand; NULL: there are
 * none. Call before the snapshot of the claim is taken; paused queues are left out by
 * the caller. */
extern DurableLimits *durable_limits_lock(text *namespace, text **queues, int nqueues,
												TimestampTz now);
/* … and with that snapshot. */
extern void durable_limits_open(DurableLimits *admission, Snapshot snapshot);

/* The best that may start now: its priority and number; false: nothing may. */
extern bool durable_limits_best(DurableLimits *admission, int32 *priority, int64 *id);
/* Takes it: it holds its slot now. false: it is gone, ask again. An entry whose task was not
 * found can only be left by hand, and goes. */
extern bool durable_limits_take(DurableLimits *admission, bool found, text **queue);
/* Leaves it to other claims, in its place. */
extern void durable_limits_pass_by(DurableLimits *admission);

/* Writes what was counted. */
extern void durable_limits_close(DurableLimits *admission);

/* Whether, to all appearances, a claim would be given something; *next is when a window
 * opens, or when to come again because somebody else had a limiter in hand, if that
 * is before it. Reads only. */
extern bool durable_limits_exists(Snapshot snapshot, text *namespace, text *queue,
								  TimestampTz now, TimestampTz *next);

/* When the claims of this session since the last call may be worth repeating: a window
 * opens, or a limiter was in use. */
extern TimestampTz durable_limits_again(void);

/* How much of the window is used (-1: there is none), and when it opens (0: it is). */
extern int	durable_limits_window(const DurableLimiter *limiter, TimestampTz now,
									 TimestampTz *opens_at);

/* Wakes those who wait for windows that are open now; when the next one opens. */
extern TimestampTz durable_limits_windows(TimestampTz now);

#endif							/* DURABLE_LIMITER_CLAIM_H */
