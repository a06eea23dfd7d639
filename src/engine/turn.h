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
#include "utils/array.h"
#include "utils/jsonb.h"

#include "engine/fresh.h"
#include "engine/retry.h"
#include "store/checkpoint.h"
#include "store/lease.h"
#include "store/limited_by.h"
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
	int			retries;		/* 0: not said */
	int32		priority;
	bool		has_priority;
	Interval   *backoff;
	Interval   *backoff_max;
	bool		exponential;
	bool		has_exponential;
	bool		jitter;
	bool		has_jitter;
	Interval   *timeout;
	Interval   *pickup_timeout;
	ArrayType  *requires;		/* a set, or NULL */
	/* dispatched steps: of so many positions, at most so many at once (0: all) */
	int			count;
	int			max_in_flight;
	/* steps: the limiter they are under, or NULL, and their key (NULL: the run's id) */
	text	   *limiter;
	text	   *fairness_key;
	/* children */
	text	   *workflow;
	text	   *version;
} DurableOperation;

/* Positions whose results a decision waits for: over when all are there, or one failed. */
typedef struct DurableWait
{
	int			first;
	int			last;
	bool		fail_fast;
} DurableWait;

typedef struct DurableLogEntry
{
	int			seq;
	int			number;			/* of those at this position */
	text	   *level;
	text	   *message;
	Jsonb	   *data;
} DurableLogEntry;

/* A step whose result its worker hands in together with the decision that follows from
 * it: so no turn is claimed for that. */
typedef struct DurableAfterStep
{
	int64		task;			/* the step's */
	const DurableLease *lease;	/* that holds it */
	Jsonb	   *output;
	int64		turn_lease;		/* under which the run's last turn was decided */
	int			history_end;	/* and how long its history was then */
} DurableAfterStep;

typedef struct DurableTurn
{
	MemoryContext context;		/* everything below lives here */
	MemoryContext scratch;		/* a replay's own, empty when the next begins */
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
	bool		input_checked;

	DurableCheckpoint *history; /* by position; durable_turn_at() */
	int			nhistory;
	int			space;
	int			first_unsaved;	/* all before it are stored as they are */

	/* of the replay under way */
	int			asked;			/* durable_turn_ask() since the last position was taken */
	int			aborts;			/* of subtransactions, when it was */
	bool		plain;			/* the position that is being taken: see durable_turn_ask */
	int			next_seq;
	bool		ended;			/* a function has ended it */
	bool		swallowed;		/* … and the body has called another one */
	bool		interrupted;	/* the session was, and the body may have caught it */

	/* of all replays, not written yet */
	List	   *operations;		/* DurableOperation */
	int			carried;		/* of those, the ones of earlier replays */
	List	   *logs;			/* DurableLogEntry */
	Jsonb	   *attributes;		/* to be merged into the run's, or NULL */
	int			done;			/* positions below it, of which the last is a local step
								 * that was executed in this transaction; or 0 */

	/* of a local step's limiter: held, and what the step that it was for has used */
	bool		has_slot;
	bool		slot_spent;
	DurableLimitedBy slot;

	/* a decision from outside: its history has only the positions it names */
	bool		external;
	const DurableAfterStep *after;	/* not of a turn that was claimed */
	DurableFresh *fresh;		/* for the steps that it dispatches, or NULL */
	DurableRow *task;			/* its task's row, once it is locked and if it is known */
	List	   *waits;			/* DurableWait: what it waits for */
	bool		rests_on_latest;	/* on nothing having come since it was claimed */
	int			window_first;	/* where the run's fan with a window begins, or -1 */
	int			idle_turns;		/* in a row, before this one, that added nothing */
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
	bool		fan_changed;	/* the steps that are not queued yet: */
	int			fan_first;
	int			fan_next;		/* from here to fan_last; -1: there are none */
	int			fan_last;
	bool		ending;			/* the run ends with what is being written */
	text	   *blocked_queue;	/* no live worker of it can do what a step asks, or NULL */
	ArrayType  *blocked_requires;
	int			blocked_route;	/* DurableRoute */
	bool		blocked_soon;	/* somebody is announcing himself */
	bool		limited;		/* it waits for a slot of this: */
	DurableLimitedBy gate;
	bool		fatal;			/* the run fails, whatever the body makes of it */
} DurableTurn;

/* The turn whose body is running in this session, or NULL; and the turn whose
 * step is. */
extern DurableTurn *durable_current_turn;
extern DurableTurn *durable_current_step;

extern void durable_turn_init(void);

/* Before a replay: whether the body's function is still there, or there again. */
extern bool durable_turn_has_body(DurableTurn *turn);

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
/* WF002 for this position: the run fails. */
extern void durable_turn_mismatch(DurableTurn *turn, int seq, DurableKind kind,
								  const text *name) __attribute__((noreturn));
/*
 * Before a step's arguments are evaluated: true when that can be left out, because
 * the result is there and they were good before.
 *
 * Replays do the same things in the same order. A position is "plain" when a call
 * took it that had asked here, nobody else had asked since the position before, and
 * no error was caught in between: then whoever asks at this position in a later
 * replay is that call. Of any other position nothing is known, a body may have caught
 * what the evaluation raised, and true is never the answer.
 */
extern bool durable_turn_ask(DurableTurn *turn, DurableKind kind);
/* The call that takes the next position is one that has asked. */
extern void durable_turn_asked(DurableTurn *turn);

/* A checkpoint for the position that came back NULL. */
extern DurableCheckpoint *durable_turn_record(DurableTurn *turn, int seq, DurableKind kind,
											  text *name, DurableCheckpointStatus status,
											  Jsonb *output);
/* What the history has at a position that is known to be there. */
extern DurableCheckpoint *durable_turn_at(const DurableTurn *turn, int seq);
/* The checkpoint, one of the turn's history, is to be written. */
extern void durable_turn_changed(DurableTurn *turn, DurableCheckpoint *checkpoint);
/* The deadline of a wait has come. */
extern void durable_turn_time_out(DurableTurn *turn, DurableCheckpoint *checkpoint);
/* A new operation at the position; or the one that an earlier replay has left there. */
extern DurableOperation *durable_turn_operation(DurableTurn *turn, int seq);

/* Ends the turn: wait until wake_at (0: only for results or signals). */
extern void durable_turn_suspend(DurableTurn *turn, TimestampTz wake_at)
			__attribute__((noreturn));
/* … until the limiter has a slot for the local step that comes next. */
extern void durable_turn_suspend_at(DurableTurn *turn, const DurableLimitedBy *gate)
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
/* the same for functions that return something else than jsonb */
extern Oid	durable_function_lookup_as(text *name, Oid returns, bool *strict);
extern Oid	durable_function_find_as(text *signature, Oid returns, bool *strict);
/* the form that is stored */
extern text *durable_function_signature(Oid function);
/* Calls it; NULL in, NULL out are SQL NULLs. */
extern Jsonb *durable_function_call(Oid function, bool strict, Jsonb *input);

#endif							/* DURABLE_TURN_H */
