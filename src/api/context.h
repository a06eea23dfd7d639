/*-------------------------------------------------------------------------
 *
 * context.h
 *	  What the functions of a body share.
 *
 * All arguments are checked before a position is taken: a body may catch what
 * they raise, and its next operation has that position then. What was read is
 * copied into the turn when it is new and not before, for most calls are replayed
 * ones.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_CONTEXT_H
#define DURABLE_CONTEXT_H

#include "postgres.h"

#include "fmgr.h"

#include "engine/turn.h"

/* a payload, checked */
extern Jsonb *durable_arg_jsonb(FunctionCallInfo fcinfo, int n, const char *argument);

/* retries, backoff, backoff_kind, backoff_max, jitter, from "first" on */
extern void durable_context_policy(FunctionCallInfo fcinfo, int first, DurableOperation *op);

/* A new operation of the turn; everything in "read" is copied. */
extern DurableOperation *durable_context_operation(DurableTurn *turn, int seq,
												   const DurableOperation *read);
extern Jsonb *durable_context_keep(DurableTurn *turn, Jsonb *value);

/* What a settled checkpoint gives the body, or raises; NULL is SQL NULL. */
extern Jsonb *durable_context_outcome(const DurableCheckpoint *checkpoint);
extern Datum durable_context_return(FunctionCallInfo fcinfo, Jsonb *value);

#endif							/* DURABLE_CONTEXT_H */
