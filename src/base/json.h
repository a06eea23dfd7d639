/*-------------------------------------------------------------------------
 *
 * json.h
 *	  The few jsonb values that the engine reads or writes itself.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_JSON_H
#define DURABLE_JSON_H

#include "postgres.h"

#include "utils/jsonb.h"

/* {"message": …, "retryable": …} */
extern Jsonb *durable_json_error(const char *message, bool retryable);

/* An error as the API promises it: an object. A string or any other value
 * becomes its message. */
extern Jsonb *durable_json_error_from(Jsonb *given);

/* false only where the error says so itself */
extern bool durable_json_is_retryable(Jsonb *error);

/* {"name": count, …} */
extern Jsonb *durable_json_counts(const char *const *names, const int64 *counts, int n);

#endif							/* DURABLE_JSON_H */
