/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  pause, resume, workers: the database's background workers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/compat.h"
#include "base/errors.h"
#include "base/security.h"
#include "base/workers.h"
#include "store/pause.h"

DURABLE_FUNCTION(durable_pause);
DURABLE_FUNCTION(durable_resume);
DURABLE_FUNCTION(durable_workers_shown);

/* columns */
enum
{
	SHOWN_PID,
	SHOWN_KIND,
	SHOWN_ROLE,
	SHOWN_STATE,
	SHOWN_NAMESPACE,
	SHOWN_RUN_ID,
	SHOWN_STEP,
	SHOWN_STARTED_AT,
	SHOWN_SINCE,
	SHOWN_COLUMNS
};

static const char *const kind_names[] = {
	[WORKER_SCHEDULER] = "scheduler",
	[WORKER_EXECUTOR] = "executor",
};

static const char *const state_names[] = {
	[WORKER_FREE] = "free",
	[WORKER_STARTING] = "starting",
	[WORKER_CONNECTING] = "starting",
	[WORKER_IDLE] = "idle",
	[WORKER_BUSY] = "busy",
	[WORKER_ENDED] = "ended",
};

Datum
durable_pause(PG_FUNCTION_ARGS)
{
	durable_require_writable("durable.pause()");
	PG_RETURN_BOOL(durable_workers_set_paused(true));
}

Datum
durable_resume(PG_FUNCTION_ARGS)
{
	durable_require_writable("durable.resume()");
	PG_RETURN_BOOL(durable_workers_set_paused(false));
}

static void
show_text(Datum *values, bool *nulls, int column, const char *shown)
{
	nulls[column] = shown[0] == '\0';
	if (!nulls[column])
		values[column] = CStringGetTextDatum(shown);
}

static void
show(ReturnSetInfo *result, const DurableWorkerInfo *worker)
{
	Datum		values[SHOWN_COLUMNS] = {0};
	bool		nulls[SHOWN_COLUMNS] = {0};
	bool		readable = worker->namespace[0] != '\0' &&
		durable_access_has(cstring_to_text(worker->namespace), PRIVILEGE_READ);

	values[SHOWN_PID] = Int32GetDatum(worker->pid);
	nulls[SHOWN_PID] = worker->pid == 0;
	values[SHOWN_KIND] = CStringGetTextDatum(kind_names[worker->kind]);
	values[SHOWN_ROLE] = ObjectIdGetDatum(worker->role);
	nulls[SHOWN_ROLE] = !OidIsValid(worker->role);
	values[SHOWN_STATE] = CStringGetTextDatum(worker->leave && worker->state != WORKER_ENDED ?
											  "leaving" : state_names[worker->state]);
	show_text(values, nulls, SHOWN_NAMESPACE, readable ? worker->namespace : "");
	show_text(values, nulls, SHOWN_RUN_ID, readable ? worker->run_id : "");
	show_text(values, nulls, SHOWN_STEP, readable ? worker->step : "");
	values[SHOWN_STARTED_AT] = TimestampTzGetDatum(worker->started_at);
	values[SHOWN_SINCE] = TimestampTzGetDatum(worker->since);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

Datum
durable_workers_shown(PG_FUNCTION_ARGS)
{
	DurableWorkerInfo *workers;
	int			n = durable_workers_list(MyDatabaseId, &workers);

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < n; i++)
	{
		if (workers[i].state != WORKER_ENDED)
			show((ReturnSetInfo *) fcinfo->resultinfo, &workers[i]);
	}
	return (Datum) 0;
}
