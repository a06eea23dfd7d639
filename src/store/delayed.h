/*-------------------------------------------------------------------------
 *
 * delayed.h
 *	  durable.task_delayed: the ids whose time has not come.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_DELAYED_H
#define DURABLE_STORE_DELAYED_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "base/walk.h"

enum
{
	DELAYED_ID,
	DELAYED_RUN_AT,
	DELAYED_PRIORITY,
	DELAYED_NAMESPACE,
	DELAYED_QUEUE,
	DELAYED_COLUMNS
};

extern void durable_delayed_insert(DurableWriter *writer, int64 id, TimestampTz run_at,
								   int32 priority, text *namespace, text *queue);
extern void durable_delayed_insert_many(DurableWriter *writer, const int64 *ids, int n,
										TimestampTz run_at, int32 priority,
										text *namespace, text *queue);
/* A queue that has delayed tasks, or leases. */
typedef struct DurableListName
{
	text	   *namespace;
	text	   *queue;
} DurableListName;

extern int	durable_delayed_lists(DurableListName **lists);

extern bool durable_delayed_remove(int64 id, TimestampTz run_at, text *namespace, text *queue);

/*
 * What is due in one queue, soonest first. Opening fails cheaply, without touching the
 * table, when the hint says that nothing can be due; *next is then, and after
 * the scan, when it is worth looking again (DURABLE_POSITION_END: never).
 */
typedef struct DurableDelayedScan
{
	DurableWalk walk;
	TimestampTz now;
	TimestampTz next;
	int			patience;
} DurableDelayedScan;

extern bool durable_delayed_scan_open(DurableDelayedScan *scan, Snapshot snapshot,
									  text *namespace, text *queue, TimestampTz now);
extern bool durable_delayed_scan_next(DurableDelayedScan *scan, DurableRow *row);
extern void durable_delayed_scan_close(DurableDelayedScan *scan);

#endif							/* DURABLE_STORE_DELAYED_H */
