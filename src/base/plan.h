/*-------------------------------------------------------------------------
 *
 * plan.h
 *	  Saved SPI plans for everything that is not on the hot path.
 *
 * A plan is a static DurablePlan beside the code that uses it. Running it
 * switches to the extension's owner under a safe search_path and back, so the
 * text must name only the extension's own objects, all of them qualified, and
 * the caller must have checked access first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_PLAN_H
#define DURABLE_PLAN_H

#include "postgres.h"

#include "executor/spi.h"
#include "utils/snapshot.h"

#define DURABLE_PLAN_ARGS 18

typedef struct DurablePlan
{
	const char *name;			/* for error messages */
	const char *sql;
	int			nargs;
	Oid			argtypes[DURABLE_PLAN_ARGS];
	SPIPlanPtr	plan;			/* prepared on first use, kept */
} DurablePlan;

/*
 * Runs the plan between durable_plan_begin() and durable_plan_end(), sees every
 * commit so far, and returns the number of rows; they are in SPI_tuptable
 * until the end. nulls as for SPI ("n" where null), NULL when none is.
 */
extern void durable_plan_begin(void);
extern uint64 durable_plan_run(DurablePlan *plan, const Datum *values, const char *nulls);
extern void durable_plan_end(void);

/* All of that for a query whose answer is one bigint. */
extern int64 durable_plan_number(DurablePlan *plan, const Datum *values);

/* The value in a row of the last result, copied into "context"; NULL if null. */
extern text *durable_plan_text(uint64 row, int column, MemoryContext context);

#endif							/* DURABLE_PLAN_H */
