/*-------------------------------------------------------------------------
 *
 * worker.h
 *	  durable.worker and durable.worker_queue: workers outside that have announced
 *	  themselves.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_WORKER_H
#define DURABLE_STORE_WORKER_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/array.h"

#include "base/rel.h"

/* How long one that is not alive any more can be seen. */
#define DURABLE_WORKER_KEPT_US (5 * USECS_PER_MINUTE)

/* Sets are ascending, byte by byte, and have no duplicates. */
typedef struct DurableWorkerRow
{
	TimestampTz first_seen;
	TimestampTz last_seen;
	TimestampTz expires_at;
	Oid			role;
	int			protocol_min;
	int			protocol_max;
	text	   *namespace;
	text	   *worker;
	ArrayType  *queues;
	ArrayType  *workflows;
	ArrayType  *capabilities;
	void	   *status;			/* jsonb, or NULL */
	ItemPointerData tid;		/* where it was read */
} DurableWorkerRow;

/* As of now, copied into the current memory context. */
extern bool durable_worker_find(text *namespace, text *worker, DurableWorkerRow *row);

/* false: somebody was faster */
extern bool durable_worker_insert(const DurableWorkerRow *row);
/* Replaces the version at row->tid. Waits for who has it in hand. */
extern TM_Result durable_worker_update(const DurableWorkerRow *row);
extern TM_Result durable_worker_delete(const DurableWorkerRow *row);

/* What the worker serves, where the row is ours. */
extern void durable_worker_store_queues(text *namespace, text *worker, ArrayType *before,
										ArrayType *after);

/* The workers of a queue that are alive, one by one, as of when it was opened. */
typedef struct DurableWorkerScan
{
	DurableProbe queue;
	DurableProbe worker;
	text	   *namespace;
	text	   *name;			/* of the queue */
	TimestampTz now;
	bool		begun;
} DurableWorkerScan;

extern void durable_worker_scan_open(DurableWorkerScan *scan, text *namespace, text *queue,
									 TimestampTz now);
/* Its values hold until the next one, and its sets are still packed: this says whether one
 * of them has these members. */
extern bool durable_worker_set_has(ArrayType *packed, ArrayType *members);
extern bool durable_worker_scan_next(DurableWorkerScan *scan, DurableWorkerRow *row);
extern void durable_worker_scan_close(DurableWorkerScan *scan);

/* whether there is any */
extern bool durable_worker_exists(void);

/* Takes workers that are not alive out of their queues' lists, at most max, and deletes
 * those that have not been since "before"; between durable_plan_begin() and _end(). */
extern void durable_worker_expire(TimestampTz now, TimestampTz before, int max);

#endif							/* DURABLE_STORE_WORKER_H */
