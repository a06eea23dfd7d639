/*-------------------------------------------------------------------------
 *
 * attempt.h
 *	  Something that may fail without failing the transaction around it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_ATTEMPT_H
#define DURABLE_ATTEMPT_H

#include "postgres.h"

#include "utils/resowner.h"

/*
 * A subtransaction in which no lock is waited for longer than "patience" (a value of
 * lock_timeout):
 *
 *	durable_attempt_begin(&attempt, "50ms");
 *	PG_TRY();
 *	{
 *		...
 *		durable_attempt_end(&attempt);
 *	}
 *	PG_CATCH();
 *	{
 *		ErrorData  *error = durable_attempt_undo(&attempt);
 *		...
 *	}
 *	PG_END_TRY();
 */
typedef struct DurableAttempt
{
	MemoryContext context;
	ResourceOwner owner;
	int			settings;
} DurableAttempt;

extern void durable_attempt_begin(DurableAttempt *attempt, const char *patience);
extern void durable_attempt_end(DurableAttempt *attempt);
/* What went wrong, in the memory context of the beginning; all of it was undone. */
extern ErrorData *durable_attempt_undo(DurableAttempt *attempt);

#endif							/* DURABLE_ATTEMPT_H */
