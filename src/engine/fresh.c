/*-------------------------------------------------------------------------
 *
 * fresh.c
 *	  Steps that are claimed by the command that dispatches them.
 *
 * A worker that hands in a decision and claims in one command often serves the step
 * that the decision asks for. Then the step need not stand in the list of ready tasks
 * in between: it would be written and deleted in one transaction. The claim takes it as
 * if it stood there, by priority and age among all others, and puts it there if it
 * comes to something else first. So nobody can tell the difference, and nothing else
 * has to know.
 *
 * No locks: nobody else sees the tasks before the transaction ends.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/memutils.h"

#include "base/names.h"
#include "engine/fresh.h"
#include "store/queue.h"
#include "store/task.h"

struct DurableFresh
{
	MemoryContext context;
	text	   *namespace;
	text	  **queues;
	int			nqueues;
	int			max;			/* the claim takes no more */
	text	   *open;			/* of the queues, the one last seen not to be paused */
	DurableFreshTask **tasks;
	int			ntasks;
	int			first;			/* those before it are done with */
	bool		sorted;
};

DurableFresh *
durable_fresh_begin(text *namespace, text **queues, int nqueues, int max)
{
	DurableFresh *fresh = palloc0(sizeof(DurableFresh));

	fresh->context = CurrentMemoryContext;
	fresh->namespace = namespace;
	fresh->queues = queues;
	fresh->nqueues = nqueues;
	fresh->max = max;
	fresh->tasks = palloc(sizeof(DurableFreshTask *) * Max(max, 1));
	return fresh;
}

/* The claim's pointer for the task's queue; NULL: it does not claim there. */
static text *
queue_of(const DurableFresh *fresh, const DurableRow *row)
{
	text	   *queue = DatumGetTextPP(row->values[TASK_QUEUE]);

	for (int i = 0; i < fresh->nqueues; i++)
	{
		if (durable_text_same(fresh->queues[i], queue))
			return fresh->queues[i];
	}
	return NULL;
}

bool
durable_fresh_offer(DurableFresh *fresh, Relation tasks, const DurableRow *row)
{
	MemoryContext before;
	DurableFreshTask *task;
	text	   *queue;

	if (fresh == NULL || fresh->ntasks == fresh->max ||
		!durable_text_same(DatumGetTextPP(row->values[TASK_NAMESPACE]), fresh->namespace))
		return false;
	queue = queue_of(fresh, row);
	if (queue == NULL || (queue != fresh->open && durable_queue_is_paused(fresh->namespace, queue)))
		return false;
	fresh->open = queue;
	before = MemoryContextSwitchTo(fresh->context);
	task = palloc(sizeof(DurableFreshTask));
	task->id = DatumGetInt64(row->values[TASK_ID]);
	task->priority = DatumGetInt32(row->values[TASK_PRIORITY]);
	task->queue = queue;
	/* the caller's values do not outlive its item */
	durable_row_copy(tasks, row, &task->row);
	MemoryContextSwitchTo(before);
	fresh->tasks[fresh->ntasks++] = task;
	fresh->sorted = false;
	return true;
}

static int
compare_tasks(const void *a, const void *b)
{
	const DurableFreshTask *x = *(DurableFreshTask *const *) a;
	const DurableFreshTask *y = *(DurableFreshTask *const *) b;

	if (x->priority != y->priority)
		return x->priority < y->priority ? 1 : -1;
	return x->id > y->id ? 1 : x->id < y->id ? -1 : 0;
}

DurableFreshTask *
durable_fresh_first(DurableFresh *fresh)
{
	if (fresh == NULL || fresh->first == fresh->ntasks)
		return NULL;
	if (!fresh->sorted)
		qsort(fresh->tasks + fresh->first, fresh->ntasks - fresh->first,
			  sizeof(DurableFreshTask *), compare_tasks);
	fresh->sorted = true;
	return fresh->tasks[fresh->first];
}

void
durable_fresh_remove_first(DurableFresh *fresh)
{
	fresh->first++;
}
