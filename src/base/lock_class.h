/*-------------------------------------------------------------------------
 *
 * lock_class.h
 *	  The classes of the heavyweight locks that are ours.
 *
 * They are advisory locks with a class in the fourth field, where the server's own
 * functions write 1 and 2. Two kinds of lock with one class would wait for each other.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_LOCK_CLASS_H
#define DURABLE_LOCK_CLASS_H

typedef enum DurableLockClass
{
	TOKEN_LOCK_CLASS = 3,		/* a signal's token: store/signal.c */
	LEASE_LOCK_CLASS,			/* a session that holds a lease lives: store/lease.c */
	EXECUTING_LOCK_CLASS,		/* a task in a session's hands: base/executing.c */
	GATE_LOCK_CLASS,			/* … and whoever interrupts it */
	SLOTS_LOCK_CLASS,			/* a singleton key's slots: store/singleton.c */
	QUEUE_LOCK_CLASS,			/* … and how many wait */
	QUOTA_LOCK_CLASS,			/* a key of a quota: store/quota.c */
	RETENTION_LOCK_CLASS,		/* one pass at a time: engine/retention.c */
	ANNOUNCE_LOCK_CLASS,		/* a queue whose workers announce: store/blocked.c */
	COUNT_LOCK_CLASS,			/* what a limiter counts: engine/limiter.c */
	NAME_LOCK_CLASS,			/* … and its name */
	NOTE_LOCK_CLASS,			/* a sweep's note: store/sweep.c */
	CRON_LOCK_CLASS				/* our jobs of pg_cron: api/cron.c */
} DurableLockClass;

#endif							/* DURABLE_LOCK_CLASS_H */
