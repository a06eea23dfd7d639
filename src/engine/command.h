/*-------------------------------------------------------------------------
 *
 * command.h
 *	  The commands of a decision, read and checked one by one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_COMMAND_H
#define DURABLE_COMMAND_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/array.h"
#include "utils/jsonb.h"

#include "store/checkpoint.h"

typedef enum DurableCommandType
{
	COMMAND_CALL,
	COMMAND_CALL_ALL,
	COMMAND_CALL_OFF,
	COMMAND_AWAIT_ANY,
	COMMAND_RECORD_STEP,
	COMMAND_SLEEP,
	COMMAND_SLEEP_UNTIL,
	COMMAND_WAIT_SIGNAL,
	COMMAND_START_CHILD,
	COMMAND_SET_EVENT,
	COMMAND_ATTRIBUTES,
	COMMAND_PATCHED,
	COMMAND_NOW,
	COMMAND_RANDOM,
	COMMAND_UUID,
	COMMAND_LOG,
	COMMAND_FAIL_RUN,
	COMMAND_TYPES
} DurableCommandType;

/* What a command says; which members count depends on its type. NULL and, for
 * times and spans, NULL pointers: not given. */
typedef struct DurableCommand
{
	int			index;			/* in the decision, from 0 */
	DurableCommandType type;
	int			seq;
	text	   *name;			/* of a step, signal, workflow, key, patch, level */
	text	   *queue;
	text	   *limiter;
	text	   *fairness_key;
	text	   *child_id;
	text	   *version;
	text	   *message;
	text	   *code;
	text	   *backoff_kind;
	Jsonb	   *input;
	Jsonb	   *output;			/* or value, data, attributes, details */
	Jsonb	   *error;
	int		   *priority;
	int		   *retries;
	int		   *attempts;
	Interval   *backoff;
	Interval   *backoff_max;
	Interval   *span;			/* of a sleep or wait */
	Interval   *timeout;
	Interval   *pickup_timeout;
	ArrayType  *requires;		/* a set, or NULL */
	TimestampTz *until;
	TimestampTz *started_at;
	TimestampTz *finished_at;
	bool	   *jitter;
	bool	   *await;
	/* of a fan */
	text	   *mode;
	int		   *count;
	int		   *max_in_flight;
	Jsonb	  **inputs;			/* one for each of its positions; NULL: none are given */
	int			ninputs;
	int		   *handle;			/* of await_any */
} DurableCommand;

/* as many as step_all() takes */
#define DURABLE_FAN_MAX 100000

/* false: *problem says what is wrong with it */
extern bool durable_command_read(int index, const JsonbValue *value, DurableCommand *command,
								 char **problem);
/* as the decision names it */
extern const char *durable_command_name(DurableCommandType type);
/* whether the run waits for what it asks for */
extern bool durable_command_waits(const DurableCommand *command);
/* how many positions it names, from seq on */
extern int	durable_command_span(const DurableCommand *command);
/* whether the first failure of the fan ends the wait for it */
extern bool durable_command_fails_fast(const DurableCommand *command);
/* whether it takes a position */
extern bool durable_command_has_position(DurableCommandType type);

/* A payload that is not too large; NULL is none. */
extern bool durable_payload_fits(const Jsonb *payload);

#endif							/* DURABLE_COMMAND_H */
