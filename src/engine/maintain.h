/*-------------------------------------------------------------------------
 *
 * maintain.h
 *	  What becomes due by itself: delayed tasks, lapsed claims, old results.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_MAINTAIN_H
#define DURABLE_MAINTAIN_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "store/lease.h"

/* What one call moves: due tasks of each queue, and lapsed claim rounds of the
 * namespace. Inside a transaction block a claim moves only what it can use. */
#define DURABLE_CLAIM_TASKS 50
#define DURABLE_CLAIM_ROUNDS 10
#define DURABLE_BLOCK_ROUNDS 1
#define DURABLE_WAIT_TASKS 500
#define DURABLE_WAIT_ROUNDS 100

/* Rounds looked at for one that concerns the caller's queues. */
#define DURABLE_ROUNDS_SEEN 100

/* Each skips what another transaction holds, and says in *next when it is worth
 * looking again. They return how many tasks (results) went to their queue.
 * Without queues any round of the namespace is taken over. *max_rounds goes down
 * by the rounds that were changed. */
extern int	durable_promote_due(text *namespace, text *queue, TimestampTz now, int max_tasks,
								TimestampTz *next);
extern int	durable_take_over_lapsed(text *namespace, text **queues, int nqueues,
									 TimestampTz now, int *max_rounds, TimestampTz *next);

/* Whether the round holds a task of one of the queues. */
extern bool durable_lease_concerns(const DurableLease *lease, text **queues, int nqueues);

/* Both, for some queues; returns when the next of them is due. Rounds that hold
 * tasks of these queues come first; with "own", no others are taken over. */
extern TimestampTz durable_maintain(text *namespace, text **queues, int nqueues, bool own,
									TimestampTz now, int max_tasks, int max_rounds);

/* Both, for the whole database; adds up what was done. */
extern void durable_maintain_all(TimestampTz now, int max, int64 *promoted,
								 int64 *taken_over, int64 *rounds);

#endif							/* DURABLE_MAINTAIN_H */
