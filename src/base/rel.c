/*-------------------------------------------------------------------------
 *
 * rel.c
 *	  The extension's own relations: their OIDs, and writing and probing them
 *	  without a query.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "base/compat.h"
#include "base/rel.h"

static const char *const rel_names[REL_COUNT] = {
	[REL_TASK] = "task",
	[REL_TASK_READY] = "task_ready",
	[REL_TASK_DELAYED] = "task_delayed",
	[REL_LEASE] = "lease",
	[REL_TASK_RESULT] = "task_result",
	[REL_TASK_PROGRESS] = "task_progress",
	[REL_QUEUE] = "queue",
	[REL_NAMESPACE_ACCESS] = "namespace_access",
	[REL_IDENTITY] = "identity",
	[IDX_TASK_PKEY] = "task_pkey",
	[IDX_TASK_ID] = "task_task_id_key",
	[IDX_READY_ORDER] = "task_ready_order",
	[IDX_DELAYED_DUE] = "task_delayed_due",
	[IDX_LEASE_PKEY] = "lease_pkey",
	[IDX_LEASE_UNTIL] = "lease_until_idx",
	[IDX_RESULT_PKEY] = "task_result_pkey",
	[IDX_RESULT_TASK_ID] = "task_result_task_id_key",
	[IDX_RESULT_UNREAD] = "task_result_unread",
	[IDX_PROGRESS_PKEY] = "task_progress_pkey",
	[IDX_QUEUE_PKEY] = "queue_pkey",
	[IDX_ACCESS_PKEY] = "namespace_access_pkey",
	[REL_WORKFLOW] = "workflow",
	[REL_HANDLER] = "handler",
	[REL_RUN] = "run",
	[REL_CHECKPOINT] = "checkpoint",
	[REL_WAITER] = "waiter",
	[REL_SIGNAL_BUFFER] = "signal_buffer",
	[REL_RUN_LOG] = "run_log",
	[IDX_WORKFLOW_PKEY] = "workflow_pkey",
	[IDX_HANDLER_PKEY] = "handler_pkey",
	[IDX_RUN_PKEY] = "run_pkey",
	[IDX_RUN_ID] = "run_run_id_key",
	[IDX_CHECKPOINT_PKEY] = "checkpoint_pkey",
	[IDX_WAITER_PKEY] = "waiter_pkey",
	[IDX_SIGNAL_PKEY] = "signal_buffer_pkey",
	[IDX_RUN_LOG] = "run_log_pkey",
	[REL_TASK_DEADLINE] = "task_deadline",
	[IDX_DEADLINE_PKEY] = "task_deadline_pkey",
	[IDX_DEADLINE_DUE] = "task_deadline_due",
	[REL_SCHEDULE] = "schedule",
	[IDX_SCHEDULE_PKEY] = "schedule_pkey",
	[IDX_SCHEDULE_NEXT_FIRE] = "schedule_next_fire",
	[IDX_SCHEDULE_LAST_WINDOW] = "schedule_last_window",
	[REL_RETENTION_DUE] = "retention_due",
	[IDX_RETENTION_DUE] = "retention_due_pkey",
	[REL_RETENTION_POLICY] = "retention_policy",
	[IDX_RETENTION_POLICY] = "retention_policy_pkey",
	[REL_RETENTION_STATE] = "retention_state",
	[IDX_RETENTION_STATE] = "retention_state_pkey",
	[REL_RETENTION_ARCHIVE] = "retention_archive",
	[IDX_RETENTION_ARCHIVE] = "retention_archive_next",
	[REL_DEAD_LETTER] = "dead_letter",
	[IDX_DEAD_LETTER_PKEY] = "dead_letter_pkey",
	[REL_SINGLETON] = "singleton",
	[IDX_SINGLETON_ORDER] = "singleton_order",
	[REL_QUOTA] = "quota",
	[IDX_QUOTA_PKEY] = "quota_pkey",
	[REL_TASK_LIMITED] = "task_limited",
	[REL_LIMITER] = "limiter",
	[REL_LIMITER_QUEUE] = "limiter_queue",
	[REL_LIMITER_TURN] = "limiter_turn",
	[REL_LIMITER_BLOCKED] = "limiter_blocked",
	[REL_LIMITER_SLOT] = "limiter_slot",
	[REL_LIMITER_FREED] = "limiter_freed",
	[REL_LIMITER_STATE] = "limiter_state",
	[REL_LIMITER_KEY] = "limiter_key",
	[REL_LIMITER_TICK] = "limiter_tick",
	[IDX_LIMITED_ORDER] = "task_limited_order",
	[IDX_LIMITER_PKEY] = "limiter_pkey",
	[IDX_LIMITER_ID] = "limiter_id_key",
	[IDX_LIMITER_QUEUE_PAIR] = "limiter_queue_pair",
	[IDX_LIMITER_QUEUE_LIMITER] = "limiter_queue_limiter",
	[IDX_LIMITER_TURN_ORDER] = "limiter_turn_order",
	[IDX_LIMITER_TURN_KEY] = "limiter_turn_key",
	[IDX_LIMITER_BLOCKED] = "limiter_blocked_key",
	[IDX_LIMITER_SLOT] = "limiter_slot_pkey",
	[IDX_LIMITER_FREED] = "limiter_freed_order",
	[IDX_LIMITER_STATE] = "limiter_state_version",
	[IDX_LIMITER_KEY] = "limiter_key_version",
	[IDX_LIMITER_TICK] = "limiter_tick_order",
	[SEQ_LIMITER] = "limiter_seq",
	[REL_LAST_SWEEP] = "last_sweep",
	[IDX_LAST_SWEEP_PKEY] = "last_sweep_pkey",
	[REL_SWEEP_FAILURE] = "sweep_failure",
	[IDX_SWEEP_FAILURE_PKEY] = "sweep_failure_pkey",
	[REL_WORKER] = "worker",
	[IDX_WORKER_PKEY] = "worker_pkey",
	[REL_WORKER_QUEUE] = "worker_queue",
	[IDX_WORKER_QUEUE_PKEY] = "worker_queue_pkey",
	[REL_RUN_BLOCKED] = "run_blocked",
	[IDX_RUN_BLOCKED_PKEY] = "run_blocked_pkey",
	[IDX_RUN_BLOCKED_QUEUE] = "run_blocked_queue",
	[SEQ_TASK] = "task_seq",
	[SEQ_LEASE] = "lease_seq",
};

/* Forgotten whenever any of them changes, DROP EXTENSION included. */
static Oid	rel_oids[REL_COUNT];

static void
forget_oids(Datum arg, Oid relid)
{
	for (int i = 0; i < REL_COUNT; i++)
	{
		if (relid == InvalidOid || rel_oids[i] == relid)
			rel_oids[i] = InvalidOid;
	}
}

Oid
durable_rel(DurableRel which)
{
	if (!OidIsValid(rel_oids[which]))
	{
		Oid			schema = get_namespace_oid("durable", true);
		Oid			oid = OidIsValid(schema) ?
			get_relname_relid(rel_names[which], schema) : InvalidOid;

		if (!OidIsValid(oid))
			ereport(ERROR,
					errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("extension \"durable\" is not complete in this database"),
					errdetail("Relation durable.%s does not exist.", rel_names[which]),
					errhint("Run CREATE EXTENSION durable, or ALTER EXTENSION durable UPDATE."));
		rel_oids[which] = oid;
	}
	return rel_oids[which];
}

void
durable_rel_init(void)
{
	CacheRegisterRelcacheCallback(forget_oids, (Datum) 0);
}

/*
 * Locks by name: while we wait for the lock of a relation that is being dropped,
 * its successor may take its place, as in DROP and CREATE EXTENSION in one
 * transaction. Getting the lock delivers what others committed, so if the name
 * still means the same relation then, it does as long as we hold the lock.
 */
static Oid
lock_rel(DurableRel which, LOCKMODE mode)
{
	for (;;)
	{
		Oid			oid = durable_rel(which);

		LockRelationOid(oid, mode);
		if (durable_rel(which) == oid)
			return oid;
		UnlockRelationOid(oid, mode);
	}
}

Relation
durable_table_open(DurableRel which, LOCKMODE mode)
{
	return table_open(lock_rel(which, mode), NoLock);
}

/* Whoever drops an index, or REINDEX CONCURRENTLY its old version, waits for
 * those who hold the table. */
Relation
durable_index_open(DurableRel which)
{
	return index_open(durable_rel(which), AccessShareLock);
}

int64
durable_sequence_next(DurableRel which)
{
	return nextval_internal(lock_rel(which, RowExclusiveLock), false);
}

/*
 * The predicates of our own partial indexes, so that the executor need not
 * compile one for each row. Others, that an administrator made, it compiles.
 */
static const struct
{
	DurableRel	index;
	int			column;
	bool		null;			/* entries are for rows where the column is (not) null */
}			known_predicates[] = {
	{IDX_TASK_ID, DURABLE_TASK_ID_COLUMN, false},
	{IDX_RESULT_TASK_ID, DURABLE_RESULT_TASK_ID_COLUMN, false},
	{IDX_RESULT_UNREAD, DURABLE_RESULT_LEASE_COLUMN, true},
};

static int
known_predicate(Relation index)
{
	if (RelationGetIndexPredicate(index) == NIL)
		return -1;
	for (int k = 0; k < lengthof(known_predicates); k++)
	{
		if (durable_rel(known_predicates[k].index) == RelationGetRelid(index))
			return k;
	}
	return -1;
}

/*
 * A command that works on many rows one by one keeps what it has opened. Only while its
 * resource owner is the current one, so that no end of a subtransaction takes a
 * relation away from a thing that is kept.
 */
#define KEPT_MAX 32

typedef struct Kept
{
	DurableRel	table;
	DurableRel	index;			/* of a probe; REL_COUNT: a writer */
	DurableProbe probe;
	DurableWriter writer;
} Kept;

struct DurableBatch
{
	uint64		number;
	MemoryContext context;
	ResourceOwner owner;
	int			nkept;
	Kept		kept[KEPT_MAX];	/* those that are not in use */
};

static DurableBatch *batch = NULL;
static uint64 batches = 0;

static bool
may_keep(void)
{
	return batch != NULL && batch->owner == CurrentResourceOwner;
}

/* NULL: none of these is kept. What it points to holds until the next call. */
static Kept *
take_kept(DurableRel table, DurableRel index, int nkeys)
{
	for (int i = may_keep() ? batch->nkept - 1 : -1; i >= 0; i--)
	{
		Kept	   *kept = &batch->kept[i];
		Kept		last;

		if (kept->table != table || kept->index != index ||
			(index != REL_COUNT && kept->probe.nkeys != nkeys))
			continue;
		last = batch->kept[--batch->nkept];
		batch->kept[batch->nkept] = *kept;
		if (i < batch->nkept)
			batch->kept[i] = last;
		return &batch->kept[batch->nkept];
	}
	return NULL;
}

/* NULL: it has to be closed. */
static Kept *
add_kept(DurableRel table, DurableRel index)
{
	Kept	   *kept;

	if (!may_keep() || batch->nkept == KEPT_MAX)
		return NULL;
	kept = &batch->kept[batch->nkept++];
	kept->table = table;
	kept->index = index;
	return kept;
}

/* Where what is opened now has to live. */
static MemoryContext
kept_context(void)
{
	return may_keep() ? batch->context : CurrentMemoryContext;
}

DurableBatch *
durable_batch_begin(void)
{
	MemoryContext context;

	if (batch != NULL)
		return NULL;
	context = AllocSetContextCreate(CurrentMemoryContext, "durable batch", ALLOCSET_DEFAULT_SIZES);
	batch = MemoryContextAllocZero(context, sizeof(DurableBatch));
	batch->number = ++batches;
	batch->context = context;
	batch->owner = CurrentResourceOwner;
	return batch;
}

uint64
durable_batch_current(MemoryContext *context)
{
	if (batch == NULL)
		return 0;
	*context = batch->context;
	return batch->number;
}

void
durable_batch_end(DurableBatch *mine)
{
	if (mine == NULL)
		return;
	batch = NULL;
	for (int i = 0; i < mine->nkept; i++)
	{
		if (mine->kept[i].index == REL_COUNT)
			durable_writer_close(&mine->kept[i].writer);
		else
			durable_probe_close(&mine->kept[i].probe);
	}
	MemoryContextDelete(mine->context);
}

void
durable_batch_abandon(DurableBatch *mine)
{
	if (mine != NULL)
		batch = NULL;
}

void
durable_writer_open(DurableWriter *writer, DurableRel table)
{
	MemoryContext before;
	Kept	   *kept = take_kept(table, REL_COUNT, 0);

	if (kept != NULL)
	{
		*writer = kept->writer;
		return;
	}
	before = MemoryContextSwitchTo(kept_context());
	writer->table = table;
	writer->rel = durable_table_open(table, RowExclusiveLock);
	writer->slot = MakeSingleTupleTableSlot(RelationGetDescr(writer->rel),
											&TTSOpsVirtual);
	writer->target = NULL;
	writer->estate = NULL;
	writer->locked = NULL;
	writer->context = CurrentMemoryContext;
	MemoryContextSwitchTo(before);
	Assert(RelationGetNumberOfAttributes(writer->rel) <= DURABLE_MAX_COLUMNS);
}

/* Deleting does without the indexes; whatever puts a row in comes here first. */
static void
open_indexes(DurableWriter *writer)
{
	MemoryContext before;

	if (writer->target != NULL)
		return;
	Assert(batch == NULL || writer->context != batch->context || may_keep());
	before = MemoryContextSwitchTo(writer->context);
	writer->estate = CreateExecutorState();
	writer->target = makeNode(ResultRelInfo);
	InitResultRelInfo(writer->target, writer->rel, 1, NULL, 0);
	ExecOpenIndices(writer->target, true);
	/* now: the OIDs may be forgotten and learned again while rows are written */
	for (int i = 0; i < Min(writer->target->ri_NumIndices, DURABLE_KNOWN_INDEXES); i++)
		writer->known[i] = known_predicate(writer->target->ri_IndexRelationDescs[i]);
	MemoryContextSwitchTo(before);
}

void
durable_writer_close(DurableWriter *writer)
{
	Kept	   *kept = NULL;

	if (batch != NULL && writer->context == batch->context)
		kept = add_kept(writer->table, REL_COUNT);
	if (kept != NULL)
	{
		ExecClearTuple(writer->slot);
		if (writer->locked)
			ExecClearTuple(writer->locked);
		kept->writer = *writer;
		return;
	}
	if (writer->target)
	{
		ExecCloseIndices(writer->target);
		FreeExecutorState(writer->estate);
	}
	if (writer->locked)
		ExecDropSingleTupleTableSlot(writer->locked);
	ExecDropSingleTupleTableSlot(writer->slot);
	table_close(writer->rel, NoLock);
}

static void
fill_slot(TupleTableSlot *slot, const DurableRow *row)
{
	int			natts = slot->tts_tupleDescriptor->natts;

	ExecClearTuple(slot);
	memcpy(slot->tts_values, row->values, sizeof(Datum) * natts);
	memcpy(slot->tts_isnull, row->nulls, sizeof(bool) * natts);
	ExecStoreVirtualTuple(slot);
}

static void
decide_predicates(DurableWriter *writer, TupleTableSlot *slot)
{
	for (int i = 0; i < Min(writer->target->ri_NumIndices, DURABLE_KNOWN_INDEXES); i++)
	{
		IndexInfo  *info = writer->target->ri_IndexRelationInfo[i];
		int			k = writer->known[i];

		if (k < 0)
			continue;
		info->ii_Predicate = NIL;
		info->ii_ReadyForInserts =
			slot->tts_isnull[known_predicates[k].column] == known_predicates[k].null;
	}
}

static void
insert_index_entries(DurableWriter *writer, TupleTableSlot *slot)
{
	decide_predicates(writer, slot);
	if (writer->target->ri_NumIndices > 0)
		list_free(compat_insert_index_tuples(writer->target, slot, writer->estate,
											 false, false, NULL, NIL, false));
	ResetPerTupleExprContext(writer->estate);
}

void
durable_writer_insert(DurableWriter *writer, const DurableRow *row)
{
	open_indexes(writer);
	fill_slot(writer->slot, row);
	table_tuple_insert(writer->rel, writer->slot, GetCurrentCommandId(true), 0, NULL);
	insert_index_entries(writer, writer->slot);
}

void
durable_writer_insert_many(DurableWriter *writer, DurableRow *rows, int n)
{
	TupleTableSlot **slots;

	if (n == 1)
	{
		durable_writer_insert(writer, rows);
		rows->tid = writer->slot->tts_tid;
		return;
	}
	open_indexes(writer);
	slots = palloc(sizeof(TupleTableSlot *) * n);
	for (int i = 0; i < n; i++)
	{
		slots[i] = MakeSingleTupleTableSlot(RelationGetDescr(writer->rel),
											&TTSOpsVirtual);
		fill_slot(slots[i], &rows[i]);
	}
	table_multi_insert(writer->rel, slots, n, GetCurrentCommandId(true), 0, NULL);
	for (int i = 0; i < n; i++)
	{
		insert_index_entries(writer, slots[i]);
		rows[i].tid = slots[i]->tts_tid;
		ExecDropSingleTupleTableSlot(slots[i]);
	}
	pfree(slots);
}

/*
 * INSERT ... ON CONFLICT DO NOTHING, as the executor does it: look, insert
 * speculatively, and take it back if somebody was faster.
 */
bool
durable_writer_insert_unless(DurableWriter *writer, DurableRel arbiter,
							 const DurableRow *row)
{
	List	   *arbiters = list_make1_oid(durable_rel(arbiter));

	open_indexes(writer);
	for (;;)
	{
		ItemPointerData conflict;
		uint32		token;
		bool		taken = false;

		CHECK_FOR_INTERRUPTS();
		fill_slot(writer->slot, row);
		decide_predicates(writer, writer->slot);
		if (!compat_check_index_constraints(writer->target, writer->slot,
											writer->estate, &conflict, arbiters))
			return false;

		token = SpeculativeInsertionLockAcquire(GetCurrentTransactionId());
		table_tuple_insert_speculative(writer->rel, writer->slot,
									   GetCurrentCommandId(true), 0, NULL, token);
		list_free(compat_insert_index_tuples(writer->target, writer->slot,
											 writer->estate, false, true,
											 &taken, arbiters, false));
		table_tuple_complete_speculative(writer->rel, writer->slot, token, !taken);
		SpeculativeInsertionLockRelease(GetCurrentTransactionId());
		ResetPerTupleExprContext(writer->estate);
		if (!taken)
			return true;
	}
}

TM_Result
durable_writer_lock(DurableWriter *writer, ItemPointer tid, bool wait, bool strict,
					DurableRow *row)
{
	TM_FailureData failure;
	ItemPointerData latest = *tid;
	TM_Result	result;

	if (writer->locked == NULL)
	{
		MemoryContext before = MemoryContextSwitchTo(writer->context);

		writer->locked = table_slot_create(writer->rel, NULL);
		MemoryContextSwitchTo(before);
	}
	result = table_tuple_lock(writer->rel, &latest, GetActiveSnapshot(), writer->locked,
							  GetCurrentCommandId(true), LockTupleNoKeyExclusive,
							  wait ? LockWaitBlock : LockWaitSkip,
							  strict ? 0 : TUPLE_LOCK_FLAG_FIND_LAST_VERSION, &failure);
	if (result == TM_Ok && row != NULL)
		durable_slot_row(writer->locked, row);
	return result;
}

TM_Result
durable_writer_delete(DurableWriter *writer, ItemPointer tid, bool wait)
{
	TM_FailureData failure;

	return table_tuple_delete(writer->rel, tid, GetCurrentCommandId(true),
							  GetActiveSnapshot(), InvalidSnapshot, wait,
							  &failure, false);
}

TM_Result
durable_writer_update(DurableWriter *writer, const DurableRow *row, bool wait)
{
	TM_FailureData failure;
	bool		update_indexes;
	bool		summarizing;
	TM_Result	result;
	ItemPointerData tid = row->tid;

	open_indexes(writer);
	/* an update always waits; our own lock makes that short */
	if (!wait)
	{
		result = durable_writer_lock(writer, &tid, false, true, NULL);
		if (result != TM_Ok)
			return result;
	}
	fill_slot(writer->slot, row);
	result = compat_table_update(writer->rel, &tid, writer->slot,
								 GetCurrentCommandId(true), GetActiveSnapshot(),
								 true, &failure, &update_indexes, &summarizing);
	/* "update = false": the hint that some index columns did not change needs a
	 * planned query to look it up in */
	if (result != TM_Ok || !update_indexes)
		return result;
	decide_predicates(writer, writer->slot);
	if (writer->target->ri_NumIndices > 0)
		list_free(compat_insert_index_tuples(writer->target, writer->slot,
											 writer->estate, false, false, NULL,
											 NIL, summarizing));
	ResetPerTupleExprContext(writer->estate);
	return result;
}

static RegProcedure
equality_of(Oid type)
{
	switch (type)
	{
		case INT8OID:
			return F_INT8EQ;
		case INT4OID:
			return F_INT4EQ;
		case TEXTOID:
			return F_TEXTEQ;
		case TIMESTAMPTZOID:
			return F_TIMESTAMPTZ_EQ;
		default:
			elog(ERROR, "no equality known for type %u", type);
	}
	return InvalidOid;
}

void
durable_probe_open(DurableProbe *probe, DurableRel table, DurableRel index,
				   Snapshot snapshot, int nkeys)
{
	MemoryContext before;
	Kept	   *kept = take_kept(table, index, nkeys);

	if (kept != NULL)
	{
		*probe = kept->probe;
		/* each search begins anew, with index_rescan() */
		probe->scan->xs_snapshot = snapshot;
		return;
	}
	before = MemoryContextSwitchTo(kept_context());
	probe->context = CurrentMemoryContext;
	probe->kept = may_keep();
	probe->which = table;
	probe->which_index = index;
	probe->rel = durable_table_open(table, AccessShareLock);
	probe->index = durable_index_open(index);
	probe->slot = table_slot_create(probe->rel, NULL);
	probe->nkeys = nkeys;
	probe->scan = compat_index_beginscan(probe->rel, probe->index, snapshot, nkeys);
	MemoryContextSwitchTo(before);
}

void
durable_probe_start(DurableProbe *probe, const Datum *keys)
{
	ScanKeyData scan_keys[INDEX_MAX_KEYS];
	MemoryContext before;

	for (int i = 0; i < probe->nkeys; i++)
		ScanKeyInit(&scan_keys[i], i + 1, BTEqualStrategyNumber,
					equality_of(TupleDescAttr(RelationGetDescr(probe->index), i)->atttypid),
					keys[i]);
	before = MemoryContextSwitchTo(probe->context);
	index_rescan(probe->scan, scan_keys, probe->nkeys, NULL, 0);
	MemoryContextSwitchTo(before);
}

static bool
probe_step(DurableProbe *probe, ScanDirection direction, DurableRow *row)
{
	/* what the index allocates lives as long as the scan */
	MemoryContext before = MemoryContextSwitchTo(probe->context);
	bool		found = index_getnext_slot(probe->scan, direction, probe->slot);

	MemoryContextSwitchTo(before);
	if (found)
		durable_slot_row(probe->slot, row);
	return found;
}

bool
durable_probe_find(DurableProbe *probe, const Datum *keys, DurableRow *row)
{
	durable_probe_start(probe, keys);
	return durable_probe_next(probe, row);
}

bool
durable_probe_next(DurableProbe *probe, DurableRow *row)
{
	return probe_step(probe, ForwardScanDirection, row);
}

int
durable_probe_count(DurableProbe *probe, const Datum *keys, int max)
{
	DurableRow	row;
	int			n = 0;

	for (bool more = n < max && durable_probe_find(probe, keys, &row); more;
		 more = n < max && durable_probe_next(probe, &row))
	{
		CHECK_FOR_INTERRUPTS();
		n++;
	}
	return n;
}

bool
durable_probe_find_last(DurableProbe *probe, const Datum *keys, DurableRow *row)
{
	durable_probe_start(probe, keys);
	return durable_probe_previous(probe, row);
}

bool
durable_probe_previous(DurableProbe *probe, DurableRow *row)
{
	return probe_step(probe, BackwardScanDirection, row);
}

void
durable_probe_close(DurableProbe *probe)
{
	Kept	   *kept = probe->kept ? add_kept(probe->which, probe->which_index) : NULL;

	if (kept != NULL)
	{
		/* pins no page meanwhile */
		ExecClearTuple(probe->slot);
		table_index_fetch_reset(probe->scan->xs_heapfetch);
		kept->probe = *probe;
		return;
	}
	index_endscan(probe->scan);
	ExecDropSingleTupleTableSlot(probe->slot);
	index_close(probe->index, AccessShareLock);
	/* a row's place that was read here holds only while the table is not
	 * rewritten */
	table_close(probe->rel, NoLock);
}

bool
durable_table_is_unused(DurableRel table)
{
	Relation	rel = durable_table_open(table, AccessShareLock);
	bool		unused = RelationGetNumberOfBlocks(rel) == 0;

	table_close(rel, AccessShareLock);
	return unused;
}

void
durable_slot_row(TupleTableSlot *slot, DurableRow *row)
{
	int			natts = slot->tts_tupleDescriptor->natts;

	slot_getallattrs(slot);
	memcpy(row->values, slot->tts_values, sizeof(Datum) * natts);
	memcpy(row->nulls, slot->tts_isnull, sizeof(bool) * natts);
	row->tid = slot->tts_tid;
}

void
durable_row_copy(Relation rel, const DurableRow *row, DurableRow *copy)
{
	TupleDesc	desc = RelationGetDescr(rel);

	*copy = *row;
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!row->nulls[i] && !att->attbyval)
			copy->values[i] = datumCopy(row->values[i], false, att->attlen);
	}
}

Snapshot
durable_snapshot_push(void)
{
	CommandCounterIncrement();
	PushActiveSnapshot(GetLatestSnapshot());
	return GetActiveSnapshot();
}

void
durable_snapshot_pop(void)
{
	PopActiveSnapshot();
	CommandCounterIncrement();
}

/* The state of the row version at tid, with this transaction's own insertions
 * taken as done; a pruned one counts as dead, one that
 * moved along its chain as live. */
static HTSV_Result
row_state(Relation rel, ItemPointer tid, bool *own_deleted)
{
	Buffer		buffer = ReadBuffer(rel, ItemPointerGetBlockNumber(tid));
	HTSV_Result state = HEAPTUPLE_DEAD;
	Page		page;
	ItemId		item;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	item = PageGetItemId(page, ItemPointerGetOffsetNumber(tid));
	if (ItemIdIsNormal(item))
	{
		HeapTupleData tuple;

		tuple.t_data = (HeapTupleHeader) PageGetItem(page, item);
		tuple.t_len = ItemIdGetLength(item);
		tuple.t_tableOid = RelationGetRelid(rel);
		tuple.t_self = *tid;
		/* the horizon only tells DEAD from RECENTLY_DEAD, which are one here;
		 * a version that was replaced in place stands for its successors */
		state = HeapTupleHeaderIsHotUpdated(tuple.t_data) ? HEAPTUPLE_LIVE :
			HeapTupleSatisfiesVacuum(&tuple, FirstNormalTransactionId, buffer);
		if (state == HEAPTUPLE_INSERT_IN_PROGRESS &&
			TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple.t_data)))
			state = HEAPTUPLE_LIVE;
		if (state == HEAPTUPLE_DELETE_IN_PROGRESS && own_deleted != NULL)
			*own_deleted =
				TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetUpdateXid(tuple.t_data));
	}
	else if (ItemIdIsRedirected(item))
		state = HEAPTUPLE_LIVE;
	UnlockReleaseBuffer(buffer);
	return state;
}

bool
durable_row_is_dead(Relation rel, ItemPointer tid)
{
	HTSV_Result state = row_state(rel, tid, NULL);

	return state == HEAPTUPLE_DEAD || state == HEAPTUPLE_RECENTLY_DEAD;
}

bool
durable_row_is_gone(Relation rel, ItemPointer tid)
{
	bool		own_deleted = false;
	HTSV_Result state = row_state(rel, tid, &own_deleted);

	return own_deleted || state == HEAPTUPLE_DEAD || state == HEAPTUPLE_RECENTLY_DEAD;
}

bool
durable_row_is_live(Relation rel, ItemPointer tid)
{
	return row_state(rel, tid, NULL) == HEAPTUPLE_LIVE;
}
