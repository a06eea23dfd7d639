/*-------------------------------------------------------------------------
 *
 * deadline.h
 *	  durable.task_deadline: when steps that have a timeout have to be looked at.
 *
 * A task's row here is changed by whoever has the task in hand, and moved on by who
 * looks. Nobody waits for it: a row that is busy is left as it is, and who looks
 * next sees that it is out of date.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_DEADLINE_H
#define DURABLE_STORE_DEADLINE_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "base/rel.h"
#include "store/due.h"

typedef struct DurableDeadline
{
	int64		id;
	TimestampTz due_at;
	int64		lease;			/* 0: not claimed */
	ItemPointerData tid;
} DurableDeadline;

extern void durable_deadline_insert_many(const int64 *ids, int n, TimestampTz due_at,
										 text *namespace, text *queue);
/* false: it has a row already */
extern bool durable_deadline_insert(const DurableDeadline *deadline, text *namespace,
									text *queue);
/* Gives the task's row this time and lease. TM_Deleted: it has none. */
extern TM_Result durable_deadline_set(int64 id, TimestampTz due_at, int64 lease);
extern void durable_deadline_remove(int64 id);

/* Those that are due in one list; durable_due_open() and durable_due_close() go
 * around it. */
extern bool durable_deadline_begin(DurableDueScan *scan, text *namespace, text *queue,
								   TimestampTz now);
extern bool durable_deadline_next(DurableDueScan *scan, DurableDeadline *deadline);

/* the queues that have deadlines */
extern int	durable_deadline_lists(DurableListName **lists);

#endif							/* DURABLE_STORE_DEADLINE_H */
