/*-------------------------------------------------------------------------
 *
 * lease.h
 *	  durable.lease: claim rounds.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_LEASE_H
#define DURABLE_STORE_LEASE_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/rel.h"
#include "store/due.h"

enum
{
	LEASE_ID,
	LEASE_TOKEN,
	LEASE_UNTIL,
	LEASE_CLAIMED_AT,
	LEASE_KIND,
	LEASE_NAMESPACE,
	LEASE_QUEUE,
	LEASE_WORKER,
	LEASE_IDS,
	LEASE_SEEN,
	LEASE_COLUMNS
};

typedef enum DurableLeaseKind
{
	LEASE_OF_TASKS,
	LEASE_OF_RESULTS
} DurableLeaseKind;

typedef struct DurableLease
{
	int64		id;
	pg_uuid_t	token;
	TimestampTz until;
	TimestampTz claimed_at;
	DurableLeaseKind kind;
	text	   *namespace;
	text	   *queue;			/* of all its tasks; empty: several, or results */
	text	   *worker;			/* or NULL */
	int			nids;
	int64	   *ids;			/* ascending */
	struct varlena *stored_ids; /* the list as it is stored; NULL when ids differ */
	/* of turns for external workers: the run's number and the wakes that its
	 * history came with, in pairs; those of settled ones stay */
	int			nseen;
	int64	   *seen;
	struct varlena *stored_seen;	/* as stored_ids */
	ItemPointerData tid;		/* where it was read */
} DurableLease;

/* A new token; its number is the lease's id, the rest is random. */
extern void durable_lease_new(DurableLease *lease);

/* now + span; 22023 where the calendar makes that no later than now */
extern TimestampTz durable_lease_until(TimestampTz now, const Interval *span);

extern void durable_lease_insert(DurableLease *lease);

/*
 * A session that executes work itself holds a lock in its own name, for as long
 * as it lives and works; the server lets go of it when the session dies. Such
 * leases name their worker DURABLE_SESSION_WORKER.
 */
#define DURABLE_SESSION_WORKER "durable.work"

extern void durable_lease_hold(int64 lease);
extern void durable_lease_let_go(int64 lease);
/* Before and after user code, which may let go of all locks of its session, with
 * pg_advisory_unlock_all(): the transaction keeps this one, too, and gives it back to
 * the session. Not in a subtransaction. */
extern void durable_lease_keep(void);
extern bool durable_lease_is_alive(const DurableLease *lease);

/* The live lease behind a token, as the active snapshot sees it, copied into
 * the current memory context. */
extern bool durable_lease_find(const pg_uuid_t *token, DurableLease *lease);

/* the same by its number alone, as of now */
extern bool durable_lease_is_there(int64 id);

extern bool durable_lease_holds(const DurableLease *lease, int64 id);

/* Notes, and tells, what an external worker was told of a run; -1: it was not. */
extern void durable_lease_note_wakes(DurableLease *lease, int64 run, int wakes);
extern int	durable_lease_wakes(const DurableLease *lease, int64 run);

/* Locks this very version of the lease, not waiting; false: somebody holds it
 * or has changed it. */
extern bool durable_lease_lock(const DurableLease *lease);

/* Rewrites until and ids at lease->tid. Deletes. Not waiting: see rel.h */
extern TM_Result durable_lease_update(const DurableLease *lease, bool wait);
extern TM_Result durable_lease_delete(const DurableLease *lease, bool wait);

/* Leases of a queue (or of several: empty) that have lapsed; durable_due_open()
 * and durable_due_close() go around it. */
extern bool durable_lapsed_begin(DurableDueScan *scan, text *namespace, text *queue,
								  TimestampTz now);
extern bool durable_lapsed_next(DurableDueScan *scan, DurableLease *lease);

/* All leases of sessions that the snapshot sees, palloc'd. */
extern int	durable_lease_sessions(Snapshot snapshot, DurableLease **leases);

/* the queues that have leases */
extern int	durable_lease_lists(DurableListName **lists);

#endif							/* DURABLE_STORE_LEASE_H */
