/*-------------------------------------------------------------------------
 *
 * progress.c
 *	  durable.task_progress: the last heartbeat of claimed tasks.
 *
 * The row is not removed when its task is settled, which would cost every
 * settle a look-up; the sweep does it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/plan.h"
#include "base/rel.h"
#include "store/progress.h"

enum
{
	PROGRESS_ID,
	PROGRESS_AT,
	PROGRESS_PROGRESS,
	PROGRESS_COLUMNS
};

/* One try under a new snapshot; false when somebody else changed the row. */
static bool
try_store(int64 id, TimestampTz at, void *progress, TimestampTz since, int64 least)
{
	DurableProbe probe;
	DurableWriter writer;
	DurableRow	row;
	Datum		key = Int64GetDatum(id);
	bool		found;
	bool		first;
	bool		stored = true;

	durable_probe_open(&probe, REL_TASK_PROGRESS, IDX_PROGRESS_PKEY,
					   durable_snapshot_push(), 1);
	durable_writer_open(&writer, REL_TASK_PROGRESS);
	found = durable_probe_find(&probe, &key, &row);
	/* what an earlier claim left tells nothing about this one */
	first = !found || DatumGetTimestampTz(row.values[PROGRESS_AT]) < since;
	if (first ||
		at - DatumGetTimestampTz(row.values[PROGRESS_AT]) >= least ||
		(progress != NULL && row.nulls[PROGRESS_PROGRESS]))
	{
		durable_row_set(&row, PROGRESS_ID, key);
		durable_row_set(&row, PROGRESS_AT, TimestampTzGetDatum(at));
		/* a beat that says nothing leaves the last word standing */
		if (progress != NULL || first)
			durable_row_set_pointer(&row, PROGRESS_PROGRESS, progress);
		if (found)
			stored = (durable_writer_update(&writer, &row, true) == TM_Ok);
		else
			stored = durable_writer_insert_unless(&writer, IDX_PROGRESS_PKEY, &row);
	}
	durable_writer_close(&writer);
	durable_probe_close(&probe);
	durable_snapshot_pop();
	return stored;
}

void
durable_progress_store(int64 id, TimestampTz at, void *progress, TimestampTz since,
					   int64 least)
{
	/* a concurrent heartbeat of the same task is as good as this one */
	if (!try_store(id, at, progress, since, least))
		(void) try_store(id, at, progress, since, least);
}

bool
durable_progress_last(int64 id, TimestampTz *at)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		key = Int64GetDatum(id);
	bool		found;

	durable_probe_open(&probe, REL_TASK_PROGRESS, IDX_PROGRESS_PKEY,
					   durable_snapshot_push(), 1);
	found = durable_probe_find(&probe, &key, &row);
	if (found)
		*at = DatumGetTimestampTz(row.values[PROGRESS_AT]);
	durable_probe_close(&probe);
	durable_snapshot_pop();
	return found;
}

bool
durable_progress_exists(void)
{
	DurableProbe probe;
	DurableRow	row;
	bool		found;

	durable_probe_open(&probe, REL_TASK_PROGRESS, IDX_PROGRESS_PKEY, durable_snapshot_push(), 0);
	found = durable_probe_find(&probe, NULL, &row);
	durable_probe_close(&probe);
	durable_snapshot_pop();
	return found;
}

static DurablePlan expire_plan = {
	.name = "expire progress",
	.sql =
	"DELETE FROM durable.task_progress p WHERE p.id OPERATOR(pg_catalog.=) ANY (ARRAY("
	" SELECT o.id FROM durable.task_progress o"
	" WHERE NOT EXISTS (SELECT FROM durable.task t WHERE t.id OPERATOR(pg_catalog.=) o.id)"
	" LIMIT $1 FOR UPDATE SKIP LOCKED))",
	.nargs = 1,
	.argtypes = {INT4OID},
};

uint64
durable_progress_expire(int max)
{
	Datum		values[] = {Int32GetDatum(max)};

	return durable_plan_run(&expire_plan, values, NULL);
}
