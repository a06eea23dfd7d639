/*-------------------------------------------------------------------------
 *
 * retention.h
 *	  Deleting runs: by policies, by hand, by a filter.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_ENGINE_RETENTION_H
#define DURABLE_ENGINE_RETENTION_H

#include "postgres.h"

#include "utils/jsonb.h"
#include "utils/timestamp.h"

/* One batch of what retention policies say, in the caller's transaction, of at most
 * "max" runs and trees; how many runs are gone. *more: there is more to do now. Does
 * nothing while another session's batch is open, or at an isolation level with one
 * snapshot per transaction. */
extern int64 durable_retention_pass(TimestampTz now, int max, bool *more);

/* How many runs a batch should take, for one that is to be over in a fixed time; tell
 * how long it took (in us), and whether there is more. */
extern int	durable_retention_batch_size(void);
extern void durable_retention_adapt(int64 took, bool more);

/* Deletes a run's tree; waits for who holds a run of it. Returns how many runs are gone,
 * 0 when there is none of this number, -1 when *live, of the tree, has not ended. */
extern int64 durable_run_delete(int64 id, int64 *live);

/* Deletes what the filter fits, at most max_runs and the last one's tree. */
extern int64 durable_runs_purge(Jsonb *filter, text *namespace, bool force, int max_runs);

#endif							/* DURABLE_ENGINE_RETENTION_H */
