/*-------------------------------------------------------------------------
 *
 * claimer.c
 *	  Whether a task may be handed to whoever claims.
 *
 * A task that requires something goes to workers that can do it. As long as one is
 * alive, others leave it where it is. Where none is, a turn is not left in its queue
 * for nobody to see: its run is parked as blocked. A step has been looked at when it
 * was dispatched, and waits.
 *
 * Parking happens in a claim, which has list entries in hand; so neither the run nor
 * the entry is waited for.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/names.h"
#include "engine/claimer.h"
#include "store/blocked.h"
#include "store/delayed.h"
#include "store/lease.h"
#include "store/task.h"

void
durable_claimer_look(DurableClaimer *claimer, text *namespace, text *worker)
{
	DurableWorkerRow row;

	memset(claimer, 0, sizeof(DurableClaimer));
	claimer->fits_protocol = true;
	claimer->session = worker != NULL && durable_text_is(worker, DURABLE_SESSION_WORKER);
	if (worker == NULL || claimer->session || !durable_worker_find(namespace, worker, &row) ||
		row.expires_at <= durable_clock_now())
		return;
	claimer->fits_protocol = durable_protocol_fits(row.protocol_min, row.protocol_max);
	claimer->capabilities = row.capabilities;
}

static ArrayType *
required(const DurableRow *task)
{
	return task->nulls[TASK_REQUIRES] ? NULL : DatumGetArrayTypeP(task->values[TASK_REQUIRES]);
}

/* A queue has few sets of requirements, and mostly one. */
static DurableRoute
route_of_others(DurableClaimer *claimer, const DurableRow *task, ArrayType *requires)
{
	text	   *queue = DatumGetTextPP(task->values[TASK_QUEUE]);
	bool		known = claimer->queue != NULL && durable_text_same(claimer->queue, queue) &&
		(requires == NULL) == (claimer->requires == NULL) &&
		(requires == NULL || durable_set_same(requires, claimer->requires));

	if (!known)
	{
		claimer->queue = DatumGetTextPCopy(PointerGetDatum(queue));
		claimer->requires = requires == NULL ? NULL :
			DatumGetArrayTypePCopy(PointerGetDatum(requires));
		claimer->route = durable_route(DatumGetTextPP(task->values[TASK_NAMESPACE]),
									   claimer->queue, claimer->requires);
	}
	return claimer->route;
}

DurableFit
durable_claimer_fit(DurableClaimer *claimer, const DurableRow *task)
{
	ArrayType  *requires;
	DurableRoute route;

	if (claimer->session || (claimer->fits_protocol && task->nulls[TASK_REQUIRES]))
		return CLAIMER_FITS;
	requires = required(task);
	if (claimer->capabilities == NULL)
		claimer->capabilities = durable_capabilities_v1();
	if (claimer->fits_protocol && durable_set_contains(claimer->capabilities, requires))
		return CLAIMER_FITS;
	route = route_of_others(claimer, task, requires);
	if (route == ROUTE_UNPUBLISHED && claimer->fits_protocol)
		return CLAIMER_FITS;
	return DURABLE_ROUTE_BLOCKED(route) && durable_task_is(task, "turn") ? NOBODY_FITS : OTHERS_FIT;
}

static void
park(DurableRun *run, const DurableRow *task, ArrayType *requires, DurableRoute route)
{
	text	   *queue = DatumGetTextPP(task->values[TASK_QUEUE]);
	DurableWriter writer;
	TimestampTz until = durable_block(&run->row, queue, requires, route, false);

	durable_run_set_turn_state(&run->row, TURN_DELAYED);
	durable_row_set(&run->row, RUN_WAKE_AT, TimestampTzGetDatum(until));
	durable_run_update(run);
	durable_writer_open(&writer, REL_TASK_DELAYED);
	durable_delayed_insert(&writer, DatumGetInt64(task->values[TASK_ID]), until,
						   DatumGetInt32(task->values[TASK_PRIORITY]),
						   DatumGetTextPP(task->values[TASK_NAMESPACE]), queue, NULL);
	durable_writer_close(&writer);
}

bool
durable_claimer_park(const DurableRow *task, DurableWriter *ready, ItemPointer tid)
{
	text	   *namespace = DatumGetTextPP(task->values[TASK_NAMESPACE]);
	text	   *queue = DatumGetTextPP(task->values[TASK_QUEUE]);
	ArrayType  *requires = required(task);
	DurableRun	run;
	DurableRoute route;
	bool		parked = false;

	if (!durable_blocked_lock_park(namespace, queue))
		return false;
	/* nobody can have announced himself since */
	route = durable_route(namespace, queue, requires);
	durable_snapshot_push();
	if (DURABLE_ROUTE_BLOCKED(route) &&
		durable_run_open(&run, DatumGetInt64(task->values[TASK_ID]), false) == TM_Ok)
	{
		parked = !durable_run_has_ended(&run.row) &&
			durable_writer_delete(ready, tid, false) == TM_Ok;
		if (parked)
			park(&run, task, requires, route);
		durable_run_close(&run);
	}
	durable_snapshot_pop();
	return parked;
}
