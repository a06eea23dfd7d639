/*-------------------------------------------------------------------------
 *
 * run.h
 *	  durable.run: executions of workflows.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_RUN_H
#define DURABLE_STORE_RUN_H

#include "postgres.h"

#include "base/rel.h"

/* columns, in table order */
enum
{
	RUN_ID,
	RUN_PARENT,
	RUN_CREATED_AT,
	RUN_STARTED_AT,
	RUN_FINISHED_AT,
	RUN_WAKE_AT,
	RUN_PARENT_SEQ,
	RUN_PRIORITY,
	RUN_WAKES,
	RUN_AWAITED_FIRST,
	RUN_AWAITED_LAST,
	RUN_AWAITED_ON,
	RUN_FAN_FIRST,
	RUN_FAN_NEXT,
	RUN_FAN_LAST,
	RUN_FAIL_FAST,
	RUN_RECOVERY_ATTEMPTS,
	RUN_STATUS,
	RUN_TURN_STATE,
	RUN_RUN_ID,
	RUN_NAMESPACE,
	RUN_WORKFLOW,
	RUN_VERSION,
	RUN_TAGS,
	RUN_SEARCH_ATTRIBUTES,
	RUN_HEADERS,
	RUN_OUTPUT,
	RUN_ERROR,
	RUN_INPUT,
	RUN_SINGLETON_KEY,
	RUN_CONCURRENCY_KEY,
	RUN_COLUMNS
};

typedef enum DurableRunStatus
{
	RUN_PENDING,
	RUN_RUNNING,
	RUN_SUSPENDED,
	RUN_BLOCKED,				/* no live worker can go on with it */
	RUN_COMPLETED,
	RUN_FAILED,
	RUN_CANCELLED,
	RUN_DEAD
} DurableRunStatus;

#define RUN_STATUSES (RUN_DEAD + 1)

typedef enum DurableTurnState
{
	TURN_READY,					/* its task is queued or claimed */
	TURN_DELAYED,				/* its task is delayed until wake_at */
	TURN_PARKED,				/* its task is in no list */
	TURN_LIMITED,				/* its task waits at the limiter of a step */
	TURN_NONE					/* no task: the run has ended */
} DurableTurnState;

/* A locked run. Its row's values hold until durable_run_close(). */
typedef struct DurableRun
{
	DurableWriter writer;
	DurableRow	row;
	const DurableRow *task;		/* its turn's, which is in no list and was read since, or NULL */
} DurableRun;

extern const char *durable_run_status_name(DurableRunStatus status);
extern DurableRunStatus durable_run_status(const DurableRow *row);
extern bool durable_run_has_ended(const DurableRow *row);
extern DurableTurnState durable_run_turn_state(const DurableRow *row);
extern void durable_run_set_status(DurableRow *row, DurableRunStatus status);
extern void durable_run_set_turn_state(DurableRow *row, DurableTurnState state);

/* All need an active snapshot that sees the run. */
extern bool durable_run_number(text *run_id, int64 *id);
/* The same without a look where the id is a generated one: then the run of that number may
 * be gone, and is this one only if its row has that id. */
extern bool durable_run_number_supposed(text *run_id, int64 *id);

/* Locks the newest version; closed again when that fails. */
extern TM_Result durable_run_open(DurableRun *run, int64 id, bool wait);
/* The same for one whose row was read under a snapshot that has been active since. */
extern TM_Result durable_run_open_seen(DurableRun *run, const DurableRow *seen, bool wait);
extern void durable_run_update(DurableRun *run);
extern void durable_run_close(DurableRun *run);

/* Reads without a lock, copied into the current memory context. */
extern bool durable_run_read(int64 id, DurableRow *row);
/* Without what may be large: tags, search attributes, input, output and error come as null. */
extern bool durable_run_read_lightly(int64 id, DurableRow *row);

/* The singleton key of a run, and its version; NULL: it has none. */
extern text *durable_run_singleton_key(int64 id, text **version);

/* false: the run id is taken */
extern bool durable_run_insert(DurableWriter *writer, const DurableRow *row);

#endif							/* DURABLE_STORE_RUN_H */
