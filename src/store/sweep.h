/*-------------------------------------------------------------------------
 *
 * sweep.h
 *	  durable.last_sweep, durable.sweep_failure: what sweeps tell about themselves.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_SWEEP_H
#define DURABLE_STORE_SWEEP_H

#include "postgres.h"

#include "utils/jsonb.h"
#include "utils/timestamp.h"

/* Whether a sweep was noted since then. */
extern bool durable_sweep_noted_since(TimestampTz t);
/* This session has just swept; in the name of "role". */
extern void durable_sweep_note(Oid role, Jsonb *done);

/* Whether any part is known to have failed. */
extern bool durable_sweep_any_failure(void);
extern void durable_sweep_note_failure(const char *part, const ErrorData *error);
extern void durable_sweep_note_success(const char *part);

#endif							/* DURABLE_STORE_SWEEP_H */
