/*-------------------------------------------------------------------------
 *
 * quota.h
 *	  durable.quota: live runs that were started under a concurrency key.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_QUOTA_H
#define DURABLE_STORE_QUOTA_H

#include "postgres.h"

/* The key, exclusively to the end of the transaction. false: somebody else has it, and
 * this does not wait. */
extern bool durable_quota_lock(text *namespace, text *key, bool wait);

/* How many runs are active under it, as the active snapshot sees it; no more than max
 * are counted. */
extern int	durable_quota_count(text *namespace, text *key, int max);

extern void durable_quota_insert(text *namespace, text *key, int64 run);
/* The run has ended. Nobody else touches its row. */
extern void durable_quota_delete(text *namespace, text *key, int64 run);

#endif							/* DURABLE_STORE_QUOTA_H */
