/*-------------------------------------------------------------------------
 *
 * task.h
 *	  durable.task: tasks that are not settled yet.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_TASK_H
#define DURABLE_STORE_TASK_H

#include "postgres.h"

#include "base/rel.h"

/* columns, in table order */
enum
{
	TASK_ID,
	TASK_CREATED_AT,
	TASK_RUN_AT,
	TASK_LAST_LEASE,
	TASK_PRIORITY,
	TASK_ATTEMPT,
	TASK_MAX_ATTEMPTS,
	TASK_RECLAIMS,
	TASK_SEQ,
	TASK_BACKOFF,
	TASK_BACKOFF_MAX,
	TASK_BACKOFF_EXP,
	TASK_JITTER,
	TASK_TIMEOUT,
	TASK_PICKUP_TIMEOUT,
	TASK_NAMESPACE,
	TASK_QUEUE,
	TASK_NAME,
	TASK_KIND,
	TASK_TASK_ID,
	TASK_RUN_ID,
	TASK_ERROR,
	TASK_HEADERS,
	TASK_INPUT,
	TASK_REPLACED,
	TASK_REQUIRES,
	TASK_LIMITER,
	TASK_LIMITER_KEY,
	TASK_COLUMNS
};

/* A generated task id is "~" and the number; it is not stored. */
extern text *durable_task_id_text(int64 id, const text *explicit_id);
extern bool durable_task_id_generated(const text *task_id, int64 *id);

/* The task with this public id. by_id and by_task_id are open on the same
 * snapshot; the row's values hold until the probes' next use. */
extern bool durable_task_find(DurableProbe *by_id, DurableProbe *by_task_id,
							  text *namespace, text *task_id, DurableRow *row);
extern bool durable_task_find_number(DurableProbe *by_id, int64 id, DurableRow *row);
/* whether it is of this kind: task, step or turn */
extern bool durable_task_is(const DurableRow *row, const char *kind);
/* whether its row was replaced while it was claimed, and has not been handed out since */
extern bool durable_task_was_replaced(const DurableRow *row);
/* whether a lease that lists the task still holds it */
extern bool durable_task_held_by(const DurableRow *row, int64 lease);
/* how many of these (ascending) it holds */
extern int	durable_task_count_held(const int64 *ids, int n, int64 lease, Snapshot snapshot);
extern void durable_task_open_by_id(DurableProbe *probe, Snapshot snapshot);
extern void durable_task_open_by_task_id(DurableProbe *probe, Snapshot snapshot);

/* Ends every lease and puts back what nobody holds then; between
 * durable_plan_begin() and _end(). How many tasks. */
extern uint64 durable_task_requeue_orphans(void);

#endif							/* DURABLE_STORE_TASK_H */
