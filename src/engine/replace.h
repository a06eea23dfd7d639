/*-------------------------------------------------------------------------
 *
 * replace.h
 *	  Dispatching anew under an id that is taken.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_REPLACE_H
#define DURABLE_REPLACE_H

#include "postgres.h"

#include "engine/dispatch.h"
#include "engine/tables.h"

/* Replaces what has the ids of those items that are "taken", and clears that. Stays
 * set for those whose task was gone when its turn came; true: there are such. */
extern bool durable_replace_tasks(const DurableTaskSpec *spec, DurableTaskItem *items, int n,
								  TimestampTz now, DurableTables *tables);

#endif							/* DURABLE_REPLACE_H */
