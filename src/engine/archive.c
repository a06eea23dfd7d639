/*-------------------------------------------------------------------------
 *
 * archive.c
 *	  Calling the archive functions of retention policies.
 *
 * An archive function is user code, so it is called where all user code is: in a
 * session of the role that owns it, by a task in that role's queue. Its effects and the
 * deletion of the run are one transaction, so each run is archived once, or kept.
 *
 * While the function is called nothing of the engine's is locked. Afterwards the tree is
 * locked and compared with what the function was given; if a run of it was tried
 * again meanwhile, all that the function did is rolled back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "base/clock.h"
#include "base/executing.h"
#include "base/json.h"
#include "base/names.h"
#include "base/security.h"
#include "engine/archive.h"
#include "engine/run.h"
#include "engine/settle.h"
#include "engine/turn.h"
#include "store/retention.h"

/* The owner's other work has its turn after that. */
#define SLICE_US USECS_PER_SEC

/* A tree that changed, or that somebody holds, is looked at again this much later. */
#define AGAIN_US USECS_PER_MINUTE

/* What is given to the function is what its owner may read; NULL: nothing is wrong. */
static const char *
why_not(text *namespace)
{
	if (!durable_access_has(namespace, PRIVILEGE_MANAGE))
		return "the owner of the policy does not hold the privilege \"manage\" any more";
	if (!durable_access_has(namespace, PRIVILEGE_READ))
		return "the owner of the policy does not hold the privilege \"read\" any more";
	return NULL;
}

static void
note_failure(int64 policy, int64 run, const char *error)
{
	durable_archive_failed(policy, run, cstring_to_text(error), durable_clock_now());
	SPI_commit();
}

static bool
is_as_before(int64 policy, int64 run, const text *state)
{
	DurableArchiveDocument document;

	durable_archive_document(policy, run, &document);
	return document.state != NULL && durable_text_same(document.state, state);
}

/* What the function did is rolled back. If the tree was changed and is as before by that,
 * the function had done it, and would do it again. */
static void
undo(int64 policy, int64 run, const text *state)
{
	bool		changed = !is_as_before(policy, run, state);

	SPI_rollback();
	if (changed && is_as_before(policy, run, state))
		durable_archive_failed(policy, run,
							   cstring_to_text("the archive function has changed the run"),
							   durable_clock_now());
	else
		durable_archive_again(policy, run, durable_clock_now() + AGAIN_US);
}

/* The function has returned: the tree goes, together with what it did. */
static void
finish(int64 policy, int64 run, text *state)
{
	DurableNumbers tasks;

	if (durable_archive_done(policy, run, state, &tasks) == 0)
		undo(policy, run, state);
	else
	{
		for (int i = 0; i < tasks.n; i++)
			durable_run_drop_task(tasks.values[i], 0);
	}
	SPI_commit();
}

static void
archive(DurableTurn *step, int64 policy, int64 run, text *function)
{
	DurableHandler handler = {.handler = function, .owner = GetUserId()};
	DurableArchiveDocument document;
	const char *refusal;
	Jsonb	   *output = NULL;
	Jsonb	   *error = NULL;
	bool		succeeded;

	durable_archive_document(policy, run, &document);
	if (document.namespace == NULL || document.state == NULL)
	{
		durable_archive_again(policy, run, durable_clock_now() +
							  (document.namespace == NULL ? 0 : AGAIN_US));
		SPI_commit();
		return;
	}
	refusal = why_not(document.namespace);
	if (refusal != NULL)
	{
		note_failure(policy, run, refusal);
		return;
	}
	step->namespace = document.namespace;
	durable_current_step = step;
	succeeded = durable_execute_call(&handler, document.document, step->context, &output, &error);
	durable_current_step = NULL;
	if (succeeded)
		finish(policy, run, document.state);
	else
		note_failure(policy, run, durable_json_string(error, "message"));
}

/* false: there is none any more */
static bool
archive_next(DurableTurn *step, int64 policy)
{
	int64		run;
	text	   *function;
	bool		found = durable_archive_next(policy, durable_clock_now(), &run, &function);

	SPI_commit();
	if (found)
		archive(step, policy, run, function);
	return found;
}

void
durable_archive_execute(const DurableWorkItem *item)
{
	MemoryContext before = CurrentMemoryContext;
	MemoryContext context = AllocSetContextCreate(before, "durable archive",
												  ALLOCSET_DEFAULT_SIZES);
	TimestampTz until = GetCurrentTimestamp() + SLICE_US;
	DurableTarget target = {.id = item->id};
	int64		policy = durable_archiver_of(item->id);
	bool		more = policy != 0;

	while (more && GetCurrentTimestamp() < until)
	{
		DurableTurn *step;

		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(context);
		MemoryContextSwitchTo(context);
		step = palloc0(sizeof(DurableTurn));
		step->context = context;
		more = archive_next(step, policy);
		MemoryContextSwitchTo(before);
	}
	MemoryContextDelete(context);
	if (durable_settle_as_worker(&item->lease.token, more ? SETTLE_RELEASE : SETTLE_COMPLETE,
								 &target, 1) == 1)
		durable_executing_end();
	SPI_commit();
}
