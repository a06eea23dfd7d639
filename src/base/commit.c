/*-------------------------------------------------------------------------
 *
 * commit.c
 *	  Letting a claim that is alone in its transaction commit asynchronously.
 *
 * Losing a claim in a server crash costs no more than a lapsed claim: its
 * tasks are ready again. So its commit need not wait for the disk. That holds
 * only while the transaction wrote nothing else, and "nothing else" is exact:
 * the backend counts the WAL records it writes, and the count at the commit
 * must be the count at the end of the claim. Any other write, by a trigger, a
 * function or another statement, makes the commit an ordinary one.
 *
 * Work that kills the whole server must not escape being counted, so after an
 * unclean start every claim is flushed for durable.careful_period. Without
 * preload nobody knows how the server started, and every claim is flushed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "base/commit.h"
#include "base/guc.h"
#include "base/shmem.h"

/* WAL records of this backend when the transaction held claims and nothing
 * else; -1 when it does not */
static int64 records_after_claim = -1;

/* synchronous_commit as it was before this commit, or -1 */
static int	changed_setting = -1;

static bool
asynchronous_is_safe(void)
{
	if (!durable_async_claim || durable_shared == NULL)
		return false;
	if (!durable_shared->unclean_start)
		return true;
	return GetCurrentTimestamp() - durable_shared->started_at >
		(int64) durable_careful_period * USECS_PER_SEC;
}

/* Eligible: nothing written so far, or nothing but earlier claims. */
void
durable_commit_claim_begin(void)
{
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()) &&
		records_after_claim != pgWalUsage.wal_records)
		records_after_claim = -1;
	else
		records_after_claim = pgWalUsage.wal_records;
}

void
durable_commit_claim_end(void)
{
	if (records_after_claim >= 0)
		records_after_claim = pgWalUsage.wal_records;
}

/* Where claims must be on disk and the session's own setting let them not be. */
void
durable_commit_flush_claim(void)
{
	if (synchronous_commit == SYNCHRONOUS_COMMIT_OFF && !asynchronous_is_safe())
		XLogFlush(XactLastCommitEnd);
}

static void
at_transaction_end(XactEvent event, void *arg)
{
	/* between these two only the commit itself runs: the variable is set
	 * directly, because a setting local to the transaction costs more than it
	 * saves */
	if (changed_setting >= 0)
	{
		synchronous_commit = changed_setting;
		changed_setting = -1;
	}
	if (records_after_claim < 0)
		return;
	if (event == XACT_EVENT_PRE_COMMIT &&
		records_after_claim == pgWalUsage.wal_records &&
		synchronous_commit > SYNCHRONOUS_COMMIT_OFF &&
		asynchronous_is_safe())
	{
		changed_setting = synchronous_commit;
		synchronous_commit = SYNCHRONOUS_COMMIT_OFF;
	}
	records_after_claim = -1;
}

void
durable_commit_init(void)
{
	RegisterXactCallback(at_transaction_end, NULL);
}
