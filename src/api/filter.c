/*-------------------------------------------------------------------------
 *
 * filter.c
 *	  Filters of runs: jsonb objects that say which runs are meant.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "api/args.h"
#include "api/filter.h"
#include "base/clock.h"
#include "base/errors.h"
#include "base/json.h"
#include "base/names.h"
#include "store/run.h"

/* An array of more values than this is a mistake. */
#define VALUES_MAX 1000

typedef enum FilterType
{
	FILTER_STRING,
	FILTER_STRINGS,				/* or one */
	FILTER_STATUS,				/* strings that are statuses */
	FILTER_OBJECT,
	FILTER_AGE,
	FILTER_TIME,
	FILTER_PATTERN				/* of LIKE */
} FilterType;

static const struct
{
	const char *key;
	FilterType	type;
}			filter_keys[] = {
	{"namespace", FILTER_STRING},
	{"workflow", FILTER_STRINGS},
	{"version", FILTER_STRINGS},
	{"status", FILTER_STATUS},
	{"tag", FILTER_STRINGS},
	{"search_attributes", FILTER_OBJECT},
	{"code", FILTER_STRINGS},
	{"message", FILTER_PATTERN},
	{"older_than", FILTER_AGE},
	{"created_before", FILTER_TIME},
	{"created_after", FILTER_TIME},
	{"finished_before", FILTER_TIME},
	{"finished_after", FILTER_TIME},
};

static void
bad_filter(const char *key, const char *rule)
{
	ereport(ERROR,
			errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			errmsg("invalid filter"),
			errdetail("The value of \"%s\" must be %s.", key, rule));
}

static char *
string_of(const char *key, const JsonbValue *value, const char *rule)
{
	if (value->type != jbvString)
		bad_filter(key, rule);
	return pnstrdup(value->val.string.val, value->val.string.len);
}

static void
check_status(const char *key, const char *given)
{
	for (int i = 0; i < RUN_STATUSES; i++)
	{
		if (strcmp(durable_run_status_name(i), given) == 0)
			return;
	}
	bad_filter(key, "a status of runs");
}

static void
check_strings(const char *key, const JsonbValue *value, bool are_statuses)
{
	const char *rule = "a string, or an array of 1 to 1000 strings";
	JsonbContainer *array;
	int			n = 1;

	if (value->type != jbvString &&
		(value->type != jbvBinary || !JsonContainerIsArray(value->val.binary.data)))
		bad_filter(key, rule);
	array = value->type == jbvString ? NULL : value->val.binary.data;
	if (array != NULL)
		n = JsonContainerSize(array);
	if (n < 1 || n > VALUES_MAX)
		bad_filter(key, rule);
	for (int i = 0; i < n; i++)
	{
		char	   *element = string_of(key, array == NULL ? value :
										getIthJsonbValueFromContainer(array, i), rule);

		if (are_statuses)
			check_status(key, element);
	}
}

/* A text that the type's input function takes; it raises what is wrong otherwise. */
static void
check_age(const char *key, const JsonbValue *value)
{
	const char *rule = "an interval, as a string, that is not negative";
	Interval   *age = DatumGetIntervalP(DirectFunctionCall3(interval_in,
															CStringGetDatum(string_of(key, value, rule)),
															ObjectIdGetDatum(InvalidOid),
															Int32GetDatum(-1)));

	if (durable_interval_negative(age) ||
		durable_interval_us(age) > INT64CONST(36600) * USECS_PER_DAY)
		bad_filter(key, rule);
}

static void
check_time(const char *key, const JsonbValue *value)
{
	(void) DirectFunctionCall3(timestamptz_in,
							   CStringGetDatum(string_of(key, value, "a time, as a string")),
							   ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
}

static void
check_pattern(const char *key, const JsonbValue *value)
{
	const char *rule = "a pattern of LIKE, which does not end with an escape character";
	char	   *pattern = string_of(key, value, rule);
	int			escapes = 0;

	while (escapes < strlen(pattern) && pattern[strlen(pattern) - 1 - escapes] == '\\')
		escapes++;
	if (escapes % 2 == 1)
		bad_filter(key, rule);
}

static void
check_value(FilterType type, const char *key, const JsonbValue *value)
{
	switch (type)
	{
		case FILTER_STRING:
			(void) string_of(key, value, "a string");
			break;
		case FILTER_STRINGS:
		case FILTER_STATUS:
			check_strings(key, value, type == FILTER_STATUS);
			break;
		case FILTER_OBJECT:
			if (value->type != jbvBinary || !JsonContainerIsObject(value->val.binary.data))
				bad_filter(key, "an object");
			break;
		case FILTER_AGE:
			check_age(key, value);
			break;
		case FILTER_TIME:
			check_time(key, value);
			break;
		case FILTER_PATTERN:
			check_pattern(key, value);
			break;
	}
}

static void
check_member(const char *key, const JsonbValue *value)
{
	for (int i = 0; i < lengthof(filter_keys); i++)
	{
		if (strcmp(filter_keys[i].key, key) != 0)
			continue;
		check_value(filter_keys[i].type, key, value);
		return;
	}
	ereport(ERROR,
			errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			errmsg("invalid filter"),
			errdetail("There is no key \"%s\".", key),
			errhint("The keys are namespace, workflow, version, status, tag, search_attributes, code, message, older_than, created_before, created_after, finished_before and finished_after."));
}

Jsonb *
durable_arg_filter(FunctionCallInfo fcinfo, int n)
{
	Jsonb	   *filter;
	JsonbIterator *it;
	char	   *key;
	JsonbValue	value;

	if (PG_ARGISNULL(n))
		durable_error_null("filter");
	filter = PG_GETARG_JSONB_P(n);
	if (!JB_ROOT_IS_OBJECT(filter))
		durable_error_value("filter", "It must be an object.");
	if (JB_ROOT_COUNT(filter) == 0)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("the filter is empty"),
				errdetail("It would fit every run."),
				errhint("To mean all runs of a namespace, name the namespace."));
	it = JsonbIteratorInit(&filter->root);
	while (durable_json_next_member(&it, &key, &value))
		check_member(key, &value);
	return filter;
}

bool
durable_filter_has(Jsonb *filter, const char *key)
{
	return getKeyJsonValueFromContainer(&filter->root, key, strlen(key), NULL) != NULL;
}

text *
durable_filter_namespace(Jsonb *filter, DurablePrivilege privilege)
{
	JsonbValue *found = getKeyJsonValueFromContainer(&filter->root, "namespace",
													 strlen("namespace"), NULL);
	text	   *given = found == NULL ? NULL :
		cstring_to_text_with_len(found->val.string.val, found->val.string.len);
	text	   *namespace = durable_check_name(durable_namespace_resolve(given), "namespace");

	durable_scope_require(namespace, privilege);
	return namespace;
}

void
durable_scope_require(text *namespace, DurablePrivilege privilege)
{
	/* also one of that name may have been granted */
	if (durable_text_is(namespace, "*") && !durable_access_is_owner())
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				errmsg("permission denied for all namespaces"),
				errhint("Name a namespace; only superusers and the extension's owner can mean all of them."));
	durable_access_require(namespace, privilege);
}
