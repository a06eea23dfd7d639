/*-------------------------------------------------------------------------
 *
 * tables.h
 *	  The tables that one operation writes, opened when first needed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_TABLES_H
#define DURABLE_TABLES_H

#include "postgres.h"

#include "base/rel.h"

typedef enum DurableTable
{
	TABLE_TASK,
	TABLE_READY,
	TABLE_DELAYED,
	TABLE_RESULT,
	TABLE_LIMITED,
	TABLE_TURN,
	TABLE_BLOCKED,
	TABLE_SLOT,
	TABLE_FREED,
	TABLE_STATE,
	TABLE_KEY,
	TABLE_TICK,
	TABLE_COUNT
} DurableTable;

typedef struct DurableTables
{
	DurableWriter writers[TABLE_COUNT];
	bool		open[TABLE_COUNT];
} DurableTables;

extern void durable_tables_init(DurableTables *tables);
extern DurableWriter *durable_tables_get(DurableTables *tables, DurableTable table);
extern void durable_tables_close(DurableTables *tables);

#endif							/* DURABLE_TABLES_H */
