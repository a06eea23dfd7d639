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

/* After the commit of a claim whose work can kill the server: it is on disk, wherever
 * a claim must not be lost. */
extern void durable_commit_flush_claim(void);

extern void durable_commit_init(void);

#endif							/* DURABLE_COMMIT_H */
