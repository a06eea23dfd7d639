/*-------------------------------------------------------------------------
 *
 * signal.h
 *	  durable.waiter and durable.signal_buffer: signals and who waits for them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_SIGNAL_H
#define DURABLE_STORE_SIGNAL_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/jsonb.h"

#include "base/rel.h"

/*
 * Orders senders and registrations of one token, until the transaction ends.
 * Senders share it, and may wait; a registration wants it alone and never
 * waits, because it holds a run: false = a sender is under way.
 */
extern void durable_token_share(text *namespace, text *token);
/* the same, not waiting; false = a registration is under way */
extern bool durable_token_share_now(text *namespace, text *token);
extern bool durable_token_take(text *namespace, text *token);

/* Newest commits decide in all of these. */
extern bool durable_waiter_find(text *namespace, text *token, int64 *run, int *seq);
/* replaces whoever waited for the token before */
extern void durable_waiter_register(text *namespace, text *token, int64 run, int seq);
/* only that very waiter; false = it is gone */
extern bool durable_waiter_remove(text *namespace, text *token, int64 run, int seq);

extern void durable_signal_buffer(text *namespace, text *token, Jsonb *payload);
/* the oldest; copied into the current memory context */
extern bool durable_signal_take(text *namespace, text *token, Jsonb **payload);

/* Deletes the oldest buffered signals of before that time that nobody is taking. */
extern int64 durable_signals_expire(TimestampTz before, int max);

#endif							/* DURABLE_STORE_SIGNAL_H */
