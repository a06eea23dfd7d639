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
	KIND_VALUE
} DurableKind;

typedef enum DurableCheckpointStatus
{
	CHECKPOINT_PENDING,
	CHECKPOINT_COMPLETED,
	CHECKPOINT_FAILED
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
	bool		changed;		/* it differs from this */
} DurableCheckpoint;

extern const char *durable_kind_name(DurableKind kind);

/* The history after a position, in order, in the current memory context. The
 * active snapshot decides. */
extern DurableCheckpoint *durable_checkpoints_load(int64 run, int *n);
extern bool durable_checkpoint_find(int64 run, int seq, DurableCheckpoint *checkpoint);

/* Inserts or updates the row, as "stored" says. The run is locked. */
extern void durable_checkpoint_write(DurableWriter *writer, int64 run,
									 DurableCheckpoint *checkpoint);

#endif							/* DURABLE_STORE_CHECKPOINT_H */
