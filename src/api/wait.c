/*-------------------------------------------------------------------------
 *
 * wait.c
 *	  wait_for_work, wait_and_claim: sleep until there is something to claim.
 *
 * Outside a transaction block the procedures end their transaction before they
 * sleep, so that they hold no snapshot; there they also move what has become
 * due, as a claim would. Inside a block they may do neither, and only look.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type_d.h"
#include "common/pg_prng.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/latch.h"
#include "utils/array.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "api/args.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/errors.h"
#include "base/extension_state.h"
#include "base/guc.h"
#include "base/rel.h"
#include "base/security.h"
#include "base/wakeup.h"
#include "engine/limiter_claim.h"
#include "engine/claim.h"
#include "engine/maintain.h"
#include "store/ready.h"

DURABLE_FUNCTION(durable_wait_for_work);
DURABLE_FUNCTION(durable_wait_and_claim);

/* Idle polls slow down to this many intervals. */
#define BACKOFF_MAX 4
/* With wake-ups polling is only a net below them. */
#define WOKEN_POLL_FACTOR 5

typedef struct Wait
{
	TupleDesc	desc;			/* of the row that the procedure returns */
	text	   *namespace;
	text	  **queues;
	int			nqueues;
	bool		atomic;			/* inside a transaction block or a function */
	bool		registered;		/* commits wake this session */
	TimestampTz deadline;
	TimestampTz next;			/* when something becomes due by itself */
	int			polls;
	MemoryContext scratch;
	/* wait_and_claim: */
	bool		claims;
	DurableClaim claim;
	int			history;
	Datum		tasks;			/* what was claimed, in the caller's context */
} Wait;

static void
read_timeout(FunctionCallInfo fcinfo, int n, Wait *wait)
{
	Interval   *timeout;

	if (PG_ARGISNULL(n))
		durable_error_null("timeout");
	timeout = PG_GETARG_INTERVAL_P(n);
	if (durable_interval_negative(timeout))
		durable_error_value("timeout", "It must not be negative.");
	wait->deadline = durable_interval_us(timeout) > INT64CONST(366) * USECS_PER_DAY ?
		DURABLE_POSITION_END : durable_clock_add(durable_clock_now(), timeout);
}

/* Looks the procedure up before anything here waits: afterwards it may have been
 * dropped, with its extension. */
static void
check_call(FunctionCallInfo fcinfo, Wait *wait, const char *procedure)
{
	wait->desc = durable_result_desc(fcinfo);
	durable_require_writable(procedure);
	wait->atomic = fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic;
	if (wait->atomic && IsolationUsesXactSnapshot())
		ereport(ERROR,
				errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				errmsg("%s cannot see new work in a transaction at isolation level %s",
					   procedure, XactIsoLevel == XACT_SERIALIZABLE ?
					   "serializable" : "repeatable read"),
				errhint("Call it outside a transaction block, or at READ COMMITTED."));
}

static void
register_waiter(Wait *wait)
{
	DurableKey	keys[DURABLE_WAITER_KEYS];
	int			n = Min(wait->nqueues, DURABLE_WAITER_KEYS);

	for (int i = 0; i < n; i++)
		keys[i] = durable_queue_key(wait->namespace, wait->queues[i]);
	wait->registered = durable_waiter_begin(keys, wait->nqueues, InvalidOid);
}

/* Whatever a look allocates goes with it: a wait may look thousands of times. */
static bool
look_for_work(Wait *wait)
{
	TimestampTz now = durable_clock_now();
	MemoryContext before = MemoryContextSwitchTo(wait->scratch);
	int			moved = 0;
	bool		found;

	wait->next = DURABLE_POSITION_END;
	/* whoever claims what is ready moves what is due, in turn with it */
	found = durable_ready_exists(wait->namespace, wait->queues, wait->nqueues);
	if (!wait->atomic && !found)
		wait->next = durable_maintain(wait->namespace, wait->queues, wait->nqueues, now,
									  DURABLE_WAIT_TASKS, DURABLE_WAIT_ROUNDS, &moved);
	found = found || durable_work_exists(wait->namespace, wait->queues, wait->nqueues, now,
										 &wait->next);
	MemoryContextSwitchTo(before);
	MemoryContextReset(wait->scratch);
	return found;
}

/* In milliseconds, at least 1. */
static long
time_to_sleep(Wait *wait)
{
	TimestampTz now = durable_clock_now();
	double		poll = durable_poll_interval;

	if (wait->registered)
		poll *= WOKEN_POLL_FACTOR;
	else
		poll *= Min(1 << Min(wait->polls, 8), BACKOFF_MAX);
	wait->polls++;
	poll *= 0.8 + 0.4 * pg_prng_double(&pg_global_prng_state);
	if (wait->deadline != DURABLE_POSITION_END)
		poll = Min(poll, (wait->deadline - now) / 1000.0);
	/* the next due time counts only if it can be later than now */
	if (wait->next > now && wait->next != DURABLE_POSITION_END)
		poll = Min(poll, (wait->next - now) / 1000.0);
	return Max(1, (long) (poll + 0.999));
}

static void
sleep_once(Wait *wait)
{
	static uint32 wait_event = 0;

	if (wait_event == 0)
		wait_event = compat_wait_event("DurableWaitForWork");
	if (!wait->atomic)
		SPI_commit();
	CHECK_FOR_INTERRUPTS();
	/* the claim has parked runs and has more to look at */
	if (wait->claims && !wait->atomic && durable_claim_ended_early())
		return;
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 time_to_sleep(wait), wait_event);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	/* the extension may have been dropped meanwhile */
	AcceptInvalidationMessages();
	durable_waiter_rearm();
}

/* Unlike the plans of plan.h it runs as the caller, who may claim. */
static SPIPlanPtr
claim_plan(void)
{
	static SPIPlanPtr plan = NULL;
	Oid			types[] = {TEXTARRAYOID, INT4OID, INTERVALOID, TEXTOID, TEXTOID, INT4OID};

	if (plan == NULL)
	{
		SPIPlanPtr	prepared =
			SPI_prepare("SELECT pg_catalog.jsonb_agg(pg_catalog.to_jsonb(c))"
						" FROM durable.claim($1, $2, $3, $4, $5, $6) c", 6, types);

		if (prepared == NULL || SPI_keepplan(prepared) != 0)
			ereport(ERROR,
					errcode(ERRCODE_INTERNAL_ERROR),
					errmsg("could not prepare the claim"));
		plan = prepared;
	}
	return plan;
}

/* The claim's own function makes the rows. */
static bool
claim_now(Wait *wait)
{
	Datum	   *names = palloc(sizeof(Datum) * wait->nqueues);
	Datum		values[6];
	char		nulls[] = {' ', ' ', ' ', wait->claim.worker == NULL ? 'n' : ' ', ' ',
		wait->history < 0 ? 'n' : ' '};
	bool		isnull;
	Datum		tasks;

	for (int i = 0; i < wait->nqueues; i++)
		names[i] = PointerGetDatum(wait->queues[i]);
	values[0] = PointerGetDatum(construct_array(names, wait->nqueues, TEXTOID, -1,
												false, TYPALIGN_INT));
	values[1] = Int32GetDatum(wait->claim.max_tasks);
	values[2] = IntervalPGetDatum(wait->claim.lease);
	values[3] = PointerGetDatum(wait->claim.worker);
	values[4] = PointerGetDatum(wait->namespace);
	values[5] = Int32GetDatum(wait->history);
	durable_snapshot_push();
	if (SPI_execute_plan(claim_plan(), values, nulls, false, 1) != SPI_OK_SELECT ||
		SPI_processed != 1)
		ereport(ERROR,
				errcode(ERRCODE_INTERNAL_ERROR),
				errmsg("could not claim tasks"));
	tasks = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	if (!isnull)
		wait->tasks = SPI_datumTransfer(tasks, false, -1);
	SPI_freetuptable(SPI_tuptable);
	durable_snapshot_pop();
	if (isnull)
	{
		TimestampTz again = durable_limits_again();

		wait->next = Min(wait->next, again);
	}
	return !isnull;
}

/* Others may be faster: then a claim comes back empty, and the wait goes on. */
static bool
wait_until_ready(Wait *wait)
{
	volatile bool ready = false;

	wait->scratch = AllocSetContextCreate(CurrentMemoryContext, "durable wait",
										  ALLOCSET_SMALL_SIZES);
	register_waiter(wait);
	PG_TRY();
	{
		while (!(ready = look_for_work(wait) && (!wait->claims || claim_now(wait))) &&
			   durable_clock_now() < wait->deadline)
			sleep_once(wait);
	}
	PG_FINALLY();
	{
		durable_waiter_end();
	}
	PG_END_TRY();
	return ready;
}

/* Runs the wait inside SPI, which can end the transaction, and makes the row
 * that a procedure returns its INOUT argument in. */
static Datum
run(Wait *wait)
{
	Datum		value;
	bool		isnull;
	bool		ready;

	if (SPI_connect_ext(wait->atomic ? 0 : SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		ereport(ERROR,
				errcode(ERRCODE_INTERNAL_ERROR),
				errmsg("could not enter the server programming interface"));
	ready = wait_until_ready(wait);
	SPI_finish();
	value = wait->claims ? wait->tasks : BoolGetDatum(ready);
	isnull = wait->claims && !ready;
	return HeapTupleGetDatum(heap_form_tuple(wait->desc, &value, &isnull));
}

Datum
durable_wait_for_work(PG_FUNCTION_ARGS)
{
	Wait		wait = {0};

	check_call(fcinfo, &wait, "durable.wait_for_work()");
	wait.queues = durable_arg_names(fcinfo, 0, "queues", &wait.nqueues);
	read_timeout(fcinfo, 1, &wait);
	wait.namespace = durable_arg_namespace(fcinfo, 2);
	durable_access_require(wait.namespace, PRIVILEGE_WORK);
	durable_require_active();
	PG_RETURN_DATUM(run(&wait));
}

Datum
durable_wait_and_claim(PG_FUNCTION_ARGS)
{
	Wait		wait = {.claims = true};

	check_call(fcinfo, &wait, "durable.wait_and_claim()");
	wait.queues = durable_arg_names(fcinfo, 0, "queues", &wait.nqueues);
	wait.claim.max_tasks = durable_arg_count(fcinfo, 1, "max_tasks");
	wait.claim.lease = durable_arg_lease(fcinfo, 2);
	read_timeout(fcinfo, 3, &wait);
	wait.claim.worker = durable_arg_name(fcinfo, 4, "worker", true);
	wait.namespace = durable_arg_namespace(fcinfo, 5);
	wait.history = durable_arg_history(fcinfo, 7);
	durable_access_require(wait.namespace, PRIVILEGE_WORK);
	durable_require_active();
	PG_RETURN_DATUM(run(&wait));
}
