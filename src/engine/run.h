/*-------------------------------------------------------------------------
 *
 * run.h
 *	  What happens to runs: started, woken, ended; results and signals for them.
 *
 * Lock order here: keys that starts count, signal tokens that are shared, runs ascending
 * by number, list entries, tasks, signal tokens that are taken, which never waits,
 * entries and slots of singleton keys.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_ENGINE_RUN_H
#define DURABLE_ENGINE_RUN_H

#include "postgres.h"

#include "utils/array.h"
#include "utils/jsonb.h"

#include "engine/tables.h"
#include "store/checkpoint.h"
#include "store/result.h"
#include "store/run.h"
#include "store/workflow.h"

/* Why a run was not started; message NULL: it was not refused. */
typedef struct DurableRefusal
{
	int			sqlstate;
	char	   *message;
	char	   *detail;			/* this and hint may be NULL */
	char	   *hint;
} DurableRefusal;

/* NULL pointers are SQL NULLs. */
typedef struct DurableRunSpec
{
	const DurableWorkflow *workflow;
	text	   *run_id;			/* NULL: generated; filled in */
	int32		priority;
	TimestampTz start_at;		/* DT_NOBEGIN: at once */
	ArrayType  *tags;
	void	   *search_attributes;
	void	   *headers;
	void	   *input;
	int64		parent;			/* 0: none */
	int			parent_seq;
	/* instead of what the workflow says */
	text	   *concurrency_key;
	int			concurrency_limit;
	bool		has_concurrency_limit;
	DurableRefusal *refusal;	/* NULL: it is raised */
	bool		replaces;		/* the run exists, and gets these keys */
	bool		for_failure;	/* it takes a failure: not counted, never refused */
	bool		in_sweep;		/* 55P03 where somebody else is counting: no wait */
	List	   *ahead;			/* specs of those that are started before it, but are not there yet */
	/* filled in */
	text	   *singleton_key;
	text	   *computed_key;	/* of the quota */
} DurableRunSpec;

/* false: a run of this id exists already and is left alone; or it was refused */
extern bool durable_run_start(DurableRunSpec *spec);

/* The task that stands for the run's turns, for its whole life. No lease up to
 * last_lease (0: none, the number is a new one) ever holds it. */
extern void durable_run_insert_turn(const DurableRunSpec *spec, int64 id, TimestampTz now,
									int64 last_lease);

/* What the workflow asks of who has a turn in hand, into the turn task's row. */
extern void durable_run_set_turn_policy(DurableRow *task, const DurableWorkflow *workflow);

/* The run is locked and an active snapshot is newer than the lock. Makes its
 * next turn due now, or notes that the turn under way has to look again. */
extern void durable_run_wake(DurableRun *run);
/* A run that was blocked waits like any other now; false: it was not. Changes the row in
 * memory. */
extern bool durable_run_unblock(DurableRow *row);
/* Its next turn is due whatever comes in: clears what it waits for in a row. */
extern void durable_run_awaits_nothing(DurableRow *row);

/* The waiting run's checkpoint gets the outcome, if it is pending. The run is locked, an
 * active snapshot newer than the lock. attempts is 0 where nothing counts them. */
extern void durable_run_deliver(DurableRun *run, int seq, DurableCheckpointStatus status,
								int attempts, Jsonb *output, Jsonb *error);

/* One more than the last position of its history, under the active snapshot. */
extern int	durable_run_history_end(const DurableRow *run);

/* What it was waiting for need not come any more. */
extern void durable_run_abandon(const DurableRow *row);

/* What another run is handed that is told how this one ended: its id under that key,
 * workflow, version, input, error and, unless NULL, the step that failed. */
extern Jsonb *durable_run_describe(const DurableRow *row, const char *id_key, Jsonb *error,
								   const text *step);

/* Takes a task of a locked run out of its list and away; delayed_until is 0 where
 * its own row tells. */
extern void durable_run_drop_task(int64 id, TimestampTz delayed_until);

/* Asked while all locks are held and nothing is written; false: do not end it. */
typedef bool (*DurableRunCheck) (DurableRun *run, void *arg);

/* Locks, in order, the run and whoever waits for its end; false: it has ended, is
 * unknown or the check (may be NULL) refused. Whoever waits learns; children
 * are cancelled with it when "cascade". */
extern bool durable_run_end(int64 id, DurableRunStatus status, void *output, void *error,
							bool cascade, DurableRunCheck check, void *arg);
/* The same; "seen" is its row as it was read under a snapshot that has been active since,
 * payloads need not be in it, or NULL. */
extern bool durable_run_end_seen(int64 id, const DurableRow *seen, DurableRunStatus status,
								 void *output, void *error, bool cascade, DurableRunCheck check,
								 void *arg);

/* 55006 in a step of this run, whose own transaction would end it */
extern void durable_run_refuse_own(text *run_id);

/* The run that waits for this one's end, 0 for none; until the transaction ends there will be
 * no other. Waits for who is about to wait. */
extern int64 durable_run_waiting(text *namespace, text *run_id);

/* A dispatched step's task reached its outcome. As the functions of outcome.h. */
extern TM_Result durable_run_step_ended(DurableTables *tables, DurableRow *task,
										const DurableOutcome *outcome, bool wait);
/* The run is dead. As durable_run_end(), but waits for nobody: TM_BeingModified. */
extern TM_Result durable_run_die(int64 id, void *error);

/* A turn that cannot be executed here and now: the run sleeps until then. */
extern bool durable_run_postpone(DurableTables *tables, DurableRow *task, int64 lease,
								 TimestampTz until, TimestampTz now);

/* Delivers to the waiter or buffers; the run woken, or NULL. */
extern text *durable_run_signal(text *namespace, text *token, Jsonb *payload);

/* The reserved prefix that keeps a run from having a child of this id, or NULL. (That
 * of its own id, as generated ones have it, does not.) */
extern const char *durable_run_child_prefix(text *run_id, const char *child_id);

/* The token on which a parent waits for a run. */
extern text *durable_child_token(text *run_id);

#endif							/* DURABLE_ENGINE_RUN_H */
