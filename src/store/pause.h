/*-------------------------------------------------------------------------
 *
 * pause.h
 *	  durable.worker_pause: whether the database's workers are paused.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_PAUSE_H
#define DURABLE_STORE_PAUSE_H

#include "postgres.h"

extern bool durable_workers_are_paused(void);

/* false: it was so already */
extern bool durable_workers_set_paused(bool paused);

#endif							/* DURABLE_STORE_PAUSE_H */
