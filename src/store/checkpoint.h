/*-------------------------------------------------------------------------
 *
 * checkpoint.h
 *	  durable.checkpoint: the recorded outcome of each operation.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_CHECKPOINT_H
#define DURABLE_STORE_CHECKPOINT_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/jsonb.h"

#include "base/rel.h"

typedef enum DurableKind
{
	KIND_LOCAL,
	KIND_STEP,
	KIND_SLEEP,
	KIND_SIGNAL,
	KIND_CHILD,
	KIND_VALUE,
	KIND_HANDOFF				/* of the run's failure; not of its body */
} DurableKind;

/* Handoffs have positions of their own, upwards from here, below all others. */
#define DURABLE_HANDOFF_FIRST (-2000000000)

static inline bool
durable_is_handoff(int seq)
{
	return seq < DURABLE_HANDOFF_FIRST / 2;
}

typedef enum DurableCheckpointStatus
{
	CHECKPOINT_PENDING,
	CHECKPOINT_COMPLETED,
	CHECKPOINT_FAILED,
	CHECKPOINT_CANCELLED		/* its fan failed first */
} DurableCheckpointStatus;

typedef struct DurableCheckpoint
{
	int			seq;
	DurableKind kind;
	DurableCheckpointStatus status;
	text	   *name;
	int			attempts;
	int64		task;			/* of a dispatched step; 0 = none */
	TimestampTz started_at;
	TimestampTz finished_at;	/* 0 = not yet */
	TimestampTz wake_at;		/* 0 = none */
	Jsonb	   *input;
	Jsonb	   *output;
	Jsonb	   *error;
	bool		stored;			/* there is a row */
	bool		unsaved;		/* it differs from this */
	bool		plain;			/* not stored; see durable_turn_ask() */
} DurableCheckpoint;

extern const char *durable_kind_name(DurableKind kind);
extern const char *durable_checkpoint_status_name(DurableCheckpointStatus status);

/* The body's history, in order, in the current memory context. The active snapshot
 * decides. */
extern DurableCheckpoint *durable_checkpoints_load(int64 run, int *n);
extern bool durable_checkpoint_find(int64 run, int seq, DurableCheckpoint *checkpoint);
/* Only whether the position is pending, and its task (0: none). The probe is open
 * on the history. */
extern void durable_checkpoint_open(DurableProbe *probe);
extern bool durable_checkpoint_is_pending(DurableProbe *probe, int64 run, int seq, int64 *task);

/* The last ones, in order: at most "max" (-1: no limit), and no more than make
 * up "bytes" of outputs and errors, but one at least unless max is 0. */
extern DurableCheckpoint *durable_checkpoints_tail(int64 run, int max, Size bytes, int *n);
/* One more than the last position of the body, or 0. */
extern int	durable_checkpoints_end(int64 run);
/* The same, with the row at the last position, if there is one. It holds until the probe,
 * which this opens, is closed. */
extern int	durable_checkpoints_last(DurableProbe *probe, int64 run, DurableRow *row);

/* The row at outcome->seq, if it is pending, gets the status, output, error, time and,
 * unless it is 0, number of attempts of the outcome. The run is locked. */
extern void durable_checkpoint_settle(int64 run, const DurableCheckpoint *outcome);
/* … where that row is known: it was read since the run was locked. */
extern void durable_checkpoint_settle_row(DurableRow *row, const DurableCheckpoint *outcome);

/* Inserts or updates the row, as "stored" says. The run is locked. */
extern void durable_checkpoint_write(DurableWriter *writer, int64 run,
									 DurableCheckpoint *checkpoint);

#endif							/* DURABLE_STORE_CHECKPOINT_H */
