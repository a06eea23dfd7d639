/*-------------------------------------------------------------------------
 *
 * schedule.c
 *	  durable.schedule: at which times workflows are started.
 *
 * The table is looked at in every sweep, so the look costs one descent of one
 * index and no query. Rows are written like those of the hot tables: locked in
 * their newest version at every isolation level.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/names.h"
#include "store/schedule.h"

static const char *const overlap_names[] = {
	[OVERLAP_ALLOW] = "allow",
	[OVERLAP_SKIP] = "skip",
};

static const char *const catchup_names[] = {
	[CATCHUP_ONE] = "one",
	[CATCHUP_SKIP] = "skip",
	[CATCHUP_ALL] = "all",
};

DurableOverlap
durable_schedule_overlap(const DurableRow *row)
{
	return durable_label_index(row->values[SCHEDULE_OVERLAP], overlap_names,
							   lengthof(overlap_names), "the overlap policy of a schedule");
}

DurableCatchup
durable_schedule_catchup(const DurableRow *row)
{
	return durable_label_index(row->values[SCHEDULE_CATCHUP], catchup_names,
							   lengthof(catchup_names), "the catch-up policy of a schedule");
}

static bool
is_one_of(const text *name, const char *const *names, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (durable_text_is(name, names[i]))
			return true;
	}
	return false;
}

bool
durable_overlap_known(const text *name)
{
	return is_one_of(name, overlap_names, lengthof(overlap_names));
}

bool
durable_catchup_known(const text *name)
{
	return is_one_of(name, catchup_names, lengthof(catchup_names));
}

TimestampTz
durable_schedule_time(const DurableRow *row, int column, TimestampTz absent)
{
	return row->nulls[column] ? absent : DatumGetTimestampTz(row->values[column]);
}

void
durable_schedule_set_time(DurableRow *row, int column, TimestampTz t)
{
	if (TIMESTAMP_NOT_FINITE(t))
		durable_row_set_null(row, column);
	else
		durable_row_set(row, column, TimestampTzGetDatum(t));
}

bool
durable_schedule_open(DurableSchedule *schedule, text *id)
{
	DurableProbe probe;
	Datum		key = PointerGetDatum(id);
	TM_Result	result = TM_Deleted;

	durable_writer_open(&schedule->writer, REL_SCHEDULE);
	durable_probe_open(&probe, REL_SCHEDULE, IDX_SCHEDULE_PKEY, durable_snapshot_push(), 1);
	if (durable_probe_find(&probe, &key, &schedule->row))
		result = durable_writer_lock(&schedule->writer, &schedule->row.tid, true, false,
									 &schedule->row);
	durable_probe_close(&probe);
	durable_snapshot_pop();
	if (result != TM_Ok)
		durable_writer_close(&schedule->writer);
	return result == TM_Ok;
}

/* A locked row has no other version that a newer snapshot could see. */
void
durable_schedule_update(DurableSchedule *schedule)
{
	durable_snapshot_push();
	if (durable_writer_update(&schedule->writer, &schedule->row, true) != TM_Ok)
		elog(ERROR, "a locked schedule was changed by somebody else");
	durable_snapshot_pop();
}

void
durable_schedule_delete(DurableSchedule *schedule)
{
	durable_snapshot_push();
	if (durable_writer_delete(&schedule->writer, &schedule->row.tid, true) != TM_Ok)
		elog(ERROR, "a locked schedule was changed by somebody else");
	durable_snapshot_pop();
}

void
durable_schedule_close(DurableSchedule *schedule)
{
	durable_writer_close(&schedule->writer);
}

bool
durable_schedule_read(text *id, DurableRow *row)
{
	DurableProbe probe;
	Datum		key = PointerGetDatum(id);
	TupleDesc	desc;
	bool		found;

	durable_probe_open(&probe, REL_SCHEDULE, IDX_SCHEDULE_PKEY, durable_snapshot_push(), 1);
	found = durable_probe_find(&probe, &key, row);
	desc = RelationGetDescr(probe.rel);
	for (int i = 0; found && i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (row->nulls[i] || att->attbyval)
			continue;
		if (att->attlen == -1)
			row->values[i] = PointerGetDatum(PG_DETOAST_DATUM_COPY(row->values[i]));
		else
		{
			void	   *copy = palloc(att->attlen);

			memcpy(copy, DatumGetPointer(row->values[i]), att->attlen);
			row->values[i] = PointerGetDatum(copy);
		}
	}
	durable_probe_close(&probe);
	durable_snapshot_pop();
	return found;
}

bool
durable_schedule_insert(const DurableRow *row)
{
	DurableWriter writer;
	bool		inserted;

	durable_writer_open(&writer, REL_SCHEDULE);
	durable_snapshot_push();
	inserted = durable_writer_insert_unless(&writer, IDX_SCHEDULE_PKEY, row);
	durable_snapshot_pop();
	durable_writer_close(&writer);
	return inserted;
}

/* ------------------------------------------------------------------- scans */

/* The next index entry's row is in "seen", if it is within the limit. */
static void
look(DurableScheduleScan *scan)
{
	int			column = scan->backwards ? SCHEDULE_LAST_WINDOW : SCHEDULE_NEXT_FIRE;

	scan->found = durable_probe_next(&scan->probe, &scan->seen) && !scan->seen.nulls[column];
	if (scan->found)
	{
		TimestampTz t = DatumGetTimestampTz(scan->seen.values[column]);

		scan->found = scan->backwards ? t > scan->limit : t <= scan->limit;
	}
}

static bool
begin_scan(DurableScheduleScan *scan, DurableRel index)
{
	scan->writing = false;
	durable_probe_open(&scan->probe, REL_SCHEDULE, index, durable_snapshot_push(), 0);
	index_rescan(scan->probe.scan, NULL, 0, NULL, 0);
	look(scan);
	if (scan->found)
		return true;
	durable_schedules_close(scan);
	return false;
}

bool
durable_schedules_due(DurableScheduleScan *scan, TimestampTz now)
{
	scan->backwards = false;
	scan->limit = now;
	return begin_scan(scan, IDX_SCHEDULE_NEXT_FIRE);
}

bool
durable_schedules_ahead(DurableScheduleScan *scan, TimestampTz instant)
{
	scan->backwards = true;
	scan->limit = instant;
	return begin_scan(scan, IDX_SCHEDULE_LAST_WINDOW);
}

bool
durable_schedules_next(DurableScheduleScan *scan)
{
	while (scan->found)
	{
		TM_Result	result;

		CHECK_FOR_INTERRUPTS();
		if (!scan->writing)
			durable_writer_open(&scan->schedule.writer, REL_SCHEDULE);
		scan->writing = true;
		/* only the version that was seen: a newer one is somebody's who was faster */
		result = durable_writer_lock(&scan->schedule.writer, &scan->seen.tid, false, true,
									 &scan->schedule.row);
		look(scan);
		if (result == TM_Ok)
			return true;
	}
	return false;
}

void
durable_schedules_close(DurableScheduleScan *scan)
{
	durable_probe_close(&scan->probe);
	durable_snapshot_pop();
	if (scan->writing)
		durable_writer_close(&scan->schedule.writer);
}

TimestampTz
durable_schedules_first(void)
{
	DurableScheduleScan scan;
	TimestampTz first;

	if (!durable_schedules_due(&scan, DT_NOEND - 1))
		return DT_NOEND;
	first = DatumGetTimestampTz(scan.seen.values[SCHEDULE_NEXT_FIRE]);
	durable_schedules_close(&scan);
	return first;
}
