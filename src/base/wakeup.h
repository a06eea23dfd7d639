/*-------------------------------------------------------------------------
 *
 * wakeup.h
 *	  Waking idle sessions when work for them commits.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_WAKEUP_H
#define DURABLE_WAKEUP_H

#include "postgres.h"

#include "storage/lwlock.h"

#include "base/shmem.h"

/* A waiter that serves more queues than this is woken for any. */
#define DURABLE_WAITER_KEYS 8

extern Size durable_wakeup_shmem_size(void);
extern void durable_wakeup_shmem_startup(LWLock *lock);
extern void durable_wakeup_init(void);

/* This transaction put "count" tasks into the queue. Nobody is woken before it
 * commits, and nobody at all if it rolls back. */
extern void durable_wakeup_note(const DurableKey *key, int count);

/* Every waiter of the database. */
extern void durable_wakeup_note_all(void);

/* Register before looking for work, so that nothing can slip in between. */
extern bool durable_waiter_begin(const DurableKey *keys, int nkeys);
extern void durable_waiter_rearm(void);
extern void durable_waiter_end(void);

#endif							/* DURABLE_WAKEUP_H */
