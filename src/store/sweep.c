/*-------------------------------------------------------------------------
 *
 * sweep.c
 *	  durable.last_sweep, durable.sweep_failure: what sweeps tell about themselves.
 *
 * Most sweeps find nothing to do and must not write, so both tables are looked at
 * without a query first.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "common/hashfn.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/lock_class.h"
#include "base/plan.h"
#include "base/rel.h"
#include "store/sweep.h"

/* columns of last_sweep */
enum
{
	LAST_ONLY_ONE,
	LAST_AT
};

/* Longer texts are cut. */
#define TEXT_MAX_KEPT 2000

static DurablePlan note_plan = {
	.name = "note sweep",
	.sql =
	"INSERT INTO durable.last_sweep AS l (at, by_role, pid, done)"
	" VALUES (pg_catalog.clock_timestamp(), $1, $2, $3)"
	" ON CONFLICT ON CONSTRAINT last_sweep_pkey DO UPDATE"
	" SET at = excluded.at, by_role = excluded.by_role, pid = excluded.pid, done = excluded.done",
	.nargs = 3,
	.argtypes = {TEXTOID, INT4OID, JSONBOID},
};

static DurablePlan failure_plan = {
	.name = "note failed part of a sweep",
	.sql =
	"INSERT INTO durable.sweep_failure AS f (part, since, at, failures, code, message, context)"
	" SELECT $1, c.now, c.now, 1, $2, $3, $4 FROM pg_catalog.clock_timestamp() c(now)"
	" ON CONFLICT ON CONSTRAINT sweep_failure_pkey DO UPDATE"
	" SET at = excluded.at, failures = f.failures OPERATOR(pg_catalog.+) 1,"
	" code = excluded.code, message = excluded.message, context = excluded.context",
	.nargs = 4,
	.argtypes = {TEXTOID, TEXTOID, TEXTOID, TEXTOID},
};

static DurablePlan success_plan = {
	.name = "forget failed part of a sweep",
	.sql = "DELETE FROM durable.sweep_failure f WHERE f.part OPERATOR(pg_catalog.=) $1",
	.nargs = 1,
	.argtypes = {TEXTOID},
};

static bool
first_row(DurableRel table, DurableRel index, DurableRow *row)
{
	DurableProbe probe;
	bool		found;

	durable_probe_open(&probe, table, index, durable_snapshot_push(), 0);
	found = durable_probe_find(&probe, NULL, row);
	durable_probe_close(&probe);
	durable_snapshot_pop();
	return found;
}

/* Who writes a note holds a lock named after it until the transaction ends. Another one does
 * not wait, which it would have to do for the row, and leaves the note to the first. */
static bool
may_write(const char *note)
{
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, 0,
						 DatumGetUInt32(hash_any((const unsigned char *) note, strlen(note))),
						 NOTE_LOCK_CLASS);
	return LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

bool
durable_sweep_noted_since(TimestampTz t)
{
	DurableRow	row;

	return first_row(REL_LAST_SWEEP, IDX_LAST_SWEEP_PKEY, &row) &&
		DatumGetTimestampTz(row.values[LAST_AT]) >= t &&
		DatumGetTimestampTz(row.values[LAST_AT]) <= GetCurrentTimestamp();
}

void
durable_sweep_note(Oid role, Jsonb *done)
{
	char	   *name = GetUserNameFromId(role, true);
	Datum		values[] = {
		CStringGetTextDatum(name != NULL ? name : "?"), Int32GetDatum(MyProcPid),
		JsonbPGetDatum(done)
	};

	if (!may_write(""))
		return;
	durable_plan_begin();
	(void) durable_plan_run(&note_plan, values, NULL);
	durable_plan_end();
}

bool
durable_sweep_any_failure(void)
{
	DurableRow	row;

	return first_row(REL_SWEEP_FAILURE, IDX_SWEEP_FAILURE_PKEY, &row);
}

static Datum
shortened(const char *given)
{
	int			length = given == NULL ? 0 : strlen(given);

	return PointerGetDatum(cstring_to_text_with_len(given == NULL ? "" : given,
													length <= TEXT_MAX_KEPT ? length :
													pg_mbcliplen(given, length, TEXT_MAX_KEPT)));
}

void
durable_sweep_note_failure(const char *part, const ErrorData *error)
{
	Datum		values[] = {
		CStringGetTextDatum(part), CStringGetTextDatum(unpack_sql_state(error->sqlerrcode)),
		shortened(error->message), shortened(error->context)
	};
	char		nulls[] = {' ', ' ', ' ', error->context == NULL ? 'n' : ' '};

	if (!may_write(part))
		return;
	durable_plan_begin();
	(void) durable_plan_run(&failure_plan, values, nulls);
	durable_plan_end();
}

void
durable_sweep_note_success(const char *part)
{
	Datum		value = CStringGetTextDatum(part);

	if (!may_write(part))
		return;
	durable_plan_begin();
	(void) durable_plan_run(&success_plan, &value, NULL);
	durable_plan_end();
}
