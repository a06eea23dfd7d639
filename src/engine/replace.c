/*-------------------------------------------------------------------------
 *
 * replace.c
 *	  Dispatching anew under an id that is taken.
 *
 * A claim does not write the task's row, so replacing the row alone would change
 * what somebody has already been handed, or is being handed. The list entry comes
 * first: it is deleted, waiting for a claim that has it in hand, and inserted again
 * with the new row. A claim that saw the old entry cannot take it any more; one that
 * sees the new entry sees the new row, as both come with one commit.
 *
 * A task without an entry is claimed. Its row gets the new request, marked as
 * replaced, and whoever has it goes on with the old one. However that claim ends,
 * but for a cancel, the task goes back to its queue for the new one (outcome.c): so
 * there is no moment at which a request is lost, and never two claims of one id.
 *
 * Locks: all list entries, ascending by number, then all tasks in the same order. In
 * between, only what nobody has claimed is held for good: the version of the row that
 * was seen before the entry was looked for is the one that is replaced, or the look
 * is repeated.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "engine/limiter.h"
#include "engine/outcome.h"
#include "engine/replace.h"
#include "store/delayed.h"
#include "store/ready.h"
#include "store/task.h"

typedef struct Replacement
{
	DurableTaskItem *item;
	int64		id;				/* of the task that has the item's id */
	ItemPointerData seen;		/* its row when the entry was looked for */
	bool		pending;		/* the entry is taken: nobody has the task */
} Replacement;

typedef struct Replace
{
	const DurableTaskSpec *spec;
	TimestampTz now;
	DurableTables *tables;
} Replace;

/* Of several items with one id only the last in the caller's order is in the list. */
static int
number_taken(const DurableTaskSpec *spec, DurableTaskItem *items, int n, Replacement *list)
{
	DurableProbe by_task_id;
	int			count = 0;

	durable_task_open_by_task_id(&by_task_id, durable_snapshot_push());
	for (int i = 0; i < n; i++)
	{
		Datum		keys[2] = {
			PointerGetDatum(spec->namespace), PointerGetDatum(items[i].task_id)
		};
		DurableRow	row;

		if (!items[i].taken || !durable_probe_find(&by_task_id, keys, &row))
			continue;
		list[count].item = &items[i];
		list[count].id = DatumGetInt64(row.values[TASK_ID]);
		list[count].pending = false;
		ItemPointerSetInvalid(&list[count].seen);
		count++;
	}
	durable_probe_close(&by_task_id);
	durable_snapshot_pop();
	return count;
}

static int
compare_replacements(const void *a, const void *b)
{
	const Replacement *x = a;
	const Replacement *y = b;

	if (x->id != y->id)
		return x->id > y->id ? 1 : -1;
	return x->item->position - y->item->position;
}

/* The earlier of two items with one id are as good as replaced. */
static int
keep_last(Replacement *list, int n)
{
	int			kept = 0;

	for (int i = 0; i < n; i++)
	{
		if (i + 1 < n && list[i + 1].id == list[i].id)
			list[i].item->taken = false;
		else
			list[kept++] = list[i];
	}
	return kept;
}

/* false: the task is gone. An entry that was taken once is ours: only then is what
 * comes after it in no list because of us. */
static bool
take_entry(Replacement *replacement)
{
	DurableProbe by_id;
	DurableRow	task;
	bool		found;

	durable_task_open_by_id(&by_id, durable_snapshot_push());
	found = durable_task_find_number(&by_id, replacement->id, &task);
	if (found)
	{
		replacement->seen = task.tid;
		if (durable_outcome_unlist(&task, 0))
			replacement->pending = true;
	}
	durable_probe_close(&by_id);
	durable_snapshot_pop();
	return found;
}

/* The new row in place of the old one. *run_at is when it may be claimed. */
static void
compose(const Replace *replace, const Replacement *replacement, const DurableRow *old,
		DurableRow *row, TimestampTz *run_at)
{
	const DurableTaskSpec *spec = replace->spec;
	bool		waiting = replacement->pending || durable_task_was_replaced(old);
	/* what was tried, or is being tried, was another request */
	bool		anew = !waiting || DatumGetInt32(old->values[TASK_ATTEMPT]) > 1 ||
		DatumGetInt32(old->values[TASK_RECLAIMS]) > 0;
	TimestampTz since = anew ? replace->now : DatumGetTimestampTz(old->values[TASK_CREATED_AT]);
	TimestampTz planned = spec->run_at;

	if (!anew)
		planned = old->nulls[TASK_RUN_AT] ? DT_NOBEGIN :
			DatumGetTimestampTz(old->values[TASK_RUN_AT]);
	*run_at = durable_conflict_time(&spec->conflict, spec->run_at, planned, since);
	durable_dispatch_fill(spec, replacement->item, replace->now, row);
	row->tid = old->tid;
	durable_row_set(row, TASK_ID, Int64GetDatum(replacement->id));
	durable_row_set(row, TASK_CREATED_AT, TimestampTzGetDatum(since));
	if (*run_at > replace->now)
		durable_row_set(row, TASK_RUN_AT, TimestampTzGetDatum(*run_at));
	else
		durable_row_set_null(row, TASK_RUN_AT);
	if (!old->nulls[TASK_LAST_LEASE])
		durable_row_set(row, TASK_LAST_LEASE, old->values[TASK_LAST_LEASE]);
	if (!replacement->pending)
	{
		/* the claim under way counts on */
		durable_row_set(row, TASK_ATTEMPT, old->values[TASK_ATTEMPT]);
		durable_row_set(row, TASK_RECLAIMS, old->values[TASK_RECLAIMS]);
		durable_row_set(row, TASK_REPLACED, BoolGetDatum(true));
	}
}

static void
enlist(const Replace *replace, int64 id, TimestampTz run_at)
{
	const DurableTaskSpec *spec = replace->spec;

	if (run_at > replace->now)
		durable_delayed_insert(durable_tables_get(replace->tables, TABLE_DELAYED), id, run_at,
							   spec->priority, spec->namespace, spec->queue, spec->gate);
	else
		durable_limiter_enlist(replace->tables, spec->gate, &id, 1, spec->priority,
							   spec->namespace, spec->queue);
}

/* TM_Updated: it was changed since the entry was looked for. */
static TM_Result
replace_row(const Replace *replace, const Replacement *replacement)
{
	DurableProbe by_id;
	DurableRow	old;
	DurableRow	row;
	TimestampTz run_at;
	TM_Result	result = TM_Deleted;

	durable_task_open_by_id(&by_id, durable_snapshot_push());
	if (durable_task_find_number(&by_id, replacement->id, &old))
	{
		result = TM_Updated;
		if (ItemPointerEquals(&old.tid, (ItemPointer) &replacement->seen))
		{
			compose(replace, replacement, &old, &row, &run_at);
			result = durable_writer_update(durable_tables_get(replace->tables, TABLE_TASK),
										   &row, true);
		}
	}
	durable_probe_close(&by_id);
	durable_snapshot_pop();
	if (result == TM_Ok && replacement->pending)
		enlist(replace, replacement->id, run_at);
	return result;
}

bool
durable_replace_tasks(const DurableTaskSpec *spec, DurableTaskItem *items, int n,
					  TimestampTz now, DurableTables *tables)
{
	Replace		replace = {.spec = spec, .now = now, .tables = tables};
	Replacement *list = palloc(sizeof(Replacement) * Max(n, 1));
	int			count;
	bool		gone = false;

	count = number_taken(spec, items, n, list);
	qsort(list, count, sizeof(Replacement), compare_replacements);
	count = keep_last(list, count);
	for (int i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		(void) take_entry(&list[i]);
	}
	for (int i = 0; i < count; i++)
	{
		TM_Result	result;

		CHECK_FOR_INTERRUPTS();
		while ((result = replace_row(&replace, &list[i])) == TM_Updated)
		{
			CHECK_FOR_INTERRUPTS();
			(void) take_entry(&list[i]);
		}
		list[i].item->taken = result != TM_Ok;
	}
	for (int i = 0; i < n && !gone; i++)
		gone = items[i].taken;
	pfree(list);
	return gone;
}
