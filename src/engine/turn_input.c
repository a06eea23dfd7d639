/*-------------------------------------------------------------------------
 *
 * turn_input.c
 *	  What an external worker is handed with a turn.
 *
 * Nothing of it is stored: it is composed when the turn is claimed, from the
 * run's row and its last checkpoints, under one snapshot. The count of wakes
 * that the same snapshot sees is what the decision is compared with later.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/numeric.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/json.h"
#include "engine/turn_input.h"
#include "store/checkpoint.h"
#include "store/run.h"

/* A longer history comes without its beginning, which history() has. A jsonb
 * value holds 256 MB, and no run must be in the way of a claim. */
#define HISTORY_BYTES ((Size) 32 * 1024 * 1024)

#define UNIX_EPOCH_US \
	((int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY)

/* Milliseconds since 1970, to the microsecond. */
static void
add_time(JsonbParseState **state, const char *key, TimestampTz t)
{
	durable_json_add_numeric(state, key, int64_div_fast_to_numeric(t + UNIX_EPOCH_US, 3));
}

/* A sleep is recorded as done and counts as such from its time on. */
static DurableCheckpointStatus
status_now(const DurableCheckpoint *checkpoint, TimestampTz now)
{
	return checkpoint->kind == KIND_SLEEP && checkpoint->wake_at > now ?
		CHECKPOINT_PENDING : checkpoint->status;
}

static void
push_checkpoint(JsonbParseState **state, const DurableCheckpoint *checkpoint, TimestampTz now)
{
	pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);
	durable_json_add_int(state, "seq", checkpoint->seq);
	durable_json_add_string(state, "kind", durable_kind_name(checkpoint->kind));
	durable_json_add_string(state, "status",
							durable_checkpoint_status_name(status_now(checkpoint, now)));
	durable_json_add_text(state, "name", checkpoint->name);
	durable_json_add_value(state, "output", checkpoint->output);
	durable_json_add_value(state, "error", checkpoint->error);
	if (checkpoint->wake_at != 0)
		add_time(state, "wake_at", checkpoint->wake_at);
	pushJsonbValue(state, WJB_END_OBJECT, NULL);
}

/* One more than the last position; everything from *from on is in the list. */
static int
push_history(JsonbParseState **state, int64 run, bool begun, int limit, TimestampTz now, int *from)
{
	int			n = 0;
	/* a run that has not begun has none */
	DurableCheckpoint *history = begun ?
		durable_checkpoints_tail(run, limit, HISTORY_BYTES, &n) : NULL;
	int			end = n > 0 ? history[n - 1].seq + 1 :
		begun && limit == 0 ? durable_checkpoints_end(run) : 0;

	durable_json_begin_array(state, "history");
	for (int i = 0; i < n; i++)
		push_checkpoint(state, &history[i], now);
	pushJsonbValue(state, WJB_END_ARRAY, NULL);
	*from = n == 0 ? end : n == end ? 0 : history[0].seq;
	return end;
}

static Jsonb *
jsonb_column(const DurableRow *row, int column)
{
	return row->nulls[column] ? NULL : DatumGetJsonbP(row->values[column]);
}

Jsonb *
durable_turn_input(int64 run, int limit, TimestampTz since, int *wakes, Jsonb **headers)
{
	JsonbParseState *state = NULL;
	TimestampTz now = durable_clock_now();
	DurableRow	row;
	int			from;
	int			end;

	if (!durable_run_read(run, &row))
		return NULL;
	*wakes = DatumGetInt32(row.values[RUN_WAKES]);
	*headers = jsonb_column(&row, RUN_HEADERS);
	/* in the order that jsonb keeps them in, which then need not be made */
	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	add_time(&state, "now", now);
	durable_json_add_value(&state, "input", jsonb_column(&row, RUN_INPUT));
	add_time(&state, "since", since);
	end = push_history(&state, run, !row.nulls[RUN_STARTED_AT], limit, now, &from);
	durable_json_add_text(&state, "version", DatumGetTextPP(row.values[RUN_VERSION]));
	durable_json_add_text(&state, "workflow", DatumGetTextPP(row.values[RUN_WORKFLOW]));
	durable_json_add_int(&state, "history_end", end);
	durable_json_add_int(&state, "history_from", from);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}
