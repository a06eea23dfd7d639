/*-------------------------------------------------------------------------
 *
 * scheduler.h
 *	  The background worker of one database that looks after time and executors.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_SCHEDULER_H
#define DURABLE_SCHEDULER_H

#include "postgres.h"

extern PGDLLEXPORT void durable_scheduler_main(Datum arg);

#endif							/* DURABLE_SCHEDULER_H */
