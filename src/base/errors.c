/*-------------------------------------------------------------------------
 *
 * errors.c
 *	  The errors that many functions raise in the same words.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "tcop/utility.h"

#include "base/errors.h"

void
durable_error_null(const char *argument)
{
	ereport(ERROR,
			errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			errmsg("%s must not be null", argument));
}

void
durable_error_value(const char *argument, const char *rule)
{
	ereport(ERROR,
			errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			errmsg("invalid value for %s", argument),
			errdetail("%s", rule));
}

void
durable_require_writable(const char *function)
{
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	PreventCommandDuringRecovery(function);
}
