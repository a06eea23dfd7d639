/*-------------------------------------------------------------------------
 *
 * run_log.c
 *	  durable.run_log: what bodies say, and what the engine notes about a run.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/rel.h"
#include "store/run_log.h"

/* One more than the last note's; under the run's lock nobody else counts. */
static int
next_number(int64 run)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		keys[2] = {Int64GetDatum(run), Int32GetDatum(DURABLE_NOTE_SEQ)};
	int			number = 0;

	durable_probe_open(&probe, REL_RUN_LOG, IDX_RUN_LOG, durable_snapshot_push(), 2);
	if (durable_probe_find_last(&probe, keys, &row))
		number = DatumGetInt32(row.values[LOG_NUMBER]) + 1;
	durable_probe_close(&probe);
	durable_snapshot_pop();
	return number;
}

void
durable_run_note(int64 run, const char *level, const char *message, Jsonb *data)
{
	DurableWriter writer;
	DurableRow	row;

	durable_row_set(&row, LOG_RUN, Int64GetDatum(run));
	durable_row_set(&row, LOG_AT, TimestampTzGetDatum(durable_clock_now()));
	durable_row_set(&row, LOG_SEQ, Int32GetDatum(DURABLE_NOTE_SEQ));
	durable_row_set(&row, LOG_NUMBER, Int32GetDatum(next_number(run)));
	durable_row_set(&row, LOG_LEVEL, CStringGetTextDatum(level));
	durable_row_set(&row, LOG_MESSAGE, CStringGetTextDatum(message));
	durable_row_set_pointer(&row, LOG_DATA, data);
	durable_writer_open(&writer, REL_RUN_LOG);
	durable_writer_insert(&writer, &row);
	durable_writer_close(&writer);
	CommandCounterIncrement();
}
