/*-------------------------------------------------------------------------
 *
 * names.c
 *	  Comparing texts, and enum labels as they are stored.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"

#include "base/compat.h"
#include "base/names.h"

bool
durable_text_same(const text *a, const text *b)
{
	return VARSIZE_ANY_EXHDR(a) == VARSIZE_ANY_EXHDR(b) &&
		memcmp(VARDATA_ANY(a), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(a)) == 0;
}

bool
durable_text_is(const text *a, const char *b)
{
	return VARSIZE_ANY_EXHDR(a) == strlen(b) &&
		memcmp(VARDATA_ANY(a), b, VARSIZE_ANY_EXHDR(a)) == 0;
}

int
durable_label_index(Datum value, const char *const *labels, int n, const char *what)
{
	text	   *label = DatumGetTextPP(value);

	for (int i = 0; i < n; i++)
	{
		if (durable_text_is(label, labels[i]))
			return i;
	}
	ereport(ERROR,
			errcode(ERRCODE_DATA_CORRUPTED),
			errmsg("%s is \"%s\", which is not known", what, text_to_cstring(label)));
	return -1;
}
