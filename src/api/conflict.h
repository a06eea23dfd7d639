/*-------------------------------------------------------------------------
 *
 * conflict.h
 *	  The arguments that say what happens when an id is taken.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_API_CONFLICT_H
#define DURABLE_API_CONFLICT_H

#include "postgres.h"

#include "fmgr.h"

#include "engine/conflict.h"

/* The last four arguments: on_conflict, debounce, debounce_max, throttle. *at is the time
 * that the call asks for (DT_NOBEGIN: none), and becomes that of the debounce or throttle. */
extern void durable_arg_conflict(FunctionCallInfo fcinfo, DurableConflict *conflict,
								 TimestampTz *at, const char *at_name);

/* 22023: what is to be debounced or throttled is told by its id, and there is none */
extern void durable_conflict_needs_id(const DurableConflict *conflict, const char *argument);

#endif							/* DURABLE_API_CONFLICT_H */
