/*-------------------------------------------------------------------------
 *
 * errors.h
 *	  The errors that many functions raise in the same words.
 *
 * The private SQLSTATEs are listed here and in docs/errors.md; everything else
 * uses standard ones.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_ERRORS_H
#define DURABLE_ERRORS_H

#include "postgres.h"

#include "utils/elog.h"

/* a function of a body was called where no turn is under way */
#define ERRCODE_DURABLE_NO_TURN MAKE_SQLSTATE('W', 'F', '0', '0', '1')
/* the history does not match what the body does */
#define ERRCODE_DURABLE_HISTORY MAKE_SQLSTATE('W', 'F', '0', '0', '2')
/* a step or child failed, and its error had no SQLSTATE of its own */
#define ERRCODE_DURABLE_STEP_FAILED MAKE_SQLSTATE('W', 'F', '0', '0', '3')
/* a signal did not come in time */
#define ERRCODE_DURABLE_WAIT_TIMED_OUT MAKE_SQLSTATE('W', 'F', '0', '0', '4')
/* the body caught the end of its turn and went on */
#define ERRCODE_DURABLE_TURN_SWALLOWED MAKE_SQLSTATE('W', 'F', '0', '0', '5')
/* a function of a body was called inside a step */
#define ERRCODE_DURABLE_IN_STEP MAKE_SQLSTATE('W', 'F', '0', '0', '6')
/* the body failed its run with fail_run() and gave no code */
#define ERRCODE_DURABLE_RUN_FAILED MAKE_SQLSTATE('W', 'F', '0', '0', '7')

/* nobody picked a step up in time, or whoever did fell silent */
#define ERRCODE_DURABLE_STEP_TIMED_OUT MAKE_SQLSTATE('W', 'F', '0', '0', '8')

/* a workflow's queue for one singleton key is full */
#define ERRCODE_DURABLE_QUEUE_FULL MAKE_SQLSTATE('W', 'F', '0', '1', '0')
/* as many runs as may be are active under a concurrency key */
#define ERRCODE_DURABLE_QUOTA MAKE_SQLSTATE('W', 'F', '0', '1', '1')

/* 22004: an argument that must not be null is */
extern void durable_error_null(const char *argument) __attribute__((noreturn));

/* 22023: an argument's value is out of its range; "rule" is the DETAIL */
extern void durable_error_value(const char *argument, const char *rule)
			__attribute__((noreturn));

/* refuses read-only transactions, parallel workers and standbys */
extern void durable_require_writable(const char *function);

#endif							/* DURABLE_ERRORS_H */
