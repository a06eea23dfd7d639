/*-------------------------------------------------------------------------
 *
 * args.h
 *	  Reading and checking the arguments of SQL functions.
 *
 * Every reader raises the documented SQLSTATE: 22004 for a null where a value
 * is needed, 22023 for a value out of range, 54000 for a payload too large.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_ARGS_H
#define DURABLE_ARGS_H

#include "postgres.h"

#include "access/tupdesc.h"
#include "fmgr.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#define DURABLE_NAME_MAX 255
#define DURABLE_TASK_ID_MAX 512
#define DURABLE_BATCH_MAX 10000
#define DURABLE_QUEUES_MAX 256

/* NULL when the argument is null and may be */
extern text *durable_arg_name(FunctionCallInfo fcinfo, int n, const char *argument, bool nullable);
extern text *durable_arg_task_id(FunctionCallInfo fcinfo, int n);
extern text *durable_arg_namespace(FunctionCallInfo fcinfo, int n);
extern void *durable_arg_payload(FunctionCallInfo fcinfo, int n, const char *argument);
extern int	durable_arg_count(FunctionCallInfo fcinfo, int n, const char *argument);
/* checkpoints that a claimed turn comes with; null: -1, all */
extern int	durable_arg_history(FunctionCallInfo fcinfo, int n);
extern const Interval *durable_arg_lease(FunctionCallInfo fcinfo, int n);
extern const pg_uuid_t *durable_arg_token(FunctionCallInfo fcinfo, int n);

/* longer than zero, at most a hundred years; NULL when null */
extern Interval *durable_arg_window(FunctionCallInfo fcinfo, int n, const char *argument);

/* so long from now; not null, not negative */
extern TimestampTz durable_arg_deadline(FunctionCallInfo fcinfo, int n, const char *argument);

/* Whether a procedure was called inside a transaction block, or in a function. */
extern bool durable_call_is_atomic(FunctionCallInfo fcinfo);

/* a payload of any origin, checked and fit to be stored */
extern void *durable_check_payload(Datum value, const char *argument);
extern text *durable_check_name(text *name, const char *argument);
extern text *durable_check_task_id(text *task_id);
/* NULL passes */
extern text *durable_check_queue(text *queue);

/* a text array without nulls; not null, not longer than max */
extern text **durable_arg_texts(FunctionCallInfo fcinfo, int n, const char *argument,
								int max, int *count);
/* the row type that the function was declared to return */
extern TupleDesc durable_result_desc(FunctionCallInfo fcinfo);

/* queue or task names: not empty, without duplicates */
extern text **durable_arg_names(FunctionCallInfo fcinfo, int n, const char *argument, int *count);

#endif							/* DURABLE_ARGS_H */
