/*-------------------------------------------------------------------------
 *
 * deadletter.c
 *	  A run that is dead starts a run of its dead-letter workflow.
 *
 * That is named by the run's workflow, or else by the namespace's default. The
 * dead-letter run is inserted under the dead run's lock and in the transaction
 * that makes it dead, so there is one or neither. Its id is made of the dead run's,
 * and nobody else can start a run of such an id: so that id is either there and
 * committed, or free, and the insertion does not wait. (Who deletes that run at this
 * moment has not deleted it yet.) A run that was requeued and dies once more finds
 * its dead letter there. One that is left of an earlier run of that id, which was deleted,
 * is not its own: then the id gets a number.
 *
 * No user code runs here. Whoever makes a run dead may be a sweep, or a claim of
 * anybody: so the workflow's check of its input is left to the first turn of the
 * dead-letter run, as for a child. That one fails then, where everybody sees it.
 *
 * Nobody asked for this start at this moment. It is made in the name of the role that
 * named the workflow, the owner of the run's workflow or who set the namespace's
 * default, and that role must hold "start" there now.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "base/names.h"
#include "base/security.h"
#include "engine/deadletter.h"
#include "engine/run.h"
#include "store/deadletter.h"
#include "store/run_log.h"
#include "store/workflow.h"

static text *
text_of(const DurableRow *row, int column)
{
	return DatumGetTextPP(row->values[column]);
}

static Jsonb *
jsonb_of(const DurableRow *row, int column)
{
	return row->nulls[column] ? NULL : DatumGetJsonbP(row->values[column]);
}

/* Who takes a dead run of this workflow, and in whose name. */
static bool
find_target(const DurableRow *row, DurableDeadLetter *target)
{
	DurableWorkflow workflow;

	if (durable_workflow_find(text_of(row, RUN_NAMESPACE), text_of(row, RUN_WORKFLOW),
							  text_of(row, RUN_VERSION), &workflow) &&
		workflow.dead_letter_workflow != NULL)
	{
		target->workflow = workflow.dead_letter_workflow;
		target->owner = workflow.owner;
		return true;
	}
	return durable_dead_letter_find(text_of(row, RUN_NAMESPACE), target);
}

/* Whether a run is the dead letter of this one, and not of an earlier run that had its id
 * and was deleted. */
static bool
is_for(int64 letter, const DurableRow *row)
{
	DurableRow	found;
	JsonbValue *dead;

	if (letter < DatumGetInt64(row->values[RUN_ID]) || !durable_run_read(letter, &found) ||
		found.nulls[RUN_INPUT])
		return false;
	dead = getKeyJsonValueFromContainer(&DatumGetJsonbP(found.values[RUN_INPUT])->root,
										"dead_run_id", strlen("dead_run_id"), NULL);
	return dead != NULL && dead->type == jbvString &&
		durable_text_same(cstring_to_text_with_len(dead->val.string.val, dead->val.string.len),
						  text_of(row, RUN_RUN_ID));
}

/* Its id; *exists: the run has one. The newest snapshot decides. */
static text *
choose_id(const DurableRow *row, bool *exists)
{
	const char *first = psprintf(DURABLE_ID_DEAD_LETTER "%s",
								 text_to_cstring(text_of(row, RUN_RUN_ID)));
	text	   *run_id = cstring_to_text(first);
	int64		id;

	*exists = false;
	durable_snapshot_push();
	for (int n = 2; !*exists && durable_run_number(run_id, &id); n++)
	{
		CHECK_FOR_INTERRUPTS();
		if (is_for(id, row))
			*exists = true;
		else
			run_id = cstring_to_text(psprintf("%s:%d", first, n));
	}
	durable_snapshot_pop();
	return run_id;
}

/* What keeps the dead letter from being started, or NULL: it was. */
static const char *
start(const DurableRow *row, const DurableDeadLetter *target)
{
	DurableWorkflow workflow;
	text	   *namespace = text_of(row, RUN_NAMESPACE);
	DurableRunSpec spec = {
		.workflow = &workflow,
		.priority = DatumGetInt32(row->values[RUN_PRIORITY]),
		.start_at = DT_NOBEGIN,
		.for_failure = true,
		.headers = row->nulls[RUN_HEADERS] ? NULL : DatumGetPointer(row->values[RUN_HEADERS]),
	};
	bool		exists;

	if (!durable_workflow_find(namespace, target->workflow, NULL, &workflow))
		return "it is not registered in the run's namespace";
	if (!durable_access_role_has(target->owner, namespace, PRIVILEGE_START))
		/* by number where it is gone */
		return psprintf("role %s does not exist any more, or lacks the privilege \"start\" in the run's namespace",
						DatumGetCString(DirectFunctionCall1(regroleout,
																ObjectIdGetDatum(target->owner))));
	spec.run_id = choose_id(row, &exists);
	if (exists)
		return psprintf("run \"%s\" exists already", text_to_cstring(spec.run_id));
	spec.tags = workflow.tags;
	spec.input = durable_run_describe(row, "dead_run_id", jsonb_of(row, RUN_ERROR), NULL);
	if (!durable_run_start(&spec))
		return psprintf("run \"%s\" exists already", text_to_cstring(spec.run_id));
	return NULL;
}

void
durable_dead_letter_start(const DurableRun *run)
{
	const DurableRow *row = &run->row;
	DurableDeadLetter target;
	const char *problem;
	const char *message;

	if (durable_text_starts(text_of(row, RUN_RUN_ID), DURABLE_ID_DEAD_LETTER) ||
		!find_target(row, &target))
		return;
	problem = start(row, &target);
	if (problem == NULL)
		return;
	message = psprintf("dead-letter workflow \"%s\" was not started: %s",
					   text_to_cstring(target.workflow), problem);
	durable_run_note(DatumGetInt64(row->values[RUN_ID]), "warning", message, NULL);
	ereport(LOG,
			errmsg("run \"%s\" is dead", text_to_cstring(text_of(row, RUN_RUN_ID))),
			errdetail_internal("%s", message));
}
