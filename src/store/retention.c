/*-------------------------------------------------------------------------
 *
 * retention.c
 *	  The tables of retention, and deleting runs. What has to be done at once is in
 *	  functions of sql/75_retention.sql.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

#include "base/ids.h"
#include "base/plan.h"
#include "store/retention.h"

enum
{
	DUE_LOOK_AT,
	DUE_RUN,
	DUE_COLUMNS
};

enum
{
	POLICY_ID,
	POLICY_CREATED_AT,
	POLICY_OWNER,
	POLICY_MAX_COUNT,
	POLICY_DROPPED,
	POLICY_NAMESPACE,
	POLICY_WORKFLOW,
	POLICY_TAG,
	POLICY_ARCHIVE
};

enum
{
	STATE_POLICY,
	STATE_ARCHIVER,
	STATE_SCANNED,
	STATE_SCAN_TO,
	STATE_CHANGED,
	STATE_DELETED,
	STATE_TASK
};

enum
{
	ARCHIVE_POLICY,
	ARCHIVE_RUN,
	ARCHIVE_NOT_BEFORE
};

void
durable_retention_note_end(int64 run, TimestampTz finished_at)
{
	DurableWriter writer;
	DurableRow	row;

	durable_row_set(&row, DUE_LOOK_AT, TimestampTzGetDatum(finished_at));
	durable_row_set(&row, DUE_RUN, Int64GetDatum(run));
	durable_writer_open(&writer, REL_RETENTION_DUE);
	durable_writer_insert(&writer, &row);
	durable_writer_close(&writer);
}

void
durable_retention_note_again(int64 run, TimestampTz finished_at)
{
	Datum		keys[] = {TimestampTzGetDatum(finished_at), Int64GetDatum(run)};
	DurableProbe probe;
	DurableRow	row;

	durable_probe_open(&probe, REL_RETENTION_DUE, IDX_RETENTION_DUE, durable_snapshot_push(), 2);
	if (durable_probe_find(&probe, keys, &row))
	{
		DurableWriter writer;

		durable_writer_open(&writer, REL_RETENTION_DUE);
		(void) durable_writer_delete(&writer, &row.tid, false);
		durable_writer_close(&writer);
	}
	durable_probe_close(&probe);
	durable_snapshot_pop();
}

/* ------------------------------------------------------- columns of a result */

static Datum
column(uint64 row, int n, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, n, isnull);
}

static int64
number(uint64 row, int n)
{
	bool		isnull;
	Datum		value = column(row, n, &isnull);

	return isnull ? 0 : DatumGetInt64(value);
}

/* A bigint[], copied into "context". */
static DurableNumbers
numbers(uint64 row, int n, MemoryContext context)
{
	DurableNumbers result = {0};
	bool		isnull;
	Datum		value = column(row, n, &isnull);
	MemoryContext before;

	if (isnull)
		return result;
	before = MemoryContextSwitchTo(context);
	result.values = durable_ids_from_array(DatumGetArrayTypeP(value), &result.n);
	MemoryContextSwitchTo(before);
	return result;
}

/* A column of bigints. */
static DurableNumbers
numbers_of(uint64 rows, MemoryContext context)
{
	DurableNumbers result = {.n = (int) rows};

	result.values = MemoryContextAlloc(context, sizeof(int64) * Max(rows, 1));
	for (uint64 i = 0; i < rows; i++)
		result.values[i] = number(i, 1);
	return result;
}

/* ------------------------------------------------------------------ policies */

#define SAME_SCOPE \
	" p.namespace OPERATOR(pg_catalog.=) $1" \
	" AND COALESCE(p.workflow, '') OPERATOR(pg_catalog.=) COALESCE($2, '')" \
	" AND COALESCE(p.tag, '') OPERATOR(pg_catalog.=) COALESCE($3, '')" \
	" AND p.statuses OPERATOR(pg_catalog.=) $4 AND NOT p.dropped"

static DurablePlan replace_plan = {
	.name = "replace retention policy",
	.sql = "UPDATE durable.retention_policy p SET dropped = true WHERE" SAME_SCOPE,
	.nargs = 4,
	.argtypes = {TEXTOID, TEXTOID, TEXTOID, TEXTARRAYOID},
};

static DurablePlan store_plan = {
	.name = "store retention policy",
	.sql =
	"INSERT INTO durable.retention_policy AS p (id, created_at, owner, namespace, workflow, tag,"
	" statuses, archive, max_age, max_count, dropped)"
	" VALUES (pg_catalog.nextval('durable.task_seq'), $5, $6, $1, $2, $3, $4, $7, $8, $9, false)"
	" ON CONFLICT DO NOTHING RETURNING p.id",
	.nargs = 9,
	.argtypes = {TEXTOID, TEXTOID, TEXTOID, TEXTARRAYOID, TIMESTAMPTZOID, REGROLEOID, TEXTOID,
	INTERVALOID, INT4OID},
};

int64
durable_retention_store(const DurableRetentionPolicy *policy, TimestampTz now)
{
	Datum		values[] = {
		PointerGetDatum(policy->namespace), PointerGetDatum(policy->workflow),
		PointerGetDatum(policy->tag), PointerGetDatum(policy->statuses),
		TimestampTzGetDatum(now), ObjectIdGetDatum(policy->owner),
		PointerGetDatum(policy->archive), PointerGetDatum(policy->max_age),
		Int32GetDatum(policy->max_count)
	};
	char		nulls[] = {
		' ', policy->workflow == NULL ? 'n' : ' ', policy->tag == NULL ? 'n' : ' ', ' ', ' ', ' ',
		policy->archive == NULL ? 'n' : ' ', policy->max_age == NULL ? 'n' : ' ',
		policy->max_count < 0 ? 'n' : ' '
	};
	int64		id = 0;

	durable_plan_begin();
	/* again, if somebody stores one of the same scope at this moment */
	while (id == 0)
	{
		CHECK_FOR_INTERRUPTS();
		(void) durable_plan_run(&replace_plan, values, nulls);
		if (durable_plan_run(&store_plan, values, nulls) > 0)
			id = number(0, 1);
	}
	durable_plan_end();
	return id;
}

static DurablePlan namespace_plan = {
	.name = "namespace of a retention policy",
	.sql =
	"SELECT p.namespace FROM durable.retention_policy p"
	" WHERE p.id OPERATOR(pg_catalog.=) $1 AND NOT p.dropped",
	.nargs = 1,
	.argtypes = {INT8OID},
};

text *
durable_retention_namespace(int64 policy)
{
	MemoryContext caller = CurrentMemoryContext;
	Datum		value = Int64GetDatum(policy);
	text	   *namespace = NULL;

	durable_plan_begin();
	if (durable_plan_run(&namespace_plan, &value, NULL) > 0)
		namespace = durable_plan_text(0, 1, caller);
	durable_plan_end();
	return namespace;
}

static DurablePlan forget_plan = {
	.name = "drop retention policy",
	.sql =
	"UPDATE durable.retention_policy p SET dropped = true"
	" WHERE p.id OPERATOR(pg_catalog.=) $1 AND NOT p.dropped",
	.nargs = 1,
	.argtypes = {INT8OID},
};

bool
durable_retention_forget(int64 policy)
{
	Datum		value = Int64GetDatum(policy);
	bool		forgotten;

	durable_plan_begin();
	forgotten = durable_plan_run(&forget_plan, &value, NULL) > 0;
	durable_plan_end();
	return forgotten;
}

/* ------------------------------------------------------------------- passes */

#define ARCHIVE_DUE \
	" p.archive IS NOT NULL AND NOT p.dropped" \
	" AND EXISTS (SELECT FROM durable.retention_archive a" \
	"  WHERE a.policy OPERATOR(pg_catalog.=) p.id" \
	"  AND a.not_before OPERATOR(pg_catalog.<=) $1)" \
	" AND NOT EXISTS (SELECT FROM durable.retention_state s, durable.task t" \
	"  WHERE s.policy OPERATOR(pg_catalog.=) p.id AND NOT s.archiver" \
	"  AND t.id OPERATOR(pg_catalog.=) s.task)"

/* The first row of a key (none: of the index), by the active snapshot. */
static bool
first_row(DurableRel table, DurableRel index, const Datum *keys, int nkeys, DurableRow *row,
		  DurableProbe *probe)
{
	durable_probe_open(probe, table, index, GetActiveSnapshot(), nkeys);
	return durable_probe_find(probe, keys, row);
}

/* Whether the function waits to be called, and no task is there to do it. */
static bool
archiver_is_due(Datum policy, const DurableRow *state, TimestampTz now)
{
	DurableProbe probe;
	DurableRow	row;
	bool		due = first_row(REL_RETENTION_ARCHIVE, IDX_RETENTION_ARCHIVE, &policy, 1, &row,
								&probe) &&
		DatumGetTimestampTz(row.values[ARCHIVE_NOT_BEFORE]) <= now;

	durable_probe_close(&probe);
	if (due && !state->nulls[STATE_TASK])
	{
		due = !first_row(REL_TASK, IDX_TASK_PKEY, &state->values[STATE_TASK], 1, &row, &probe);
		durable_probe_close(&probe);
	}
	return due;
}

static bool
policy_is_due(const DurableRow *policy, TimestampTz now)
{
	DurableProbe probe;
	DurableRow	state;
	bool		due;

	if (DatumGetBool(policy->values[POLICY_DROPPED]))
		return true;
	/* that of passes comes first */
	due = !first_row(REL_RETENTION_STATE, IDX_RETENTION_STATE, &policy->values[POLICY_ID], 1,
					 &state, &probe) ||
		DatumGetBool(state.values[STATE_ARCHIVER]) || DatumGetBool(state.values[STATE_CHANGED]) ||
		DatumGetInt64(state.values[STATE_SCANNED]) < DatumGetInt64(state.values[STATE_SCAN_TO]) ||
		(!policy->nulls[POLICY_ARCHIVE] && archiver_is_due(policy->values[POLICY_ID], &state, now));
	durable_probe_close(&probe);
	return due;
}

/* No statement, because every sweep asks. */
bool
durable_retention_is_due(TimestampTz now)
{
	DurableProbe policies;
	DurableProbe probe;
	DurableRow	row;
	bool		any;
	bool		due = false;

	durable_snapshot_push();
	any = first_row(REL_RETENTION_POLICY, IDX_RETENTION_POLICY, NULL, 0, &row, &policies);
	for (bool more = any; more && !due; more = durable_probe_next(&policies, &row))
		due = policy_is_due(&row, now);
	durable_probe_close(&policies);
	if (any && !due)
	{
		due = first_row(REL_RETENTION_DUE, IDX_RETENTION_DUE, NULL, 0, &row, &probe) &&
			DatumGetTimestampTz(row.values[DUE_LOOK_AT]) <= now;
		durable_probe_close(&probe);
	}
	durable_snapshot_pop();
	return due;
}

static DurablePlan batch_plan = {
	.name = "retention",
	.sql = "SELECT b.deleted, b.tasks, b.done FROM durable.retention_pass($1, $2) b",
	.nargs = 2,
	.argtypes = {TIMESTAMPTZOID, INT4OID},
};

int64
durable_retention_batch(TimestampTz now, int max_rows, DurableNumbers *tasks, int64 *done)
{
	MemoryContext caller = CurrentMemoryContext;
	Datum		values[] = {TimestampTzGetDatum(now), Int32GetDatum(max_rows)};
	int64		deleted;

	durable_plan_begin();
	(void) durable_plan_run(&batch_plan, values, NULL);
	deleted = number(0, 1);
	*tasks = numbers(0, 2, caller);
	*done = number(0, 3);
	durable_plan_end();
	return deleted;
}

static DurablePlan trees_plan = {
	.name = "delete trees of runs",
	.sql =
	"SELECT d.deleted, d.tasks FROM durable.delete_trees($1, $2, true) d",
	.nargs = 2,
	.argtypes = {INT8ARRAYOID, BOOLOID},
};

int64
durable_trees_delete(const int64 *roots, int n, bool wait, DurableNumbers *tasks)
{
	MemoryContext caller = CurrentMemoryContext;
	Datum		values[] = {
		PointerGetDatum(durable_ids_to_array(roots, n)), BoolGetDatum(wait)
	};
	int64		deleted;

	durable_plan_begin();
	(void) durable_plan_run(&trees_plan, values, NULL);
	deleted = number(0, 1);
	*tasks = numbers(0, 2, caller);
	durable_plan_end();
	return deleted;
}

static DurablePlan live_plan = {
	.name = "live runs of a tree",
	.sql =
	"SELECT r.id FROM durable.run_trees(ARRAY[$1]) t, durable.run r"
	" WHERE r.id OPERATOR(pg_catalog.=) t.run AND r.finished_at IS NULL ORDER BY 1",
	.nargs = 1,
	.argtypes = {INT8OID},
};

DurableNumbers
durable_tree_live(int64 root)
{
	MemoryContext caller = CurrentMemoryContext;
	Datum		value = Int64GetDatum(root);
	DurableNumbers live;

	durable_plan_begin();
	live = numbers_of(durable_plan_run(&live_plan, &value, NULL), caller);
	durable_plan_end();
	return live;
}

/* ---------------------------------------------------------------- archiving */

static DurablePlan archivers_plan = {
	.name = "archive functions to be called",
	.sql =
	"SELECT p.id, p.owner::pg_catalog.oid, p.namespace FROM durable.retention_policy p"
	" WHERE" ARCHIVE_DUE
	" AND EXISTS (SELECT FROM pg_catalog.pg_roles o WHERE o.oid OPERATOR(pg_catalog.=) p.owner)"
	" ORDER BY 1",
	.nargs = 1,
	.argtypes = {TIMESTAMPTZOID},
};

int
durable_archivers_due(TimestampTz now, DurableArchiver **archivers)
{
	MemoryContext caller = CurrentMemoryContext;
	Datum		value = TimestampTzGetDatum(now);
	int			n;

	durable_plan_begin();
	n = (int) durable_plan_run(&archivers_plan, &value, NULL);
	*archivers = MemoryContextAlloc(caller, sizeof(DurableArchiver) * Max(n, 1));
	for (int i = 0; i < n; i++)
	{
		bool		isnull;

		(*archivers)[i].policy = number(i, 1);
		(*archivers)[i].owner = DatumGetObjectId(column(i, 2, &isnull));
		(*archivers)[i].namespace = durable_plan_text(i, 3, caller);
	}
	durable_plan_end();
	return n;
}

static DurablePlan set_task_plan = {
	.name = "task of an archive function",
	.sql =
	"UPDATE durable.retention_state s SET task = $2"
	" WHERE s.policy OPERATOR(pg_catalog.=) $1 AND NOT s.archiver",
	.nargs = 2,
	.argtypes = {INT8OID, INT8OID},
};

void
durable_archiver_set_task(int64 policy, int64 task)
{
	Datum		values[] = {Int64GetDatum(policy), Int64GetDatum(task)};

	durable_plan_begin();
	(void) durable_plan_run(&set_task_plan, values, NULL);
	durable_plan_end();
}

static DurablePlan archiver_plan = {
	.name = "policy of an archive task",
	.sql =
	"SELECT s.policy FROM durable.retention_state s"
	" WHERE s.task OPERATOR(pg_catalog.=) $1 AND NOT s.archiver",
	.nargs = 1,
	.argtypes = {INT8OID},
};

int64
durable_archiver_of(int64 task)
{
	Datum		value = Int64GetDatum(task);
	int64		policy = 0;

	durable_plan_begin();
	if (durable_plan_run(&archiver_plan, &value, NULL) > 0)
		policy = number(0, 1);
	durable_plan_end();
	return policy;
}

static DurablePlan next_plan = {
	.name = "next run to archive",
	.sql = "SELECT n.run, n.archive FROM durable.archive_next($1, $2) n",
	.nargs = 2,
	.argtypes = {INT8OID, TIMESTAMPTZOID},
};

bool
durable_archive_next(int64 policy, TimestampTz now, int64 *run, text **archive)
{
	MemoryContext caller = CurrentMemoryContext;
	Datum		values[] = {Int64GetDatum(policy), TimestampTzGetDatum(now)};

	durable_plan_begin();
	(void) durable_plan_run(&next_plan, values, NULL);
	*run = number(0, 1);
	*archive = durable_plan_text(0, 2, caller);
	durable_plan_end();
	return *run != 0 && *archive != NULL;
}

static DurablePlan document_plan = {
	.name = "document for an archive function",
	.sql = "SELECT d.namespace, d.state, d.document FROM durable.archive_document($1, $2) d",
	.nargs = 2,
	.argtypes = {INT8OID, INT8OID},
};

void
durable_archive_document(int64 policy, int64 run, DurableArchiveDocument *document)
{
	MemoryContext caller = CurrentMemoryContext;
	Datum		values[] = {Int64GetDatum(policy), Int64GetDatum(run)};

	durable_plan_begin();
	(void) durable_plan_run(&document_plan, values, NULL);
	document->namespace = durable_plan_text(0, 1, caller);
	document->state = durable_plan_text(0, 2, caller);
	/* both are varlena values, copied as such */
	document->document = (Jsonb *) durable_plan_text(0, 3, caller);
	durable_plan_end();
}

static DurablePlan done_plan = {
	.name = "delete what was archived",
	.sql = "SELECT d.deleted, d.tasks FROM durable.archive_done($1, $2, $3) d",
	.nargs = 3,
	.argtypes = {INT8OID, INT8OID, TEXTOID},
};

int64
durable_archive_done(int64 policy, int64 run, text *state, DurableNumbers *tasks)
{
	MemoryContext caller = CurrentMemoryContext;
	Datum		values[] = {Int64GetDatum(policy), Int64GetDatum(run), PointerGetDatum(state)};
	int64		deleted;

	durable_plan_begin();
	(void) durable_plan_run(&done_plan, values, NULL);
	deleted = number(0, 1);
	*tasks = numbers(0, 2, caller);
	durable_plan_end();
	return deleted;
}

static DurablePlan failed_plan = {
	.name = "archive function failed",
	.sql =
	"UPDATE durable.retention_archive a SET error = $3, failed_at = $4"
	" WHERE a.policy OPERATOR(pg_catalog.=) $1 AND a.run OPERATOR(pg_catalog.=) $2",
	.nargs = 4,
	.argtypes = {INT8OID, INT8OID, TEXTOID, TIMESTAMPTZOID},
};

void
durable_archive_failed(int64 policy, int64 run, text *error, TimestampTz now)
{
	Datum		values[] = {
		Int64GetDatum(policy), Int64GetDatum(run), PointerGetDatum(error), TimestampTzGetDatum(now)
	};

	durable_plan_begin();
	(void) durable_plan_run(&failed_plan, values, NULL);
	durable_plan_end();
}

static DurablePlan again_plan = {
	.name = "look at a run anew",
	.sql = "SELECT durable.archive_again($1, $2, $3)",
	.nargs = 3,
	.argtypes = {INT8OID, INT8OID, TIMESTAMPTZOID},
};

void
durable_archive_again(int64 policy, int64 run, TimestampTz look_at)
{
	Datum		values[] = {
		Int64GetDatum(policy), Int64GetDatum(run), TimestampTzGetDatum(look_at)
	};

	durable_plan_begin();
	(void) durable_plan_run(&again_plan, values, NULL);
	durable_plan_end();
}
