/*-------------------------------------------------------------------------
 *
 * exchange.c
 *	  exchange: hand in what is done, take what is next.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/numeric.h"

#include "api/args.h"
#include "api/handout.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/extension_state.h"
#include "base/guc.h"
#include "base/json.h"
#include "engine/claim.h"
#include "engine/exchange.h"

DURABLE_FUNCTION(durable_exchange_tasks);

/* An item that is wrong is a fault of the client, not of a run: the call fails. */
static void
refuse(int index, const char *detail)
{
	ereport(ERROR,
			errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			errmsg("element %d of settled is malformed", index),
			errdetail("%s", detail));
	pg_unreachable();
}

static text *
read_text(int index, const char *key, const JsonbValue *value)
{
	if (value->type != jbvString)
		refuse(index, psprintf("\"%s\" must be a string.", key));
	return cstring_to_text_with_len(value->val.string.val, value->val.string.len);
}

/* What is of one claim has one token: so the last one that was read is remembered, of
 * tasks and of turns by itself. */
typedef struct TokenMemo
{
	char		text[2 * UUID_LEN + 4];
	pg_uuid_t	token;
	bool		filled;
} TokenMemo;

static pg_uuid_t
read_token(int index, const char *key, const JsonbValue *value, TokenMemo *memo)
{
	pg_uuid_t	token;
	char	   *given;

	if (value->type != jbvString)
		refuse(index, psprintf("\"%s\" must be a string.", key));
	if (memo->filled && value->val.string.len == sizeof(memo->text) &&
		memcmp(value->val.string.val, memo->text, sizeof(memo->text)) == 0)
		return memo->token;
	given = pnstrdup(value->val.string.val, value->val.string.len);
	token = *DatumGetUUIDP(DirectFunctionCall1(uuid_in, CStringGetDatum(given)));
	memo->filled = value->val.string.len == sizeof(memo->text);
	if (memo->filled)
		memcpy(memo->text, given, sizeof(memo->text));
	memo->token = token;
	return token;
}

static Jsonb *
read_payload(const char *key, const JsonbValue *value)
{
	Jsonb	   *payload = JsonbValueToJsonb(unconstify(JsonbValue *, value));

	return DatumGetJsonbP(PointerGetDatum(durable_check_payload(JsonbPGetDatum(payload), key)));
}

/* Calls read for each member of an object. */
typedef void (*ReadMember) (DurableExchangeItem *item, const char *key, const JsonbValue *value);

static void
read_object(DurableExchangeItem *item, const char *what, const JsonbValue *object, ReadMember read)
{
	JsonbIterator *it;
	JsonbValue	value;
	char	   *key;

	if (object->type != jbvBinary || !JsonContainerIsObject(object->val.binary.data))
		refuse(item->index, psprintf("%s must be an object.", what));
	it = JsonbIteratorInit(object->val.binary.data);
	while (durable_json_next_member(&it, &key, &value))
		read(item, key, &value);
}

static void
read_turn(DurableExchangeItem *item, const char *key, const JsonbValue *value)
{
	static TokenMemo memo;

	if (strcmp(key, "token") == 0)
	{
		item->turn_token = read_token(item->index, "token", value, &memo);
		item->has_turn = true;
	}
	else if (strcmp(key, "decision") == 0)
		item->decision = JsonbValueToJsonb(unconstify(JsonbValue *, value));
	else if (strcmp(key, "history_end") != 0)
		refuse(item->index, psprintf("There is no field \"%s\" of \"turn\".", key));
	else if (value->type != jbvNumeric)
		refuse(item->index, "\"history_end\" must be a number.");
	else
		item->history_end = DatumGetInt32(DirectFunctionCall1(numeric_int4,
															  NumericGetDatum(value->val.numeric)));
}

static void
read_member(DurableExchangeItem *item, const char *key, const JsonbValue *value)
{
	static TokenMemo memo;

	if (strcmp(key, "task_id") == 0)
		item->target.task_id = durable_check_task_id(read_text(item->index, key, value));
	else if (strcmp(key, "token") == 0)
		item->token = read_token(item->index, key, value, &memo);
	else if (strcmp(key, "output") == 0)
		item->target.output = read_payload(key, value);
	else if (strcmp(key, "error") == 0)
	{
		item->failed = true;
		item->target.error = read_payload(key, value);
	}
	else if (strcmp(key, "decision") == 0)
		item->decision = JsonbValueToJsonb(unconstify(JsonbValue *, value));
	else if (strcmp(key, "turn") == 0)
		read_object(item, "\"turn\"", value, read_turn);
	else
		refuse(item->index, psprintf("There is no field \"%s\".", key));
}

static bool
is_nil(const pg_uuid_t *token)
{
	static const pg_uuid_t nil = {{0}};

	return memcmp(token, &nil, UUID_LEN) == 0;
}

static void
check_item(const DurableExchangeItem *item)
{
	if (item->target.task_id == NULL)
		refuse(item->index, "\"task_id\" is missing.");
	if (is_nil(&item->token))
		refuse(item->index, "\"token\" is missing.");
	if (item->has_turn && (item->decision == NULL || item->history_end == 0))
		refuse(item->index, "\"turn\" needs \"token\", \"history_end\" and \"decision\".");
	if (item->failed && item->target.output != NULL)
		refuse(item->index, "It has both \"output\" and \"error\".");
	if (item->decision != NULL && !item->has_turn && (item->failed || item->target.output != NULL))
		refuse(item->index, "A turn has a \"decision\" only.");
}

static DurableExchangeItem *
read_items(Jsonb *settled, int *n)
{
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	value;
	DurableExchangeItem *items;

	if (!JB_ROOT_IS_ARRAY(settled) || JB_ROOT_IS_SCALAR(settled))
		durable_error_value("settled", "It must be an array.");
	*n = 0;
	if (JB_ROOT_COUNT(settled) > DURABLE_BATCH_MAX)
		durable_error_value("settled", psprintf("It may have at most %d elements.", DURABLE_BATCH_MAX));
	items = palloc0(sizeof(DurableExchangeItem) * Max(JB_ROOT_COUNT(settled), 1));
	it = JsonbIteratorInit(&settled->root);
	while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
	{
		DurableExchangeItem *item = &items[*n];

		if (token != WJB_ELEM)
			continue;
		item->index = (*n)++;
		read_object(item, "It", &value, read_member);
		check_item(item);
		if (item->failed)
			item->target.error = durable_json_error_from(item->target.error);
	}
	return items;
}

typedef struct Taken
{
	DurableHandout handout;
	JsonbParseState *state;
} Taken;

static void
take(const DurableRow *task, DurableLease *lease, void *arg)
{
	Taken	   *taken = arg;

	durable_handout_fill(&taken->handout, task, lease);
	durable_handout_push(&taken->handout, &taken->state);
}

/* NULL: there was nothing, or nothing was asked for */
static Jsonb *
claim_next(DurableClaim *claim, int history)
{
	Taken		taken = {.handout.history = history};
	int			n = 0;
	JsonbValue *array;

	pushJsonbValue(&taken.state, WJB_BEGIN_ARRAY, NULL);
	if (claim->max_tasks > 0)
		n = durable_claim_tasks(claim, take, &taken);
	array = pushJsonbValue(&taken.state, WJB_END_ARRAY, NULL);
	return n == 0 ? NULL : JsonbValueToJsonb(array);
}

static Jsonb *
exchange_in_batch(DurableExchangeItem *items, int n, DurableClaim *claim, int history)
{
	DurableBatch *batch = durable_batch_begin();
	Jsonb	   *volatile tasks = NULL;

	PG_TRY();
	{
		if (claim->max_tasks > 0)
			claim->fresh = durable_fresh_begin(claim->namespace, claim->queues, claim->nqueues,
											   claim->max_tasks);
		durable_exchange(items, n, claim->fresh);
		tasks = claim_next(claim, history);
	}
	PG_CATCH();
	{
		durable_batch_abandon(batch);
		PG_RE_THROW();
	}
	PG_END_TRY();
	durable_batch_end(batch);
	return tasks;
}

static ArrayType *
results_of(const DurableExchangeItem *items, int n)
{
	Datum	   *results = palloc(sizeof(Datum) * Max(n, 1));

	for (int i = 0; i < n; i++)
		results[items[i].index] = Int32GetDatum(items[i].result);
	return construct_array(results, n, INT4OID, sizeof(int32), true, TYPALIGN_INT);
}

static int
count_argument(FunctionCallInfo fcinfo, int n)
{
	int			count;

	if (PG_ARGISNULL(n))
		durable_error_null("max_tasks");
	count = PG_GETARG_INT32(n);
	if (count < 0 || count > DURABLE_BATCH_MAX)
		durable_error_value("max_tasks", psprintf("It must be between 0 and %d.", DURABLE_BATCH_MAX));
	return count;
}

Datum
durable_exchange_tasks(PG_FUNCTION_ARGS)
{
	TupleDesc	desc = durable_result_desc(fcinfo);
	DurableExchangeItem *items = NULL;
	DurableClaim claim;
	int			history = durable_arg_history(fcinfo, 6);
	int			n = 0;
	Datum		values[2];
	bool		nulls[2] = {false, false};
	Jsonb	   *tasks;

	durable_require_writable("durable.exchange()");
	if (!PG_ARGISNULL(0))
		items = read_items(PG_GETARG_JSONB_P(0), &n);
	durable_arg_claim(fcinfo, 1, &claim);
	claim.max_tasks = count_argument(fcinfo, 2);
	durable_require_active();
	tasks = exchange_in_batch(items, n, &claim, history);
	values[0] = PointerGetDatum(results_of(items, n));
	values[1] = PointerGetDatum(tasks);
	nulls[1] = tasks == NULL;
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(desc, values, nulls)));
}
