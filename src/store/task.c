/*-------------------------------------------------------------------------
 *
 * task.c
 *	  durable.task: tasks that are not settled yet.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "store/task.h"

#define GENERATED_MARK '~'
#define GENERATED_DIGITS 18

text *
durable_task_id_text(int64 id, const text *explicit_id)
{
	char		buffer[MAXINT8LEN + 2];

	if (explicit_id != NULL)
		return (text *) explicit_id;
	buffer[0] = GENERATED_MARK;
	pg_lltoa(id, buffer + 1);
	return cstring_to_text(buffer);
}

/* Exactly the form above: no sign, no leading zero, no other id reads the same. */
bool
durable_task_id_generated(const text *task_id, int64 *id)
{
	const char *digits = VARDATA_ANY(task_id);
	int			length = VARSIZE_ANY_EXHDR(task_id);
	int64		value = 0;

	if (length < 2 || length > GENERATED_DIGITS + 1 ||
		digits[0] != GENERATED_MARK || digits[1] == '0')
		return false;
	for (int i = 1; i < length; i++)
	{
		if (digits[i] < '0' || digits[i] > '9')
			return false;
		value = value * 10 + (digits[i] - '0');
	}
	*id = value;
	return true;
}

void
durable_task_open_by_id(DurableProbe *probe, Snapshot snapshot)
{
	durable_probe_open(probe, REL_TASK, IDX_TASK_PKEY, snapshot, 1);
}

void
durable_task_open_by_task_id(DurableProbe *probe, Snapshot snapshot)
{
	durable_probe_open(probe, REL_TASK, IDX_TASK_ID, snapshot, 2);
}

bool
durable_task_find_number(DurableProbe *by_id, int64 id, DurableRow *row)
{
	Datum		key = Int64GetDatum(id);

	return durable_probe_find(by_id, &key, row);
}

static bool
same_text(Datum a, const text *b)
{
	text	   *t = DatumGetTextPP(a);

	return VARSIZE_ANY_EXHDR(t) == VARSIZE_ANY_EXHDR(b) &&
		memcmp(VARDATA_ANY(t), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(b)) == 0;
}

bool
durable_task_find(DurableProbe *by_id, DurableProbe *by_task_id,
				  text *namespace, text *task_id, DurableRow *row)
{
	int64		id;

	if (durable_task_id_generated(task_id, &id))
		return durable_task_find_number(by_id, id, row) &&
			row->nulls[TASK_TASK_ID] &&
			same_text(row->values[TASK_NAMESPACE], namespace);
	else
	{
		Datum		keys[2] = {PointerGetDatum(namespace), PointerGetDatum(task_id)};

		return durable_probe_find(by_task_id, keys, row);
	}
}
