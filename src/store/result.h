/*-------------------------------------------------------------------------
 *
 * result.h
 *	  durable.task_result: how stand-alone tasks ended.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_RESULT_H
#define DURABLE_STORE_RESULT_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/array.h"

#include "base/rel.h"

enum
{
	RESULT_ID,
	RESULT_CREATED_AT,
	RESULT_FINISHED_AT,
	RESULT_LEASE_ID,
	RESULT_PRIORITY,
	RESULT_ATTEMPT,
	RESULT_RECLAIMS,
	RESULT_STATUS,
	RESULT_NAMESPACE,
	RESULT_QUEUE,
	RESULT_NAME,
	RESULT_TASK_ID,
	RESULT_OUTPUT,
	RESULT_ERROR,
	RESULT_EVENTS,
	RESULT_HEADERS,
	RESULT_INPUT,
	RESULT_COLUMNS
};

typedef enum DurableTaskStatus
{
	TASK_COMPLETED,
	TASK_FAILED,
	TASK_CANCELLED
} DurableTaskStatus;

/* NULL pointers are SQL NULLs */
typedef struct DurableOutcome
{
	DurableTaskStatus status;
	void	   *output;
	void	   *error;
	void	   *events;
} DurableOutcome;

/* The result row of a task row. It shares the task's by-reference values. A
 * task that did not complete keeps its input and headers. */
extern void durable_result_of(const DurableRow *task, const DurableOutcome *outcome,
							  TimestampTz finished_at, DurableRow *result);

/* Whether an unread result finished before; a look at the oldest of each name. */
extern bool durable_result_is_old(TimestampTz before);

/* Whether an unread result has this id, as of the latest commit. */
extern bool durable_result_exists(text *namespace, text *task_id);

/* Deletes it, whoever has it in hand; waits for them. false: there is none. */
extern bool durable_result_remove(text *namespace, text *task_id);

/*
 * The statements below run between durable_plan_begin() and _end(); rows are
 * left in SPI_tuptable.
 */

/* (id, task_id, name, queue, status, output, error, events, attempt,
 * created_at, finished_at) of unread results, oldest first, now under lease_id */
extern uint64 durable_result_claim(text *namespace, ArrayType *names, int max, int64 lease_id);
/* deletes results of that lease; how many; task_ids NULL = all */
extern uint64 durable_result_acknowledge(int64 lease_id, ArrayType *ids, ArrayType *task_ids);
/* (count) of the results that the lease still holds */
extern int	durable_result_count_held(int64 lease_id, ArrayType *ids);
/* gives a lapsed lease's results back; (id) of those that somebody holds */
extern uint64 durable_result_unclaim(int64 lease_id, ArrayType *ids);
/* deletes unread results that finished before; how many */
extern uint64 durable_result_expire(TimestampTz before, int max);

#endif							/* DURABLE_STORE_RESULT_H */
