/*-------------------------------------------------------------------------
 *
 * retry.h
 *	  How long to wait before the next attempt.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_RETRY_H
#define DURABLE_RETRY_H

#include "postgres.h"

typedef struct DurableRetryPolicy
{
	int64		backoff;		/* us; 0 or less = no wait */
	int64		backoff_max;	/* us; negative = none */
	bool		exponential;
	bool		jitter;
} DurableRetryPolicy;

/* The wait in microseconds after the attempt (1 = the first) failed; random is
 * in [0, 1). Pure. */
extern int64 durable_retry_delay(const DurableRetryPolicy *policy, int attempt, double random);

#endif							/* DURABLE_RETRY_H */
