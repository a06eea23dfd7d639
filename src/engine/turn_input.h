/*-------------------------------------------------------------------------
 *
 * turn_input.h
 *	  What an external worker is handed with a turn.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_TURN_INPUT_H
#define DURABLE_TURN_INPUT_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/jsonb.h"

/*
 * The run's workflow, version and input, and its history as the active snapshot
 * has it: the last "limit" checkpoints, -1 for all. "since" is when the turn's task was
 * made: what is recorded stays recorded from then on. *wakes and *headers are the run's.
 * NULL: there is no such run.
 */
extern Jsonb *durable_turn_input(int64 run, int limit, TimestampTz since, int *wakes,
								 Jsonb **headers);

#endif							/* DURABLE_TURN_INPUT_H */
