/*-------------------------------------------------------------------------
 *
 * checkpoint.c
 *	  durable.checkpoint: the recorded outcome of each operation.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/names.h"
#include "store/checkpoint.h"

enum
{
	CHECKPOINT_RUN,
	CHECKPOINT_TASK,
	CHECKPOINT_STARTED_AT,
	CHECKPOINT_FINISHED_AT,
	CHECKPOINT_WAKE_AT,
	CHECKPOINT_SEQ,
	CHECKPOINT_ATTEMPTS,
	CHECKPOINT_KIND,
	CHECKPOINT_STATUS,
	CHECKPOINT_NAME,
	CHECKPOINT_OUTPUT,
	CHECKPOINT_ERROR,
	CHECKPOINT_INPUT,
	CHECKPOINT_COLUMNS
};

static const char *const kind_names[] = {
	[KIND_LOCAL] = "local",
	[KIND_STEP] = "step",
	[KIND_SLEEP] = "sleep",
	[KIND_SIGNAL] = "signal",
	[KIND_CHILD] = "child",
	[KIND_VALUE] = "value",
	[KIND_HANDOFF] = "handoff",
};

static const char *const status_names[] = {
	[CHECKPOINT_PENDING] = "pending",
	[CHECKPOINT_COMPLETED] = "completed",
	[CHECKPOINT_FAILED] = "failed",
	[CHECKPOINT_CANCELLED] = "cancelled",
};

const char *
durable_kind_name(DurableKind kind)
{
	return kind_names[kind];
}

const char *
durable_checkpoint_status_name(DurableCheckpointStatus status)
{
	return status_names[status];
}

static Jsonb *
jsonb_column(const DurableRow *row, int column)
{
	return row->nulls[column] ? NULL : DatumGetJsonbPCopy(row->values[column]);
}

static TimestampTz
time_column(const DurableRow *row, int column)
{
	return row->nulls[column] ? 0 : DatumGetTimestampTz(row->values[column]);
}

static void
from_row(const DurableRow *row, DurableCheckpoint *checkpoint)
{
	checkpoint->seq = DatumGetInt32(row->values[CHECKPOINT_SEQ]);
	checkpoint->kind = durable_label_index(row->values[CHECKPOINT_KIND], kind_names,
										   lengthof(kind_names), "the kind of a checkpoint");
	checkpoint->status = durable_label_index(row->values[CHECKPOINT_STATUS], status_names,
											 lengthof(status_names), "the status of a checkpoint");
	checkpoint->name = DatumGetTextPCopy(row->values[CHECKPOINT_NAME]);
	checkpoint->attempts = DatumGetInt32(row->values[CHECKPOINT_ATTEMPTS]);
	checkpoint->task = row->nulls[CHECKPOINT_TASK] ? 0 :
		DatumGetInt64(row->values[CHECKPOINT_TASK]);
	checkpoint->started_at = time_column(row, CHECKPOINT_STARTED_AT);
	checkpoint->finished_at = time_column(row, CHECKPOINT_FINISHED_AT);
	checkpoint->wake_at = time_column(row, CHECKPOINT_WAKE_AT);
	checkpoint->input = jsonb_column(row, CHECKPOINT_INPUT);
	checkpoint->output = jsonb_column(row, CHECKPOINT_OUTPUT);
	checkpoint->error = jsonb_column(row, CHECKPOINT_ERROR);
	checkpoint->stored = true;
	checkpoint->unsaved = false;
	checkpoint->plain = false;
}

static void
set_time(DurableRow *row, int column, TimestampTz t)
{
	if (t == 0)
		durable_row_set_null(row, column);
	else
		durable_row_set(row, column, TimestampTzGetDatum(t));
}

static void
to_row(int64 run, const DurableCheckpoint *checkpoint, DurableRow *row)
{
	durable_row_set(row, CHECKPOINT_RUN, Int64GetDatum(run));
	durable_row_set(row, CHECKPOINT_SEQ, Int32GetDatum(checkpoint->seq));
	if (checkpoint->task == 0)
		durable_row_set_null(row, CHECKPOINT_TASK);
	else
		durable_row_set(row, CHECKPOINT_TASK, Int64GetDatum(checkpoint->task));
	set_time(row, CHECKPOINT_STARTED_AT, checkpoint->started_at);
	set_time(row, CHECKPOINT_FINISHED_AT, checkpoint->finished_at);
	set_time(row, CHECKPOINT_WAKE_AT, checkpoint->wake_at);
	durable_row_set(row, CHECKPOINT_ATTEMPTS, Int32GetDatum(checkpoint->attempts));
	durable_row_set(row, CHECKPOINT_KIND, CStringGetTextDatum(kind_names[checkpoint->kind]));
	durable_row_set(row, CHECKPOINT_STATUS,
					CStringGetTextDatum(status_names[checkpoint->status]));
	durable_row_set(row, CHECKPOINT_NAME, PointerGetDatum(checkpoint->name));
	durable_row_set_pointer(row, CHECKPOINT_OUTPUT, checkpoint->output);
	durable_row_set_pointer(row, CHECKPOINT_ERROR, checkpoint->error);
	durable_row_set_pointer(row, CHECKPOINT_INPUT, checkpoint->input);
}

DurableCheckpoint *
durable_checkpoints_load(int64 run, int *n)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		key = Int64GetDatum(run);
	int			space = 16;
	DurableCheckpoint *checkpoints = palloc(sizeof(DurableCheckpoint) * space);
	bool		more;

	*n = 0;
	durable_probe_open(&probe, REL_CHECKPOINT, IDX_CHECKPOINT_PKEY, GetActiveSnapshot(), 1);
	for (more = durable_probe_find(&probe, &key, &row); more;
		 more = durable_probe_next(&probe, &row))
	{
		if (DatumGetInt32(row.values[CHECKPOINT_SEQ]) < 0)
			continue;
		if (*n == space)
		{
			space *= 2;
			checkpoints = repalloc_huge(checkpoints, sizeof(DurableCheckpoint) * space);
		}
		from_row(&row, &checkpoints[(*n)++]);
	}
	durable_probe_close(&probe);
	return checkpoints;
}

static void
reverse(DurableCheckpoint *checkpoints, int n)
{
	for (int i = 0; i < n / 2; i++)
	{
		DurableCheckpoint swap = checkpoints[i];

		checkpoints[i] = checkpoints[n - 1 - i];
		checkpoints[n - 1 - i] = swap;
	}
}

static Size
payload_size(const DurableCheckpoint *checkpoint)
{
	return (checkpoint->output == NULL ? 0 : VARSIZE(checkpoint->output)) +
		(checkpoint->error == NULL ? 0 : VARSIZE(checkpoint->error));
}

DurableCheckpoint *
durable_checkpoints_tail(int64 run, int max, Size bytes, int *n)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		key = Int64GetDatum(run);
	int			space = 16;
	DurableCheckpoint *checkpoints = palloc(sizeof(DurableCheckpoint) * space);
	Size		size = 0;
	bool		more = max != 0;

	*n = 0;
	durable_probe_open(&probe, REL_CHECKPOINT, IDX_CHECKPOINT_PKEY, GetActiveSnapshot(), 1);
	if (more)
		more = durable_probe_find_last(&probe, &key, &row);
	while (more && DatumGetInt32(row.values[CHECKPOINT_SEQ]) >= 0)
	{
		if (*n == space)
		{
			space *= 2;
			checkpoints = repalloc_huge(checkpoints, sizeof(DurableCheckpoint) * space);
		}
		from_row(&row, &checkpoints[*n]);
		size += payload_size(&checkpoints[*n]);
		if (*n > 0 && size > bytes)
			break;
		(*n)++;
		more = *n != max && durable_probe_previous(&probe, &row);
	}
	durable_probe_close(&probe);
	reverse(checkpoints, *n);
	return checkpoints;
}

int
durable_checkpoints_last(DurableProbe *probe, int64 run, DurableRow *row)
{
	Datum		key = Int64GetDatum(run);

	durable_probe_open(probe, REL_CHECKPOINT, IDX_CHECKPOINT_PKEY, GetActiveSnapshot(), 1);
	if (!durable_probe_find_last(probe, &key, row))
		return 0;
	return Max(DatumGetInt32(row->values[CHECKPOINT_SEQ]) + 1, 0);
}

int
durable_checkpoints_end(int64 run)
{
	DurableProbe probe;
	DurableRow	row;
	int			end = durable_checkpoints_last(&probe, run, &row);

	durable_probe_close(&probe);
	return end;
}

bool
durable_checkpoint_find(int64 run, int seq, DurableCheckpoint *checkpoint)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		keys[2] = {Int64GetDatum(run), Int32GetDatum(seq)};
	bool		found;

	durable_probe_open(&probe, REL_CHECKPOINT, IDX_CHECKPOINT_PKEY, GetActiveSnapshot(), 2);
	found = durable_probe_find(&probe, keys, &row);
	if (found)
		from_row(&row, checkpoint);
	durable_probe_close(&probe);
	return found;
}

/* Looked up again: since it was read a step may have executed, in a transaction
 * of its own, and the table may have been rewritten meanwhile. */
static void
replace(DurableWriter *writer, DurableRow *row)
{
	DurableProbe probe;
	DurableRow	stored;
	Datum		keys[2] = {row->values[CHECKPOINT_RUN], row->values[CHECKPOINT_SEQ]};

	durable_probe_open(&probe, REL_CHECKPOINT, IDX_CHECKPOINT_PKEY, durable_snapshot_push(), 2);
	if (!durable_probe_find(&probe, keys, &stored))
		elog(ERROR, "a checkpoint is gone while its run was locked");
	row->tid = stored.tid;
	if (durable_writer_update(writer, row, true) != TM_Ok)
		elog(ERROR, "a checkpoint was changed while its run was locked");
	durable_probe_close(&probe);
	durable_snapshot_pop();
}

void
durable_checkpoint_open(DurableProbe *probe)
{
	durable_probe_open(probe, REL_CHECKPOINT, IDX_CHECKPOINT_PKEY, GetActiveSnapshot(), 2);
}

bool
durable_checkpoint_is_pending(DurableProbe *probe, int64 run, int seq, int64 *task)
{
	DurableRow	row;
	Datum		keys[2] = {Int64GetDatum(run), Int32GetDatum(seq)};

	if (!durable_probe_find(probe, keys, &row) ||
		!durable_text_is(DatumGetTextPP(row.values[CHECKPOINT_STATUS]),
						 status_names[CHECKPOINT_PENDING]))
		return false;
	*task = row.nulls[CHECKPOINT_TASK] ? 0 : DatumGetInt64(row.values[CHECKPOINT_TASK]);
	return true;
}

void
durable_checkpoint_write(DurableWriter *writer, int64 run, DurableCheckpoint *checkpoint)
{
	DurableRow	row;

	to_row(run, checkpoint, &row);
	if (!checkpoint->stored)
		durable_writer_insert(writer, &row);
	else
		replace(writer, &row);
	checkpoint->stored = true;
	checkpoint->unsaved = false;
}

void
durable_checkpoint_settle_row(DurableRow *row, const DurableCheckpoint *outcome)
{
	DurableWriter writer;

	if (!durable_text_is(DatumGetTextPP(row->values[CHECKPOINT_STATUS]),
						 status_names[CHECKPOINT_PENDING]))
		return;
	durable_row_set(row, CHECKPOINT_STATUS,
					CStringGetTextDatum(status_names[outcome->status]));
	durable_row_set_pointer(row, CHECKPOINT_OUTPUT, outcome->output);
	durable_row_set_pointer(row, CHECKPOINT_ERROR, outcome->error);
	durable_row_set_null(row, CHECKPOINT_WAKE_AT);
	set_time(row, CHECKPOINT_FINISHED_AT, outcome->finished_at);
	if (outcome->attempts > 0)
		durable_row_set(row, CHECKPOINT_ATTEMPTS, Int32GetDatum(outcome->attempts));
	durable_writer_open(&writer, REL_CHECKPOINT);
	if (durable_writer_update(&writer, row, true) != TM_Ok)
		elog(ERROR, "a checkpoint was changed while its run was locked");
	durable_writer_close(&writer);
}

void
durable_checkpoint_settle(int64 run, const DurableCheckpoint *outcome)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		keys[2] = {Int64GetDatum(run), Int32GetDatum(outcome->seq)};

	durable_probe_open(&probe, REL_CHECKPOINT, IDX_CHECKPOINT_PKEY, GetActiveSnapshot(), 2);
	if (durable_probe_find(&probe, keys, &row))
		durable_checkpoint_settle_row(&row, outcome);
	durable_probe_close(&probe);
}
