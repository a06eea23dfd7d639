/*-------------------------------------------------------------------------
 *
 * retry.c
 *	  How long to wait before the next attempt (catalogue F-RETRY-1).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "engine/retry.h"

#define EXPONENT_MAX 31
#define DELAY_MAX ((double) PG_INT32_MAX * 1000.0)	/* 2^31 - 1 ms */

int64
durable_retry_delay(const DurableRetryPolicy *policy, int attempt, double random)
{
	double		delay;

	if (policy->backoff <= 0)
		return 0;
	delay = (double) policy->backoff;
	if (policy->exponential)
		delay = ldexp(delay, Min(Max(attempt, 1) - 1, EXPONENT_MAX));
	if (policy->backoff_max >= 0)
		delay = Min(delay, (double) policy->backoff_max);
	delay = Min(delay, DELAY_MAX);
	if (policy->jitter)
		delay = rint(delay * (0.5 + random * 0.5));
	return (int64) delay;
}
