/*-------------------------------------------------------------------------
 *
 * progress.h
 *	  durable.task_progress: the last heartbeat of claimed tasks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_PROGRESS_H
#define DURABLE_STORE_PROGRESS_H

#include "postgres.h"

#include "datatype/timestamp.h"

/* Stores a heartbeat of a claim that began at "since", unless the claim's last
 * one is younger than "least" microseconds and the new one has no progress that
 * it lacked. */
extern void durable_progress_store(int64 id, TimestampTz at, void *progress,
								   TimestampTz since, int64 least);

/* When the last one was; false: there is none. */
extern bool durable_progress_last(int64 id, TimestampTz *at);

/* Whether any heartbeat is stored. */
extern bool durable_progress_exists(void);

/* Deletes heartbeats of tasks that are settled; between durable_plan_begin()
 * and _end(). How many. */
extern uint64 durable_progress_expire(int max);

#endif							/* DURABLE_STORE_PROGRESS_H */
