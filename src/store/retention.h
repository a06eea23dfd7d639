/*-------------------------------------------------------------------------
 *
 * retention.h
 *	  The tables of retention, and deleting runs. What has to be done at once is in
 *	  functions of sql/75_retention.sql.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_RETENTION_H
#define DURABLE_STORE_RETENTION_H

#include "postgres.h"

#include "utils/array.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "base/rel.h"

/* Numbers; palloc'd. */
typedef struct DurableNumbers
{
	int64	   *values;
	int			n;
} DurableNumbers;

/* NULL pointers are SQL NULLs. */
typedef struct DurableRetentionPolicy
{
	Oid			owner;
	text	   *namespace;
	text	   *workflow;
	text	   *tag;
	text	   *archive;
	Interval   *max_age;
	int			max_count;		/* -1: none */
	ArrayType  *statuses;		/* sorted */
} DurableRetentionPolicy;

/* The run ends, in this transaction, and no other one has started it. */
extern void durable_retention_note_end(int64 run, TimestampTz finished_at);

/* The run goes on that has ended then. Waits for nobody: an entry that is left is found to
 * be wrong. */
extern void durable_retention_note_again(int64 run, TimestampTz finished_at);

/* Stores it in place of the one of the same scope; its id. */
extern int64 durable_retention_store(const DurableRetentionPolicy *policy, TimestampTz now);
/* The namespace of the policy, or NULL. */
extern text *durable_retention_namespace(int64 policy);
/* false: somebody else was faster */
extern bool durable_retention_forget(int64 policy);

extern bool durable_retention_is_due(TimestampTz now);
/* One batch: how many runs are gone, and the tasks that are to be dropped. *done: on how
 * many things that nobody else holds. */
extern int64 durable_retention_batch(TimestampTz now, int max_rows, DurableNumbers *tasks,
									 int64 *done);
/* Deletes those of the trees that have ended; how many runs are gone. */
extern int64 durable_trees_delete(const int64 *roots, int n, bool wait, DurableNumbers *tasks);
/* Of the run's tree, those that have not ended, ascending. */
extern DurableNumbers durable_tree_live(int64 root);

/* Policies whose archive function has to be called and that have no task for it. */
typedef struct DurableArchiver
{
	int64		policy;
	Oid			owner;
	text	   *namespace;
} DurableArchiver;

extern int	durable_archivers_due(TimestampTz now, DurableArchiver **archivers);
extern void durable_archiver_set_task(int64 policy, int64 task);
/* The policy that the task is for; 0: none any more. */
extern int64 durable_archiver_of(int64 task);

/* The next run that waits for the function; false: none, or the policy is gone. */
extern bool durable_archive_next(int64 policy, TimestampTz now, int64 *run, text **archive);

/* What the function gets. */
typedef struct DurableArchiveDocument
{
	text	   *namespace;		/* NULL: the run does not fall under the policy now */
	text	   *state;			/* NULL: a run of the tree has not ended */
	Jsonb	   *document;
} DurableArchiveDocument;

extern void durable_archive_document(int64 policy, int64 run, DurableArchiveDocument *document);
/* 0: the tree has changed, or somebody holds a run of it */
extern int64 durable_archive_done(int64 policy, int64 run, text *state, DurableNumbers *tasks);
extern void durable_archive_failed(int64 policy, int64 run, text *error, TimestampTz now);
extern void durable_archive_again(int64 policy, int64 run, TimestampTz look_at);

#endif							/* DURABLE_STORE_RETENTION_H */
