/*-------------------------------------------------------------------------
 *
 * filter.h
 *	  Filters of runs: jsonb objects that say which runs are meant.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_FILTER_H
#define DURABLE_FILTER_H

#include "postgres.h"

#include "fmgr.h"
#include "utils/jsonb.h"

#include "base/security.h"

/* 22004 for a null; 22023 for what is no object, empty, or has a key or a value that a
 * filter cannot have. What passes can be given to durable.find_runs(). */
extern Jsonb *durable_arg_filter(FunctionCallInfo fcinfo, int n);

/* The namespace that it names, or else the session's; 42501 unless the role holds the
 * privilege there. */
extern text *durable_filter_namespace(Jsonb *filter, DurablePrivilege privilege);

/* 42501 unless the role holds the privilege in the namespace; "*", which means all of
 * them, is for who holds all of them everywhere, whatever was granted under that name. */
extern void durable_scope_require(text *namespace, DurablePrivilege privilege);

/* Whether it says something about that. */
extern bool durable_filter_has(Jsonb *filter, const char *key);

#endif							/* DURABLE_FILTER_H */
