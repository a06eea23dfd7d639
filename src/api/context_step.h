/*-------------------------------------------------------------------------
 *
 * context_step.h
 *	  What the functions of a body that dispatch steps share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_CONTEXT_STEP_H
#define DURABLE_CONTEXT_STEP_H

#include "postgres.h"

#include "fmgr.h"

#include "engine/turn.h"

/* the retry policy from "first" on, then queue and priority */
extern void durable_context_step_options(FunctionCallInfo fcinfo, int first,
										 DurableOperation *op);

/* 42704 for an operation whose limiter does not exist */
extern void durable_context_check_limiter(DurableTurn *turn, const DurableOperation *op);

/* Suspends until the pending ones of these positions have ended. */
extern void durable_context_await(DurableTurn *turn, int first, int last)
			__attribute__((noreturn));

/* The outputs as jsonb[]; raises the first failure in their order. */
extern Datum durable_context_outputs(const DurableCheckpoint *const *checkpoints, int n);

#endif							/* DURABLE_CONTEXT_STEP_H */
