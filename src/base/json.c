/*-------------------------------------------------------------------------
 *
 * json.c
 *	  The few jsonb values that the engine reads or writes itself.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

#include "base/json.h"

static void
push_key(JsonbParseState **state, const char *key)
{
	JsonbValue	value;

	value.type = jbvString;
	value.val.string.val = (char *) key;
	value.val.string.len = strlen(key);
	pushJsonbValue(state, WJB_KEY, &value);
}

static void
push_bytes(JsonbParseState **state, const char *key, const char *bytes, int length)
{
	JsonbValue	value;

	push_key(state, key);
	value.type = jbvString;
	value.val.string.val = (char *) bytes;
	value.val.string.len = length;
	pushJsonbValue(state, WJB_VALUE, &value);
}

void
durable_json_add_string(JsonbParseState **state, const char *key, const char *value)
{
	if (value != NULL)
		push_bytes(state, key, value, strlen(value));
}

void
durable_json_add_text(JsonbParseState **state, const char *key, const text *value)
{
	if (value != NULL)
		push_bytes(state, key, VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value));
}

void
durable_json_add_numeric(JsonbParseState **state, const char *key, Numeric number)
{
	JsonbValue	value;

	push_key(state, key);
	value.type = jbvNumeric;
	value.val.numeric = number;
	pushJsonbValue(state, WJB_VALUE, &value);
}

void
durable_json_add_int(JsonbParseState **state, const char *key, int64 number)
{
	durable_json_add_numeric(state, key, int64_to_numeric(number));
}

void
durable_json_begin_array(JsonbParseState **state, const char *key)
{
	push_key(state, key);
	pushJsonbValue(state, WJB_BEGIN_ARRAY, NULL);
}

void
durable_json_add_value(JsonbParseState **state, const char *key, Jsonb *value)
{
	JsonbValue	container;

	if (value == NULL)
		return;
	push_key(state, key);
	if (JB_ROOT_IS_SCALAR(value))
		(void) JsonbExtractScalar(&value->root, &container);
	else
	{
		container.type = jbvBinary;
		container.val.binary.data = &value->root;
		container.val.binary.len = VARSIZE(value) - VARHDRSZ;
	}
	pushJsonbValue(state, WJB_VALUE, &container);
}

Jsonb *
durable_json_error_full(const char *message, const char *code, bool retryable)
{
	JsonbParseState *state = NULL;
	JsonbValue	value;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	durable_json_add_string(&state, "message", message);
	durable_json_add_string(&state, "code", code);
	push_key(&state, "retryable");
	value.type = jbvBool;
	value.val.boolean = retryable;
	pushJsonbValue(&state, WJB_VALUE, &value);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

Jsonb *
durable_json_error(const char *message, bool retryable)
{
	return durable_json_error_full(message, NULL, retryable);
}

Jsonb *
durable_json_error_details(const char *message, const char *code, const char *detail,
						   const char *hint, const char *context)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	durable_json_add_string(&state, "message", message);
	durable_json_add_string(&state, "code", code);
	durable_json_add_string(&state, "detail", detail);
	durable_json_add_string(&state, "hint", hint);
	durable_json_add_string(&state, "context", context);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

bool
durable_json_next_member(JsonbIterator **it, char **key, JsonbValue *value)
{
	JsonbIteratorToken token;

	while ((token = JsonbIteratorNext(it, value, true)) != WJB_DONE)
	{
		if (token != WJB_KEY)
			continue;
		*key = pnstrdup(value->val.string.val, value->val.string.len);
		(void) JsonbIteratorNext(it, value, true);
		return true;
	}
	return false;
}

char *
durable_json_string(Jsonb *object, const char *key)
{
	JsonbValue	space;
	JsonbValue *value;

	if (object == NULL || !JB_ROOT_IS_OBJECT(object))
		return NULL;
	value = getKeyJsonValueFromContainer(&object->root, key, strlen(key), &space);
	if (value == NULL || value->type != jbvString)
		return NULL;
	return pnstrdup(value->val.string.val, value->val.string.len);
}

Jsonb *
durable_json_merge(Jsonb *object, Jsonb *more)
{
	if (object == NULL)
		return more;
	return DatumGetJsonbP(DirectFunctionCall2(jsonb_concat, JsonbPGetDatum(object),
											  JsonbPGetDatum(more)));
}

static void
push_null(JsonbParseState **state, const char *key)
{
	JsonbValue	value = {.type = jbvNull};

	push_key(state, key);
	pushJsonbValue(state, WJB_VALUE, &value);
}

Jsonb *
durable_json_with(Jsonb *object, const char *key, Jsonb *value)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	durable_json_add_value(&state, key, value);
	return durable_json_merge(object,
							  JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL)));
}

Jsonb *
durable_json_settled(const char *status, const char *key, Jsonb *value)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	durable_json_add_string(&state, "status", status);
	if (value == NULL)
		push_null(&state, key);
	else
		durable_json_add_value(&state, key, value);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

Jsonb *
durable_json_rejected(const char *reason)
{
	JsonbParseState *state = NULL;
	JsonbValue	value;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	push_key(&state, "retryable");
	value.type = jbvBool;
	value.val.boolean = false;
	pushJsonbValue(&state, WJB_VALUE, &value);
	durable_json_add_string(&state, "reason", reason);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

#define MESSAGE_KEPT 500

static void
push_attempt(JsonbParseState **state, Jsonb *error, int attempt, TimestampTz at)
{
	char	   *message = durable_json_string(error, "message");
	char		time[MAXDATELEN + 1];

	if (message != NULL)
		message[pg_mbcliplen(message, strlen(message), MESSAGE_KEPT)] = '\0';
	pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);
	durable_json_add_int(state, "attempt", attempt);
	(void) JsonEncodeDateTime(time, TimestampTzGetDatum(at), TIMESTAMPTZOID, NULL);
	durable_json_add_string(state, "at", time);
	durable_json_add_string(state, "code", durable_json_string(error, "code"));
	durable_json_add_string(state, "message", message);
	pushJsonbValue(state, WJB_END_OBJECT, NULL);
}

/* The last of the elements of the previous error's list. */
static void
push_previous(JsonbParseState **state, Jsonb *previous)
{
	JsonbValue	space;
	JsonbValue *list;
	JsonbContainer *elements;
	int			n;

	if (previous == NULL || !JB_ROOT_IS_OBJECT(previous))
		return;
	list = getKeyJsonValueFromContainer(&previous->root, "attempts", strlen("attempts"), &space);
	if (list == NULL || list->type != jbvBinary ||
		!JsonContainerIsArray(list->val.binary.data))
		return;
	elements = list->val.binary.data;
	n = JsonContainerSize(elements);
	for (int i = Max(0, n - DURABLE_ATTEMPTS_KEPT + 1); i < n; i++)
		pushJsonbValue(state, WJB_ELEM, getIthJsonbValueFromContainer(elements, i));
}

Jsonb *
durable_json_attempt(Jsonb *error, Jsonb *previous, int attempt, int64 at)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	push_previous(&state, previous);
	push_attempt(&state, error, attempt, at);
	return durable_json_with(error, "attempts",
							 JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL)));
}

Jsonb *
durable_json_error_from(Jsonb *given)
{
	JsonbValue	scalar;
	char	   *text;

	if (given == NULL)
		return durable_json_error("no error was given", true);
	if (JB_ROOT_IS_OBJECT(given))
		return given;
	if (JB_ROOT_IS_SCALAR(given) && JsonbExtractScalar(&given->root, &scalar) &&
		scalar.type == jbvString)
		text = pnstrdup(scalar.val.string.val, scalar.val.string.len);
	else
		text = JsonbToCString(NULL, &given->root, VARSIZE(given));
	return durable_json_error(text, true);
}

bool
durable_json_is_retryable(Jsonb *error)
{
	JsonbValue	space;
	JsonbValue *value;

	if (!JB_ROOT_IS_OBJECT(error))
		return true;
	value = getKeyJsonValueFromContainer(&error->root, "retryable",
										 strlen("retryable"), &space);
	return value == NULL || value->type != jbvBool || value->val.boolean;
}

Jsonb *
durable_json_counts(const char *const *names, const int64 *counts, int n)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; i < n; i++)
		durable_json_add_int(&state, names[i], counts[i]);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}
