/*-------------------------------------------------------------------------
 *
 * schedule.h
 *	  durable.schedule: at which times workflows are started.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_SCHEDULE_H
#define DURABLE_STORE_SCHEDULE_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "base/rel.h"

/* columns, in table order */
enum
{
	SCHEDULE_CREATED_AT,
	SCHEDULE_UPDATED_AT,
	SCHEDULE_NEXT_WINDOW,
	SCHEDULE_NEXT_FIRE,
	SCHEDULE_CATCHUP_UNTIL,
	SCHEDULE_LAST_WINDOW,
	SCHEDULE_LAST_FIRE_AT,
	SCHEDULE_FIRES,
	SCHEDULE_SKIPS,
	SCHEDULE_OWNER,
	SCHEDULE_PRIORITY,
	SCHEDULE_MAX_CATCHUP,
	SCHEDULE_CONCURRENCY_LIMIT,
	SCHEDULE_PAUSED,
	SCHEDULE_ID,
	SCHEDULE_NAMESPACE,
	SCHEDULE_WORKFLOW,
	SCHEDULE_VERSION,
	SCHEDULE_CRON,
	SCHEDULE_TIMEZONE,
	SCHEDULE_OVERLAP,
	SCHEDULE_CATCHUP,
	SCHEDULE_LAST_RUN_ID,
	SCHEDULE_LAST_SKIP,
	SCHEDULE_LAST_ERROR,
	SCHEDULE_NOTE,
	SCHEDULE_CONCURRENCY_KEY,
	SCHEDULE_EVERY,
	SCHEDULE_JITTER,
	SCHEDULE_TAGS,
	SCHEDULE_SEARCH_ATTRIBUTES,
	SCHEDULE_HEADERS,
	SCHEDULE_INPUT,
	SCHEDULE_COLUMNS
};

typedef enum DurableOverlap
{
	OVERLAP_ALLOW,
	OVERLAP_SKIP
} DurableOverlap;

typedef enum DurableCatchup
{
	CATCHUP_ONE,
	CATCHUP_SKIP,
	CATCHUP_ALL
} DurableCatchup;

extern DurableOverlap durable_schedule_overlap(const DurableRow *row);
extern DurableCatchup durable_schedule_catchup(const DurableRow *row);
/* false: there is no such policy */
extern bool durable_overlap_known(const text *name);
extern bool durable_catchup_known(const text *name);

/* A time of the row, "absent" where it is NULL. */
extern TimestampTz durable_schedule_time(const DurableRow *row, int column, TimestampTz absent);
/* Sets a time; an infinite one becomes NULL. */
extern void durable_schedule_set_time(DurableRow *row, int column, TimestampTz t);

/* A locked schedule. Its row's values hold until the next lock or the close. */
typedef struct DurableSchedule
{
	DurableWriter writer;
	DurableRow	row;
} DurableSchedule;

/* The newest version, locked: waits for whoever holds it. Closed again when it
 * is not there. */
extern bool durable_schedule_open(DurableSchedule *schedule, text *id);
extern void durable_schedule_update(DurableSchedule *schedule);
extern void durable_schedule_delete(DurableSchedule *schedule);
extern void durable_schedule_close(DurableSchedule *schedule);

/* Reads without a lock, copied into the current memory context. */
extern bool durable_schedule_read(text *id, DurableRow *row);

/* false: the id is taken; waits for an undecided one */
extern bool durable_schedule_insert(const DurableRow *row);

/* The schedules in an order of time, locked one by one; what somebody else holds
 * is passed over. */
typedef struct DurableScheduleScan
{
	DurableProbe probe;
	DurableSchedule schedule;	/* the locked one */
	bool		writing;		/* its writer is open */
	bool		backwards;
	TimestampTz limit;
	DurableRow	seen;
	bool		found;			/* seen has to be looked at */
} DurableScheduleScan;

/* Those that are due. false, after a look at one index entry: none is. */
extern bool durable_schedules_due(DurableScheduleScan *scan, TimestampTz now);
/* Those whose last window is after an instant. */
extern bool durable_schedules_ahead(DurableScheduleScan *scan, TimestampTz instant);
extern bool durable_schedules_next(DurableScheduleScan *scan);
extern void durable_schedules_close(DurableScheduleScan *scan);

/* When the first one is due, whoever may hold it; DT_NOEND: never. */
extern TimestampTz durable_schedules_first(void);

#endif							/* DURABLE_STORE_SCHEDULE_H */
