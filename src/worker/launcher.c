/*-------------------------------------------------------------------------
 *
 * launcher.c
 *	  The one background worker per cluster that starts the others.
 *
 * It reads shared catalogs only, so it cannot know which database has the
 * extension. It starts a scheduler in each database once; the scheduler leaves
 * again where there is nothing to do, and the launcher remembers that until it
 * hears of a change: CREATE EXTENSION and activate() tell it at their commit, and
 * so do the commands that create and change databases, and changed settings.
 *
 * Template databases are left alone: a connected session would be in the way of
 * CREATE DATABASE, and they run nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "worker/hooks.h"
#include "worker/launcher.h"
#include "worker/process.h"

/* After the launcher ended with an error. */
#define RESTART_S 5

/* Without anything happening it looks at the list of databases that often. */
#define LOOK_MS (60 * 1000)

/* When the server has no room for another worker. */
#define NO_SLOT_US (5 * USECS_PER_SEC)

/* Databases that are looked into at the same time. */
#define PROBES 3

/* A scheduler that lived that long did not fail at starting. */
#define SETTLED_US USECS_PER_MINUTE

typedef struct Database
{
	Oid			oid;			/* key */
	bool		seen;			/* in pg_database, and open to us */
	bool		waits;			/* nothing to do there until we hear of a change */
	int			failures;		/* in a row */
	TimestampTz next_try;
	DurableProcess scheduler;
} Database;

static HTAB *databases = NULL;
static bool warned_of_slots = false;

static Database *
find_database(Oid oid)
{
	bool		found;
	Database   *database = hash_search(databases, &oid, HASH_ENTER, &found);

	if (!found)
	{
		memset(database, 0, sizeof(*database));
		database->oid = oid;
		database->scheduler.slot = -1;
	}
	return database;
}

static void
read_databases(void)
{
	Relation	rel;
	Snapshot	snapshot;
	TupleTableSlot *slot;
	TableScanDesc scan;
	HASH_SEQ_STATUS all;
	Database   *database;

	hash_seq_init(&all, databases);
	while ((database = hash_seq_search(&all)) != NULL)
		database->seen = false;
	durable_process_begin_transaction();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	slot = table_slot_create(rel, NULL);
	scan = table_beginscan(rel, snapshot, 0, NULL);
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		HeapTuple	tuple = ExecFetchSlotHeapTuple(slot, false, NULL);
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);

		/* a limit below -1 marks one whose DROP was interrupted */
		if (!form->datallowconn || form->datistemplate || form->datconnlimit < -1)
			continue;
		database = find_database(form->oid);
		database->seen = true;
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
}

/* Schedulers that an earlier launcher started. */
static void
adopt_schedulers(void)
{
	DurableWorkerInfo *workers;
	int			n = durable_workers_list(InvalidOid, &workers);

	for (int i = 0; i < n; i++)
	{
		Database   *database;

		if (workers[i].kind != WORKER_SCHEDULER || workers[i].state == WORKER_ENDED)
			continue;
		database = find_database(workers[i].database);
		database->scheduler.slot = workers[i].slot;
		database->scheduler.generation = workers[i].generation;
	}
	pfree(workers);
}

/* What is failing is tried again in its own time. */
static void
look_into(Database *database)
{
	database->waits = false;
	if (database->failures == 0)
		database->next_try = 0;
}

/* all_of_them: the settings were loaded anew. */
static void
take_looks(bool all_of_them)
{
	Oid		   *oids;
	bool		all;
	int			n = durable_launcher_take_looks(&oids, &all);
	HASH_SEQ_STATUS known;
	Database   *database;

	for (int i = 0; i < n; i++)
		look_into(find_database(oids[i]));
	pfree(oids);
	if (!all && !all_of_them)
		return;
	hash_seq_init(&known, databases);
	while ((database = hash_seq_search(&known)) != NULL)
		look_into(database);
}

/* What became of the scheduler that it had. */
static void
reap(Database *database)
{
	DurableWorkerInfo info;
	bool		known = durable_process_read(&database->scheduler, &info);
	TimestampTz now = GetCurrentTimestamp();

	if (database->scheduler.slot < 0 || (known && info.state != WORKER_ENDED))
		return;
	if (known && info.end != END_FAILED)
	{
		database->failures = 0;
		database->waits = info.end == END_NO_EXTENSION || info.end == END_COPY ||
			info.end == END_OFF;
		database->next_try = now;
	}
	else
	{
		if (known && now - info.started_at > SETTLED_US)
			database->failures = 0;
		database->failures++;
		database->next_try = now + durable_process_backoff(database->failures);
	}
	durable_process_forget(&database->scheduler);
}

static void
start_scheduler(Database *database)
{
	TimestampTz now = GetCurrentTimestamp();

	switch (durable_process_start(WORKER_SCHEDULER, database->oid, InvalidOid,
								  &database->scheduler))
	{
		case START_DONE:
			warned_of_slots = false;
			break;
		case START_HELD:
			/* whoever holds it wakes us */
			database->next_try = now + USECS_PER_MINUTE;
			break;
		case START_NO_SLOT:
			database->next_try = now + NO_SLOT_US;
			if (!warned_of_slots)
				ereport(WARNING,
						errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
						errmsg("durable cannot start a background worker: all of them are in use"),
						errdetail("Nothing is executed by itself in databases that have none. It is tried again."),
						errhint("Increase max_worker_processes."));
			warned_of_slots = true;
			break;
	}
}

/* How many have not found out yet whether they have something to do. */
static int
count_probes(void)
{
	HASH_SEQ_STATUS all;
	Database   *database;
	int			n = 0;

	hash_seq_init(&all, databases);
	while ((database = hash_seq_search(&all)) != NULL)
	{
		DurableWorkerInfo info;

		if (durable_process_read(&database->scheduler, &info) &&
			(info.state == WORKER_STARTING || info.state == WORKER_CONNECTING))
			n++;
	}
	return n;
}

/* Returns when it wants to be called again. */
static TimestampTz
tend(Database *database, int *probes)
{
	if (database->scheduler.slot >= 0)
	{
		if (!database->seen)
			durable_workers_ask_to_leave(database->oid, false);
		return PG_INT64_MAX;
	}
	if (!database->seen || database->waits)
		return PG_INT64_MAX;
	if (database->next_try > GetCurrentTimestamp())
		return database->next_try;
	/* one of those under way wakes us */
	if (*probes >= PROBES)
		return PG_INT64_MAX;
	start_scheduler(database);
	(*probes)++;
	return database->scheduler.slot >= 0 ? PG_INT64_MAX : database->next_try;
}

static TimestampTz
tend_all(void)
{
	HASH_SEQ_STATUS all;
	Database   *database;
	TimestampTz next = PG_INT64_MAX;
	int			probes;

	hash_seq_init(&all, databases);
	while ((database = hash_seq_search(&all)) != NULL)
		reap(database);
	probes = count_probes();
	hash_seq_init(&all, databases);
	while ((database = hash_seq_search(&all)) != NULL)
	{
		TimestampTz due = tend(database, &probes);

		next = Min(next, due);
		if (!database->seen && database->scheduler.slot < 0)
			(void) hash_search(databases, &database->oid, HASH_REMOVE, NULL);
	}
	return next;
}

static void
begin(void)
{
	HASHCTL		control = {.keysize = sizeof(Oid), .entrysize = sizeof(Database)};

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	durable_launcher_attach();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	durable_process_harden("durable launcher");
	databases = hash_create("durable databases", 64, &control, HASH_ELEM | HASH_BLOBS);
	adopt_schedulers();
}

void
durable_launcher_main(Datum arg)
{
	uint32		wait_event;
	bool		reloaded = false;

	begin();
	wait_event = compat_wait_event("DurableLauncher");
	for (;;)
	{
		TimestampTz next;
		double		ms;

		take_looks(reloaded);
		read_databases();
		next = tend_all();
		pgstat_report_activity(STATE_IDLE, NULL);
		ms = (next - GetCurrentTimestamp()) / 1000.0;
		reloaded = durable_process_sleep(Max(1, (long) Min(ms, LOOK_MS)), wait_event);
	}
}

void
durable_launcher_init(void)
{
	BackgroundWorker worker = {
		.bgw_name = "durable launcher",
		.bgw_type = "durable launcher",
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = RESTART_S,
		.bgw_library_name = "durable",
		.bgw_function_name = "durable_launcher_main",
	};

	if (!process_shared_preload_libraries_in_progress || IsBinaryUpgrade)
		return;
	durable_hooks_init();
	RegisterBackgroundWorker(&worker);
}
