/*-------------------------------------------------------------------------
 *
 * find.h
 *	  Which runs a filter means.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_FIND_H
#define DURABLE_FIND_H

#include "postgres.h"

#include "utils/jsonb.h"
#include "utils/timestamp.h"

/* Statuses, as durable_runs_find() takes them. */
#define DURABLE_LIVE_STATUSES "{pending,running,suspended,blocked}"
#define DURABLE_ENDED_STATUSES "{completed,failed,cancelled,dead}"

typedef struct DurableSought
{
	Jsonb	   *filter;			/* checked by who has it from outside */
	text	   *namespace;		/* "*": all */
	TimestampTz now;
	const char *statuses;		/* NULL: all */
	bool		to_requeue;		/* only those that can be */
	int64		since;			/* only those after this number */
	int			max;
} DurableSought;

/* Ascending by number; palloc'd. */
extern int64 *durable_runs_find(const DurableSought *sought, int *n);

#endif							/* DURABLE_FIND_H */
