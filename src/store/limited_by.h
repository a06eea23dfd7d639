/*-------------------------------------------------------------------------
 *
 * limited_by.h
 *	  The limiter that a task has named, as its rows tell it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_LIMITED_BY_H
#define DURABLE_STORE_LIMITED_BY_H

#include "postgres.h"

#include "utils/builtins.h"

#include "base/rel.h"

typedef struct DurableLimitedBy
{
	int64		limiter;
	text	   *key;
} DurableLimitedBy;

/* gate NULL: none */
static inline void
durable_limited_by_to_row(const DurableLimitedBy *gate, DurableRow *row, int limiter, int key)
{
	if (gate == NULL)
		durable_row_set_null(row, limiter);
	else
		durable_row_set(row, limiter, Int64GetDatum(gate->limiter));
	durable_row_set_pointer(row, key, gate == NULL ? NULL : gate->key);
}

/* *space when the row names one, which holds as long as the row does; or NULL */
static inline const DurableLimitedBy *
durable_limited_by_from_row(const DurableRow *row, int limiter, int key, DurableLimitedBy *space)
{
	if (row->nulls[limiter])
		return NULL;
	space->limiter = DatumGetInt64(row->values[limiter]);
	space->key = DatumGetTextPP(row->values[key]);
	return space;
}

#endif							/* DURABLE_STORE_LIMITED_BY_H */
