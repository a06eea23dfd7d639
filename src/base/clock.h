/*-------------------------------------------------------------------------
 *
 * clock.h
 *	  The engine's clock: real time plus an offset that only tests set.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_CLOCK_H
#define DURABLE_CLOCK_H

#include "postgres.h"

#include "utils/timestamp.h"

extern TimestampTz durable_clock_now(void);

/* t + span with month and day arithmetic; errors as SQL's operator does */
extern TimestampTz durable_clock_add(TimestampTz t, const Interval *span);

/* whether the span is longer than zero (months count as 30 days) */
extern bool durable_interval_positive(const Interval *span);
extern bool durable_interval_negative(const Interval *span);

/* the span in microseconds, capped at what an int64 holds comfortably */
extern int64 durable_interval_us(const Interval *span);

#endif							/* DURABLE_CLOCK_H */
