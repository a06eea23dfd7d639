/*-------------------------------------------------------------------------
 *
 * launcher.h
 *	  The one background worker per cluster that starts the others.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_LAUNCHER_H
#define DURABLE_LAUNCHER_H

#include "postgres.h"

/* When the library is loaded; does nothing unless it is preloaded. */
extern void durable_launcher_init(void);

extern PGDLLEXPORT void durable_launcher_main(Datum arg);

#endif							/* DURABLE_LAUNCHER_H */
