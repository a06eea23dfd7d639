/*-------------------------------------------------------------------------
 *
 * work.h
 *	  Executing what the current role registered, one task after another.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_WORK_H
#define DURABLE_WORK_H

#include "postgres.h"

typedef struct DurableWork
{
	text	  **queues;			/* NULL: the role's own */
	int			nqueues;
	MemoryContext context;		/* reset after each task */
	MemoryContext names;		/* what is remembered between them */
	text	   *own;			/* the role's own queue */
	text	  **namespaces;		/* where the role has definitions */
	int			nnamespaces;
	uint64		version;		/* of the definitions then */
	bool		armed;			/* commits of new work wake this session */
} DurableWork;

/* Registers the session as one to wake. "context" lives until the end, and what is
 * remembered goes with it. */
extern void durable_work_begin(DurableWork *work, MemoryContext context);
/* Also after an error. */
extern void durable_work_end(DurableWork *work);

/*
 * Executes one task of any namespace where the role has something; false: there
 * is none. Commits as it goes: call inside SPI that may. After false the session
 * may sleep; what commits from then on sets its latch.
 */
extern bool durable_work_once(DurableWork *work);

#endif							/* DURABLE_WORK_H */
