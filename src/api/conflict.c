/*-------------------------------------------------------------------------
 *
 * conflict.c
 *	  The arguments that say what happens when an id is taken.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "api/args.h"
#include "api/conflict.h"
#include "base/clock.h"
#include "base/errors.h"

/* A throttle keeps the time of the first call. */
static const struct
{
	const char *name;
	DurableOnConflict policy;
}			policies[] = {
	{"return", CONFLICT_RETURN},
	{"reject", CONFLICT_REJECT},
	{"replace", CONFLICT_REPLACE},
	{"replace_keep_time", CONFLICT_KEEP_TIME},
	{"debounce", CONFLICT_DEBOUNCE},
	{"throttle", CONFLICT_KEEP_TIME},
};

#define DEBOUNCE "debounce"
#define THROTTLE "throttle"

static DurableOnConflict
policy_named(const char *name)
{
	for (int i = 0; i < lengthof(policies); i++)
	{
		if (strcmp(policies[i].name, name) == 0)
			return policies[i].policy;
	}
	durable_error_value("on_conflict",
						"It must be \"return\", \"reject\", \"replace\", \"replace_keep_time\", \"debounce\" or \"throttle\".");
	return CONFLICT_RETURN;
}

/* The policy that a span belongs to needs it, and no other takes it. */
static void
check_span(const char *policy, const char *span_name, const Interval *span)
{
	if (span == NULL && strcmp(policy, span_name) == 0)
		durable_error_null(span_name);
	if (span != NULL && strcmp(policy, span_name) != 0)
		durable_error_value(span_name, psprintf("It goes with on_conflict => '%s' only.", span_name));
}

void
durable_arg_conflict(FunctionCallInfo fcinfo, DurableConflict *conflict,
					 TimestampTz *at, const char *at_name)
{
	int			first = PG_NARGS() - 4;
	Interval   *debounce = durable_arg_window(fcinfo, first + 1, DEBOUNCE);
	Interval   *debounce_max = durable_arg_window(fcinfo, first + 2, "debounce_max");
	Interval   *throttle = durable_arg_window(fcinfo, first + 3, THROTTLE);
	Interval   *span = debounce != NULL ? debounce : throttle;
	const char *name;

	if (!PG_ARGISNULL(first))
		name = text_to_cstring(PG_GETARG_TEXT_PP(first));
	else
		name = debounce != NULL ? DEBOUNCE : throttle != NULL ? THROTTLE : "return";
	conflict->policy = policy_named(name);
	conflict->within = 0;
	check_span(name, DEBOUNCE, debounce);
	check_span(name, THROTTLE, throttle);
	if (debounce_max != NULL)
	{
		conflict->within = durable_interval_us(debounce_max);
		if (debounce == NULL || conflict->within < durable_interval_us(debounce))
			durable_error_value("debounce_max", "It must not be shorter than debounce, and not without it.");
	}
	if (span == NULL)
		return;
	if (!TIMESTAMP_IS_NOBEGIN(*at))
		durable_error_value(at_name, "A debounce or throttle says when it is.");
	*at = durable_clock_add(durable_clock_now(), span);
}

void
durable_conflict_needs_id(const DurableConflict *conflict, const char *argument)
{
	if (durable_conflict_replaces(conflict))
		durable_error_value(argument, "What is replaced, debounced or throttled is told by its id.");
}
