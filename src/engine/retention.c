/*-------------------------------------------------------------------------
 *
 * retention.c
 *	  Deleting runs: by policies, by hand, by a filter.
 *
 * A tree of runs is deleted as a whole: all of its runs have ended and are locked,
 * ascending by number, before anything goes. So who tries a run of it again comes
 * before, and the tree stays, or after, and there is none. Retention waits for
 * nobody: what somebody holds is looked at again later.
 *
 * Batches of retention are made one after another, whoever makes them; that saves
 * them from looking at the same runs, and a policy that is new to one is new to all.
 *
 * No user code is called here: runs whose policy has an archive function are left to a
 * task in the queue of the policy's owner (archive.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/builtins.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/lock_class.h"
#include "base/names.h"
#include "engine/retention.h"
#include "engine/run.h"
#include "engine/tables.h"
#include "store/find.h"
#include "store/ready.h"
#include "store/retention.h"
#include "store/task.h"
#include "store/workflow.h"

/* What a batch should take. */
#define BATCH_US (20 * USECS_PER_SEC / 1000)
#define BATCH_MAX 2000

/* How many runs a batch takes. */
static int	batch_size = 100;

/* To the end of the transaction; false: another session has it. */
static bool
take_turn(void)
{
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, 0, 0, RETENTION_LOCK_CLASS);
	return LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

static void
drop_tasks(const DurableNumbers *tasks)
{
	for (int i = 0; i < tasks->n; i++)
		durable_run_drop_task(tasks->values[i], 0);
}

/* A task in the owner's queue, for archive.c. */
static void
queue_archiver(const DurableArchiver *archiver, TimestampTz now)
{
	DurableTables tables;
	DurableRow	row;
	int64		id = durable_sequence_next(SEQ_TASK);
	text	   *namespace = durable_text_is(archiver->namespace, "*") ?
		cstring_to_text("default") : archiver->namespace;
	text	   *queue = durable_owner_queue(archiver->owner);

	for (int i = 0; i < TASK_COLUMNS; i++)
		durable_row_set_null(&row, i);
	durable_row_set(&row, TASK_ID, Int64GetDatum(id));
	durable_row_set(&row, TASK_CREATED_AT, TimestampTzGetDatum(now));
	durable_row_set(&row, TASK_PRIORITY, Int32GetDatum(0));
	durable_row_set(&row, TASK_ATTEMPT, Int32GetDatum(1));
	durable_row_set(&row, TASK_MAX_ATTEMPTS, Int32GetDatum(1));
	durable_row_set(&row, TASK_RECLAIMS, Int32GetDatum(0));
	durable_row_set(&row, TASK_NAMESPACE, PointerGetDatum(namespace));
	durable_row_set(&row, TASK_QUEUE, PointerGetDatum(queue));
	durable_row_set(&row, TASK_NAME, CStringGetTextDatum("archive"));
	durable_row_set(&row, TASK_KIND, CStringGetTextDatum("archive"));
	durable_tables_init(&tables);
	durable_writer_insert(durable_tables_get(&tables, TABLE_TASK), &row);
	durable_ready_insert(durable_tables_get(&tables, TABLE_READY), id, 0, namespace, queue);
	durable_tables_close(&tables);
	CommandCounterIncrement();
	durable_archiver_set_task(archiver->policy, id);
}

static void
queue_archivers(TimestampTz now)
{
	DurableArchiver *archivers;
	int			n = durable_archivers_due(now, &archivers);

	for (int i = 0; i < n; i++)
		queue_archiver(&archivers[i], now);
}

int64
durable_retention_pass(TimestampTz now, int max, bool *more)
{
	DurableNumbers tasks;
	int64		deleted;
	int64		done;

	*more = false;
	/* somebody may have changed a run since the transaction's snapshot was taken */
	if (IsolationUsesXactSnapshot() || !durable_retention_is_due(now) || !take_turn())
		return 0;
	deleted = durable_retention_batch(now, max, &tasks, &done);
	drop_tasks(&tasks);
	queue_archivers(now);
	CommandCounterIncrement();
	*more = done > 0 && durable_retention_is_due(now);
	return deleted;
}

int
durable_retention_batch_size(void)
{
	return batch_size;
}

void
durable_retention_adapt(int64 took, bool more)
{
	double		fits = (double) batch_size * BATCH_US / Max(took, 1);

	/* one that was the last tells only that it took too long */
	if (took > BATCH_US || more)
		batch_size = (int) Max(1, Min(Min(fits, batch_size * 2.0), BATCH_MAX));
}

/* ------------------------------------------------------------------ by hand */

int64
durable_run_delete(int64 id, int64 *live)
{
	for (;;)
	{
		DurableNumbers tasks;
		DurableNumbers alive;
		int64		deleted = durable_trees_delete(&id, 1, true, &tasks);
		DurableRow	row;
		bool		exists;

		CHECK_FOR_INTERRUPTS();
		drop_tasks(&tasks);
		CommandCounterIncrement();
		if (deleted > 0)
			return deleted;
		durable_snapshot_push();
		exists = durable_run_read(id, &row);
		durable_snapshot_pop();
		if (!exists)
			return 0;
		alive = durable_tree_live(id);
		if (alive.n > 0)
		{
			*live = alive.values[0];
			return -1;
		}
		/* it ended, or was started, after the transaction's snapshot was taken, which stays
		 * what it is */
		if (IsolationUsesXactSnapshot())
			ereport(ERROR,
					errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					errmsg("could not serialize access due to concurrent update"));
		/* somebody held a run of it; then it is different now */
	}
}

/* What a run starts before it is cancelled is found in the next round. */
static void
cancel_tree(int64 root)
{
	for (;;)
	{
		DurableNumbers live = durable_tree_live(root);

		if (live.n == 0)
			return;
		for (int i = 0; i < live.n; i++)
		{
			CHECK_FOR_INTERRUPTS();
			(void) durable_run_end(live.values[i], RUN_CANCELLED, NULL,
								   durable_json_error("cancelled by a purge", false), true,
								   NULL, NULL);
			CommandCounterIncrement();
		}
	}
}

int64
durable_runs_purge(Jsonb *filter, text *namespace, bool force, int max_runs)
{
	DurableSought sought = {
		.filter = filter, .namespace = namespace, .now = durable_clock_now(),
		.statuses = force ? NULL : DURABLE_ENDED_STATUSES
	};
	int64		deleted = 0;

	while (deleted < max_runs)
	{
		DurableNumbers found;
		DurableNumbers tasks;

		CHECK_FOR_INTERRUPTS();
		sought.max = (int) (max_runs - deleted);
		found.values = durable_runs_find(&sought, &found.n);
		if (found.n == 0)
			break;
		for (int i = 0; force && i < found.n; i++)
			cancel_tree(found.values[i]);
		deleted += durable_trees_delete(found.values, found.n, force, &tasks);
		drop_tasks(&tasks);
		CommandCounterIncrement();
		sought.since = found.values[found.n - 1];
	}
	return deleted;
}
