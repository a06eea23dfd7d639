/*-------------------------------------------------------------------------
 *
 * work.c
 *	  Executing what the current role registered, one task after another.
 *
 * A session is armed, that is, woken by commits of new work, only when it has
 * looked and found nothing; then it looks once more. While it has something in
 * hand others are woken. What it was woken for between arming and finding is
 * passed on: it may be about another task than the one that was found.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/inval.h"
#include "utils/memutils.h"

#include "base/executing.h"
#include "base/wakeup.h"
#include "engine/claim.h"
#include "engine/execute.h"
#include "engine/work.h"
#include "store/workflow.h"

void
durable_work_begin(DurableWork *work, MemoryContext context)
{
	work->context = AllocSetContextCreate(context, "durable work", ALLOCSET_DEFAULT_SIZES);
	work->names = AllocSetContextCreate(context, "durable work names", ALLOCSET_SMALL_SIZES);
	work->version = 0;
	(void) durable_waiter_begin(NULL, 0, work->queues == NULL ? GetUserId() : InvalidOid);
	work->armed = true;
	durable_executing_watch();
}

void
durable_work_end(DurableWork *work)
{
	durable_executing_unwatch();
	durable_waiter_end();
	durable_execute_end();
}

static void
read_namespaces(DurableWork *work)
{
	uint64		version = durable_definitions_version();
	MemoryContext before;

	if (version == work->version)
		return;
	MemoryContextReset(work->names);
	before = MemoryContextSwitchTo(work->names);
	work->own = durable_owner_queue(GetUserId());
	work->namespaces = durable_namespaces_of(GetUserId(), &work->nnamespaces);
	MemoryContextSwitchTo(before);
	work->version = version;
}

static bool
claim(DurableWork *work, DurableWorkItem *item)
{
	/* definitions and pauses that committed meanwhile */
	AcceptInvalidationMessages();
	read_namespaces(work);
	for (int i = 0; i < work->nnamespaces; i++)
	{
		bool		found;

		do
		{
			CHECK_FOR_INTERRUPTS();
			found = durable_claim_work(work->namespaces[i],
									   work->queues ? work->queues : &work->own,
									   work->queues ? work->nqueues : 1, item);
			SPI_commit();
		} while (!found && durable_claim_ended_early());
		if (found)
			return true;
	}
	return false;
}

bool
durable_work_once(DurableWork *work)
{
	MemoryContext before = MemoryContextSwitchTo(work->context);
	DurableWorkItem item;
	bool		found = !work->armed && claim(work, &item);

	if (!found)
	{
		durable_waiter_rearm();
		work->armed = true;
		found = claim(work, &item);
	}
	if (found)
	{
		if (work->armed)
			durable_waiter_busy();
		work->armed = false;
		durable_execute(&item);
	}
	MemoryContextSwitchTo(before);
	MemoryContextReset(work->context);
	return found;
}
