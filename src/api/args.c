/*-------------------------------------------------------------------------
 *
 * args.c
 *	  Reading and checking the arguments of SQL functions.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "catalog/pg_type_d.h"
#include "funcapi.h"
#include "nodes/parsenodes.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "api/args.h"
#include "base/clock.h"
#include "base/errors.h"
#include "base/guc.h"
#include "base/security.h"

text *
durable_check_name(text *name, const char *argument)
{
	int			length = VARSIZE_ANY_EXHDR(name);

	if (length == 0 || length > DURABLE_NAME_MAX)
		durable_error_value(argument,
							psprintf("It must have between 1 and %d bytes.", DURABLE_NAME_MAX));
	return name;
}

/* Queues of the database's own workers. */
text *
durable_check_queue(text *queue)
{
	if (queue != NULL && VARDATA_ANY(queue)[0] == '#')
		durable_error_value("queue", "Names that start with \"#\" are reserved for work inside the database.");
	return queue;
}

text *
durable_check_task_id(text *task_id)
{
	int			length = VARSIZE_ANY_EXHDR(task_id);

	if (length == 0 || length > DURABLE_TASK_ID_MAX)
		durable_error_value("task_id",
							psprintf("It must have between 1 and %d bytes.", DURABLE_TASK_ID_MAX));
	return task_id;
}

text *
durable_arg_name(FunctionCallInfo fcinfo, int n, const char *argument, bool nullable)
{
	if (PG_ARGISNULL(n))
	{
		if (nullable)
			return NULL;
		durable_error_null(argument);
	}
	return durable_check_name(PG_GETARG_TEXT_PP(n), argument);
}

text *
durable_arg_task_id(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		durable_error_null("task_id");
	return durable_check_task_id(PG_GETARG_TEXT_PP(n));
}

text *
durable_arg_namespace(FunctionCallInfo fcinfo, int n)
{
	text	   *given = PG_ARGISNULL(n) ? NULL : PG_GETARG_TEXT_PP(n);

	return durable_check_name(durable_namespace_resolve(given), "namespace");
}

/*
 * Values that live in another table's TOAST are fetched, because that table
 * may lose them; compressed ones stay compressed.
 */
void *
durable_check_payload(Datum value, const char *argument)
{
	struct varlena *payload = (struct varlena *) DatumGetPointer(value);
	Size		size = toast_raw_datum_size(value);

	if (size > (Size) durable_max_payload * 1024)
		ereport(ERROR,
				errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				errmsg("%s is too large", argument),
				errdetail("It has %zu bytes; the limit is %d kB.", size, durable_max_payload),
				errhint("Store it elsewhere and pass a reference, or raise durable.max_payload."));
	if (VARATT_IS_EXTERNAL(payload))
		payload = detoast_external_attr(payload);
	return payload;
}

void *
durable_arg_payload(FunctionCallInfo fcinfo, int n, const char *argument)
{
	return PG_ARGISNULL(n) ? NULL : durable_check_payload(PG_GETARG_DATUM(n), argument);
}

int
durable_arg_count(FunctionCallInfo fcinfo, int n, const char *argument)
{
	int			count;

	if (PG_ARGISNULL(n))
		durable_error_null(argument);
	count = PG_GETARG_INT32(n);
	if (count < 1 || count > DURABLE_BATCH_MAX)
		durable_error_value(argument,
							psprintf("It must be between 1 and %d.", DURABLE_BATCH_MAX));
	return count;
}

int
durable_arg_history(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		return -1;
	if (PG_GETARG_INT32(n) < 0)
		durable_error_value("history", "It must not be negative; null means all of it.");
	return PG_GETARG_INT32(n);
}

const Interval *
durable_arg_lease(FunctionCallInfo fcinfo, int n)
{
	Interval   *lease;

	if (PG_ARGISNULL(n))
		durable_error_null("lease");
	lease = PG_GETARG_INTERVAL_P(n);
	if (!durable_interval_positive(lease) ||
		durable_interval_us(lease) > INT64CONST(366) * USECS_PER_DAY)
		durable_error_value("lease", "It must be longer than zero and at most 366 days.");
	return lease;
}

Interval *
durable_arg_window(FunctionCallInfo fcinfo, int n, const char *argument)
{
	Interval   *span = PG_ARGISNULL(n) ? NULL : PG_GETARG_INTERVAL_P(n);

	if (span != NULL && (!durable_interval_positive(span) ||
						 durable_interval_us(span) > INT64CONST(36600) * USECS_PER_DAY))
		durable_error_value(argument, "It must be longer than zero and at most a hundred years.");
	return span;
}

const pg_uuid_t *
durable_arg_token(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		durable_error_null("token");
	return PG_GETARG_UUID_P(n);
}

TupleDesc
durable_result_desc(FunctionCallInfo fcinfo)
{
	TupleDesc	desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		ereport(ERROR,
				errcode(ERRCODE_DATATYPE_MISMATCH),
				errmsg("function must be declared to return a row"));
	return BlessTupleDesc(desc);
}

text **
durable_arg_texts(FunctionCallInfo fcinfo, int n, const char *argument, int max, int *count)
{
	Datum	   *elements;
	bool	   *nulls;
	text	  **texts;

	if (PG_ARGISNULL(n))
		durable_error_null(argument);
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(n), TEXTOID, -1, false, TYPALIGN_INT,
					  &elements, &nulls, count);
	if (*count > max)
		durable_error_value(argument, psprintf("It may have at most %d elements.", max));
	texts = palloc(sizeof(text *) * Max(*count, 1));
	for (int i = 0; i < *count; i++)
	{
		if (nulls[i])
			durable_error_null(psprintf("an element of %s", argument));
		texts[i] = DatumGetTextPP(elements[i]);
	}
	return texts;
}

static int
compare_texts(const void *a, const void *b)
{
	text	   *x = *(text *const *) a;
	text	   *y = *(text *const *) b;
	int			lx = VARSIZE_ANY_EXHDR(x);
	int			ly = VARSIZE_ANY_EXHDR(y);
	int			result = memcmp(VARDATA_ANY(x), VARDATA_ANY(y), Min(lx, ly));

	return result != 0 ? result : lx - ly;
}

text **
durable_arg_names(FunctionCallInfo fcinfo, int n, const char *argument, int *count)
{
	text	  **names = durable_arg_texts(fcinfo, n, argument, DURABLE_QUEUES_MAX, count);
	int			unique = 0;

	if (*count == 0)
		durable_error_value(argument, "It must name at least one.");
	qsort(names, *count, sizeof(text *), compare_texts);
	for (int i = 0; i < *count; i++)
	{
		(void) durable_check_queue(durable_check_name(names[i], psprintf("an element of %s", argument)));
		if (unique == 0 || compare_texts(&names[unique - 1], &names[i]) != 0)
			names[unique++] = names[i];
	}
	*count = unique;
	return names;
}

TimestampTz
durable_arg_deadline(FunctionCallInfo fcinfo, int n, const char *argument)
{
	Interval   *span;

	if (PG_ARGISNULL(n))
		durable_error_null(argument);
	span = PG_GETARG_INTERVAL_P(n);
	if (durable_interval_negative(span))
		durable_error_value(argument, "It must not be negative.");
	return durable_clock_add(durable_clock_now(), span);
}

bool
durable_call_is_atomic(FunctionCallInfo fcinfo)
{
	return fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic;
}
