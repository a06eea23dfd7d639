/*-------------------------------------------------------------------------
 *
 * queue.c
 *	  pause_queue, resume_queue, engine_now, scan_hints.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "fmgr.h"
#include "funcapi.h"

#include "api/args.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/hint.h"
#include "base/security.h"
#include "store/queue.h"

DURABLE_FUNCTION(durable_pause_queue);
DURABLE_FUNCTION(durable_resume_queue);
DURABLE_FUNCTION(durable_engine_now);
DURABLE_FUNCTION(durable_scan_hints);

static bool
set_paused(FunctionCallInfo fcinfo, bool paused)
{
	text	   *queue = durable_arg_name(fcinfo, 0, "queue", false);
	text	   *namespace = durable_arg_namespace(fcinfo, 1);

	durable_access_require(namespace, PRIVILEGE_MANAGE);
	return durable_queue_set_paused(namespace, queue, paused);
}

Datum
durable_pause_queue(PG_FUNCTION_ARGS)
{
	durable_require_writable("durable.pause_queue()");
	PG_RETURN_BOOL(set_paused(fcinfo, true));
}

Datum
durable_resume_queue(PG_FUNCTION_ARGS)
{
	durable_require_writable("durable.resume_queue()");
	PG_RETURN_BOOL(set_paused(fcinfo, false));
}

Datum
durable_engine_now(PG_FUNCTION_ARGS)
{
	PG_RETURN_TIMESTAMPTZ(durable_clock_now());
}

Datum
durable_scan_hints(PG_FUNCTION_ARGS)
{
	TupleDesc	desc = durable_result_desc(fcinfo);
	uint64		checks;
	uint64		rescued;
	Datum		values[3];
	bool		nulls[3] = {0};

	durable_hint_counters(&checks, &rescued);
	values[0] = BoolGetDatum(durable_shared != NULL);
	values[1] = Int64GetDatum((int64) checks);
	values[2] = Int64GetDatum((int64) rescued);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(desc, values, nulls)));
}
