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

#include "access/table.h"
#include "utils/rel.h"

#include "base/compat.h"
#include "base/walk.h"

void
durable_walk_open(DurableWalk *walk, DurableRel table, DurableRel index,
				  Snapshot snapshot, int nkeys, int position_column)
{
	walk->rel = table_open(durable_rel(table), RowExclusiveLock);
	walk->index = index_open(durable_rel(index), AccessShareLock);
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
	index_endscan(walk->scan);
	ExecDropSingleTupleTableSlot(walk->slot);
	index_close(walk->index, AccessShareLock);
	table_close(walk->rel, NoLock);
}

void
durable_walk_start(DurableWalk *walk, ScanKey keys, const DurableHint *hint)
{
	walk->intact = (hint != NULL && hint->tracked);
	if (walk->intact)
		walk->hint = *hint;
	index_rescan(walk->scan, keys, walk->nkeys, NULL, 0);
}

bool
durable_walk_next(DurableWalk *walk)
{
	bool		isnull;

	if (index_getnext_tid(walk->scan, ForwardScanDirection) == NULL)
		return false;
	walk->position = DatumGetInt64(index_getattr(walk->scan->xs_itup,
												 walk->position_column,
												 walk->scan->xs_itupdesc, &isnull));
	return true;
}

bool
durable_walk_visible(DurableWalk *walk)
{
	ItemPointerData tid = walk->scan->xs_heaptid;

	if (index_fetch_heap(walk->scan, walk->slot))
	{
		if (walk->intact)
			durable_walk_stop(walk, false);
		return true;
	}
	if (walk->intact && !durable_row_is_dead(walk->rel, &tid))
		durable_walk_stop(walk, false);
	return false;
}

/* Everything before the current entry was dead. */
void
durable_walk_stop(DurableWalk *walk, bool exhausted)
{
	if (!walk->intact)
		return;
	durable_hint_advance(&walk->hint,
						 exhausted ? DURABLE_POSITION_END : walk->position);
	walk->intact = false;
}
