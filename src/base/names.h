/*-------------------------------------------------------------------------
 *
 * names.h
 *	  Comparing texts, reserved ids, sets of tags, and enum labels as they are stored.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_NAMES_H
#define DURABLE_NAMES_H

#include "postgres.h"

#include "utils/array.h"

extern bool durable_text_same(const text *a, const text *b);
extern bool durable_text_is(const text *a, const char *b);
extern bool durable_text_starts(const text *a, const char *prefix);

/* With what the ids of runs begin that the engine itself starts. */
#define DURABLE_ID_SCHEDULED "sched:"
#define DURABLE_ID_DEAD_LETTER "dlq:"
#define DURABLE_ID_ON_ERROR "onerror:"

/* The one of these with which a run id begins, or NULL. */
extern const char *durable_reserved_prefix(const text *run_id);

/* The tags of both, without nulls and duplicates. */
extern ArrayType *durable_tags_unite(ArrayType *a, ArrayType *b);

/* Which of the labels the stored text is, by name and never by number. XX001 when
 * it is none of them; "what" says what has it. */
extern int	durable_label_index(Datum value, const char *const *labels, int n,
								const char *what);

/* Sets as arrays: ascending, byte by byte, without duplicates. What goes in is
 * sorted where it stands; what comes out points into the array. */
extern ArrayType *durable_set_make(text **members, int n);
extern text **durable_set_members(ArrayType *set, int *n);
extern bool durable_set_has(ArrayType *set, const text *member);
extern bool durable_set_contains(ArrayType *set, ArrayType *subset);
extern bool durable_set_same(ArrayType *a, ArrayType *b);

#endif							/* DURABLE_NAMES_H */
