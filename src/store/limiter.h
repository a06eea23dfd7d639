/*-------------------------------------------------------------------------
 *
 * limiter.h
 *	  durable.limiter: what limiters allow, and durable.limiter_queue: where they
 *	  are named.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_LIMITER_H
#define DURABLE_STORE_LIMITER_H

#include "postgres.h"

#include "base/rel.h"
#include "base/shmem.h"
#include "utils/timestamp.h"

#define DURABLE_NO_LIMIT (-1)

typedef struct DurableLimiter
{
	int64		id;
	int			concurrency;	/* DURABLE_NO_LIMIT: any number */
	int			key_concurrency;
	int			rate_limit;
	int64		rate_us;
	bool		sliding;
	bool		by_key;
	bool		lifo;
	bool		paused;
} DurableLimiter;

/* What register_limiter() was given. */
typedef struct DurableLimiterSpec
{
	text	   *namespace;
	text	   *name;
	DurableLimiter limits;
	Interval   *rate_period;
} DurableLimiterSpec;

/* By the newest snapshot. */
extern bool durable_limiter_find(text *namespace, text *name, DurableLimiter *limiter);
extern bool durable_limiter_read(int64 id, DurableLimiter *limiter);

/* Inserts, or changes the row of that name: its id; *inserted. Waits for who changes
 * it, too. */
extern int64 durable_limiter_put(const DurableLimiterSpec *spec, TimestampTz now, bool *inserted);
/* false: it is so already */
extern bool durable_limiter_set_paused(int64 id, bool paused, TimestampTz now);
/* With all that was counted of it. */
extern void durable_limiter_delete(int64 id);
/* Whether a task that is not settled, or a slot, names it. */
extern bool durable_limiter_is_named(int64 id);
/* Its turns begin anew: the order in which keys come has changed. */
extern void durable_limiter_reorder(const DurableLimiter *limiter);
/* After a restore: nothing holds a slot; what is neither claimed nor delayed waits. */
extern void durable_limiters_rebuild(void);
/* Deletes keys that have nothing running or waiting and were served before; how many. */
extern uint64 durable_limiter_keys_expire(int64 limiter, int64 served_before, int max);

/* The limiters that tasks of a queue have named, palloc'd. */
extern int	durable_limiters_of_queue(text *namespace, text *queue, int64 **limiters);
/* The queues of a limiter, palloc'd texts of the one namespace. */
extern int	durable_limiter_queues(int64 limiter, text **namespace, text ***queues);
/* Adds the pair unless it is seen. */
extern void durable_limiter_add_queue(int64 limiter, text *namespace, text *queue);
/* All limiters that have queues. */
extern int	durable_limiters_in_use(int64 **limiters);

#endif							/* DURABLE_STORE_LIMITER_H */
