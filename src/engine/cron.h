/*-------------------------------------------------------------------------
 *
 * cron.h
 *	  Cron expressions: parsing them, and which local times they name.
 *
 * Everything here is calendar arithmetic on local time, in whole seconds since
 * 1970-01-01 00:00 as the zone's own clock shows them. Which instants those are
 * is window.h's business.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_ENGINE_CRON_H
#define DURABLE_ENGINE_CRON_H

#include "postgres.h"

/* What is wrong with a definition; texts in the current memory context. It is
 * raised to whoever writes the definition and recorded where a stored one has
 * become wrong. */
typedef struct DurableComplaint
{
	int			code;			/* SQLSTATE */
	const char *message;
	const char *detail;			/* may be NULL */
	const char *hint;			/* may be NULL */
} DurableComplaint;

/* Sets of values; bit n stands for the value n. */
typedef struct DurableCron
{
	uint64		seconds;
	uint64		minutes;
	uint64		hours;
	uint64		months;
	uint64		days;			/* of the month */
	uint64		days_before_last;	/* L is bit 0, L-3 is bit 3 */
	uint64		workdays_near;	/* 15W is bit 15 */
	bool		last_workday;	/* LW */
	uint64		weekdays;		/* Sunday is bit 0 */
	uint64		last_weekdays;	/* 5L is bit 5 */
	uint64		nth_weekdays[5];	/* 5#2 is bit 5 of [1] */
	bool		any_day;		/* the field of the days has a "*" or "?" */
	bool		any_weekday;
	bool		elapsed;		/* seconds, minutes or hours have a "*" */
} DurableCron;

/* false: it is no expression, or one that no date ever matches */
extern bool durable_cron_parse(const char *text, DurableCron *cron, DurableComplaint *complaint);

/* The first local time from "from" to "until", both included, that matches. */
extern bool durable_cron_match(const DurableCron *cron, int64 from, int64 until, int64 *match);

#endif							/* DURABLE_ENGINE_CRON_H */
