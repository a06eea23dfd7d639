/*-------------------------------------------------------------------------
 *
 * cron.c
 *	  cron_database: where pg_cron lives.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "base/compat.h"

DURABLE_FUNCTION(durable_cron_database);

/* pg_cron shows its setting to superusers only, but where the jobs of this server are kept
 * is what every role that wants one has to be told. */
Datum
durable_cron_database(PG_FUNCTION_ARGS)
{
	const char *name = GetConfigOption("cron.database_name", true, false);

	if (name == NULL || name[0] == '\0')
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(name));
}
