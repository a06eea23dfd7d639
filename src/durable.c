/*-------------------------------------------------------------------------
 *
 * durable.c
 *	  Loading the library.
 *
 * The words, everywhere the same: a queue is where tasks wait and what workers
 * claim from; a claim is the exclusive right to settle tasks; the token proves
 * a claim round; the lease is how long it lasts unrenewed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"

#include "base/commit.h"
#include "base/executing.h"
#include "base/compat.h"
#include "base/extension_state.h"
#include "base/guc.h"
#include "base/hint.h"
#include "base/rel.h"
#include "base/security.h"
#include "base/shmem.h"
#include "base/wakeup.h"
#include "base/workers.h"
#include "engine/turn.h"
#include "store/queue.h"
#include "store/workflow.h"
#include "worker/launcher.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	durable_guc_init();
	durable_rel_init();
	durable_security_init();
	durable_extension_state_init();
	durable_commit_init();
	durable_executing_init();
	durable_hint_init();
	durable_wakeup_init();
	durable_workers_init();
	durable_queue_init();
	durable_workflow_init();
	durable_turn_init();
	durable_shmem_init();
	durable_launcher_init();
}
