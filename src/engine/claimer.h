/*-------------------------------------------------------------------------
 *
 * claimer.h
 *	  Whether a task may be handed to whoever claims.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_CLAIMER_H
#define DURABLE_CLAIMER_H

#include "postgres.h"

#include "utils/array.h"

#include "base/rel.h"
#include "engine/capability.h"

/* A worker that speaks another protocol sees this many tasks in one claim. */
#define DURABLE_UNFIT_TASKS 100

/* Who claims. One that has not announced itself, or has no name, counts as a worker of
 * protocol 1 with what that can do. */
typedef struct DurableClaimer
{
	bool		session;		/* of the database: whatever it may execute */
	bool		fits_protocol;
	ArrayType  *capabilities;	/* NULL: those of version 1, not looked at yet */
	/* the last question about others, and its answer */
	text	   *queue;			/* NULL: none was asked */
	ArrayType  *requires;
	DurableRoute route;
} DurableClaimer;

typedef enum DurableFit
{
	CLAIMER_FITS,
	OTHERS_FIT,					/* it stays where it is */
	NOBODY_FITS					/* a turn that no live worker can take: park its run */
} DurableFit;

/* worker may be NULL */
extern void durable_claimer_look(DurableClaimer *claimer, text *namespace, text *worker);
extern DurableFit durable_claimer_fit(DurableClaimer *claimer, const DurableRow *task);

/* Parks the run of a ready turn as blocked, and takes its entry out of task_ready.
 * false: somebody holds what is needed, or it may go on after all; nothing was changed. */
extern bool durable_claimer_park(const DurableRow *task, DurableWriter *ready, ItemPointer tid);

#endif							/* DURABLE_CLAIMER_H */
