/*-------------------------------------------------------------------------
 *
 * deadletter.h
 *	  A run that is dead starts a run of its dead-letter workflow.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_ENGINE_DEADLETTER_H
#define DURABLE_ENGINE_DEADLETTER_H

#include "postgres.h"

#include "store/run.h"

/*
 * The run, which is locked, has just become dead. Starts "dlq:<run id>" if there is a
 * workflow for it. What is in the way of that is noted in the run's log; nothing is
 * raised for it. Waits for nobody.
 */
extern void durable_dead_letter_start(const DurableRun *run);

#endif							/* DURABLE_ENGINE_DEADLETTER_H */
