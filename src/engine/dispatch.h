/*-------------------------------------------------------------------------
 *
 * dispatch.h
 *	  Queueing tasks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_DISPATCH_H
#define DURABLE_DISPATCH_H

#include "postgres.h"

#include "datatype/timestamp.h"

/* What the tasks of one call have in common; NULL pointers are SQL NULLs. */
typedef struct DurableTaskSpec
{
	text	   *namespace;
	text	   *queue;
	text	   *name;
	int32		priority;
	int32		max_attempts;
	TimestampTz run_at;			/* DT_NOBEGIN: at once */
	Interval   *backoff;
	Interval   *backoff_max;
	bool		exponential;
	bool		jitter;
	void	   *headers;
	text	   *limiter;			/* NULL: none */
	text	   *fairness_key;
} DurableTaskSpec;

/* One task. */
typedef struct DurableTaskItem
{
	void	   *input;			/* jsonb or NULL */
	text	   *task_id;		/* or NULL: generated; filled in on return */
	int			position;
	int64		id;				/* filled in */
} DurableTaskItem;

/* Access and arguments were checked by the caller. Tasks whose id is taken by
 * a live task or an unread result are left as they are. Sorts the items. */
extern void durable_dispatch_tasks(const DurableTaskSpec *spec, DurableTaskItem *items, int n);

#endif							/* DURABLE_DISPATCH_H */
