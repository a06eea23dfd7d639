/*-------------------------------------------------------------------------
 *
 * extension_state.h
 *	  Whether this database may hand out work.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_EXTENSION_STATE_H
#define DURABLE_EXTENSION_STATE_H

#include "postgres.h"

/* 55000 in a restored or cloned copy of a database, until somebody activates it */
extern void durable_require_active(void);

extern bool durable_is_active(void);

/* The identity of this cluster, as durable.identity stores it. */
extern int64 durable_system_identifier(void);

extern void durable_extension_state_init(void);

#endif							/* DURABLE_EXTENSION_STATE_H */
