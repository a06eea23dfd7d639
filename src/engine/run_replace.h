/*-------------------------------------------------------------------------
 *
 * run_replace.h
 *	  Starting anew under a run id that is taken.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_RUN_REPLACE_H
#define DURABLE_RUN_REPLACE_H

#include "postgres.h"

#include "engine/conflict.h"
#include "engine/run.h"

typedef enum DurableRunReplaced
{
	RUN_REPLACED,
	RUN_HAS_BEGUN,				/* somebody has its first turn, or had */
	RUN_HAS_ENDED,
	RUN_IS_ANOTHER,				/* another workflow's, another namespace's, or a child */
	RUN_IS_GONE
} DurableRunReplaced;

/* A start that found its id taken. */
typedef struct DurableRunItem
{
	text	   *run_id;
	void	   *input;
	int			position;
	int64		id;				/* filled in */
	DurableRunReplaced result;	/* filled in */
} DurableRunItem;

/* Everything but the id and the input is in the spec. Sorts the items. Of several with
 * one id the last counts. */
extern void durable_run_replace(const DurableRunSpec *spec, const DurableConflict *conflict,
								DurableRunItem *items, int n);

#endif							/* DURABLE_RUN_REPLACE_H */
