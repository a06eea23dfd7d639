/*-------------------------------------------------------------------------
 *
 * start_limit.h
 *	  What may keep a run from being started: its keys, full queues, quotas.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_START_LIMIT_H
#define DURABLE_START_LIMIT_H

#include "postgres.h"

#include "engine/run.h"

/*
 * Fills in the spec's keys. Where a queue or a quota has to be counted, that is locked to
 * the end of the transaction, and waited for. A refusal is raised, or put into the
 * spec if it has room for it. false: refused, or a run of this id exists.
 */
extern bool durable_start_check(DurableRunSpec *spec);

/* Only fills in the keys, for a run that has its place already. */
extern void durable_start_keys(DurableRunSpec *spec);

#endif							/* DURABLE_START_LIMIT_H */
