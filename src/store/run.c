/*-------------------------------------------------------------------------
 *
 * run.c
 *	  durable.run: executions of workflows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "base/names.h"
#include "store/run.h"
#include "store/task.h"

static const char *const status_names[] = {
	[RUN_PENDING] = "pending",
	[RUN_RUNNING] = "running",
	[RUN_SUSPENDED] = "suspended",
	[RUN_BLOCKED] = "blocked",
	[RUN_COMPLETED] = "completed",
	[RUN_FAILED] = "failed",
	[RUN_CANCELLED] = "cancelled",
	[RUN_DEAD] = "dead",
};

static const char *const turn_state_names[] = {
	[TURN_READY] = "ready",
	[TURN_DELAYED] = "delayed",
	[TURN_PARKED] = "parked",
	[TURN_LIMITED] = "limited",
	[TURN_NONE] = "none",
};

const char *
durable_run_status_name(DurableRunStatus status)
{
	return status_names[status];
}

DurableRunStatus
durable_run_status(const DurableRow *row)
{
	return durable_label_index(row->values[RUN_STATUS], status_names,
							   lengthof(status_names), "the status of a run");
}

bool
durable_run_has_ended(const DurableRow *row)
{
	return durable_run_status(row) >= RUN_COMPLETED;
}

DurableTurnState
durable_run_turn_state(const DurableRow *row)
{
	return durable_label_index(row->values[RUN_TURN_STATE], turn_state_names,
							   lengthof(turn_state_names), "the turn state of a run");
}

void
durable_run_set_status(DurableRow *row, DurableRunStatus status)
{
	durable_row_set(row, RUN_STATUS, CStringGetTextDatum(status_names[status]));
}

void
durable_run_set_turn_state(DurableRow *row, DurableTurnState state)
{
	durable_row_set(row, RUN_TURN_STATE, CStringGetTextDatum(turn_state_names[state]));
}

bool
durable_run_number(text *run_id, int64 *id)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		key = PointerGetDatum(run_id);
	bool		found;

	durable_probe_open(&probe, REL_RUN, IDX_RUN_ID, GetActiveSnapshot(), 1);
	found = durable_probe_find(&probe, &key, &row);
	if (found)
		*id = DatumGetInt64(row.values[RUN_ID]);
	durable_probe_close(&probe);
	return found;
}

bool
durable_run_number_supposed(text *run_id, int64 *id)
{
	return durable_task_id_generated(run_id, id) || durable_run_number(run_id, id);
}

TM_Result
durable_run_open(DurableRun *run, int64 id, bool wait)
{
	DurableProbe probe;
	Datum		key = Int64GetDatum(id);
	TM_Result	result = TM_Deleted;

	run->task = NULL;
	durable_writer_open(&run->writer, REL_RUN);
	durable_probe_open(&probe, REL_RUN, IDX_RUN_PKEY, GetActiveSnapshot(), 1);
	if (durable_probe_find(&probe, &key, &run->row))
		result = durable_writer_lock(&run->writer, &run->row.tid, wait, false, &run->row);
	durable_probe_close(&probe);
	if (result != TM_Ok)
		durable_writer_close(&run->writer);
	return result;
}

/*
 * By its place instead of its number. The version that was read is still there, and
 * nothing else can be in its place: whoever replaced it since committed after that
 * snapshot, which is active and so keeps it from being pruned. Where its successors do
 * not lead to a live version, the number is looked for.
 */
TM_Result
durable_run_open_seen(DurableRun *run, const DurableRow *seen, bool wait)
{
	ItemPointerData tid = seen->tid;
	TM_Result	result;

	run->task = NULL;
	durable_writer_open(&run->writer, REL_RUN);
	result = durable_writer_lock(&run->writer, &tid, wait, false, &run->row);
	if (result == TM_Ok && DatumGetInt64(run->row.values[RUN_ID]) != DatumGetInt64(seen->values[RUN_ID]))
		elog(ERROR, "another run is in the place where one was read");
	if (result != TM_Ok)
		durable_writer_close(&run->writer);
	return result == TM_Ok || result == TM_WouldBlock ? result :
		durable_run_open(run, DatumGetInt64(seen->values[RUN_ID]), wait);
}

void
durable_run_update(DurableRun *run)
{
	if (durable_writer_update(&run->writer, &run->row, true) != TM_Ok)
		elog(ERROR, "a locked run was changed by somebody else");
	/* the next update replaces this version */
	run->row.tid = run->writer.slot->tts_tid;
}

void
durable_run_close(DurableRun *run)
{
	durable_writer_close(&run->writer);
}

static bool
is_payload(int column)
{
	return column == RUN_TAGS || column == RUN_SEARCH_ATTRIBUTES || column == RUN_OUTPUT ||
		column == RUN_ERROR || column == RUN_INPUT;
}

static bool
read_row(int64 id, DurableRow *row, bool payloads)
{
	DurableProbe probe;
	Datum		key = Int64GetDatum(id);
	TupleDesc	desc;
	bool		found;

	durable_probe_open(&probe, REL_RUN, IDX_RUN_PKEY, GetActiveSnapshot(), 1);
	found = durable_probe_find(&probe, &key, row);
	desc = RelationGetDescr(probe.rel);
	for (int i = 0; found && i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (row->nulls[i] || att->attbyval)
			continue;
		if (!payloads && is_payload(i))
			durable_row_set_null(row, i);
		else
			row->values[i] = PointerGetDatum(PG_DETOAST_DATUM_COPY(row->values[i]));
	}
	durable_probe_close(&probe);
	return found;
}

bool
durable_run_read(int64 id, DurableRow *row)
{
	return read_row(id, row, true);
}

bool
durable_run_read_lightly(int64 id, DurableRow *row)
{
	return read_row(id, row, false);
}

text *
durable_run_singleton_key(int64 id, text **version)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		number = Int64GetDatum(id);
	text	   *key = NULL;

	durable_probe_open(&probe, REL_RUN, IDX_RUN_PKEY, GetActiveSnapshot(), 1);
	if (durable_probe_find(&probe, &number, &row) && !row.nulls[RUN_SINGLETON_KEY])
	{
		key = DatumGetTextPCopy(row.values[RUN_SINGLETON_KEY]);
		*version = DatumGetTextPCopy(row.values[RUN_VERSION]);
	}
	durable_probe_close(&probe);
	return key;
}

bool
durable_run_insert(DurableWriter *writer, const DurableRow *row)
{
	return durable_writer_insert_unless(writer, IDX_RUN_ID, row);
}
