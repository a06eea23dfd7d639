/*-------------------------------------------------------------------------
 *
 * command.c
 *	  The commands of a decision, read and checked one by one.
 *
 * Which fields a command has, of which type, and where they go, is one table.
 * Nothing here raises an error for what the worker wrote: the run must fail
 * with a message that says what is wrong, and not the call.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>
#include <math.h>

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

#include "base/guc.h"
#include "base/json.h"
#include "base/names.h"
#include "engine/command.h"

/* as for the arguments of functions */
#define NAME_BYTES 255
/* 1,000 years, and what JavaScript takes for a date */
#define SPAN_MS 31557600000000.0
/* as for the timeouts of steps: a hundred years */
#define WINDOW_MS 3162240000000.0
#define TIME_MS 8640000000000000.0

typedef enum FieldType
{
	FIELD_INT,					/* >= minimum */
	FIELD_BOOL,
	FIELD_NAME,					/* text of 1 to 255 bytes */
	FIELD_TEXT,
	FIELD_SPAN,					/* milliseconds */
	FIELD_WINDOW,				/* the same, but not 0 */
	FIELD_TIME,					/* milliseconds since 1970 */
	FIELD_JSON,
	FIELD_OBJECT,
	FIELD_SET,					/* an array of names */
	FIELD_INPUTS				/* an array of payloads */
} FieldType;

typedef struct Field
{
	const char *key;
	FieldType	type;
	bool		required;
	int			minimum;
	Size		offset;			/* of the member, a pointer but for seq */
} Field;

#define MAX_FIELDS 22
/* as for the argument of functions */
#define SET_MAX 64
#define AT(member) .offset = offsetof(DurableCommand, member)
#define SEQ {"seq", FIELD_INT, true, 0, AT(seq)}
#define VALUE {SEQ, {"value", FIELD_NAME, true, 0, AT(name)}}

typedef struct CommandSpec
{
	const char *name;
	Field		fields[MAX_FIELDS];
} CommandSpec;

/* how a step is dispatched */
#define STEP_OPTIONS \
	{"queue", FIELD_NAME, false, 0, AT(queue)}, \
	{"priority", FIELD_INT, false, PG_INT32_MIN, AT(priority)}, \
	{"retries", FIELD_INT, false, 1, AT(retries)}, \
	{"backoff_ms", FIELD_SPAN, false, 0, AT(backoff)}, \
	{"backoff_kind", FIELD_NAME, false, 0, AT(backoff_kind)}, \
	{"backoff_max_ms", FIELD_SPAN, false, 0, AT(backoff_max)}, \
	{"jitter", FIELD_BOOL, false, 0, AT(jitter)}, \
	{"timeout_ms", FIELD_WINDOW, false, 0, AT(timeout)}, \
	{"pickup_timeout_ms", FIELD_WINDOW, false, 0, AT(pickup_timeout)}, \
	{"requires", FIELD_SET, false, 0, AT(requires)}, \
	{"limiter", FIELD_NAME, false, 0, AT(limiter)}, \
	{"fairness_key", FIELD_NAME, false, 0, AT(fairness_key)}, \
	{"await", FIELD_BOOL, false, 0, AT(await)}

static const CommandSpec specs[COMMAND_TYPES] = {
	[COMMAND_CALL] = {"call", {
			SEQ, {"name", FIELD_NAME, true, 0, AT(name)},
			{"input", FIELD_JSON, false, 0, AT(input)},
			STEP_OPTIONS}},
	[COMMAND_CALL_ALL] = {"call_all", {
			SEQ, {"name", FIELD_NAME, true, 0, AT(name)},
			{"inputs", FIELD_INPUTS, false, 0, AT(inputs)},
			{"count", FIELD_INT, false, 1, AT(count)},
			{"mode", FIELD_NAME, false, 0, AT(mode)},
			{"max_in_flight", FIELD_INT, false, 1, AT(max_in_flight)},
			STEP_OPTIONS}},
	[COMMAND_CALL_OFF] = {"call_off", {
			SEQ, {"name", FIELD_NAME, true, 0, AT(name)},
			{"count", FIELD_INT, true, 1, AT(count)}}},
	[COMMAND_AWAIT_ANY] = {"await_any", {SEQ, {"handle", FIELD_INT, true, 0, AT(handle)}}},
	[COMMAND_RECORD_STEP] = {"record_step", {
			SEQ, {"name", FIELD_NAME, true, 0, AT(name)},
			{"input", FIELD_JSON, false, 0, AT(input)},
			{"output", FIELD_JSON, false, 0, AT(output)},
			{"error", FIELD_JSON, false, 0, AT(error)},
			{"attempts", FIELD_INT, false, 1, AT(attempts)},
			{"started_at", FIELD_TIME, false, 0, AT(started_at)},
			{"finished_at", FIELD_TIME, false, 0, AT(finished_at)}}},
	[COMMAND_SLEEP] = {"sleep", {SEQ, {"ms", FIELD_SPAN, true, 0, AT(span)}}},
	[COMMAND_SLEEP_UNTIL] = {"sleep_until", {SEQ, {"until", FIELD_TIME, true, 0, AT(until)}}},
	[COMMAND_WAIT_SIGNAL] = {"wait_signal", {
			SEQ, {"signal", FIELD_NAME, true, 0, AT(name)},
			{"timeout_ms", FIELD_SPAN, false, 0, AT(span)}}},
	[COMMAND_START_CHILD] = {"start_child", {
			SEQ, {"workflow", FIELD_NAME, true, 0, AT(name)},
			{"input", FIELD_JSON, false, 0, AT(input)},
			{"child_id", FIELD_NAME, false, 0, AT(child_id)},
			{"priority", FIELD_INT, false, PG_INT32_MIN, AT(priority)},
			{"version", FIELD_NAME, false, 0, AT(version)},
			{"await", FIELD_BOOL, false, 0, AT(await)}}},
	[COMMAND_SET_EVENT] = {"set_event", {
			SEQ, {"key", FIELD_NAME, true, 0, AT(name)},
			{"value", FIELD_JSON, false, 0, AT(output)}}},
	[COMMAND_ATTRIBUTES] = {"upsert_search_attributes", {
			SEQ, {"attributes", FIELD_OBJECT, true, 0, AT(output)}}},
	[COMMAND_PATCHED] = {"patched", {SEQ, {"id", FIELD_NAME, true, 0, AT(name)}}},
	[COMMAND_NOW] = {"now", VALUE},
	[COMMAND_RANDOM] = {"random", VALUE},
	[COMMAND_UUID] = {"uuid", VALUE},
	[COMMAND_LOG] = {"log", {
			SEQ, {"level", FIELD_NAME, true, 0, AT(name)},
			{"message", FIELD_TEXT, true, 0, AT(message)},
			{"data", FIELD_JSON, false, 0, AT(output)}}},
	[COMMAND_FAIL_RUN] = {"fail_run", {
			{"message", FIELD_TEXT, true, 0, AT(message)},
			{"code", FIELD_NAME, false, 0, AT(code)},
			{"details", FIELD_JSON, false, 0, AT(output)}}},
};

const char *
durable_command_name(DurableCommandType type)
{
	return specs[type].name;
}

bool
durable_command_waits(const DurableCommand *command)
{
	switch (command->type)
	{
		case COMMAND_CALL:
		case COMMAND_CALL_ALL:
		case COMMAND_START_CHILD:
			return command->await == NULL || *command->await;
		case COMMAND_SLEEP:
		case COMMAND_SLEEP_UNTIL:
		case COMMAND_WAIT_SIGNAL:
			return true;
		default:
			return false;
	}
}

int
durable_command_span(const DurableCommand *command)
{
	return command->inputs != NULL ? command->ninputs :
		command->count != NULL ? *command->count : 1;
}

bool
durable_command_fails_fast(const DurableCommand *command)
{
	return command->mode != NULL && strcmp(text_to_cstring(command->mode), "fail_fast") == 0;
}

bool
durable_command_has_position(DurableCommandType type)
{
	return type != COMMAND_LOG && type != COMMAND_FAIL_RUN;
}

bool
durable_payload_fits(const Jsonb *payload)
{
	return payload == NULL || VARSIZE(payload) <= (Size) durable_max_payload * 1024;
}

/* NaN where it is no number; infinity where it is beyond a float */
static double
number_of(const JsonbValue *value)
{
	if (value->type != jbvNumeric)
		return NAN;
	return DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow,
											  NumericGetDatum(value->val.numeric)));
}

static char *
read_int(const Field *field, const JsonbValue *value, int *result)
{
	double		number = number_of(value);

	if (isnan(number) || number != floor(number) ||
		number < field->minimum || number > PG_INT32_MAX)
		return field->minimum == PG_INT32_MIN ?
			psprintf("\"%s\" must be an integer", field->key) :
			psprintf("\"%s\" must be an integer of at least %d", field->key, field->minimum);
	*result = (int) number;
	return NULL;
}

static char *
read_text(const Field *field, const JsonbValue *value, text **result)
{
	if (value->type != jbvString)
		return psprintf("\"%s\" must be a string", field->key);
	if (field->type == FIELD_NAME &&
		(value->val.string.len == 0 || value->val.string.len > NAME_BYTES))
		return psprintf("\"%s\" must have between 1 and %d bytes", field->key, NAME_BYTES);
	if (value->val.string.len > durable_max_payload * 1024)
		return psprintf("\"%s\" is larger than durable.max_payload, %d kB", field->key,
						durable_max_payload);
	*result = cstring_to_text_with_len(value->val.string.val, value->val.string.len);
	return NULL;
}

static char *
read_span(const Field *field, const JsonbValue *value, Interval **result)
{
	double		number = number_of(value);

	if (field->type == FIELD_WINDOW &&
		(isnan(number) || number * 1000.0 < 1 || number > WINDOW_MS))
		return psprintf("\"%s\" must be a number of milliseconds, above 0 and up to 100 years",
						field->key);
	if (isnan(number) || number < 0 || number > SPAN_MS)
		return psprintf("\"%s\" must be a number of milliseconds, from 0 to 1,000 years",
						field->key);
	*result = palloc0(sizeof(Interval));
	(*result)->time = (int64) rint(number * 1000.0);
	return NULL;
}

static char *
read_time(const Field *field, const JsonbValue *value, TimestampTz **result)
{
	double		number = number_of(value);
	TimestampTz t;

	if (!isnan(number) && fabs(number) <= TIME_MS)
	{
		t = (int64) rint(number * 1000.0) -
			(int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;
		if (IS_VALID_TIMESTAMP(t))
		{
			*result = palloc(sizeof(TimestampTz));
			**result = t;
			return NULL;
		}
	}
	return psprintf("\"%s\" must be a time, in milliseconds since 1970", field->key);
}

static char *
read_json(const Field *field, const JsonbValue *value, Jsonb **result)
{
	*result = JsonbValueToJsonb(unconstify(JsonbValue *, value));
	if (field->type == FIELD_OBJECT && !JB_ROOT_IS_OBJECT(*result))
		return psprintf("\"%s\" must be an object", field->key);
	if (!durable_payload_fits(*result))
		return psprintf("\"%s\" is larger than durable.max_payload, %d kB", field->key,
						durable_max_payload);
	return NULL;
}

static char *
read_inputs(const Field *field, const JsonbValue *value, DurableCommand *command)
{
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	element;
	int			n;

	if (value->type != jbvBinary || !JsonContainerIsArray(value->val.binary.data))
		return psprintf("\"%s\" must be an array", field->key);
	n = JsonContainerSize(value->val.binary.data);
	if (n == 0 || n > DURABLE_FAN_MAX)
		return psprintf("\"%s\" must have between 1 and %d elements", field->key, DURABLE_FAN_MAX);
	command->inputs = palloc(sizeof(Jsonb *) * n);
	it = JsonbIteratorInit(value->val.binary.data);
	while ((token = JsonbIteratorNext(&it, &element, true)) != WJB_DONE)
	{
		if (token != WJB_ELEM)
			continue;
		command->inputs[command->ninputs] = JsonbValueToJsonb(&element);
		if (!durable_payload_fits(command->inputs[command->ninputs++]))
			return psprintf("an element of \"%s\" is larger than durable.max_payload, %d kB",
							field->key, durable_max_payload);
	}
	return NULL;
}

static char *
read_bool(const Field *field, const JsonbValue *value, bool **result)
{
	if (value->type != jbvBool)
		return psprintf("\"%s\" must be true or false", field->key);
	*result = palloc(sizeof(bool));
	**result = value->val.boolean;
	return NULL;
}

/* NULL when it is empty. */
static char *
read_set(const Field *field, const JsonbValue *value, ArrayType **result)
{
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	element;
	text	  **members;
	int			n = 0;

	if (value->type != jbvBinary || !JsonContainerIsArray(value->val.binary.data) ||
		JsonContainerSize(value->val.binary.data) > SET_MAX)
		return psprintf("\"%s\" must be an array of at most %d strings", field->key, SET_MAX);
	members = palloc(sizeof(text *) * SET_MAX);
	it = JsonbIteratorInit(value->val.binary.data);
	while ((token = JsonbIteratorNext(&it, &element, true)) != WJB_DONE)
	{
		if (token != WJB_ELEM)
			continue;
		if (element.type != jbvString || element.val.string.len == 0 ||
			element.val.string.len > NAME_BYTES)
			return psprintf("\"%s\" must have strings of 1 to %d bytes", field->key, NAME_BYTES);
		members[n++] = cstring_to_text_with_len(element.val.string.val, element.val.string.len);
	}
	*result = n == 0 ? NULL : durable_set_make(members, n);
	return NULL;
}

/* What is wrong, or NULL. */
static char *
read_field(const Field *field, const JsonbValue *value, DurableCommand *command)
{
	void	   *member = (char *) command + field->offset;
	int		   *number;
	char	   *problem;

	switch (field->type)
	{
		case FIELD_INT:
			if (field->offset == offsetof(DurableCommand, seq))
				return read_int(field, value, member);
			number = palloc(sizeof(int));
			problem = read_int(field, value, number);
			*(int **) member = number;
			return problem;
		case FIELD_BOOL:
			return read_bool(field, value, member);
		case FIELD_NAME:
		case FIELD_TEXT:
			return read_text(field, value, member);
		case FIELD_SPAN:
		case FIELD_WINDOW:
			return read_span(field, value, member);
		case FIELD_TIME:
			return read_time(field, value, member);
		case FIELD_JSON:
		case FIELD_OBJECT:
			return read_json(field, value, member);
		case FIELD_INPUTS:
			return read_inputs(field, value, command);
		case FIELD_SET:
			return read_set(field, value, member);
	}
	return NULL;
}

/* Every key is a field; a null is as good as none, except for a payload. */
static char *
read_fields(JsonbContainer *object, DurableCommand *command)
{
	const Field *fields = specs[command->type].fields;
	JsonbIterator *it = JsonbIteratorInit(object);
	JsonbValue	value;
	char	   *key;
	bool		given[MAX_FIELDS] = {0};

	while (durable_json_next_member(&it, &key, &value))
	{
		char	   *problem;
		int			i = 0;

		if (strcmp(key, "type") == 0)
			continue;
		while (i < MAX_FIELDS && fields[i].key != NULL && strcmp(fields[i].key, key) != 0)
			i++;
		if (i == MAX_FIELDS || fields[i].key == NULL)
			return psprintf("it has no field \"%s\"", key);
		if (value.type == jbvNull && fields[i].type != FIELD_JSON)
			continue;
		problem = read_field(&fields[i], &value, command);
		if (problem != NULL)
			return problem;
		given[i] = true;
	}
	for (int i = 0; i < MAX_FIELDS && fields[i].key != NULL; i++)
	{
		if (fields[i].required && !given[i])
			return psprintf("\"%s\" is missing", fields[i].key);
	}
	return NULL;
}

/* Recorded values are read by SQL bodies, too, which must be able to. */
static bool
is_time(const char *given)
{
	char	   *end;
	TimestampTz t;

	errno = 0;
	t = strtoll(given, &end, 10);
	return errno == 0 && *end == '\0' && !isspace((unsigned char) *given) &&
		IS_VALID_TIMESTAMP(t);
}

static bool
is_fraction(const char *given)
{
	char	   *end;
	double		number = strtod(given, &end);

	return *end == '\0' && !isspace((unsigned char) *given) && number >= 0 && number < 1;
}

static bool
is_uuid(const char *given)
{
	for (int i = 0; i < 36; i++)
	{
		bool		dash = i == 8 || i == 13 || i == 18 || i == 23;

		if (dash ? given[i] != '-' : !isxdigit((unsigned char) given[i]))
			return false;
	}
	return given[36] == '\0';
}

static char *
check_fan(const DurableCommand *command)
{
	static const char *const modes[] = {"wait_all", "fail_fast", "settled"};
	bool		known = command->mode == NULL;

	for (int i = 0; i < lengthof(modes) && !known; i++)
		known = strcmp(text_to_cstring(command->mode), modes[i]) == 0;
	if (!known)
		return "\"mode\" must be \"wait_all\", \"fail_fast\" or \"settled\"";
	if (command->type == COMMAND_CALL_ALL && (command->inputs == NULL) == (command->count == NULL))
		return "it needs \"inputs\" or, when it is recorded already, \"count\"";
	if (durable_command_span(command) > DURABLE_FAN_MAX)
		return psprintf("\"count\" must be at most %d", DURABLE_FAN_MAX);
	if (command->seq > PG_INT32_MAX - durable_command_span(command))
		return "its positions are too large";
	return NULL;
}

/* What a single field cannot tell. */
static char *
check_values(const DurableCommand *command)
{
	if (command->type == COMMAND_CALL_ALL || command->type == COMMAND_CALL_OFF)
	{
		char	   *problem = check_fan(command);

		if (problem != NULL)
			return problem;
	}
	if (command->type == COMMAND_AWAIT_ANY && *command->handle >= command->seq)
		return "\"handle\" must be an earlier position";
	if (command->queue != NULL &&
		VARDATA_ANY(command->queue)[0] == '#')
		return "queues that start with \"#\" are reserved for work inside the database";
	if (command->fairness_key != NULL && command->limiter == NULL)
		return "\"fairness_key\" needs a \"limiter\"";
	if (command->backoff_kind != NULL &&
		strcmp(text_to_cstring(command->backoff_kind), "fixed") != 0 &&
		strcmp(text_to_cstring(command->backoff_kind), "exp") != 0)
		return "\"backoff_kind\" must be \"fixed\" or \"exp\"";
	if (command->type == COMMAND_NOW && !is_time(text_to_cstring(command->name)))
		return "\"value\" must be a count of microseconds since 2000, as a string";
	if (command->type == COMMAND_RANDOM && !is_fraction(text_to_cstring(command->name)))
		return "\"value\" must be a number from 0 to below 1, as a string";
	if (command->type == COMMAND_UUID && !is_uuid(text_to_cstring(command->name)))
		return "\"value\" must be a uuid in its usual form";
	return NULL;
}

bool
durable_command_read(int index, const JsonbValue *value, DurableCommand *command, char **problem)
{
	JsonbValue	space;
	JsonbValue *type;
	char	   *name;
	char	   *wrong;

	memset(command, 0, sizeof(DurableCommand));
	command->index = index;
	if (value->type != jbvBinary || !JsonContainerIsObject(value->val.binary.data))
	{
		*problem = psprintf("command %d of the decision is no object", index);
		return false;
	}
	type = getKeyJsonValueFromContainer(value->val.binary.data, "type", strlen("type"), &space);
	if (type == NULL || type->type != jbvString)
	{
		*problem = psprintf("command %d of the decision has no type", index);
		return false;
	}
	name = pnstrdup(type->val.string.val, type->val.string.len);
	while (command->type < COMMAND_TYPES && strcmp(specs[command->type].name, name) != 0)
		command->type++;
	if (command->type == COMMAND_TYPES)
	{
		*problem = psprintf("command %d of the decision has the unknown type \"%s\"", index, name);
		return false;
	}
	wrong = read_fields(value->val.binary.data, command);
	if (wrong == NULL)
		wrong = check_values(command);
	if (wrong != NULL)
		*problem = psprintf("command %d of the decision, %s, is malformed: %s", index, name, wrong);
	return wrong == NULL;
}
