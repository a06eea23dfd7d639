/*-------------------------------------------------------------------------
 *
 * plan.c
 *	  Saved SPI plans for everything that is not on the hot path.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/snapmgr.h"

#include "base/plan.h"
#include "base/rel.h"
#include "base/security.h"

static DurableSecurity security;

void
durable_plan_begin(void)
{
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	durable_security_enter(&security);
}

uint64
durable_plan_run(DurablePlan *plan, const Datum *values, const char *nulls)
{
	int			rc;

	if (plan->plan == NULL)
	{
		SPIPlanPtr	prepared = SPI_prepare(plan->sql, plan->nargs, plan->argtypes);

		if (prepared == NULL || SPI_keepplan(prepared) != 0)
			elog(ERROR, "could not prepare plan \"%s\": %s", plan->name,
				 SPI_result_code_string(SPI_result));
		plan->plan = prepared;
	}
	durable_snapshot_push();
	rc = SPI_execute_snapshot(plan->plan, (Datum *) values, nulls,
							  GetActiveSnapshot(), InvalidSnapshot,
							  false, true, 0);
	durable_snapshot_pop();
	if (rc < 0)
		elog(ERROR, "plan \"%s\" failed: %s", plan->name,
			 SPI_result_code_string(rc));
	return SPI_processed;
}

void
durable_plan_end(void)
{
	durable_security_leave(&security);
	SPI_finish();
}

int64
durable_plan_number(DurablePlan *plan, const Datum *values)
{
	bool		isnull;
	int64		number;

	durable_plan_begin();
	(void) durable_plan_run(plan, values, NULL);
	number = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	durable_plan_end();
	return number;
}

text *
durable_plan_text(uint64 row, int column, MemoryContext context)
{
	bool		isnull;
	Datum		value = SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc,
									  column, &isnull);
	MemoryContext before;
	text	   *copy;

	if (isnull)
		return NULL;
	before = MemoryContextSwitchTo(context);
	copy = DatumGetTextPCopy(value);
	MemoryContextSwitchTo(before);
	return copy;
}
