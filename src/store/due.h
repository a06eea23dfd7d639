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

#include "base/plan.h"
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

/* The plan gives (namespace, queue); how many, in the current memory context. */
extern int	durable_list_names(DurablePlan *plan, DurableListName **lists);

/* Such a plan for a table: hops from queue to queue along its index. */
#define DURABLE_LIST_NAMES_SQL(table) \
	"WITH RECURSIVE hop AS (" \
	" (SELECT f.namespace, f.queue FROM " table " f" \
	"  ORDER BY f.namespace, f.queue LIMIT 1)" \
	" UNION ALL" \
	" SELECT n.namespace, n.queue FROM hop CROSS JOIN LATERAL (" \
	"  SELECT f.namespace, f.queue FROM " table " f" \
	"  WHERE ROW(f.namespace, f.queue) OPERATOR(pg_catalog.>) ROW(hop.namespace, hop.queue)" \
	"  ORDER BY f.namespace, f.queue LIMIT 1) n)" \
	" SELECT hop.namespace, hop.queue FROM hop"

#endif							/* DURABLE_STORE_DUE_H */
