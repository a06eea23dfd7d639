/*-------------------------------------------------------------------------
 *
 * lease.c
 *	  durable.lease: claim rounds.
 *
 * The token is a uuid whose first half is the lease's id, so that new rows go
 * to the right edge of the index, and whose second half is random, so that it
 * cannot be guessed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "storage/ipc.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/errors.h"
#include "base/executing.h"
#include "base/ids.h"
#include "base/lock_class.h"
#include "base/names.h"
#include "base/wakeup.h"
#include "store/lease.h"

static const char *const kind_names[] = {
	[LEASE_OF_TASKS] = "task",
	[LEASE_OF_RESULTS] = "result",
};

#define LEASE_LIST "lease"

/* Random bytes are cheap by the hundred and dear one by one. Each is handed out
 * once; a forked child never inherits the rest, backends do not fork. */
static void
draw_secret(uint8 *target, int length)
{
	static uint8 pool[1024];
	static int	used = sizeof(pool);

	if (used + length > (int) sizeof(pool))
	{
		if (!pg_strong_random(pool, sizeof(pool)))
			ereport(ERROR,
					errcode(ERRCODE_INTERNAL_ERROR),
					errmsg("could not generate random values"));
		used = 0;
	}
	memcpy(target, pool + used, length);
	explicit_bzero(pool + used, length);
	used += length;
}

void
durable_lease_new(DurableLease *lease)
{
	uint64		number;

	memset(lease, 0, sizeof(DurableLease));
	lease->queue = cstring_to_text("");
	lease->id = durable_sequence_next(SEQ_LEASE);
	number = pg_hton64((uint64) lease->id);
	memcpy(lease->token.data, &number, sizeof(number));
	draw_secret(lease->token.data + sizeof(number), UUID_LEN - sizeof(number));
}

static void
lease_tag(LOCKTAG *tag, int64 lease)
{
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, (uint32) ((uint64) lease >> 32),
						 (uint32) lease, LEASE_LOCK_CLASS);
}

/* The one that this session holds, or 0. */
static int64 held_here = 0;

/* Runs after the server has let go of the session's locks. */
static void
at_backend_exit(int code, Datum arg)
{
	if (held_here != 0)
		durable_scheduler_wake(MyDatabaseId, SCHEDULER_LOOK_DEAD);
}

void
durable_lease_hold(int64 lease)
{
	static bool exit_registered = false;
	LOCKTAG		tag;

	if (!exit_registered)
		on_shmem_exit(at_backend_exit, (Datum) 0);
	exit_registered = true;
	held_here = lease;
	lease_tag(&tag, lease);
	(void) LockAcquire(&tag, ExclusiveLock, true, false);
}

void
durable_lease_keep(void)
{
	LOCKTAG		tag;

	if (held_here == 0)
		return;
	lease_tag(&tag, held_here);
	if (LockAcquire(&tag, ExclusiveLock, true, true) == LOCKACQUIRE_ALREADY_HELD)
		(void) LockRelease(&tag, ExclusiveLock, true);
	/* another mode, so that it can be told apart from the session's */
	(void) LockAcquire(&tag, AccessExclusiveLock, false, true);
}

void
durable_lease_let_go(int64 lease)
{
	LOCKTAG		tag;

	held_here = 0;
	lease_tag(&tag, lease);
	durable_lock_release_session(&tag, ExclusiveLock);
}

static bool
is_session(const DurableLease *lease)
{
	return lease->worker != NULL &&
		durable_text_is(lease->worker, DURABLE_SESSION_WORKER);
}

bool
durable_lease_is_alive(const DurableLease *lease)
{
	LOCKTAG		tag;

	if (!is_session(lease))
		return false;
	/* a step may look after claims itself, its own among them */
	if (lease->id == held_here)
		return true;
	lease_tag(&tag, lease->id);
	if (LockAcquire(&tag, ShareLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		return true;
	(void) LockRelease(&tag, ShareLock, false);
	return false;
}

TimestampTz
durable_lease_until(TimestampTz now, const Interval *span)
{
	TimestampTz until = durable_clock_add(now, span);

	if (until <= now)
		durable_error_value("lease", "It must be longer than zero.");
	return until;
}

static void
lease_to_row(const DurableLease *lease, DurableRow *row)
{
	row->tid = lease->tid;
	durable_row_set(row, LEASE_ID, Int64GetDatum(lease->id));
	durable_row_set(row, LEASE_TOKEN, UUIDPGetDatum(&lease->token));
	durable_row_set(row, LEASE_UNTIL, TimestampTzGetDatum(lease->until));
	durable_row_set(row, LEASE_CLAIMED_AT, TimestampTzGetDatum(lease->claimed_at));
	durable_row_set(row, LEASE_KIND, CStringGetTextDatum(kind_names[lease->kind]));
	durable_row_set(row, LEASE_NAMESPACE, PointerGetDatum(lease->namespace));
	durable_row_set(row, LEASE_QUEUE, PointerGetDatum(lease->queue));
	durable_row_set_pointer(row, LEASE_WORKER, lease->worker);
	/* a long list that has not changed is not written again */
	durable_row_set_pointer(row, LEASE_IDS, lease->stored_ids != NULL ? (void *) lease->stored_ids :
							(void *) durable_ids_to_array(lease->ids, lease->nids));
	durable_row_set_pointer(row, LEASE_SEEN, lease->stored_seen != NULL ? (void *) lease->stored_seen :
							lease->nseen == 0 ? NULL :
							(void *) durable_ids_to_array(lease->seen, lease->nseen));
}

static void
lease_from_row(const DurableRow *row, DurableLease *lease)
{
	lease->tid = row->tid;
	lease->id = DatumGetInt64(row->values[LEASE_ID]);
	lease->token = *DatumGetUUIDP(row->values[LEASE_TOKEN]);
	lease->until = DatumGetTimestampTz(row->values[LEASE_UNTIL]);
	lease->claimed_at = DatumGetTimestampTz(row->values[LEASE_CLAIMED_AT]);
	lease->kind = durable_label_index(row->values[LEASE_KIND], kind_names,
									  lengthof(kind_names), "the kind of a lease");
	lease->namespace = DatumGetTextPCopy(row->values[LEASE_NAMESPACE]);
	lease->queue = DatumGetTextPCopy(row->values[LEASE_QUEUE]);
	lease->worker = row->nulls[LEASE_WORKER] ? NULL :
		DatumGetTextPCopy(row->values[LEASE_WORKER]);
	lease->stored_ids = (struct varlena *) DatumGetPointer(datumCopy(row->values[LEASE_IDS],
																	 false, -1));
	lease->ids = durable_ids_from_array(DatumGetArrayTypeP(row->values[LEASE_IDS]),
										&lease->nids);
	lease->nseen = 0;
	lease->seen = NULL;
	lease->stored_seen = NULL;
	if (row->nulls[LEASE_SEEN])
		return;
	lease->stored_seen = (struct varlena *) DatumGetPointer(datumCopy(row->values[LEASE_SEEN],
																	  false, -1));
	lease->seen = durable_ids_from_array(DatumGetArrayTypeP(row->values[LEASE_SEEN]),
										 &lease->nseen);
}

void
durable_lease_note_wakes(DurableLease *lease, int64 run, int wakes)
{
	int			size = sizeof(int64) * (lease->nseen + 2);

	/* a power of two each time, so that a large round is not copied for each */
	if (lease->nseen == 0)
		lease->seen = palloc(size);
	else if ((lease->nseen & (lease->nseen - 1)) == 0)
		lease->seen = repalloc(lease->seen, sizeof(int64) * lease->nseen * 2);
	lease->seen[lease->nseen++] = run;
	lease->seen[lease->nseen++] = wakes;
}

int
durable_lease_wakes(const DurableLease *lease, int64 run)
{
	for (int i = 0; i < lease->nseen; i += 2)
	{
		if (lease->seen[i] == run)
			return (int) lease->seen[i + 1];
	}
	return -1;
}

/* A lease now stands in the index: whoever looks for lapsed ones must know. */
static void
announce(const DurableLease *lease)
{
	DurableKey	key;

	if (durable_shared == NULL)
		return;
	key = durable_list_key(LEASE_LIST, lease->namespace, lease->queue);
	durable_hint_inserted(&key, 0, lease->until, lease->until);
	/* the end of a session is noticed by itself */
	if (!is_session(lease))
		durable_wakeup_note_due(lease->until);
}

void
durable_lease_insert(DurableLease *lease)
{
	DurableWriter writer;
	DurableRow	row;

	lease_to_row(lease, &row);
	durable_writer_open(&writer, REL_LEASE);
	durable_writer_insert(&writer, &row);
	durable_writer_close(&writer);
	announce(lease);
}

bool
durable_lease_find(const pg_uuid_t *token, DurableLease *lease)
{
	uint64		number;
	Datum		key;
	DurableProbe probe;
	DurableRow	row;
	bool		found;

	memcpy(&number, token->data, sizeof(number));
	key = Int64GetDatum((int64) pg_ntoh64(number));
	durable_probe_open(&probe, REL_LEASE, IDX_LEASE_PKEY, GetActiveSnapshot(), 1);
	found = durable_probe_find(&probe, &key, &row) &&
		memcmp(DatumGetUUIDP(row.values[LEASE_TOKEN])->data, token->data, UUID_LEN) == 0;
	if (found)
		lease_from_row(&row, lease);
	durable_probe_close(&probe);
	return found;
}

bool
durable_lease_is_there(int64 id)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		key = Int64GetDatum(id);
	bool		found;

	durable_probe_open(&probe, REL_LEASE, IDX_LEASE_PKEY, durable_snapshot_push(), 1);
	found = durable_probe_find(&probe, &key, &row);
	durable_probe_close(&probe);
	durable_snapshot_pop();
	return found;
}

bool
durable_lease_holds(const DurableLease *lease, int64 id)
{
	int			low = 0;
	int			high = lease->nids;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (lease->ids[middle] == id)
			return true;
		if (lease->ids[middle] < id)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

TM_Result
durable_lease_update(const DurableLease *lease, bool wait)
{
	DurableWriter writer;
	DurableRow	row;
	TM_Result	result;

	lease_to_row(lease, &row);
	durable_writer_open(&writer, REL_LEASE);
	result = durable_writer_update(&writer, &row, wait);
	durable_writer_close(&writer);
	if (result == TM_Ok)
		announce(lease);
	return result;
}

bool
durable_lease_lock(const DurableLease *lease)
{
	DurableWriter writer;
	ItemPointerData tid = lease->tid;
	TM_Result	result;

	durable_writer_open(&writer, REL_LEASE);
	result = durable_writer_lock(&writer, &tid, false, true, NULL);
	durable_writer_close(&writer);
	return result == TM_Ok;
}

TM_Result
durable_lease_delete(const DurableLease *lease, bool wait)
{
	DurableWriter writer;
	ItemPointerData tid = lease->tid;
	TM_Result	result;

	durable_writer_open(&writer, REL_LEASE);
	result = durable_writer_delete(&writer, &tid, wait);
	durable_writer_close(&writer);
	return result;
}

bool
durable_lapsed_begin(DurableDueScan *scan, text *namespace, text *queue, TimestampTz now)
{
	return durable_due_begin(scan, LEASE_LIST, REL_LEASE, IDX_LEASE_UNTIL, namespace, queue, now);
}

bool
durable_lapsed_next(DurableDueScan *scan, DurableLease *lease)
{
	DurableRow	row;

	if (!durable_due_next(scan))
		return false;
	durable_slot_row(scan->walk.slot, &row);
	lease_from_row(&row, lease);
	return true;
}

int
durable_lease_sessions(Snapshot snapshot, DurableLease **leases)
{
	Relation	rel = durable_table_open(REL_LEASE, AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);
	int			space = 16;
	int			n = 0;

	*leases = palloc(sizeof(DurableLease) * space);
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		DurableRow	row;

		CHECK_FOR_INTERRUPTS();
		durable_slot_row(slot, &row);
		if (row.nulls[LEASE_WORKER] ||
			!durable_text_is(DatumGetTextPP(row.values[LEASE_WORKER]), DURABLE_SESSION_WORKER))
			continue;
		if (n == space)
			*leases = repalloc(*leases, sizeof(DurableLease) * (space *= 2));
		lease_from_row(&row, &(*leases)[n]);
		n++;
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, AccessShareLock);
	return n;
}

int
durable_lease_lists(DurableListName **lists)
{
	return durable_list_names(REL_LEASE, IDX_LEASE_UNTIL, LEASE_NAMESPACE, LEASE_QUEUE, lists);
}
