/*-------------------------------------------------------------------------
 *
 * run.c
 *	  start, start_many, cancel, requeue, retry, signal, result.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "api/args.h"
#include "api/conflict.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/json.h"
#include "base/names.h"
#include "base/security.h"
#include "engine/check.h"
#include "engine/convention.h"
#include "engine/handoff.h"
#include "engine/recover.h"
#include "engine/run.h"
#include "engine/run_replace.h"
#include "engine/start_limit.h"
#include "engine/step.h"
#include "engine/turn.h"
#include "store/run.h"
#include "store/workflow.h"

DURABLE_FUNCTION(durable_start);
DURABLE_FUNCTION(durable_start_many);
DURABLE_FUNCTION(durable_cancel_run);
DURABLE_FUNCTION(durable_requeue_run);
DURABLE_FUNCTION(durable_retry_run);
DURABLE_FUNCTION(durable_retry_with_input);
DURABLE_FUNCTION(durable_redispatch);
DURABLE_FUNCTION(durable_signal);
DURABLE_FUNCTION(durable_result);

/* Whoever could start a run under the id of a window that is still to come would keep
 * the schedule from starting its own; under that of a dead letter likewise. */
static text *
check_run_id(text *run_id)
{
	int			length = VARSIZE_ANY_EXHDR(run_id);
	const char *prefix = durable_reserved_prefix(run_id);

	if (length == 0 || length > DURABLE_NAME_MAX)
		durable_error_value("run_id",
							psprintf("It must have between 1 and %d bytes.", DURABLE_NAME_MAX));
	if (VARDATA_ANY(run_id)[0] == '~')
		durable_error_value("run_id", "Ids that start with \"~\" are reserved for generated ones.");
	if (prefix != NULL)
		durable_error_value("run_id",
							psprintf("Ids that start with \"%s\" are reserved for runs that the engine itself starts.",
									 prefix));
	return run_id;
}

/* concurrency_key and concurrency_limit, in place of what the workflow says. */
static void
read_quota(FunctionCallInfo fcinfo, DurableRunSpec *spec)
{
	spec->concurrency_key = durable_arg_name(fcinfo, 9, "concurrency_key", true);
	spec->has_concurrency_limit = !PG_ARGISNULL(10);
	if (spec->has_concurrency_limit)
		spec->concurrency_limit = PG_GETARG_INT32(10);
	if (spec->has_concurrency_limit && spec->concurrency_key == NULL &&
		spec->workflow->concurrency_key == NULL)
		durable_error_value("concurrency_limit", "There is no concurrency_key, neither here nor in the workflow.");
	if (spec->concurrency_key != NULL && !spec->has_concurrency_limit &&
		spec->workflow->concurrency_limit < 0)
		durable_error_value("concurrency_key", "There is no concurrency_limit, neither here nor in the workflow.");
}

/* The arguments that start and start_many share, from "version" (3) on. */
static void
read_spec(FunctionCallInfo fcinfo, DurableRunSpec *spec, DurableWorkflow *workflow)
{
	text	   *name = durable_arg_name(fcinfo, 0, "workflow", false);
	text	   *version = durable_arg_name(fcinfo, 3, "version", true);
	text	   *namespace = durable_arg_namespace(fcinfo, 4);

	durable_access_require(namespace, PRIVILEGE_START);
	if (!durable_workflow_for_start(namespace, name, version, workflow))
		ereport(ERROR,
				errcode(ERRCODE_UNDEFINED_OBJECT),
				version == NULL ?
				errmsg("workflow \"%s\" is not registered", text_to_cstring(name)) :
				errmsg("workflow \"%s\"@\"%s\" is not registered",
					   text_to_cstring(name), text_to_cstring(version)));
	spec->workflow = workflow;
	spec->tags = PG_ARGISNULL(5) ? workflow->tags :
		durable_tags_unite(workflow->tags, PG_GETARG_ARRAYTYPE_P(5));
	spec->priority = PG_ARGISNULL(6) ? 0 : PG_GETARG_INT32(6);
	spec->start_at = PG_ARGISNULL(7) ? DT_NOBEGIN : PG_GETARG_TIMESTAMPTZ(7);
	if (TIMESTAMP_IS_NOEND(spec->start_at))
		durable_error_value("start_at", "It must not be infinity.");
	spec->search_attributes = durable_arg_payload(fcinfo, 8, "search_attributes");
	read_quota(fcinfo, spec);
	spec->headers = durable_arg_payload(fcinfo, 11, "headers");
}

/* The input is checked first, also for a run that exists (F-START-3). A taken id must
 * be one that the caller may know of. false: it is taken. */
static bool
start_one(DurableRunSpec *spec)
{
	int64		id;
	DurableRow	row;

	durable_check_require(spec->workflow->input_check, spec->workflow->owner,
						  spec->input == NULL ? NULL : DatumGetJsonbP(PointerGetDatum(spec->input)),
						  "input of workflow", spec->workflow->name);
	if (durable_run_start(spec))
		return true;
	durable_snapshot_push();
	if (durable_run_number(spec->run_id, &id) && durable_run_read(id, &row))
		durable_access_require(DatumGetTextPP(row.values[RUN_NAMESPACE]), PRIVILEGE_START);
	durable_snapshot_pop();
	return false;
}

/* The ids are taken; those of runs that are gone by now are started after all. */
static void
replace_runs(DurableRunSpec *spec, const DurableConflict *conflict, DurableRunItem *items, int n)
{
	durable_run_replace(spec, conflict, items, n);
	for (int i = 0; i < n; i++)
	{
		while (items[i].result == RUN_IS_GONE)
		{
			spec->run_id = items[i].run_id;
			spec->input = items[i].input;
			if (start_one(spec))
				items[i].result = RUN_REPLACED;
			else
				durable_run_replace(spec, conflict, &items[i], 1);
		}
	}
}

static void
error_taken(text *run_id, DurableRunReplaced why)
{
	ereport(ERROR,
			errcode(ERRCODE_UNIQUE_VIOLATION),
			errmsg("run \"%s\" exists already", text_to_cstring(run_id)),
			why == RUN_HAS_BEGUN ? errdetail("It has begun, and is not replaced any more.") :
			why == RUN_HAS_ENDED ? errdetail("It has ended, and its id is not used again.") :
			why == RUN_IS_ANOTHER ?
			errdetail("It is a child, or of another workflow or namespace.") :
			errdetail("Key (run_id)=(%s) is taken.", text_to_cstring(run_id)),
			why == RUN_REPLACED ?
			errhint("on_conflict => 'replace' lets the new one take its place while it has not begun.") : 0);
}

Datum
durable_start(PG_FUNCTION_ARGS)
{
	DurableWorkflow workflow;
	DurableRunSpec spec = {0};
	DurableConflict conflict;

	durable_require_writable("durable.start()");
	spec.input = durable_arg_payload(fcinfo, 1, "input");
	if (!PG_ARGISNULL(2))
		spec.run_id = check_run_id(PG_GETARG_TEXT_PP(2));
	read_spec(fcinfo, &spec, &workflow);
	durable_arg_conflict(fcinfo, &conflict, &spec.start_at, "start_at");
	if (spec.run_id == NULL)
		durable_conflict_needs_id(&conflict, "run_id");
	if (!start_one(&spec) && conflict.policy != CONFLICT_RETURN)
	{
		DurableRunItem item = {.run_id = spec.run_id, .input = spec.input, .result = RUN_REPLACED};

		if (durable_conflict_replaces(&conflict))
			replace_runs(&spec, &conflict, &item, 1);
		if (conflict.policy == CONFLICT_REJECT || item.result != RUN_REPLACED)
			error_taken(item.run_id, item.result);
	}
	PG_RETURN_TEXT_P(spec.run_id);
}

/* One that is refused is no reason to refuse the others: NULL in its place. */
static void
resolve_taken(DurableRunSpec *spec, const DurableConflict *conflict, DurableRunItem *items, int n,
			  text **run_ids)
{
	if (durable_conflict_replaces(conflict))
		replace_runs(spec, conflict, items, n);
	for (int i = 0; i < n; i++)
	{
		if (conflict->policy == CONFLICT_REJECT || items[i].result != RUN_REPLACED)
			run_ids[items[i].position] = NULL;
	}
}

/* Of starts that have to be counted, by keys that may differ. */
static void
lock_keys(const DurableRunSpec *spec, const Datum *inputs, const bool *nulls, text **run_ids, int n)
{
	const DurableWorkflow *workflow = spec->workflow;
	List	   *specs = NIL;

	if ((workflow->concurrency_key == NULL || spec->concurrency_key != NULL) &&
		(workflow->singleton_key == NULL || workflow->singleton_max_queued < 0))
		return;
	for (int i = 0; i < n; i++)
	{
		DurableRunSpec *one = palloc(sizeof(DurableRunSpec));

		*one = *spec;
		one->input = nulls[i] ? NULL : durable_check_payload(inputs[i], "input");
		one->run_id = run_ids == NULL ? NULL : check_run_id(run_ids[i]);
		specs = lappend(specs, one);
	}
	durable_start_lock_all(specs);
}

/* What start_many is given, and what becomes of it. */
typedef struct Starts
{
	DurableRunSpec spec;
	DurableConflict conflict;
	Datum	   *inputs;
	bool	   *nulls;
	text	  **run_ids;		/* or NULL */
	int			n;
	text	  **results;
	DurableRunItem *taken;		/* those whose ids are, unless that is all right */
	int			ntaken;
} Starts;

static void
start_each(Starts *starts)
{
	DurableRunSpec *spec = &starts->spec;

	for (int i = 0; i < starts->n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		spec->input = starts->nulls[i] ? NULL : durable_check_payload(starts->inputs[i], "input");
		spec->run_id = starts->run_ids == NULL ? NULL : check_run_id(starts->run_ids[i]);
		if (!start_one(spec) && starts->conflict.policy != CONFLICT_RETURN)
			starts->taken[starts->ntaken++] = (DurableRunItem) {
			.run_id = spec->run_id, .input = spec->input, .position = i
		};
		starts->results[i] = spec->run_id;
	}
}

static void
start_in_batch(Starts *starts)
{
	DurableBatch *batch = starts->n > 1 ? durable_batch_begin() : NULL;

	PG_TRY();
	{
		start_each(starts);
	}
	PG_CATCH();
	{
		durable_batch_abandon(batch);
		PG_RE_THROW();
	}
	PG_END_TRY();
	durable_batch_end(batch);
}

Datum
durable_start_many(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	DurableWorkflow workflow;
	Starts		starts = {0};
	int			nids;

	durable_require_writable("durable.start_many()");
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	if (PG_ARGISNULL(1))
		durable_error_null("inputs");
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(1), JSONBOID, -1, false, TYPALIGN_INT,
					  &starts.inputs, &starts.nulls, &starts.n);
	if (!PG_ARGISNULL(2))
	{
		starts.run_ids = durable_arg_texts(fcinfo, 2, "run_ids", starts.n, &nids);
		if (nids != starts.n)
			durable_error_value("run_ids", "It must have as many elements as inputs.");
	}
	read_spec(fcinfo, &starts.spec, &workflow);
	durable_arg_conflict(fcinfo, &starts.conflict, &starts.spec.start_at, "start_at");
	if (starts.run_ids == NULL)
		durable_conflict_needs_id(&starts.conflict, "run_ids");
	starts.results = palloc(sizeof(text *) * Max(starts.n, 1));
	starts.taken = palloc0(sizeof(DurableRunItem) * Max(starts.n, 1));
	lock_keys(&starts.spec, starts.inputs, starts.nulls, starts.run_ids, starts.n);
	start_in_batch(&starts);
	resolve_taken(&starts.spec, &starts.conflict, starts.taken, starts.ntaken, starts.results);
	for (int i = 0; i < starts.n; i++)
	{
		Datum		value = PointerGetDatum(starts.results[i]);
		bool		isnull = (starts.results[i] == NULL);

		tuplestore_putvalues(result->setResult, result->setDesc, &value, &isnull);
	}
	return (Datum) 0;
}

/* The run's row, checked for the privilege; false: unknown. */
static bool
read_run(FunctionCallInfo fcinfo, DurablePrivilege privilege, DurableRow *row)
{
	int64		id;
	bool		found;

	if (PG_ARGISNULL(0))
		durable_error_null("run_id");
	durable_snapshot_push();
	found = durable_run_number(PG_GETARG_TEXT_PP(0), &id) && durable_run_read(id, row);
	durable_snapshot_pop();
	if (found)
		durable_access_require(DatumGetTextPP(row->values[RUN_NAMESPACE]), privilege);
	return found;
}

Datum
durable_cancel_run(PG_FUNCTION_ARGS)
{
	DurableRow	row;
	const char *reason;

	durable_require_writable("durable.cancel()");
	if (!read_run(fcinfo, PRIVILEGE_START, &row))
		PG_RETURN_NULL();
	reason = PG_ARGISNULL(1) ? "cancelled" : text_to_cstring(PG_GETARG_TEXT_PP(1));
	if (durable_run_end(DatumGetInt64(row.values[RUN_ID]), RUN_CANCELLED, NULL,
						durable_json_error(reason, false), true, NULL, NULL))
		PG_RETURN_TEXT_P(cstring_to_text(durable_run_status_name(RUN_CANCELLED)));
	(void) read_run(fcinfo, PRIVILEGE_START, &row);
	PG_RETURN_DATUM(row.values[RUN_STATUS]);
}

static void
error_unknown(text *run_id)
{
	ereport(ERROR,
			errcode(ERRCODE_UNDEFINED_OBJECT),
			errmsg("run \"%s\" does not exist", text_to_cstring(run_id)));
}

/* The refusals of requeue and retry. */
static void
check_requeued(DurableRequeued result, text *run_id)
{
	DurableRow	row;
	int64		id;

	if (result != REQUEUE_LIVE && result != REQUEUE_FINAL)
		return;
	durable_snapshot_push();
	if (!durable_run_number(run_id, &id) || !durable_run_read(id, &row))
		error_unknown(run_id);
	ereport(ERROR,
			errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			errmsg("run \"%s\" cannot be tried again", text_to_cstring(run_id)),
			errdetail("Its status is %s.", TextDatumGetCString(row.values[RUN_STATUS])),
			result == REQUEUE_LIVE ?
			errhint("durable.requeue() lets a run that has not ended go on at once.") :
			errhint("Start a new run with durable.retry_with_input()."));
}

Datum
durable_requeue_run(PG_FUNCTION_ARGS)
{
	DurableRow	row;
	DurableRequeued result;

	durable_require_writable("durable.requeue()");
	if (!read_run(fcinfo, PRIVILEGE_MANAGE, &row))
		PG_RETURN_NULL();
	result = durable_requeue(DatumGetInt64(row.values[RUN_ID]), false);
	check_requeued(result, PG_GETARG_TEXT_PP(0));
	if (result == REQUEUE_UNKNOWN)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(durable_run_status_name(RUN_PENDING)));
}

Datum
durable_retry_run(PG_FUNCTION_ARGS)
{
	DurableRow	row;
	DurableRequeued result = REQUEUE_UNKNOWN;

	durable_require_writable("durable.retry()");
	if (read_run(fcinfo, PRIVILEGE_MANAGE, &row))
		result = durable_requeue(DatumGetInt64(row.values[RUN_ID]), true);
	if (result == REQUEUE_UNKNOWN)
		error_unknown(PG_GETARG_TEXT_PP(0));
	check_requeued(result, PG_GETARG_TEXT_PP(0));
	PG_RETURN_TEXT_P(cstring_to_text(durable_run_status_name(RUN_PENDING)));
}

/* "<run id>~retry~<8 hex digits>" */
static text *
retry_id(text *run_id)
{
	uint32		number;
	char	   *id;

	if (!pg_strong_random(&number, sizeof(number)))
		ereport(ERROR,
				errcode(ERRCODE_INTERNAL_ERROR),
				errmsg("could not generate random values"));
	id = psprintf("%s~retry~%08x", text_to_cstring(run_id), number);
	if (strlen(id) > DURABLE_NAME_MAX)
		ereport(ERROR,
				errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				errmsg("the id of a retry of run \"%s\" would be too long",
					   text_to_cstring(run_id)),
				errdetail("It must have between 1 and %d bytes.", DURABLE_NAME_MAX),
				errhint("Start the workflow again with durable.start() and an id of your own."));
	return cstring_to_text(id);
}

Datum
durable_retry_with_input(PG_FUNCTION_ARGS)
{
	DurableRow	row;
	DurableWorkflow workflow;
	DurableRunSpec spec = {.workflow = &workflow, .start_at = DT_NOBEGIN};
	text	   *name;

	durable_require_writable("durable.retry_with_input()");
	spec.input = durable_arg_payload(fcinfo, 1, "input");
	if (!read_run(fcinfo, PRIVILEGE_MANAGE, &row))
		error_unknown(PG_GETARG_TEXT_PP(0));
	name = DatumGetTextPP(row.values[RUN_WORKFLOW]);
	if (!durable_workflow_find(DatumGetTextPP(row.values[RUN_NAMESPACE]), name, NULL, &workflow))
		ereport(ERROR,
				errcode(ERRCODE_UNDEFINED_OBJECT),
				errmsg("workflow \"%s\" is not registered", text_to_cstring(name)));
	spec.priority = DatumGetInt32(row.values[RUN_PRIORITY]);
	spec.tags = row.nulls[RUN_TAGS] ? workflow.tags :
		durable_tags_unite(workflow.tags, DatumGetArrayTypeP(row.values[RUN_TAGS]));
	spec.search_attributes = row.nulls[RUN_SEARCH_ATTRIBUTES] ? NULL :
		DatumGetPointer(row.values[RUN_SEARCH_ATTRIBUTES]);
	spec.headers = row.nulls[RUN_HEADERS] ? NULL : DatumGetPointer(row.values[RUN_HEADERS]);
	/* a random id that is taken is no reason to give up */
	do
		spec.run_id = retry_id(DatumGetTextPP(row.values[RUN_RUN_ID]));
	while (!durable_run_start(&spec));
	PG_RETURN_TEXT_P(spec.run_id);
}

Datum
durable_redispatch(PG_FUNCTION_ARGS)
{
	DurableRow	row;
	DurableRun	run;
	int			lost = 0;
	int			seq;

	durable_require_writable("durable.redispatch()");
	if (!read_run(fcinfo, PRIVILEGE_START, &row))
		PG_RETURN_NULL();
	durable_snapshot_push();
	if (durable_run_open(&run, DatumGetInt64(row.values[RUN_ID]), true) == TM_Ok)
	{
		/* one that waits for its handler waits for no step */
		lost = durable_run_in_handoff(&run.row, &seq) ? 0 : durable_step_forget_lost(&run);
		if (lost > 0)
		{
			durable_snapshot_push();
			durable_run_wake(&run);
			durable_snapshot_pop();
		}
		durable_run_close(&run);
	}
	durable_snapshot_pop();
	CommandCounterIncrement();
	PG_RETURN_INT32(lost);
}

Datum
durable_signal(PG_FUNCTION_ARGS)
{
	text	   *token;
	text	   *namespace;
	void	   *payload;
	text	   *woken;

	durable_require_writable("durable.signal()");
	token = durable_arg_name(fcinfo, 0, "token", false);
	payload = durable_arg_payload(fcinfo, 1, "payload");
	namespace = durable_arg_namespace(fcinfo, 2);
	durable_access_require(namespace, PRIVILEGE_SIGNAL);
	woken = durable_run_signal(namespace, token, payload == NULL ? NULL :
							   DatumGetJsonbP(PointerGetDatum(payload)));
	if (woken == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(woken);
}

Datum
durable_result(PG_FUNCTION_ARGS)
{
	DurableRow	row;

	if (!read_run(fcinfo, PRIVILEGE_READ, &row))
		error_unknown(PG_GETARG_TEXT_PP(0));
	if (!durable_run_has_ended(&row))
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("run \"%s\" has not ended", text_to_cstring(PG_GETARG_TEXT_PP(0))),
				errdetail("Its status is %s.", TextDatumGetCString(row.values[RUN_STATUS])),
				errhint("Wait for it with CALL durable.wait_for_run()."));
	if (durable_run_status(&row) != RUN_COMPLETED)
		durable_raise(DatumGetJsonbP(row.values[RUN_ERROR]));
	if (row.nulls[RUN_OUTPUT])
		PG_RETURN_NULL();
	PG_RETURN_DATUM(row.values[RUN_OUTPUT]);
}
