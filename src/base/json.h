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

/* One more key of the object under construction; NULL is left out. */
extern void durable_json_add_text(JsonbParseState **state, const char *key, const text *value);
extern void durable_json_add_string(JsonbParseState **state, const char *key, const char *value);
extern void durable_json_add_int(JsonbParseState **state, const char *key, int64 value);
extern void durable_json_add_numeric(JsonbParseState **state, const char *key, Numeric value);
extern void durable_json_add_value(JsonbParseState **state, const char *key, Jsonb *value);

/* … whose value is an array; what follows goes into it, until WJB_END_ARRAY */
extern void durable_json_begin_array(JsonbParseState **state, const char *key);

/* {"message": …, "retryable": …} */
extern Jsonb *durable_json_error(const char *message, bool retryable);

/* the same with a code */
extern Jsonb *durable_json_error_full(const char *message, const char *code, bool retryable);
/* … and all that ErrorData tells; NULL texts are left out */
extern Jsonb *durable_json_error_details(const char *message, const char *code,
										 const char *detail, const char *hint,
										 const char *context);
/* the string under a key of an object, or NULL */
extern char *durable_json_string(Jsonb *object, const char *key);

/* The next member of the object that "it" was begun for; false: there are no more. */
extern bool durable_json_next_member(JsonbIterator **it, char **key, JsonbValue *value);
/* the object's keys and those of "more", which win */
extern Jsonb *durable_json_merge(Jsonb *object, Jsonb *more);

/* the object with one more key */
extern Jsonb *durable_json_with(Jsonb *object, const char *key, Jsonb *value);

/* {"status": …, key: …}; a NULL value is null */
extern Jsonb *durable_json_settled(const char *status, const char *key, Jsonb *value);

/* {"retryable": false, "reason": …} */
extern Jsonb *durable_json_rejected(const char *reason);

/*
 * The error of an attempt with the key "attempts": a list of
 * {"at": …, "code": …, "attempt": …, "message": …}, those of the previous error and
 * this one, the last DURABLE_ATTEMPTS_KEPT of them, long messages cut.
 */
#define DURABLE_ATTEMPTS_KEPT 10
extern Jsonb *durable_json_attempt(Jsonb *error, Jsonb *previous, int attempt, int64 at);

/* An error as the API promises it: an object. A string or any other value
 * becomes its message. */
extern Jsonb *durable_json_error_from(Jsonb *given);

/* false only where the error says so itself */
extern bool durable_json_is_retryable(Jsonb *error);

/* {"name": count, …} */
extern Jsonb *durable_json_counts(const char *const *names, const int64 *counts, int n);

#endif							/* DURABLE_JSON_H */
