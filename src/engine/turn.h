/*-------------------------------------------------------------------------
 *
 * turn.h
 *	  One run in the hands of this process: its history, and replaying the body
 *	  against it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_TURN_H
#define DURABLE_TURN_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "utils/jsonb.h"

#include "engine/retry.h"
#include "store/checkpoint.h"
#include "store/workflow.h"

/* How a replay ended. */
typedef enum DurableDecision
{
	DECISION_COMPLETED,
	DECISION_FAILED,
	DECISION_CANCELLED,			/* external ones only */
	DECISION_SUSPEND,			/* wait for what "awaits" says */
	DECISION_LOCAL_STEP			/* execute "step", then replay again */
} DurableDecision;

/* A new operation's particulars; its checkpoint is in the history already. */
typedef struct DurableOperation
{
	int			seq;
	/* local steps: the function; dispatched ones: queue or NULL */
	text	   *target;
	int			retries;
	int32		priority;
	bool		has_priority;
	Interval   *backoff;
	Interval   *backoff_max;
	bool		exponential;
	bool		jitter;
	/* children */
	text	   *workflow;
	text	   *version;
} DurableOperation;

typedef struct DurableLogEntry
{
	int			seq;
	int			number;			/* of those at this position */
	text	   *level;
	text	   *message;
	Jsonb	   *data;
} DurableLogEntry;

typedef struct DurableTurn
{
	MemoryContext context;		/* everything below lives here */
	int64		run;
	text	   *run_id;
	text	   *namespace;
	int32		priority;
	int			wakes;			/* the run's count when the history was read */
	bool		started;		/* the run's row says so */
	Jsonb	   *input;
	Jsonb	   *headers;
	DurableWorkflow workflow;
	Oid			body;
	bool		body_strict;

	DurableCheckpoint *history; /* by position; durable_turn_at() */
	int			nhistory;
	int			space;

	/* of the replay under way */
	int			next_seq;
	bool		ended;			/* a function has ended it */
	List	   *operations;		/* DurableOperation, new in this replay */
	List	   *logs;			/* DurableLogEntry */
	Jsonb	   *attributes;		/* to be merged into the run's, or NULL */

	/* a decision from outside: its history has only the positions it names */
	bool		external;
	List	   *waits;			/* the positions it waits for */
	int			history_end;	/* one more than the run's last position */

	/* what it came to */
	DurableDecision decision;
	Jsonb	   *output;
	Jsonb	   *error;
	DurableOperation *step;
	TimestampTz wake_at;		/* 0: none */
	int			awaited_first;	/* the range whose results it waits for, or -1 */
	int			awaited_last;
	bool		fail_fast;
	bool		fatal;			/* the run fails, whatever the body makes of it */
} DurableTurn;

/* The turn whose body is running in this session, or NULL; and the turn whose
 * step is. */
extern DurableTurn *durable_current_turn;
extern DurableTurn *durable_current_step;

/* Replays the body once, from the top. Runs in a read-only subtransaction that is
 * rolled back unless the body returns. Query cancel and the like go through. */
extern void durable_turn_replay(DurableTurn *turn);

/* WF001 or WF006 unless a body is running. Raises again after the turn's end. */
extern DurableTurn *durable_turn_require(const char *function);

/*
 * The next position. The checkpoint that the history has there, or NULL when the
 * body comes here for the first time. Any other kind or name is WF002.
 */
extern DurableCheckpoint *durable_turn_next(DurableTurn *turn, DurableKind kind,
											const text *name, int *seq);
/* A checkpoint for the position that came back NULL. */
extern DurableCheckpoint *durable_turn_record(DurableTurn *turn, int seq, DurableKind kind,
											  text *name, DurableCheckpointStatus status,
											  Jsonb *output);
/* What the history has at a position that is known to be there. */
extern DurableCheckpoint *durable_turn_at(const DurableTurn *turn, int seq);
/* The deadline of a wait has come. */
extern void durable_turn_time_out(DurableTurn *turn, DurableCheckpoint *checkpoint);
/* A new operation at the position. */
extern DurableOperation *durable_turn_operation(DurableTurn *turn, int seq);

/* Ends the turn: wait until wake_at (0: only for results or signals). */
extern void durable_turn_suspend(DurableTurn *turn, TimestampTz wake_at)
			__attribute__((noreturn));
extern void durable_turn_run_step(DurableTurn *turn, DurableOperation *step)
			__attribute__((noreturn));
extern void durable_turn_fail(DurableTurn *turn, Jsonb *error) __attribute__((noreturn));

/* Raises a recorded error into the body, with its SQLSTATE. */
extern void durable_raise(Jsonb *error) __attribute__((noreturn));
/* What ErrorData becomes when it is recorded. */
extern Jsonb *durable_error_to_json(ErrorData *error);

/* schema.function(jsonb) that returns jsonb, owned or executable by the current
 * role: 42883, 42P13 or 42501 otherwise. Accepts a bare name. */
extern Oid	durable_function_lookup(text *name, bool *strict);
/* InvalidOid instead, for a stored signature */
extern Oid	durable_function_find(text *signature, bool *strict);
/* the form that is stored */
extern text *durable_function_signature(Oid function);
/* Calls it; NULL in, NULL out are SQL NULLs. */
extern Jsonb *durable_function_call(Oid function, bool strict, Jsonb *input);

#endif							/* DURABLE_TURN_H */
