/*-------------------------------------------------------------------------
 *
 * names.c
 *	  Comparing texts, reserved ids, sets of tags, and enum labels as they are stored.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
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

bool
durable_text_starts(const text *a, const char *prefix)
{
	return VARSIZE_ANY_EXHDR(a) >= strlen(prefix) &&
		memcmp(VARDATA_ANY(a), prefix, strlen(prefix)) == 0;
}

const char *
durable_reserved_prefix(const text *run_id)
{
	static const char *const prefixes[] = {
		DURABLE_ID_SCHEDULED, DURABLE_ID_DEAD_LETTER, DURABLE_ID_ON_ERROR
	};

	for (int i = 0; i < lengthof(prefixes); i++)
	{
		if (durable_text_starts(run_id, prefixes[i]))
			return prefixes[i];
	}
	return NULL;
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

ArrayType *
durable_tags_unite(ArrayType *a, ArrayType *b)
{
	ArrayType  *both[2] = {a, b};
	Datum	   *tags = NULL;
	int			n = 0;

	for (int i = 0; i < 2; i++)
	{
		Datum	   *elements;
		bool	   *nulls;
		int			count;

		deconstruct_array(both[i], TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &count);
		tags = tags == NULL ? palloc(sizeof(Datum) * Max(count, 1)) :
			repalloc(tags, sizeof(Datum) * Max(n + count, 1));
		for (int j = 0; j < count; j++)
		{
			int			k = 0;

			while (!nulls[j] && k < n &&
				   strcmp(TextDatumGetCString(tags[k]), TextDatumGetCString(elements[j])) != 0)
				k++;
			if (!nulls[j] && k == n)
				tags[n++] = elements[j];
		}
	}
	return construct_array(tags, n, TEXTOID, -1, false, TYPALIGN_INT);
}

static int
compare_texts(const void *a, const void *b)
{
	const text *x = *(text *const *) a;
	const text *y = *(text *const *) b;
	int			nx = VARSIZE_ANY_EXHDR(x);
	int			ny = VARSIZE_ANY_EXHDR(y);
	int			result = memcmp(VARDATA_ANY(x), VARDATA_ANY(y), Min(nx, ny));

	return result != 0 ? result : nx - ny;
}

ArrayType *
durable_set_make(text **members, int n)
{
	Datum	   *elements = palloc(sizeof(Datum) * Max(n, 1));
	int			count = 0;

	qsort(members, n, sizeof(text *), compare_texts);
	for (int i = 0; i < n; i++)
	{
		if (i == 0 || compare_texts(&members[i - 1], &members[i]) != 0)
			elements[count++] = PointerGetDatum(members[i]);
	}
	return construct_array(elements, count, TEXTOID, -1, false, TYPALIGN_INT);
}

text **
durable_set_members(ArrayType *set, int *n)
{
	Datum	   *elements;

	deconstruct_array(set, TEXTOID, -1, false, TYPALIGN_INT, &elements, NULL, n);
	/* a Datum of a text is its pointer */
	StaticAssertStmt(sizeof(Datum) == sizeof(text *), "pointers fill a Datum");
	return (text **) elements;
}

bool
durable_set_has(ArrayType *set, const text *member)
{
	int			n;
	text	  **members = durable_set_members(set, &n);
	bool		found = bsearch(&member, members, n, sizeof(text *), compare_texts) != NULL;

	pfree(members);
	return found;
}

bool
durable_set_contains(ArrayType *set, ArrayType *subset)
{
	int			n;
	int			nwanted;
	text	  **members = durable_set_members(set, &n);
	text	  **wanted = durable_set_members(subset, &nwanted);
	int			i = 0;
	int			found = 0;

	while (i < n && found < nwanted)
	{
		int			order = compare_texts(&members[i], &wanted[found]);

		if (order > 0)
			break;
		found += order == 0;
		i++;
	}
	pfree(members);
	pfree(wanted);
	return found == nwanted;
}

bool
durable_set_same(ArrayType *a, ArrayType *b)
{
	return VARSIZE(a) == VARSIZE(b) && memcmp(a, b, VARSIZE(a)) == 0;
}
