/*-------------------------------------------------------------------------
 *
 * decision.h
 *	  Decisions of external workers: from JSON to what apply.h applies.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_DECISION_H
#define DURABLE_DECISION_H

#include "postgres.h"

#include "utils/jsonb.h"

#include "engine/turn.h"
#include "store/lease.h"

/*
 * Applies a decision to the turn that the lease holds. One that cannot be
 * understood, or does not fit the history, fails the run. false: the claim or
 * the run is gone, and nothing was changed. fresh: who may claim the steps that it
 * dispatches, or NULL.
 */
extern bool durable_decide(int64 run, const DurableLease *lease, Jsonb *decision,
						   DurableFresh *fresh);

/*
 * The result of a step together with the decision that follows from it, when nothing
 * else has come to the run since its last turn. false: nothing was changed, the step
 * not settled either.
 */
extern bool durable_decide_after(int64 run, const DurableAfterStep *after, Jsonb *decision,
								 DurableFresh *fresh);

/*
 * Before the caller holds any run: takes the locks that a decision needs first, because it
 * starts what has to be counted. after: NULL, or as above.
 */
extern void durable_decide_prepare(int64 run, const DurableLease *lease,
								   const DurableAfterStep *after, Jsonb *decision);

/* A local step that an external worker has executed. */
typedef struct DurableRecord
{
	int			seq;
	text	   *name;
	int			attempts;
	TimestampTz started_at;		/* 0: now */
	TimestampTz finished_at;
	Jsonb	   *input;
	Jsonb	   *output;
	Jsonb	   *error;			/* it failed, when not NULL */
} DurableRecord;

/* Records it before the turn ends; one that is there already stays. false as
 * above; WF002 when something else is at the position. */
extern bool durable_record_step(int64 run, const DurableLease *lease, const DurableRecord *record);

#endif							/* DURABLE_DECISION_H */
