/*-------------------------------------------------------------------------
 *
 * capability.c
 *	  What workers outside can do, and what becomes of runs that none can go on with
 *	  (catalogue F-LIVE and F-HS).
 *
 * Who parks a run looks at the workers twice: the second time with the queue's lock,
 * which whoever announces himself waits for. So either the worker is seen, or the
 * announcement finds the run. If the lock is not to be had at once, somebody is
 * announcing himself, and the run looks again shortly. A beat that changes nothing
 * takes no lock and wakes nobody.
 *
 * The guard is off where no worker has announced himself, and for the queues of the
 * database's own sessions.
 *
 * Locks: the queues of an announcement, ascending; the worker's row; runs that wait for
 * it, none of them waited for.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/commit.h"
#include "base/guc.h"
#include "base/json.h"
#include "base/names.h"
#include "base/protocol.h"
#include "engine/capability.h"
#include "engine/run.h"
#include "store/blocked.h"
#include "store/ready.h"

/* A run that has met somebody announcing himself looks again this soon. */
#define RECHECK_US (200 * 1000)
/* Runs that one announcement wakes. */
#define WAKE_MAX 500

bool
durable_protocol_fits(int min, int max)
{
	return min <= DURABLE_PROTOCOL_MAX && max >= DURABLE_PROTOCOL_MIN;
}

ArrayType *
durable_capabilities_v1(void)
{
	static const char *const names[] = DURABLE_CAPABILITIES_V1;
	text	   *members[lengthof(names)];

	for (int i = 0; i < lengthof(names); i++)
		members[i] = cstring_to_text(names[i]);
	return durable_set_make(members, lengthof(names));
}

/* ------------------------------------------------------------- negotiating -- */

/* Those of a that b has, or has not. */
static void
add_members(JsonbParseState **state, const char *key, ArrayType *a, ArrayType *b, bool common)
{
	int			n;
	text	  **members = durable_set_members(a, &n);

	durable_json_begin_array(state, key);
	for (int i = 0; i < n; i++)
	{
		JsonbValue	value;

		if (durable_set_has(b, members[i]) != common)
			continue;
		value.type = jbvString;
		value.val.string.val = VARDATA_ANY(members[i]);
		value.val.string.len = VARSIZE_ANY_EXHDR(members[i]);
		pushJsonbValue(state, WJB_ELEM, &value);
	}
	pushJsonbValue(state, WJB_END_ARRAY, NULL);
}

Jsonb *
durable_negotiate(const DurableWorkerRow *worker)
{
	JsonbParseState *state = NULL;
	ArrayType  *ours = durable_capabilities_v1();
	bool		fits = durable_protocol_fits(worker->protocol_min, worker->protocol_max);
	bool		same = durable_set_contains(ours, worker->capabilities) &&
		durable_set_contains(worker->capabilities, ours);

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	durable_json_add_string(&state, "outcome",
							!fits ? "incompatible" : same ? "compatible" : "degraded");
	if (fits)
		durable_json_add_int(&state, "protocol",
							 Min(worker->protocol_max, DURABLE_PROTOCOL_MAX));
	add_members(&state, "capabilities", ours, worker->capabilities, true);
	add_members(&state, "missing", ours, worker->capabilities, false);
	add_members(&state, "extra", worker->capabilities, ours, false);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

/* ---------------------------------------------------------------- the guard -- */

DurableRoute
durable_route(text *namespace, text *queue, ArrayType *requires)
{
	DurableWorkerScan scan;
	DurableWorkerRow worker;
	DurableRoute route = ROUTE_UNPUBLISHED;

	if (durable_table_is_unused(REL_WORKER_QUEUE))
		return route;
	durable_worker_scan_open(&scan, namespace, queue, durable_clock_now());
	while (route != ROUTE_OPEN && durable_worker_scan_next(&scan, &worker))
	{
		bool		capable;

		CHECK_FOR_INTERRUPTS();
		capable = requires == NULL || durable_worker_set_has(worker.capabilities, requires);
		if (capable && durable_protocol_fits(worker.protocol_min, worker.protocol_max))
			route = ROUTE_OPEN;
		else
			route = Max(route, capable ? ROUTE_NO_PROTOCOL : ROUTE_NO_CAPABLE);
	}
	durable_worker_scan_close(&scan);
	return route;
}

/* Where the command under way has seen last that a step may be dispatched. */
static struct
{
	uint64		batch;			/* 0: it has not */
	text	   *namespace;
	text	   *queue;
	ArrayType  *requires;
}			last_open;

/*
 * A worker may leave as soon as he was looked at, and a queue of which nothing was known
 * may get its first worker: who dispatches takes no lock against either. So the steps of one
 * command may all rest on one look. That nobody is there is never taken from here.
 */
static bool
is_known_open(text *namespace, text *queue, ArrayType *requires)
{
	MemoryContext context;

	return last_open.batch != 0 && last_open.batch == durable_batch_current(&context) &&
		durable_text_same(last_open.queue, queue) &&
		durable_text_same(last_open.namespace, namespace) &&
		(requires == NULL || last_open.requires == NULL ? requires == last_open.requires :
		 durable_set_same(last_open.requires, requires));
}

static void
remember_open(text *namespace, text *queue, ArrayType *requires)
{
	MemoryContext context;
	MemoryContext before;
	uint64		batch = durable_batch_current(&context);

	if (batch == 0)
		return;
	before = MemoryContextSwitchTo(context);
	last_open.batch = 0;
	last_open.namespace = DatumGetTextPCopy(PointerGetDatum(namespace));
	last_open.queue = DatumGetTextPCopy(PointerGetDatum(queue));
	last_open.requires = requires == NULL ? NULL :
		DatumGetArrayTypePCopy(PointerGetDatum(requires));
	last_open.batch = batch;
	MemoryContextSwitchTo(before);
}

static DurableRoute
route_of_step(text *namespace, text *queue, ArrayType *requires)
{
	DurableRoute route;

	if (is_known_open(namespace, queue, requires))
		return ROUTE_OPEN;
	route = durable_route(namespace, queue, requires);
	if (!DURABLE_ROUTE_BLOCKED(route))
		remember_open(namespace, queue, requires);
	return route;
}

bool
durable_guard_step(DurableTurn *turn, text *queue, ArrayType *requires)
{
	DurableRoute route;
	bool		alone;

	/* a run that ends has nothing to be parked for */
	if (turn->ending || OidIsValid(durable_queue_owner(queue)))
		return true;
	route = route_of_step(turn->namespace, queue, requires);
	if (!DURABLE_ROUTE_BLOCKED(route))
		return true;
	alone = durable_blocked_lock_park(turn->namespace, queue);
	if (alone)
		route = durable_route(turn->namespace, queue, requires);
	if (!DURABLE_ROUTE_BLOCKED(route))
		return true;
	/* of several the first is told */
	if (turn->blocked_queue == NULL)
	{
		turn->blocked_queue = queue;
		turn->blocked_requires = requires;
		turn->blocked_route = route;
	}
	turn->blocked_soon |= !alone;
	return false;
}

static char *
reason(ArrayType *requires, DurableRoute route)
{
	StringInfoData text_of;
	int			n = 0;
	text	  **members = requires == NULL ? NULL : durable_set_members(requires, &n);

	initStringInfo(&text_of);
	appendStringInfoString(&text_of, route == ROUTE_NO_PROTOCOL ?
						   "blocked: no protocol-compatible worker" :
						   "blocked: no compatible worker");
	for (int i = 0; i < n; i++)
		appendStringInfo(&text_of, "%s%s", i == 0 ? " (requires " : ", ",
						 text_to_cstring(members[i]));
	if (n > 0)
		appendStringInfoChar(&text_of, ')');
	return text_of.data;
}

TimestampTz
durable_block(DurableRow *run, text *queue, ArrayType *requires, DurableRoute route, bool soon)
{
	const char *code = route == ROUTE_NO_PROTOCOL ? "protocol.incompatible" :
		"capability.unavailable";
	JsonbValue	name;
	Jsonb	   *error = durable_json_error_full(reason(requires, route), code, true);

	name.type = jbvString;
	name.val.string.val = VARDATA_ANY(queue);
	name.val.string.len = VARSIZE_ANY_EXHDR(queue);
	durable_run_set_status(run, RUN_BLOCKED);
	durable_row_set(run, RUN_ERROR,
					JsonbPGetDatum(durable_json_with(error, "queue", JsonbValueToJsonb(&name))));
	durable_blocked_store(DatumGetInt64(run->values[RUN_ID]),
						  DatumGetTextPP(run->values[RUN_NAMESPACE]), queue, requires);
	return durable_clock_now() + (soon ? RECHECK_US : (int64) durable_blocked_poll * 1000);
}

/* -------------------------------------------------------------- announcing -- */

static int
compare_ids(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	return (x > y) - (x < y);
}

static void
wake(int64 id)
{
	DurableRun	run;

	durable_snapshot_push();
	if (durable_run_open(&run, id, false) == TM_Ok)
	{
		if (durable_run_status(&run.row) == RUN_BLOCKED)
			durable_run_wake(&run);
		else
			durable_blocked_remove(id);
		durable_run_close(&run);
	}
	durable_snapshot_pop();
}

/* A run that somebody holds is woken by him, or looks by itself. */
static void
wake_blocked(const DurableWorkerRow *worker, text **queues, int nqueues)
{
	int64	   *ids;
	int			n = 0;

	if (!durable_protocol_fits(worker->protocol_min, worker->protocol_max))
		return;
	ids = palloc(sizeof(int64) * WAKE_MAX);
	for (int i = 0; i < nqueues; i++)
		n = durable_blocked_list(worker->namespace, queues[i], worker->capabilities,
								 ids, n, WAKE_MAX);
	qsort(ids, n, sizeof(int64), compare_ids);
	for (int i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		wake(ids[i]);
	}
	pfree(ids);
}

static bool
is_ours(const DurableWorkerRow *row, Oid role)
{
	return row->role == role || !SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(row->role));
}

/* It was alive and serves and can do what it did. */
static bool
is_beat(const DurableWorkerRow *old, const DurableWorkerRow *new)
{
	return old->role == new->role && old->expires_at > new->last_seen &&
		old->protocol_min == new->protocol_min && old->protocol_max == new->protocol_max &&
		durable_set_same(old->queues, new->queues) &&
		durable_set_same(old->capabilities, new->capabilities);
}

/* Alone in its transaction it need not wait for the disk: losing it in a crash is no
 * more than a beat that did not come. */
static bool
beat(const DurableWorkerRow *worker)
{
	bool		stored;

	durable_commit_claim_begin();
	stored = durable_worker_update(worker) == TM_Ok;
	durable_commit_claim_end();
	return stored;
}

/* The queues' locks are held. false: somebody was faster. */
static bool
store(DurableWorkerRow *worker, const DurableWorkerRow *old)
{
	if (old == NULL ? !durable_worker_insert(worker) : durable_worker_update(worker) != TM_Ok)
		return false;
	durable_worker_store_queues(worker->namespace, worker->worker,
								old == NULL ? construct_empty_array(TEXTOID) : old->queues,
								worker->queues);
	CommandCounterIncrement();
	return true;
}

bool
durable_announce(DurableWorkerRow *worker)
{
	int			nqueues;
	text	  **queues = durable_set_members(worker->queues, &nqueues);
	bool		locked = false;

	for (;;)
	{
		DurableWorkerRow old;
		bool		found = durable_worker_find(worker->namespace, worker->worker, &old);

		CHECK_FOR_INTERRUPTS();
		if (found && !is_ours(&old, worker->role))
			return false;
		/* one that was gone begins anew */
		worker->first_seen = found && old.expires_at > worker->last_seen ? old.first_seen :
			worker->last_seen;
		if (found)
			worker->tid = old.tid;
		if (found && is_beat(&old, worker))
		{
			if (beat(worker))
				return true;
			continue;
		}
		for (int i = 0; i < nqueues && !locked; i++)
			durable_blocked_lock_announce(worker->namespace, queues[i]);
		locked = true;
		if (store(worker, found ? &old : NULL))
			break;
	}
	wake_blocked(worker, queues, nqueues);
	return true;
}

bool
durable_withdraw(text *namespace, text *name, Oid role, bool *known)
{
	DurableWorkerRow row;

	*known = true;
	while (durable_worker_find(namespace, name, &row))
	{
		CHECK_FOR_INTERRUPTS();
		if (!is_ours(&row, role))
			return false;
		if (durable_worker_delete(&row) == TM_Ok)
		{
			durable_worker_store_queues(namespace, name, row.queues,
										construct_empty_array(TEXTOID));
			CommandCounterIncrement();
			return true;
		}
	}
	*known = false;
	return true;
}
