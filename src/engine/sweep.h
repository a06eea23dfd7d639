/*-------------------------------------------------------------------------
 *
 * sweep.h
 *	  A pass over the whole database, part by part.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_SWEEP_H
#define DURABLE_SWEEP_H

#include "postgres.h"

#include "utils/jsonb.h"

#include "engine/maintain.h"

/* A part waits this long for a lock on a whole table; it waits for no row. */
#define DURABLE_PART_PATIENCE "1s"

/* How long the parts of one sweep may begin something new. */
#define DURABLE_SWEEP_US (10 * USECS_PER_SEC)

extern void durable_sweep_begin(DurableSweep *sweep, int max);

/* All parts, each in a subtransaction: what fails is a warning, is noted, and does not
 * keep the others. The end of the statement or the session is raised. */
extern void durable_sweep_run(DurableSweep *sweep);

extern Jsonb *durable_sweep_json(const DurableSweep *sweep);

/* Notes that this session swept, unless one did a moment ago. */
extern void durable_sweep_tell(const DurableSweep *sweep);

#endif							/* DURABLE_SWEEP_H */
