/*-------------------------------------------------------------------------
 *
 * admission.h
 *	  Slots of singleton keys: who of the runs with one key may go on.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_ADMISSION_H
#define DURABLE_ADMISSION_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "engine/tables.h"
#include "store/singleton.h"

/* What one claim has seen at the gate. Starts as zeros. */
typedef struct DurableGate
{
	DurableSlotKey full;		/* no slot is free here, and none is given but by us */
	int			keys;			/* whose slots were locked */
	int			denied;
	bool		queued;			/* runs that were parked are ready now, behind the claim's back */
	bool		looked;			/* since the claim's snapshot was taken; then: */
	bool		open;			/* no run has a key */
} DurableGate;

/*
 * The turn's task, or a note to look (kind "look"), was taken out of the list of ready
 * ones. true: the turn may begin. Else it was parked, or comes again, or the note was
 * dealt with.
 */
extern bool durable_gate_pass(DurableGate *gate, DurableTables *tables, DurableRow *task,
							  TimestampTz now);
/* A claim should end here: it has locked enough. */
extern bool durable_gate_is_tired(const DurableGate *gate);

/* The run was started, or goes on after its end; delayed: its turn is due later. */
extern void durable_admission_enter(const DurableRow *run, bool delayed);

/* The run, which is locked, has ended: its slot is free, and given to the next. */
extern void durable_admission_leave(const DurableRow *run);

/* The run, which is locked, has failed and waits for the handler of its failure, which has
 * just been started. If that one needs the same slot, it has it now. */
extern void durable_admission_hand_over(const DurableRow *run, int64 handler);

/* The run, which is locked, goes on though it had handed over: it waits for a slot like any
 * other if it has handed over that, too. */
extern void durable_admission_take_back(const DurableRow *run);

/*
 * The run, which is locked, is to be queued by the caller. Its entry is no longer parked,
 * and does not become so again in *version, which is invalid when it has none. When
 * that changes between two calls under one snapshot, so may have its place in the lists.
 * true: it was parked, and so in no list.
 */
extern bool durable_admission_unpark(const DurableRow *run, ItemPointer version);

/* Somebody who serves this version has to look at the slots of all keys that are waited
 * for. */
extern void durable_admission_changed(text *namespace, text *workflow, text *version);

#endif							/* DURABLE_ADMISSION_H */
