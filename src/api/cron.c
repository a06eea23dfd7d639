/*-------------------------------------------------------------------------
 *
 * cron.c
 *	  cron_database, cron_lock: where pg_cron lives, and who changes our jobs there.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "base/compat.h"
#include "base/lock_class.h"

DURABLE_FUNCTION(durable_cron_database);
DURABLE_FUNCTION(durable_cron_lock);

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

/* To the end of the transaction. pg_cron deletes a job as the server deletes rows of its
 * catalogs: one that somebody else has just changed is an internal error. */
Datum
durable_cron_lock(PG_FUNCTION_ARGS)
{
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, 0, 0, CRON_LOCK_CLASS);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
	PG_RETURN_VOID();
}
