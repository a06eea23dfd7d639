/*-------------------------------------------------------------------------
 *
 * maintain.h
 *	  What becomes due by itself: delayed tasks, lapsed claims, old results.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_MAINTAIN_H
#define DURABLE_MAINTAIN_H

#include "postgres.h"

#include "datatype/timestamp.h"

/* Work that one claim does for the whole database before it looks. */
#define DURABLE_MAINTAIN_PER_CLAIM 500

/* Each does at most "max" rows, skips what another transaction holds, and says
 * in *next when it is worth looking again. */
extern int	durable_promote_due(TimestampTz now, int max, TimestampTz *next);
extern int	durable_take_over_lapsed(TimestampTz now, int max, TimestampTz *next);

/* Both; returns when the next of them is due. */
extern TimestampTz durable_maintain(TimestampTz now, int max);

/* Gives every claimed task back, whoever holds it; for activate(). */
extern int64 durable_reclaim_all(TimestampTz now);

#endif							/* DURABLE_MAINTAIN_H */
