/*-------------------------------------------------------------------------
 *
 * hop.c
 *	  From group to group along an index: the first row of each.
 *
 * Sweeps look at every list of the database, mostly to find that nothing is due. A
 * query that hops takes 40 microseconds, this one descent of the index for each group
 * and one for the end.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"

#include "store/hop.h"

#define HOP_KEYS 2

void
durable_hop_open(DurableHop *hop, DurableRel table, DurableRel index, int major, int minor)
{
	hop->major = major;
	hop->minor = minor;
	hop->at_major = NULL;
	hop->at_minor = NULL;
	durable_probe_open(&hop->probe, table, index, durable_snapshot_push(), HOP_KEYS);
}

void
durable_hop_close(DurableHop *hop)
{
	durable_probe_close(&hop->probe);
	durable_snapshot_pop();
}

static bool
find(DurableHop *hop, StrategyNumber strategy, RegProcedure compare, text *major,
	 RegProcedure compare_minor, text *minor, DurableRow *row)
{
	ScanKeyData keys[HOP_KEYS];

	ScanKeyInit(&keys[0], 1, strategy, compare, PointerGetDatum(major));
	ScanKeyInit(&keys[1], 2,
				compare_minor == F_TEXT_GT ? BTGreaterStrategyNumber : BTGreaterEqualStrategyNumber,
				compare_minor, PointerGetDatum(minor));
	index_rescan(hop->probe.scan, keys, HOP_KEYS, NULL, 0);
	return durable_probe_next(&hop->probe, row);
}

bool
durable_hop_next(DurableHop *hop, DurableRow *row)
{
	text	   *first = cstring_to_text("");
	bool		found;

	CHECK_FOR_INTERRUPTS();
	if (hop->at_major == NULL)
		found = find(hop, BTGreaterEqualStrategyNumber, F_TEXT_GE, first, F_TEXT_GE, first, row);
	else
		found = find(hop, BTEqualStrategyNumber, F_TEXTEQ, hop->at_major,
					 F_TEXT_GT, hop->at_minor, row) ||
			find(hop, BTGreaterStrategyNumber, F_TEXT_GT, hop->at_major, F_TEXT_GE, first, row);
	if (!found)
		return false;
	hop->at_major = DatumGetTextPCopy(row->values[hop->major]);
	hop->at_minor = DatumGetTextPCopy(row->values[hop->minor]);
	return true;
}
