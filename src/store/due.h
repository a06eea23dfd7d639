/*-------------------------------------------------------------------------
 *
 * due.h
 *	  Lists in order of time: what is due in a queue, and when the next is.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_DUE_H
#define DURABLE_STORE_DUE_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "base/walk.h"

/* The list of this kind that belongs to a queue, as hints and waiters know it. */
extern DurableKey durable_list_key(const char *kind, const text *namespace, const text *queue);

/*
 * What is due in one queue, soonest first. Beginning fails cheaply, without a
 * snapshot or a look at the table, when the hint says that nothing can be due;
 * "next" is then, and after the scan, when it is worth looking again
 * (DURABLE_POSITION_END: never).
 */
typedef struct DurableDueScan
{
	DurableWalk walk;
	DurableHint hint;
	DurableRel	table;
	DurableRel	index;
	text	   *namespace;
	text	   *queue;
	TimestampTz now;
	TimestampTz next;
	int			patience;
} DurableDueScan;

/* The index is (namespace, queue, time, …). */
extern bool durable_due_begin(DurableDueScan *scan, const char *kind, DurableRel table,
							  DurableRel index, text *namespace, text *queue, TimestampTz now);
extern void durable_due_open(DurableDueScan *scan, Snapshot snapshot);
/* the next visible row that is due; it is in scan->walk.slot */
extern bool durable_due_next(DurableDueScan *scan);
extern void durable_due_close(DurableDueScan *scan);

/* A queue that has such a list. */
typedef struct DurableListName
{
	text	   *namespace;
	text	   *queue;
} DurableListName;

/* All of them, by the index of such lists; how many, in the current memory context. The
 * columns are those of namespace and queue in the table. */
extern int	durable_list_names(DurableRel table, DurableRel index, int namespace, int queue,
							   DurableListName **lists);

#endif							/* DURABLE_STORE_DUE_H */
