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

#include "base/rel.h"
#include "store/due.h"
#include "store/limited_by.h"

enum
{
	DELAYED_ID,
	DELAYED_RUN_AT,
	DELAYED_PRIORITY,
	DELAYED_NAMESPACE,
	DELAYED_QUEUE,
	DELAYED_LIMITER,
	DELAYED_LIMITER_KEY,
	DELAYED_COLUMNS
};

/* gate: the limiter where it waits when it is due, or NULL */
extern void durable_delayed_insert(DurableWriter *writer, int64 id, TimestampTz run_at,
								   int32 priority, text *namespace, text *queue,
								   const DurableLimitedBy *gate);
extern void durable_delayed_insert_many(DurableWriter *writer, const int64 *ids, int n,
										TimestampTz run_at, int32 priority,
										text *namespace, text *queue, const DurableLimitedBy *gate);
/* the queues that have delayed tasks */
extern int	durable_delayed_lists(DurableListName **lists);

extern bool durable_delayed_remove(int64 id, TimestampTz run_at, text *namespace, text *queue);
/* the same without waiting for who has it in hand; TM_Deleted: it is not there */
extern TM_Result durable_delayed_take(int64 id, TimestampTz run_at, text *namespace, text *queue);

/* What is due in one queue; durable_due_open() and
 * durable_due_close() go around it. */
extern bool durable_delayed_begin(DurableDueScan *scan, text *namespace, text *queue,
								  TimestampTz now);
extern bool durable_delayed_next(DurableDueScan *scan, DurableRow *row);

#endif							/* DURABLE_STORE_DELAYED_H */
