/*-------------------------------------------------------------------------
 *
 * ready.h
 *	  durable.task_ready: the ids that can be claimed now, in claim order.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_READY_H
#define DURABLE_STORE_READY_H

#include "postgres.h"

#include "base/walk.h"

enum
{
	READY_ID,
	READY_PRIORITY,
	READY_NAMESPACE,
	READY_QUEUE,
	READY_COLUMNS
};

/* The queue as the hints and the waiters know it. */
extern DurableKey durable_queue_key(const text *namespace, const text *queue);

/* The role that alone executes the queue's tasks, or InvalidOid. */
extern Oid	durable_queue_owner(const text *queue);

extern void durable_ready_insert(DurableWriter *writer, int64 id, int32 priority,
								 text *namespace, text *queue);
/* the same of a task that is just being made, under a number that nobody had */
extern void durable_ready_insert_new(DurableWriter *writer, int64 id, int32 priority,
									 text *namespace, text *queue);
/* all of one queue and priority */
extern void durable_ready_insert_many(DurableWriter *writer, const int64 *ids, int n,
									  int32 priority, text *namespace, text *queue);
/* takes the task out, wherever it is; false = it was not there */
extern bool durable_ready_remove(int64 id, int32 priority, text *namespace, text *queue);
/* the same without waiting for who has it in hand; TM_Deleted: it is not there */
extern TM_Result durable_ready_take(int64 id, int32 priority, text *namespace, text *queue);

/* A scan over one queue in claim order: priority first, then age. */
typedef struct DurableReadyScan
{
	DurableWalk walk;
	DurableKey	key;
	text	   *namespace;
	text	   *queue;
	bool		hinted;			/* walk priority by priority, with hints */
	bool		in_level;
	bool		exhausted;
	int			nlevels;
	int			next_level;
	int32		levels[DURABLE_LEVELS];
	int32		priority;		/* the current row's */
	int64		id;
} DurableReadyScan;

extern void durable_ready_scan_open(DurableReadyScan *scan, Snapshot snapshot,
									text *namespace, text *queue);
/* the same over another table with such an index: text, text, priority DESC, position */
extern void durable_level_scan_open(DurableReadyScan *scan, DurableRel table, DurableRel index,
									const DurableKey *key, Snapshot snapshot,
									text *first, text *second);
/* the next visible row: its priority and id are in the scan, its place in
 * scan->walk.slot */
extern bool durable_ready_scan_next(DurableReadyScan *scan);
/* the current row was live and has been taken */
extern void durable_ready_scan_taken(DurableReadyScan *scan);
extern void durable_ready_scan_close(DurableReadyScan *scan);

/* Whether the queue has a ready task that nobody is claiming right now. */
extern bool durable_ready_has(Snapshot snapshot, text *namespace, text *queue);

#endif							/* DURABLE_STORE_READY_H */
