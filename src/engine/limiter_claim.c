/*-------------------------------------------------------------------------
 *
 * limiter_claim.c
 *	  Which of the tasks that wait at limiters a claim may have (catalogue F-FLOW).
 *
 * A claim takes the lock of each limiter that its queues use, if it can be had at once,
 * and keeps it to the end of its transaction if it has changed anything. Under the
 * lock it alone reads and writes what is counted, with a snapshot that is younger
 * than the lock, so the limits are exact: a rollback takes back the slots, the counts
 * and the lock together. The counts never fall behind: who gives a slot back adds a
 * row, and only here that is counted off.
 *
 * The order is that of the turns (store/limited.h): priority, then position. What a
 * position is depends on the limiter: the time when the key was last served, or the
 * number of its first task (last, negative). A turn that is met is put right before
 * it counts. It may stand too early, as its key may have been served through another
 * priority or its first task cancelled; it never stands too late. So the first that
 * is right is the best, as in a heap that is put in order when something is taken.
 *
 * A key at its limit leaves the turns and comes back when one of its slots is counted
 * off. So what is looked at per admission depends on neither how many tasks nor how
 * many keys wait.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "lib/pairingheap.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/names.h"
#include "base/wakeup.h"
#include "engine/limiter_claim.h"
#include "engine/limiter.h"
#include "store/limited.h"
#include "store/limiter_slot.h"
#include "store/task.h"

/* Turns that one claim looks at, beyond those of what it takes. */
#define PATIENCE 500

/* What is counted off at once: when keys wait for it, and with each admission. */
#define FREED_BATCH 64
#define FREED_EACH 2

#define KEY_BUCKETS 256

typedef struct Candidate Candidate;

/* A key in hand. */
typedef struct Key
{
	DurableKeyState state;
	struct Key *next;			/* in its bucket */
	Candidate  *candidates;
} Key;

/* One limiter in hand. */
typedef struct Visit
{
	DurableLimiter limiter;
	DurableLimiterState state;
	bool		changed;
	bool		open;			/* something may start */
	bool		closed;			/* the window is full, for this claim */
	bool		freed_open;
	bool		freed_over;		/* all was counted off */
	DurableWalk freed;
	Key		   *keys[KEY_BUCKETS];
} Visit;

/* A turn in hand. While it is queued nothing that orders it may change. */
struct Candidate
{
	pairingheap_node node;
	DurableTurnRow turn;
	Key		   *key;
	struct Source *source;
	Candidate  *sibling;		/* of the same key */
	int			index;			/* in source->candidates */
	bool		queued;
	bool		stored;			/* its row is in the table, as it was read */
	bool		changed;
	int64		id;				/* the task that comes next; 0: not looked for */
	ItemPointerData tid;
	/* Once a task was passed by that this claimer is not fit for, the row has to stay
	 * where that one puts it. */
	bool		passed;
	int64		beyond;			/* the last one that was passed by */
	int64		position;		/* of the row */
};

/* A limiter's turns in one queue. */
typedef struct Source
{
	Visit	   *visit;
	text	   *queue;
	DurableReadyScan scan;
	pairingheap *queued;
	Candidate **candidates;
	int			ncandidates;
	int			space;
	int			patience;
	Candidate  *best;
} Source;

struct DurableLimits
{
	TimestampTz now;
	Snapshot	snapshot;
	DurableTables tables;
	Visit	  **visits;
	int			nvisits;
	Source	   *sources;
	int			nsources;
	Source	   *best;
	uint64		turns;			/* how many have been taken into hand */
};

static TimestampTz again_at = DURABLE_POSITION_END;

TimestampTz
durable_limits_again(void)
{
	TimestampTz at = again_at;

	again_at = DURABLE_POSITION_END;
	return at;
}

/* ---------------------------------------------------------------- locking -- */

static Visit *
find_visit(DurableLimits *admission, int64 limiter)
{
	for (int i = 0; i < admission->nvisits; i++)
	{
		if (admission->visits[i]->limiter.id == limiter)
			return admission->visits[i];
	}
	return NULL;
}

/* Nothing has its turn, and nothing was given back that could bring a blocked key back:
 * then the limiter need not be looked at. Whoever changes its limits adds a turn. */
static bool
is_idle(int64 limiter, text *queue)
{
	return durable_turns_are_spent(limiter, queue) && durable_freed_is_spent(limiter);
}

static void
add_source(DurableLimits *admission, int64 limiter, text *queue)
{
	Visit	   *visit = find_visit(admission, limiter);
	Source	   *source;

	if (visit == NULL)
	{
		if (!durable_limiter_try_lock(limiter))
		{
			again_at = Min(again_at, admission->now + DURABLE_TURNED_AWAY_US);
			return;
		}
		visit = palloc0(sizeof(Visit));
		visit->limiter.id = limiter;
		admission->visits = admission->visits == NULL ? palloc(sizeof(Visit *)) :
			repalloc(admission->visits, sizeof(Visit *) * (admission->nvisits + 1));
		admission->visits[admission->nvisits++] = visit;
	}
	admission->sources = admission->sources == NULL ? palloc(sizeof(Source)) :
		repalloc(admission->sources, sizeof(Source) * (admission->nsources + 1));
	source = &admission->sources[admission->nsources++];
	memset(source, 0, sizeof(Source));
	source->visit = visit;
	source->queue = queue;
	source->patience = PATIENCE;
}

DurableLimits *
durable_limits_lock(text *namespace, text **queues, int nqueues, TimestampTz now)
{
	DurableLimits *admission = NULL;
	int64	   *limiters;

	for (int i = 0; i < nqueues; i++)
	{
		int			n = durable_limiters_of_queue(namespace, queues[i], &limiters);

		for (int j = 0; j < n; j++)
		{
			if (is_idle(limiters[j], queues[i]))
				continue;
			if (admission == NULL)
			{
				admission = palloc0(sizeof(DurableLimits));
				admission->now = now;
			}
			add_source(admission, limiters[j], queues[i]);
		}
	}
	return admission;
}

/* --------------------------------------------------------------- counting -- */

static Key *
find_key(DurableLimits *admission, Visit *visit, text *name)
{
	DurableLimitedBy gate = {.limiter = visit->limiter.id};
	uint32		hash = hash_bytes((unsigned char *) VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name));
	Key		  **bucket = &visit->keys[hash % KEY_BUCKETS];
	Key		   *key;

	for (key = *bucket; key != NULL; key = key->next)
	{
		if (durable_text_same(key->state.key, name))
			return key;
	}
	key = palloc0(sizeof(Key));
	gate.key = DatumGetTextPCopy(PointerGetDatum(name));
	durable_key_state_read(&gate, admission->snapshot, &key->state);
	key->next = *bucket;
	*bucket = key;
	return key;
}

static bool
key_is_full(const Visit *visit, const Key *key)
{
	return visit->limiter.key_concurrency != DURABLE_NO_LIMIT &&
		key->state.running >= visit->limiter.key_concurrency;
}

static void
unblock(DurableLimits *admission, Visit *visit, DurableTurnRow *turn)
{
	Key		   *key = find_key(admission, visit, turn->key);

	if (durable_writer_delete(durable_tables_get(&admission->tables, TABLE_BLOCKED),
							  &turn->tid, true) != TM_Ok)
		elog(ERROR, "a blocked key was changed without the limiter's lock");
	/* first of all, and put right when it is met */
	turn->position = visit->limiter.by_key ? key->state.served :
		visit->limiter.lifo ? PG_INT64_MIN / 2 : turn->head;
	key->state.blocked--;
	key->state.changed = true;
	visit->state.blocked--;
	visit->changed = true;
}

static void add_candidate(Source *source, DurableLimits *admission,
						  const DurableTurnRow *turn, bool stored);

/* Into the hands of this claim if it serves the queue, else into the table. */
static void
give_turn(DurableLimits *admission, Visit *visit, DurableTurnRow *turn)
{
	for (int i = 0; i < admission->nsources; i++)
	{
		Source	   *source = &admission->sources[i];

		if (source->visit == visit && durable_text_same(source->queue, turn->queue))
		{
			turn->queue = source->queue;
			add_candidate(source, admission, turn, false);
			return;
		}
	}
	durable_turn_row_insert(durable_tables_get(&admission->tables, TABLE_TURN),
							visit->limiter.id, turn);
	durable_limiter_wake(visit->limiter.id, 1);
}

static void
unblock_key(DurableLimits *admission, Visit *visit, Key *key)
{
	DurableLimitedBy gate = {.limiter = visit->limiter.id, .key = key->state.key};
	DurableTurnRow *rows;
	int			n = durable_blocked_find(&gate, key->state.blocked, admission->snapshot, &rows);

	for (int i = 0; i < n; i++)
	{
		unblock(admission, visit, &rows[i]);
		give_turn(admission, visit, &rows[i]);
	}
}

/* Counts off what was given back, at most so much. false: there was nothing. */
static bool
count_off(DurableLimits *admission, Visit *visit, int max)
{
	ItemPointerData tid;
	text	   *name;
	int			n = 0;

	if (visit->freed_over)
		return false;
	if (!visit->freed_open)
		durable_freed_open(&visit->freed, admission->snapshot, visit->limiter.id);
	visit->freed_open = true;
	while (n < max && durable_freed_next(&visit->freed, &tid, &name))
	{
		Key		   *key = find_key(admission, visit, name);

		if (durable_writer_delete(durable_tables_get(&admission->tables, TABLE_FREED),
								  &tid, true) != TM_Ok)
			elog(ERROR, "a freed slot was counted off without the limiter's lock");
		durable_hint_rescue(&visit->freed.hint, visit->freed.position);
		visit->state.running--;
		key->state.running--;
		key->state.changed = visit->changed = true;
		if (key->state.blocked > 0 && !key_is_full(visit, key))
			unblock_key(admission, visit, key);
		n++;
	}
	visit->freed_over = n < max;
	return n > 0;
}

/* The limit of the keys has changed since: all that are held back are looked at again,
 * by this claim if they are few. */
static void
follow_key_limit(DurableLimits *admission, Visit *visit)
{
	DurableTurnRow *rows;
	int			n;

	if (visit->state.key_limit == visit->limiter.key_concurrency)
		return;
	n = visit->state.blocked == 0 ? 0 :
		durable_blocked_all(visit->limiter.id, admission->snapshot, &rows);
	for (int i = 0; i < n; i++)
	{
		unblock(admission, visit, &rows[i]);
		if (n <= FREED_BATCH)
			give_turn(admission, visit, &rows[i]);
		else
			durable_turn_row_insert(durable_tables_get(&admission->tables, TABLE_TURN),
									visit->limiter.id, &rows[i]);
	}
	if (n > FREED_BATCH)
		durable_limiter_wake(visit->limiter.id, 1);
	visit->state.key_limit = visit->limiter.key_concurrency;
	/* a limiter that nobody has used yet need not be written for that */
	visit->changed |= visit->state.stored;
}

/* ---------------------------------------------------------------- windows -- */

/* When a full fixed window opens; 0: it is not full. */
static TimestampTz
fixed_opens_at(const DurableLimiter *limiter, DurableLimiterState *state, TimestampTz now)
{
	/* a clock that was put back does not close it for longer than a period */
	if (state->window_start > now)
		state->window_start = now;
	if (now - state->window_start >= limiter->rate_us || state->window_start == 0)
	{
		state->window_start = now;
		state->used = 0;
	}
	return state->used < limiter->rate_limit ? 0 : state->window_start + limiter->rate_us;
}

/* The clock was put back behind the first of the ticks, and so behind all: they count
 * from now on, or the window would be closed until it is that late again. */
static void
bring_back_ticks(const DurableLimiter *limiter, DurableLimiterState *state, TimestampTz now,
				 Snapshot snapshot, DurableTables *tables)
{
	DurableWriter *writer = durable_tables_get(tables, TABLE_TICK);

	for (int64 n = state->first_tick; n < state->seen_tick; n++)
	{
		ItemPointerData tid;
		TimestampTz at;

		CHECK_FOR_INTERRUPTS();
		if (!durable_tick_find(limiter->id, n, snapshot, &at, &tid) || at <= now)
			continue;
		if (durable_writer_delete(writer, &tid, true) != TM_Ok)
			elog(ERROR, "a window was changed without the limiter's lock");
		durable_tick_insert(writer, limiter->id, n, now);
	}
	/* the snapshot does not see them */
	state->seen_tick = state->first_tick;
}

/* The same of a sliding one: what has left it is deleted (tables not NULL) or passed
 * over. */
static TimestampTz
sliding_opens_at(const DurableLimiter *limiter, DurableLimiterState *state, TimestampTz now,
				 Snapshot snapshot, DurableTables *tables, bool *changed)
{
	while (state->next_tick - state->first_tick >= limiter->rate_limit)
	{
		ItemPointerData tid;
		TimestampTz at;

		CHECK_FOR_INTERRUPTS();
		/* of this claim */
		if (state->first_tick >= state->seen_tick)
			return now + limiter->rate_us;
		if (durable_tick_find(limiter->id, state->first_tick, snapshot, &at, &tid))
		{
			/* whoever admitted it may have looked at the clock after us */
			if (at > now && at > (now = durable_clock_now()))
			{
				if (tables != NULL)
					bring_back_ticks(limiter, state, now, snapshot, tables);
				*changed = true;
				return now + limiter->rate_us;
			}
			if (at + limiter->rate_us > now)
				return at + limiter->rate_us;
			if (tables != NULL &&
				durable_writer_delete(durable_tables_get(tables, TABLE_TICK), &tid, true) != TM_Ok)
				elog(ERROR, "a window was changed without the limiter's lock");
		}
		state->first_tick++;
		*changed = true;
	}
	return 0;
}

static TimestampTz
window_opens_at(const DurableLimiter *limiter, DurableLimiterState *state, TimestampTz now,
				Snapshot snapshot, DurableTables *tables, bool *changed)
{
	if (limiter->rate_limit == DURABLE_NO_LIMIT)
		return 0;
	return limiter->sliding ?
		sliding_opens_at(limiter, state, now, snapshot, tables, changed) :
		fixed_opens_at(limiter, state, now);
}

static void
use_window(DurableLimits *admission, Visit *visit)
{
	DurableLimiterState *state = &visit->state;

	if (visit->limiter.rate_limit == DURABLE_NO_LIMIT)
		return;
	if (visit->limiter.sliding)
		durable_tick_insert(durable_tables_get(&admission->tables, TABLE_TICK),
							visit->limiter.id, state->next_tick++, admission->now);
	else
		state->used++;
}

/* The window first, then the slots (F-FLOW-2). */
static bool
may_admit(DurableLimits *admission, Visit *visit)
{
	DurableLimiterState *state = &visit->state;
	TimestampTz opens_at;

	if (!visit->open || visit->closed)
		return false;
	opens_at = window_opens_at(&visit->limiter, state, admission->now, admission->snapshot,
							   &admission->tables, &visit->changed);
	if (opens_at != state->opens_at)
	{
		/* noted for those who sleep; that it is open again is not worth a write */
		visit->changed |= opens_at != 0;
		state->opens_at = opens_at;
	}
	if (opens_at != 0)
	{
		again_at = Min(again_at, opens_at);
		visit->closed = true;
		return false;
	}
	while (visit->limiter.concurrency != DURABLE_NO_LIMIT &&
		   state->running >= visit->limiter.concurrency)
	{
		if (!count_off(admission, visit, FREED_BATCH))
			return false;
	}
	return true;
}

/* ------------------------------------------------------------- candidates -- */

static bool
is_before(int32 priority, int64 position, int64 head, const DurableTurnRow *other)
{
	if (priority != other->priority)
		return priority > other->priority;
	return position != other->position ? position < other->position : head < other->head;
}

/* For the heap: above 0 when a comes first. */
static int
compare_candidates(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	const DurableTurnRow *x = &pairingheap_const_container(Candidate, node, a)->turn;
	const DurableTurnRow *y = &pairingheap_const_container(Candidate, node, b)->turn;

	if (is_before(x->priority, x->position, x->head, y))
		return 1;
	return is_before(y->priority, y->position, y->head, x) ? -1 : 0;
}

static void
enqueue(Candidate *candidate)
{
	if (!candidate->queued)
		pairingheap_add(candidate->source->queued, &candidate->node);
	candidate->queued = true;
}

static void
dequeue(Candidate *candidate)
{
	if (candidate->queued)
		pairingheap_remove(candidate->source->queued, &candidate->node);
	candidate->queued = false;
}

static void
remove_candidate(Candidate *candidate)
{
	Source	   *source = candidate->source;
	Candidate **link = &candidate->key->candidates;

	dequeue(candidate);
	while (*link != candidate)
		link = &(*link)->sibling;
	*link = candidate->sibling;
	source->candidates[candidate->index] = source->candidates[--source->ncandidates];
	source->candidates[candidate->index]->index = candidate->index;
}

static void
delete_turn(DurableLimits *admission, Visit *visit, Candidate *candidate)
{
	if (candidate->stored &&
		durable_writer_delete(durable_tables_get(&admission->tables, TABLE_TURN),
							  &candidate->turn.tid, true) != TM_Ok)
		elog(ERROR, "a turn was changed without the limiter's lock");
	candidate->stored = false;
	visit->changed = true;
}

static Candidate *
find_candidate(const Source *source, const Key *key, int32 priority)
{
	Candidate  *candidate = key->candidates;

	while (candidate != NULL &&
		   (candidate->source != source || candidate->turn.priority != priority))
		candidate = candidate->sibling;
	return candidate;
}

static Candidate *
new_candidate(Source *source, Key *key, const DurableTurnRow *turn, bool stored)
{
	Candidate  *candidate = palloc0(sizeof(Candidate));

	candidate->turn = *turn;
	candidate->stored = stored;
	candidate->changed = !stored;
	candidate->source = source;
	candidate->key = key;
	candidate->sibling = key->candidates;
	key->candidates = candidate;
	if (source->ncandidates == source->space)
	{
		source->space = Max(16, source->space * 2);
		source->candidates = source->candidates == NULL ?
			palloc(sizeof(Candidate *) * source->space) :
			repalloc(source->candidates, sizeof(Candidate *) * source->space);
	}
	candidate->index = source->ncandidates;
	source->candidates[source->ncandidates++] = candidate;
	return candidate;
}

/* Of two turns of a key one is enough. */
static void
add_candidate(Source *source, DurableLimits *admission, const DurableTurnRow *turn,
			  bool stored)
{
	Visit	   *visit = source->visit;
	Key		   *key = find_key(admission, visit, turn->key);
	Candidate  *candidate = find_candidate(source, key, turn->priority);
	Candidate	other = {0};

	admission->turns++;
	if (candidate == NULL)
	{
		enqueue(new_candidate(source, key, turn, stored));
		return;
	}
	other.turn = *turn;
	other.stored = stored;
	delete_turn(admission, visit, &other);
	if (turn->head >= candidate->turn.head)
		return;
	dequeue(candidate);
	candidate->turn.head = turn->head;
	/* what was passed by is met again */
	if (candidate->passed)
		candidate->turn.position = candidate->position;
	candidate->passed = false;
	candidate->turn.position = Min(candidate->turn.position, turn->position);
	candidate->changed = true;
	candidate->id = 0;
	enqueue(candidate);
}

static Candidate *
first_candidate(const Source *source)
{
	return pairingheap_is_empty(source->queued) ? NULL :
		pairingheap_container(Candidate, node, pairingheap_first(source->queued));
}

/* Turns in the table that come before the first in hand are taken into hand. */
static Candidate *
next_candidate(Source *source, DurableLimits *admission)
{
	for (;;)
	{
		Candidate  *first = first_candidate(source);
		DurableReadyScan *scan = &source->scan;
		DurableTurnRow turn;

		if (scan->exhausted)
			return first;
		durable_turn_scan_row(scan, &turn);
		if (first != NULL && !is_before(turn.priority, turn.position, turn.head, &first->turn))
			return first;
		/* what is in hand is better than nothing */
		if (source->patience-- <= 0)
			return first;
		durable_ready_scan_taken(scan);
		add_candidate(source, admission, &turn, true);
		(void) durable_ready_scan_next(scan);
	}
}

static void
block(DurableLimits *admission, Candidate *candidate)
{
	Visit	   *visit = candidate->source->visit;

	delete_turn(admission, visit, candidate);
	durable_blocked_insert(durable_tables_get(&admission->tables, TABLE_BLOCKED),
						   visit->limiter.id, &candidate->turn);
	candidate->key->state.blocked++;
	candidate->key->state.changed = true;
	visit->state.blocked++;
	remove_candidate(candidate);
}

static bool
look_for_task(DurableLimits *admission, Candidate *candidate, bool *undecided)
{
	Visit	   *visit = candidate->source->visit;
	DurableLimitedBy gate = {.limiter = visit->limiter.id, .key = candidate->turn.key};

	return durable_limited_first(&gate, &candidate->turn, visit->limiter.lifo,
								 candidate->passed ? &candidate->beyond : NULL,
								 admission->snapshot, &candidate->id, &candidate->tid, undecided);
}

/* Somebody is adding to it, or taking from it. The next claim will know. */
static void
leave(Candidate *candidate)
{
	dequeue(candidate);
	candidate->id = 0;
}

/* Nothing waits behind the turn: it goes, unless somebody is adding to it. The order
 * matters (limiter.c): it is deleted before that is looked at. */
static void
drop_turn(DurableLimits *admission, Candidate *candidate)
{
	bool		undecided;

	delete_turn(admission, candidate->source->visit, candidate);
	(void) look_for_task(admission, candidate, &undecided);
	if (!undecided)
		remove_candidate(candidate);
	else
	{
		candidate->changed = true;
		leave(candidate);
	}
}

/* The task that comes next in the candidate's turn, and where that puts it. false:
 * look again for the best. */
static bool
find_task(DurableLimits *admission, Candidate *candidate)
{
	const DurableLimiter *limiter = &candidate->source->visit->limiter;
	DurableTurnRow *turn = &candidate->turn;
	bool		undecided;
	int64		position;

	if (!look_for_task(admission, candidate, &undecided))
	{
		if (undecided || candidate->passed)
			leave(candidate);
		else
			drop_turn(admission, candidate);
		return false;
	}
	position = limiter->by_key ? Max(candidate->key->state.served, turn->position) :
		limiter->lifo ? -candidate->id : candidate->id;
	dequeue(candidate);
	/* Not while others may count on the row as it is (limiter.c), and not if what is
	 * undecided stands before what was found. */
	if (!limiter->lifo && !candidate->stored && !undecided && !candidate->passed)
		turn->head = Max(turn->head, candidate->id);
	candidate->changed |= position != turn->position && !candidate->passed;
	turn->position = position;
	enqueue(candidate);
	return first_candidate(candidate->source) == candidate;
}

/* Whether the key was served since the turn was put where it is: then it is moved. */
static bool
was_served(Candidate *candidate)
{
	if (!candidate->source->visit->limiter.by_key ||
		candidate->turn.position >= candidate->key->state.served)
		return false;
	dequeue(candidate);
	candidate->turn.position = candidate->key->state.served;
	candidate->changed = true;
	enqueue(candidate);
	return true;
}

/* The best of a source, put right; NULL: none may start. */
static Candidate *
best_of(DurableLimits *admission, Source *source)
{
	Visit	   *visit = source->visit;

	if (!may_admit(admission, visit))
		return NULL;
	for (;;)
	{
		Candidate  *candidate = next_candidate(source, admission);

		CHECK_FOR_INTERRUPTS();
		if (candidate == NULL)
		{
			/* what keys wait for may be among what was given back */
			if (visit->state.blocked == 0 || !count_off(admission, visit, FREED_BATCH))
				return NULL;
		}
		else if (key_is_full(visit, candidate->key))
			block(admission, candidate);
		else if (!was_served(candidate) &&
				 (candidate->id != 0 ||
				  (find_task(admission, candidate) &&
				   next_candidate(source, admission) == candidate)))
			return candidate;
	}
}

/* ------------------------------------------------------------------- api -- */

static void
open_visit(DurableLimits *admission, Visit *visit)
{
	int64		id = visit->limiter.id;

	visit->open = durable_limiter_read(id, &visit->limiter) && !visit->limiter.paused;
	visit->limiter.id = id;
	if (!visit->open)
		return;
	durable_limiter_state_read(id, admission->snapshot, &visit->state);
}

void
durable_limits_open(DurableLimits *admission, Snapshot snapshot)
{
	admission->snapshot = snapshot;
	durable_tables_init(&admission->tables);
	for (int i = 0; i < admission->nvisits; i++)
		open_visit(admission, admission->visits[i]);
	for (int i = 0; i < admission->nsources; i++)
	{
		Source	   *source = &admission->sources[i];

		source->queued = pairingheap_allocate(compare_candidates, NULL);
		durable_turn_scan_open(&source->scan, snapshot, source->visit->limiter.id, source->queue);
		(void) durable_ready_scan_next(&source->scan);
	}
	for (int i = 0; i < admission->nvisits; i++)
	{
		Visit	   *visit = admission->visits[i];

		if (!visit->open)
			continue;
		follow_key_limit(admission, visit);
		if (visit->state.blocked > 0)
			(void) count_off(admission, visit, FREED_BATCH);
	}
}

/* Whether the best of a source comes before that of another one: by the limiter's order,
 * or of two limiters the older task. */
static bool
is_better(const Source *source, const Source *other)
{
	const DurableTurnRow *turn = &source->best->turn;
	const DurableTurnRow *best = &other->best->turn;

	if (source->visit == other->visit)
		return is_before(turn->priority, turn->position, turn->head, best);
	return turn->priority != best->priority ? turn->priority > best->priority :
		source->best->id < other->best->id;
}

bool
durable_limits_best(DurableLimits *admission, int32 *priority, int64 *id)
{
	uint64		turns;

	/* looking at one source may give a turn back to another */
	do
	{
		turns = admission->turns;
		admission->best = NULL;
		for (int i = 0; i < admission->nsources; i++)
		{
			Source	   *source = &admission->sources[i];

			source->best = best_of(admission, source);
			if (source->best != NULL &&
				(admission->best == NULL || is_better(source, admission->best)))
				admission->best = source;
		}
	} while (turns != admission->turns);
	if (admission->best == NULL)
		return false;
	*priority = admission->best->best->turn.priority;
	*id = admission->best->best->id;
	return true;
}

/* Its turn goes on behind the task that was taken. It is deleted before that is looked
 * for (limiter.c). */
static void
move_on(DurableLimits *admission, Candidate *candidate)
{
	Visit	   *visit = candidate->source->visit;
	DurableTurnRow *turn = &candidate->turn;

	delete_turn(admission, visit, candidate);
	dequeue(candidate);
	if (!visit->limiter.lifo && candidate->id == turn->head)
		turn->head++;
	if (visit->limiter.by_key)
		turn->position = candidate->key->state.served;
	candidate->changed = true;
	candidate->id = 0;
	enqueue(candidate);
	(void) find_task(admission, candidate);
}

/* What stands behind it in its turn is not kept from this claimer. */
void
durable_limits_pass_by(DurableLimits *admission)
{
	Source	   *source = admission->best;
	Candidate  *candidate = source->best;

	if (!candidate->passed)
		candidate->position = candidate->turn.position;
	candidate->passed = true;
	candidate->beyond = candidate->id;
	candidate->id = 0;
	/* the turn that stands for it is none of those in vain */
	source->patience++;
	(void) find_task(admission, candidate);
}

bool
durable_limits_take(DurableLimits *admission, bool found, text **queue)
{
	Source	   *source = admission->best;
	Candidate  *candidate = source->best;
	Visit	   *visit = source->visit;
	DurableLimiterState *state = &visit->state;
	DurableLimitedBy gate = {.limiter = visit->limiter.id, .key = candidate->turn.key};
	int64		id = candidate->id;
	bool		taken;

	taken = durable_writer_delete(durable_tables_get(&admission->tables, TABLE_LIMITED),
								  &candidate->tid, false) == TM_Ok;
	if (!taken || !found)
	{
		if (taken)
			move_on(admission, candidate);
		else
			leave(candidate);
		return false;
	}
	(void) count_off(admission, visit, FREED_EACH);
	durable_limiter_slot_insert(durable_tables_get(&admission->tables, TABLE_SLOT), id, &gate);
	use_window(admission, visit);
	state->running++;
	state->stamp = Max(state->stamp + 1, DURABLE_STAMP(admission->now));
	if (visit->limiter.by_key)
	{
		state->floor = Max(state->floor, candidate->turn.position);
		state->floor_task = Max(state->floor_task, id);
	}
	candidate->key->state.running++;
	candidate->key->state.served = state->stamp;
	candidate->key->state.changed = visit->changed = true;
	move_on(admission, candidate);
	*queue = source->queue;
	return true;
}

/* What is in hand goes back into the tables. */
static void
close_source(DurableLimits *admission, Source *source)
{
	Visit	   *visit = source->visit;

	for (int i = source->ncandidates - 1; i >= 0; i--)
	{
		Candidate  *candidate = source->candidates[i];

		if (!candidate->changed)
			continue;
		if (candidate->passed && !visit->limiter.by_key)
			candidate->turn.position = candidate->position;
		if (key_is_full(visit, candidate->key))
		{
			block(admission, candidate);
			continue;
		}
		delete_turn(admission, visit, candidate);
		durable_turn_row_insert(durable_tables_get(&admission->tables, TABLE_TURN),
								visit->limiter.id, &candidate->turn);
	}
	durable_ready_scan_close(&source->scan);
}

static void
close_visit(DurableLimits *admission, Visit *visit)
{
	DurableTables *tables = &admission->tables;

	if (visit->freed_open)
		durable_walk_close(&visit->freed);
	if (!visit->changed)
	{
		durable_limiter_unlock(visit->limiter.id);
		return;
	}
	for (int i = 0; i < KEY_BUCKETS; i++)
	{
		for (Key *key = visit->keys[i]; key != NULL; key = key->next)
		{
			if (key->state.changed)
				durable_key_state_write(durable_tables_get(tables, TABLE_KEY),
										visit->limiter.id, visit->state.version + 1, &key->state);
		}
	}
	durable_limiter_state_write(durable_tables_get(tables, TABLE_STATE), visit->limiter.id,
								&visit->state);
	if (visit->state.opens_at != 0)
		durable_wakeup_note_due(visit->state.opens_at);
	/* others may have come in vain meanwhile */
	else if (visit->limiter.concurrency == DURABLE_NO_LIMIT ||
			 visit->state.running < visit->limiter.concurrency || !visit->freed_over)
		durable_limiter_wake(visit->limiter.id, 1);
}

void
durable_limits_close(DurableLimits *admission)
{
	for (int i = 0; i < admission->nsources; i++)
		close_source(admission, &admission->sources[i]);
	for (int i = 0; i < admission->nvisits; i++)
		close_visit(admission, admission->visits[i]);
	durable_tables_close(&admission->tables);
}

/* ---------------------------------------------------------------- looking -- */

/* Without the lock: what is read may be changing. */
static bool
is_open(int64 id, Snapshot snapshot, TimestampTz now, TimestampTz *next)
{
	DurableLimiter limiter;
	DurableLimiterState state;
	TimestampTz opens_at;
	bool		changed;

	if (!durable_limiter_read(id, &limiter) || limiter.paused)
		return false;
	durable_limiter_state_read(id, snapshot, &state);
	opens_at = window_opens_at(&limiter, &state, now, snapshot, NULL, &changed);
	if (opens_at != 0)
	{
		*next = Min(*next, opens_at);
		return false;
	}
	return limiter.concurrency == DURABLE_NO_LIMIT || state.running < limiter.concurrency ||
		durable_freed_exists(snapshot, id);
}

/* Whoever comes now would be turned away if not. */
static bool
is_free(int64 limiter, TimestampTz now, TimestampTz *next)
{
	if (durable_limiter_try_lock(limiter))
	{
		durable_limiter_unlock(limiter);
		return true;
	}
	*next = Min(*next, now + DURABLE_TURNED_AWAY_US);
	return false;
}

bool
durable_limits_exists(Snapshot snapshot, text *namespace, text *queue, TimestampTz now,
					  TimestampTz *next)
{
	int64	   *limiters;
	int			n = durable_limiters_of_queue(namespace, queue, &limiters);

	for (int i = 0; i < n; i++)
	{
		DurableLimiterState state;
		bool		waiting = durable_turn_exists(snapshot, limiters[i], queue);

		if (!waiting)
		{
			durable_limiter_state_read(limiters[i], snapshot, &state);
			waiting = state.blocked > 0 && durable_freed_exists(snapshot, limiters[i]);
		}
		if (waiting && is_free(limiters[i], now, next) &&
			is_open(limiters[i], snapshot, now, next))
			return true;
	}
	return false;
}

/* Of a sliding window those that are still inside it, by bisection: they are in the
 * order of time. */
static int
count_ticks(int64 limiter, const DurableLimiterState *state, TimestampTz after,
			Snapshot snapshot)
{
	int64		low = state->first_tick;
	int64		high = state->next_tick;

	while (low < high)
	{
		int64		middle = low + (high - low) / 2;
		ItemPointerData tid;
		TimestampTz at;

		if (durable_tick_find(limiter, middle, snapshot, &at, &tid) && at > after)
			high = middle;
		else
			low = middle + 1;
	}
	return (int) (state->next_tick - low);
}

int
durable_limits_window(const DurableLimiter *limiter, TimestampTz now, TimestampTz *opens_at)
{
	Snapshot	snapshot = durable_snapshot_push();
	DurableLimiterState state;
	bool		changed;
	int			used = -1;

	durable_limiter_state_read(limiter->id, snapshot, &state);
	*opens_at = window_opens_at(limiter, &state, now, snapshot, NULL, &changed);
	if (limiter->rate_limit != DURABLE_NO_LIMIT)
		used = limiter->sliding ?
			count_ticks(limiter->id, &state, now - limiter->rate_us, snapshot) : state.used;
	durable_snapshot_pop();
	return used;
}

TimestampTz
durable_limits_windows(TimestampTz now)
{
	static TimestampTz since = 0;
	int64	   *limiters;
	int			n = durable_limiters_in_use(&limiters);
	TimestampTz next = DURABLE_POSITION_END;
	Snapshot	snapshot = durable_snapshot_push();

	for (int i = 0; i < n; i++)
	{
		DurableLimiterState state;

		CHECK_FOR_INTERRUPTS();
		durable_limiter_state_read(limiters[i], snapshot, &state);
		if (state.opens_at > now)
			next = Min(next, state.opens_at);
		else if (state.opens_at > since)
			durable_limiter_wake(limiters[i], PG_INT32_MAX);
	}
	durable_snapshot_pop();
	since = now;
	return next;
}
