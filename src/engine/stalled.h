/*-------------------------------------------------------------------------
 *
 * stalled.h
 *	  Telling the operator of runs that have stalled.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_ENGINE_STALLED_H
#define DURABLE_ENGINE_STALLED_H

#include "postgres.h"

/* One line in the server's log for each run that has stalled for so many minutes and
 * that the last call in this process did not find. */
extern void durable_stalled_report(int minutes);

#endif							/* DURABLE_ENGINE_STALLED_H */
