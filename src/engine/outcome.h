/*-------------------------------------------------------------------------
 *
 * outcome.h
 *	  What becomes of a task that leaves its claim: back to a queue, or ended.
 *
 * All functions work on a row of durable.task that the active snapshot sees
 * and return what rel.h's writers do: anything but TM_Ok changed nothing.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_OUTCOME_H
#define DURABLE_OUTCOME_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/jsonb.h"

#include "engine/tables.h"
#include "store/result.h"

/* Back to its queue at run_at (not after now: at once), with whatever the
 * caller changed in the row. The lease held it, and no lease up to that one
 * ever will again. One that was replaced while it was claimed begins anew, when its
 * row says; so it also does instead of ending. */
extern TM_Result durable_outcome_requeue(DurableTables *tables, DurableRow *task, int64 lease,
										 TimestampTz run_at, TimestampTz now, bool wait);

/* Takes a task out of whichever list it is in, waiting for a claim or a promotion that
 * has it in hand. delayed_until is 0 where its own row tells. false: it is in none,
 * so it is claimed, or parked. */
extern bool durable_outcome_unlist(const DurableRow *task, TimestampTz delayed_until);

/* Ended: the task leaves, its result stays. */
extern TM_Result durable_outcome_end(DurableTables *tables, DurableRow *task,
									 const DurableOutcome *outcome, TimestampTz now, bool wait);

/* An attempt failed: another one by the task's policy, or the end. */
extern TM_Result durable_outcome_failed(DurableTables *tables, DurableRow *task, int64 lease,
										Jsonb *error, void *events, TimestampTz now, bool wait);

/* Its claim lapsed: back to the queue, counted, or the attempt fails. */
extern TM_Result durable_outcome_lapsed(DurableTables *tables, DurableRow *task, int64 lease,
										TimestampTz now, bool wait);

#endif							/* DURABLE_OUTCOME_H */
