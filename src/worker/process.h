/*-------------------------------------------------------------------------
 *
 * process.h
 *	  What the background workers share: being started, signals, sleeping.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_PROCESS_H
#define DURABLE_PROCESS_H

#include "postgres.h"

#include "postmaster/bgworker.h"

#include "base/workers.h"

typedef enum DurableStart
{
	START_DONE,
	START_HELD,					/* the database is being dropped, renamed or copied */
	START_NO_SLOT				/* max_worker_processes are running */
} DurableStart;

/* A worker that was started. */
typedef struct DurableProcess
{
	int			slot;			/* -1: none */
	uint32		generation;
	BackgroundWorkerHandle *handle; /* NULL: started by somebody else */
} DurableProcess;

extern DurableStart durable_process_start(DurableWorkerKind kind, Oid database, Oid role,
										  DurableProcess *process);
/* Its slot, as it is now; false: nothing is left of it. What never came up is
 * shown as ENDED. */
extern bool durable_process_read(const DurableProcess *process, DurableWorkerInfo *info);
/* Frees its slot. */
extern void durable_process_forget(DurableProcess *process);

/* What a worker is told by its starter. */
typedef struct DurableProcessArgs
{
	int			slot;
	uint32		generation;
	Oid			database;
	Oid			role;
} DurableProcessArgs;

/* First of all in a worker's main function: signals, and the slot. Ends the process
 * when the slot is gone. */
extern void durable_process_begin(DurableProcessArgs *args);
/* After connecting: settings that the engine needs to be as it expects. */
extern void durable_process_harden(const char *name);

/* Whether SIGTERM came, and not from this process itself. */
extern bool durable_process_was_told_to_end(void);

/* Sleeps until the latch is set, or for so long (ms; negative: for ever); answers
 * interrupts and reloads the settings, and returns whether it did that. */
extern bool durable_process_sleep(long ms, uint32 wait_event);

extern void durable_process_begin_transaction(void);

/* In a transaction: whether the extension is there. */
extern bool durable_extension_exists(void);

/* Leaves, saying why. */
extern void durable_process_leave(DurableWorkerEnd end) __attribute__((noreturn));

/* Doubles from 1 s with each failure in a row, up to 1 min; in microseconds. */
extern int64 durable_process_backoff(int failures);

#endif							/* DURABLE_PROCESS_H */
