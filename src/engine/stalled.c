/*-------------------------------------------------------------------------
 *
 * stalled.c
 *	  Telling the operator of runs that have stalled.
 *
 * Which ones have is decided by durable.stalled_runs(), at most 100. What a process has
 * told of stays in its memory as long as each look finds it, so that there is one
 * line per episode; a run that moves on and stalls again is told of again, and so is
 * everything by a new process.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/names.h"
#include "base/plan.h"
#include "engine/stalled.h"

static DurablePlan stalled_plan = {
	.name = "stalled runs",
	.sql =
	"SELECT pg_catalog.concat(s.seq, ' ', s.run_id), s.run_id, s.workflow,"
	" pg_catalog.format(CASE s.reason WHEN 'wake_forever'"
	"  THEN 'It has been waiting for the signal \"%1$s\", at position %2$s, for %4$s.'"
	"  ELSE 'Nothing has been heard of its step \"%1$s\", at position %2$s, attempt %3$s, for %4$s.' END,"
	"  s.name, s.seq, s.attempts, pg_catalog.date_trunc('second', s.age))"
	" FROM durable.stalled_runs(pg_catalog.make_interval(mins => $1)) s",
	.nargs = 1,
	.argtypes = {INT4OID},
};

/* The first column of what was found last. */
static MemoryContext memory = NULL;
static List *told = NIL;

static bool
was_told(const text *key)
{
	ListCell   *lc;

	foreach(lc, told)
	{
		if (durable_text_same(lfirst(lc), key))
			return true;
	}
	return false;
}

void
durable_stalled_report(int minutes)
{
	MemoryContext context = CurrentMemoryContext;
	/* an error leaves what was told before */
	MemoryContext fresh = AllocSetContextCreate(context, "durable stalled runs",
												ALLOCSET_SMALL_SIZES);
	Datum		value = Int32GetDatum(minutes);
	List	   *found = NIL;
	uint64		n;

	durable_plan_begin();
	n = durable_plan_run(&stalled_plan, &value, NULL);
	for (uint64 i = 0; i < n; i++)
	{
		text	   *key = durable_plan_text(i, 1, fresh);
		MemoryContext before = MemoryContextSwitchTo(fresh);

		found = lappend(found, key);
		MemoryContextSwitchTo(before);
		if (!was_told(key))
			ereport(LOG,
					errmsg("run \"%s\" of workflow \"%s\" has stalled",
						   text_to_cstring(durable_plan_text(i, 2, context)),
						   text_to_cstring(durable_plan_text(i, 3, context))),
					errdetail_internal("%s", text_to_cstring(durable_plan_text(i, 4, context))));
	}
	durable_plan_end();
	if (memory != NULL)
		MemoryContextDelete(memory);
	MemoryContextSetParent(fresh, TopMemoryContext);
	memory = fresh;
	told = found;
}
