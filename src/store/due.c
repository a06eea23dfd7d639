/*-------------------------------------------------------------------------
 *
 * due.c
 *	  Lists in order of time: what is due in a queue, and when the next is.
 *
 * Delayed tasks and leases are such lists. They have hints like the ready tasks,
 * and here the hint is also the alarm clock: it stands at the first row that is
 * alive, so a hint in the future means that nothing is due.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/timestamp.h"

#include "store/due.h"
#include "store/hop.h"

/* columns of the index */
enum
{
	DUE_NAMESPACE = 1,
	DUE_QUEUE,
	DUE_TIME,
	DUE_COLUMNS = DUE_TIME
};

DurableKey
durable_list_key(const char *kind, const text *namespace, const text *queue)
{
	DurableKey	none = {{0, 0}, InvalidOid};

	if (durable_shared == NULL)
		return none;
	return durable_key(kind, VARDATA_ANY(namespace), VARSIZE_ANY_EXHDR(namespace),
					   VARDATA_ANY(queue), VARSIZE_ANY_EXHDR(queue));
}

bool
durable_due_begin(DurableDueScan *scan, const char *kind, DurableRel table, DurableRel index,
				  text *namespace, text *queue, TimestampTz now)
{
	DurableKey	list = durable_list_key(kind, namespace, queue);
	DurableHint *hint = &scan->hint;

	durable_hint_begin(hint, &list, 0);
	scan->table = table;
	scan->index = index;
	scan->namespace = namespace;
	scan->queue = queue;
	scan->now = now;
	scan->patience = DURABLE_WALK_PATIENCE;
	scan->next = hint->nholes > 0 ? hint->holes[0] : hint->start;
	if (scan->next <= now || hint->check)
		return true;
	durable_hint_end(hint);
	return false;
}

void
durable_due_open(DurableDueScan *scan, Snapshot snapshot)
{
	ScanKeyData keys[DUE_COLUMNS];

	durable_walk_open(&scan->walk, scan->table, scan->index, snapshot, DUE_COLUMNS, DUE_TIME);
	ScanKeyInit(&keys[0], DUE_NAMESPACE, BTEqualStrategyNumber, F_TEXTEQ,
				PointerGetDatum(scan->namespace));
	ScanKeyInit(&keys[1], DUE_QUEUE, BTEqualStrategyNumber, F_TEXTEQ,
				PointerGetDatum(scan->queue));
	ScanKeyInit(&keys[2], DUE_TIME, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE,
				TimestampTzGetDatum(scan->hint.start));
	durable_walk_start(&scan->walk, keys, &scan->hint);
}

bool
durable_due_next(DurableDueScan *scan)
{
	while (durable_walk_next(&scan->walk))
	{
		bool		visible;
		bool		later = (scan->walk.position > scan->now);

		CHECK_FOR_INTERRUPTS();
		visible = durable_walk_visible(&scan->walk);
		if (later && scan->walk.check_left > 0)
			continue;			/* only a check of what stands before the hint */
		scan->next = scan->walk.position;
		if (later && (visible || !scan->walk.intact || --scan->patience == 0))
		{
			durable_walk_stop(&scan->walk, false);
			return false;
		}
		if (visible)
			return true;
	}
	durable_walk_stop(&scan->walk, true);
	scan->next = DURABLE_POSITION_END;
	return false;
}

void
durable_due_close(DurableDueScan *scan)
{
	durable_walk_close(&scan->walk);
}

int
durable_list_names(DurableRel table, DurableRel index, int namespace, int queue,
				   DurableListName **lists)
{
	DurableHop	hop;
	DurableRow	row;
	int			space = 16;
	int			n = 0;

	*lists = palloc(sizeof(DurableListName) * space);
	durable_hop_open(&hop, table, index, namespace, queue);
	while (durable_hop_next(&hop, &row))
	{
		if (n == space)
			*lists = repalloc(*lists, sizeof(DurableListName) * (space *= 2));
		(*lists)[n].namespace = hop.at_major;
		(*lists)[n].queue = hop.at_minor;
		n++;
	}
	durable_hop_close(&hop);
	return n;
}
