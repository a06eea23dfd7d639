/*-------------------------------------------------------------------------
 *
 * queue.h
 *	  durable.queue: queues with a setting of their own.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_QUEUE_H
#define DURABLE_STORE_QUEUE_H

#include "postgres.h"

extern bool durable_queue_is_paused(text *namespace, text *queue);

/* false = it was in that state already */
extern bool durable_queue_set_paused(text *namespace, text *queue, bool paused);

extern void durable_queue_init(void);

#endif							/* DURABLE_STORE_QUEUE_H */
