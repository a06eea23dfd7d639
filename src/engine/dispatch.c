/*-------------------------------------------------------------------------
 *
 * dispatch.c
 *	  Queueing tasks (catalogue F-DISP).
 *
 * A task with a generated id cannot collide and takes the short way. A task
 * with an id of its own is inserted unless a live task has it, and then looked
 * for among the results: in this order, because a settle moves the id from
 * the one table to the other, and an insert that had to wait for that settle
 * finds the result only afterwards.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/rel.h"
#include "engine/dispatch.h"
#include "engine/limiter.h"
#include "engine/replace.h"
#include "engine/tables.h"
#include "store/delayed.h"
#include "store/ready.h"
#include "store/result.h"
#include "store/task.h"

/* Rows written at once. */
#define BATCH 500

typedef struct Dispatch
{
	const DurableTaskSpec *spec;
	TimestampTz now;
	DurableTables tables;
	int64	   *ids;			/* queued, their list entry not yet written */
	int			nids;
} Dispatch;

void
durable_dispatch_find_limiter(DurableTaskSpec *spec)
{
	if (spec->limiter == NULL)
		return;
	spec->space.limiter = durable_limiter_require(spec->namespace, spec->limiter);
	spec->space.key = spec->fairness_key != NULL ? spec->fairness_key : cstring_to_text("");
	spec->gate = &spec->space;
}

void
durable_dispatch_fill(const DurableTaskSpec *spec, const DurableTaskItem *item,
					  TimestampTz now, DurableRow *row)
{
	bool		has_backoff = spec->backoff != NULL && durable_interval_positive(spec->backoff);

	for (int i = 0; i < TASK_COLUMNS; i++)
		durable_row_set_null(row, i);
	durable_row_set(row, TASK_ID, Int64GetDatum(item->id));
	durable_row_set(row, TASK_CREATED_AT, TimestampTzGetDatum(now));
	if (spec->run_at > now)
		durable_row_set(row, TASK_RUN_AT, TimestampTzGetDatum(spec->run_at));
	durable_row_set(row, TASK_PRIORITY, Int32GetDatum(spec->priority));
	durable_row_set(row, TASK_ATTEMPT, Int32GetDatum(1));
	durable_row_set(row, TASK_MAX_ATTEMPTS, Int32GetDatum(spec->max_attempts));
	durable_row_set(row, TASK_RECLAIMS, Int32GetDatum(0));
	if (has_backoff)
	{
		durable_row_set(row, TASK_BACKOFF, IntervalPGetDatum(spec->backoff));
		durable_row_set_pointer(row, TASK_BACKOFF_MAX, spec->backoff_max);
		durable_row_set(row, TASK_BACKOFF_EXP, BoolGetDatum(spec->exponential));
		durable_row_set(row, TASK_JITTER, BoolGetDatum(spec->jitter));
	}
	durable_row_set(row, TASK_NAMESPACE, PointerGetDatum(spec->namespace));
	durable_row_set(row, TASK_QUEUE, PointerGetDatum(spec->queue));
	durable_row_set(row, TASK_NAME, PointerGetDatum(spec->name));
	durable_row_set(row, TASK_KIND, CStringGetTextDatum("task"));
	durable_row_set_pointer(row, TASK_TASK_ID, item->task_id);
	durable_row_set_pointer(row, TASK_HEADERS, spec->headers);
	durable_row_set_pointer(row, TASK_INPUT, item->input);
	durable_limited_by_to_row(spec->gate, row, TASK_LIMITER, TASK_LIMITER_KEY);
}

/* The new tasks become claimable, or wait for their time. */
static void
enlist(Dispatch *dispatch)
{
	const DurableTaskSpec *spec = dispatch->spec;

	if (dispatch->nids == 0)
		return;
	if (spec->run_at > dispatch->now)
		durable_delayed_insert_many(durable_tables_get(&dispatch->tables, TABLE_DELAYED),
									dispatch->ids, dispatch->nids, spec->run_at,
									spec->priority, spec->namespace, spec->queue,
									spec->gate);
	else
		durable_limiter_enlist_new(&dispatch->tables, spec->gate, dispatch->ids, dispatch->nids,
								   spec->priority, spec->namespace, spec->queue);
	dispatch->nids = 0;
}

static void
dispatch_generated(Dispatch *dispatch, DurableTaskItem *items, int n)
{
	DurableRow *rows = palloc(sizeof(DurableRow) * Min(n, BATCH));

	for (int done = 0; done < n;)
	{
		int			batch = Min(n - done, BATCH);

		CHECK_FOR_INTERRUPTS();
		for (int i = 0; i < batch; i++)
		{
			durable_dispatch_fill(dispatch->spec, &items[done + i], dispatch->now, &rows[i]);
			dispatch->ids[dispatch->nids++] = items[done + i].id;
		}
		durable_writer_insert_many(durable_tables_get(&dispatch->tables, TABLE_TASK),
								   rows, batch);
		for (int i = 0; i < batch; i++)
			items[done + i].task_id = durable_task_id_text(dispatch->ids[i], NULL);
		enlist(dispatch);
		done += batch;
	}
	pfree(rows);
}

/* false: the id is taken */
static bool
insert_explicit(Dispatch *dispatch, DurableTaskItem *item)
{
	DurableWriter *writer = durable_tables_get(&dispatch->tables, TABLE_TASK);
	DurableRow	row;
	ItemPointerData tid;

	durable_dispatch_fill(dispatch->spec, item, dispatch->now, &row);
	if (!durable_writer_insert_unless(writer, IDX_TASK_ID, &row))
		return false;
	tid = writer->slot->tts_tid;
	if (!durable_result_exists(dispatch->spec->namespace, item->task_id))
		return true;
	if (durable_conflict_replaces(&dispatch->spec->conflict))
	{
		(void) durable_result_remove(dispatch->spec->namespace, item->task_id);
		return true;
	}
	durable_snapshot_push();
	(void) durable_writer_delete(writer, &tid, true);
	durable_snapshot_pop();
	return false;
}

static void
dispatch_explicit(Dispatch *dispatch, DurableTaskItem *items, int n)
{
	for (int i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		items[i].taken = !insert_explicit(dispatch, &items[i]);
		if (!items[i].taken)
			dispatch->ids[dispatch->nids++] = items[i].id;
		if (dispatch->nids == BATCH)
			enlist(dispatch);
	}
	enlist(dispatch);
}

/* Those that a replacement found gone in the meantime are inserted after all. */
static void
replace_taken(Dispatch *dispatch, DurableTaskItem *items, int n)
{
	while (durable_replace_tasks(dispatch->spec, items, n, dispatch->now, &dispatch->tables))
	{
		for (int i = 0; i < n; i++)
		{
			if (items[i].taken)
				dispatch_explicit(dispatch, &items[i], 1);
		}
	}
}

/* Generated ids first; then explicit ones in their order, so that two calls
 * with the same ids wait for each other and do not deadlock. */
static int
compare_items(const void *a, const void *b)
{
	const DurableTaskItem *x = a;
	const DurableTaskItem *y = b;
	int			result;

	if (x->task_id == NULL || y->task_id == NULL)
	{
		result = (x->task_id != NULL) - (y->task_id != NULL);
		return result != 0 ? result : x->position - y->position;
	}
	result = memcmp(VARDATA_ANY(x->task_id), VARDATA_ANY(y->task_id),
					Min(VARSIZE_ANY_EXHDR(x->task_id), VARSIZE_ANY_EXHDR(y->task_id)));
	if (result != 0)
		return result;
	result = (int) VARSIZE_ANY_EXHDR(x->task_id) - (int) VARSIZE_ANY_EXHDR(y->task_id);
	/* of two with the same id the first in the caller's order counts */
	return result != 0 ? result : x->position - y->position;
}

void
durable_dispatch_tasks(const DurableTaskSpec *spec, DurableTaskItem *items, int n)
{
	Dispatch	dispatch = {.spec = spec, .now = durable_clock_now()};
	int			generated = 0;

	durable_tables_init(&dispatch.tables);
	dispatch.ids = palloc(sizeof(int64) * BATCH);
	/* numbers are age: they follow the caller's order */
	for (int i = 0; i < n; i++)
		items[i].id = durable_sequence_next(SEQ_TASK);
	qsort(items, n, sizeof(DurableTaskItem), compare_items);
	while (generated < n && items[generated].task_id == NULL)
		generated++;
	if (generated > 0)
		dispatch_generated(&dispatch, items, generated);
	dispatch_explicit(&dispatch, items + generated, n - generated);
	if (durable_conflict_replaces(&spec->conflict))
		replace_taken(&dispatch, items + generated, n - generated);
	durable_tables_close(&dispatch.tables);
	pfree(dispatch.ids);
	CommandCounterIncrement();
}
