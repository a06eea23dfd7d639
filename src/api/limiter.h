/*-------------------------------------------------------------------------
 *
 * limiter.h
 *	  The arguments limiter and fairness_key.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_API_LIMITER_H
#define DURABLE_API_LIMITER_H

#include "postgres.h"

#include "fmgr.h"

/* from argument n on; NULL when null */
extern void durable_arg_limiter(FunctionCallInfo fcinfo, int n, text **limiter,
								text **fairness_key);

#endif							/* DURABLE_API_LIMITER_H */
