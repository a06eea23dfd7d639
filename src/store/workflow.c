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
#include "utils/snapmgr.h"

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
	WORKFLOW_COLUMNS
};

enum
{
	HANDLER_NAMESPACE,
	HANDLER_NAME,
	HANDLER_OWNER,
	HANDLER_REGISTERED_AT,
	HANDLER_HANDLER,
	HANDLER_COLUMNS
};

text *
durable_owner_queue(Oid owner)
{
	return cstring_to_text(psprintf("#%u", owner));
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
			char	   *after_x;
			char	   *after_y;
			unsigned long vx = strtoul(x, &after_x, 10);
			unsigned long vy = strtoul(y, &after_y, 10);

			if (vx != vy)
				return vx < vy ? -1 : 1;
			x = after_x;
			y = after_y;
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
	{
		handler->namespace = DatumGetTextPCopy(row.values[HANDLER_NAMESPACE]);
		handler->name = DatumGetTextPCopy(row.values[HANDLER_NAME]);
		handler->owner = DatumGetObjectId(row.values[HANDLER_OWNER]);
		handler->handler = DatumGetTextPCopy(row.values[HANDLER_HANDLER]);
	}
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

/* Only its owner may replace a definition. */
static DurablePlan workflow_store_plan = {
	.name = "store workflow",
	.sql =
	"INSERT INTO durable.workflow AS w (namespace, name, version, owner, registered_at,"
	" atomic, body, queue, tags)"
	" VALUES ($1, $2, $3, $4, pg_catalog.clock_timestamp(), $8, $5, $6, $7)"
	" ON CONFLICT ON CONSTRAINT workflow_pkey DO UPDATE SET"
	" registered_at = excluded.registered_at, atomic = excluded.atomic,"
	" body = excluded.body, queue = excluded.queue, tags = excluded.tags"
	" WHERE w.owner OPERATOR(pg_catalog.=) excluded.owner",
	.nargs = 8,
	.argtypes = {TEXTOID, TEXTOID, TEXTOID, REGROLEOID, TEXTOID, TEXTOID, TEXTARRAYOID, BOOLOID},
};

bool
durable_workflow_store(const DurableWorkflow *workflow)
{
	Datum		values[] = {
		PointerGetDatum(workflow->namespace), PointerGetDatum(workflow->name),
		PointerGetDatum(workflow->version), ObjectIdGetDatum(workflow->owner),
		PointerGetDatum(workflow->body), PointerGetDatum(workflow->queue),
		PointerGetDatum(workflow->tags), BoolGetDatum(workflow->atomic)
	};

	return run_once(&workflow_store_plan, values,
					workflow->body == NULL ? "    n   " : NULL) > 0;
}

static DurablePlan workflow_delete_plan = {
	.name = "delete workflow",
	.sql =
	"DELETE FROM durable.workflow w WHERE w.namespace OPERATOR(pg_catalog.=) $1"
	" AND w.name OPERATOR(pg_catalog.=) $2"
	" AND ($3 IS NULL OR w.version OPERATOR(pg_catalog.=) $3)"
	" AND w.owner OPERATOR(pg_catalog.=) $4",
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

static DurablePlan workflow_in_use_plan = {
	.name = "workflow in use",
	.sql =
	"SELECT FROM durable.run r WHERE r.namespace OPERATOR(pg_catalog.=) $1"
	" AND r.workflow OPERATOR(pg_catalog.=) $2"
	" AND ($3 IS NULL OR r.version OPERATOR(pg_catalog.=) $3)"
	" AND r.finished_at IS NULL LIMIT 1",
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
	"INSERT INTO durable.handler AS h (namespace, name, owner, registered_at, handler)"
	" VALUES ($1, $2, $3, pg_catalog.clock_timestamp(), $4)"
	" ON CONFLICT ON CONSTRAINT handler_pkey DO UPDATE SET"
	" registered_at = excluded.registered_at, handler = excluded.handler"
	" WHERE h.owner OPERATOR(pg_catalog.=) excluded.owner",
	.nargs = 4,
	.argtypes = {TEXTOID, TEXTOID, REGROLEOID, TEXTOID},
};

bool
durable_handler_store(const DurableHandler *handler)
{
	Datum		values[] = {
		PointerGetDatum(handler->namespace), PointerGetDatum(handler->name),
		ObjectIdGetDatum(handler->owner), PointerGetDatum(handler->handler)
	};

	return run_once(&handler_store_plan, values, NULL) > 0;
}

static DurablePlan handler_delete_plan = {
	.name = "delete handler",
	.sql =
	"DELETE FROM durable.handler h WHERE h.namespace OPERATOR(pg_catalog.=) $1"
	" AND h.name OPERATOR(pg_catalog.=) $2 AND h.owner OPERATOR(pg_catalog.=) $3",
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
	" UNION SELECT h.namespace FROM durable.handler h WHERE h.owner OPERATOR(pg_catalog.=) $1"
	" ORDER BY 1",
	.nargs = 1,
	.argtypes = {REGROLEOID},
};

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
	{
		bool		isnull;
		Datum		name = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc,
										 1, &isnull);
		MemoryContext before = MemoryContextSwitchTo(caller);

		namespaces[i] = DatumGetTextPCopy(name);
		MemoryContextSwitchTo(before);
	}
	durable_plan_end();
	return namespaces;
}
