/*-------------------------------------------------------------------------
 *
 * executing.h
 *	  Which task a session executes, and interrupting it from another one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_EXECUTING_H
#define DURABLE_EXECUTING_H

#include "postgres.h"

#include "storage/lock.h"
#include "utils/elog.h"

/* While a session looks for work to execute: notice who cancels it. */
extern void durable_executing_watch(void);
extern void durable_executing_unwatch(void);
/* Whether it was the task in hand itself, with pg_cancel_backend(). */
extern bool durable_executing_cancelled_itself(void);

/* This session executes the task from now on. Call before the claim commits. */
extern void durable_executing_begin(int64 task);

/* It does not any more. Call before the commit that makes its outcome visible, while
 * what serialises the task's end (its run's lock, or its own row's) is held; or at
 * the end of all, after an error. Harmless when nothing is being executed. */
extern void durable_executing_end(void);

/* The task was taken away or ended by somebody else: an interrupt that was sent
 * because of it is waited for and forgotten. Ends, too. false: nothing was being
 * executed. */
extern bool durable_executing_lost(void);

/* When (and if) this transaction commits, whoever executes the task then is
 * interrupted. Its own session never is. */
extern void durable_executing_interrupt(int64 task);

/* Whether this error is a cancel request or a statement timeout, not something that
 * user code raised under the same SQLSTATE. */
extern bool durable_is_interrupt(const ErrorData *error);
/* Only the former: what durable_executing_interrupt() raises, too. */
extern bool durable_is_cancel_request(const ErrorData *error);

/* Lets go of a session-level lock, if user code has not done so. */
extern void durable_lock_release_session(const LOCKTAG *tag, LOCKMODE mode);

extern void durable_executing_init(void);

#endif							/* DURABLE_EXECUTING_H */
