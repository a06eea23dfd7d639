/*-------------------------------------------------------------------------
 *
 * convention.h
 *	  Workflows that nobody has registered, but that a live worker lists.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_CONVENTION_H
#define DURABLE_CONVENTION_H

#include "postgres.h"

#include "store/workflow.h"

/* As durable_workflow_find(), for a run that starts. */
extern bool durable_workflow_for_start(text *namespace, text *name, text *version,
									   DurableWorkflow *workflow);

#endif							/* DURABLE_CONVENTION_H */
