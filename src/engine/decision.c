/*-------------------------------------------------------------------------
 *
 * decision.c
 *	  Decisions of external workers: from JSON to what apply.h applies.
 *
 * A decision becomes a turn like one of a SQL body, and is applied by the same
 * functions. Its history has only the positions that the commands name, so that
 * the cost of a turn does not grow with what the run has behind it.
 *
 * A command whose position is in the history asks for what was asked for before:
 * it has to be the same kind and name, and says that the run waits for it. The
 * history is read without a lock. What is in it stays; what is pending in it may
 * be settled any moment, which apply.c looks at again when it holds the run.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/numeric.h"
#include "utils/snapmgr.h"

#include "base/clock.h"
#include "base/errors.h"
#include "base/json.h"
#include "base/names.h"
#include "engine/apply.h"
#include "engine/command.h"
#include "engine/decision.h"
#include "engine/run.h"
#include "engine/step.h"
#include "store/run.h"
#include "store/task.h"

/* A run's position may be recorded this far behind the end of its history: what
 * was asked for in between comes with the decision. */
#define RECORD_AHEAD 10000

/* A decision being read. The first problem counts. */
typedef struct Decision
{
	DurableTurn *turn;
	DurableCommand *commands;	/* those with a position first, ascending */
	int			ncommands;
	int			npositions;		/* how many of them */
	int			space;			/* how many positions those name */
	int			windows;		/* new fans that bound what is in flight */
	int			fans;			/* that it waits for */
	bool		recorded;		/* something new is in the turn */
	char	   *problem;
	char	   *detail;
	const char *code;
} Decision;

static void
refuse(Decision *decision, int sqlstate, char *problem, char *detail)
{
	if (decision->problem != NULL)
		return;
	decision->problem = problem;
	decision->detail = detail;
	decision->code = pstrdup(unpack_sql_state(sqlstate));
}

static void
malformed(Decision *decision, char *problem)
{
	refuse(decision, ERRCODE_INVALID_PARAMETER_VALUE, problem, NULL);
}

/* The run without its history. NULL: it has ended. */
static DurableTurn *
load(int64 id, const DurableLease *lease, const DurableAfterStep *after)
{
	DurableTurn *turn = palloc0(sizeof(DurableTurn));
	DurableRow	run;
	bool		alive;

	turn->context = CurrentMemoryContext;
	turn->external = true;
	turn->after = after;
	turn->run = id;
	turn->awaited_first = turn->awaited_last = turn->window_first = -1;
	durable_snapshot_push();
	alive = durable_run_read(id, &run) && !durable_run_has_ended(&run);
	if (alive)
	{
		turn->run_id = DatumGetTextPP(run.values[RUN_RUN_ID]);
		turn->namespace = DatumGetTextPP(run.values[RUN_NAMESPACE]);
		turn->priority = DatumGetInt32(run.values[RUN_PRIORITY]);
		turn->wakes = durable_lease_wakes(lease, id);
		if (!run.nulls[RUN_FAN_NEXT])
			turn->window_first = DatumGetInt32(run.values[RUN_FAN_FIRST]);
		turn->history_end = after != NULL ? after->history_end : durable_checkpoints_end(id);
		/* a run that was requeued starts again */
		turn->started = !run.nulls[RUN_STARTED_AT] && durable_run_status(&run) != RUN_PENDING;
		turn->headers = run.nulls[RUN_HEADERS] ? NULL : DatumGetJsonbP(run.values[RUN_HEADERS]);
		if (!durable_workflow_find(turn->namespace, DatumGetTextPP(run.values[RUN_WORKFLOW]),
								   DatumGetTextPP(run.values[RUN_VERSION]), &turn->workflow) ||
			turn->workflow.body != NULL)
			ereport(ERROR,
					errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("workflow \"%s\" is not an external one",
						   TextDatumGetCString(run.values[RUN_WORKFLOW])),
					errdetail("Its turns are executed in the database."),
					errhint("Hand the turn back with durable.release()."));
	}
	durable_snapshot_pop();
	return alive ? turn : NULL;
}

static bool
in_order(const DurableCommand *a, const DurableCommand *b)
{
	bool		first = durable_command_has_position(a->type);
	bool		second = durable_command_has_position(b->type);

	if (first != second)
		return first;
	return first && a->seq != b->seq ? a->seq < b->seq : a->index < b->index;
}

static int
compare_commands(const void *a, const void *b)
{
	return in_order(a, b) ? -1 : 1;
}

static void
read_commands(Decision *decision, JsonbContainer *array)
{
	JsonbIterator *it = JsonbIteratorInit(array);
	JsonbIteratorToken token;
	JsonbValue	value;

	decision->commands = palloc(sizeof(DurableCommand) * Max(JsonContainerSize(array), 1));
	while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
	{
		char	   *problem = NULL;

		if (token != WJB_ELEM)
			continue;
		if (!durable_command_read(decision->ncommands, &value,
								  &decision->commands[decision->ncommands], &problem))
		{
			malformed(decision, problem);
			return;
		}
		if (durable_command_has_position(decision->commands[decision->ncommands].type))
		{
			decision->npositions++;
			decision->space += durable_command_span(&decision->commands[decision->ncommands]);
		}
		decision->ncommands++;
	}
	qsort(decision->commands, decision->ncommands, sizeof(DurableCommand), compare_commands);
	for (int i = 1; i < decision->npositions; i++)
	{
		if (decision->commands[i].seq <
			decision->commands[i - 1].seq + durable_command_span(&decision->commands[i - 1]))
			malformed(decision, psprintf("commands %d and %d of the decision have the same position, %d",
										 decision->commands[i - 1].index,
										 decision->commands[i].index, decision->commands[i].seq));
	}
}

/* The kind and the name under which a command is recorded. */
static DurableKind
identify(const DurableTurn *turn, const DurableCommand *command, text **name)
{
	char	   *id;

	*name = command->name;
	switch (command->type)
	{
		case COMMAND_CALL:
		case COMMAND_CALL_ALL:
		case COMMAND_CALL_OFF:
			return KIND_STEP;
		case COMMAND_RECORD_STEP:
			return KIND_LOCAL;
		case COMMAND_SLEEP:
		case COMMAND_SLEEP_UNTIL:
			*name = cstring_to_text("sleep");
			return KIND_SLEEP;
		case COMMAND_WAIT_SIGNAL:
			return KIND_SIGNAL;
		case COMMAND_START_CHILD:
			id = command->child_id != NULL ? text_to_cstring(command->child_id) :
				psprintf("%s.child.%d", text_to_cstring(turn->run_id), command->seq);
			*name = durable_child_token(cstring_to_text(id));
			return KIND_CHILD;
		case COMMAND_SET_EVENT:
			*name = cstring_to_text(psprintf("event:%s", text_to_cstring(command->name)));
			return KIND_VALUE;
		case COMMAND_PATCHED:
			*name = cstring_to_text(psprintf("patch:%s", text_to_cstring(command->name)));
			return KIND_VALUE;
		case COMMAND_ATTRIBUTES:
			*name = cstring_to_text("searchAttributes");
			return KIND_VALUE;
		default:
			*name = cstring_to_text(durable_command_name(command->type));
			return KIND_VALUE;
	}
}

static void
check_child(Decision *decision, const DurableCommand *command, const text *name)
{
	const char *id = text_to_cstring(name) + strlen("child:");

	if (strlen(id) > 255)
		malformed(decision, psprintf("command %d of the decision, start_child, is malformed: the child's id would have more than 255 bytes",
									 command->index));
	if (durable_run_child_prefix(decision->turn->run_id, id) != NULL)
		malformed(decision, psprintf("command %d of the decision, start_child, is malformed: ids that start with \"%s\" are reserved",
									 command->index,
									 durable_run_child_prefix(decision->turn->run_id, id)));
	if (strcmp(id, text_to_cstring(decision->turn->run_id)) == 0)
		malformed(decision, psprintf("command %d of the decision, start_child, is malformed: a run cannot be its own child",
									 command->index));
}

static text *
string_json(text *value)
{
	JsonbValue	string;

	string.type = jbvString;
	string.val.string.val = VARDATA_ANY(value);
	string.val.string.len = VARSIZE_ANY_EXHDR(value);
	return (text *) JsonbValueToJsonb(&string);
}

static Jsonb *
number_json(int number)
{
	JsonbValue	value;

	value.type = jbvNumeric;
	value.val.numeric = int64_to_numeric(number);
	return JsonbValueToJsonb(&value);
}

static DurableOperation *
operation(Decision *decision, const DurableCommand *command)
{
	DurableOperation *op = durable_turn_operation(decision->turn, command->seq);

	op->retries = command->retries == NULL ? 0 : *command->retries;
	op->count = durable_command_span(command);
	op->max_in_flight = command->max_in_flight == NULL ? 0 : *command->max_in_flight;
	op->has_priority = command->priority != NULL;
	op->priority = op->has_priority ? *command->priority : 0;
	op->backoff = command->backoff;
	op->backoff_max = command->backoff_max;
	op->has_exponential = command->backoff_kind != NULL;
	op->exponential = op->has_exponential ?
		durable_text_is(command->backoff_kind, "exp") : command->backoff_max != NULL;
	op->has_jitter = command->jitter != NULL;
	op->jitter = op->has_jitter && *command->jitter;
	op->timeout = command->timeout;
	op->pickup_timeout = command->pickup_timeout;
	op->requires = command->requires;
	if (command->type == COMMAND_CALL || command->type == COMMAND_CALL_ALL)
	{
		op->target = command->queue;
		op->limiter = command->limiter;
		op->fairness_key = command->fairness_key;
	}
	else if (command->type == COMMAND_START_CHILD)
	{
		op->workflow = command->name;
		op->version = command->version;
	}
	return op;
}

static void
fill_record(const DurableCommand *command, DurableCheckpoint *checkpoint)
{
	checkpoint->status = command->error == NULL ? CHECKPOINT_COMPLETED : CHECKPOINT_FAILED;
	checkpoint->output = command->error == NULL ? command->output : NULL;
	checkpoint->error = command->error == NULL ? NULL : durable_json_error_from(command->error);
	if (command->attempts != NULL)
		checkpoint->attempts = *command->attempts;
	if (command->started_at != NULL)
		checkpoint->started_at = *command->started_at;
	if (command->finished_at != NULL)
		checkpoint->finished_at = *command->finished_at;
}

/* What is new at its position. */
static void
fill_new(Decision *decision, const DurableCommand *command, DurableCheckpoint *checkpoint)
{
	TimestampTz now = durable_clock_now();
	DurableTurn *turn = decision->turn;

	checkpoint->attempts = 1;
	checkpoint->started_at = checkpoint->finished_at = now;
	checkpoint->status = CHECKPOINT_COMPLETED;
	checkpoint->input = command->inputs == NULL ? command->input :
		command->inputs[checkpoint->seq - command->seq];
	checkpoint->unsaved = decision->recorded = true;
	if (command->type == COMMAND_RECORD_STEP)
		fill_record(command, checkpoint);
	else if (command->type == COMMAND_SLEEP)
		checkpoint->wake_at = durable_clock_add(now, command->span);
	else if (command->type == COMMAND_SLEEP_UNTIL)
		checkpoint->wake_at = *command->until;
	else if (command->type == COMMAND_SET_EVENT || command->type == COMMAND_ATTRIBUTES)
		checkpoint->output = command->output;
	else if (command->type == COMMAND_AWAIT_ANY)
		checkpoint->output = number_json(*command->handle);
	else if (checkpoint->kind == KIND_VALUE && command->type != COMMAND_PATCHED)
		checkpoint->output = (Jsonb *) string_json(command->name);
	if (command->type == COMMAND_ATTRIBUTES)
		turn->attributes = durable_json_merge(turn->attributes, command->output);
	if (command->type == COMMAND_WAIT_SIGNAL && command->span != NULL)
		checkpoint->wake_at = durable_clock_add(now, command->span);
	if (command->type == COMMAND_WAIT_SIGNAL || command->type == COMMAND_CALL ||
		command->type == COMMAND_CALL_ALL ||
		(command->type == COMMAND_START_CHILD && durable_command_waits(command)))
	{
		checkpoint->status = CHECKPOINT_PENDING;
		checkpoint->finished_at = 0;
	}
	/* one for all positions of a fan */
	if (checkpoint->seq == command->seq &&
		(checkpoint->kind == KIND_STEP || checkpoint->kind == KIND_SIGNAL ||
		 checkpoint->kind == KIND_CHILD))
		(void) operation(decision, command);
}

static bool
asks_already(const DurableTurn *turn, int seq)
{
	return turn->operations != NIL && ((DurableOperation *) llast(turn->operations))->seq == seq;
}

/* A position that the history has: is it the same, and is it still awaited? */
static void
match(Decision *decision, const DurableCommand *command, DurableKind kind, const text *name,
	  DurableCheckpoint *checkpoint)
{
	DurableTurn *turn = decision->turn;

	if (checkpoint->kind != kind || !durable_text_same(checkpoint->name, name))
		refuse(decision, ERRCODE_DURABLE_HISTORY,
			   psprintf("the history of run \"%s\" does not match its workflow at position %d",
						text_to_cstring(turn->run_id), checkpoint->seq),
			   psprintf("Command %d of the decision asks for %s \"%s\"; recorded is %s \"%s\".",
						command->index, durable_kind_name(kind), text_to_cstring(name),
						durable_kind_name(checkpoint->kind), text_to_cstring(checkpoint->name)));
	else if (checkpoint->status != CHECKPOINT_PENDING)
		return;
	else if (command->type == COMMAND_CALL_OFF)
	{
		durable_step_call_off(turn, checkpoint);
		turn->rests_on_latest = decision->recorded = true;
	}
	else if (command->type == COMMAND_CALL_ALL)
	{
		if (checkpoint->task == 0 && !asks_already(turn, command->seq))
			(void) operation(decision, command);
	}
	else if (kind == KIND_SIGNAL || kind == KIND_CHILD || (kind == KIND_STEP && checkpoint->task == 0))
		/* again: the registration may have met a sender on its way, and the step's task
		 * was lost, or ended with a run that was requeued since */
		(void) operation(decision, command);
	else if (kind == KIND_LOCAL)
		/* it had failed before the run was requeued */
		fill_new(decision, command, checkpoint);
}

/* One position. */
static void
place_at(Decision *decision, const DurableCommand *command, int seq, DurableKind kind, text *name,
		 int *next)
{
	DurableTurn *turn = decision->turn;
	DurableCheckpoint *checkpoint = &turn->history[turn->nhistory];
	bool		again = command->type == COMMAND_CALL_OFF ||
		(command->type == COMMAND_CALL_ALL && command->inputs == NULL);

	memset(checkpoint, 0, sizeof(DurableCheckpoint));
	if (seq < turn->history_end && durable_checkpoint_find(turn->run, seq, checkpoint))
	{
		turn->nhistory++;
		match(decision, command, kind, name, checkpoint);
	}
	else if (again || (seq > command->seq && turn->history[turn->nhistory - 1].stored))
		malformed(decision, psprintf("command %d of the decision, %s, goes on to position %d, which is not recorded",
									 command->index, durable_command_name(command->type), seq));
	else if (seq > *next)
		malformed(decision, psprintf("command %d of the decision, %s, has position %d, and the next one is %d",
									 command->index, durable_command_name(command->type),
									 seq, *next));
	else
	{
		turn->nhistory++;
		checkpoint->seq = seq;
		checkpoint->kind = kind;
		checkpoint->name = name;
		fill_new(decision, command, checkpoint);
		*next = Max(*next, seq + 1);
	}
}

static void
add_wait(Decision *decision, const DurableCommand *command)
{
	DurableTurn *turn = decision->turn;
	DurableWait *wait = palloc(sizeof(DurableWait));

	wait->first = command->seq;
	wait->last = command->seq + durable_command_span(command) - 1;
	wait->fail_fast = durable_command_fails_fast(command);
	turn->waits = lappend(turn->waits, wait);
	if (command->type == COMMAND_CALL || command->type == COMMAND_CALL_ALL)
		decision->fans++;
}

/* The run has one window. */
static void
check_window(Decision *decision, const DurableCommand *command)
{
	DurableTurn *turn = decision->turn;
	bool		again = turn->history_end > command->seq;

	if (command->type == COMMAND_CALL_OFF && turn->window_first == command->seq)
	{
		turn->fan_changed = true;
		turn->fan_next = -1;
	}
	if (command->type != COMMAND_CALL_ALL || command->max_in_flight == NULL || again)
		return;
	if (decision->windows++ > 0 || turn->window_first >= 0)
		malformed(decision, psprintf("command %d of the decision, call_all, is malformed: another fan with \"max_in_flight\" is out",
									 command->index));
}

/* That it has ended is what the choice was. */
static void
check_choice(Decision *decision, const DurableCommand *command)
{
	DurableCheckpoint chosen;

	if (!durable_checkpoint_find(decision->turn->run, *command->handle, &chosen) ||
		chosen.kind != KIND_STEP || chosen.status == CHECKPOINT_PENDING)
		malformed(decision, psprintf("command %d of the decision, await_any, is malformed: position %d is no step that has ended",
									 command->index, *command->handle));
}

static void
place(Decision *decision, const DurableCommand *command, int *next)
{
	text	   *name;
	DurableKind kind = identify(decision->turn, command, &name);
	int			span = durable_command_span(command);

	if (command->type == COMMAND_START_CHILD)
		check_child(decision, command, name);
	if (command->type == COMMAND_AWAIT_ANY)
		check_choice(decision, command);
	check_window(decision, command);
	for (int i = 0; i < span && decision->problem == NULL; i++)
	{
		CHECK_FOR_INTERRUPTS();
		place_at(decision, command, command->seq + i, kind, name, next);
	}
	if (durable_command_waits(command))
		add_wait(decision, command);
}

/* Where a fan is the only thing with results that the run waits for, it need not be woken
 * before those are all there. */
static void
await_fan(Decision *decision)
{
	DurableTurn *turn = decision->turn;
	ListCell   *lc;

	if (decision->problem != NULL || decision->fans != 1 || turn->awaited_first >= 0)
		return;
	foreach(lc, turn->waits)
	{
		const DurableWait *wait = lfirst(lc);

		if (wait->last == wait->first)
			continue;
		turn->awaited_first = wait->first;
		turn->awaited_last = wait->last;
		turn->fail_fast = wait->fail_fast;
	}
}

/* On an ending decision, what the run would wait for is left out: nobody will. */
static void
place_commands(Decision *decision)
{
	DurableTurn *turn = decision->turn;
	bool		suspends = turn->decision == DECISION_SUSPEND;
	int			next;

	turn->space = Max(decision->space, 1);
	turn->history = palloc_extended(sizeof(DurableCheckpoint) * turn->space, MCXT_ALLOC_HUGE);
	durable_snapshot_push();
	next = turn->history_end;
	for (int i = 0; i < decision->npositions && decision->problem == NULL; i++)
	{
		const DurableCommand *command = &decision->commands[i];
		bool		left_out = !suspends && durable_command_waits(command) &&
			command->await == NULL;

		if (left_out && command->seq == next)
			next += durable_command_span(command);
		if (!left_out)
			place(decision, command, &next);
	}
	durable_snapshot_pop();
	await_fan(decision);
}

static void
add_log(DurableTurn *turn, const DurableCommand *command)
{
	DurableLogEntry *entry = palloc0(sizeof(DurableLogEntry));
	ListCell   *lc;

	entry->seq = command->seq;
	entry->level = command->name;
	entry->message = command->message;
	entry->data = command->output;
	foreach(lc, turn->logs)
		entry->number += ((DurableLogEntry *) lfirst(lc))->seq == entry->seq;
	turn->logs = lappend(turn->logs, entry);
}

/* fail_run is a decision in itself. */
static void
place_others(Decision *decision)
{
	for (int i = decision->npositions; i < decision->ncommands; i++)
	{
		const DurableCommand *command = &decision->commands[i];
		Jsonb	   *error;

		if (command->type == COMMAND_LOG)
		{
			add_log(decision->turn, command);
			decision->recorded = true;
			continue;
		}
		error = durable_json_error_full(text_to_cstring(command->message),
										command->code != NULL ? text_to_cstring(command->code) :
										unpack_sql_state(ERRCODE_DURABLE_RUN_FAILED), false);
		decision->turn->decision = DECISION_FAILED;
		decision->turn->error = command->output == NULL ? error :
			durable_json_with(error, "details", command->output);
	}
}

static Jsonb *
payload(Decision *decision, const JsonbValue *value, const char *key)
{
	Jsonb	   *result = JsonbValueToJsonb(unconstify(JsonbValue *, value));

	if (!durable_payload_fits(result))
		refuse(decision, ERRCODE_PROGRAM_LIMIT_EXCEEDED,
			   psprintf("the %s of the decision is larger than durable.max_payload", key), NULL);
	return result;
}

static void
read_status(Decision *decision, const JsonbValue *value)
{
	static const char *const names[] = {
		[DECISION_COMPLETED] = "completed",
		[DECISION_FAILED] = "failed",
		[DECISION_CANCELLED] = "cancelled",
		[DECISION_SUSPEND] = "continue",
	};

	if (value->type == jbvString)
	{
		const char *given = pnstrdup(value->val.string.val, value->val.string.len);

		for (int i = 0; i < lengthof(names); i++)
		{
			if (strcmp(names[i], given) == 0)
			{
				decision->turn->decision = i;
				return;
			}
		}
		malformed(decision, psprintf("the decision has the unknown status \"%s\"", given));
	}
	else
		malformed(decision, pstrdup("the status of the decision is no string"));
}

/* [first, last]: the run need not be woken before all results there are in */
static void
read_range(Decision *decision, JsonbValue *value)
{
	int			range[2] = {-1, -1};

	for (int i = 0; i < 2 && value->type == jbvBinary &&
		 JsonContainerIsArray(value->val.binary.data) &&
		 JsonContainerSize(value->val.binary.data) == 2; i++)
	{
		JsonbValue *element = getIthJsonbValueFromContainer(value->val.binary.data, i);
		double		number = element->type != jbvNumeric ? -1 :
			DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow,
											   NumericGetDatum(element->val.numeric)));

		if (number >= 0 && number <= PG_INT32_MAX && number == (int) number)
			range[i] = (int) number;
	}
	if (range[0] < 0 || range[1] < range[0])
	{
		malformed(decision, pstrdup("\"await_all\" of the decision must be the first and the last position of a range"));
		return;
	}
	decision->turn->awaited_first = range[0];
	decision->turn->awaited_last = range[1];
}

static void
read_member(Decision *decision, const char *key, JsonbValue *value)
{
	DurableTurn *turn = decision->turn;

	if (strcmp(key, "status") == 0)
		read_status(decision, value);
	else if (strcmp(key, "output") == 0)
		turn->output = payload(decision, value, key);
	else if (strcmp(key, "error") == 0)
		turn->error = value->type == jbvNull ? NULL : payload(decision, value, key);
	else if (strcmp(key, "await_all") == 0)
	{
		if (value->type != jbvNull)
			read_range(decision, value);
	}
	else if (strcmp(key, "commands") != 0)
		malformed(decision, psprintf("the decision has the unknown field \"%s\"", key));
	else if (value->type == jbvBinary && JsonContainerIsArray(value->val.binary.data))
		read_commands(decision, value->val.binary.data);
	else if (value->type != jbvNull)
		malformed(decision, pstrdup("the commands of the decision are no array"));
}

static void
read_decision(Decision *decision, Jsonb *json)
{
	JsonbIterator *it = JsonbIteratorInit(&json->root);
	JsonbValue	value;
	char	   *key;
	bool		has_status = false;

	if (!JB_ROOT_IS_OBJECT(json))
	{
		malformed(decision, pstrdup("the decision is no object"));
		return;
	}
	while (durable_json_next_member(&it, &key, &value))
	{
		read_member(decision, key, &value);
		has_status = has_status || strcmp(key, "status") == 0;
	}
	if (!has_status)
		malformed(decision, pstrdup("the decision has no status"));
}

/* Nothing of a decision with a problem is applied; the run fails for it. */
static void
fail_instead(Decision *decision)
{
	DurableTurn *turn = decision->turn;

	turn->decision = DECISION_FAILED;
	turn->output = NULL;
	turn->error = durable_json_error_details(decision->problem, decision->code,
											 decision->detail, NULL, NULL);
	turn->nhistory = 0;
	turn->operations = turn->logs = turn->waits = NIL;
	turn->attributes = NULL;
	turn->fan_changed = turn->rests_on_latest = false;
}

/* The run would go round for ever. */
static void
fail_stuck(Decision *decision)
{
	const DurableTurn *turn = decision->turn;
	const DurableWait *wait = linitial(turn->waits);
	DurableCheckpoint *checkpoint = durable_turn_at(turn, wait->first);

	refuse(decision, ERRCODE_PROGRAM_LIMIT_EXCEEDED,
		   psprintf("%d turns in a row have added nothing and waited for what is there already",
					DURABLE_IDLE_TURNS + 1),
		   psprintf("The last one waits for position %d, %s \"%s\", which is %s.", checkpoint->seq,
					durable_kind_name(checkpoint->kind), text_to_cstring(checkpoint->name),
					durable_checkpoint_status_name(checkpoint->status)));
	fail_instead(decision);
}

static void
finish(Decision *decision)
{
	DurableTurn *turn = decision->turn;

	switch (turn->decision)
	{
		case DECISION_SUSPEND:
			if (turn->waits == NIL && !decision->recorded)
				malformed(decision, pstrdup("the decision waits for nothing and adds nothing"));
			break;
		case DECISION_CANCELLED:
			turn->output = NULL;
			turn->error = turn->error == NULL ? durable_json_error("cancelled", false) :
				durable_json_error_from(turn->error);
			break;
		case DECISION_FAILED:
			turn->output = NULL;
			turn->error = durable_json_error_from(turn->error);
			break;
		default:
			turn->error = NULL;
	}
}

static DurableApplied
apply(Decision *decision, const DurableLease *lease)
{
	DurableTurn *turn = decision->turn;
	DurableApplied result = turn->decision == DECISION_SUSPEND ?
		durable_apply_external(turn, lease) : durable_apply_end(turn, lease);

	if (result == APPLY_SUPERSEDED)
		return durable_apply_superseded(turn, lease);
	if (result != APPLY_STUCK)
		return result;
	fail_stuck(decision);
	return durable_apply_end(turn, lease);
}

/* false: the run is gone */
static bool
compose(Decision *decision, int64 run, const DurableLease *lease, Jsonb *json,
		const DurableAfterStep *after)
{
	decision->turn = load(run, lease, after);
	if (decision->turn == NULL)
		return false;
	read_decision(decision, json);
	if (decision->problem == NULL)
		place_others(decision);
	if (decision->problem == NULL)
		place_commands(decision);
	if (decision->problem == NULL)
		finish(decision);
	if (decision->problem != NULL)
		fail_instead(decision);
	return true;
}

static DurableApplied
decide_once(int64 run, const DurableLease *lease, Jsonb *json, const DurableAfterStep *after,
			DurableFresh *fresh)
{
	Decision	decision = {0};

	if (!compose(&decision, run, lease, json, after))
		return APPLY_LOST;
	decision.turn->fresh = fresh;
	return apply(&decision, lease);
}

void
durable_decide_prepare(int64 run, const DurableLease *lease, const DurableAfterStep *after,
					   Jsonb *json)
{
	Decision	decision = {0};

	if (compose(&decision, run, lease, json, after))
		durable_apply_prepare(decision.turn);
}

bool
durable_decide(int64 run, const DurableLease *lease, Jsonb *json, DurableFresh *fresh)
{
	DurableApplied result;

	do
	{
		CHECK_FOR_INTERRUPTS();
		result = decide_once(run, lease, json, NULL, fresh);
	} while (result == APPLY_AGAIN);
	return result != APPLY_LOST;
}

bool
durable_decide_after(int64 run, const DurableAfterStep *after, Jsonb *json, DurableFresh *fresh)
{
	return decide_once(run, after->lease, json, after, fresh) != APPLY_LOST;
}

static void
fill_step(const DurableRecord *record, DurableCheckpoint *checkpoint)
{
	checkpoint->seq = record->seq;
	checkpoint->kind = KIND_LOCAL;
	checkpoint->status = record->error == NULL ? CHECKPOINT_COMPLETED : CHECKPOINT_FAILED;
	checkpoint->name = record->name;
	checkpoint->attempts = record->attempts;
	checkpoint->input = record->input;
	checkpoint->output = record->error == NULL ? record->output : NULL;
	checkpoint->error = record->error;
	checkpoint->finished_at = record->finished_at != 0 ? record->finished_at :
		durable_clock_now();
	checkpoint->started_at = record->started_at != 0 ? record->started_at :
		checkpoint->finished_at;
	checkpoint->unsaved = true;
}

static bool
is_same_step(const DurableRecord *record, const DurableCheckpoint *checkpoint)
{
	return checkpoint->kind == KIND_LOCAL && durable_text_same(checkpoint->name, record->name);
}

static DurableApplied
record_once(int64 run, const DurableLease *lease, const DurableRecord *record)
{
	DurableTurn *turn = load(run, lease, NULL);
	DurableCheckpoint *checkpoint = palloc0(sizeof(DurableCheckpoint));

	if (turn == NULL)
		return APPLY_LOST;
	turn->history = checkpoint;
	turn->nhistory = 1;
	durable_snapshot_push();
	/* pending: it had failed before the run was requeued */
	if (!durable_checkpoint_find(run, record->seq, checkpoint) ||
		(is_same_step(record, checkpoint) && checkpoint->status == CHECKPOINT_PENDING))
		fill_step(record, checkpoint);
	durable_snapshot_pop();
	if (!is_same_step(record, checkpoint))
		ereport(ERROR,
				errcode(ERRCODE_DURABLE_HISTORY),
				errmsg("the history of run \"%s\" does not match its workflow at position %d",
					   text_to_cstring(turn->run_id), record->seq),
				errdetail("The worker records local \"%s\"; recorded is %s \"%s\".",
						  text_to_cstring(record->name), durable_kind_name(checkpoint->kind),
						  text_to_cstring(checkpoint->name)));
	if (record->seq >= turn->history_end + RECORD_AHEAD)
		durable_error_value("seq", psprintf("The history ends at %d; it must be less than %d after that.",
											turn->history_end, RECORD_AHEAD));
	return durable_apply_step(turn, lease, DURABLE_ALL_POSITIONS);
}

bool
durable_record_step(int64 run, const DurableLease *lease, const DurableRecord *record)
{
	DurableApplied result;

	do
	{
		CHECK_FOR_INTERRUPTS();
		result = record_once(run, lease, record);
	} while (result == APPLY_AGAIN);
	return result != APPLY_LOST;
}
