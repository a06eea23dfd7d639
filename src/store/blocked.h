/*-------------------------------------------------------------------------
 *
 * blocked.h
 *	  durable.run_blocked: runs that wait for a worker who can go on with them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_BLOCKED_H
#define DURABLE_STORE_BLOCKED_H

#include "postgres.h"

#include "utils/array.h"

/*
 * Who announces a worker for a queue and who finds that nobody can do the work must
 * not miss each other while both are uncommitted: the first shares the queue's lock
 * with its like and waits for it, the second does so among theirs, and never waits.
 * To the end of the transaction.
 */
extern void durable_blocked_lock_announce(text *namespace, text *queue);
extern bool durable_blocked_lock_park(text *namespace, text *queue);

/* With the run locked. requires may be NULL. */
extern void durable_blocked_store(int64 run, text *namespace, text *queue, ArrayType *requires);
extern void durable_blocked_remove(int64 run);

/* Those of the queue that a worker with these capabilities can go on with, oldest
 * first, at most max of them, added to ids. Returns the new count. */
extern int	durable_blocked_list(text *namespace, text *queue, ArrayType *capabilities,
								 int64 *ids, int n, int max);

/* whether there is any */
extern bool durable_blocked_exists(void);

/* Rows whose run is gone or does not wait any more; in durable_plan_begin(). */
extern void durable_blocked_expire(int max);

#endif							/* DURABLE_STORE_BLOCKED_H */
