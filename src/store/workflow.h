/*-------------------------------------------------------------------------
 *
 * workflow.h
 *	  durable.workflow and durable.handler: definitions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_WORKFLOW_H
#define DURABLE_STORE_WORKFLOW_H

#include "postgres.h"

#include "utils/array.h"
#include "utils/timestamp.h"

/* Everything copied into the current memory context. */
typedef struct DurableWorkflow
{
	text	   *namespace;
	text	   *name;
	text	   *version;
	Oid			owner;
	bool		atomic;
	text	   *body;			/* schema.function(argument types); NULL: external */
	text	   *queue;
	ArrayType  *tags;
	text	   *input_check;	/* as body, or NULL */
	void	   *singleton_key;	/* jsonpath; this and what follows: NULL or 0 when not given */
	int			singleton_limit;
	int			singleton_max_queued;	/* -1: no bound */
	void	   *concurrency_key;	/* jsonpath */
	int			concurrency_limit;	/* -1: none */
	Interval   *turn_silence;
	void	   *on_error;		/* jsonb */
	text	   *dead_letter_workflow;
	ArrayType  *requires;
} DurableWorkflow;

/* version NULL: the newest, numbers by value, other texts after them */
extern bool durable_workflow_find(text *namespace, text *name, text *version,
								  DurableWorkflow *workflow);
/* false: the definition belongs to another role */
extern bool durable_workflow_store(const DurableWorkflow *workflow);
/* how many were deleted; those of other roles stay */
extern int	durable_workflow_delete(text *namespace, text *name, text *version);
/* whether a run of this version (NULL: any) has not ended */
extern bool durable_workflow_in_use(text *namespace, text *name, text *version);

/* What a handler says about its steps; a call may say otherwise. */
typedef struct DurableStepPolicy
{
	int			retries;		/* 0: nothing */
	Interval   *backoff;
	Interval   *backoff_max;
	bool		exponential;
	bool		has_exponential;
	bool		jitter;
	bool		has_jitter;
	Interval   *timeout;
	Interval   *pickup_timeout;
} DurableStepPolicy;

typedef struct DurableHandler
{
	text	   *namespace;
	text	   *name;
	Oid			owner;
	text	   *handler;
	text	   *input_check;	/* or NULL */
	text	   *output_check;
	DurableStepPolicy policy;
} DurableHandler;

extern bool durable_handler_find(text *namespace, text *name, DurableHandler *handler);
extern bool durable_handler_store(const DurableHandler *handler);
extern int	durable_handler_delete(text *namespace, text *name);

/* The namespaces where this role has definitions of what runs in the database;
 * palloc'd. */
extern text **durable_namespaces_of(Oid owner, int *n);

/* Who has such definitions where, in order of roles; palloc'd. */
typedef struct DurableOwner
{
	Oid			role;
	text	   *namespace;
} DurableOwner;

extern int	durable_owners(DurableOwner **owners);

/* Another number means that the two above have to be asked again. */
extern uint64 durable_definitions_version(void);

extern void durable_workflow_init(void);

/* The queue whose tasks only this role executes. */
extern text *durable_owner_queue(Oid owner);

#endif							/* DURABLE_STORE_WORKFLOW_H */
