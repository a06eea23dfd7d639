/*-------------------------------------------------------------------------
 *
 * names.h
 *	  Comparing texts, and enum labels as they are stored.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_NAMES_H
#define DURABLE_NAMES_H

#include "postgres.h"

extern bool durable_text_same(const text *a, const text *b);
extern bool durable_text_is(const text *a, const char *b);

/* Which of the labels the stored text is, by name and never by number. XX001 when
 * it is none of them; "what" says what has it. */
extern int	durable_label_index(Datum value, const char *const *labels, int n,
								const char *what);

#endif							/* DURABLE_NAMES_H */
