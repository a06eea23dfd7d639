/*-------------------------------------------------------------------------
 *
 * claim.c
 *	  claim, settle_and_claim, renew, release, heartbeat.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "api/args.h"
#include "api/handout.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/extension_state.h"
#include "base/guc.h"
#include "base/names.h"
#include "base/security.h"
#include "engine/claim.h"
#include "engine/settle.h"
#include "store/lease.h"
#include "store/progress.h"
#include "store/task.h"

DURABLE_FUNCTION(durable_claim);
DURABLE_FUNCTION(durable_settle_and_claim);
DURABLE_FUNCTION(durable_renew);
DURABLE_FUNCTION(durable_release);
DURABLE_FUNCTION(durable_heartbeat);

/* Where claimed tasks go. */
typedef struct Rows
{
	ReturnSetInfo *result;
	DurableHandout handout;
} Rows;

static void
return_task(const DurableRow *task, DurableLease *lease, void *arg)
{
	Rows	   *rows = arg;

	durable_handout_fill(&rows->handout, task, lease);
	tuplestore_putvalues(rows->result->setResult, rows->result->setDesc,
						 rows->handout.values, rows->handout.nulls);
}

void
durable_arg_claim(FunctionCallInfo fcinfo, int first, DurableClaim *claim)
{
	memset(claim, 0, sizeof(DurableClaim));
	claim->queues = durable_arg_names(fcinfo, first, "queues", &claim->nqueues);
	claim->lease = durable_arg_lease(fcinfo, first + 2);
	claim->worker = durable_arg_name(fcinfo, first + 3, "worker", true);
	if (claim->worker != NULL && durable_text_is(claim->worker, DURABLE_SESSION_WORKER))
		durable_error_value("worker", "The name \"durable.work\" is reserved for work inside the database.");
	claim->namespace = durable_arg_namespace(fcinfo, first + 4);
	durable_access_require(claim->namespace, PRIVILEGE_WORK);
}

static Rows
read_rows(FunctionCallInfo fcinfo, int n)
{
	Rows		rows = {
		.result = (ReturnSetInfo *) fcinfo->resultinfo,
		.handout.history = durable_arg_history(fcinfo, n)
	};

	return rows;
}

Datum
durable_claim(PG_FUNCTION_ARGS)
{
	DurableClaim claim;
	Rows		rows = read_rows(fcinfo, 5);

	durable_require_writable("durable.claim()");
	InitMaterializedSRF(fcinfo, 0);
	durable_arg_claim(fcinfo, 0, &claim);
	claim.max_tasks = durable_arg_count(fcinfo, 1, "max_tasks");
	durable_require_active();
	(void) durable_claim_tasks(&claim, return_task, &rows);
	return (Datum) 0;
}

/* A worker whose own writes are in this transaction asks for the error: it
 * takes them back together with the claim. */
static void
settle_before_claim(FunctionCallInfo fcinfo)
{
	bool		strict = !PG_ARGISNULL(8) && PG_GETARG_BOOL(8);
	DurableTarget target = {
		.task_id = durable_arg_task_id(fcinfo, 0),
		.output = durable_arg_payload(fcinfo, 2, "output"),
	};

	if (durable_settle(durable_arg_token(fcinfo, 1), SETTLE_COMPLETE, &target, 1) == 0)
		ereport(strict ? ERROR : WARNING,
				errcode(strict ? ERRCODE_T_R_SERIALIZATION_FAILURE : ERRCODE_WARNING),
				errmsg("task \"%s\" was not settled", text_to_cstring(target.task_id)),
				errdetail("The token no longer holds it; its output was dropped."));
}

Datum
durable_settle_and_claim(PG_FUNCTION_ARGS)
{
	DurableClaim claim;
	Rows		rows = read_rows(fcinfo, 9);

	durable_require_writable("durable.settle_and_claim()");
	InitMaterializedSRF(fcinfo, 0);
	durable_arg_claim(fcinfo, 3, &claim);
	claim.max_tasks = durable_arg_count(fcinfo, 4, "max_tasks");
	durable_require_active();
	if (!PG_ARGISNULL(0))
		settle_before_claim(fcinfo);
	(void) durable_claim_tasks(&claim, return_task, &rows);
	return (Datum) 0;
}

Datum
durable_renew(PG_FUNCTION_ARGS)
{
	durable_require_writable("durable.renew()");
	PG_RETURN_INT32(durable_renew_lease(durable_arg_token(fcinfo, 0),
										durable_arg_lease(fcinfo, 1)));
}

Datum
durable_release(PG_FUNCTION_ARGS)
{
	const pg_uuid_t *token = durable_arg_token(fcinfo, 0);
	text	  **task_ids;
	DurableTarget *targets;
	int			n;

	durable_require_writable("durable.release()");
	if (PG_ARGISNULL(1))
		PG_RETURN_INT32(durable_release_all(token));
	task_ids = durable_arg_texts(fcinfo, 1, "task_ids", DURABLE_BATCH_MAX, &n);
	targets = palloc0(sizeof(DurableTarget) * Max(n, 1));
	for (int i = 0; i < n; i++)
		targets[i].task_id = durable_check_task_id(task_ids[i]);
	PG_RETURN_INT32(durable_settle(token, SETTLE_RELEASE, targets, n));
}

Datum
durable_heartbeat(PG_FUNCTION_ARGS)
{
	text	   *task_id = durable_arg_task_id(fcinfo, 0);
	const pg_uuid_t *token = durable_arg_token(fcinfo, 1);
	void	   *progress = durable_arg_payload(fcinfo, 2, "progress");
	int64		id;
	TimestampTz since;
	int64		least;

	durable_require_writable("durable.heartbeat()");
	if (!durable_token_holds(token, task_id, &id, &since, &least))
		PG_RETURN_BOOL(false);
	durable_progress_store(id, durable_clock_now(), progress, since, least);
	PG_RETURN_BOOL(true);
}
