/*-------------------------------------------------------------------------
 *
 * admission.h
 *	  Which of the tasks that wait at limiters a claim may have.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_ADMISSION_H
#define DURABLE_ADMISSION_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/snapshot.h"
#include "utils/timestamp.h"

#include "store/limiter.h"

/* Who found a limiter in use comes again this soon. */
#define DURABLE_TURNED_AWAY_US (20 * USECS_PER_SEC / 1000)

typedef struct DurableAdmission DurableAdmission;

/* Locks those limiters of the queues that nobody else has in hand; NULL: there are
 * none. Call before the snapshot of the claim is taken; paused queues are left out by
 * the caller. */
extern DurableAdmission *durable_admission_lock(text *namespace, text **queues, int nqueues,
												TimestampTz now);
/* … and with that snapshot. */
extern void durable_admission_open(DurableAdmission *admission, Snapshot snapshot);

/* The best that may start now: its priority and number; false: nothing may. */
extern bool durable_admission_best(DurableAdmission *admission, int32 *priority, int64 *id);
/* Takes it: it holds its slot now. false: it is gone, ask again. */
extern bool durable_admission_take(DurableAdmission *admission, text **queue);

/* Writes what was counted. */
extern void durable_admission_close(DurableAdmission *admission);

/* Whether, to all appearances, a claim would be given something; *next is when a window
 * opens, or when to come again because somebody else had a limiter in hand, if that
 * is before it. Reads only. */
extern bool durable_admission_exists(Snapshot snapshot, text *namespace, text **queues,
									 int nqueues, TimestampTz now, TimestampTz *next);

/* When the claims of this session since the last call may be worth repeating: a window
 * opens, or a limiter was in use. */
extern TimestampTz durable_admission_again(void);

/* How much of the window is used (-1: there is none), and when it opens (0: it is). */
extern int	durable_admission_window(const DurableLimiter *limiter, TimestampTz now,
									 TimestampTz *opens_at);

/* Wakes those who wait for windows that are open now; when the next one opens. */
extern TimestampTz durable_admission_windows(TimestampTz now);

#endif							/* DURABLE_ADMISSION_H */
