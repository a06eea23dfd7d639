/*-------------------------------------------------------------------------
 *
 * shmem.c
 *	  The extension's shared memory, there only when the library was named in
 *	  shared_preload_libraries.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "base/hint.h"
#include "base/shmem.h"
#include "base/wakeup.h"
#include "base/workers.h"

DurableShared *durable_shared = NULL;

static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

static void
request_shared_memory(void)
{
	if (previous_request_hook)
		previous_request_hook();
	RequestAddinShmemSpace(MAXALIGN(sizeof(DurableShared)));
	RequestAddinShmemSpace(durable_hint_shmem_size());
	RequestAddinShmemSpace(durable_wakeup_shmem_size());
	RequestAddinShmemSpace(durable_workers_shmem_size());
	RequestNamedLWLockTranche("durable", 2);
}

/*
 * The control file still says how the last run ended: this runs before
 * recovery starts. After a backend crash the postmaster comes here again and
 * finds "in production", which is unclean too.
 */
static bool
last_shutdown_was_unclean(void)
{
	bool		crc_ok;
	ControlFileData *control = get_controlfile(DataDir, &crc_ok);
	bool		unclean = !crc_ok ||
		(control->state != DB_SHUTDOWNED &&
		 control->state != DB_SHUTDOWNED_IN_RECOVERY);

	pfree(control);
	return unclean;
}

static void
initialize_shared(DurableShared *shared)
{
	if (!pg_strong_random(shared->seed, sizeof(shared->seed)))
		ereport(FATAL,
				errcode(ERRCODE_INTERNAL_ERROR),
				errmsg("could not generate random bits for durable"));
	shared->started_at = GetCurrentTimestamp();
	shared->unclean_start = last_shutdown_was_unclean();
}

static void
startup_shared_memory(void)
{
	bool		found;

	if (previous_startup_hook)
		previous_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	durable_shared = ShmemInitStruct("durable", sizeof(DurableShared), &found);
	if (!found)
		initialize_shared(durable_shared);
	durable_hint_shmem_startup();
	durable_wakeup_shmem_startup(&GetNamedLWLockTranche("durable")[0].lock);
	durable_workers_shmem_startup(&GetNamedLWLockTranche("durable")[1].lock);
	LWLockRelease(AddinShmemInitLock);
}

void
durable_shmem_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_shared_memory;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = startup_shared_memory;
}

/*
 * Two keyed 64-bit hashes: a user who picks queue names cannot make two of
 * them share an entry, because the seeds are drawn at every start.
 */
DurableKey
durable_key(const char *kind, const char *part1, int len1,
			const char *part2, int len2)
{
	DurableKey	key;

	key.database = MyDatabaseId;
	for (int i = 0; i < 2; i++)
	{
		uint64		h = durable_shared->seed[i];

		h = hash_bytes_extended((const unsigned char *) kind, strlen(kind), h);
		if (part1)
			h = hash_bytes_extended((const unsigned char *) part1, len1,
									h ^ durable_shared->seed[i]);
		if (part2)
			h = hash_bytes_extended((const unsigned char *) part2, len2,
									h ^ durable_shared->seed[1 - i]);
		key.hash[i] = h;
	}
	return key;
}
