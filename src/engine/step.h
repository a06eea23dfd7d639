/*-------------------------------------------------------------------------
 *
 * step.h
 *	  Dispatched steps: their tasks, how many are in flight, which result wakes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STEP_H
#define DURABLE_STEP_H

#include "postgres.h"

#include "engine/tables.h"
#include "engine/turn.h"
#include "store/run.h"

/* Queues the tasks of an operation: of its pending positions those that have none.
 * false: no live worker could do them, and the turn is blocked.
 * The run is locked; the caller writes the checkpoints and the run. */
extern bool durable_step_dispatch(DurableTurn *turn, const DurableOperation *op);

/* A position of a fan that has failed: when it is pending it need not come any more. The
 * turn has to be one that rests on the latest results. */
extern void durable_step_call_off(DurableTurn *turn, DurableCheckpoint *checkpoint);

/* What the turn has made of the run's fan, into the run's row. */
extern void durable_step_store_window(DurableTurn *turn, DurableRow *run);
/* No step of a fan waits for its place any more. */
extern void durable_step_end_window(DurableRow *run);

/* A step has ended, with the run locked since before the active snapshot: the next one of
 * its fan that waits for its place is queued. Whether the run's row was changed. */
extern bool durable_step_release_next(DurableTables *tables, DurableRow *run, int seq);
/* The run, which is locked, completes before its fan: the rest of it follows one by one, also
 * where a failure has stopped it and nothing of it is out that could be followed. */
extern void durable_step_outlive(DurableRow *run);

/* For the result of a step, with the run locked since before the active snapshot:
 * queues the step that follows in the fan, and tells whether the run is to be
 * woken. *changed is set when the run's row was changed. */
extern bool durable_step_result(DurableTables *tables, DurableRow *run, int seq,
								bool failed, bool *changed);

/*
 * Pending steps of a locked live run whose tasks are gone: the body dispatches them
 * again when it comes there next. How many; 0 changed nothing. The caller wakes the
 * run, which writes its row.
 */
extern int	durable_step_forget_lost(DurableRun *run);

#endif							/* DURABLE_STEP_H */
