/*-------------------------------------------------------------------------
 *
 * outcome.c
 *	  What becomes of a task that leaves its claim: back to a queue, or ended.
 *
 * Every way back to a queue writes a new version of the task's row, with the
 * lease that it left. That is the fence: a settle that read the old version
 * finds it replaced, and one that reads the new version finds its lease too old.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/guc.h"
#include "base/json.h"
#include "engine/limiter.h"
#include "engine/outcome.h"
#include "engine/recover.h"
#include "engine/retry.h"
#include "engine/run.h"
#include "engine/timeout.h"
#include "store/delayed.h"
#include "store/limited.h"
#include "store/ready.h"
#include "store/task.h"

/*
 * What was claimed was replaced meanwhile (replace.c): no attempt of what is in the
 * row has begun, and the row says when it may.
 */
static TimestampTz
begin_anew(DurableRow *task, TimestampTz now)
{
	durable_row_set(task, TASK_ATTEMPT, Int32GetDatum(1));
	durable_row_set(task, TASK_RECLAIMS, Int32GetDatum(0));
	durable_row_set_null(task, TASK_ERROR);
	durable_row_set_null(task, TASK_REPLACED);
	return task->nulls[TASK_RUN_AT] ? now : DatumGetTimestampTz(task->values[TASK_RUN_AT]);
}

TM_Result
durable_outcome_requeue(DurableTables *tables, DurableRow *task, int64 lease,
						TimestampTz run_at, TimestampTz now, bool wait)
{
	TM_Result	result;
	int64		id = DatumGetInt64(task->values[TASK_ID]);
	int32		priority = DatumGetInt32(task->values[TASK_PRIORITY]);
	text	   *namespace = DatumGetTextPP(task->values[TASK_NAMESPACE]);
	text	   *queue = DatumGetTextPP(task->values[TASK_QUEUE]);
	DurableLimitedBy space;
	const DurableLimitedBy *gate;

	bool		replaced = durable_task_was_replaced(task);

	/* the step of a run that it was to wait for asks again */
	if (durable_task_is(task, "turn"))
	{
		durable_row_set_null(task, TASK_LIMITER);
		durable_row_set_null(task, TASK_LIMITER_KEY);
	}
	gate = durable_limited_by_from_row(task, TASK_LIMITER, TASK_LIMITER_KEY, &space);
	if (replaced)
		run_at = begin_anew(task, now);
	if (run_at > now)
		durable_row_set(task, TASK_RUN_AT, TimestampTzGetDatum(run_at));
	else
		durable_row_set_null(task, TASK_RUN_AT);
	durable_row_set(task, TASK_LAST_LEASE, Int64GetDatum(lease));
	result = durable_writer_update(durable_tables_get(tables, TABLE_TASK), task, wait);
	if (result != TM_Ok)
		return result;
	if (run_at > now)
		durable_delayed_insert(durable_tables_get(tables, TABLE_DELAYED), id,
							   run_at, priority, namespace, queue, gate);
	else
		durable_limiter_enlist(tables, gate, &id, 1, priority, namespace, queue);
	/* what was claimed may have been under another one */
	if (replaced)
		durable_limiter_leave_number(tables, id);
	else
		durable_limiter_leave(tables, task);
	durable_timeout_queued(task, Max(run_at, now));
	return TM_Ok;
}

bool
durable_outcome_unlist(const DurableRow *task, TimestampTz delayed_until)
{
	int64		id = DatumGetInt64(task->values[TASK_ID]);
	int32		priority = DatumGetInt32(task->values[TASK_PRIORITY]);
	text	   *namespace = DatumGetTextPP(task->values[TASK_NAMESPACE]);
	text	   *queue = DatumGetTextPP(task->values[TASK_QUEUE]);
	bool		found = false;
	/* that of its row may be later than what the run knows: see admission.c */
	TimestampTz own = task->nulls[TASK_RUN_AT] ? 0 : DatumGetTimestampTz(task->values[TASK_RUN_AT]);
	DurableLimitedBy space;
	const DurableLimitedBy *gate = durable_limited_by_from_row(task, TASK_LIMITER, TASK_LIMITER_KEY, &space);

	/* twice: a promotion may be moving it from the one list to the other */
	for (int i = 0; i < 2 && !found; i++)
	{
		durable_snapshot_push();
		found = durable_ready_remove(id, priority, namespace, queue) ||
			(delayed_until != 0 && durable_delayed_remove(id, delayed_until, namespace, queue)) ||
			(own != 0 && own != delayed_until && durable_delayed_remove(id, own, namespace, queue)) ||
			(gate != NULL && durable_limited_remove(gate, id, priority, queue, true) == TM_Ok);
		durable_snapshot_pop();
		if (delayed_until == 0 && own == 0)
			break;
	}
	return found;
}

TM_Result
durable_outcome_end(DurableTables *tables, DurableRow *task,
					const DurableOutcome *outcome, TimestampTz now, bool wait)
{
	DurableRow	row;
	TM_Result	result;

	if (durable_task_is(task, "step"))
		return durable_run_step_ended(tables, task, outcome, wait);
	if (durable_task_is(task, "turn"))
		return durable_run_die(DatumGetInt64(task->values[TASK_ID]), outcome->error);
	result = durable_writer_delete(durable_tables_get(tables, TABLE_TASK),
								   &task->tid, wait);
	/* what came of an archive function is recorded by run */
	if (result != TM_Ok || durable_task_is(task, "archive"))
		return result;
	durable_limiter_leave(tables, task);
	durable_result_of(task, outcome, now, &row);
	durable_writer_insert(durable_tables_get(tables, TABLE_RESULT), &row);
	return TM_Ok;
}

static int64
interval_column(const DurableRow *task, int column, int64 when_null)
{
	return task->nulls[column] ? when_null :
		durable_interval_us(DatumGetIntervalP(task->values[column]));
}

static int64
retry_delay(const DurableRow *task)
{
	DurableRetryPolicy policy = {
		.backoff = interval_column(task, TASK_BACKOFF, 0),
		.backoff_max = interval_column(task, TASK_BACKOFF_MAX, -1),
		.exponential = !task->nulls[TASK_BACKOFF_EXP] &&
		DatumGetBool(task->values[TASK_BACKOFF_EXP]),
		.jitter = !task->nulls[TASK_JITTER] &&
		DatumGetBool(task->values[TASK_JITTER]),
	};

	return durable_retry_delay(&policy, DatumGetInt32(task->values[TASK_ATTEMPT]),
							   pg_prng_double(&pg_global_prng_state));
}

TM_Result
durable_outcome_failed(DurableTables *tables, DurableRow *task, int64 lease, Jsonb *error,
					   void *events, TimestampTz now, bool wait)
{
	int32		attempt = DatumGetInt32(task->values[TASK_ATTEMPT]);

	if (durable_task_was_replaced(task))
		return durable_outcome_requeue(tables, task, lease, now, now, wait);
	if (DatumGetInt32(task->values[TASK_MAX_ATTEMPTS]) > 1 && durable_task_is(task, "step"))
		error = durable_json_attempt(error, task->nulls[TASK_ERROR] ? NULL :
									 DatumGetJsonbP(task->values[TASK_ERROR]), attempt, now);
	if (durable_json_is_retryable(error) &&
		attempt < DatumGetInt32(task->values[TASK_MAX_ATTEMPTS]))
	{
		TimestampTz run_at = now + retry_delay(task);

		durable_row_set(task, TASK_ATTEMPT, Int32GetDatum(attempt + 1));
		durable_row_set(task, TASK_RECLAIMS, Int32GetDatum(0));
		durable_row_set(task, TASK_ERROR, JsonbPGetDatum(error));
		return durable_outcome_requeue(tables, task, lease, run_at, now, wait);
	}
	else
	{
		DurableOutcome outcome = {
			.status = TASK_FAILED, .error = error, .events = events
		};

		return durable_outcome_end(tables, task, &outcome, now, wait);
	}
}

TM_Result
durable_outcome_lapsed(DurableTables *tables, DurableRow *task, int64 lease,
					   TimestampTz now, bool wait)
{
	int32		reclaims = DatumGetInt32(task->values[TASK_RECLAIMS]);

	if (durable_task_is(task, "turn"))
		return durable_recover_turn(tables, task, lease, now, wait);
	if (durable_task_was_replaced(task))
		return durable_outcome_requeue(tables, task, lease, now, now, wait);
	durable_row_set(task, TASK_RECLAIMS, Int32GetDatum(reclaims + 1));
	if (reclaims >= durable_max_reclaims)
	{
		Jsonb	   *error =
			durable_json_error(psprintf("claim lapsed more than %d times",
										durable_max_reclaims), true);

		return durable_outcome_failed(tables, task, lease, error, NULL, now, wait);
	}
	return durable_outcome_requeue(tables, task, lease, now, now, wait);
}
