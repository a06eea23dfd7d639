/*-------------------------------------------------------------------------
 *
 * handoff.h
 *	  A run that fails hands its failure over to another workflow.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_ENGINE_HANDOFF_H
#define DURABLE_ENGINE_HANDOFF_H

#include "postgres.h"

#include "engine/turn.h"
#include "store/run.h"
#include "store/workflow.h"

/* Raises 22023 unless these are routes that can be stored. */
extern void durable_routes_check(Jsonb *routes);

typedef struct DurableHandoff
{
	int			route;			/* its index */
	DurableWorkflow workflow;	/* that takes the failure */
	text	   *step;			/* whose failure it is, or NULL */
	char	   *problem;		/* why the route is not taken, or NULL */
} DurableHandoff;

/* The first route of its workflow that fits the turn's failure. Takes no lock. false:
 * there is none, or "problem". */
extern bool durable_handoff_choose(DurableTurn *turn, DurableHandoff *handoff);

/* Starts the handler of a locked run that fails. What the run was waiting for need not
 * come any more; its row says that it waits for the handler, and is to be written. */
extern void durable_handoff_begin(DurableTurn *turn, DurableRun *run, DurableHandoff *handoff);

/* Whether the run waits for a handler, and at which position. */
extern bool durable_run_in_handoff(const DurableRow *run, int *seq);
/* Whether it waits for this run as its handler. */
extern bool durable_handoff_is_for(const DurableRow *run, const DurableRow *handler);
/* The handler that the run waits for; false: none */
extern bool durable_handoff_handler(const DurableRow *run, int64 *handler);

/* The run, which is locked and was waiting for its handler, is cancelled. */
extern void durable_handoff_call_off(const DurableRow *run);

/* The error of a run whose handler has failed: the handler's, and its own. */
extern Jsonb *durable_handoff_error(int64 run, int seq, Jsonb *error);

/* The run, which is locked, will execute its body again: its handoffs are history. */
extern void durable_handoffs_retire(int64 run);

#endif							/* DURABLE_ENGINE_HANDOFF_H */
