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
#include "base/clock.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/extension_state.h"
#include "base/guc.h"
#include "base/names.h"
#include "base/security.h"
#include "engine/claim.h"
#include "engine/settle.h"
#include "engine/turn_input.h"
#include "store/lease.h"
#include "store/progress.h"
#include "store/task.h"

DURABLE_FUNCTION(durable_claim);
DURABLE_FUNCTION(durable_settle_and_claim);
DURABLE_FUNCTION(durable_renew);
DURABLE_FUNCTION(durable_release);
DURABLE_FUNCTION(durable_heartbeat);

/* columns of the result, in order */
enum
{
	OUT_TASK_ID,
	OUT_TOKEN,
	OUT_KIND,
	OUT_NAME,
	OUT_QUEUE,
	OUT_NAMESPACE,
	OUT_INPUT,
	OUT_RUN_ID,
	OUT_SEQ,
	OUT_ATTEMPT,
	OUT_RECLAIMS,
	OUT_PRIORITY,
	OUT_HEADERS,
	OUT_LEASE_UNTIL,
	OUT_COLUMNS
};

/* result column <- task column; the others are computed */
static const int copied_columns[][2] = {
	{OUT_KIND, TASK_KIND},
	{OUT_NAME, TASK_NAME},
	{OUT_QUEUE, TASK_QUEUE},
	{OUT_NAMESPACE, TASK_NAMESPACE},
	{OUT_INPUT, TASK_INPUT},
	{OUT_RUN_ID, TASK_RUN_ID},
	{OUT_SEQ, TASK_SEQ},
	{OUT_ATTEMPT, TASK_ATTEMPT},
	{OUT_RECLAIMS, TASK_RECLAIMS},
	{OUT_PRIORITY, TASK_PRIORITY},
	{OUT_HEADERS, TASK_HEADERS},
};

/* Where claimed tasks go, and how much of its history a turn comes with. */
typedef struct Handout
{
	ReturnSetInfo *result;
	int			history;		/* checkpoints; -1: all */
	MemoryContext scratch;		/* of one turn */
} Handout;

/* A turn's task has no input of its own. */
static void
fill_turn(Handout *handout, const DurableRow *task, DurableLease *lease,
		  Datum *values, bool *nulls)
{
	int64		run = DatumGetInt64(task->values[TASK_ID]);
	MemoryContext before;
	Jsonb	   *input;
	Jsonb	   *headers = NULL;
	int			wakes = 0;

	if (handout->scratch == NULL)
		handout->scratch = AllocSetContextCreate(CurrentMemoryContext, "durable turn input",
												 ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(handout->scratch);
	before = MemoryContextSwitchTo(handout->scratch);
	input = durable_turn_input(run, handout->history,
							   DatumGetTimestampTz(task->values[TASK_CREATED_AT]),
							   &wakes, &headers);
	MemoryContextSwitchTo(before);
	if (input == NULL)
		return;
	durable_lease_note_wakes(lease, run, wakes);
	values[OUT_INPUT] = JsonbPGetDatum(input);
	nulls[OUT_INPUT] = false;
	values[OUT_HEADERS] = PointerGetDatum(headers);
	nulls[OUT_HEADERS] = headers == NULL;
}

static void
return_task(const DurableRow *task, DurableLease *lease, void *arg)
{
	Handout    *handout = arg;
	ReturnSetInfo *result = handout->result;
	Datum		values[OUT_COLUMNS];
	bool		nulls[OUT_COLUMNS] = {0};
	text	   *explicit_id = task->nulls[TASK_TASK_ID] ? NULL :
		DatumGetTextPP(task->values[TASK_TASK_ID]);

	for (int i = 0; i < lengthof(copied_columns); i++)
	{
		values[copied_columns[i][0]] = task->values[copied_columns[i][1]];
		nulls[copied_columns[i][0]] = task->nulls[copied_columns[i][1]];
	}
	values[OUT_TASK_ID] = PointerGetDatum(
										  durable_task_id_text(DatumGetInt64(task->values[TASK_ID]),
															   explicit_id));
	values[OUT_TOKEN] = UUIDPGetDatum(&lease->token);
	values[OUT_LEASE_UNTIL] = TimestampTzGetDatum(lease->until);
	if (durable_task_is(task, "turn"))
		fill_turn(handout, task, lease, values, nulls);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* queues, max_tasks, lease, worker, namespace, from argument "first" on */
static void
read_claim(FunctionCallInfo fcinfo, int first, DurableClaim *claim)
{
	claim->queues = durable_arg_names(fcinfo, first, "queues", &claim->nqueues);
	claim->max_tasks = durable_arg_count(fcinfo, first + 1, "max_tasks");
	claim->lease = durable_arg_lease(fcinfo, first + 2);
	claim->worker = durable_arg_name(fcinfo, first + 3, "worker", true);
	if (claim->worker != NULL && durable_text_is(claim->worker, DURABLE_SESSION_WORKER))
		durable_error_value("worker", "The name \"durable.work\" is reserved for work inside the database.");
	claim->namespace = durable_arg_namespace(fcinfo, first + 4);
	durable_access_require(claim->namespace, PRIVILEGE_WORK);
}

static Handout
read_handout(FunctionCallInfo fcinfo, int n)
{
	Handout		handout = {
		.result = (ReturnSetInfo *) fcinfo->resultinfo,
		.history = durable_arg_history(fcinfo, n)
	};

	return handout;
}

Datum
durable_claim(PG_FUNCTION_ARGS)
{
	DurableClaim claim;
	Handout		handout = read_handout(fcinfo, 5);

	durable_require_writable("durable.claim()");
	InitMaterializedSRF(fcinfo, 0);
	read_claim(fcinfo, 0, &claim);
	durable_require_active();
	(void) durable_claim_tasks(&claim, return_task, &handout);
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
	Handout		handout = read_handout(fcinfo, 9);

	durable_require_writable("durable.settle_and_claim()");
	InitMaterializedSRF(fcinfo, 0);
	read_claim(fcinfo, 3, &claim);
	durable_require_active();
	if (!PG_ARGISNULL(0))
		settle_before_claim(fcinfo);
	(void) durable_claim_tasks(&claim, return_task, &handout);
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
