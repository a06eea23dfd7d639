/*-------------------------------------------------------------------------
 *
 * fresh.h
 *	  Steps that are claimed by the command that dispatches them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_FRESH_H
#define DURABLE_FRESH_H

#include "postgres.h"

#include "base/rel.h"

/* A task that is written, and stands in no list. */
typedef struct DurableFreshTask
{
	int64		id;
	int32		priority;
	text	   *queue;			/* the claim's own pointer */
	DurableRow	row;
} DurableFreshTask;

typedef struct DurableFresh DurableFresh;

/* For a claim of these queues, of so many tasks, at the end of the command. Lives in the
 * current memory context, as what it is given does. */
extern DurableFresh *durable_fresh_begin(text *namespace, text **queues, int nqueues, int max);

/* true: the claim looks at the task, which the caller has just written (row->tid), and
 * puts it into its list if it does not take it. That is for tasks without a limiter. */
extern bool durable_fresh_offer(DurableFresh *fresh, Relation tasks, const DurableRow *row);

/* The claim's order: the first that is left, or NULL. NULL for no list at all. */
extern DurableFreshTask *durable_fresh_first(DurableFresh *fresh);
extern void durable_fresh_remove_first(DurableFresh *fresh);

#endif							/* DURABLE_FRESH_H */
