/*-------------------------------------------------------------------------
 *
 * demand.c
 *	  How many executors a database needs, and for which roles.
 *
 * A role whose work waits while none of its executors is idle gets one more, as
 * long as there are fewer than durable.workers. A new executor says when it has
 * begun, and then it is looked again: a backlog fills the pool one by one, and a
 * single task starts a single process.
 *
 * When the pool is full and a role has no executor at all, somebody has to go: an
 * executor that is idle, or else, between two tasks, one of the role that has
 * most, or else the one that has been there longest.
 *
 * A role that no executor can be started for is tried again ever more rarely. That
 * is logged once, and concerns no other role.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/guc.h"
#include "engine/claim.h"
#include "store/workflow.h"
#include "worker/demand.h"
#include "worker/process.h"

/* Under load, between two looks. */
#define LOOK_US (5 * USECS_PER_SEC / 1000)

/* While a role waits for another one's executors. */
#define STARVING_US (100 * USECS_PER_SEC / 1000)

/* An executor that others wait for may stay that long. */
#define TURN_US USECS_PER_SEC

/* When the server has no room for another worker. */
#define NO_SLOT_US (5 * USECS_PER_SEC)

/* While idle executors cannot take what there is. */
#define PATIENCE_MAX_US (5 * USECS_PER_SEC)

typedef struct Role
{
	Oid			oid;			/* key */
	int			failures;		/* in a row */
	TimestampTz next_try;
	TimestampTz served;			/* when its last executor was started */
	bool		warned;
	/* as counted in this look */
	bool		has_work;
	int			executors;
	int			idle;
	int			starting;
} Role;

static HTAB *roles = NULL;
static DurableProcess *started = NULL;	/* max_worker_processes of them */
static bool warned_of_slots = false;
static TimestampTz no_slots_until = 0;
static TimestampTz last_look = 0;

/* until it is looked again, while idle executors have not taken what there is */
static int64 patience = 0;

/* who has definitions, and when that was read */
static MemoryContext owners_context = NULL;
static DurableOwner *owners = NULL;
static int	nowners = 0;
static uint64 owners_version = 0;

void
durable_demand_begin(void)
{
	HASHCTL		control = {.keysize = sizeof(Oid), .entrysize = sizeof(Role)};

	roles = hash_create("durable roles", 64, &control, HASH_ELEM | HASH_BLOBS);
	started = MemoryContextAlloc(TopMemoryContext,
								 sizeof(DurableProcess) * max_worker_processes);
	for (int i = 0; i < max_worker_processes; i++)
		started[i].slot = -1;
	owners_context = AllocSetContextCreate(TopMemoryContext, "durable owners",
										   ALLOCSET_SMALL_SIZES);
}

static Role *
find_role(Oid oid)
{
	bool		found;
	Role	   *role = hash_search(roles, &oid, HASH_ENTER, &found);

	if (!found)
	{
		memset(role, 0, sizeof(*role));
		role->oid = oid;
	}
	return role;
}

static void
read_owners(void)
{
	uint64		version = durable_definitions_version();
	MemoryContext before;

	if (version == owners_version)
		return;
	MemoryContextReset(owners_context);
	before = MemoryContextSwitchTo(owners_context);
	nowners = durable_owners(&owners);
	MemoryContextSwitchTo(before);
	owners_version = version;
}

static void
has_failed(Role *role)
{
	role->failures++;
	role->next_try = GetCurrentTimestamp() + durable_process_backoff(role->failures);
}

/* Executors that have ended. */
static void
reap(void)
{
	for (int i = 0; i < max_worker_processes; i++)
	{
		DurableWorkerInfo info;
		Role	   *role;

		if (started[i].slot < 0)
			continue;
		if (!durable_process_read(&started[i], &info))
		{
			durable_process_forget(&started[i]);
			continue;
		}
		if (info.state != WORKER_ENDED)
			continue;
		role = find_role(info.role);
		/* work that ends its worker is bounded by its count of reclaims */
		if (info.came_up)
			role->failures = 0;
		else if (info.end == END_FAILED)
			has_failed(role);
		durable_process_forget(&started[i]);
	}
}

static int
count_executors(DurableWorkerInfo **workers, int *n)
{
	HASH_SEQ_STATUS all;
	Role	   *role;
	int			total = 0;

	hash_seq_init(&all, roles);
	while ((role = hash_seq_search(&all)) != NULL)
	{
		role->has_work = false;
		role->executors = role->idle = role->starting = 0;
	}
	*n = durable_workers_list(MyDatabaseId, workers);
	for (int i = 0; i < *n; i++)
	{
		const DurableWorkerInfo *info = &(*workers)[i];

		if (info->kind != WORKER_EXECUTOR || info->state == WORKER_ENDED)
			continue;
		role = find_role(info->role);
		total++;
		role->executors++;
		if (info->state == WORKER_IDLE && !info->leave)
			role->idle++;
		if (info->state == WORKER_STARTING || info->state == WORKER_CONNECTING)
			role->starting++;
		if (info->state != WORKER_STARTING && info->state != WORKER_CONNECTING)
		{
			role->warned = false;
			role->failures = 0;
		}
	}
	return total;
}

static void
find_work(void)
{
	TimestampTz now = durable_clock_now();

	read_owners();
	for (int i = 0; i < nowners; i++)
	{
		Role	   *role = find_role(owners[i].role);
		text	   *queue;
		TimestampTz next = DURABLE_POSITION_END;

		if (role->has_work)
			continue;
		CHECK_FOR_INTERRUPTS();
		queue = durable_owner_queue(role->oid);
		role->has_work = durable_work_exists(owners[i].namespace, &queue, 1, now, &next);
	}
}

/* Why no executor can be connected as the role, or NULL. */
static const char *
obstacle(Oid role, const char **hint)
{
	HeapTuple	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(role));
	bool		may_log_in;

	*hint = "Register the workflows and handlers as another role.";
	if (!HeapTupleIsValid(tuple))
		return "The role does not exist any more.";
	may_log_in = ((Form_pg_authid) GETSTRUCT(tuple))->rolcanlogin;
	ReleaseSysCache(tuple);
	if (!may_log_in && COMPAT_ANY_ROLE == 0)
	{
		*hint = "ALTER ROLE ... LOGIN, which opens no way in while the role has no password, or execute its work with durable.work().";
		return "The role is not permitted to log in, which before PostgreSQL 17 keeps background workers out, too.";
	}
	if (!superuser_arg(role) && !compat_may_connect(MyDatabaseId, role))
	{
		*hint = "GRANT CONNECT ON DATABASE to the role.";
		return "The role does not have the CONNECT privilege for the database.";
	}
	return NULL;
}

static void
warn_once(Role *role, const char *detail, const char *hint)
{
	char	   *name = GetUserNameFromId(role->oid, true);

	if (!role->warned)
		ereport(WARNING,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("durable cannot execute the work of role \"%s\"",
					   name != NULL ? name : psprintf("%u", role->oid)),
				errdetail("%s", detail),
				errhint("%s", hint));
	role->warned = true;
}

static DurableProcess *
free_process(void)
{
	for (int i = 0; i < max_worker_processes; i++)
	{
		if (started[i].slot < 0)
			return &started[i];
	}
	return NULL;
}

static void
no_slots(void)
{
	if (!warned_of_slots)
		ereport(WARNING,
				errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				errmsg("durable cannot start a background worker: all of them are in use"),
				errdetail("Work waits until one is free."),
				errhint("Increase max_worker_processes, or decrease durable.workers."));
	warned_of_slots = true;
	no_slots_until = GetCurrentTimestamp() + NO_SLOT_US;
}

/* Whether one is on its way. */
static bool
start_executor(Role *role)
{
	DurableProcess *process = free_process();
	const char *hint;
	const char *detail = obstacle(role->oid, &hint);
	MemoryContext before;
	DurableStart result;

	if (detail == NULL && role->failures > 1)
		warn_once(role, "Background workers for it end with errors.",
				  "The errors are in the server's log.");
	if (detail != NULL)
	{
		warn_once(role, detail, hint);
		has_failed(role);
		return false;
	}
	if (process == NULL)
		return false;
	before = MemoryContextSwitchTo(TopMemoryContext);
	result = durable_process_start(WORKER_EXECUTOR, MyDatabaseId, role->oid, process);
	MemoryContextSwitchTo(before);
	if (result == START_NO_SLOT)
		no_slots();
	if (result != START_DONE)
		return false;
	warned_of_slots = false;
	role->served = GetCurrentTimestamp();
	role->executors++;
	role->starting++;
	return true;
}

static bool
wants_one_more(const Role *role, TimestampTz now)
{
	return role->has_work && role->idle == 0 && role->starting == 0 && role->next_try <= now;
}

/* The neediest role: that with the fewest executors, and then the one that was
 * served longest ago. */
static bool
is_needier(const Role *a, const Role *b)
{
	if (a->executors != b->executors)
		return a->executors < b->executors;
	return a->served < b->served;
}

static Role *
neediest(TimestampTz now)
{
	HASH_SEQ_STATUS all;
	Role	   *role;
	Role	   *best = NULL;

	hash_seq_init(&all, roles);
	while ((role = hash_seq_search(&all)) != NULL)
	{
		if (wants_one_more(role, now) && (best == NULL || is_needier(role, best)))
			best = role;
	}
	return best;
}

/* Whether a should leave rather than b. */
static bool
leaves_before(const DurableWorkerInfo *a, const DurableWorkerInfo *b)
{
	int			a_has = find_role(a->role)->executors;
	int			b_has = find_role(b->role)->executors;

	if ((a->state == WORKER_IDLE) != (b->state == WORKER_IDLE))
		return a->state == WORKER_IDLE;
	if (a_has != b_has)
		return a_has > b_has;
	return a->started_at < b->started_at;
}

/* Asks one to make room, unless one does already. "urgent": for a role that has
 * none. */
static void
make_room(const DurableWorkerInfo *workers, int n, bool urgent)
{
	const DurableWorkerInfo *victim = NULL;

	for (int i = 0; i < n; i++)
	{
		const DurableWorkerInfo *info = &workers[i];

		if (info->kind != WORKER_EXECUTOR || info->state == WORKER_ENDED)
			continue;
		if (info->leave)
			return;
		if (victim == NULL || leaves_before(info, victim))
			victim = info;
	}
	if (victim == NULL || (victim->state != WORKER_IDLE && !urgent))
		return;
	/* each has its turn */
	if (victim->state != WORKER_IDLE && find_role(victim->role)->executors == 1 &&
		GetCurrentTimestamp() - victim->started_at < TURN_US)
		return;
	durable_worker_ask_to_leave(victim->slot, victim->generation);
}

/* durable.workers was lowered, or they are paused. */
static void
send_away(const DurableWorkerInfo *workers, int n, int too_many)
{
	for (int pass = 0; pass < 2; pass++)
	{
		for (int i = 0; i < n && too_many > 0; i++)
		{
			if (workers[i].kind != WORKER_EXECUTOR || workers[i].state == WORKER_ENDED ||
				(workers[i].state == WORKER_IDLE) != (pass == 0))
				continue;
			durable_worker_ask_to_leave(workers[i].slot, workers[i].generation);
			too_many--;
		}
	}
}

static TimestampTz
next_try(TimestampTz now)
{
	HASH_SEQ_STATUS all;
	Role	   *role;
	TimestampTz next = PG_INT64_MAX;

	hash_seq_init(&all, roles);
	while ((role = hash_seq_search(&all)) != NULL)
	{
		if (role->has_work && role->next_try > now)
			next = Min(next, role->next_try);
	}
	return next;
}

/* Whoever commits more than there are idle executors wakes these and us. As long as they
 * have not taken theirs they are idle, and nobody tells when they have. Perhaps they cannot,
 * because of a limiter for example: then it is looked ever more rarely. */
static TimestampTz
next_look(TimestampTz now, bool asked)
{
	HASH_SEQ_STATUS all;
	Role	   *role;
	bool		open = false;

	hash_seq_init(&all, roles);
	while ((role = hash_seq_search(&all)) != NULL)
		open = open || (role->has_work && role->idle > 0);
	if (!open || asked)
		patience = 0;
	if (!open)
		return PG_INT64_MAX;
	patience = Min(Max(patience * 2, LOOK_US), PATIENCE_MAX_US);
	return now + patience;
}

static TimestampTz
serve(bool paused)
{
	TimestampTz now = GetCurrentTimestamp();
	int			limit = paused ? 0 : durable_workers;
	DurableWorkerInfo *workers;
	Role	   *role;
	int			total;
	int			n;

	reap();
	total = count_executors(&workers, &n);
	last_look = now;
	if (total > limit)
		send_away(workers, n, total - limit);
	if (limit == 0)
		return PG_INT64_MAX;
	find_work();
	while ((role = neediest(now)) != NULL && now >= no_slots_until)
	{
		if (total >= limit)
		{
			make_room(workers, n, role->executors == 0);
			return role->executors == 0 ? now + STARVING_US : next_try(now);
		}
		if (start_executor(role))
			total++;
		else if (role->next_try <= now)
			break;
	}
	return Min(next_try(now), role == NULL ? PG_INT64_MAX :
			   Max(no_slots_until, now + USECS_PER_SEC));
}

TimestampTz
durable_demand_serve(bool paused, bool asked)
{
	TimestampTz next = serve(paused);

	return Min(next, next_look(last_look, asked));
}

bool
durable_demand_may_look(void)
{
	return durable_demand_delay() <= 0;
}

double
durable_demand_delay(void)
{
	TimestampTz now = GetCurrentTimestamp();

	/* not longer when the clock has been put back */
	return now < last_look ? 0 : (double) (last_look + LOOK_US - now);
}
