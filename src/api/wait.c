/*-------------------------------------------------------------------------
 *
 * wait.c
 *	  wait_for_work: sleep until there is something to claim.
 *
 * Outside a transaction block the procedure ends its transaction before it
 * sleeps, so that it holds no snapshot; there it also moves what has become
 * due, as a claim would. Inside a block it may do neither, and only looks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "common/pg_prng.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/latch.h"
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
#include "engine/claim.h"
#include "engine/maintain.h"
#include "store/ready.h"

DURABLE_FUNCTION(durable_wait_for_work);

/* Idle polls slow down to this many intervals. */
#define BACKOFF_MAX 4
/* With wake-ups polling is only a net below them. */
#define WOKEN_POLL_FACTOR 5

typedef struct Wait
{
	text	   *namespace;
	text	  **queues;
	int			nqueues;
	bool		atomic;			/* inside a transaction block or a function */
	bool		registered;		/* commits wake this session */
	TimestampTz deadline;
	TimestampTz next;			/* when something becomes due by itself */
	int			polls;
	MemoryContext scratch;
} Wait;

static void
read_arguments(FunctionCallInfo fcinfo, Wait *wait)
{
	Interval   *timeout;

	wait->queues = durable_arg_names(fcinfo, 0, "queues", &wait->nqueues);
	if (PG_ARGISNULL(1))
		durable_error_null("timeout");
	timeout = PG_GETARG_INTERVAL_P(1);
	if (durable_interval_negative(timeout))
		durable_error_value("timeout", "It must not be negative.");
	wait->deadline = durable_interval_us(timeout) > INT64CONST(366) * USECS_PER_DAY ?
		DURABLE_POSITION_END : durable_clock_add(durable_clock_now(), timeout);
	wait->namespace = durable_arg_namespace(fcinfo, 2);
	durable_access_require(wait->namespace, PRIVILEGE_WORK);
	if (wait->atomic && IsolationUsesXactSnapshot())
		ereport(ERROR,
				errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				errmsg("durable.wait_for_work() cannot see new work in a transaction at isolation level %s",
					   XactIsoLevel == XACT_SERIALIZABLE ? "serializable" : "repeatable read"),
				errhint("Call it outside a transaction block, or at READ COMMITTED."));
}

static void
register_waiter(Wait *wait)
{
	DurableKey	keys[DURABLE_WAITER_KEYS];
	int			n = Min(wait->nqueues, DURABLE_WAITER_KEYS);

	for (int i = 0; i < n; i++)
		keys[i] = durable_queue_key(wait->namespace, wait->queues[i]);
	wait->registered = durable_waiter_begin(keys, wait->nqueues);
}

/* Whatever a look allocates goes with it: a wait may look thousands of times. */
static bool
look_for_work(Wait *wait)
{
	TimestampTz now = durable_clock_now();
	MemoryContext before = MemoryContextSwitchTo(wait->scratch);
	bool		found;

	wait->next = DURABLE_POSITION_END;
	if (!wait->atomic)
		wait->next = durable_maintain(wait->namespace, wait->queues, wait->nqueues, now,
									  DURABLE_WAIT_TASKS, DURABLE_WAIT_ROUNDS);
	found = durable_work_exists(wait->namespace, wait->queues, wait->nqueues, now);
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
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 time_to_sleep(wait), wait_event);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	/* the extension may have been dropped meanwhile */
	AcceptInvalidationMessages();
	durable_waiter_rearm();
}

static bool
wait_until_ready(Wait *wait)
{
	volatile bool ready = false;

	wait->scratch = AllocSetContextCreate(CurrentMemoryContext, "durable wait",
										  ALLOCSET_SMALL_SIZES);
	register_waiter(wait);
	PG_TRY();
	{
		while (!(ready = look_for_work(wait)) &&
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

Datum
durable_wait_for_work(PG_FUNCTION_ARGS)
{
	Wait		wait = {0};
	TupleDesc	desc = durable_result_desc(fcinfo);
	Datum		value;
	bool		isnull = false;

	wait.atomic = fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic;
	durable_require_writable("durable.wait_for_work()");
	read_arguments(fcinfo, &wait);
	durable_require_active();

	if (!wait.atomic && SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		ereport(ERROR,
				errcode(ERRCODE_INTERNAL_ERROR),
				errmsg("could not enter the server programming interface"));
	value = BoolGetDatum(wait_until_ready(&wait));
	if (!wait.atomic)
		SPI_finish();
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(desc, &value, &isnull)));
}
