/*-------------------------------------------------------------------------
 *
 * ids.c
 *	  Lists of ids: sorted, and as bigint[] values.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"

#include "base/ids.h"

static int
compare_ids(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	return (x > y) - (x < y);
}

void
durable_ids_sort(int64 *ids, int n)
{
	qsort(ids, n, sizeof(int64), compare_ids);
}

ArrayType *
durable_ids_to_array(const int64 *ids, int n)
{
	Datum	   *elements = palloc(sizeof(Datum) * Max(n, 1));
	ArrayType  *array;

	for (int i = 0; i < n; i++)
		elements[i] = Int64GetDatum(ids[i]);
	array = construct_array(elements, n, INT8OID, sizeof(int64),
							FLOAT8PASSBYVAL, TYPALIGN_DOUBLE);
	pfree(elements);
	return array;
}

int64 *
durable_ids_from_array(ArrayType *array, int *n)
{
	Datum	   *elements;
	int64	   *ids;

	deconstruct_array(array, INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
					  TYPALIGN_DOUBLE, &elements, NULL, n);
	ids = palloc(sizeof(int64) * Max(*n, 1));
	for (int i = 0; i < *n; i++)
		ids[i] = DatumGetInt64(elements[i]);
	pfree(elements);
	return ids;
}
