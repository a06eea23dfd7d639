/*-------------------------------------------------------------------------
 *
 * convention.c
 *	  Workflows that nobody has registered, but that a live worker lists (catalogue
 *	  F-START-10).
 *
 * The worker serves the queue of the workflow's name, with '-' for ':' and "@namespace"
 * behind it, unless that is the default one. The first start registers the workflow.
 * It belongs to the role that announced the worker: that one may work in the
 * namespace, so it could have registered it itself, and has said so by listing it. The
 * role that starts gains nothing. Each later start looks again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/names.h"
#include "engine/convention.h"
#include "store/worker.h"

/* as for every name */
#define QUEUE_BYTES 255

/* NULL: there is no such queue */
static text *
queue_of(text *namespace, text *name)
{
	StringInfoData queue;

	initStringInfo(&queue);
	appendBinaryStringInfo(&queue, VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name));
	for (int i = 0; i < queue.len; i++)
	{
		if (queue.data[i] == ':')
			queue.data[i] = '-';
	}
	if (!durable_text_is(namespace, "default"))
		appendStringInfo(&queue, "@%s", text_to_cstring(namespace));
	return queue.len > QUEUE_BYTES || queue.data[0] == '#' ? NULL : cstring_to_text(queue.data);
}

/* The role of the live worker that has been there longest. */
static bool
find_worker(text *namespace, text *queue, text *name, Oid *role)
{
	DurableWorkerScan scan;
	DurableWorkerRow worker;
	TimestampTz since = DT_NOEND;
	ArrayType  *wanted = durable_set_make(&name, 1);
	bool		found = false;

	durable_worker_scan_open(&scan, namespace, queue, durable_clock_now());
	while (durable_worker_scan_next(&scan, &worker))
	{
		CHECK_FOR_INTERRUPTS();
		if (worker.first_seen >= since ||
			!durable_worker_set_has(worker.workflows, wanted) ||
			!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(worker.role)))
			continue;
		since = worker.first_seen;
		*role = worker.role;
		found = true;
	}
	durable_worker_scan_close(&scan);
	return found;
}

bool
durable_workflow_for_start(text *namespace, text *name, text *version, DurableWorkflow *workflow)
{
	bool		found = durable_workflow_find(namespace, name, version, workflow);
	text	   *queue;
	Oid			role;

	if (found ? !workflow->convention : version != NULL)
		return found;
	queue = found ? workflow->queue : queue_of(namespace, name);
	if (queue == NULL || !find_worker(namespace, queue, name, &role))
		return false;
	if (found)
		return true;
	durable_workflow_store_convention(namespace, name, role, queue);
	return durable_workflow_find(namespace, name, NULL, workflow);
}
