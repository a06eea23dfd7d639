/*-------------------------------------------------------------------------
 *
 * handoff.c
 *	  A run that fails hands its failure over to another workflow.
 *
 * Instead of ending, the run starts a run of the workflow that one of its routes
 * names, the handler, and is parked until that ends; then it ends with the
 * handler's outcome, in the handler's last transaction and without a turn of its own.
 * So it makes no difference who executes its turns. The handler's row says whose it
 * is (parent and parent_seq), the run's row which handler it waits for (the awaited
 * position): both are locked in the order of their numbers when the handler ends, and
 * the handoff holds if they still agree. There is no waiter that could be taken by
 * somebody else, and whatever else would wake the run does nothing while it waits so.
 *
 * The handoff is recorded at a position of its own, far below those of the body, which
 * never sees it. A requeue renames it, and the body is executed again.
 *
 * No loops: the failure of a handler is not handed over again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_collation_d.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/errors.h"
#include "base/json.h"
#include "base/names.h"
#include "engine/admission.h"
#include "engine/handoff.h"
#include "engine/run.h"
#include "engine/step.h"
#include "store/checkpoint.h"

#define ROUTES_MAX 100
#define NAME_MAX_BYTES 255
#define LIVE_PREFIX "handoff:"
#define RETIRED_PREFIX "retired:"

/* ---------------------------------------------------------------- routes -- */

typedef enum RouteKind
{
	ROUTE_NAME,					/* a string of a name's length */
	ROUTE_TEXTS,				/* a string or an array of such */
	ROUTE_PATTERN,				/* a pattern of LIKE */
	ROUTE_BOOL
} RouteKind;

static const struct
{
	const char *key;
	RouteKind	kind;
}			route_keys[] = {
	{"workflow", ROUTE_NAME},
	{"version", ROUTE_NAME},
	{"code", ROUTE_TEXTS},
	{"step", ROUTE_TEXTS},
	{"message", ROUTE_PATTERN},
	{"retryable", ROUTE_BOOL},
};

static void
complain(int route, const char *what)
{
	durable_error_value("on_error", psprintf("Route %d: %s", route, what));
}

static void
check_text(int route, const char *key, const JsonbValue *value)
{
	if (value->type != jbvString || value->val.string.len == 0 ||
		value->val.string.len > NAME_MAX_BYTES)
		complain(route, psprintf("\"%s\" must have between 1 and %d bytes.", key, NAME_MAX_BYTES));
}

static void
check_texts(int route, const char *key, const JsonbValue *value)
{
	JsonbContainer *array;

	if (value->type == jbvString)
	{
		check_text(route, key, value);
		return;
	}
	if (value->type != jbvBinary || !JsonContainerIsArray(value->val.binary.data) ||
		JsonContainerSize(value->val.binary.data) == 0)
		complain(route, psprintf("\"%s\" must be a string or an array of strings.", key));
	array = value->val.binary.data;
	for (int i = 0; i < JsonContainerSize(array); i++)
	{
		JsonbValue *element = getIthJsonbValueFromContainer(array, i);

		if (element->type != jbvString)
			complain(route, psprintf("\"%s\" must be a string or an array of strings.", key));
		check_text(route, key, element);
	}
}

/* What LIKE itself would raise, and only when it comes that far. */
static void
check_pattern(int route, const char *key, const JsonbValue *value)
{
	int			escapes = 0;

	if (value->type != jbvString)
		complain(route, psprintf("\"%s\" must be a string.", key));
	while (escapes < value->val.string.len &&
		   value->val.string.val[value->val.string.len - 1 - escapes] == '\\')
		escapes++;
	if (escapes % 2 == 1)
		complain(route, psprintf("\"%s\" must not end with an escape character.", key));
}

static void
check_member(int route, const char *key, const JsonbValue *value)
{
	for (int i = 0; i < lengthof(route_keys); i++)
	{
		if (strcmp(key, route_keys[i].key) != 0)
			continue;
		if (route_keys[i].kind == ROUTE_NAME)
			check_text(route, key, value);
		else if (route_keys[i].kind == ROUTE_TEXTS)
			check_texts(route, key, value);
		else if (route_keys[i].kind == ROUTE_PATTERN)
			check_pattern(route, key, value);
		else if (value->type != jbvBool)
			complain(route, psprintf("\"%s\" must be true or false.", key));
		return;
	}
	complain(route, psprintf("There is no key \"%s\"; there are workflow, version, code, step, message and retryable.",
							 key));
}

static JsonbValue *
member(JsonbContainer *route, const char *key)
{
	return getKeyJsonValueFromContainer(route, key, strlen(key), NULL);
}

static void
check_route(int route, const JsonbValue *value)
{
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	item;
	char	   *key = NULL;

	if (value->type != jbvBinary || !JsonContainerIsObject(value->val.binary.data))
		complain(route, "It must be an object.");
	it = JsonbIteratorInit(value->val.binary.data);
	while ((token = JsonbIteratorNext(&it, &item, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			key = pnstrdup(item.val.string.val, item.val.string.len);
		else if (token == WJB_VALUE)
			check_member(route, key, &item);
	}
	if (member(value->val.binary.data, "workflow") == NULL)
		complain(route, "The key \"workflow\" is missing.");
}

void
durable_routes_check(Jsonb *routes)
{
	if (!JB_ROOT_IS_ARRAY(routes) || JB_ROOT_IS_SCALAR(routes))
		durable_error_value("on_error", "It must be an array of routes, which are objects.");
	if (JB_ROOT_COUNT(routes) > ROUTES_MAX)
		durable_error_value("on_error", psprintf("It must have at most %d routes.", ROUTES_MAX));
	for (int i = 0; i < JB_ROOT_COUNT(routes); i++)
		check_route(i, getIthJsonbValueFromContainer(&routes->root, i));
}

/* --------------------------------------------------------------- choosing -- */

/* What routes look at. The step's own code is not always the run's, which has to be
 * a SQLSTATE to pass through the body. */
typedef struct Failure
{
	char	   *code;
	char	   *step_code;
	text	   *message;
	text	   *step;
	bool		retryable;
} Failure;

static bool
is_class_of(const char *class, const char *code)
{
	return strlen(class) == 2 && strlen(code) == 5 && strncmp(class, code, 2) == 0;
}

static bool
code_fits(const JsonbValue *value, const Failure *failure)
{
	const char *given = pnstrdup(value->val.string.val, value->val.string.len);
	const char *codes[] = {failure->code, failure->step_code};

	for (int i = 0; i < lengthof(codes); i++)
	{
		if (codes[i] != NULL && (strcmp(given, codes[i]) == 0 || is_class_of(given, codes[i])))
			return true;
	}
	return false;
}

static bool
step_fits(const JsonbValue *value, const Failure *failure)
{
	return failure->step != NULL &&
		durable_text_same(cstring_to_text_with_len(value->val.string.val, value->val.string.len),
						  failure->step);
}

/* true where the route does not say */
static bool
any_fits(JsonbContainer *route, const char *key, const Failure *failure,
		 bool (*fits) (const JsonbValue *value, const Failure *failure))
{
	JsonbValue *value = member(route, key);
	bool		found = false;

	if (value == NULL || value->type == jbvString)
		return value == NULL || fits(value, failure);
	for (int i = 0; i < JsonContainerSize(value->val.binary.data) && !found; i++)
		found = fits(getIthJsonbValueFromContainer(value->val.binary.data, i), failure);
	return found;
}

static text *
text_member(JsonbContainer *route, const char *key)
{
	JsonbValue *value = member(route, key);

	return value == NULL ? NULL :
		cstring_to_text_with_len(value->val.string.val, value->val.string.len);
}

static bool
route_fits(JsonbContainer *route, const Failure *failure)
{
	JsonbValue *retryable = member(route, "retryable");
	text	   *pattern = text_member(route, "message");

	return any_fits(route, "code", failure, code_fits) &&
		any_fits(route, "step", failure, step_fits) &&
		(retryable == NULL || retryable->val.boolean == failure->retryable) &&
		(pattern == NULL ||
		 DatumGetBool(DirectFunctionCall2Coll(textlike, C_COLLATION_OID,
											  PointerGetDatum(failure->message),
											  PointerGetDatum(pattern))));
}

static bool
same_string(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* The last operation that failed with just this error: that is the one which the
 * body did not catch. */
static const DurableCheckpoint *
find_culprit(const DurableCheckpoint *history, int n, Jsonb *error)
{
	char	   *message = durable_json_string(error, "message");
	char	   *code = durable_json_string(error, "code");
	bool		any_code = same_string(code, unpack_sql_state(ERRCODE_DURABLE_STEP_FAILED));

	if (message == NULL)
		return NULL;
	for (int i = n - 1; i >= 0; i--)
	{
		if (history[i].status == CHECKPOINT_FAILED && history[i].error != NULL &&
			same_string(durable_json_string(history[i].error, "message"), message) &&
			(any_code || same_string(durable_json_string(history[i].error, "code"), code)))
			return &history[i];
	}
	return NULL;
}

static const DurableCheckpoint *
culprit_of(const DurableTurn *turn)
{
	const DurableCheckpoint *found = find_culprit(turn->history, turn->nhistory, turn->error);
	DurableCheckpoint *history;
	int			n;

	/* of a turn outside, what is recorded already is not at hand */
	if (found != NULL || !turn->external)
		return found;
	durable_snapshot_push();
	history = durable_checkpoints_load(turn->run, &n);
	durable_snapshot_pop();
	return find_culprit(history, n, turn->error);
}

static void
describe_failure(const DurableTurn *turn, Failure *failure)
{
	const DurableCheckpoint *culprit = turn->error == NULL ? NULL : culprit_of(turn);
	const char *message = durable_json_string(turn->error, "message");

	memset(failure, 0, sizeof(Failure));
	failure->code = durable_json_string(turn->error, "code");
	failure->message = cstring_to_text(message == NULL ? "" : message);
	failure->retryable = turn->error == NULL || durable_json_is_retryable(turn->error);
	if (culprit != NULL)
	{
		failure->step = culprit->name;
		failure->step_code = durable_json_string(culprit->error, "code");
		failure->retryable = failure->retryable && durable_json_is_retryable(culprit->error);
	}
}

bool
durable_handoff_choose(DurableTurn *turn, DurableHandoff *handoff)
{
	Jsonb	   *routes = turn->workflow.on_error;
	Failure		failure;

	memset(handoff, 0, sizeof(DurableHandoff));
	if (routes == NULL || durable_text_starts(turn->run_id, DURABLE_ID_ON_ERROR))
		return false;
	describe_failure(turn, &failure);
	for (int i = 0; i < JB_ROOT_COUNT(routes); i++)
	{
		JsonbContainer *route = getIthJsonbValueFromContainer(&routes->root, i)->val.binary.data;
		text	   *name = text_member(route, "workflow");

		if (!route_fits(route, &failure))
			continue;
		handoff->route = i;
		handoff->step = failure.step;
		if (durable_workflow_find(turn->namespace, name, text_member(route, "version"),
								  &handoff->workflow))
			return true;
		handoff->problem = psprintf("route %d of on_error was not taken: workflow \"%s\" is not registered in the run's namespace",
									i, text_to_cstring(name));
		return false;
	}
	return false;
}

/* ----------------------------------------------------------- the handoff -- */

/* The position of the next handoff; those before it count from 1. */
static int
next_seq(int64 run)
{
	DurableCheckpoint checkpoint;
	int			seq = DURABLE_HANDOFF_FIRST;

	while (durable_checkpoint_find(run, seq, &checkpoint))
		seq++;
	return seq;
}

static void
record(int64 run, int seq, const DurableHandoff *handoff, const text *handler, Jsonb *error)
{
	JsonbParseState *state = NULL;
	DurableWriter writer;
	DurableCheckpoint checkpoint = {
		.seq = seq, .kind = KIND_HANDOFF, .status = CHECKPOINT_PENDING, .attempts = 1,
		.started_at = durable_clock_now(),
		.name = cstring_to_text(psprintf(LIVE_PREFIX "%s", text_to_cstring(handler)))
	};

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	durable_json_add_int(&state, "route", handoff->route);
	durable_json_add_text(&state, "workflow", handoff->workflow.name);
	durable_json_add_value(&state, "error", error);
	checkpoint.input = JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
	durable_writer_open(&writer, REL_CHECKPOINT);
	durable_checkpoint_write(&writer, run, &checkpoint);
	durable_writer_close(&writer);
}

void
durable_handoff_begin(DurableTurn *turn, DurableRun *run, DurableHandoff *handoff)
{
	DurableRow *row = &run->row;
	DurableRunSpec spec = {
		.workflow = &handoff->workflow, .priority = turn->priority, .start_at = DT_NOBEGIN,
		.tags = handoff->workflow.tags, .headers = turn->headers, .parent = turn->run,
		.for_failure = true,
	};
	int			number;
	int64		handler;

	/* what this turn has dispatched can be seen */
	CommandCounterIncrement();
	durable_run_abandon(row);
	durable_step_end_window(row);
	durable_snapshot_push();
	spec.parent_seq = next_seq(turn->run);
	durable_snapshot_pop();
	spec.input = durable_run_describe(row, "run_id", turn->error, handoff->step);
	/* one may be left from a run that had this one's id and was deleted */
	number = spec.parent_seq - DURABLE_HANDOFF_FIRST + 1;
	do
		spec.run_id = cstring_to_text(psprintf(DURABLE_ID_ON_ERROR "%s:%d",
											   text_to_cstring(turn->run_id), number++));
	while (!durable_run_start(&spec));
	durable_snapshot_push();
	if (durable_run_number(spec.run_id, &handler))
		durable_admission_hand_over(row, handler);
	durable_snapshot_pop();
	record(turn->run, spec.parent_seq, handoff, spec.run_id, turn->error);
	durable_row_set(row, RUN_AWAITED_FIRST, Int32GetDatum(spec.parent_seq));
	durable_row_set(row, RUN_AWAITED_LAST, Int32GetDatum(spec.parent_seq));
	durable_row_set(row, RUN_AWAITED_ON, Int32GetDatum(spec.parent_seq));
	CommandCounterIncrement();
}

bool
durable_run_in_handoff(const DurableRow *run, int *seq)
{
	if (durable_run_has_ended(run) || run->nulls[RUN_AWAITED_FIRST])
		return false;
	*seq = DatumGetInt32(run->values[RUN_AWAITED_FIRST]);
	return durable_is_handoff(*seq);
}

bool
durable_handoff_is_for(const DurableRow *run, const DurableRow *handler)
{
	int			seq;

	return !handler->nulls[RUN_PARENT] && !handler->nulls[RUN_PARENT_SEQ] &&
		DatumGetInt64(handler->values[RUN_PARENT]) == DatumGetInt64(run->values[RUN_ID]) &&
		durable_run_in_handoff(run, &seq) &&
		DatumGetInt32(handler->values[RUN_PARENT_SEQ]) == seq;
}

bool
durable_handoff_handler(const DurableRow *run, int64 *handler)
{
	DurableCheckpoint checkpoint;
	const char *name;
	int			seq;
	bool		found;

	if (run->nulls[RUN_AWAITED_FIRST])
		return false;
	seq = DatumGetInt32(run->values[RUN_AWAITED_FIRST]);
	if (!durable_is_handoff(seq))
		return false;
	durable_snapshot_push();
	found = durable_checkpoint_find(DatumGetInt64(run->values[RUN_ID]), seq, &checkpoint);
	if (found)
	{
		name = text_to_cstring(checkpoint.name);
		found = strncmp(name, LIVE_PREFIX, strlen(LIVE_PREFIX)) == 0 &&
			durable_run_number(cstring_to_text(name + strlen(LIVE_PREFIX)), handler);
	}
	durable_snapshot_pop();
	return found;
}

Jsonb *
durable_handoff_error(int64 run, int seq, Jsonb *error)
{
	DurableCheckpoint checkpoint;
	JsonbValue *value;

	if (error == NULL || !durable_checkpoint_find(run, seq, &checkpoint) ||
		checkpoint.input == NULL)
		return error;
	value = member(&checkpoint.input->root, "error");
	return value == NULL ? error :
		durable_json_with(error, "handed_over", JsonbValueToJsonb(value));
}

static void
settle_cancelled(DurableWriter *writer, int64 run, DurableCheckpoint *checkpoint)
{
	checkpoint->status = CHECKPOINT_CANCELLED;
	checkpoint->finished_at = durable_clock_now();
	durable_checkpoint_write(writer, run, checkpoint);
}

void
durable_handoff_call_off(const DurableRow *run)
{
	int64		id = DatumGetInt64(run->values[RUN_ID]);
	DurableCheckpoint checkpoint;
	DurableWriter writer;

	durable_snapshot_push();
	if (durable_checkpoint_find(id, DatumGetInt32(run->values[RUN_AWAITED_FIRST]), &checkpoint) &&
		checkpoint.status == CHECKPOINT_PENDING)
	{
		durable_writer_open(&writer, REL_CHECKPOINT);
		settle_cancelled(&writer, id, &checkpoint);
		durable_writer_close(&writer);
	}
	durable_snapshot_pop();
}

void
durable_handoffs_retire(int64 run)
{
	DurableCheckpoint checkpoint;
	DurableWriter writer;

	durable_snapshot_push();
	durable_writer_open(&writer, REL_CHECKPOINT);
	for (int seq = DURABLE_HANDOFF_FIRST; durable_checkpoint_find(run, seq, &checkpoint); seq++)
	{
		if (durable_text_starts(checkpoint.name, RETIRED_PREFIX))
			continue;
		checkpoint.name = cstring_to_text(psprintf(RETIRED_PREFIX "%s",
												   text_to_cstring(checkpoint.name)));
		if (checkpoint.status == CHECKPOINT_PENDING)
			settle_cancelled(&writer, run, &checkpoint);
		else
			durable_checkpoint_write(&writer, run, &checkpoint);
	}
	durable_writer_close(&writer);
	durable_snapshot_pop();
}
