/*-------------------------------------------------------------------------
 *
 * clock.c
 *	  The engine's clock: real time plus an offset that only tests set.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "utils/fmgrprotos.h"

#include "base/clock.h"
#include "base/guc.h"

TimestampTz
durable_clock_now(void)
{
	return GetCurrentTimestamp() + (int64) durable_clock_offset * USECS_PER_SEC;
}

TimestampTz
durable_clock_add(TimestampTz t, const Interval *span)
{
	return DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
												   TimestampTzGetDatum(t),
												   IntervalPGetDatum(span)));
}

int64
durable_interval_us(const Interval *span)
{
	double		us = (double) span->time +
		((double) span->day + (double) span->month * DAYS_PER_MONTH) *
		(double) USECS_PER_DAY;

	/* a hundred thousand years is far enough for anyone's lease */
	return (int64) Max(-3e18, Min(3e18, us));
}

bool
durable_interval_positive(const Interval *span)
{
	return durable_interval_us(span) > 0;
}

bool
durable_interval_negative(const Interval *span)
{
	return durable_interval_us(span) < 0;
}
