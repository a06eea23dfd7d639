/*-------------------------------------------------------------------------
 *
 * ids.h
 *	  Lists of ids: sorted, and as bigint[] values.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_IDS_H
#define DURABLE_IDS_H

#include "postgres.h"

#include "utils/array.h"

extern void durable_ids_sort(int64 *ids, int n);
extern ArrayType *durable_ids_to_array(const int64 *ids, int n);
/* palloc'd */
extern int64 *durable_ids_from_array(ArrayType *array, int *n);

#endif							/* DURABLE_IDS_H */
