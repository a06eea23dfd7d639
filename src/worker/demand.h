/*-------------------------------------------------------------------------
 *
 * demand.h
 *	  How many executors a database needs, and for which roles.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_DEMAND_H
#define DURABLE_DEMAND_H

#include "postgres.h"

#include "datatype/timestamp.h"

extern void durable_demand_begin(void);

/* Looks, starts executors and asks others to leave. In a transaction; allocates in
 * the current context. "asked": there is work for which nobody was idle. Returns when to
 * look again though nothing happens. */
extern TimestampTz durable_demand_serve(bool paused, bool asked);

/* Looking costs something, and under load there is a reason to look after each
 * commit: whether it is time, and how long it takes until then (us). */
extern bool durable_demand_may_look(void);
extern double durable_demand_delay(void);

#endif							/* DURABLE_DEMAND_H */
