/*-------------------------------------------------------------------------
 *
 * pause.c
 *	  durable.worker_pause: whether the database's workers are paused.
 *
 * The table has one row while they are, and none otherwise. Its trigger makes
 * them look at once.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "base/plan.h"
#include "store/pause.h"

static DurablePlan paused_plan = {
	.name = "are workers paused",
	.sql = "SELECT FROM durable.worker_pause",
};

static DurablePlan pause_plan = {
	.name = "pause workers",
	.sql =
	"INSERT INTO durable.worker_pause (paused_at, paused_by)"
	" VALUES (pg_catalog.clock_timestamp(), $1) ON CONFLICT DO NOTHING",
	.nargs = 1,
	.argtypes = {TEXTOID},
};

static DurablePlan resume_plan = {
	.name = "resume workers",
	.sql = "DELETE FROM durable.worker_pause",
};

bool
durable_workers_are_paused(void)
{
	bool		paused;

	durable_plan_begin();
	paused = durable_plan_run(&paused_plan, NULL, NULL) > 0;
	durable_plan_end();
	return paused;
}

bool
durable_workers_set_paused(bool paused)
{
	Datum		role = CStringGetTextDatum(GetUserNameFromId(GetUserId(), false));
	uint64		changed;

	durable_plan_begin();
	changed = paused ? durable_plan_run(&pause_plan, &role, NULL) :
		durable_plan_run(&resume_plan, NULL, NULL);
	durable_plan_end();
	return changed > 0;
}
