/*-------------------------------------------------------------------------
 *
 * exchange.h
 *	  What a worker has done since it last asked: of any claims, in one command.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_EXCHANGE_H
#define DURABLE_EXCHANGE_H

#include "postgres.h"

#include "utils/jsonb.h"
#include "utils/uuid.h"

#include "engine/fresh.h"
#include "engine/settle.h"

typedef enum DurableExchanged
{
	EXCHANGE_LOST,				/* the token did not hold it; nothing was changed */
	EXCHANGE_SETTLED,
	EXCHANGE_DECIDED			/* … and the decision that came with it was applied */
} DurableExchanged;

typedef struct DurableExchangeItem
{
	int			index;			/* in the caller's list */
	pg_uuid_t	token;
	DurableTarget target;		/* with task_id, and output or error */
	bool		failed;			/* the error counts, which may be NULL */
	Jsonb	   *decision;		/* of a turn, or of what follows from a step */
	bool		has_turn;		/* the latter: under which claim the last turn was */
	pg_uuid_t	turn_token;		/* decided, and where the history ended then */
	int			history_end;
	DurableExchanged result;
	/* of exchange.c */
	const DurableLease *lease;	/* NULL: there is none */
	int64		run;			/* 0: a task of its own */
	text	   *run_id;			/* NULL then */
	bool		is_turn;
} DurableExchangeItem;

/*
 * Settles the items and says of each what became of it. Sorts them. 42501 when the caller
 * may not work in the namespace of one. fresh: who may claim the steps that they dispatch, or
 * NULL.
 */
extern void durable_exchange(DurableExchangeItem *items, int n, DurableFresh *fresh);

#endif							/* DURABLE_EXCHANGE_H */
