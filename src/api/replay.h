/*-------------------------------------------------------------------------
 *
 * replay.h
 *	  Replayed steps without their arguments.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_REPLAY_H
#define DURABLE_REPLAY_H

#include "postgres.h"

#include "fmgr.h"

/* Whether this call is the one that stands behind "ELSE". */
extern bool durable_call_has_asked(FunctionCallInfo fcinfo);

#endif							/* DURABLE_REPLAY_H */
