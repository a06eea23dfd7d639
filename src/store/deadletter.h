/*-------------------------------------------------------------------------
 *
 * deadletter.h
 *	  durable.dead_letter: each namespace's default dead-letter workflow.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_DEADLETTER_H
#define DURABLE_STORE_DEADLETTER_H

#include "postgres.h"

typedef struct DurableDeadLetter
{
	text	   *workflow;
	Oid			owner;			/* in whose name it is started */
} DurableDeadLetter;

/* Copied into the current memory context; false: the namespace has none. */
extern bool durable_dead_letter_find(text *namespace, DurableDeadLetter *found);
extern void durable_dead_letter_store(text *namespace, const DurableDeadLetter *given);
extern void durable_dead_letter_delete(text *namespace);

#endif							/* DURABLE_STORE_DEADLETTER_H */
