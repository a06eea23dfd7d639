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

/* Skips what another transaction holds, and says in *next when it is worth looking
 * again. Returns how many tasks (results) went to their queue; adds the rounds that
 * ended or got shorter to *rounds. */
extern int	durable_take_over_lapsed(text *namespace, text *queue, TimestampTz now,
									 int max_rounds, int *rounds, TimestampTz *next);

/* Whether the round holds a task of one of the queues. */
extern bool durable_lease_concerns(const DurableLease *lease, text **queues, int nqueues);

/* Both and timeouts, for some queues; returns when the next of them is due, and adds
 * the due tasks to *moved. */
extern TimestampTz durable_maintain(text *namespace, text **queues, int nqueues,
									TimestampTz now, int max_tasks, int max_rounds,
									int *moved);

/* What a pass over the whole database counts; sweep() shows it by these names. */
typedef enum DurableCount
{
	COUNT_PROMOTED,
	COUNT_TAKEN_OVER,			/* tasks of lapsed rounds, and results */
	COUNT_LEASES_ENDED,			/* or got shorter */
	COUNT_RESULTS_EXPIRED,
	COUNT_HEARTBEATS_EXPIRED,
	COUNT_GRANTS_EXPIRED,
	COUNT_TIMED_OUT,
	COUNT_FIRED,				/* runs that schedules started */
	COUNT_SIGNALS_EXPIRED,
	COUNT_RUNS_DELETED,			/* by retention */
	COUNT_FAILED,				/* parts */
	COUNTS
} DurableCount;

extern const char *const durable_count_names[COUNTS];

/* A pass over the whole database: what it may do, and what came of it. */
typedef struct DurableSweep
{
	TimestampTz now;
	TimestampTz end;			/* by the real clock: no further queue is begun after it */
	int			max;			/* of each part */
	bool		slowly;			/* only some due tasks for queues that have ready ones */
	bool		dead;			/* claims of sessions that are gone, too */
	TimestampTz next;			/* when something is due again; not after now: there is more */
	int64		counts[COUNTS];
} DurableSweep;

/* Each part is bounded, skips what others hold, and leaves alone what the others do, so
 * that one that fails does not keep the others (sweep.c). */
typedef struct DurablePart
{
	const char *name;
	bool		old;			/* deletes what is old: once a minute will do */
	void		(*run) (DurableSweep *sweep);
} DurablePart;

#define DURABLE_PARTS 14
#define DURABLE_PART_RETENTION 13	/* the scheduler makes it in batches of its own */

extern const DurablePart durable_parts[DURABLE_PARTS];

#endif							/* DURABLE_MAINTAIN_H */
