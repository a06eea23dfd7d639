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

typedef struct DurableHandler
{
	text	   *namespace;
	text	   *name;
	Oid			owner;
	text	   *handler;
} DurableHandler;

extern bool durable_handler_find(text *namespace, text *name, DurableHandler *handler);
extern bool durable_handler_store(const DurableHandler *handler);
extern int	durable_handler_delete(text *namespace, text *name);

/* The namespaces where this role has definitions; palloc'd. */
extern text **durable_namespaces_of(Oid owner, int *n);

/* The queue whose tasks only this role executes. */
extern text *durable_owner_queue(Oid owner);

#endif							/* DURABLE_STORE_WORKFLOW_H */
