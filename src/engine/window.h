/*-------------------------------------------------------------------------
 *
 * window.h
 *	  When a schedule is due: its windows, in its time zone.
 *
 * A window is the instant that a schedule names: a fire of its cron expression or
 * a multiple of its interval. Each has one run. The time when that run is
 * started is the window plus its jitter.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_ENGINE_WINDOW_H
#define DURABLE_ENGINE_WINDOW_H

#include "postgres.h"

#include "pgtime.h"
#include "utils/timestamp.h"

#include "engine/cron.h"

typedef struct DurableTiming
{
	bool		is_cron;
	DurableCron cron;
	pg_tz	   *zone;
	int64		every;			/* milliseconds, when it is no cron expression */
	int64		jitter;			/* milliseconds */
} DurableTiming;

/* How a definition says it; exactly one of cron and every is not NULL. */
typedef struct DurableTimingText
{
	const char *cron;
	const Interval *every;
	const char *timezone;
	const Interval *jitter;
} DurableTimingText;

/* false: it makes no sense, and the complaint says why */
extern bool durable_timing_read(const DurableTimingText *given, DurableTiming *timing,
								DurableComplaint *complaint);
/* What only a new definition is asked: whether it ever fires in its zone, and
 * whether the jitter is shorter than what is between two windows. */
extern bool durable_timing_check(const DurableTiming *timing, TimestampTz now,
								 DurableComplaint *complaint);
/* the zone's name in the spelling of the zone files */
extern bool durable_timing_zone(const char *name, pg_tz **zone, DurableComplaint *complaint);

/* The first window after an instant; DT_NOEND: there is none in 400 years. */
extern TimestampTz durable_window_next(const DurableTiming *timing, TimestampTz after);
/* The last window up to an instant, included; DT_NOBEGIN: none in 400 years. */
extern TimestampTz durable_window_last(const DurableTiming *timing, TimestampTz at);

/* When the window's run is started: always the same for a schedule and window. */
extern TimestampTz durable_window_due(const DurableTiming *timing, const text *schedule_id,
									  TimestampTz window);

/* milliseconds since 1970, as run ids name windows */
extern int64 durable_window_ms(TimestampTz window);

#endif							/* DURABLE_ENGINE_WINDOW_H */
