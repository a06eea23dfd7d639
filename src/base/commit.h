/*-------------------------------------------------------------------------
 *
 * commit.h
 *	  Letting a claim that is alone in its transaction commit asynchronously.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_COMMIT_H
#define DURABLE_COMMIT_H

#include "postgres.h"

/* Bracket the writes of one claim. */
extern void durable_commit_claim_begin(void);
extern void durable_commit_claim_end(void);

extern void durable_commit_init(void);

#endif							/* DURABLE_COMMIT_H */
