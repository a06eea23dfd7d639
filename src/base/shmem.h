/*-------------------------------------------------------------------------
 *
 * shmem.h
 *	  The extension's shared memory, there only when the library was named in
 *	  shared_preload_libraries.
 *
 * Each part (scan hints, waiters, workers) declares its own size and set-up; this file
 * lays them out. Everything in it is an optimisation: it starts empty after
 * every crash, and all functions work without it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_SHMEM_H
#define DURABLE_SHMEM_H

#include "postgres.h"

#include "datatype/timestamp.h"

/* Set once by the postmaster before any backend starts; read without a lock. */
typedef struct DurableShared
{
	uint64		seed[2];		/* keys the queue hashes, unknown to users */
	TimestampTz started_at;
	bool		unclean_start;	/* the server had not been shut down properly */
} DurableShared;

/* NULL without preload */
extern DurableShared *durable_shared;

/* A queue, or any other ordered list, as the shared tables know it. */
typedef struct DurableKey
{
	uint64		hash[2];
	Oid			database;
} DurableKey;

extern void durable_shmem_init(void);

/* keyed 128-bit hash of the names; parts may be NULL */
extern DurableKey durable_key(const char *kind, const char *part1, int len1,
							  const char *part2, int len2);

static inline bool
durable_key_equal(const DurableKey *a, const DurableKey *b)
{
	return a->hash[0] == b->hash[0] && a->hash[1] == b->hash[1] &&
		a->database == b->database;
}

#endif							/* DURABLE_SHMEM_H */
