/*-------------------------------------------------------------------------
 *
 * limited.h
 *	  durable.task_limited: tasks that wait at a limiter, and the turns of their keys
 *	  (durable.limiter_turn, durable.limiter_blocked).
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_LIMITED_H
#define DURABLE_STORE_LIMITED_H

#include "postgres.h"

#include "store/limited_by.h"
#include "store/ready.h"

/* A key's turn in one queue and priority. */
typedef struct DurableTurnRow
{
	ItemPointerData tid;
	int64		position;
	int64		head;
	int32		priority;
	text	   *queue;
	text	   *key;
} DurableTurnRow;

/* ---- task_limited */

extern void durable_limited_insert(DurableWriter *writer, const DurableLimitedBy *gate,
								   const int64 *ids, int n, int32 priority,
								   text *namespace, text *queue);
/* takes the task out; without waiting for who has it in hand: what rel.h says */
extern TM_Result durable_limited_remove(const DurableLimitedBy *gate, int64 id, int32 priority,
										text *queue, bool wait);

/* The first visible entry behind a turn that nobody is deleting, from its head on (lifo:
 * the last): its id, and where it is. beyond, if not NULL: only what comes after that
 * one. *undecided: others have inserted or taken some that are not settled yet. */
extern bool durable_limited_first(const DurableLimitedBy *gate, const DurableTurnRow *turn,
								  bool lifo, const int64 *beyond, Snapshot snapshot,
								  int64 *id, ItemPointer tid, bool *undecided);
/* how many wait, by the newest snapshot */
extern int64 durable_limited_count(int64 limiter);

/* ---- limiter_turn */

extern void durable_turn_row_insert(DurableWriter *writer, int64 limiter,
									const DurableTurnRow *turn);
/* Whether a turn of the key is there that nobody is changing, and whose head is not
 * after "first" (lifo: any). By the active snapshot. */
extern bool durable_turn_row_is_there(const DurableLimitedBy *gate, text *queue, int32 priority,
									  int64 first, bool any);
/* over the turns of a queue, in their order; durable_ready_scan_next() and _close() */
extern void durable_turn_scan_open(DurableReadyScan *scan, Snapshot snapshot, int64 limiter,
								   text *queue);
extern void durable_turn_scan_row(const DurableReadyScan *scan, DurableTurnRow *turn);
/* whether the hints know that the queue has no turn there; false: look */
extern bool durable_turns_are_spent(int64 limiter, text *queue);
/* whether the queue has any turn at that limiter */
extern bool durable_turn_exists(Snapshot snapshot, int64 limiter, text *queue);

/* ---- limiter_blocked */

extern void durable_blocked_insert(DurableWriter *writer, int64 limiter,
								   const DurableTurnRow *turn);
/* the last n of the key, palloc'd; how many there are */
extern int	durable_blocked_find(const DurableLimitedBy *gate, int n, Snapshot snapshot,
								 DurableTurnRow **rows);
/* all of the limiter */
extern int	durable_blocked_all(int64 limiter, Snapshot snapshot, DurableTurnRow **rows);
/* as durable_turn_row_is_there() */
extern bool durable_blocked_is_there(const DurableLimitedBy *gate, int n, text *queue,
									 int32 priority, int64 first, bool any);

#endif							/* DURABLE_STORE_LIMITED_H */
