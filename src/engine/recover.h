/*-------------------------------------------------------------------------
 *
 * recover.h
 *	  When execution breaks off, and trying again what has ended.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_RECOVER_H
#define DURABLE_RECOVER_H

#include "postgres.h"

#include "engine/execute.h"
#include "engine/tables.h"
#include "store/run.h"

/* The claim of a turn lapsed: once more, counted, or the run is dead. Waits for
 * nobody who holds the run's parent. As the functions of outcome.h. */
extern TM_Result durable_recover_turn(DurableTables *tables, DurableRow *task, int64 lease,
									  TimestampTz now, bool wait);

/*
 * After an error that broke off the execution of an item, copied and flushed. Rolls
 * back, and hands back what is still held; begins a new transaction. true: somebody
 * ended the run or took the item away, and interrupted this session for it, or the
 * item interrupted its own session: then that was counted.
 */
extern bool durable_recover_from_error(const DurableWorkItem *item, const ErrorData *error);

/*
 * A run that has failed or is dead goes on where it failed: operations that failed
 * are done again, children that failed are requeued, too. One that has not ended
 * looks again at once, and whoever executes it loses it.
 */
typedef enum DurableRequeued
{
	REQUEUED,
	REQUEUE_UNKNOWN,
	REQUEUE_LIVE,				/* only where it has to have ended */
	REQUEUE_FINAL				/* completed or cancelled */
} DurableRequeued;

extern DurableRequeued durable_requeue(int64 run, bool must_have_ended);

/* The same for many that have failed or are dead, each to go on at its time; others
 * are left alone. All are locked first, ascending by number. Returns how many went
 * on, their failed children included, and which. */
typedef struct DurableRedrive
{
	int64		id;
	TimestampTz at;
} DurableRedrive;

extern int	durable_redrive(const DurableRedrive *runs, int n, DurableRedrive **requeued);

#endif							/* DURABLE_RECOVER_H */
