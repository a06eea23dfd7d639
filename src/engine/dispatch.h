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

#include "base/rel.h"
#include "engine/conflict.h"
#include "store/limited_by.h"

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
	DurableLimitedBy space;
	const DurableLimitedBy *gate;	/* NULL: none; see durable_dispatch_find_limiter() */
	DurableConflict conflict;
} DurableTaskSpec;

/* One task. */
typedef struct DurableTaskItem
{
	void	   *input;			/* jsonb or NULL */
	text	   *task_id;		/* or NULL: generated; filled in on return */
	int			position;
	int64		id;				/* filled in */
	bool		taken;			/* filled in: the id was, and what has it was left alone */
} DurableTaskItem;

/* After access was checked: 42704 when there is no such limiter. */
extern void durable_dispatch_find_limiter(DurableTaskSpec *spec);

/* The row of a task that was dispatched at "now" and not claimed since. */
extern void durable_dispatch_fill(const DurableTaskSpec *spec, const DurableTaskItem *item,
								  TimestampTz now, DurableRow *row);

/* Access and arguments were checked by the caller. Tasks whose id is taken by
 * a live task or an unread result are left as they are, or replaced, as
 * spec->conflict says. Sorts the items. */
extern void durable_dispatch_tasks(const DurableTaskSpec *spec, DurableTaskItem *items, int n);

#endif							/* DURABLE_DISPATCH_H */
