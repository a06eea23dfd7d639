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
