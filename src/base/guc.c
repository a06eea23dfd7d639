/*-------------------------------------------------------------------------
 *
 * guc.c
 *	  The settings, all named durable.*.
 *
 * They are defined when the library is loaded, at server start or by the
 * first call in a session; nothing here needs preloading.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "utils/guc.h"

#include "base/guc.h"

bool		durable_async_claim = true;
bool		durable_background = true;
int			durable_blocked_poll = 5000;
int			durable_careful_period = 300;
int			durable_clock_offset = 0;
int			durable_heartbeat_interval = 10000;
int			durable_max_payload = 1024;
int			durable_max_reclaims = 3;
int			durable_max_recovery_attempts = -1;
char	   *durable_namespace = NULL;
int			durable_poll_interval = 200;
int			durable_result_retention = 7 * 24 * 60;
int			durable_signal_retention = -1;
int			durable_stalled_after = 0;
bool		durable_use_scan_hints = true;
int			durable_worker_idle_timeout = 60000;
int			durable_workers = 4;

static void
define_session_settings(void)
{
	DefineCustomBoolVariable("durable.async_claim",
							 "Lets a claim that is alone in its transaction commit without waiting for the disk.",
							 "A server crash can lose such a claim; its tasks are then simply ready again.",
							 &durable_async_claim, true,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("durable.namespace",
							   "The namespace that functions use when none is given.",
							   "Empty means \"default\".",
							   &durable_namespace, "",
							   PGC_USERSET, 0, NULL, NULL, NULL);
}

static void
define_limits(void)
{
	DefineCustomIntVariable("durable.blocked_poll",
							"How often a run looks again that no live worker can go on with.",
							"Only a net: a worker that announces itself wakes the runs that wait for it.",
							&durable_blocked_poll, 5000, 100, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("durable.heartbeat_interval",
							"The least time between two stored heartbeats of one task.",
							NULL,
							&durable_heartbeat_interval, 10000, 0, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("durable.max_payload",
							"The largest input, output, error or header a task may carry.",
							NULL,
							&durable_max_payload, 1024, 1, 256 * 1024,
							PGC_SUSET, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable("durable.max_reclaims",
							"How many lapsed claims of a task are taken over before the attempt fails.",
							NULL,
							&durable_max_reclaims, 3, 0, INT_MAX,
							PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("durable.max_recovery_attempts",
							"How many lapsed claims of a run's turns are taken over in all before the run is dead.",
							"-1 sets no limit over the whole life of a run.",
							&durable_max_recovery_attempts, -1, -1, INT_MAX,
							PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("durable.poll_interval",
							"How often a waiting session looks for work that no wake-up announced.",
							"With shared_preload_libraries the wait is woken at commit and looks at most five times less often.",
							&durable_poll_interval, 200, 10, 60000,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("durable.result_retention",
							"How long the result of a stand-alone task is kept when nobody acknowledges it.",
							"-1 keeps results until they are acknowledged.",
							&durable_result_retention, 7 * 24 * 60, -1, INT_MAX,
							PGC_SUSET, GUC_UNIT_MIN, NULL, NULL, NULL);
	DefineCustomIntVariable("durable.signal_retention",
							"How long a signal is kept that nobody waits for.",
							"-1 keeps signals until a run takes them.",
							&durable_signal_retention, -1, -1, INT_MAX,
							PGC_SUSET, GUC_UNIT_MIN, NULL, NULL, NULL);
}

static void
define_worker_settings(void)
{
	DefineCustomBoolVariable("durable.background",
							 "Lets background workers serve the database.",
							 "For the server or, with ALTER DATABASE, for one database. Needs shared_preload_libraries.",
							 &durable_background, true,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("durable.stalled_after",
							"How long a run may wait for a signal or a step before the server's log tells of it.",
							"0 tells of none. Needs background workers.",
							&durable_stalled_after, 0, 0, 100 * 365 * 24 * 60,
							PGC_SUSET, GUC_UNIT_MIN, NULL, NULL, NULL);
	DefineCustomIntVariable("durable.worker_idle_timeout",
							"How long a background worker that executes work stays when it finds none.",
							"-1 keeps it for ever.",
							&durable_worker_idle_timeout, 60000, -1, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("durable.workers",
							"How many background workers execute work in a database at once.",
							"0 leaves the execution to durable.work().",
							&durable_workers, 4, 0, 1000,
							PGC_SUSET, 0, NULL, NULL, NULL);
}

static void
define_expert_settings(void)
{
	DefineCustomIntVariable("durable.careful_period",
							"How long after an unclean start every claim is flushed before its work begins.",
							NULL,
							&durable_careful_period, 300, 0, INT_MAX / 1000,
							PGC_SUSET, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("durable.clock_offset",
							"Moves the engine's clock, for tests.",
							NULL,
							&durable_clock_offset, 0, 0, INT_MAX,
							PGC_SUSET, GUC_UNIT_S | GUC_NOT_IN_SAMPLE,
							NULL, NULL, NULL);
	DefineCustomBoolVariable("durable.scan_hints",
							 "Lets claims start behind the dead head of their queue.",
							 "Needs shared_preload_libraries.",
							 &durable_use_scan_hints, true,
							 PGC_SUSET, 0, NULL, NULL, NULL);
}

void
durable_guc_init(void)
{
	define_session_settings();
	define_limits();
	define_worker_settings();
	define_expert_settings();
	MarkGUCPrefixReserved("durable");
}
