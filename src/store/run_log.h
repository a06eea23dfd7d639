/*-------------------------------------------------------------------------
 *
 * run_log.h
 *	  durable.run_log: what bodies say, and what the engine notes about a run.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_RUN_LOG_H
#define DURABLE_STORE_RUN_LOG_H

#include "postgres.h"

#include "utils/jsonb.h"

/* columns, in table order */
enum
{
	LOG_RUN,
	LOG_AT,
	LOG_SEQ,
	LOG_NUMBER,
	LOG_LEVEL,
	LOG_MESSAGE,
	LOG_DATA,
	LOG_COLUMNS
};

/* The position of what the engine notes; bodies log from 0 on. */
#define DURABLE_NOTE_SEQ (-1)

/* Notes something about a run, which is locked. data may be NULL. */
extern void durable_run_note(int64 run, const char *level, const char *message, Jsonb *data);

#endif							/* DURABLE_STORE_RUN_LOG_H */
