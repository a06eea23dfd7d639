/*-------------------------------------------------------------------------
 *
 * admission.c
 *	  Slots of singleton keys: who of the runs with one key may go on.
 *
 * A run has an entry from its start to its end. When its turn is claimed and it holds no
 * slot, it is at the gate: free slots are given to the oldest who wait, wherever these
 * stand, and if it is not among them it is parked, that is, it stays out of
 * all lists. Whoever ends a holder gives its slot to the next. So nobody polls.
 *
 * Two locks. The slots of a key have a heavyweight one, held to the end of the
 * transaction and never waited for: only with it an entry becomes "held" or
 * "parked", so the number of holders is exact, whatever is rolled back. And there is the
 * row lock of each entry. Besides the holder of the slots' lock an entry is changed
 *	- by whoever has taken the turn out of its list (the gate: "delayed" → "waiting");
 *	- by a requeue, with the run locked: "parked" is taken back;
 *	- by the end of the run, with the run locked: it is deleted;
 *	- by a run that hands its failure over to one of the same key, with the run locked:
 *	  the slot goes along, from the one's entry to the other's.
 * Who gives slots away does not wait for those: it stops there, as nobody is to be
 * passed over.
 *
 * What cannot be done because of somebody else's lock is noted: a task of kind "look"
 * in the workflow's queue, which becomes visible with our commit. Who claims it gives
 * the free slots away, or puts the note back for a moment. It cannot be
 * lost, and needs no process of its own.
 *
 * A release need not know whether it was seen: an uncommitted one still counts as a
 * holder. Either it gets the slots' lock, and then all who looked before have committed,
 * or it leaves a note.
 *
 * Locks are taken in the order run, list entries, task, entry of the run, slots; who
 * has the slots waits for nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/names.h"
#include "engine/admission.h"
#include "store/delayed.h"
#include "store/quota.h"
#include "store/ready.h"
#include "store/run.h"
#include "store/task.h"
#include "store/workflow.h"

/* Somebody has the slots: a turn, or a note, comes again after this time. A turn that has
 * waited for long comes less often. */
#define AGAIN_US (100 * 1000)
#define AGAIN_MAX_US (1000 * 1000)

/* Slots given away by one transaction that has something else to do. */
#define FILL_MAX 100
/* Looks at what others change at that moment. */
#define FILL_TRIES 3

/* What one claim locks, and how many turns it parks, before it ends. */
#define GATE_KEYS 32
#define GATE_DENIED 1000

#define NO_LIMIT PG_INT32_MAX

static bool
is_key(const DurableSlotKey *a, const DurableSlotKey *b)
{
	return a->key != NULL && b->key != NULL && durable_text_same(a->key, b->key) &&
		durable_text_same(a->workflow, b->workflow) &&
		durable_text_same(a->namespace, b->namespace);
}

static bool
key_of_run(const DurableRow *run, DurableSlotKey *key)
{
	if (run->nulls[RUN_SINGLETON_KEY])
		return false;
	key->namespace = DatumGetTextPP(run->values[RUN_NAMESPACE]);
	key->workflow = DatumGetTextPP(run->values[RUN_WORKFLOW]);
	key->key = DatumGetTextPP(run->values[RUN_SINGLETON_KEY]);
	return true;
}

/* ------------------------------------------------------------------ notes -- */

static Jsonb *
string_json(text *value)
{
	JsonbValue	string;

	string.type = jbvString;
	string.val.string.val = VARDATA_ANY(value);
	string.val.string.len = VARSIZE_ANY_EXHDR(value);
	return JsonbValueToJsonb(&string);
}

static text *
json_string(Jsonb *json)
{
	JsonbValue	value;

	if (!JsonbExtractScalar(&json->root, &value) || value.type != jbvString)
		return cstring_to_text("");
	return cstring_to_text_with_len(value.val.string.val, value.val.string.len);
}

/* Before all else in the queue where this version of the workflow is served now. */
static void
leave_note(const DurableSlotKey *key, text *version)
{
	DurableWorkflow workflow;
	DurableTables tables;
	DurableRow	row;
	int64		id;

	/* when it is registered again that is the time to look */
	if (!durable_workflow_find(key->namespace, key->workflow, version, &workflow) &&
		!durable_workflow_find(key->namespace, key->workflow, NULL, &workflow))
		return;
	id = durable_sequence_next(SEQ_TASK);
	for (int i = 0; i < TASK_COLUMNS; i++)
		durable_row_set_null(&row, i);
	durable_row_set(&row, TASK_ID, Int64GetDatum(id));
	durable_row_set(&row, TASK_CREATED_AT, TimestampTzGetDatum(durable_clock_now()));
	durable_row_set(&row, TASK_PRIORITY, Int32GetDatum(PG_INT32_MAX));
	durable_row_set(&row, TASK_ATTEMPT, Int32GetDatum(1));
	durable_row_set(&row, TASK_MAX_ATTEMPTS, Int32GetDatum(1));
	durable_row_set(&row, TASK_RECLAIMS, Int32GetDatum(0));
	durable_row_set(&row, TASK_NAMESPACE, PointerGetDatum(key->namespace));
	durable_row_set(&row, TASK_QUEUE, PointerGetDatum(workflow.queue));
	durable_row_set(&row, TASK_NAME, PointerGetDatum(key->workflow));
	durable_row_set(&row, TASK_KIND, CStringGetTextDatum("look"));
	durable_row_set(&row, TASK_INPUT, JsonbPGetDatum(string_json(key->key)));
	durable_tables_init(&tables);
	durable_writer_insert(durable_tables_get(&tables, TABLE_TASK), &row);
	durable_ready_insert(durable_tables_get(&tables, TABLE_READY), id, PG_INT32_MAX,
						 key->namespace, workflow.queue);
	durable_tables_close(&tables);
}

/* What was taken out of its list comes again soon; its task says when. Who has the
 * task's row at this moment puts it into a list himself, or ends it. */
static void
come_again(DurableTables *tables, DurableRow *task, TimestampTz now)
{
	int64		age = now - DatumGetTimestampTz(task->values[TASK_CREATED_AT]);
	TimestampTz at = now + Max(AGAIN_US, Min(age / 4, AGAIN_MAX_US));
	int64		id = DatumGetInt64(task->values[TASK_ID]);
	int32		priority = DatumGetInt32(task->values[TASK_PRIORITY]);
	text	   *namespace = DatumGetTextPP(task->values[TASK_NAMESPACE]);
	text	   *queue = DatumGetTextPP(task->values[TASK_QUEUE]);

	durable_row_set(task, TASK_RUN_AT, TimestampTzGetDatum(at));
	if (durable_writer_update(durable_tables_get(tables, TABLE_TASK), task, false) == TM_Ok)
		durable_delayed_insert(durable_tables_get(tables, TABLE_DELAYED), id, at, priority,
							   namespace, queue, NULL);
	else
		durable_ready_insert(durable_tables_get(tables, TABLE_READY), id, priority,
							 namespace, queue);
}

/* ------------------------------------------------------------------- slots -- */

/* One distribution of the free slots of a key, whose lock we have. */
typedef struct Fill
{
	const DurableSlotKey *key;
	DurableTables *tables;
	text	   *version;		/* the last one that was looked up, */
	int			limit;			/* … and its limit */
	int			holders;
	int			given;
	bool		queued;			/* some of them were parked */
	bool		more;			/* it could go on at once, in another transaction */
} Fill;

/* A workflow that has no key any more lets everybody go. */
static int
limit_of(Fill *fill, text *version)
{
	DurableWorkflow workflow;

	if (fill->version != NULL && durable_text_same(fill->version, version))
		return fill->limit;
	fill->version = version;
	fill->limit = durable_workflow_find(fill->key->namespace, fill->key->workflow, version,
										&workflow) &&
		workflow.singleton_key != NULL ? workflow.singleton_limit : NO_LIMIT;
	return fill->limit;
}

/* TM_Ok: it holds a slot now, and its turn is in a list or in somebody's hands. */
static TM_Result
give_slot(Fill *fill, DurableProbe *by_id, DurableSlot *slot)
{
	DurableRow	task;
	bool		parked = slot->parked;
	TM_Result	result;

	if (!durable_task_find_number(by_id, slot->run, &task))
	{
		/* its task was deleted by hand */
		result = durable_slot_delete(slot, false);
		return result == TM_Ok ? TM_Deleted : result;
	}
	result = durable_slot_set(fill->key, slot, SLOT_HELD, false, false);
	if (result == TM_Ok && parked)
	{
		durable_ready_insert(durable_tables_get(fill->tables, TABLE_READY), slot->run,
							 DatumGetInt32(task.values[TASK_PRIORITY]),
							 DatumGetTextPP(task.values[TASK_NAMESPACE]),
							 DatumGetTextPP(task.values[TASK_QUEUE]));
		fill->queued = true;
	}
	return result;
}

/* TM_Ok: all free slots were given away, or there are more than one transaction should
 * give. Else why the next one has not got his. */
static TM_Result
give_slots(Fill *fill)
{
	DurableProbe waiting;
	DurableProbe by_id;
	DurableSlot slot;
	Snapshot	snapshot = durable_snapshot_push();
	TM_Result	result = TM_Ok;

	fill->holders = durable_slots_count(fill->key, SLOT_HELD, NO_LIMIT);
	durable_task_open_by_id(&by_id, snapshot);
	durable_slots_waiting_begin(&waiting, fill->key);
	while (durable_slots_waiting_next(&waiting, &slot) &&
		   fill->holders < limit_of(fill, slot.version))
	{
		fill->more = fill->given == FILL_MAX;
		if (fill->more)
			break;
		result = give_slot(fill, &by_id, &slot);
		if (result == TM_Deleted)
			continue;
		if (result != TM_Ok)
			break;
		fill->holders++;
		fill->given++;
	}
	durable_slots_waiting_end(&waiting);
	durable_probe_close(&by_id);
	durable_snapshot_pop();
	return result == TM_Deleted ? TM_Ok : result;
}

typedef enum Filled
{
	FILLED,
	FILLED_MORE,				/* somebody has to go on */
	FILLED_BUSY					/* somebody has to look again when others have committed */
} Filled;

/* *queued: runs that were parked are ready now. */
static Filled
fill_slots(DurableTables *tables, const DurableSlotKey *key, bool *queued)
{
	Fill		fill = {.key = key, .tables = tables};
	TM_Result	result = TM_Updated;

	for (int i = 0; i < FILL_TRIES && result == TM_Updated; i++)
		result = give_slots(&fill);
	*queued = *queued || fill.queued || fill.more;
	return result != TM_Ok ? FILLED_BUSY : fill.more ? FILLED_MORE : FILLED;
}

/* As far as it can be done now; the rest is noted, where the next one is served. (One whose
 * start is due later may be at the gate just now.) Who serves the version of which a run
 * has ended may be gone with it. */
static void
look_at(DurableTables *tables, const DurableSlotKey *key, text *version)
{
	bool		queued = false;
	text	   *next;

	if (durable_slots_lock(key) && fill_slots(tables, key, &queued) == FILLED)
		return;
	next = durable_slots_next_version(key);
	leave_note(key, next != NULL ? next : version);
}

/* --------------------------------------------------------------- the gate -- */

static void
keep_full(DurableGate *gate, const DurableSlotKey *key)
{
	gate->full.namespace = (text *) PG_DETOAST_DATUM_COPY(PointerGetDatum(key->namespace));
	gate->full.workflow = (text *) PG_DETOAST_DATUM_COPY(PointerGetDatum(key->workflow));
	gate->full.key = (text *) PG_DETOAST_DATUM_COPY(PointerGetDatum(key->key));
}

/* The run is at the gate, without a slot, and the slots are ours. */
static bool
compete(DurableGate *gate, DurableTables *tables, const DurableSlotKey *key, DurableSlot *slot)
{
	/* whoever had the slots before may have given us one */
	if (!durable_slot_find(key, slot->run, slot))
		return true;
	if (slot->state == SLOT_HELD)
		return true;
	if (slot->state == SLOT_DELAYED &&
		durable_slot_set(key, slot, SLOT_WAITING, false, false) != TM_Ok)
		return false;
	if (!is_key(&gate->full, key))
	{
		if (fill_slots(tables, key, &gate->queued) != FILLED)
			leave_note(key, slot->version);
		/* or noted: in both cases there is nothing more for us to do here */
		keep_full(gate, key);
		if (!durable_slot_find(key, slot->run, slot) || slot->state == SLOT_HELD)
			return true;
	}
	return false;
}

/* A run with a key and its entry are inserted by one transaction, so those whose turns the
 * claim's snapshot shows have had theirs in the table when it was taken, and have it as long as
 * they live. If there is nothing in the table after that, none of them has a key. */
static bool
is_open(DurableGate *gate)
{
	if (!gate->looked)
		gate->open = durable_table_is_unused(REL_SINGLETON);
	gate->looked = true;
	return gate->open;
}

static bool
pass_turn(DurableGate *gate, DurableTables *tables, DurableRow *task, TimestampTz now)
{
	DurableSlotKey key;
	DurableSlot slot = {.run = DatumGetInt64(task->values[TASK_ID])};
	text	   *version;

	if (is_open(gate))
		return true;
	key.namespace = DatumGetTextPP(task->values[TASK_NAMESPACE]);
	key.workflow = DatumGetTextPP(task->values[TASK_NAME]);
	key.key = durable_run_singleton_key(slot.run, &version);
	if (key.key == NULL)
		return true;
	if (!durable_slot_find(&key, slot.run, &slot))
	{
		/* its entry was deleted by hand: it waits like any other */
		slot.state = SLOT_WAITING;
		slot.version = version;
		ItemPointerSetInvalid(&slot.tid);
		durable_slot_insert(&key, &slot);
	}
	if (slot.state == SLOT_HELD)
		return true;
	gate->denied++;
	if (!is_key(&gate->full, &key))
		gate->keys++;
	if (durable_slots_lock(&key))
	{
		if (compete(gate, tables, &key, &slot))
			return true;
		if (slot.state == SLOT_WAITING &&
			durable_slot_set(&key, &slot, SLOT_WAITING, true, false) == TM_Ok)
			return false;
	}
	come_again(tables, task, now);
	return false;
}

static void
follow_note(DurableGate *gate, DurableTables *tables, DurableRow *task, TimestampTz now)
{
	DurableSlotKey key = {
		.namespace = DatumGetTextPP(task->values[TASK_NAMESPACE]),
		.workflow = DatumGetTextPP(task->values[TASK_NAME]),
		.key = json_string(DatumGetJsonbP(task->values[TASK_INPUT]))
	};

	Filled		filled = durable_slots_lock(&key) ?
		fill_slots(tables, &key, &gate->queued) : FILLED_BUSY;

	if (filled == FILLED)
		(void) durable_writer_delete(durable_tables_get(tables, TABLE_TASK), &task->tid, false);
	else if (filled == FILLED_MORE)
		durable_ready_insert(durable_tables_get(tables, TABLE_READY),
							 DatumGetInt64(task->values[TASK_ID]), PG_INT32_MAX,
							 key.namespace, DatumGetTextPP(task->values[TASK_QUEUE]));
	else
		come_again(tables, task, now);
}

bool
durable_gate_pass(DurableGate *gate, DurableTables *tables, DurableRow *task, TimestampTz now)
{
	if (durable_task_is(task, "turn"))
		return pass_turn(gate, tables, task, now);
	if (!durable_task_is(task, "look"))
		return true;
	gate->keys++;
	follow_note(gate, tables, task, now);
	return false;
}

bool
durable_gate_is_tired(const DurableGate *gate)
{
	return gate->keys >= GATE_KEYS || gate->denied >= GATE_DENIED;
}

/* --------------------------------------------------------- start and end -- */

void
durable_admission_enter(const DurableRow *run, bool delayed)
{
	DurableSlotKey key;
	int64		id = DatumGetInt64(run->values[RUN_ID]);

	if (!run->nulls[RUN_CONCURRENCY_KEY])
		durable_quota_insert(DatumGetTextPP(run->values[RUN_NAMESPACE]),
							 DatumGetTextPP(run->values[RUN_CONCURRENCY_KEY]), id);
	if (key_of_run(run, &key))
	{
		DurableSlot slot = {
			.run = id, .state = delayed ? SLOT_DELAYED : SLOT_WAITING,
			.version = DatumGetTextPP(run->values[RUN_VERSION])
		};

		durable_slot_insert(&key, &slot);
	}
}

/* Who is just giving the run a slot is waited for, as a cancel waits for a claim;
 * nobody touches the entry of a holder but its own end. */
static bool
delete_entry(const DurableSlotKey *key, int64 run, DurableSlot *slot)
{
	TM_Result	result = TM_Updated;

	while (result == TM_Updated)
	{
		CHECK_FOR_INTERRUPTS();
		durable_snapshot_push();
		result = durable_slot_find(key, run, slot) ? durable_slot_delete(slot, true) : TM_Deleted;
		durable_snapshot_pop();
	}
	return result == TM_Ok;
}

void
durable_admission_leave(const DurableRow *run)
{
	DurableSlotKey key;
	DurableSlot slot;
	int64		id = DatumGetInt64(run->values[RUN_ID]);

	if (!run->nulls[RUN_CONCURRENCY_KEY])
		durable_quota_delete(DatumGetTextPP(run->values[RUN_NAMESPACE]),
							 DatumGetTextPP(run->values[RUN_CONCURRENCY_KEY]), id);
	if (key_of_run(run, &key) && delete_entry(&key, id, &slot) && slot.state != SLOT_DELAYED)
	{
		DurableTables tables;

		/* also of who had none: his version may have had a lower limit than the next */
		durable_tables_init(&tables);
		look_at(&tables, &key, slot.version);
		durable_tables_close(&tables);
	}
}

/*
 * Holders are as many before the commit as after it, so this needs no lock of the slots: the
 * holder's entry is touched by nobody else, and the handler's is not seen yet.
 */
void
durable_admission_hand_over(const DurableRow *run, int64 handler)
{
	DurableSlotKey key;
	DurableSlotKey wanted;
	DurableSlot own;
	DurableSlot next;
	DurableRow	row;

	durable_snapshot_push();
	if (key_of_run(run, &key) && durable_run_read(handler, &row) && key_of_run(&row, &wanted) &&
		is_key(&key, &wanted) &&
		durable_slot_find(&key, DatumGetInt64(run->values[RUN_ID]), &own) &&
		own.state == SLOT_HELD && durable_slot_find(&key, handler, &next) &&
		durable_slot_delete(&own, true) == TM_Ok)
		(void) durable_slot_set(&key, &next, SLOT_HELD, false, true);
	durable_snapshot_pop();
}

void
durable_admission_take_back(const DurableRow *run)
{
	DurableSlotKey key;
	DurableSlot slot = {.run = DatumGetInt64(run->values[RUN_ID]), .state = SLOT_WAITING};

	if (!key_of_run(run, &key) || durable_slot_find(&key, slot.run, &slot))
		return;
	slot.version = DatumGetTextPP(run->values[RUN_VERSION]);
	durable_slot_insert(&key, &slot);
	CommandCounterIncrement();
}

bool
durable_admission_unpark(const DurableRow *run, ItemPointer version)
{
	DurableSlotKey key;
	DurableSlot slot;
	TM_Result	result = TM_Updated;
	bool		parked = false;

	ItemPointerSetInvalid(version);
	while (key_of_run(run, &key) && result == TM_Updated)
	{
		CHECK_FOR_INTERRUPTS();
		durable_snapshot_push();
		if (!durable_slot_find(&key, DatumGetInt64(run->values[RUN_ID]), &slot))
			result = TM_Deleted;
		else
		{
			parked = slot.parked;
			result = parked ? durable_slot_set(&key, &slot, slot.state, false, true) : TM_Ok;
		}
		if (result == TM_Ok)
			*version = slot.tid;
		durable_snapshot_pop();
	}
	return parked && result == TM_Ok;
}

void
durable_admission_changed(text *namespace, text *workflow, text *version)
{
	int			n;
	text	  **keys = durable_slots_waited_for(namespace, workflow, &n);

	for (int i = 0; i < n; i++)
	{
		DurableSlotKey key = {.namespace = namespace, .workflow = workflow, .key = keys[i]};

		CHECK_FOR_INTERRUPTS();
		leave_note(&key, version);
	}
}
