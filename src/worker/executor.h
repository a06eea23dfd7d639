/*-------------------------------------------------------------------------
 *
 * executor.h
 *	  A background worker that executes what one role registered in one database.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_EXECUTOR_H
#define DURABLE_EXECUTOR_H

#include "postgres.h"

extern PGDLLEXPORT void durable_executor_main(Datum arg);

#endif							/* DURABLE_EXECUTOR_H */
