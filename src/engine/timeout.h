/*-------------------------------------------------------------------------
 *
 * timeout.h
 *	  Steps that nobody picks up, and steps that fall silent.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_TIMEOUT_H
#define DURABLE_TIMEOUT_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "base/rel.h"

/* These do nothing, and cost nothing, for tasks without a timeout, which only steps and turns have. */

/* It can be claimed from then on; it is claimed by a lease; it has ended. */
extern void durable_timeout_queued(const DurableRow *task, TimestampTz from);
extern void durable_timeout_claimed(const DurableRow *task, int64 lease, TimestampTz now);
extern void durable_timeout_ended(const DurableRow *task);

/* How often, in microseconds, the task's heartbeats are stored, when they are
 * stored every "least" microseconds for tasks without a timeout. */
extern int64 durable_timeout_beat(const DurableRow *task, int64 least);

/* Fails the attempts whose time is up, of the runs whose turns this queue has. Skips
 * what another transaction holds; *next is when it is worth looking again. */
extern int	durable_timeout_expire(text *namespace, text *queue, TimestampTz now, int max,
								   TimestampTz *next);
/* … in the whole database */
extern int	durable_timeout_expire_all(TimestampTz now, int max, TimestampTz *next);

#endif							/* DURABLE_TIMEOUT_H */
