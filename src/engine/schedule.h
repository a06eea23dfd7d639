/*-------------------------------------------------------------------------
 *
 * schedule.h
 *	  Starting the runs of schedules.
 *
 * Lock order: the schedule's row, then its run. A sweep passes over a schedule
 * that somebody holds; edits wait.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_ENGINE_SCHEDULE_H
#define DURABLE_ENGINE_SCHEDULE_H

#include "postgres.h"

#include "engine/window.h"
#include "store/schedule.h"
#include "store/workflow.h"

/* Limits of one definition and one call. */
#define DURABLE_CATCHUP_MAX 1000
#define DURABLE_BACKFILL_MAX 10000

/* What a stored definition means now. */
typedef struct DurableSchedulePlan
{
	DurableTiming timing;
	DurableWorkflow workflow;
} DurableSchedulePlan;

/* Raises what keeps the definition from being executed. Strict is for definitions that
 * somebody writes just now. */
extern void durable_schedule_require(const DurableRow *row, bool strict, TimestampTz now,
									 DurableSchedulePlan *plan);
extern void durable_complaint_raise(const DurableComplaint *complaint) __attribute__((noreturn));

/* The next window is the first one after now; what is missed is missed. */
extern void durable_schedule_go_on(DurableRow *row, const DurableTiming *timing,
								   TimestampTz now);

/* Starts what is due, at most max runs; how many were started. Waits for no
 * row lock. Cheap when nothing is due. */
extern int64 durable_schedules_fire(TimestampTz now, int max);

/* When calling it is worth while again; DT_NOEND: not before an edit. The commit
 * of an edit wakes all waiters of the database. */
extern TimestampTz durable_schedules_next_due(void);

/* A run beside the windows; its id. */
extern text *durable_schedule_trigger(const DurableRow *row, const DurableSchedulePlan *plan,
									  TimestampTz now);

/* Runs for past windows that have none. */
typedef struct DurableBackfill
{
	TimestampTz since;			/* the first window may be this */
	TimestampTz until;			/* and the last one this */
	int			max_runs;		/* -1: what the catch-up policy says */
	text	  **started;		/* the ids; palloc'd */
	int			nstarted;
} DurableBackfill;

/* The schedule is locked; its row is changed, not yet written. */
extern void durable_schedule_backfill(DurableSchedule *schedule, const DurableSchedulePlan *plan,
									  TimestampTz now, DurableBackfill *backfill);

#endif							/* DURABLE_ENGINE_SCHEDULE_H */
