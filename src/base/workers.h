/*-------------------------------------------------------------------------
 *
 * workers.h
 *	  The table of background workers in shared memory.
 *
 * A slot belongs to one worker from before it is started until it has left the
 * server's lists. Whoever starts a worker takes a slot for it and passes the
 * slot's number and generation along; a worker that finds another generation
 * there was given up and leaves.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_WORKERS_H
#define DURABLE_WORKERS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "storage/lwlock.h"

typedef enum DurableWorkerKind
{
	WORKER_SCHEDULER,
	WORKER_EXECUTOR
} DurableWorkerKind;

typedef enum DurableWorkerState
{
	WORKER_FREE,
	WORKER_STARTING,			/* registered; it may not exist yet */
	WORKER_CONNECTING,			/* it exists, and has not looked for work yet */
	WORKER_IDLE,
	WORKER_BUSY,
	WORKER_ENDED				/* it is gone; its starter has not looked yet */
} DurableWorkerState;

/* Why a worker left. */
typedef enum DurableWorkerEnd
{
	END_FAILED,					/* an error, a signal, or it never came up */
	END_ASKED,
	END_IDLE,
	END_NO_EXTENSION,
	END_OFF,					/* durable.background */
	END_COPY					/* the database is a copy, see extension_state.h */
} DurableWorkerEnd;

#define DURABLE_WORKER_TEXT 128

/* What a slot says, copied. */
typedef struct DurableWorkerInfo
{
	int			slot;
	uint32		generation;
	DurableWorkerKind kind;
	DurableWorkerState state;
	DurableWorkerEnd end;
	bool		leave;			/* it was asked to */
	bool		came_up;		/* it has looked for work */
	Oid			database;
	Oid			role;
	pid_t		pid;
	TimestampTz started_at;
	TimestampTz since;			/* of the state */
	char		namespace[DURABLE_WORKER_TEXT * 2]; /* of the run */
	char		run_id[DURABLE_WORKER_TEXT];	/* may be cut off */
	char		step[DURABLE_WORKER_TEXT];
} DurableWorkerInfo;

extern Size durable_workers_shmem_size(void);
extern void durable_workers_shmem_startup(LWLock *lock);
extern void durable_workers_init(void);

/* For whoever starts workers. A slot for the worker, or -1: no room, or the
 * database is held (*held). */
extern int	durable_worker_reserve(DurableWorkerKind kind, Oid database, Oid role,
								   uint32 *generation, bool *held);
/* The slot is free again, if it still is of that generation. */
extern void durable_worker_forget(int slot, uint32 generation);
/* The workers of a database (InvalidOid: all), palloc'd. */
extern int	durable_workers_list(Oid database, DurableWorkerInfo **workers);
extern void durable_worker_read(int slot, DurableWorkerInfo *worker);
/* Asks it to leave when it has nothing in hand. */
extern void durable_worker_ask_to_leave(int slot, uint32 generation);
/* All workers of a database leave what they have in hand, if "now", or later. */
extern void durable_workers_ask_to_leave(Oid database, bool now);

/* For a worker itself. false: it was given up meanwhile. */
extern bool durable_worker_attach(int slot, uint32 generation);
extern void durable_worker_set_end(DurableWorkerEnd end);
extern bool durable_worker_should_leave(void);
extern void durable_worker_report(bool busy, const text *namespace, const text *run_id,
								  const text *step);
extern void durable_worker_report_step(const text *step);

/*
 * A database that is held gets no new workers. The session that holds it is
 * about to drop, rename or copy it. Returns false when there is no room to note
 * it. The workers that are there are asked to leave at once.
 */
extern bool durable_workers_hold(Oid database);
extern void durable_workers_release(Oid database);
/* This database, until the end of the transaction. */
extern bool durable_workers_hold_here(void);
extern bool durable_workers_present(Oid database);

/* This transaction changed what the launcher should know about a database; it
 * and the database's workers look again after the commit. */
extern void durable_workers_note_look(Oid database);
/* It changed something that the workers of this database should know. */
extern void durable_workers_note_change(void);
/* It changed what sessions of a role in a database (InvalidOid: any) start with; workers
 * that have started with something else leave. */
extern void durable_workers_note_settings(Oid database, Oid role);

/* For the launcher. */
extern void durable_launcher_attach(void);
/* The databases that were noted, palloc'd; "all": look at the others, too. */
extern int	durable_launcher_take_looks(Oid **databases, bool *all);
extern void durable_launcher_wake(void);

#endif							/* DURABLE_WORKERS_H */
