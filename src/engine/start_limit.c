/*-------------------------------------------------------------------------
 *
 * start_limit.c
 *	  What may keep a run from being started: its keys, full queues, quotas.
 *
 * A start counts under a lock of the key that it holds until its transaction ends. So
 * whoever counts next sees it, or sees that it was rolled back. Runs that end take no
 * such lock: one whose end is not committed counts as active. So there are never more
 * than the limit says, and no end of a run waits for a start.
 *
 * A run that exists is never refused. The locks come before those of runs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/numeric.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

#include "base/errors.h"
#include "base/executing.h"
#include "base/names.h"
#include "engine/start_limit.h"
#include "store/quota.h"
#include "store/singleton.h"
#include "store/task.h"

/* As names have. */
#define KEY_MAX 255

static bool
run_exists(text *run_id)
{
	int64		id;
	bool		exists;

	durable_snapshot_push();
	exists = durable_run_number(run_id, &id);
	durable_snapshot_pop();
	return exists;
}

/* Raises, or returns with the refusal in the spec; unless the run exists. */
static void
refuse(DurableRunSpec *spec, int sqlstate, char *message, char *detail, char *hint)
{
	if (!spec->replaces && spec->run_id != NULL && run_exists(spec->run_id))
		return;
	if (spec->refusal == NULL)
		ereport(ERROR,
				errcode(sqlstate),
				errmsg_internal("%s", message),
				detail == NULL ? 0 : errdetail_internal("%s", detail),
				hint == NULL ? 0 : errhint("%s", hint));
	spec->refusal->sqlstate = sqlstate;
	spec->refusal->message = message;
	spec->refusal->detail = detail;
	spec->refusal->hint = hint;
}

/* ------------------------------------------------------------------- keys -- */

/* What the expression finds in the input, as an array. */
static Jsonb *
find_all(const DurableRunSpec *spec, void *path)
{
	JsonbParseState *state = NULL;
	JsonbValue	null = {.type = jbvNull};
	Jsonb	   *input = spec->input != NULL ? DatumGetJsonbP(PointerGetDatum(spec->input)) :
		JsonbValueToJsonb(&null);
	Jsonb	   *vars;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	vars = JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
	return DatumGetJsonbP(DirectFunctionCall4(jsonb_path_query_array, JsonbPGetDatum(input),
											  PointerGetDatum(path), JsonbPGetDatum(vars),
											  BoolGetDatum(true)));
}

/* The same where an error must not end the transaction: NULL, and it is refused. */
static Jsonb *
try_find_all(DurableRunSpec *spec, void *path)
{
	MemoryContext before = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	Jsonb	   *volatile found = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(before);
	PG_TRY();
	{
		found = find_all(spec, path);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(before);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(before);
		CurrentResourceOwner = owner;
		if (durable_is_interrupt(error))
			ReThrowError(error);
		refuse(spec, error->sqlerrcode, error->message, error->detail, error->hint);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(before);
	CurrentResourceOwner = owner;
	return found;
}

/* The one scalar in the array; NULL: *problem says what is there instead. */
static text *
scalar_text(Jsonb *found, const char **problem)
{
	JsonbValue *value;

	if (JB_ROOT_COUNT(found) != 1)
	{
		*problem = JB_ROOT_COUNT(found) == 0 ? "no value" :
			psprintf("%u values", JB_ROOT_COUNT(found));
		return NULL;
	}
	value = getIthJsonbValueFromContainer(&found->root, 0);
	switch (value->type)
	{
		case jbvString:
			return cstring_to_text_with_len(value->val.string.val, value->val.string.len);
		case jbvNumeric:
			/* 1 and 1.0 are one number */
			return cstring_to_text(numeric_normalize(value->val.numeric));
		case jbvBool:
			return cstring_to_text(value->val.boolean ? "true" : "false");
		case jbvNull:
			*problem = "null";
			return NULL;
		default:
			*problem = value->type == jbvBinary &&
				JsonContainerIsArray(value->val.binary.data) ? "an array" : "an object";
			return NULL;
	}
}

/* NULL: refused, or the run exists */
static text *
evaluate(DurableRunSpec *spec, void *path, const char *which)
{
	Jsonb	   *found = spec->refusal != NULL ? try_find_all(spec, path) : find_all(spec, path);
	const char *problem = NULL;
	text	   *key;

	if (found == NULL)
		return NULL;
	key = scalar_text(found, &problem);
	if (key != NULL && (VARSIZE_ANY_EXHDR(key) == 0 || VARSIZE_ANY_EXHDR(key) > KEY_MAX))
	{
		problem = psprintf("a value of %d bytes", (int) VARSIZE_ANY_EXHDR(key));
		key = NULL;
	}
	if (key == NULL)
		refuse(spec, ERRCODE_INVALID_PARAMETER_VALUE,
			   psprintf("%s of workflow \"%s\" gives %s for this input", which,
						text_to_cstring(spec->workflow->name), problem),
			   psprintf("The expression is %s; it must give one string, number or boolean of 1 to %d bytes.",
						DatumGetCString(DirectFunctionCall1(jsonpath_out, PointerGetDatum(path))),
						KEY_MAX), NULL);
	return key;
}

static bool
read_keys(DurableRunSpec *spec)
{
	const DurableWorkflow *workflow = spec->workflow;

	if (workflow->singleton_key != NULL)
	{
		spec->singleton_key = evaluate(spec, workflow->singleton_key, "singleton_key");
		if (spec->singleton_key == NULL)
			return false;
	}
	if (spec->concurrency_key == NULL && workflow->concurrency_key != NULL)
	{
		spec->computed_key = evaluate(spec, workflow->concurrency_key, "concurrency_key");
		if (spec->computed_key == NULL)
			return false;
	}
	else
		spec->computed_key = spec->concurrency_key;
	return true;
}

/* ------------------------------------------------------------------ counts -- */

static bool
has_queue_bound(const DurableRunSpec *spec)
{
	return spec->singleton_key != NULL && spec->workflow->singleton_max_queued >= 0;
}

static DurableSlotKey
slot_key(const DurableRunSpec *spec)
{
	DurableSlotKey key = {
		.namespace = spec->workflow->namespace, .workflow = spec->workflow->name,
		.key = spec->singleton_key
	};

	return key;
}

static void
take_locks(const DurableRunSpec *spec)
{
	bool		locked = true;

	if (spec->computed_key != NULL)
		locked = durable_quota_lock(spec->workflow->namespace, spec->computed_key,
									!spec->in_sweep);
	if (locked && has_queue_bound(spec))
	{
		DurableSlotKey key = slot_key(spec);

		locked = durable_slots_lock_queue(&key, !spec->in_sweep);
	}
	if (!locked)
		ereport(ERROR,
				errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				errmsg("another transaction is starting a run of workflow \"%s\" under the same key",
					   text_to_cstring(spec->workflow->name)));
}

/* Of those that are started before it: how many have its quota's key, and its queue's. */
static int
quota_ahead(const DurableRunSpec *spec)
{
	ListCell   *lc;
	int			n = 0;

	foreach(lc, spec->ahead)
	{
		const DurableRunSpec *other = lfirst(lc);

		n += other->computed_key != NULL &&
			durable_text_same(other->computed_key, spec->computed_key);
	}
	return n;
}

static int
queue_ahead(const DurableRunSpec *spec)
{
	ListCell   *lc;
	int			n = 0;

	foreach(lc, spec->ahead)
	{
		const DurableRunSpec *other = lfirst(lc);

		n += other->singleton_key != NULL &&
			durable_text_same(other->singleton_key, spec->singleton_key) &&
			durable_text_same(other->workflow->name, spec->workflow->name);
	}
	return n;
}

static bool
is_ahead_itself(const DurableRunSpec *spec)
{
	ListCell   *lc;

	foreach(lc, spec->ahead)
	{
		if (durable_text_same(((const DurableRunSpec *) lfirst(lc))->run_id, spec->run_id))
			return true;
	}
	return false;
}

static bool
fits_quota(DurableRunSpec *spec)
{
	text	   *namespace = spec->workflow->namespace;
	int			limit = spec->has_concurrency_limit ? spec->concurrency_limit :
		spec->workflow->concurrency_limit;
	int			active;

	if (spec->computed_key == NULL)
		return true;
	durable_snapshot_push();
	active = durable_quota_count(namespace, spec->computed_key, Max(limit, 0));
	if (active >= limit)
		active = durable_quota_count(namespace, spec->computed_key, PG_INT32_MAX);
	durable_snapshot_pop();
	active += quota_ahead(spec);
	if (active < limit)
		return true;
	refuse(spec, ERRCODE_DURABLE_QUOTA,
		   psprintf("workflow \"%s\" may not start another run under concurrency key \"%s\"",
					text_to_cstring(spec->workflow->name), text_to_cstring(spec->computed_key)),
		   psprintf("Key \"%s\" has %d active runs; the limit is %d.",
					text_to_cstring(spec->computed_key), active, limit),
		   limit > 0 ? "Try again when one of them has ended." : NULL);
	return false;
}

static bool
fits_queue(DurableRunSpec *spec)
{
	const DurableWorkflow *workflow = spec->workflow;
	DurableSlotKey key = slot_key(spec);
	int			bound;
	int			depth;

	if (!has_queue_bound(spec))
		return true;
	bound = (int) Min((int64) workflow->singleton_limit + workflow->singleton_max_queued,
					  PG_INT32_MAX);
	durable_snapshot_push();
	depth = durable_slots_count(&key, SLOT_HELD, bound);
	depth += durable_slots_count(&key, SLOT_WAITING, bound - depth);
	depth += durable_slots_count(&key, SLOT_DELAYED, bound - depth);
	durable_snapshot_pop();
	depth += queue_ahead(spec);
	if (depth < bound)
		return true;
	refuse(spec, ERRCODE_DURABLE_QUEUE_FULL,
		   psprintf("the singleton queue of workflow \"%s\" for key \"%s\" is full",
					text_to_cstring(workflow->name), text_to_cstring(key.key)),
		   psprintf("Key \"%s\" has %d runs; %d may go on and %d may wait.",
					text_to_cstring(key.key), depth, workflow->singleton_limit,
					workflow->singleton_max_queued),
		   "Try again when one of them has ended.");
	return false;
}

/* Whether there is anything that this start has to be alone for. */
static bool
counts(const DurableRunSpec *spec)
{
	return spec->computed_key != NULL || has_queue_bound(spec);
}

/* One of the keys that several starts have to lock. */
typedef struct StartLock
{
	bool		queue;			/* of the workflow's singletons, else of a quota */
	text	   *workflow;
	text	   *key;
	const DurableRunSpec *spec;
} StartLock;

/* Quotas before queues, as a single start takes them. */
static int
compare_locks(const void *a, const void *b)
{
	const StartLock *x = a;
	const StartLock *y = b;
	int			result;

	if (x->queue != y->queue)
		return x->queue ? 1 : -1;
	result = strcmp(text_to_cstring(x->key), text_to_cstring(y->key));
	if (result != 0 || !x->queue)
		return result;
	return strcmp(text_to_cstring(x->workflow), text_to_cstring(y->workflow));
}

static void
take_lock(const StartLock *lock)
{
	DurableSlotKey key = {
		.namespace = lock->spec->workflow->namespace, .workflow = lock->workflow, .key = lock->key
	};

	CHECK_FOR_INTERRUPTS();
	if (lock->queue)
		(void) durable_slots_lock_queue(&key, true);
	else
		(void) durable_quota_lock(key.namespace, key.key, true);
}

/* The keys that one start has to lock, of which there are two at most. */
static int
list_locks(const DurableRunSpec *spec, StartLock *locks)
{
	int			n = 0;

	if (spec->computed_key != NULL)
		locks[n++] = (StartLock) {
		.key = spec->computed_key, .workflow = spec->workflow->name, .spec = spec
	};
	if (has_queue_bound(spec))
		locks[n++] = (StartLock) {
		.queue = true, .key = spec->singleton_key, .workflow = spec->workflow->name, .spec = spec
	};
	return n;
}

void
durable_start_lock_all(List *specs)
{
	StartLock  *locks = palloc(sizeof(StartLock) * 2 * Max(list_length(specs), 1));
	int			n = 0;
	ListCell   *lc;

	if (list_length(specs) < 2)
		return;
	foreach(lc, specs)
	{
		DurableRunSpec *spec = lfirst(lc);

		CHECK_FOR_INTERRUPTS();
		spec->singleton_key = spec->computed_key = NULL;
		if (read_keys(spec) && counts(spec) &&
			(spec->run_id == NULL || !run_exists(spec->run_id)))
			n += list_locks(spec, &locks[n]);
	}
	qsort(locks, n, sizeof(StartLock), compare_locks);
	for (int i = 0; i < n; i++)
	{
		if (i == 0 || compare_locks(&locks[i - 1], &locks[i]) != 0)
			take_lock(&locks[i]);
	}
}

/* A key that the input does not give is none. */
static void
read_keys_that_are_there(DurableRunSpec *spec)
{
	const DurableWorkflow *workflow = spec->workflow;
	DurableRefusal ignored = {0};

	spec->refusal = &ignored;
	if (workflow->singleton_key != NULL)
		spec->singleton_key = evaluate(spec, workflow->singleton_key, "singleton_key");
	if (workflow->concurrency_key != NULL)
		spec->computed_key = evaluate(spec, workflow->concurrency_key, "concurrency_key");
	spec->refusal = NULL;
}

/* A child may join a run with a generated id, but not take one that is still to come. */
static bool
takes_generated(DurableRunSpec *spec)
{
	int64		number;

	if (spec->run_id == NULL || !durable_task_id_generated(spec->run_id, &number))
		return false;
	refuse(spec, ERRCODE_INVALID_PARAMETER_VALUE,
		   psprintf("there is no run \"%s\"", text_to_cstring(spec->run_id)),
		   pstrdup("Ids of \"~\" and a number are generated."), NULL);
	return true;
}

bool
durable_start_check(DurableRunSpec *spec)
{
	spec->singleton_key = spec->computed_key = NULL;
	if (takes_generated(spec))
		return false;
	if (spec->for_failure)
	{
		read_keys_that_are_there(spec);
		return true;
	}
	if (!read_keys(spec))
		return false;
	if (!counts(spec))
		return true;
	/* who asks for it again does not wait for those who count */
	if (spec->run_id != NULL && (run_exists(spec->run_id) || is_ahead_itself(spec)))
		return false;
	take_locks(spec);
	return fits_quota(spec) && fits_queue(spec);
}

void
durable_start_keys(DurableRunSpec *spec)
{
	spec->replaces = true;
	spec->singleton_key = spec->computed_key = NULL;
	(void) read_keys(spec);
}
