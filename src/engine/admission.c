/*-------------------------------------------------------------------------
 *
 * admission.c
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

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/names.h"
#include "base/wakeup.h"
#include "engine/admission.h"
#include "engine/limiter.h"
#include "store/limited.h"
#include "store/slot.h"
#include "store/task.h"

/* Turns that one claim looks at, beyond those of what it takes. */
#define PATIENCE 500

/* What is counted off at once: when keys wait for it, and with each admission. */
#define FREED_BATCH 64
#define FREED_EACH 2

/* One limiter in hand. */
typedef struct Visit
{
	DurableLimiter limiter;
	DurableLimiterState state;
	bool		changed;
	bool		open;			/* something may start */
	bool		freed_open;
	bool		freed_over;		/* all was counted off */
	DurableWalk freed;
	DurableKeyState **keys;
	int			nkeys;
	int			key_space;
} Visit;

/* A turn in hand. */
typedef struct Candidate
{
	DurableTurnRow turn;
	DurableKeyState *key;
	bool		stored;			/* its row is in the table, as it was read */
	bool		changed;
	bool		left;			/* for the next claim: somebody is adding to it */
	int64		id;				/* the task that comes next; 0: not looked for */
	ItemPointerData tid;
} Candidate;

/* A limiter's turns in one queue. */
typedef struct Source
{
	Visit	   *visit;
	text	   *queue;
	DurableReadyScan scan;
	Candidate **candidates;
	int			ncandidates;
	int			space;
	int			patience;
	Candidate  *best;
} Source;

struct DurableAdmission
{
	text	   *namespace;
	TimestampTz now;
	Snapshot	snapshot;
	DurableTables tables;
	DurableProbe by_id;
	Visit	  **visits;
	int			nvisits;
	Source	   *sources;
	int			nsources;
	Source	   *best;
};

static bool turned_away = false;

bool
durable_admission_turned_away(void)
{
	return turned_away;
}

/* ---------------------------------------------------------------- locking -- */

static Visit *
find_visit(DurableAdmission *admission, int64 limiter)
{
	for (int i = 0; i < admission->nvisits; i++)
	{
		if (admission->visits[i]->limiter.id == limiter)
			return admission->visits[i];
	}
	return NULL;
}

static void
add_source(DurableAdmission *admission, int64 limiter, text *queue)
{
	Visit	   *visit = find_visit(admission, limiter);
	Source	   *source;

	if (visit == NULL)
	{
		if (!durable_limiter_try_lock(limiter))
		{
			turned_away = true;
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

DurableAdmission *
durable_admission_lock(text *namespace, text **queues, int nqueues, TimestampTz now)
{
	DurableAdmission *admission = NULL;
	int64	   *limiters;

	turned_away = false;
	for (int i = 0; i < nqueues; i++)
	{
		int			n = durable_limiters_of_queue(namespace, queues[i], &limiters);

		for (int j = 0; j < n; j++)
		{
			if (admission == NULL)
			{
				admission = palloc0(sizeof(DurableAdmission));
				admission->namespace = namespace;
				admission->now = now;
			}
			add_source(admission, limiters[j], queues[i]);
		}
	}
	return admission;
}

/* --------------------------------------------------------------- counting -- */

static DurableKeyState *
key_state(DurableAdmission *admission, Visit *visit, text *key)
{
	DurableGate gate = {.limiter = visit->limiter.id};
	DurableKeyState *state;

	for (int i = 0; i < visit->nkeys; i++)
	{
		if (durable_text_same(visit->keys[i]->key, key))
			return visit->keys[i];
	}
	if (visit->nkeys == visit->key_space)
	{
		visit->key_space = Max(16, visit->key_space * 2);
		visit->keys = visit->keys == NULL ? palloc(sizeof(void *) * visit->key_space) :
			repalloc(visit->keys, sizeof(void *) * visit->key_space);
	}
	state = palloc(sizeof(DurableKeyState));
	gate.key = DatumGetTextPCopy(PointerGetDatum(key));
	durable_key_state_read(&gate, admission->snapshot, state);
	visit->keys[visit->nkeys++] = state;
	return state;
}

static bool
key_is_full(const Visit *visit, const DurableKeyState *key)
{
	return visit->limiter.key_concurrency != DURABLE_NO_LIMIT &&
		key->running >= visit->limiter.key_concurrency;
}

/* Where a turn of the key stands, as far as the key alone tells. */
static int64
least_position(const Visit *visit, const DurableKeyState *key, const DurableTurnRow *turn)
{
	if (visit->limiter.by_key)
		return Max(key->served, turn->position);
	return visit->limiter.lifo ? turn->position : turn->head;
}

static void
unblock(DurableAdmission *admission, Visit *visit, DurableTurnRow *turn)
{
	DurableKeyState *key = key_state(admission, visit, turn->key);

	if (durable_writer_delete(durable_tables_get(&admission->tables, TABLE_BLOCKED),
							  &turn->tid, true) != TM_Ok)
		elog(ERROR, "a blocked key was changed without the limiter's lock");
	/* first of all, and put right when it is met */
	turn->position = visit->limiter.by_key ? key->served :
		visit->limiter.lifo ? PG_INT64_MIN / 2 : turn->head;
	key->blocked--;
	key->changed = true;
	visit->state.blocked--;
	visit->changed = true;
}

static void add_candidate(Source *source, DurableAdmission *admission,
						  const DurableTurnRow *turn, bool stored);

/* Into the hands of this claim if it serves the queue, else into the table. */
static void
give_turn(DurableAdmission *admission, Visit *visit, DurableTurnRow *turn)
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
unblock_key(DurableAdmission *admission, Visit *visit, DurableKeyState *key)
{
	DurableGate gate = {.limiter = visit->limiter.id, .key = key->key};
	DurableTurnRow *rows;
	int			n = durable_blocked_find(&gate, key->blocked, admission->snapshot, &rows);

	for (int i = 0; i < n; i++)
	{
		unblock(admission, visit, &rows[i]);
		give_turn(admission, visit, &rows[i]);
	}
}

/* Counts off what was given back, at most so much. false: there was nothing. */
static bool
count_off(DurableAdmission *admission, Visit *visit, int max)
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
		DurableKeyState *key = key_state(admission, visit, name);

		if (durable_writer_delete(durable_tables_get(&admission->tables, TABLE_FREED),
								  &tid, true) != TM_Ok)
			elog(ERROR, "a freed slot was counted off without the limiter's lock");
		durable_hint_rescue(&visit->freed.hint, visit->freed.position);
		visit->state.running--;
		key->running--;
		key->changed = visit->changed = true;
		if (key->blocked > 0 && !key_is_full(visit, key))
			unblock_key(admission, visit, key);
		n++;
	}
	visit->freed_over = n < max;
	return n > 0;
}

/* The limit of the keys has changed since: all that are held back are looked at again,
 * by this claim if they are few. */
static void
follow_key_limit(DurableAdmission *admission, Visit *visit)
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
			if (Min(at, now) + limiter->rate_us > now)
				return Min(at, now) + limiter->rate_us;
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
use_window(DurableAdmission *admission, Visit *visit)
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
may_admit(DurableAdmission *admission, Visit *visit)
{
	DurableLimiterState *state = &visit->state;
	TimestampTz opens_at;

	if (!visit->open)
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
		return false;
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

static void
remove_candidate(Source *source, Candidate *candidate)
{
	for (int i = 0; i < source->ncandidates; i++)
	{
		if (source->candidates[i] == candidate)
		{
			source->candidates[i] = source->candidates[--source->ncandidates];
			return;
		}
	}
}

static void
delete_turn(DurableAdmission *admission, Visit *visit, Candidate *candidate)
{
	if (candidate->stored &&
		durable_writer_delete(durable_tables_get(&admission->tables, TABLE_TURN),
							  &candidate->turn.tid, true) != TM_Ok)
		elog(ERROR, "a turn was changed without the limiter's lock");
	candidate->stored = false;
	visit->changed = true;
}

static Candidate *
find_candidate(Source *source, const DurableTurnRow *turn)
{
	for (int i = 0; i < source->ncandidates; i++)
	{
		DurableTurnRow *other = &source->candidates[i]->turn;

		if (other->priority == turn->priority && durable_text_same(other->key, turn->key))
			return source->candidates[i];
	}
	return NULL;
}

/* Of two turns of a key one is enough. */
static void
add_candidate(Source *source, DurableAdmission *admission, const DurableTurnRow *turn,
			  bool stored)
{
	Visit	   *visit = source->visit;
	Candidate  *candidate = find_candidate(source, turn);
	Candidate	other = {0};

	if (candidate != NULL)
	{
		other.turn = *turn;
		other.stored = stored;
		delete_turn(admission, visit, &other);
		if (turn->head < candidate->turn.head)
		{
			candidate->turn.head = turn->head;
			candidate->turn.position = Min(candidate->turn.position, turn->position);
			candidate->changed = true;
			candidate->id = 0;
			candidate->left = false;
		}
		return;
	}
	candidate = palloc0(sizeof(Candidate));
	candidate->turn = *turn;
	candidate->stored = stored;
	candidate->changed = !stored;
	candidate->key = key_state(admission, visit, turn->key);
	if (source->ncandidates == source->space)
	{
		source->space = Max(16, source->space * 2);
		source->candidates = source->candidates == NULL ?
			palloc(sizeof(void *) * source->space) :
			repalloc(source->candidates, sizeof(void *) * source->space);
	}
	source->candidates[source->ncandidates++] = candidate;
}

static Candidate *
first_candidate(const Source *source)
{
	Candidate  *first = NULL;

	for (int i = 0; i < source->ncandidates; i++)
	{
		Candidate  *candidate = source->candidates[i];

		if (!candidate->left &&
			(first == NULL || is_before(candidate->turn.priority, candidate->turn.position,
										candidate->turn.head, &first->turn)))
			first = candidate;
	}
	return first;
}

/* Turns in the table that come before the first in hand are taken into hand. */
static Candidate *
next_candidate(Source *source, DurableAdmission *admission)
{
	for (;;)
	{
		Candidate  *first = first_candidate(source);
		DurableReadyScan *scan = &source->scan;
		DurableTurnRow turn;

		if (scan->exhausted)
			return first;
		if (first != NULL && (scan->priority < first->turn.priority ||
							  (scan->priority == first->turn.priority &&
							   scan->id > first->turn.position)))
			return first;
		if (source->patience-- <= 0)
			return NULL;
		durable_turn_scan_row(scan, &turn);
		durable_ready_scan_taken(scan);
		add_candidate(source, admission, &turn, true);
		(void) durable_ready_scan_next(scan);
	}
}

static void
block(DurableAdmission *admission, Source *source, Candidate *candidate)
{
	Visit	   *visit = source->visit;

	delete_turn(admission, visit, candidate);
	durable_blocked_insert(durable_tables_get(&admission->tables, TABLE_BLOCKED),
						   visit->limiter.id, &candidate->turn);
	candidate->key->blocked++;
	candidate->key->changed = true;
	visit->state.blocked++;
	remove_candidate(source, candidate);
}

/* Nothing waits behind the turn: it goes, unless somebody is adding to it. The order
 * matters (limiter.c): it is deleted before that is looked at. */
static void
drop_turn(DurableAdmission *admission, Source *source, Candidate *candidate)
{
	Visit	   *visit = source->visit;
	DurableGate gate = {.limiter = visit->limiter.id, .key = candidate->turn.key};
	bool		undecided;
	int64		id;

	delete_turn(admission, visit, candidate);
	(void) durable_limited_first(&gate, &candidate->turn, visit->limiter.lifo,
								 admission->snapshot, &id, &candidate->tid, &undecided);
	if (!undecided)
		remove_candidate(source, candidate);
	else
		candidate->left = candidate->changed = true;
}

/* The task that comes next in the candidate's turn. false: look again for the best. */
static bool
find_task(DurableAdmission *admission, Source *source, Candidate *candidate)
{
	Visit	   *visit = source->visit;
	DurableGate gate = {.limiter = visit->limiter.id, .key = candidate->turn.key};
	DurableTurnRow *turn = &candidate->turn;
	bool		undecided;
	int64		position;

	if (!durable_limited_first(&gate, turn, visit->limiter.lifo, admission->snapshot,
							   &candidate->id, &candidate->tid, &undecided))
	{
		candidate->id = 0;
		if (undecided)
			candidate->left = true;
		else
			drop_turn(admission, source, candidate);
		return false;
	}
	position = least_position(visit, candidate->key, turn);
	if (!visit->limiter.by_key)
		position = visit->limiter.lifo ? -candidate->id : candidate->id;
	/* Not while others may count on the row as it is (limiter.c), and not if what is
	 * undecided stands before what was found. */
	if (!visit->limiter.lifo && !candidate->stored && !undecided)
		turn->head = Max(turn->head, candidate->id);
	if (position == turn->position)
		return true;
	turn->position = position;
	candidate->changed = true;
	return false;
}

/* The best of a source, put right; NULL: none may start. */
static Candidate *
best_of(DurableAdmission *admission, Source *source)
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
			continue;
		}
		if (key_is_full(visit, candidate->key))
			block(admission, source, candidate);
		else if (visit->limiter.by_key && candidate->turn.position < candidate->key->served)
		{
			candidate->turn.position = candidate->key->served;
			candidate->changed = true;
			candidate->id = 0;
		}
		else if (candidate->id != 0 || find_task(admission, source, candidate))
			return candidate;
	}
}

/* ------------------------------------------------------------------- api -- */

static void
open_visit(DurableAdmission *admission, Visit *visit)
{
	int64		id = visit->limiter.id;

	visit->open = durable_limiter_read(id, &visit->limiter) && !visit->limiter.paused;
	visit->limiter.id = id;
	if (!visit->open)
		return;
	durable_limiter_state_read(id, admission->snapshot, &visit->state);
}

void
durable_admission_open(DurableAdmission *admission, Snapshot snapshot)
{
	admission->snapshot = snapshot;
	durable_tables_init(&admission->tables);
	durable_task_open_by_id(&admission->by_id, snapshot);
	for (int i = 0; i < admission->nvisits; i++)
		open_visit(admission, admission->visits[i]);
	for (int i = 0; i < admission->nsources; i++)
	{
		Source	   *source = &admission->sources[i];

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

bool
durable_admission_best(DurableAdmission *admission, int32 *priority, int64 *id)
{
	admission->best = NULL;
	for (int i = 0; i < admission->nsources; i++)
	{
		Source	   *source = &admission->sources[i];
		const DurableTurnRow *turn;

		source->best = best_of(admission, source);
		if (source->best == NULL)
			continue;
		turn = &source->best->turn;
		/* of one limiter by its order, of several the older task */
		if (admission->best != NULL &&
			(admission->best->visit == source->visit ?
			 !is_before(turn->priority, turn->position, turn->head, &admission->best->best->turn) :
			 turn->priority < admission->best->best->turn.priority ||
			 (turn->priority == admission->best->best->turn.priority &&
			  source->best->id > admission->best->best->id)))
			continue;
		admission->best = source;
	}
	if (admission->best == NULL)
		return false;
	*priority = admission->best->best->turn.priority;
	*id = admission->best->best->id;
	return true;
}

/* Its turn goes on behind the task that was taken. */
static void
move_on(DurableAdmission *admission, Source *source, Candidate *candidate)
{
	Visit	   *visit = source->visit;
	DurableTurnRow *turn = &candidate->turn;

	if (!visit->limiter.lifo && candidate->id == turn->head)
		turn->head++;
	if (visit->limiter.by_key)
		turn->position = candidate->key->served;
	candidate->changed = true;
	candidate->id = 0;
	(void) find_task(admission, source, candidate);
}

bool
durable_admission_take(DurableAdmission *admission, text **queue)
{
	Source	   *source = admission->best;
	Candidate  *candidate = source->best;
	Visit	   *visit = source->visit;
	DurableLimiterState *state = &visit->state;
	DurableGate gate = {.limiter = visit->limiter.id, .key = candidate->turn.key};
	int64		id = candidate->id;
	DurableRow	task;
	bool		taken;

	taken = durable_writer_delete(durable_tables_get(&admission->tables, TABLE_LIMITED),
								  &candidate->tid, false) == TM_Ok;
	/* an entry without a task can only be left by hand, and is gone now */
	if (!taken || !durable_task_find_number(&admission->by_id, id, &task))
	{
		visit->changed |= taken;
		if (taken)
		{
			delete_turn(admission, visit, candidate);
			move_on(admission, source, candidate);
		}
		else
			candidate->left = true;
		return false;
	}
	(void) count_off(admission, visit, FREED_EACH);
	durable_slot_insert(durable_tables_get(&admission->tables, TABLE_SLOT), id, &gate);
	use_window(admission, visit);
	state->running++;
	state->stamp = Max(state->stamp + 1, admission->now);
	if (visit->limiter.by_key)
		state->floor = Max(state->floor, candidate->turn.position);
	candidate->key->running++;
	candidate->key->served = state->stamp;
	candidate->key->changed = visit->changed = true;
	delete_turn(admission, visit, candidate);
	move_on(admission, source, candidate);
	*queue = source->queue;
	return true;
}

/* What is in hand goes back into the tables. */
static void
close_source(DurableAdmission *admission, Source *source)
{
	Visit	   *visit = source->visit;

	for (int i = source->ncandidates - 1; i >= 0; i--)
	{
		Candidate  *candidate = source->candidates[i];

		if (!candidate->changed)
			continue;
		if (key_is_full(visit, candidate->key))
		{
			block(admission, source, candidate);
			continue;
		}
		delete_turn(admission, visit, candidate);
		durable_turn_row_insert(durable_tables_get(&admission->tables, TABLE_TURN),
								visit->limiter.id, &candidate->turn);
	}
	durable_ready_scan_close(&source->scan);
}

static void
close_visit(DurableAdmission *admission, Visit *visit)
{
	DurableTables *tables = &admission->tables;

	if (visit->freed_open)
		durable_walk_close(&visit->freed);
	if (!visit->changed)
	{
		durable_limiter_unlock(visit->limiter.id);
		return;
	}
	for (int i = 0; i < visit->nkeys; i++)
	{
		if (visit->keys[i]->changed)
			durable_key_state_write(durable_tables_get(tables, TABLE_KEY), visit->limiter.id,
									visit->state.version + 1, visit->keys[i]);
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
durable_admission_close(DurableAdmission *admission)
{
	for (int i = 0; i < admission->nsources; i++)
		close_source(admission, &admission->sources[i]);
	for (int i = 0; i < admission->nvisits; i++)
		close_visit(admission, admission->visits[i]);
	durable_probe_close(&admission->by_id);
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
durable_admission_exists(Snapshot snapshot, text *namespace, text **queues, int nqueues,
						 TimestampTz now, TimestampTz *next)
{
	int64	   *limiters;

	for (int i = 0; i < nqueues; i++)
	{
		int			n = durable_limiters_of_queue(namespace, queues[i], &limiters);

		for (int j = 0; j < n; j++)
		{
			DurableLimiterState state;
			bool		waiting = durable_turn_exists(snapshot, limiters[j], queues[i]);

			if (!waiting)
			{
				durable_limiter_state_read(limiters[j], snapshot, &state);
				waiting = state.blocked > 0 && durable_freed_exists(snapshot, limiters[j]);
			}
			if (waiting && is_free(limiters[j], now, next) &&
				is_open(limiters[j], snapshot, now, next))
				return true;
		}
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
durable_admission_window(const DurableLimiter *limiter, TimestampTz now, TimestampTz *opens_at)
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
durable_admission_windows(TimestampTz now)
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
