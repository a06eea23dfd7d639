/*-------------------------------------------------------------------------
 *
 * apply.h
 *	  Applying what a turn came to.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_APPLY_H
#define DURABLE_APPLY_H

#include "postgres.h"

#include "engine/turn.h"
#include "store/lease.h"

typedef enum DurableApplied
{
	APPLIED,					/* written; the run has suspended or ended */
	APPLIED_GO_ON,				/* written; what it waits for is there already: replay */
	APPLY_AGAIN,				/* nothing written: something came in, read the history again */
	APPLY_LOST,					/* nothing written: the claim or the run is gone */
	/* of decisions from outside: */
	APPLY_SUPERSEDED,			/* nothing written: something came that it must not miss */
	APPLY_STUCK					/* nothing written: it goes round and round */
} DurableApplied;

/* So many turns in a row may wait for what is there already, and add nothing. */
#define DURABLE_IDLE_TURNS 20

/* more than any history has */
#define DURABLE_ALL_POSITIONS PG_INT32_MAX

/* Reads the run and its history; false: it has ended, or is unknown. The turn's
 * workflow may be missing: then body is InvalidOid. */
extern bool durable_turn_load(DurableTurn *turn, int64 run);

/* The history below a position, that of a local step which was executed in this
 * transaction, or all. APPLY_AGAIN only when that rests on what may have come. */
extern DurableApplied durable_apply_step(DurableTurn *turn, const DurableLease *lease, int below);
/* All of it, and the decision. */
extern DurableApplied durable_apply_suspend(DurableTurn *turn, const DurableLease *lease);
/* The same for a decision from outside. Where the run waits for nothing that is not
 * there, or something came while the turn was out, its next turn is ready and the
 * result is APPLIED_GO_ON. APPLY_AGAIN: its history is not what it was read with. */
extern DurableApplied durable_apply_external(DurableTurn *turn, const DurableLease *lease);

/* Takes the locks that the turn's starts need, which all of these take by themselves, for who
 * applies several turns: they come before those of runs. */
extern void durable_apply_prepare(DurableTurn *turn);
/* The turn is due again, whatever its decision was. */
extern DurableApplied durable_apply_superseded(DurableTurn *turn, const DurableLease *lease);
/* fresh: no lock of the run is held in this transaction yet */
extern DurableApplied durable_apply_end(DurableTurn *turn, const DurableLease *lease);

#endif							/* DURABLE_APPLY_H */
