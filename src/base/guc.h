/*-------------------------------------------------------------------------
 *
 * guc.h
 *	  The settings, all named durable.*; docs/settings.md explains each.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_GUC_H
#define DURABLE_GUC_H

#include "postgres.h"

extern bool durable_async_claim;
extern bool durable_background;
extern int	durable_blocked_poll;	/* ms */
extern int	durable_careful_period;		/* s */
extern int	durable_clock_offset;		/* s, tests only */
extern int	durable_heartbeat_interval; /* ms */
extern int	durable_max_payload;		/* kB */
extern int	durable_max_reclaims;
extern int	durable_max_recovery_attempts;
extern char *durable_namespace;
extern int	durable_poll_interval;		/* ms */
extern int	durable_result_retention;	/* min, -1 = keep */
extern int	durable_signal_retention;	/* min, -1 = keep */
extern int	durable_stalled_after;		/* min, 0 = not told of */
extern bool durable_use_scan_hints;
extern int	durable_worker_idle_timeout;	/* ms, -1 = stay */
extern int	durable_workers;		/* executors in this database */

extern void durable_guc_init(void);

#endif							/* DURABLE_GUC_H */
