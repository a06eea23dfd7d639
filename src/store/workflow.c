/*-------------------------------------------------------------------------
 *
 * workflow.c
 *	  durable.workflow and durable.handler: definitions.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/snapmgr.h"

#include "base/names.h"
#include "base/plan.h"
#include "base/rel.h"
#include "store/workflow.h"

enum
{
	WORKFLOW_NAMESPACE,
	WORKFLOW_NAME,
	WORKFLOW_VERSION,
	WORKFLOW_OWNER,
	WORKFLOW_REGISTERED_AT,
	WORKFLOW_ATOMIC,
	WORKFLOW_BODY,
	WORKFLOW_QUEUE,
	WORKFLOW_TAGS,
	WORKFLOW_INPUT_CHECK,
	WORKFLOW_SINGLETON_KEY,
	WORKFLOW_SINGLETON_LIMIT,
	WORKFLOW_SINGLETON_MAX_QUEUED,
	WORKFLOW_CONCURRENCY_KEY,
	WORKFLOW_CONCURRENCY_LIMIT,
	WORKFLOW_TURN_SILENCE,
	WORKFLOW_ON_ERROR,
	WORKFLOW_DEAD_LETTER_WORKFLOW,
	WORKFLOW_REQUIRES,
	WORKFLOW_COLUMNS
};

enum
{
	HANDLER_NAMESPACE,
	HANDLER_NAME,
	HANDLER_OWNER,
	HANDLER_REGISTERED_AT,
	HANDLER_HANDLER,
	HANDLER_INPUT_CHECK,
	HANDLER_OUTPUT_CHECK,
	HANDLER_RETRIES,
	HANDLER_BACKOFF,
	HANDLER_BACKOFF_KIND,
	HANDLER_BACKOFF_MAX,
	HANDLER_JITTER,
	HANDLER_TIMEOUT,
	HANDLER_PICKUP_TIMEOUT,
	HANDLER_COLUMNS
};

text *
durable_owner_queue(Oid owner)
{
	return cstring_to_text(psprintf("#%u", owner));
}

static text *
text_column(const DurableRow *row, int column)
{
	return row->nulls[column] ? NULL : DatumGetTextPCopy(row->values[column]);
}

static void *
varlena_column(const DurableRow *row, int column)
{
	return row->nulls[column] ? NULL : PG_DETOAST_DATUM_COPY(row->values[column]);
}

static int
int_column(const DurableRow *row, int column, int if_null)
{
	return row->nulls[column] ? if_null : DatumGetInt32(row->values[column]);
}

static Interval *
interval_column(const DurableRow *row, int column)
{
	Interval   *copy;

	if (row->nulls[column])
		return NULL;
	copy = palloc(sizeof(Interval));
	*copy = *DatumGetIntervalP(row->values[column]);
	return copy;
}

static void
workflow_from_row(const DurableRow *row, DurableWorkflow *workflow)
{
	workflow->namespace = DatumGetTextPCopy(row->values[WORKFLOW_NAMESPACE]);
	workflow->name = DatumGetTextPCopy(row->values[WORKFLOW_NAME]);
	workflow->version = DatumGetTextPCopy(row->values[WORKFLOW_VERSION]);
	workflow->owner = DatumGetObjectId(row->values[WORKFLOW_OWNER]);
	workflow->atomic = DatumGetBool(row->values[WORKFLOW_ATOMIC]);
	workflow->body = row->nulls[WORKFLOW_BODY] ? NULL :
		DatumGetTextPCopy(row->values[WORKFLOW_BODY]);
	workflow->queue = DatumGetTextPCopy(row->values[WORKFLOW_QUEUE]);
	workflow->tags = DatumGetArrayTypePCopy(row->values[WORKFLOW_TAGS]);
	workflow->input_check = text_column(row, WORKFLOW_INPUT_CHECK);
	workflow->singleton_key = varlena_column(row, WORKFLOW_SINGLETON_KEY);
	workflow->singleton_limit = int_column(row, WORKFLOW_SINGLETON_LIMIT, 0);
	workflow->singleton_max_queued = int_column(row, WORKFLOW_SINGLETON_MAX_QUEUED, -1);
	workflow->concurrency_key = varlena_column(row, WORKFLOW_CONCURRENCY_KEY);
	workflow->concurrency_limit = int_column(row, WORKFLOW_CONCURRENCY_LIMIT, -1);
	workflow->turn_silence = interval_column(row, WORKFLOW_TURN_SILENCE);
	workflow->on_error = varlena_column(row, WORKFLOW_ON_ERROR);
	workflow->dead_letter_workflow = text_column(row, WORKFLOW_DEAD_LETTER_WORKFLOW);
	workflow->requires = varlena_column(row, WORKFLOW_REQUIRES);
}

/* Whether every character is a digit; leading zeros are skipped. */
static bool
numeric_version(text *version, const char **digits, int *length)
{
	const char *p = VARDATA_ANY(version);
	int			n = VARSIZE_ANY_EXHDR(version);

	for (int i = 0; i < n; i++)
	{
		if (p[i] < '0' || p[i] > '9')
			return false;
	}
	while (n > 1 && *p == '0')
	{
		p++;
		n--;
	}
	*digits = p;
	*length = n;
	return true;
}

/* The digits at the pointers by value, however many; moves behind them. */
static int
compare_digits(const char **a, const char **b)
{
	const char *x = *a + strspn(*a, "0");
	const char *y = *b + strspn(*b, "0");
	int			nx = strspn(x, "0123456789");
	int			ny = strspn(y, "0123456789");

	*a = x + nx;
	*b = y + ny;
	return nx != ny ? nx - ny : memcmp(x, y, nx);
}

/* Natural order: runs of digits by value, everything else by byte. */
static int
compare_versions(text *a, text *b)
{
	const char *x;
	const char *y;
	int			nx;
	int			ny;

	if (numeric_version(a, &x, &nx) && numeric_version(b, &y, &ny))
		return nx != ny ? nx - ny : memcmp(x, y, nx);
	x = text_to_cstring(a);
	y = text_to_cstring(b);
	while (*x && *y)
	{
		if (isdigit((unsigned char) *x) && isdigit((unsigned char) *y))
		{
			int			order = compare_digits(&x, &y);

			if (order != 0)
				return order;
		}
		else if (*x != *y)
			return (unsigned char) *x < (unsigned char) *y ? -1 : 1;
		else
		{
			x++;
			y++;
		}
	}
	return (*x != '\0') - (*y != '\0');
}

bool
durable_workflow_find(text *namespace, text *name, text *version,
					  DurableWorkflow *workflow)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		keys[3] = {
		PointerGetDatum(namespace), PointerGetDatum(name), PointerGetDatum(version)
	};
	bool		found = false;
	bool		more;

	durable_probe_open(&probe, REL_WORKFLOW, IDX_WORKFLOW_PKEY,
					   durable_snapshot_push(), version != NULL ? 3 : 2);
	for (more = durable_probe_find(&probe, keys, &row); more;
		 more = durable_probe_next(&probe, &row))
	{
		if (!found || compare_versions(DatumGetTextPP(row.values[WORKFLOW_VERSION]),
									   workflow->version) > 0)
			workflow_from_row(&row, workflow);
		found = true;
	}
	durable_probe_close(&probe);
	durable_snapshot_pop();
	return found;
}

static void
policy_from_row(const DurableRow *row, DurableStepPolicy *policy)
{
	policy->retries = row->nulls[HANDLER_RETRIES] ? 0 :
		DatumGetInt32(row->values[HANDLER_RETRIES]);
	policy->backoff = interval_column(row, HANDLER_BACKOFF);
	policy->backoff_max = interval_column(row, HANDLER_BACKOFF_MAX);
	policy->has_exponential = !row->nulls[HANDLER_BACKOFF_KIND];
	policy->exponential = policy->has_exponential &&
		durable_text_is(DatumGetTextPP(row->values[HANDLER_BACKOFF_KIND]), "exp");
	policy->has_jitter = !row->nulls[HANDLER_JITTER];
	policy->jitter = policy->has_jitter && DatumGetBool(row->values[HANDLER_JITTER]);
	policy->timeout = interval_column(row, HANDLER_TIMEOUT);
	policy->pickup_timeout = interval_column(row, HANDLER_PICKUP_TIMEOUT);
}

static void
handler_from_row(const DurableRow *row, DurableHandler *handler)
{
	handler->namespace = DatumGetTextPCopy(row->values[HANDLER_NAMESPACE]);
	handler->name = DatumGetTextPCopy(row->values[HANDLER_NAME]);
	handler->owner = DatumGetObjectId(row->values[HANDLER_OWNER]);
	handler->handler = DatumGetTextPCopy(row->values[HANDLER_HANDLER]);
	handler->input_check = text_column(row, HANDLER_INPUT_CHECK);
	handler->output_check = text_column(row, HANDLER_OUTPUT_CHECK);
	policy_from_row(row, &handler->policy);
}

bool
durable_handler_find(text *namespace, text *name, DurableHandler *handler)
{
	DurableProbe probe;
	DurableRow	row;
	Datum		keys[2] = {PointerGetDatum(namespace), PointerGetDatum(name)};
	bool		found;

	durable_probe_open(&probe, REL_HANDLER, IDX_HANDLER_PKEY, durable_snapshot_push(), 2);
	found = durable_probe_find(&probe, keys, &row);
	if (found)
		handler_from_row(&row, handler);
	durable_probe_close(&probe);
	durable_snapshot_pop();
	return found;
}

static uint64
run_once(DurablePlan *plan, const Datum *values, const char *nulls)
{
	uint64		processed;

	durable_plan_begin();
	processed = durable_plan_run(plan, values, nulls);
	durable_plan_end();
	return processed;
}

/* The nulls of an SPI call, from null pointers at the end of its arguments. */
static char *
nulls_of(const Datum *values, int n, int first_nullable)
{
	char	   *nulls = palloc(n + 1);

	for (int i = 0; i < n; i++)
		nulls[i] = i >= first_nullable && DatumGetPointer(values[i]) == NULL ? 'n' : ' ';
	nulls[n] = '\0';
	return nulls;
}

/* Only its owner may replace or delete a definition; when that role has been dropped,
 * anybody may who may define. */
#define OWNER_IS_GONE(table) \
	"NOT EXISTS (SELECT FROM pg_catalog.pg_roles a WHERE a.oid OPERATOR(pg_catalog.=) " table ".owner)"

static DurablePlan workflow_store_plan = {
	.name = "store workflow",
	.sql =
	"INSERT INTO durable.workflow AS w (namespace, name, version, owner, registered_at,"
	" atomic, body, queue, tags, input_check, singleton_key, singleton_limit,"
	" singleton_max_queued, concurrency_key, concurrency_limit, turn_silence, on_error,"
	" dead_letter_workflow, requires)"
	" VALUES ($1, $2, $3, $4, pg_catalog.clock_timestamp(), $8, $5, $6, $7, $9, $10, $11,"
	" $12, $13, $14, $15, $16, $17, $18)"
	" ON CONFLICT ON CONSTRAINT workflow_pkey DO UPDATE SET"
	" owner = excluded.owner, registered_at = excluded.registered_at, atomic = excluded.atomic,"
	" body = excluded.body, queue = excluded.queue, tags = excluded.tags,"
	" input_check = excluded.input_check, singleton_key = excluded.singleton_key,"
	" singleton_limit = excluded.singleton_limit,"
	" singleton_max_queued = excluded.singleton_max_queued,"
	" concurrency_key = excluded.concurrency_key,"
	" concurrency_limit = excluded.concurrency_limit, turn_silence = excluded.turn_silence,"
	" on_error = excluded.on_error, dead_letter_workflow = excluded.dead_letter_workflow,"
	" requires = excluded.requires"
	" WHERE w.owner OPERATOR(pg_catalog.=) excluded.owner OR " OWNER_IS_GONE("w"),
	.nargs = 18,
	.argtypes = {TEXTOID, TEXTOID, TEXTOID, REGROLEOID, TEXTOID, TEXTOID, TEXTARRAYOID, BOOLOID,
		TEXTOID, JSONPATHOID, INT4OID, INT4OID, JSONPATHOID, INT4OID, INTERVALOID, JSONBOID,
	TEXTOID, TEXTARRAYOID},
};

bool
durable_workflow_store(const DurableWorkflow *workflow)
{
	Datum		values[] = {
		PointerGetDatum(workflow->namespace), PointerGetDatum(workflow->name),
		PointerGetDatum(workflow->version), ObjectIdGetDatum(workflow->owner),
		PointerGetDatum(workflow->body), PointerGetDatum(workflow->queue),
		PointerGetDatum(workflow->tags), BoolGetDatum(workflow->atomic),
		PointerGetDatum(workflow->input_check), PointerGetDatum(workflow->singleton_key),
		Int32GetDatum(workflow->singleton_limit), Int32GetDatum(workflow->singleton_max_queued),
		PointerGetDatum(workflow->concurrency_key), Int32GetDatum(workflow->concurrency_limit),
		PointerGetDatum(workflow->turn_silence), PointerGetDatum(workflow->on_error),
		PointerGetDatum(workflow->dead_letter_workflow), PointerGetDatum(workflow->requires)
	};
	char	   *nulls = nulls_of(values, lengthof(values), 8);

	nulls[4] = workflow->body == NULL ? 'n' : ' ';
	nulls[10] = workflow->singleton_key == NULL ? 'n' : ' ';
	nulls[11] = workflow->singleton_max_queued < 0 ? 'n' : ' ';
	nulls[13] = workflow->concurrency_limit < 0 ? 'n' : ' ';
	return run_once(&workflow_store_plan, values, nulls) > 0;
}

static DurablePlan workflow_delete_plan = {
	.name = "delete workflow",
	.sql =
	"DELETE FROM durable.workflow w WHERE w.namespace OPERATOR(pg_catalog.=) $1"
	" AND w.name OPERATOR(pg_catalog.=) $2"
	" AND ($3 IS NULL OR w.version OPERATOR(pg_catalog.=) $3)"
	" AND (w.owner OPERATOR(pg_catalog.=) $4 OR " OWNER_IS_GONE("w") ")",
	.nargs = 4,
	.argtypes = {TEXTOID, TEXTOID, TEXTOID, REGROLEOID},
};

int
durable_workflow_delete(text *namespace, text *name, text *version)
{
	Datum		values[] = {
		PointerGetDatum(namespace), PointerGetDatum(name), PointerGetDatum(version),
		ObjectIdGetDatum(GetUserId())
	};

	return (int) run_once(&workflow_delete_plan, values, version == NULL ? "  n " : NULL);
}

/* A run that has not ended has a task under its number. Finished ones, which may be
 * very many, are not looked at; an index for this would make each end of a run write
 * all indexes of the table. */
static DurablePlan workflow_in_use_plan = {
	.name = "workflow in use",
	.sql =
	"SELECT FROM durable.task t WHERE t.kind OPERATOR(pg_catalog.=) 'turn'"
	" AND t.namespace OPERATOR(pg_catalog.=) $1 AND t.name OPERATOR(pg_catalog.=) $2"
	" AND ($3 IS NULL OR EXISTS (SELECT FROM durable.run r"
	"  WHERE r.id OPERATOR(pg_catalog.=) t.id AND r.version OPERATOR(pg_catalog.=) $3)) LIMIT 1",
	.nargs = 3,
	.argtypes = {TEXTOID, TEXTOID, TEXTOID},
};

bool
durable_workflow_in_use(text *namespace, text *name, text *version)
{
	Datum		values[] = {
		PointerGetDatum(namespace), PointerGetDatum(name), PointerGetDatum(version)
	};

	return run_once(&workflow_in_use_plan, values, version == NULL ? "  n" : NULL) > 0;
}

static DurablePlan handler_store_plan = {
	.name = "store handler",
	.sql =
	"INSERT INTO durable.handler AS h (namespace, name, owner, registered_at, handler,"
	" retries, jitter, input_check, output_check, backoff, backoff_kind, backoff_max,"
	" timeout, pickup_timeout)"
	" VALUES ($1, $2, $3, pg_catalog.clock_timestamp(), $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
	" ON CONFLICT ON CONSTRAINT handler_pkey DO UPDATE SET"
	" owner = excluded.owner, registered_at = excluded.registered_at, handler = excluded.handler,"
	" retries = excluded.retries, jitter = excluded.jitter,"
	" input_check = excluded.input_check, output_check = excluded.output_check,"
	" backoff = excluded.backoff, backoff_kind = excluded.backoff_kind,"
	" backoff_max = excluded.backoff_max, timeout = excluded.timeout,"
	" pickup_timeout = excluded.pickup_timeout"
	" WHERE h.owner OPERATOR(pg_catalog.=) excluded.owner OR " OWNER_IS_GONE("h"),
	.nargs = 13,
	.argtypes = {TEXTOID, TEXTOID, REGROLEOID, TEXTOID, INT4OID, BOOLOID, TEXTOID, TEXTOID,
	INTERVALOID, TEXTOID, INTERVALOID, INTERVALOID, INTERVALOID},
};

bool
durable_handler_store(const DurableHandler *handler)
{
	const DurableStepPolicy *policy = &handler->policy;
	text	   *kind = !policy->has_exponential ? NULL :
		cstring_to_text(policy->exponential ? "exp" : "fixed");
	Datum		values[] = {
		PointerGetDatum(handler->namespace), PointerGetDatum(handler->name),
		ObjectIdGetDatum(handler->owner), PointerGetDatum(handler->handler),
		Int32GetDatum(policy->retries), BoolGetDatum(policy->jitter),
		PointerGetDatum(handler->input_check), PointerGetDatum(handler->output_check),
		PointerGetDatum(policy->backoff), PointerGetDatum(kind),
		PointerGetDatum(policy->backoff_max), PointerGetDatum(policy->timeout),
		PointerGetDatum(policy->pickup_timeout)
	};
	char	   *nulls = nulls_of(values, lengthof(values), 6);

	nulls[4] = policy->retries == 0 ? 'n' : ' ';
	nulls[5] = policy->has_jitter ? ' ' : 'n';
	return run_once(&handler_store_plan, values, nulls) > 0;
}

static DurablePlan handler_delete_plan = {
	.name = "delete handler",
	.sql =
	"DELETE FROM durable.handler h WHERE h.namespace OPERATOR(pg_catalog.=) $1"
	" AND h.name OPERATOR(pg_catalog.=) $2"
	" AND (h.owner OPERATOR(pg_catalog.=) $3 OR " OWNER_IS_GONE("h") ")",
	.nargs = 3,
	.argtypes = {TEXTOID, TEXTOID, REGROLEOID},
};

int
durable_handler_delete(text *namespace, text *name)
{
	Datum		values[] = {
		PointerGetDatum(namespace), PointerGetDatum(name), ObjectIdGetDatum(GetUserId())
	};

	return (int) run_once(&handler_delete_plan, values, NULL);
}

static DurablePlan namespaces_plan = {
	.name = "namespaces of a role",
	.sql =
	"SELECT w.namespace FROM durable.workflow w WHERE w.owner OPERATOR(pg_catalog.=) $1"
	" AND w.body IS NOT NULL"
	" UNION SELECT h.namespace FROM durable.handler h WHERE h.owner OPERATOR(pg_catalog.=) $1"
	" ORDER BY 1",
	.nargs = 1,
	.argtypes = {REGROLEOID},
};

/* Whenever the tables' triggers say that a row changed. */
static uint64 definitions_version = 1;
static Oid	workflow_table = InvalidOid;
static Oid	handler_table = InvalidOid;

static void
definitions_changed(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == workflow_table || relid == handler_table)
		definitions_version++;
}

uint64
durable_definitions_version(void)
{
	workflow_table = durable_rel(REL_WORKFLOW);
	handler_table = durable_rel(REL_HANDLER);
	return definitions_version;
}

void
durable_workflow_init(void)
{
	CacheRegisterRelcacheCallback(definitions_changed, (Datum) 0);
}

text **
durable_namespaces_of(Oid owner, int *n)
{
	MemoryContext caller = CurrentMemoryContext;
	Datum		value = ObjectIdGetDatum(owner);
	text	  **namespaces;

	durable_plan_begin();
	*n = (int) durable_plan_run(&namespaces_plan, &value, NULL);
	namespaces = MemoryContextAlloc(caller, sizeof(text *) * Max(*n, 1));
	for (int i = 0; i < *n; i++)
		namespaces[i] = durable_plan_text(i, 1, caller);
	durable_plan_end();
	return namespaces;
}

static DurablePlan owners_plan = {
	.name = "owners of definitions",
	.sql =
	"SELECT w.owner::pg_catalog.oid, w.namespace FROM durable.workflow w"
	" WHERE w.body IS NOT NULL"
	" UNION SELECT h.owner::pg_catalog.oid, h.namespace FROM durable.handler h"
	" ORDER BY 1, 2",
};

int
durable_owners(DurableOwner **owners)
{
	MemoryContext caller = CurrentMemoryContext;
	int			n;

	durable_plan_begin();
	n = (int) durable_plan_run(&owners_plan, NULL, NULL);
	*owners = MemoryContextAlloc(caller, sizeof(DurableOwner) * Max(n, 1));
	for (int i = 0; i < n; i++)
	{
		bool		isnull;

		(*owners)[i].role = DatumGetObjectId(SPI_getbinval(SPI_tuptable->vals[i],
														   SPI_tuptable->tupdesc, 1, &isnull));
		(*owners)[i].namespace = durable_plan_text(i, 2, caller);
	}
	durable_plan_end();
	return n;
}
