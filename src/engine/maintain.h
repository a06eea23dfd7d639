/*-------------------------------------------------------------------------
 *
 * maintain.h
 *	  What becomes due by itself: delayed tasks, lapsed claims, timeouts.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_MAINTAIN_H
#define DURABLE_MAINTAIN_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/timestamp.h"

#include "store/lease.h"

/* What one call moves, of each queue: due tasks, and lapsed claim rounds. Inside
 * a transaction block a claim moves only what it can use. */
#define DURABLE_CLAIM_TASKS 50
#define DURABLE_CLAIM_ROUNDS 10
#define DURABLE_BLOCK_ROUNDS 1
#define DURABLE_WAIT_TASKS 500
#define DURABLE_WAIT_ROUNDS 100

/* How long the claim of a session that works itself lasts; while it lives it is
 * renewed by whoever finds it lapsed. */
#define DURABLE_SESSION_LEASE_US (10 * USECS_PER_SEC)

/* A queue that has ready tasks gets DURABLE_CLAIM_TASKS due ones this often. */
#define DURABLE_BUSY_QUEUE_US (USECS_PER_SEC / 10)

/* Rounds that one call looks at and finds held or empty. */
#define DURABLE_ROUNDS_SEEN 100

/* Each skips what another transaction holds, and says in *next when it is worth
 * looking again. They return how many tasks (results) went to their queue; the
 * second adds the rounds that ended or got shorter to *rounds. */
extern int	durable_promote_due(text *namespace, text *queue, TimestampTz now, int max_tasks,
								TimestampTz *next);
extern int	durable_take_over_lapsed(text *namespace, text *queue, TimestampTz now,
									 int max_rounds, int *rounds, TimestampTz *next);

/* Whether the round holds a task of one of the queues. */
extern bool durable_lease_concerns(const DurableLease *lease, text **queues, int nqueues);

/* Both and timeouts, for some queues; returns when the next of them is due, and adds
 * the due tasks to *moved. */
extern TimestampTz durable_maintain(text *namespace, text **queues, int nqueues,
									TimestampTz now, int max_tasks, int max_rounds,
									int *moved);

/* What a pass over the whole database did. */
typedef struct DurableMaintained
{
	int64		promoted;
	int64		taken_over;		/* tasks of lapsed rounds, and results */
	int64		rounds;			/* that ended or got shorter */
	int64		timed_out;
	int64		fired;			/* runs that schedules started */
} DurableMaintained;

/* Due tasks, lapsed rounds, timeouts and schedules of the whole database, at most "max"
 * of each; adds up what was done, and returns when the next of them is due (not after
 * now: there is more). slowly: only some due tasks for queues that have ready ones. */
extern TimestampTz durable_maintain_all(TimestampTz now, int max, bool slowly,
										DurableMaintained *done);

/* Takes over the claims of sessions that are gone, whatever their leases say.
 * Returns how many tasks went back. */
extern int	durable_take_over_dead(TimestampTz now);

/* Deletes what nobody needs any more, at most "max" of each kind. */
extern void durable_maintain_old(TimestampTz now, int max, int64 *results,
								 int64 *heartbeats, int64 *grants);

#endif							/* DURABLE_MAINTAIN_H */
