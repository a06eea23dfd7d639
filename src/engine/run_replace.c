/*-------------------------------------------------------------------------
 *
 * run_replace.c
 *	  Starting anew under a run id that is taken.
 *
 * Only a run of which nothing has happened is replaced: no turn of it is claimed, and
 * none has left anything. As with tasks (replace.c) the list entry of its turn comes
 * first. What is handed to who claims a turn is read from the run's row, under the
 * snapshot that has shown the entry or a later one, and the entry and the row come
 * with one commit; so a claim has the old run, and then this is refused, or the new one.
 *
 * Locks: the runs, ascending by number; then, run by run, the list entry, the task and
 * the entry of its singleton key.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/names.h"
#include "engine/admission.h"
#include "engine/outcome.h"
#include "engine/run_replace.h"
#include "engine/start_limit.h"
#include "store/checkpoint.h"
#include "store/delayed.h"
#include "store/ready.h"
#include "store/task.h"

/* When its entry is due that is not among the ready ones; 0: it has none. */
static TimestampTz
delayed_until(const DurableRow *row)
{
	return row->nulls[RUN_WAKE_AT] ? 0 : DatumGetTimestampTz(row->values[RUN_WAKE_AT]);
}

/* When it was to start. One that is put off otherwise, as nobody can go on with it, was to
 * start before. */
static TimestampTz
planned_start(const DurableRow *row)
{
	return durable_run_status(row) == RUN_SUSPENDED && !row->nulls[RUN_WAKE_AT] ?
		DatumGetTimestampTz(row->values[RUN_WAKE_AT]) : DT_NOBEGIN;
}

static bool
is_another(const DurableRunSpec *spec, const DurableRow *row)
{
	return !row->nulls[RUN_PARENT] ||
		!durable_text_same(DatumGetTextPP(row->values[RUN_NAMESPACE]), spec->workflow->namespace) ||
		!durable_text_same(DatumGetTextPP(row->values[RUN_WORKFLOW]), spec->workflow->name);
}

/* A turn that was lost may have left a recorded step, without having come to its end. */
static bool
has_left_something(const DurableRow *row)
{
	int			end;

	if (!row->nulls[RUN_STARTED_AT])
		return true;
	durable_snapshot_push();
	end = durable_checkpoints_end(DatumGetInt64(row->values[RUN_ID]));
	durable_snapshot_pop();
	return end > 0;
}

static void
enlist(const DurableRunSpec *spec, int64 id, TimestampTz start_at, TimestampTz now)
{
	DurableTables tables;
	const DurableWorkflow *workflow = spec->workflow;

	durable_tables_init(&tables);
	if (start_at > now)
		durable_delayed_insert(durable_tables_get(&tables, TABLE_DELAYED), id, start_at,
							   spec->priority, workflow->namespace, workflow->queue, NULL);
	else
		durable_ready_insert(durable_tables_get(&tables, TABLE_READY), id, spec->priority,
							 workflow->namespace, workflow->queue);
	durable_tables_close(&tables);
}

static TM_Result
update_task(const DurableRunSpec *spec, DurableRow *task, TimestampTz start_at, TimestampTz now)
{
	DurableWriter writer;
	TM_Result	result;

	durable_row_set(task, TASK_PRIORITY, Int32GetDatum(spec->priority));
	durable_row_set(task, TASK_RECLAIMS, Int32GetDatum(0));
	durable_row_set(task, TASK_QUEUE, PointerGetDatum(spec->workflow->queue));
	durable_run_set_turn_policy(task, spec->workflow);
	if (start_at > now)
		durable_row_set(task, TASK_RUN_AT, TimestampTzGetDatum(start_at));
	else
		durable_row_set_null(task, TASK_RUN_AT);
	durable_writer_open(&writer, REL_TASK);
	result = durable_writer_update(&writer, task, true);
	durable_writer_close(&writer);
	return result;
}

/* Also of a run that waits for a slot of its singleton key, which may be given to it
 * between two looks. */
static bool
take_turn(const DurableRow *run, const DurableRow *task)
{
	ItemPointerData version;
	TimestampTz until = delayed_until(run);

	return durable_outcome_unlist(task, until) || durable_admission_unpark(run, &version) ||
		(!run->nulls[RUN_SINGLETON_KEY] && durable_outcome_unlist(task, until));
}

/* A claim does not write the task's row; whatever puts it back into a list does. */
static bool
has_moved(const DurableRow *seen)
{
	DurableProbe by_id;
	DurableRow	task;
	bool		moved;

	durable_task_open_by_id(&by_id, durable_snapshot_push());
	moved = durable_task_find_number(&by_id, DatumGetInt64(seen->values[TASK_ID]), &task) &&
		!ItemPointerEquals(&task.tid, (ItemPointer) &seen->tid);
	durable_probe_close(&by_id);
	durable_snapshot_pop();
	return moved;
}

/*
 * false: its turn is claimed. The task may go back to its queue meanwhile, for that
 * takes no lock of the run. But once the entry is taken nobody else has the task.
 */
static bool
replace_turn(const DurableRunSpec *spec, const DurableRow *run, TimestampTz start_at,
			 TimestampTz now)
{
	int64		id = DatumGetInt64(run->values[RUN_ID]);
	bool		taken = false;
	TM_Result	result = TM_Updated;

	while (result == TM_Updated)
	{
		DurableProbe by_id;
		DurableRow	task;

		CHECK_FOR_INTERRUPTS();
		result = TM_Deleted;
		durable_task_open_by_id(&by_id, durable_snapshot_push());
		if (durable_task_find_number(&by_id, id, &task))
		{
			if (!taken)
				taken = take_turn(run, &task);
			if (taken)
				result = update_task(spec, &task, start_at, now);
			else if (has_moved(&task))
				result = TM_Updated;
		}
		durable_probe_close(&by_id);
		durable_snapshot_pop();
	}
	if (result == TM_Ok)
		enlist(spec, id, start_at, now);
	return result == TM_Ok;
}

static void
update_run(const DurableRunSpec *spec, const DurableRunItem *item, DurableRun *run,
		   TimestampTz start_at, TimestampTz now)
{
	DurableRow *row = &run->row;
	bool		later = start_at > now;

	(void) durable_run_unblock(row);
	durable_run_set_status(row, later ? RUN_SUSPENDED : RUN_PENDING);
	durable_run_set_turn_state(row, later ? TURN_DELAYED : TURN_READY);
	if (later)
		durable_row_set(row, RUN_WAKE_AT, TimestampTzGetDatum(start_at));
	else
		durable_row_set_null(row, RUN_WAKE_AT);
	durable_row_set(row, RUN_PRIORITY, Int32GetDatum(spec->priority));
	durable_row_set(row, RUN_RECOVERY_ATTEMPTS, Int32GetDatum(0));
	durable_row_set(row, RUN_VERSION, PointerGetDatum(spec->workflow->version));
	durable_row_set_pointer(row, RUN_TAGS, spec->tags);
	durable_row_set_pointer(row, RUN_SEARCH_ATTRIBUTES, spec->search_attributes);
	durable_row_set_pointer(row, RUN_HEADERS, spec->headers);
	durable_row_set_pointer(row, RUN_INPUT, item->input);
	durable_row_set_pointer(row, RUN_SINGLETON_KEY, spec->singleton_key);
	durable_row_set_pointer(row, RUN_CONCURRENCY_KEY, spec->computed_key);
	durable_run_update(run);
}

/* The run is locked. */
static DurableRunReplaced
replace_run(const DurableRunSpec *spec, const DurableConflict *conflict,
			const DurableRunItem *item, DurableRun *run)
{
	DurableRow *row = &run->row;
	DurableRunSpec anew = *spec;
	TimestampTz now = durable_clock_now();
	TimestampTz start_at = durable_conflict_time(conflict, spec->start_at, planned_start(row),
												 DatumGetTimestampTz(row->values[RUN_CREATED_AT]));

	if (is_another(spec, row))
		return RUN_IS_ANOTHER;
	if (durable_run_has_ended(row))
		return RUN_HAS_ENDED;
	if (has_left_something(row) ||
		!replace_turn(spec, row, start_at, now))
		return RUN_HAS_BEGUN;
	/* its keys are those of the new input; where it had a place it has one, uncounted */
	anew.run_id = item->run_id;
	anew.input = item->input;
	durable_start_keys(&anew);
	durable_admission_leave(row);
	durable_snapshot_push();
	update_run(&anew, item, run, start_at, now);
	durable_snapshot_pop();
	durable_admission_enter(row, start_at > now);
	return RUN_REPLACED;
}

static int
compare_items(const void *a, const void *b)
{
	const DurableRunItem *x = a;
	const DurableRunItem *y = b;

	if (x->id != y->id)
		return x->id > y->id ? 1 : -1;
	return x->position - y->position;
}

static void
number_items(DurableRunItem *items, int n)
{
	durable_snapshot_push();
	for (int i = 0; i < n; i++)
	{
		if (!durable_run_number(items[i].run_id, &items[i].id))
			items[i].id = 0;
	}
	durable_snapshot_pop();
	qsort(items, n, sizeof(DurableRunItem), compare_items);
}

/* Items of one run share its lock. */
static bool
same_run(const DurableRunItem *items, int i)
{
	return i > 0 && items[i].id == items[i - 1].id;
}

void
durable_run_replace(const DurableRunSpec *spec, const DurableConflict *conflict,
					DurableRunItem *items, int n)
{
	DurableRun *runs = palloc(sizeof(DurableRun) * Max(n, 1));

	number_items(items, n);
	for (int i = 0; i < n; i++)
	{
		items[i].result = RUN_IS_GONE;
		if (items[i].id == 0 || same_run(items, i))
			continue;
		durable_snapshot_push();
		if (durable_run_open(&runs[i], items[i].id, true) == TM_Ok)
			items[i].result = RUN_REPLACED;
		durable_snapshot_pop();
	}
	for (int i = 0, first = 0; i < n; i++)
	{
		if (!same_run(items, i))
			first = i;
		if (items[first].result != RUN_IS_GONE)
			items[i].result = replace_run(spec, conflict, &items[i], &runs[first]);
		if (items[first].result != RUN_IS_GONE && (i + 1 == n || !same_run(items, i + 1)))
			durable_run_close(&runs[first]);
	}
	pfree(runs);
	CommandCounterIncrement();
}
