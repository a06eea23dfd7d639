/*-------------------------------------------------------------------------
 *
 * handout.h
 *	  What a claimed task is handed out as: claim's row.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_HANDOUT_H
#define DURABLE_HANDOUT_H

#include "postgres.h"

#include "fmgr.h"
#include "utils/jsonb.h"

#include "base/rel.h"
#include "engine/claim.h"
#include "store/lease.h"

/* columns of the row, in order */
enum
{
	OUT_TASK_ID,
	OUT_TOKEN,
	OUT_KIND,
	OUT_NAME,
	OUT_QUEUE,
	OUT_NAMESPACE,
	OUT_INPUT,
	OUT_RUN_ID,
	OUT_SEQ,
	OUT_ATTEMPT,
	OUT_RECLAIMS,
	OUT_PRIORITY,
	OUT_HEADERS,
	OUT_LEASE_UNTIL,
	OUT_COLUMNS
};

typedef struct DurableHandout
{
	int			history;		/* checkpoints that a turn comes with; -1: all */
	MemoryContext scratch;		/* of one turn */
	Datum		values[OUT_COLUMNS];
	bool		nulls[OUT_COLUMNS];
} DurableHandout;

/* Fills values and nulls, which hold until the next one. A turn is noted in the lease. */
extern void durable_handout_fill(DurableHandout *handout, const DurableRow *task,
								 DurableLease *lease);
/* The same row as an object, into the array under construction. */
extern void durable_handout_push(const DurableHandout *handout, JsonbParseState **state);

/* queues, (max_tasks), lease, worker, namespace, from argument "first" on; whether the
 * caller may. max_tasks is not read. */
extern void durable_arg_claim(FunctionCallInfo fcinfo, int first, DurableClaim *claim);

#endif							/* DURABLE_HANDOUT_H */
