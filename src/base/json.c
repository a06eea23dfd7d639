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
