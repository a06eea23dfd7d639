/*-------------------------------------------------------------------------
 *
 * walk.c
 *	  Walking an index in order, from where its hint says to begin.
 *
 * The walk reads index entries one by one, also those of dead rows, because
 * it has to know how far the dead head of the list reaches. See hint.c for
 * what makes moving a hint safe; the part this file keeps is that the hint was
 * begun before the first index page is read, and that the prefix ends at the
 * first entry that is not dead for good.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "access/table.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

#include "base/compat.h"
#include "base/walk.h"

void
durable_walk_open(DurableWalk *walk, DurableRel table, DurableRel index,
				  Snapshot snapshot, int nkeys, int position_column)
{
	walk->rel = durable_table_open(table, RowExclusiveLock);
	walk->index = durable_index_open(index);
	walk->slot = table_slot_create(walk->rel, NULL);
	walk->nkeys = nkeys;
	walk->position_column = position_column;
	walk->scan = compat_index_beginscan(walk->rel, walk->index, snapshot, nkeys);
	/* keep the index tuples: the position is read from them */
	walk->scan->xs_want_itup = true;
	walk->intact = false;
}

void
durable_walk_close(DurableWalk *walk)
{
	if (walk->intact)
		durable_hint_end(&walk->hint);
	index_endscan(walk->scan);
	ExecDropSingleTupleTableSlot(walk->slot);
	index_close(walk->index, AccessShareLock);
	table_close(walk->rel, NoLock);
}

/* Positions are of type bigint or timestamptz, which compare alike. */
static void
look_from(DurableWalk *walk, StrategyNumber op, RegProcedure op_proc, int64 position)
{
	ScanKeyData keys[DURABLE_WALK_KEYS];

	memcpy(keys, walk->keys, sizeof(keys));
	ScanKeyInit(&keys[walk->nkeys - 1], keys[walk->nkeys - 1].sk_attno, op, op_proc,
				Int64GetDatum(position));
	index_rescan(walk->scan, keys, walk->nkeys, NULL, 0);
}

/* The next hole, or past the last one the list itself. */
static void
go_on(DurableWalk *walk)
{
	if (walk->next_hole < walk->hint.nholes)
		look_from(walk, BTEqualStrategyNumber, F_INT8EQ,
				  walk->hint.holes[walk->next_hole++]);
	else
	{
		walk->in_holes = false;
		index_rescan(walk->scan, walk->keys, walk->nkeys, NULL, 0);
	}
}

void
durable_walk_start(DurableWalk *walk, ScanKey keys, const DurableHint *hint)
{
	if (walk->intact)
		durable_hint_end(&walk->hint);
	memcpy(walk->keys, keys, sizeof(ScanKeyData) * walk->nkeys);
	walk->intact = (hint != NULL && hint->tracked);
	walk->nholes = 0;
	walk->unpublished = 0;
	walk->next_hole = 0;
	if (hint != NULL)
		walk->hint = *hint;
	else
		memset(&walk->hint, 0, sizeof(walk->hint));
	walk->in_holes = walk->hint.nholes > 0;
	walk->check_left = walk->hint.check ? DURABLE_WALK_CHECK : 0;
	if (walk->check_left > 0)
		look_from(walk, BTGreaterEqualStrategyNumber, F_INT8GE, walk->hint.check_from);
	else
		go_on(walk);
}

/* The next check goes on from here, or begins anew. */
static void
end_check(DurableWalk *walk, bool complete)
{
	int64		next = DURABLE_POSITION_MIN;

	if (!complete)
		next = walk->position + (walk->position == walk->hint.check_from);
	walk->check_left = 0;
	durable_hint_checked(&walk->hint, next);
	go_on(walk);
}

static bool
is_hole(const DurableWalk *walk)
{
	for (int i = 0; i < walk->hint.nholes; i++)
	{
		if (walk->hint.holes[i] == walk->position)
			return true;
	}
	return false;
}

bool
durable_walk_next(DurableWalk *walk)
{
	for (;;)
	{
		bool		isnull;

		if (index_getnext_tid(walk->scan, ForwardScanDirection) == NULL)
		{
			if (walk->check_left > 0)
				end_check(walk, true);
			else if (walk->in_holes)
				go_on(walk);
			else
				return false;
			continue;
		}
		walk->position = DatumGetInt64(index_getattr(walk->scan->xs_itup,
													 walk->position_column,
													 walk->scan->xs_itupdesc, &isnull));
		if (walk->check_left == 0)
			return true;
		if (walk->position >= walk->hint.start)
			end_check(walk, true);
		else if (--walk->check_left == 0)
			end_check(walk, false);
		else if (!is_hole(walk))
			return true;
	}
}

/* The current entry is not dead for good: it becomes a hole, or ends what the
 * walk can vouch for. A row that is simply there does the latter. */
static void
note_undecided(DurableWalk *walk, bool alive)
{
	int			n = walk->nholes;

	if (n > 0 && walk->holes[n - 1] == walk->position && (walk->in_holes || !alive))
		return;
	if ((walk->in_holes || !alive) && n < DURABLE_HINT_HOLES)
		walk->holes[walk->nholes++] = walk->position;
	else if (walk->in_holes)
	{
		walk->intact = false;
		durable_hint_end(&walk->hint);
	}
	else
		durable_walk_stop(walk, false);
}

bool
durable_walk_visible(DurableWalk *walk)
{
	ItemPointerData tid = walk->scan->xs_heaptid;
	bool		visible = index_fetch_heap(walk->scan, walk->slot);

	if (!walk->intact || walk->check_left > 0)
		return visible;
	if (visible)
		note_undecided(walk, durable_row_is_live(walk->rel, &walk->slot->tts_tid));
	else if (!durable_row_is_dead(walk->rel, &tid))
		note_undecided(walk, false);
	else if (!walk->in_holes && ++walk->unpublished == DURABLE_WALK_PUBLISH)
	{
		walk->unpublished = 0;
		durable_hint_advance(&walk->hint, walk->position, walk->holes, walk->nholes, false);
	}
	return visible;
}

/* Everything before the current entry was dead, but for the holes. */
void
durable_walk_stop(DurableWalk *walk, bool exhausted)
{
	if (!walk->intact || walk->in_holes || walk->check_left > 0)
		return;
	durable_hint_advance(&walk->hint,
						 exhausted ? DURABLE_POSITION_END : walk->position,
						 walk->holes, walk->nholes, true);
	walk->intact = false;
}
