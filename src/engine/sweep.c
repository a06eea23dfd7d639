/*-------------------------------------------------------------------------
 *
 * sweep.c
 *	  A pass over the whole database, part by part.
 *
 * Here every part is a subtransaction of the caller's transaction. The scheduler, which
 * has transactions of its own, makes each part one (worker/scheduler.c). Either way a
 * part that fails leaves nothing, and the others are done.
 *
 * What is noted about a sweep is never waited for: another session that sweeps may have
 * noted the same and be in a transaction that stays open.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "base/attempt.h"
#include "base/clock.h"
#include "base/json.h"
#include "engine/sweep.h"
#include "store/sweep.h"

/* A sweep that finds one noted so recently writes nothing. */
#define NOTE_US (15 * USECS_PER_SEC)

#define NOTE_PATIENCE "10ms"

void
durable_sweep_begin(DurableSweep *sweep, int max)
{
	memset(sweep, 0, sizeof(*sweep));
	sweep->now = durable_clock_now();
	sweep->end = GetCurrentTimestamp() + DURABLE_SWEEP_US;
	sweep->max = max;
	sweep->next = DT_NOEND;
}

/* What is not the part's fault is everybody's. */
static bool
ends_the_sweep(const ErrorData *error)
{
	switch (error->sqlerrcode)
	{
		case ERRCODE_QUERY_CANCELED:
		case ERRCODE_ADMIN_SHUTDOWN:
		case ERRCODE_CRASH_SHUTDOWN:
			return true;
		default:
			return false;
	}
}

typedef struct Note
{
	const char *part;			/* NULL: the sweep itself */
	const ErrorData *error;		/* NULL: it succeeded */
	Jsonb	   *done;
} Note;

static void
write_note(const Note *note)
{
	if (note->part == NULL)
		durable_sweep_note(GetUserId(), note->done);
	else if (note->error != NULL)
		durable_sweep_note_failure(note->part, note->error);
	else
		durable_sweep_note_success(note->part);
}

/* Not worth an error. */
static void
try_note(const Note *note)
{
	DurableAttempt attempt;

	durable_attempt_begin(&attempt, NOTE_PATIENCE);
	PG_TRY();
	{
		write_note(note);
		durable_attempt_end(&attempt);
	}
	PG_CATCH();
	{
		ErrorData  *error = durable_attempt_undo(&attempt);

		if (ends_the_sweep(error))
			ReThrowError(error);
	}
	PG_END_TRY();
}

/* NULL: it succeeded */
static ErrorData *
try_part(const DurablePart *part, DurableSweep *sweep)
{
	DurableSweep before = *sweep;
	DurableAttempt attempt;
	ErrorData  *volatile failure = NULL;

	durable_attempt_begin(&attempt, DURABLE_PART_PATIENCE);
	PG_TRY();
	{
		part->run(sweep);
		durable_attempt_end(&attempt);
	}
	PG_CATCH();
	{
		failure = durable_attempt_undo(&attempt);
		*sweep = before;
		sweep->counts[COUNT_FAILED]++;
	}
	PG_END_TRY();
	return failure;
}

static void
report(const DurablePart *part, const ErrorData *failure)
{
	Note		note = {.part = part->name, .error = failure};

	ereport(WARNING,
			errcode(failure->sqlerrcode),
			errmsg("a part of the sweep failed: %s", part->name),
			errdetail_internal("%s", failure->message),
			failure->context == NULL ? 0 : errcontext("%s", failure->context));
	try_note(&note);
}

void
durable_sweep_run(DurableSweep *sweep)
{
	bool		had_failures = durable_sweep_any_failure();

	for (int i = 0; i < DURABLE_PARTS; i++)
	{
		const DurablePart *part = &durable_parts[i];
		Note		success = {.part = part->name};
		ErrorData  *failure = try_part(part, sweep);

		if (failure != NULL && ends_the_sweep(failure))
			ReThrowError(failure);
		if (failure != NULL)
			report(part, failure);
		else if (had_failures)
			try_note(&success);
	}
}

Jsonb *
durable_sweep_json(const DurableSweep *sweep)
{
	return durable_json_counts(durable_count_names, sweep->counts, COUNTS);
}

void
durable_sweep_tell(const DurableSweep *sweep)
{
	Note		note = {0};

	if (durable_sweep_noted_since(GetCurrentTimestamp() - NOTE_US))
		return;
	note.done = durable_sweep_json(sweep);
	try_note(&note);
}
