/*-------------------------------------------------------------------------
 *
 * check.h
 *	  Checks of inputs and outputs: functions that take a jsonb and return boolean.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_CHECK_H
#define DURABLE_CHECK_H

#include "postgres.h"

#include "utils/jsonb.h"

/* Whether a stored check can be called by the current role; NULL can. */
extern bool durable_check_exists(text *check);

/*
 * Raises unless the value passes: 22023, or whatever the check raises itself. The
 * check runs as its owner, whoever calls, read-only and with a search_path of
 * its own. "what" is for the message: input of workflow …. A NULL check passes.
 */
extern void durable_check_require(text *check, Oid owner, Jsonb *value, const char *what,
								  const text *name);

#endif							/* DURABLE_CHECK_H */
