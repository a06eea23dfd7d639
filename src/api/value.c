/*-------------------------------------------------------------------------
 *
 * value.c
 *	  What a body records: time, chance, patches, published values, logs.
 *
 * Each of these has its answer at once; it is recorded with the turn.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "fmgr.h"
#include "nodes/pg_list.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "api/args.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/json.h"
#include "engine/turn.h"

DURABLE_FUNCTION(durable_now);
DURABLE_FUNCTION(durable_random);
DURABLE_FUNCTION(durable_uuid);
DURABLE_FUNCTION(durable_patched);
DURABLE_FUNCTION(durable_set_event);
DURABLE_FUNCTION(durable_upsert_search_attributes);
DURABLE_FUNCTION(durable_log);
DURABLE_FUNCTION(durable_fail_run);
DURABLE_FUNCTION(durable_run_id);
DURABLE_FUNCTION(durable_run_namespace);

/* A value is kept as a jsonb string. */
static char *
recorded_text(DurableTurn *turn, const char *name, char *(*make) (void))
{
	text	   *key = cstring_to_text(name);
	int			seq;
	DurableCheckpoint *checkpoint = durable_turn_next(turn, KIND_VALUE, key, &seq);
	JsonbValue	value;

	if (checkpoint == NULL)
	{
		JsonbValue	made;

		made.type = jbvString;
		made.val.string.val = make();
		made.val.string.len = strlen(made.val.string.val);
		checkpoint = durable_turn_record(turn, seq, KIND_VALUE, key, CHECKPOINT_COMPLETED,
										 JsonbValueToJsonb(&made));
	}
	if (checkpoint->output == NULL || !JB_ROOT_IS_SCALAR(checkpoint->output) ||
		!JsonbExtractScalar(&checkpoint->output->root, &value) || value.type != jbvString)
		ereport(ERROR,
				errcode(ERRCODE_DATA_CORRUPTED),
				errmsg("the recorded value at position %d is not a string", seq));
	return pnstrdup(value.val.string.val, value.val.string.len);
}

/* To the microsecond, whatever DateStyle and TimeZone say. */
static char *
make_now(void)
{
	return psprintf(INT64_FORMAT, (int64) durable_clock_now());
}

static char *
make_random(void)
{
	return psprintf("%.17g", pg_prng_double(&pg_global_prng_state));
}

static char *
make_uuid(void)
{
	return DatumGetCString(DirectFunctionCall1(uuid_out, DirectFunctionCall1(gen_random_uuid,
																			 (Datum) 0)));
}

Datum
durable_now(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.now()");

	PG_RETURN_TIMESTAMPTZ((TimestampTz) pg_strtoint64(recorded_text(turn, "now", make_now)));
}

Datum
durable_random(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.random()");

	PG_RETURN_FLOAT8(strtod(recorded_text(turn, "random", make_random), NULL));
}

Datum
durable_uuid(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.uuid()");

	PG_RETURN_DATUM(DirectFunctionCall1(uuid_in,
										CStringGetDatum(recorded_text(turn, "uuid", make_uuid))));
}

/* Takes a position only in runs that come here with the changed code. */
Datum
durable_patched(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.patched()");
	text	   *id = durable_arg_name(fcinfo, 0, "id", false);
	text	   *name = cstring_to_text(psprintf("patch:%s", text_to_cstring(id)));
	int			seq = turn->next_seq;

	if (seq < turn->nhistory)
	{
		const char *recorded = text_to_cstring(turn->history[seq].name);

		if (turn->history[seq].kind != KIND_VALUE || strncmp(recorded, "patch:", 6) != 0)
			PG_RETURN_BOOL(false);
		(void) durable_turn_next(turn, KIND_VALUE, name, &seq);
	}
	else
	{
		(void) durable_turn_next(turn, KIND_VALUE, name, &seq);
		(void) durable_turn_record(turn, seq, KIND_VALUE, name, CHECKPOINT_COMPLETED, NULL);
	}
	PG_RETURN_BOOL(true);
}

Datum
durable_set_event(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.set_event()");
	text	   *key = durable_arg_name(fcinfo, 0, "key", false);
	text	   *name = cstring_to_text(psprintf("event:%s", text_to_cstring(key)));
	void	   *value = durable_arg_payload(fcinfo, 1, "value");
	int			seq;

	if (durable_turn_next(turn, KIND_VALUE, name, &seq) == NULL)
		(void) durable_turn_record(turn, seq, KIND_VALUE, name, CHECKPOINT_COMPLETED,
								   value == NULL ? NULL : DatumGetJsonbP(PointerGetDatum(value)));
	PG_RETURN_VOID();
}

Datum
durable_upsert_search_attributes(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.upsert_search_attributes()");
	text	   *name = cstring_to_text("searchAttributes");
	void	   *given = durable_arg_payload(fcinfo, 0, "attributes");
	Jsonb	   *attributes;
	int			seq;

	if (given == NULL)
		durable_error_null("attributes");
	attributes = DatumGetJsonbP(PointerGetDatum(given));
	if (!JB_ROOT_IS_OBJECT(attributes))
		durable_error_value("attributes", "It must be an object.");
	if (durable_turn_next(turn, KIND_VALUE, name, &seq) == NULL)
	{
		MemoryContext before;

		(void) durable_turn_record(turn, seq, KIND_VALUE, name, CHECKPOINT_COMPLETED, attributes);
		before = MemoryContextSwitchTo(turn->context);
		turn->attributes = DatumGetJsonbPCopy(JsonbPGetDatum(durable_json_merge(turn->attributes,
																				 attributes)));
		MemoryContextSwitchTo(before);
	}
	PG_RETURN_VOID();
}

/* Past the end of the history the body is not replaying: then, and only then. */
Datum
durable_log(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.log()");
	text	   *level = durable_arg_name(fcinfo, 0, "level", false);
	void	   *data = durable_arg_payload(fcinfo, 2, "data");
	DurableLogEntry *entry;
	MemoryContext before;

	if (PG_ARGISNULL(1))
		durable_error_null("message");
	if (turn->next_seq < turn->nhistory)
		PG_RETURN_VOID();
	before = MemoryContextSwitchTo(turn->context);
	entry = palloc0(sizeof(DurableLogEntry));
	entry->seq = turn->next_seq;
	if (turn->logs != NIL && ((DurableLogEntry *) llast(turn->logs))->seq == entry->seq)
		entry->number = ((DurableLogEntry *) llast(turn->logs))->number + 1;
	entry->level = DatumGetTextPCopy(PointerGetDatum(level));
	entry->message = DatumGetTextPCopy(PG_GETARG_DATUM(1));
	entry->data = data == NULL ? NULL : DatumGetJsonbPCopy(PointerGetDatum(data));
	turn->logs = lappend(turn->logs, entry);
	MemoryContextSwitchTo(before);
	PG_RETURN_VOID();
}

Datum
durable_fail_run(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = durable_turn_require("durable.fail_run()");
	void	   *details = durable_arg_payload(fcinfo, 2, "details");
	Jsonb	   *error;

	if (PG_ARGISNULL(0))
		durable_error_null("message");
	error = durable_json_error_full(text_to_cstring(PG_GETARG_TEXT_PP(0)),
									PG_ARGISNULL(1) ?
									unpack_sql_state(ERRCODE_DURABLE_RUN_FAILED) :
									text_to_cstring(PG_GETARG_TEXT_PP(1)), false);
	if (details != NULL)
		error = durable_json_with(error, "details", DatumGetJsonbP(PointerGetDatum(details)));
	durable_turn_fail(turn, error);
	PG_RETURN_VOID();
}

/* These two may be asked in steps, too. */
static DurableTurn *
any_turn(const char *function)
{
	if (durable_current_step != NULL)
		return durable_current_step;
	return durable_turn_require(function);
}

Datum
durable_run_id(PG_FUNCTION_ARGS)
{
	DurableTurn *turn = any_turn("durable.run_id()");

	if (turn->run_id == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(turn->run_id);
}

Datum
durable_run_namespace(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(any_turn("durable.run_namespace()")->namespace);
}
