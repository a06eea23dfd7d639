/*-------------------------------------------------------------------------
 *
 * conflict.h
 *	  What a dispatch or a start does when its id is taken.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_CONFLICT_H
#define DURABLE_CONFLICT_H

#include "postgres.h"

#include "datatype/timestamp.h"

typedef enum DurableOnConflict
{
	CONFLICT_RETURN,			/* what is there counts */
	CONFLICT_REJECT,
	CONFLICT_REPLACE,			/* the new one counts, with its time */
	CONFLICT_KEEP_TIME,			/* the new one counts, at the time of the old one */
	CONFLICT_DEBOUNCE			/* the new one counts, later; but see "within" */
} DurableOnConflict;

typedef struct DurableConflict
{
	DurableOnConflict policy;
	int64		within;			/* debounced for so long at most, in us; 0: for ever */
} DurableConflict;

static inline bool
durable_conflict_replaces(const DurableConflict *conflict)
{
	return conflict->policy >= CONFLICT_REPLACE;
}

/*
 * When the new one may run. "asked" is its own time, "planned" that of the one which
 * it replaces (DT_NOBEGIN: at once), "since" when the first of all that were replaced
 * was asked for.
 */
static inline TimestampTz
durable_conflict_time(const DurableConflict *conflict, TimestampTz asked, TimestampTz planned,
					  TimestampTz since)
{
	if (conflict->policy == CONFLICT_KEEP_TIME)
		return planned;
	if (conflict->policy == CONFLICT_DEBOUNCE && conflict->within > 0)
		return Min(asked, since + conflict->within);
	return asked;
}

#endif							/* DURABLE_CONFLICT_H */
