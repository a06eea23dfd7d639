/*-------------------------------------------------------------------------
 *
 * hooks.c
 *	  Commands on databases, roles and extensions that concern the workers.
 *
 * DROP DATABASE and its like fail while another session is connected, and the
 * server waits for autovacuum only. So before such a command our workers in that
 * database are asked to leave, and none is started until the command is over.
 * Only who may execute the command can do that. DROP EXTENSION, too, has our
 * workers leave: it locks the tables in an order of its own, and would wait for
 * steps whose work it deletes. There the hold ends with the transaction.
 *
 * Other commands are only noted; after their commit the launcher and the workers
 * look again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "base/guc.h"
#include "base/wakeup.h"
#include "base/workers.h"
#include "worker/hooks.h"

/* The command itself waits for 5 s more. */
#define PATIENCE_MS 10000
#define STEP_MS 5

static ProcessUtility_hook_type previous_utility_hook = NULL;
static object_access_hook_type previous_access_hook = NULL;

static const char *
option(List *options, const char *name)
{
	ListCell   *lc;

	foreach(lc, options)
	{
		DefElem    *element = lfirst(lc);

		if (strcmp(element->defname, name) == 0 && element->arg != NULL)
			return defGetString(element);
	}
	return NULL;
}

static bool
is_template(Oid database)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_database) GETSTRUCT(tuple))->datistemplate;
	ReleaseSysCache(tuple);
	return result;
}

/* The database that the command needs for itself, or NULL. */
static const char *
database_to_clear(Node *statement)
{
	if (IsA(statement, DropdbStmt))
		return castNode(DropdbStmt, statement)->dbname;
	if (IsA(statement, CreatedbStmt))
		return option(castNode(CreatedbStmt, statement)->options, "template");
	if (IsA(statement, RenameStmt) && castNode(RenameStmt, statement)->renameType == OBJECT_DATABASE)
		return castNode(RenameStmt, statement)->subname;
	if (IsA(statement, AlterDatabaseStmt) &&
		option(castNode(AlterDatabaseStmt, statement)->options, "tablespace") != NULL)
		return castNode(AlterDatabaseStmt, statement)->dbname;
	return NULL;
}

/* InvalidOid: there is nothing to clear, or the command will be refused. */
static Oid
find_database_to_clear(Node *statement)
{
	const char *name = database_to_clear(statement);
	Oid			database = name == NULL ? InvalidOid : get_database_oid(name, true);

	if (!OidIsValid(database) || database == MyDatabaseId)
		return InvalidOid;
	if (compat_owns_database(database, GetUserId()) ||
		(IsA(statement, CreatedbStmt) && is_template(database)))
		return database;
	return InvalidOid;
}

static bool
names_the_extension(Node *statement)
{
	ListCell   *lc;

	if (IsA(statement, AlterExtensionStmt))
		return strcmp(castNode(AlterExtensionStmt, statement)->extname, "durable") == 0;
	if (!IsA(statement, DropStmt) || castNode(DropStmt, statement)->removeType != OBJECT_EXTENSION)
		return false;
	foreach(lc, castNode(DropStmt, statement)->objects)
	{
		if (strcmp(strVal(lfirst(lc)), "durable") == 0)
			return true;
	}
	return false;
}

/* Whether the command changes this database's extension, and may. */
static bool
is_for_the_extension(Node *statement)
{
	Oid			extension;

	if (!names_the_extension(statement))
		return false;
	extension = get_extension_oid("durable", true);
	return OidIsValid(extension) && compat_owns_extension(extension, GetUserId());
}

static void
release(int code, Datum database)
{
	durable_workers_release(DatumGetObjectId(database));
}

static void
wait_until_clear(Oid database)
{
	static uint32 wait_event = 0;

	if (wait_event == 0)
		wait_event = compat_wait_event("DurableWorkersLeave");
	for (int waited = 0; durable_workers_present(database) && waited < PATIENCE_MS; waited += STEP_MS)
	{
		/* not for the latch: it may have been set for something else */
		(void) WaitLatch(MyLatch, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, STEP_MS, wait_event);
		CHECK_FOR_INTERRUPTS();
		if (waited % 1000 == 0)
			durable_workers_ask_to_leave(database, true);
	}
}

/* Anybody may change settings of his own, so only those workers leave that they
 * concern. */
static void
note_settings(Node *statement)
{
	const char *name;
	Oid			database = InvalidOid;
	Oid			role = InvalidOid;

	if (IsA(statement, AlterDatabaseSetStmt))
		name = castNode(AlterDatabaseSetStmt, statement)->dbname;
	else
	{
		AlterRoleSetStmt *set = castNode(AlterRoleSetStmt, statement);

		name = set->database;
		if (set->role != NULL)
			role = get_rolespec_oid(set->role, true);
	}
	if (name != NULL)
		database = get_database_oid(name, true);
	durable_workers_note_settings(database, role);
	/* a scheduler may be let in, or out */
	if (!OidIsValid(role) || role == BOOTSTRAP_SUPERUSERID)
		durable_workers_note_look(database);
}

/* What may let a worker connect, or keep it from it. */
static bool
concerns_connecting(Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_CreatedbStmt:
		case T_DropdbStmt:
		case T_AlterDatabaseStmt:
		case T_AlterRoleStmt:
		case T_DropRoleStmt:
			return true;
		case T_RenameStmt:
			return castNode(RenameStmt, statement)->renameType == OBJECT_DATABASE;
		case T_GrantStmt:
			return castNode(GrantStmt, statement)->objtype == OBJECT_DATABASE;
		default:
			return false;
	}
}

static void
note_command(Node *statement)
{
	if (IsA(statement, AlterDatabaseSetStmt) || IsA(statement, AlterRoleSetStmt))
		note_settings(statement);
	else if (concerns_connecting(statement))
		durable_workers_note_look(InvalidOid);
}

/* What was prepared is visible now, and its own session took the notes with it. */
static bool
is_commit_prepared(Node *statement)
{
	return IsA(statement, TransactionStmt) &&
		castNode(TransactionStmt, statement)->kind == TRANS_STMT_COMMIT_PREPARED;
}

/* Not known what it did: perhaps it created the extension. */
static void
note_commit_prepared(void)
{
	durable_wakeup_note_all();
	if (durable_background && !durable_workers_present(MyDatabaseId) &&
		OidIsValid(get_extension_oid("durable", true)))
		durable_workers_note_look(MyDatabaseId);
}

static void
run(PlannedStmt *planned, const char *query, bool read_only_tree,
	ProcessUtilityContext context, ParamListInfo params,
	QueryEnvironment *environment, DestReceiver *dest, QueryCompletion *completion)
{
	(previous_utility_hook ? previous_utility_hook : standard_ProcessUtility)
		(planned, query, read_only_tree, context, params, environment, dest, completion);
}

static void
utility(PlannedStmt *planned, const char *query, bool read_only_tree,
		ProcessUtilityContext context, ParamListInfo params,
		QueryEnvironment *environment, DestReceiver *dest, QueryCompletion *completion)
{
	Node	   *statement = planned->utilityStmt;
	volatile Oid database = find_database_to_clear(statement);
	bool		wakes = is_commit_prepared(statement);

	note_command(statement);
	if (is_for_the_extension(statement) && durable_workers_hold_here())
		wait_until_clear(MyDatabaseId);
	if (OidIsValid(database) && durable_workers_hold(database))
	{
		PG_ENSURE_ERROR_CLEANUP(release, ObjectIdGetDatum(database));
		{
			wait_until_clear(database);
			run(planned, query, read_only_tree, context, params, environment, dest, completion);
		}
		PG_END_ENSURE_ERROR_CLEANUP(release, ObjectIdGetDatum(database));
		release(0, ObjectIdGetDatum(database));
	}
	else
		run(planned, query, read_only_tree, context, params, environment, dest, completion);
	if (wakes)
		note_commit_prepared();
}

/* The workers of a database that loses the extension look, and leave. */
static void
object_access(ObjectAccessType access, Oid class, Oid object, int sub, void *arg)
{
	if (previous_access_hook)
		previous_access_hook(access, class, object, sub, arg);
	if (access == OAT_DROP && class == ExtensionRelationId)
	{
		char	   *name = get_extension_name(object);

		if (name != NULL && strcmp(name, "durable") == 0)
			durable_workers_note_look(MyDatabaseId);
	}
}

void
durable_hooks_init(void)
{
	previous_utility_hook = ProcessUtility_hook;
	ProcessUtility_hook = utility;
	previous_access_hook = object_access_hook;
	object_access_hook = object_access;
}
