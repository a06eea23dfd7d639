/*-------------------------------------------------------------------------
 *
 * claim.h
 *	  Claiming tasks, and knowing whether there are any.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_CLAIM_H
#define DURABLE_CLAIM_H

#include "postgres.h"

#include "engine/fresh.h"
#include "store/lease.h"

typedef struct DurableClaim
{
	text	   *namespace;
	text	  **queues;			/* no duplicates */
	int			nqueues;
	int			max_tasks;
	const Interval *lease;
	text	   *worker;			/* or NULL */
	bool		in_session;		/* no turns of external workflows */
	DurableFresh *fresh;		/* what this command has dispatched so far, or NULL */
} DurableClaim;

/* Called for each task in claim order; the row's values hold during the call. The
 * lease is written afterwards, with what the sink noted in it. */
typedef void (*DurableClaimSink) (const DurableRow *task, DurableLease *lease, void *arg);

/* Access was checked by the caller. Returns how many were claimed. */
extern int	durable_claim_tasks(const DurableClaim *claim, DurableClaimSink sink, void *arg);

/* Whether this session's last claim has not seen all that is ready: it had parked much,
 * or given slots to runs that were parked. Says so once. */
extern bool durable_claim_ended_early(void);

/* Whether something is ready that nobody is claiming. Reads only. */
extern bool durable_ready_exists(text *namespace, text **queues, int nqueues);

/* Whether a claim of these queues would find something now. Reads only. *next: when the
 * window of a limiter opens, if that is before it. */
extern bool durable_work_exists(text *namespace, text **queues, int nqueues, TimestampTz now,
								TimestampTz *next);

#endif							/* DURABLE_CLAIM_H */
