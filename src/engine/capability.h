/*-------------------------------------------------------------------------
 *
 * capability.h
 *	  What workers outside can do, and what becomes of runs that none can go on with.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_CAPABILITY_H
#define DURABLE_CAPABILITY_H

#include "postgres.h"

#include "utils/array.h"
#include "utils/jsonb.h"

#include "engine/turn.h"
#include "store/run.h"
#include "store/worker.h"

/* What the live workers of a queue mean for work that requires something. */
typedef enum DurableRoute
{
	ROUTE_UNPUBLISHED,			/* none has announced itself: nothing is known */
	ROUTE_OPEN,					/* one can do it, and speaks our protocol */
	ROUTE_NO_CAPABLE,			/* none can do it */
	ROUTE_NO_PROTOCOL			/* who can do it speaks another protocol */
} DurableRoute;

#define DURABLE_ROUTE_BLOCKED(route) ((route) >= ROUTE_NO_CAPABLE)

extern bool durable_protocol_fits(int min, int max);
/* what a worker can do that does not say */
extern ArrayType *durable_capabilities_v1(void);
/* How a worker and this engine get along (catalogue F-HS-4). */
extern Jsonb *durable_negotiate(const DurableWorkerRow *worker);

/* requires NULL: nothing in particular */
extern DurableRoute durable_route(text *namespace, text *queue, ArrayType *requires);

/* Whether a step of the turn may be dispatched to the queue. If not, the turn says
 * why, and is to be parked. Never waits. */
extern bool durable_guard_step(DurableTurn *turn, text *queue, ArrayType *requires);

/*
 * A locked run that cannot go on: its row says so, and whoever announces himself wakes
 * it. The caller parks its turn until the time that is returned, and writes the
 * row. soon: somebody is announcing himself right now.
 */
extern TimestampTz durable_block(DurableRow *run, text *queue, ArrayType *requires,
								 DurableRoute route, bool soon);

/* Announces the worker, and wakes the runs that have waited for it, at most some
 * hundred of them; the others look by themselves. Fills in what the row had before.
 * false: the name is another role's. */
extern bool durable_announce(DurableWorkerRow *worker);
/* *known: there was one. false: as above. */
extern bool durable_withdraw(text *namespace, text *name, Oid role, bool *known);

#endif							/* DURABLE_CAPABILITY_H */
