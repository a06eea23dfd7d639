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
	APPLY_LOST					/* nothing written: the claim or the run is gone */
} DurableApplied;

/* Reads the run and its history; false: it has ended, or is unknown. The turn's
 * workflow may be missing: then body is InvalidOid. */
extern bool durable_turn_load(DurableTurn *turn, int64 run);

/* The history below a position, that of a local step which was executed in this
 * transaction, or all. APPLY_AGAIN only when that rests on what may have come. */
extern DurableApplied durable_apply_step(DurableTurn *turn, const DurableLease *lease, int below);
/* All of it, and the decision. */
extern DurableApplied durable_apply_suspend(DurableTurn *turn, const DurableLease *lease);
/* fresh: no lock of the run is held in this transaction yet */
extern DurableApplied durable_apply_end(DurableTurn *turn, const DurableLease *lease);

#endif							/* DURABLE_APPLY_H */
