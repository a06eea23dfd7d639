/*-------------------------------------------------------------------------
 *
 * errors.h
 *	  The errors that many functions raise in the same words.
 *
 * Private SQLSTATEs (class WF) are listed here once the workflow engine has
 * conditions of its own; the queue speaks only standard ones.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_ERRORS_H
#define DURABLE_ERRORS_H

#include "postgres.h"

/* 22004: an argument that must not be null is */
extern void durable_error_null(const char *argument) __attribute__((noreturn));

/* 22023: an argument's value is out of its range; "rule" is the DETAIL */
extern void durable_error_value(const char *argument, const char *rule)
			__attribute__((noreturn));

/* refuses read-only transactions, parallel workers and standbys */
extern void durable_require_writable(const char *function);

#endif							/* DURABLE_ERRORS_H */
