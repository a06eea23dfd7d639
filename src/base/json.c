/*-------------------------------------------------------------------------
 *
 * json.c
 *	  The few jsonb values that the engine reads or writes itself.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/numeric.h"

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
push_string(JsonbParseState **state, const char *key, const char *string)
{
	JsonbValue	value;

	if (string == NULL)
		return;
	push_key(state, key);
	value.type = jbvString;
	value.val.string.val = (char *) string;
	value.val.string.len = strlen(string);
	pushJsonbValue(state, WJB_VALUE, &value);
}

Jsonb *
durable_json_error_full(const char *message, const char *code, bool retryable)
{
	JsonbParseState *state = NULL;
	JsonbValue	value;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	push_string(&state, "message", message);
	push_string(&state, "code", code);
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
	push_string(&state, "message", message);
	push_string(&state, "code", code);
	push_string(&state, "detail", detail);
	push_string(&state, "hint", hint);
	push_string(&state, "context", context);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
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
push_jsonb(JsonbParseState **state, const char *key, Jsonb *value)
{
	JsonbValue	container;

	push_key(state, key);
	if (value == NULL)
		container.type = jbvNull;
	else if (JB_ROOT_IS_SCALAR(value))
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
durable_json_with(Jsonb *object, const char *key, Jsonb *value)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	push_jsonb(&state, key, value);
	return durable_json_merge(object,
							  JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL)));
}

Jsonb *
durable_json_settled(const char *status, const char *key, Jsonb *value)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	push_string(&state, "status", status);
	push_jsonb(&state, key, value);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
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
	{
		JsonbValue	value;

		push_key(&state, names[i]);
		value.type = jbvNumeric;
		value.val.numeric = int64_to_numeric(counts[i]);
		pushJsonbValue(&state, WJB_VALUE, &value);
	}
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}
