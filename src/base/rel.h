/*-------------------------------------------------------------------------
 *
 * rel.h
 *	  The extension's own relations: their OIDs, and writing and probing them
 *	  without a query.
 *
 * Only the hot tables are touched this way (docs/internals.md has the numbers
 * that ask for it); everything else goes through plan.h. The callers check
 * access first: nothing here looks at privileges.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_REL_H
#define DURABLE_REL_H

#include "postgres.h"

#include "access/genam.h"
#include "access/tableam.h"
#include "executor/tuptable.h"
#include "nodes/execnodes.h"
#include "storage/lockdefs.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

typedef enum DurableRel
{
	REL_TASK,
	REL_TASK_READY,
	REL_TASK_DELAYED,
	REL_LEASE,
	REL_TASK_RESULT,
	REL_TASK_PROGRESS,
	REL_QUEUE,
	REL_NAMESPACE_ACCESS,
	REL_IDENTITY,
	IDX_TASK_PKEY,
	IDX_TASK_ID,
	IDX_READY_ORDER,
	IDX_DELAYED_DUE,
	IDX_LEASE_PKEY,
	IDX_LEASE_UNTIL,
	IDX_RESULT_PKEY,
	IDX_RESULT_TASK_ID,
	IDX_RESULT_UNREAD,
	IDX_PROGRESS_PKEY,
	IDX_QUEUE_PKEY,
	IDX_ACCESS_PKEY,
	REL_WORKFLOW,
	REL_HANDLER,
	REL_RUN,
	REL_CHECKPOINT,
	REL_WAITER,
	REL_SIGNAL_BUFFER,
	REL_RUN_LOG,
	IDX_WORKFLOW_PKEY,
	IDX_HANDLER_PKEY,
	IDX_RUN_PKEY,
	IDX_RUN_ID,
	IDX_CHECKPOINT_PKEY,
	IDX_WAITER_PKEY,
	IDX_SIGNAL_PKEY,
	IDX_RUN_LOG,
	REL_TASK_DEADLINE,
	IDX_DEADLINE_PKEY,
	IDX_DEADLINE_DUE,
	REL_SCHEDULE,
	IDX_SCHEDULE_PKEY,
	IDX_SCHEDULE_NEXT_FIRE,
	IDX_SCHEDULE_LAST_WINDOW,
	REL_RETENTION_DUE,
	IDX_RETENTION_DUE,
	REL_RETENTION_POLICY,
	IDX_RETENTION_POLICY,
	REL_RETENTION_STATE,
	IDX_RETENTION_STATE,
	REL_RETENTION_ARCHIVE,
	IDX_RETENTION_ARCHIVE,
	REL_DEAD_LETTER,
	IDX_DEAD_LETTER_PKEY,
	REL_SINGLETON,
	IDX_SINGLETON_ORDER,
	REL_QUOTA,
	IDX_QUOTA_PKEY,
	REL_TASK_LIMITED,
	REL_LIMITER,
	REL_LIMITER_QUEUE,
	REL_LIMITER_TURN,
	REL_LIMITER_BLOCKED,
	REL_LIMITER_SLOT,
	REL_LIMITER_FREED,
	REL_LIMITER_STATE,
	REL_LIMITER_KEY,
	REL_LIMITER_TICK,
	IDX_LIMITED_ORDER,
	IDX_LIMITER_PKEY,
	IDX_LIMITER_ID,
	IDX_LIMITER_QUEUE_PAIR,
	IDX_LIMITER_QUEUE_LIMITER,
	IDX_LIMITER_TURN_ORDER,
	IDX_LIMITER_TURN_KEY,
	IDX_LIMITER_BLOCKED,
	IDX_LIMITER_SLOT,
	IDX_LIMITER_FREED,
	IDX_LIMITER_STATE,
	IDX_LIMITER_KEY,
	IDX_LIMITER_TICK,
	SEQ_LIMITER,
	REL_LAST_SWEEP,
	IDX_LAST_SWEEP_PKEY,
	REL_SWEEP_FAILURE,
	IDX_SWEEP_FAILURE_PKEY,
	REL_WORKER,
	IDX_WORKER_PKEY,
	REL_WORKER_QUEUE,
	IDX_WORKER_QUEUE_PKEY,
	REL_RUN_BLOCKED,
	IDX_RUN_BLOCKED_PKEY,
	IDX_RUN_BLOCKED_QUEUE,
	SEQ_TASK,
	SEQ_LEASE,
	REL_COUNT
} DurableRel;

/* Columns that partial indexes depend on (store/task.h, store/result.h). */
#define DURABLE_TASK_ID_COLUMN 19
#define DURABLE_RESULT_TASK_ID_COLUMN 11
#define DURABLE_RESULT_LEASE_COLUMN 3

extern Oid	durable_rel(DurableRel which);
extern int64 durable_sequence_next(DurableRel which);

/* The table of that name when the lock is ours, whatever was replaced while we
 * waited for it. The index of a table that is open. */
extern Relation durable_table_open(DurableRel which, LOCKMODE mode);
extern Relation durable_index_open(DurableRel which);

/* The widest table; callers' value arrays have this many members. */
#define DURABLE_MAX_COLUMNS 40

/* One row as Datums; columns count from 0, in the order of the table. */
typedef struct DurableRow
{
	ItemPointerData tid;		/* where it was read: for this transaction */
	Datum		values[DURABLE_MAX_COLUMNS];
	bool		nulls[DURABLE_MAX_COLUMNS];
} DurableRow;

static inline void
durable_row_set(DurableRow *row, int column, Datum value)
{
	row->values[column] = value;
	row->nulls[column] = false;
}

static inline void
durable_row_set_null(DurableRow *row, int column)
{
	row->values[column] = (Datum) 0;
	row->nulls[column] = true;
}

/* for by-reference values whose NULL is a null pointer */
static inline void
durable_row_set_pointer(DurableRow *row, int column, const void *value)
{
	row->values[column] = PointerGetDatum(value);
	row->nulls[column] = (value == NULL);
}

/* Indexes of a table beyond these are taken as they come. */
#define DURABLE_KNOWN_INDEXES 8

/* A table open for writing. */
typedef struct DurableWriter
{
	DurableRel	table;
	Relation	rel;
	MemoryContext context;
	EState	   *estate;
	ResultRelInfo *target;		/* NULL: the indexes are not open (yet) */
	TupleTableSlot *slot;
	TupleTableSlot *locked;		/* made by durable_writer_lock */
	int			known[DURABLE_KNOWN_INDEXES];	/* per index: its known predicate, or -1 */
} DurableWriter;

/*
 * Around a command that works on many rows one by one: writers and probes that are
 * closed meanwhile are kept and used again. NULL when one has begun already; that is
 * for whoever began it. When there was an error, durable_batch_abandon().
 */
typedef struct DurableBatch DurableBatch;
extern DurableBatch *durable_batch_begin(void);
extern void durable_batch_end(DurableBatch *mine);
extern void durable_batch_abandon(DurableBatch *mine);
/* The number of the one under way, 0 for none, and where lives what goes with it. */
extern uint64 durable_batch_current(MemoryContext *context);

/* RowExclusiveLock on the table (kept to the end of the transaction) */
extern void durable_writer_open(DurableWriter *writer, DurableRel table);
extern void durable_writer_close(DurableWriter *writer);

extern void durable_writer_insert(DurableWriter *writer, const DurableRow *row);
/* their places are in the rows afterwards */
extern void durable_writer_insert_many(DurableWriter *writer, DurableRow *rows, int n);

/* false: a live row holds the same key in the index; waits for undecided ones */
extern bool durable_writer_insert_unless(DurableWriter *writer, DurableRel arbiter,
										 const DurableRow *row);

/* Deletes or replaces the row version at tid, as the active snapshot saw it.
 * Not waiting gives TM_BeingModified or TM_WouldBlock for a row that another
 * transaction holds. */
extern TM_Result durable_writer_delete(DurableWriter *writer, ItemPointer tid, bool wait);
extern TM_Result durable_writer_update(DurableWriter *writer, const DurableRow *row, bool wait);

/* Locks the row against everyone else who would change it. Strict: only the
 * version at tid will do, TM_Updated says that there is a newer one. Otherwise
 * the newest version is locked; row, if given, is what was locked, and its
 * values hold until the writer's next use of this function. */
extern TM_Result durable_writer_lock(DurableWriter *writer, ItemPointer tid, bool wait,
									 bool strict, DurableRow *row);

/* A table open for look-ups by the leading columns of one index. */
typedef struct DurableProbe
{
	DurableRel	which;
	DurableRel	which_index;
	bool		kept;			/* belongs to a batch */
	MemoryContext context;
	Relation	rel;
	Relation	index;
	IndexScanDesc scan;
	TupleTableSlot *slot;
	int			nkeys;
} DurableProbe;

/* AccessShareLock on the table, kept to the end of the transaction: VACUUM FULL
 * would move the rows */
extern void durable_probe_open(DurableProbe *probe, DurableRel table,
							   DurableRel index, Snapshot snapshot, int nkeys);
/* the first visible row with these keys; by-reference values point into the
 * probe's slot and hold until its next use */
extern bool durable_probe_find(DurableProbe *probe, const Datum *keys, DurableRow *row);
/* stands before it, for durable_probe_next() to go there */
extern void durable_probe_start(DurableProbe *probe, const Datum *keys);
/* how many rows there are with the keys; stops at max */
extern int	durable_probe_count(DurableProbe *probe, const Datum *keys, int max);
/* the next one after it */
extern bool durable_probe_next(DurableProbe *probe, DurableRow *row);
/* the same from the other end */
extern bool durable_probe_find_last(DurableProbe *probe, const Datum *keys, DurableRow *row);
extern bool durable_probe_previous(DurableProbe *probe, DurableRow *row);
extern void durable_probe_close(DurableProbe *probe);

/* Whether no row was ever put into the table (since it was last emptied). */
extern bool durable_table_is_unused(DurableRel table);

/* everything in the slot, not copied */
extern void durable_slot_row(TupleTableSlot *slot, DurableRow *row);

/* by-reference values go into the current memory context */
extern void durable_row_copy(Relation rel, const DurableRow *row, DurableRow *copy);

/* A snapshot newer than any commit so far, at every isolation level. It is
 * active and registered until durable_snapshot_pop(). */
extern Snapshot durable_snapshot_push(void);
extern void durable_snapshot_pop(void);

/* Whether the row at tid can never be seen again by anyone who looks from now
 * on: aborted insertion or committed deletion. */
extern bool durable_row_is_dead(Relation rel, ItemPointer tid);

/* … or was deleted by this transaction: if it is not for good, neither is what the
 * caller writes. */
extern bool durable_row_is_gone(Relation rel, ItemPointer tid);

/* Whether the row at tid is there, for this transaction at least, and nobody is
 * deleting it. */
extern bool durable_row_is_live(Relation rel, ItemPointer tid);

extern void durable_rel_init(void);

#endif							/* DURABLE_REL_H */
