/*-------------------------------------------------------------------------
 *
 * announce.c
 *	  announce_worker, withdraw_worker, protocol.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "api/args.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/names.h"
#include "base/protocol.h"
#include "base/security.h"
#include "engine/capability.h"
#include "store/lease.h"

DURABLE_FUNCTION(durable_announce_worker);
DURABLE_FUNCTION(durable_withdraw_worker);
DURABLE_FUNCTION(durable_protocol);

#define WORKFLOWS_MAX 1000
#define CAPABILITIES_MAX 256
#define STATUS_BYTES 8192
#define TTL_MIN_US USECS_PER_SEC
#define TTL_MAX_US USECS_PER_HOUR

static text *
worker_argument(FunctionCallInfo fcinfo, int n)
{
	text	   *worker = durable_arg_name(fcinfo, n, "worker", false);

	if (durable_text_is(worker, DURABLE_SESSION_WORKER))
		durable_error_value("worker", "The name \"durable.work\" is reserved for work inside the database.");
	return worker;
}

/* {min, max}; null: a worker that does not say speaks version 1. */
static void
read_protocol(FunctionCallInfo fcinfo, int n, DurableWorkerRow *worker)
{
	Datum	   *range;
	bool	   *nulls;
	int			count;

	worker->protocol_min = worker->protocol_max = 1;
	if (PG_ARGISNULL(n))
		return;
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(n), INT4OID, sizeof(int32), true, TYPALIGN_INT,
					  &range, &nulls, &count);
	if (count != 2)
		durable_error_value("protocol", "It must have two elements, the first and the last version.");
	if (nulls[0] || nulls[1])
		durable_error_null("an element of protocol");
	worker->protocol_min = DatumGetInt32(range[0]);
	worker->protocol_max = DatumGetInt32(range[1]);
	if (worker->protocol_min < 1 || worker->protocol_max < worker->protocol_min)
		durable_error_value("protocol", "It must be the first and the last version, from 1 on.");
}

static void *
status_argument(FunctionCallInfo fcinfo, int n)
{
	Jsonb	   *status;

	if (PG_ARGISNULL(n))
		return NULL;
	if (toast_raw_datum_size(PG_GETARG_DATUM(n)) > STATUS_BYTES)
		ereport(ERROR,
				errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				errmsg("status is too large"),
				errdetail("It has %zu bytes; the limit is %d.",
						  (Size) toast_raw_datum_size(PG_GETARG_DATUM(n)), STATUS_BYTES));
	status = PG_GETARG_JSONB_P(n);
	if (!JB_ROOT_IS_OBJECT(status))
		durable_error_value("status", "It must be an object.");
	return status;
}

static TimestampTz
expires_at(FunctionCallInfo fcinfo, int n, TimestampTz now)
{
	Interval   *ttl;

	if (PG_ARGISNULL(n))
		durable_error_null("ttl");
	ttl = PG_GETARG_INTERVAL_P(n);
	if (durable_interval_us(ttl) < TTL_MIN_US || durable_interval_us(ttl) > TTL_MAX_US)
		durable_error_value("ttl", "It must be between one second and one hour.");
	return durable_clock_add(now, ttl);
}

static void
not_yours(text *worker)
{
	ereport(ERROR,
			errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			errmsg("worker \"%s\" was announced by another role", text_to_cstring(worker)),
			errhint("Choose another name, or wait until it has not been alive for some minutes."));
}

Datum
durable_announce_worker(PG_FUNCTION_ARGS)
{
	DurableWorkerRow worker = {.role = GetUserId(), .last_seen = durable_clock_now()};
	text	  **queues;
	int			n;

	durable_require_writable("durable.announce_worker()");
	worker.worker = worker_argument(fcinfo, 0);
	queues = durable_arg_names(fcinfo, 1, "queues", &n);
	worker.queues = durable_set_make(queues, n);
	worker.workflows = durable_arg_set(fcinfo, 2, "workflows", WORKFLOWS_MAX);
	if (worker.workflows == NULL)
		worker.workflows = construct_empty_array(TEXTOID);
	worker.capabilities = durable_arg_set(fcinfo, 3, "capabilities", CAPABILITIES_MAX);
	if (worker.capabilities == NULL)
		worker.capabilities = durable_capabilities_v1();
	read_protocol(fcinfo, 4, &worker);
	worker.status = status_argument(fcinfo, 5);
	worker.expires_at = expires_at(fcinfo, 6, worker.last_seen);
	worker.namespace = durable_arg_namespace(fcinfo, 7);
	durable_access_require(worker.namespace, PRIVILEGE_WORK);
	if (!durable_announce(&worker))
		not_yours(worker.worker);
	PG_RETURN_JSONB_P(durable_negotiate(&worker));
}

Datum
durable_withdraw_worker(PG_FUNCTION_ARGS)
{
	text	   *worker = worker_argument(fcinfo, 0);
	text	   *namespace = durable_arg_namespace(fcinfo, 1);
	bool		known;

	durable_require_writable("durable.withdraw_worker()");
	durable_access_require(namespace, PRIVILEGE_WORK);
	if (!durable_withdraw(namespace, worker, GetUserId(), &known))
		not_yours(worker);
	PG_RETURN_BOOL(known);
}

Datum
durable_protocol(PG_FUNCTION_ARGS)
{
	Datum		range[] = {
		Int32GetDatum(DURABLE_PROTOCOL_MIN), Int32GetDatum(DURABLE_PROTOCOL_MAX)
	};

	PG_RETURN_ARRAYTYPE_P(construct_array(range, lengthof(range), INT4OID, sizeof(int32), true,
										  TYPALIGN_INT));
}
