/*-------------------------------------------------------------------------
 *
 * singleton.h
 *	  durable.singleton: live runs with a singleton key, and who of them holds a slot.
 *
 * What may change an entry, and under which lock, is in engine/admission.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_SINGLETON_H
#define DURABLE_STORE_SINGLETON_H

#include "postgres.h"

#include "base/rel.h"

typedef struct DurableSlotKey
{
	text	   *namespace;
	text	   *workflow;
	text	   *key;
} DurableSlotKey;

typedef enum DurableSlotState
{
	SLOT_HELD,
	SLOT_WAITING,
	SLOT_DELAYED				/* its start_at has not come: waits for no slot yet */
} DurableSlotState;

/* A run's entry, as a snapshot saw it. */
typedef struct DurableSlot
{
	ItemPointerData tid;
	int64		run;
	DurableSlotState state;
	bool		parked;			/* its turn is in no list */
	text	   *version;
} DurableSlot;

/* The key's slots, exclusively to the end of the transaction; false: somebody else has
 * them, for this is never waited for. */
extern bool durable_slots_lock(const DurableSlotKey *key);
/* The key's queue, likewise, but waits: for starts that have to count. */
extern void durable_slots_lock_queue(const DurableSlotKey *key);

extern void durable_slot_insert(const DurableSlotKey *key, const DurableSlot *slot);
/* The run's entry now, whatever its state; copied. */
extern bool durable_slot_find(const DurableSlotKey *key, int64 run, DurableSlot *slot);
/* Replaces or deletes the entry in the version that was seen. */
extern TM_Result durable_slot_set(const DurableSlotKey *key, DurableSlot *slot,
								  DurableSlotState state, bool parked, bool wait);
extern TM_Result durable_slot_delete(const DurableSlot *slot, bool wait);

/* How many entries are in this state, as the active snapshot sees it; no more than
 * max are counted. */
extern int	durable_slots_count(const DurableSlotKey *key, DurableSlotState state, int max);

/* Those who wait, the oldest first. The active snapshot stays until the end. */
extern void durable_slots_waiting_begin(DurableProbe *probe, const DurableSlotKey *key);
extern bool durable_slots_waiting_next(DurableProbe *probe, DurableSlot *slot);
extern void durable_slots_waiting_end(DurableProbe *probe);

/* The version of the first of those who wait or, if there are none, whose start is due
 * later, copied; NULL: nobody is there. */
extern text *durable_slots_next_version(const DurableSlotKey *key);

/* The keys of a workflow for whose slots somebody waits; palloc'd. */
extern text **durable_slots_waited_for(text *namespace, text *workflow, int *n);

#endif							/* DURABLE_STORE_SINGLETON_H */
