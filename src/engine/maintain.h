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
 * namespace, those of the caller's queues and others. Inside a transaction block
 * a claim moves only what it can use. */
#define DURABLE_CLAIM_TASKS 50
#define DURABLE_CLAIM_ROUNDS 10
#define DURABLE_BLOCK_ROUNDS 1
#define DURABLE_WAIT_TASKS 500
#define DURABLE_WAIT_ROUNDS 100

/* Rounds that one call looks at and does not move, or finds empty. */
#define DURABLE_ROUNDS_SEEN 100

/* Skips what another transaction holds, and says in *next when it is worth
 * looking again. How many tasks went to their queue. */
extern int	durable_promote_due(text *namespace, text *queue, TimestampTz now, int max_tasks,
								TimestampTz *next);

typedef struct DurableTakeover
{
	int			own_rounds;		/* how many with tasks of the queues may move */
	int			other_rounds;	/* and how many others */
	int			tasks;			/* what moved */
	int			rounds;			/* rounds that ended or got shorter */
	TimestampTz next;
} DurableTakeover;

extern void durable_take_over_lapsed(text *namespace, text **queues, int nqueues,
									 TimestampTz now, DurableTakeover *takeover);

/* Whether the round holds a task of one of the queues. */
extern bool durable_lease_concerns(const DurableLease *lease, text **queues, int nqueues);

/* Both, for some queues; returns when the next of them is due. */
extern TimestampTz durable_maintain(text *namespace, text **queues, int nqueues,
									TimestampTz now, int max_tasks, int own_rounds,
									int other_rounds);

/* Both, for the whole database; adds up what was done. */
extern void durable_maintain_all(TimestampTz now, int max, int64 *promoted,
								 int64 *taken_over, int64 *rounds);

#endif							/* DURABLE_MAINTAIN_H */
