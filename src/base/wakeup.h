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

#include "datatype/timestamp.h"
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

/* The same for a queue that only this role executes: its sessions are woken, and
 * the scheduler when there are too few of them. */
extern void durable_wakeup_note_owner(Oid owner, int count);

/* It put something into a list that becomes due then. */
extern void durable_wakeup_note_due(TimestampTz at);

/* Register before looking for work, so that nothing can slip in between. With an
 * owner (not InvalidOid) the session waits for what that role executes. */
extern bool durable_waiter_begin(const DurableKey *keys, int nkeys, Oid owner);
extern void durable_waiter_rearm(void);
/* It has found something to do and is no longer to be woken; what it was woken for
 * since it armed is passed on to another. */
extern void durable_waiter_busy(void);
extern void durable_waiter_end(void);

/*
 * The scheduler of a database. It sleeps until something is due, and is woken
 * before for these reasons.
 */
#define SCHEDULER_LOOK_DUE		1	/* something becomes due earlier than it knows */
#define SCHEDULER_LOOK_DEMAND	2	/* work for which no executor was idle */
#define SCHEDULER_LOOK_DEAD		4	/* a session that executes work is gone */
#define SCHEDULER_LOOK_ALL		8	/* anything may have changed */

/* At once; InvalidOid: the schedulers of all databases. */
extern void durable_scheduler_wake(Oid database, uint32 reasons);

/* false: there is one for this database already, or no room */
extern bool durable_scheduler_attach(void);
extern void durable_scheduler_detach(void);
/* Before it looks: from now on everything wakes it. Returns the reasons since. */
extern uint32 durable_scheduler_begin(void);
/* After it looked: what is due later than this need not wake it. */
extern void durable_scheduler_sleeps_until(TimestampTz at);
/* The reasons so far, without taking them. */
extern uint32 durable_scheduler_reasons(void);

#endif							/* DURABLE_WAKEUP_H */
