/*-------------------------------------------------------------------------
 *
 * execute.h
 *	  Executing claimed turns and steps in this session.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_EXECUTE_H
#define DURABLE_EXECUTE_H

#include "postgres.h"

#include "utils/jsonb.h"

#include "store/lease.h"
#include "store/workflow.h"

/* One claimed task, copied. */
typedef struct DurableWorkItem
{
	DurableLease lease;
	int64		id;
	text	   *namespace;
	text	   *name;
	text	   *run_id;			/* NULL: a task of no run */
	Jsonb	   *input;
	bool		is_turn;
	bool		is_archive;		/* calls a retention policy's function */
} DurableWorkItem;

/* Claims one task that the current role executes; false: there is none. */
extern bool durable_claim_work(text *namespace, text **queues, int nqueues,
							   DurableWorkItem *item);

/* Calls a handler in a subtransaction; what it returns or raises, in "context". Cancel
 * requests go through. */
extern bool durable_execute_call(const DurableHandler *handler, Jsonb *input,
								 MemoryContext context, Jsonb **output, Jsonb **error);

/* Executes it, committing as it goes: call inside SPI that may. */
extern void durable_execute(const DurableWorkItem *item);
/* After an error: the session lets go of what it was executing. */
extern void durable_execute_end(void);

/* Whether there is such a thing. */
extern bool durable_execute_has_claim(void);
/* Gives it back to its queue, counted as a lost claim or not. Call outside of a
 * transaction. With "wait" it waits for whoever has locked a whole table. */
extern void durable_execute_hand_back(bool counted, bool wait);

#endif							/* DURABLE_EXECUTE_H */
