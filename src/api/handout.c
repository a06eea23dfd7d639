/*-------------------------------------------------------------------------
 *
 * handout.c
 *	  What a claimed task is handed out as: claim's row.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/json.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "api/handout.h"
#include "base/json.h"
#include "engine/turn_input.h"
#include "store/task.h"

/* result column <- task column; the others are computed */
static const int copied_columns[][2] = {
	{OUT_KIND, TASK_KIND},
	{OUT_NAME, TASK_NAME},
	{OUT_QUEUE, TASK_QUEUE},
	{OUT_NAMESPACE, TASK_NAMESPACE},
	{OUT_INPUT, TASK_INPUT},
	{OUT_RUN_ID, TASK_RUN_ID},
	{OUT_SEQ, TASK_SEQ},
	{OUT_ATTEMPT, TASK_ATTEMPT},
	{OUT_RECLAIMS, TASK_RECLAIMS},
	{OUT_PRIORITY, TASK_PRIORITY},
	{OUT_HEADERS, TASK_HEADERS},
};

/* A turn's task has no input of its own. */
static void
fill_turn(DurableHandout *handout, const DurableRow *task, DurableLease *lease)
{
	int64		run = DatumGetInt64(task->values[TASK_ID]);
	MemoryContext before;
	Jsonb	   *input;
	Jsonb	   *headers = NULL;
	int			wakes = 0;

	if (handout->scratch == NULL)
		handout->scratch = AllocSetContextCreate(CurrentMemoryContext, "durable turn input",
												 ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(handout->scratch);
	before = MemoryContextSwitchTo(handout->scratch);
	input = durable_turn_input(run, handout->history,
							   DatumGetTimestampTz(task->values[TASK_CREATED_AT]),
							   &wakes, &headers);
	MemoryContextSwitchTo(before);
	if (input == NULL)
		return;
	durable_lease_note_wakes(lease, run, wakes);
	handout->values[OUT_INPUT] = JsonbPGetDatum(input);
	handout->nulls[OUT_INPUT] = false;
	handout->values[OUT_HEADERS] = PointerGetDatum(headers);
	handout->nulls[OUT_HEADERS] = headers == NULL;
}

void
durable_handout_fill(DurableHandout *handout, const DurableRow *task, DurableLease *lease)
{
	text	   *explicit_id = task->nulls[TASK_TASK_ID] ? NULL :
		DatumGetTextPP(task->values[TASK_TASK_ID]);

	memset(handout->nulls, 0, sizeof(handout->nulls));
	for (int i = 0; i < lengthof(copied_columns); i++)
	{
		handout->values[copied_columns[i][0]] = task->values[copied_columns[i][1]];
		handout->nulls[copied_columns[i][0]] = task->nulls[copied_columns[i][1]];
	}
	handout->values[OUT_TASK_ID] = PointerGetDatum(
												   durable_task_id_text(DatumGetInt64(task->values[TASK_ID]),
																		explicit_id));
	handout->values[OUT_TOKEN] = UUIDPGetDatum(&lease->token);
	handout->values[OUT_LEASE_UNTIL] = TimestampTzGetDatum(lease->until);
	if (durable_task_is(task, "turn"))
		fill_turn(handout, task, lease);
}

/* In the order that jsonb keeps them in, which then need not be made. */
static const struct
{
	int			column;
	const char *key;
	enum
	{
		SHOW_TEXT, SHOW_INT, SHOW_JSON, SHOW_UUID, SHOW_TIME
	}			as;
}			members[] = {
	{OUT_SEQ, "seq", SHOW_INT},
	{OUT_KIND, "kind", SHOW_TEXT},
	{OUT_NAME, "name", SHOW_TEXT},
	{OUT_INPUT, "input", SHOW_JSON},
	{OUT_QUEUE, "queue", SHOW_TEXT},
	{OUT_TOKEN, "token", SHOW_UUID},
	{OUT_RUN_ID, "run_id", SHOW_TEXT},
	{OUT_ATTEMPT, "attempt", SHOW_INT},
	{OUT_HEADERS, "headers", SHOW_JSON},
	{OUT_TASK_ID, "task_id", SHOW_TEXT},
	{OUT_PRIORITY, "priority", SHOW_INT},
	{OUT_RECLAIMS, "reclaims", SHOW_INT},
	{OUT_NAMESPACE, "namespace", SHOW_TEXT},
	{OUT_LEASE_UNTIL, "lease_until", SHOW_TIME},
};

/* As to_jsonb() would have it. */
static void
push_null(JsonbParseState **state, const char *key)
{
	JsonbValue	value;

	value.type = jbvString;
	value.val.string.val = unconstify(char *, key);
	value.val.string.len = strlen(key);
	pushJsonbValue(state, WJB_KEY, &value);
	value.type = jbvNull;
	pushJsonbValue(state, WJB_VALUE, &value);
}

/* What is pushed is only pointed to until the array is done: so copies. */
void
durable_handout_push(const DurableHandout *handout, JsonbParseState **state)
{
	pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; i < lengthof(members); i++)
	{
		const char *key = members[i].key;
		Datum		value = handout->values[members[i].column];

		if (handout->nulls[members[i].column])
			push_null(state, key);
		else if (members[i].as == SHOW_TEXT)
			durable_json_add_text(state, key, DatumGetTextPCopy(value));
		else if (members[i].as == SHOW_INT)
			durable_json_add_int(state, key, DatumGetInt32(value));
		else if (members[i].as == SHOW_JSON)
			durable_json_add_value(state, key, DatumGetJsonbPCopy(value));
		else if (members[i].as == SHOW_UUID)
			durable_json_add_string(state, key, DatumGetCString(DirectFunctionCall1(uuid_out, value)));
		else
			durable_json_add_string(state, key, JsonEncodeDateTime(palloc(MAXDATELEN + 1), value,
																   TIMESTAMPTZOID, NULL));
	}
	pushJsonbValue(state, WJB_END_OBJECT, NULL);
}
