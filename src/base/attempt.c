/*-------------------------------------------------------------------------
 *
 * attempt.c
 *	  Something that may fail without failing the transaction around it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "base/attempt.h"

void
durable_attempt_begin(DurableAttempt *attempt, const char *patience)
{
	attempt->context = CurrentMemoryContext;
	attempt->owner = CurrentResourceOwner;
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(attempt->context);
	attempt->settings = NewGUCNestLevel();
	(void) set_config_option("lock_timeout", patience, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

void
durable_attempt_end(DurableAttempt *attempt)
{
	AtEOXact_GUC(false, attempt->settings);
	ReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(attempt->context);
	CurrentResourceOwner = attempt->owner;
}

ErrorData *
durable_attempt_undo(DurableAttempt *attempt)
{
	ErrorData  *error;

	MemoryContextSwitchTo(attempt->context);
	error = CopyErrorData();
	FlushErrorState();
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(attempt->context);
	CurrentResourceOwner = attempt->owner;
	return error;
}
