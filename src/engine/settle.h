/*-------------------------------------------------------------------------
 *
 * settle.h
 *	  Settling claimed tasks: complete, fail, release.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_SETTLE_H
#define DURABLE_SETTLE_H

#include "postgres.h"

#include "utils/jsonb.h"
#include "utils/uuid.h"

#include "engine/tables.h"
#include "store/lease.h"

/* A task named by its public id, or by its number when task_id is NULL. */
typedef struct DurableTarget
{
	text	   *task_id;
	int64		id;
	int			position;		/* in the caller's list */
	int64		run;			/* 0, or that of a step which comes later (settle.c) */
	bool		settled;
	void	   *output;
	void	   *error;
	void	   *events;
} DurableTarget;

typedef enum DurableSettleAction
{
	SETTLE_COMPLETE,
	SETTLE_FAIL,
	SETTLE_RELEASE
} DurableSettleAction;

/*
 * Settles those of the targets that the token holds and marks them; returns how
 * many. Sorts the targets. Checks that the caller may work in the round's
 * namespace. Nothing changes for a token that no longer holds.
 */
extern int	durable_settle(const pg_uuid_t *token, DurableSettleAction action,
						   DurableTarget *targets, int n);

/* The same for this session's own claims, whatever its role may do as a client. */
extern int	durable_settle_as_worker(const pg_uuid_t *token, DurableSettleAction action,
									 DurableTarget *targets, int n);

/* One of them, with the lease as it was read in this command. Not for turns. */
extern bool durable_settle_one(const DurableLease *lease, DurableSettleAction action,
							   DurableTarget *target);

/* … and what ends the round, if it holds nothing any more. */
extern void durable_settle_end_round(const DurableLease *lease);

/* Everything the round still holds goes back to its queue. */
extern int	durable_release_all(const pg_uuid_t *token);

/* Makes the round last until now + lease; how many tasks it still holds. */
extern int	durable_renew_lease(const pg_uuid_t *token, const Interval *lease);

/* Whether the token holds the task now; *id is its number, *since when it was
 * claimed, *least how often its heartbeats are stored. */
extern bool durable_token_holds(const pg_uuid_t *token, text *task_id, int64 *id,
								TimestampTz *since, int64 *least);

/* … whether it is a turn that the token holds, with the claim's lease. */
extern bool durable_token_holds_turn(const pg_uuid_t *token, text *task_id, int64 *run,
									 DurableLease *lease);

/* Ends a task that is not settled, whoever holds it. */
extern bool durable_cancel(text *namespace, text *task_id);

#endif							/* DURABLE_SETTLE_H */
