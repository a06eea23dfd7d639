/*-------------------------------------------------------------------------
 *
 * turn.c
 *	  complete_turn, record_step.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/timestamp.h"

#include "api/args.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/json.h"
#include "engine/decision.h"
#include "engine/settle.h"

DURABLE_FUNCTION(durable_complete_turn);
DURABLE_FUNCTION(durable_record_step_done);

Datum
durable_complete_turn(PG_FUNCTION_ARGS)
{
	text	   *task_id;
	const pg_uuid_t *token;
	DurableLease lease;
	int64		run;

	durable_require_writable("durable.complete_turn()");
	task_id = durable_arg_task_id(fcinfo, 0);
	token = durable_arg_token(fcinfo, 1);
	if (PG_ARGISNULL(2))
		durable_error_null("decision");
	PG_RETURN_BOOL(durable_token_holds_turn(token, task_id, &run, &lease) &&
				   durable_decide(run, &lease, PG_GETARG_JSONB_P(2), NULL));
}

static Jsonb *
payload_argument(FunctionCallInfo fcinfo, int n, const char *argument)
{
	void	   *payload = durable_arg_payload(fcinfo, n, argument);

	return payload == NULL ? NULL : DatumGetJsonbP(PointerGetDatum(payload));
}

static TimestampTz
time_argument(FunctionCallInfo fcinfo, int n, const char *argument)
{
	if (PG_ARGISNULL(n))
		return 0;
	if (TIMESTAMP_NOT_FINITE(PG_GETARG_TIMESTAMPTZ(n)))
		durable_error_value(argument, "It must be a finite time.");
	return PG_GETARG_TIMESTAMPTZ(n);
}

Datum
durable_record_step_done(PG_FUNCTION_ARGS)
{
	DurableRecord record = {.attempts = 1};
	text	   *task_id;
	const pg_uuid_t *token;
	DurableLease lease;
	int64		run;

	durable_require_writable("durable.record_step()");
	task_id = durable_arg_task_id(fcinfo, 0);
	token = durable_arg_token(fcinfo, 1);
	if (PG_ARGISNULL(2))
		durable_error_null("seq");
	record.seq = PG_GETARG_INT32(2);
	if (record.seq < 0)
		durable_error_value("seq", "It must not be negative.");
	record.name = durable_arg_name(fcinfo, 3, "name", false);
	record.output = payload_argument(fcinfo, 4, "output");
	record.error = payload_argument(fcinfo, 5, "error");
	if (record.error != NULL)
		record.error = durable_json_error_from(record.error);
	record.input = payload_argument(fcinfo, 6, "input");
	if (!PG_ARGISNULL(7))
		record.attempts = PG_GETARG_INT32(7);
	if (record.attempts < 1)
		durable_error_value("attempts", "It must be at least 1.");
	record.started_at = time_argument(fcinfo, 8, "started_at");
	record.finished_at = time_argument(fcinfo, 9, "finished_at");
	PG_RETURN_BOOL(durable_token_holds_turn(token, task_id, &run, &lease) &&
				   durable_record_step(run, &lease, &record));
}
