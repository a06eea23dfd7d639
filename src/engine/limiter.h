/*-------------------------------------------------------------------------
 *
 * limiter.h
 *	  Putting tasks under a limiter, giving slots back, changing limiters. Who gets a
 *	  slot is in limiter_claim.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_ENGINE_LIMITER_H
#define DURABLE_ENGINE_LIMITER_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "engine/tables.h"
#include "store/limited_by.h"
#include "store/limiter.h"

/* 42704 unless there is one of this name. It cannot be dropped before the transaction
 * ends. */
extern int64 durable_limiter_require(text *namespace, text *name);
/* false instead */
extern bool durable_limiter_use(text *namespace, text *name, int64 *id);

/* Into the list where the tasks can be claimed, or to their limiter: at once. gate
 * may be NULL. All of one queue and priority. */
extern void durable_limiter_enlist(DurableTables *tables, const DurableLimitedBy *gate,
								   const int64 *ids, int n, int32 priority,
								   text *namespace, text *queue);
/* the same of tasks that are just being made, under numbers that nobody had */
extern void durable_limiter_enlist_new(DurableTables *tables, const DurableLimitedBy *gate,
									   const int64 *ids, int n, int32 priority,
									   text *namespace, text *queue);

/* The task has left its claim, or its step has been recorded: the slot that it may
 * hold is given back when the transaction commits. */
extern void durable_limiter_leave(DurableTables *tables, const DurableRow *task);
extern void durable_limiter_leave_number(DurableTables *tables, int64 id);
/* The same for one whose claim is being settled, by a lease that the command has read at its
 * beginning, or that was in nobody's hand since. */
extern void durable_limiter_leave_settled(DurableTables *tables, const DurableRow *task);

/* Those who wait for work in the queues of the limiter look when this commits. */
extern void durable_limiter_wake(int64 limiter, int count);

/* The lock under which everything is counted. */
extern bool durable_limiter_try_lock(int64 limiter);
extern void durable_limiter_unlock(int64 limiter);

/* false: it was changed. Waits for claims under way if the order changes. */
extern bool durable_limiter_register(const DurableLimiterSpec *spec);
typedef enum DurableDropped
{
	LIMITER_DROPPED,
	LIMITER_UNKNOWN,
	LIMITER_IN_USE
} DurableDropped;
extern DurableDropped durable_limiter_drop(text *namespace, text *name);

/* Forgets keys that were last served long ago, at most "max" of each limiter, and gives
 * back what tasks hold that are gone, which only a deletion by hand can leave. */
extern void durable_limiters_expire(TimestampTz now, int max);

#endif							/* DURABLE_ENGINE_LIMITER_H */
