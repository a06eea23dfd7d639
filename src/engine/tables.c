/*-------------------------------------------------------------------------
 *
 * tables.c
 *	  The tables that one operation writes, opened when first needed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "engine/tables.h"

static const DurableRel table_rels[TABLE_COUNT] = {
	[TABLE_TASK] = REL_TASK,
	[TABLE_READY] = REL_TASK_READY,
	[TABLE_DELAYED] = REL_TASK_DELAYED,
	[TABLE_RESULT] = REL_TASK_RESULT,
	[TABLE_LIMITED] = REL_TASK_LIMITED,
	[TABLE_TURN] = REL_LIMITER_TURN,
	[TABLE_BLOCKED] = REL_LIMITER_BLOCKED,
	[TABLE_SLOT] = REL_LIMITER_SLOT,
	[TABLE_FREED] = REL_LIMITER_FREED,
	[TABLE_STATE] = REL_LIMITER_STATE,
	[TABLE_KEY] = REL_LIMITER_KEY,
	[TABLE_TICK] = REL_LIMITER_TICK,
};

void
durable_tables_init(DurableTables *tables)
{
	memset(tables->open, 0, sizeof(tables->open));
}

DurableWriter *
durable_tables_get(DurableTables *tables, DurableTable table)
{
	if (!tables->open[table])
	{
		durable_writer_open(&tables->writers[table], table_rels[table]);
		tables->open[table] = true;
	}
	return &tables->writers[table];
}

void
durable_tables_close(DurableTables *tables)
{
	for (int i = 0; i < TABLE_COUNT; i++)
	{
		if (tables->open[i])
			durable_writer_close(&tables->writers[i]);
		tables->open[i] = false;
	}
}
