/*-------------------------------------------------------------------------
 *
 * result.c
 *	  claim_results, ack_results.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "api/args.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/extension_state.h"
#include "base/ids.h"
#include "base/plan.h"
#include "base/security.h"
#include "engine/maintain.h"
#include "store/lease.h"
#include "store/result.h"
#include "store/task.h"

DURABLE_FUNCTION(durable_claim_results);
DURABLE_FUNCTION(durable_ack_results);

/* columns of durable_result_claim(), from 1 */
enum
{
	CLAIMED_ID = 1,
	CLAIMED_TASK_ID,
	CLAIMED_NAME,
	CLAIMED_QUEUE,
	CLAIMED_STATUS,
	CLAIMED_OUTPUT,
	CLAIMED_ERROR,
	CLAIMED_EVENTS,
	CLAIMED_ATTEMPT,
	CLAIMED_CREATED_AT,
	CLAIMED_FINISHED_AT
};

enum
{
	OUT_TASK_ID,
	OUT_TOKEN,
	OUT_NAME,
	OUT_QUEUE,
	OUT_NAMESPACE,
	OUT_STATUS,
	OUT_OUTPUT,
	OUT_ERROR,
	OUT_EVENTS,
	OUT_ATTEMPT,
	OUT_CREATED_AT,
	OUT_FINISHED_AT,
	OUT_LEASE_UNTIL,
	OUT_COLUMNS
};

static const int copied_columns[][2] = {
	{OUT_NAME, CLAIMED_NAME},
	{OUT_QUEUE, CLAIMED_QUEUE},
	{OUT_STATUS, CLAIMED_STATUS},
	{OUT_OUTPUT, CLAIMED_OUTPUT},
	{OUT_ERROR, CLAIMED_ERROR},
	{OUT_EVENTS, CLAIMED_EVENTS},
	{OUT_ATTEMPT, CLAIMED_ATTEMPT},
	{OUT_CREATED_AT, CLAIMED_CREATED_AT},
	{OUT_FINISHED_AT, CLAIMED_FINISHED_AT},
};

/* Returns the result's number. */
static int64
return_result(HeapTuple tuple, const DurableLease *lease, ReturnSetInfo *result)
{
	TupleDesc	desc = SPI_tuptable->tupdesc;
	Datum		values[OUT_COLUMNS];
	bool		nulls[OUT_COLUMNS] = {0};
	bool		generated;
	bool		isnull;
	Datum		task_id = SPI_getbinval(tuple, desc, CLAIMED_TASK_ID, &generated);
	int64		id = DatumGetInt64(SPI_getbinval(tuple, desc, CLAIMED_ID, &isnull));

	for (int i = 0; i < lengthof(copied_columns); i++)
		values[copied_columns[i][0]] =
			SPI_getbinval(tuple, desc, copied_columns[i][1], &nulls[copied_columns[i][0]]);
	values[OUT_TASK_ID] =
		PointerGetDatum(durable_task_id_text(id, generated ? NULL : DatumGetTextPP(task_id)));
	values[OUT_TOKEN] = UUIDPGetDatum(&lease->token);
	values[OUT_NAMESPACE] = PointerGetDatum(lease->namespace);
	values[OUT_LEASE_UNTIL] = TimestampTzGetDatum(lease->until);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	return id;
}

Datum
durable_claim_results(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	DurableLease lease;
	TimestampTz now = durable_clock_now();
	const Interval *span;
	text	   *namespace;
	int			max;
	int			n;
	int			rounds = 0;
	TimestampTz next;

	durable_require_writable("durable.claim_results()");
	InitMaterializedSRF(fcinfo, 0);
	(void) durable_arg_names(fcinfo, 0, "names", &n);
	max = durable_arg_count(fcinfo, 1, "max_results");
	span = durable_arg_lease(fcinfo, 2);
	namespace = durable_arg_namespace(fcinfo, 3);
	durable_access_require(namespace, PRIVILEGE_START);
	durable_require_active();

	(void) durable_take_over_lapsed(namespace, cstring_to_text(""), now,
									IsTransactionBlock() ? DURABLE_BLOCK_ROUNDS :
									DURABLE_CLAIM_ROUNDS, &rounds, &next);
	durable_lease_new(&lease);
	lease.kind = LEASE_OF_RESULTS;
	lease.namespace = namespace;
	lease.claimed_at = now;
	lease.until = durable_lease_until(now, span);
	lease.ids = palloc(sizeof(int64) * max);
	durable_plan_begin();
	lease.nids = (int) durable_result_claim(namespace, PG_GETARG_ARRAYTYPE_P(0), max, lease.id);
	for (int i = 0; i < lease.nids; i++)
		lease.ids[i] = return_result(SPI_tuptable->vals[i], &lease, result);
	durable_plan_end();
	durable_ids_sort(lease.ids, lease.nids);
	if (lease.nids > 0)
		durable_lease_insert(&lease);
	return (Datum) 0;
}

Datum
durable_ack_results(PG_FUNCTION_ARGS)
{
	const pg_uuid_t *token = durable_arg_token(fcinfo, 0);
	DurableLease lease;
	bool		found;
	int			n;

	durable_require_writable("durable.ack_results()");
	if (!PG_ARGISNULL(1))
		(void) durable_arg_texts(fcinfo, 1, "task_ids", DURABLE_BATCH_MAX, &n);
	durable_snapshot_push();
	found = durable_lease_find(token, &lease) && lease.kind == LEASE_OF_RESULTS;
	durable_snapshot_pop();
	if (!found)
		PG_RETURN_INT32(0);
	durable_access_require(lease.namespace, PRIVILEGE_START);

	durable_plan_begin();
	n = (int) durable_result_acknowledge(lease.id, durable_ids_to_array(lease.ids, lease.nids),
										 PG_ARGISNULL(1) ? NULL : PG_GETARG_ARRAYTYPE_P(1));
	durable_plan_end();
	/* gone with its last result; otherwise it lapses and is found empty */
	if (n > 0 && n == lease.nids)
	{
		durable_snapshot_push();
		(void) durable_lease_delete(&lease, false);
		durable_snapshot_pop();
	}
	PG_RETURN_INT32(n);
}
