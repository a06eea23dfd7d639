/*-------------------------------------------------------------------------
 *
 * security.c
 *	  Who may do what, and acting as the extension's owner for its own SQL.
 *
 * What a role may do stands in durable.namespace_access; a right that was
 * granted to a role is held by its members, as with GRANT. A session caches
 * what it found per (role, namespace) and forgets it when the table or any
 * role membership changes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_collation_d.h"
#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "base/guc.h"
#include "base/names.h"
#include "base/plan.h"
#include "base/rel.h"
#include "base/security.h"

#define NAMESPACE_MAX 255

enum
{
	ACCESS_NAMESPACE = 1,
	ACCESS_ROLE,
	ACCESS_PRIVILEGES
};

static const struct
{
	const char *name;
	DurablePrivilege bit;
}			privilege_names[] = {
	{"start", PRIVILEGE_START},
	{"signal", PRIVILEGE_SIGNAL},
	{"work", PRIVILEGE_WORK},
	{"read", PRIVILEGE_READ},
	{"manage", PRIVILEGE_MANAGE},
};

typedef struct CacheKey
{
	Oid			role;
	char		namespace[NAMESPACE_MAX + 1];
} CacheKey;

typedef struct CacheEntry
{
	CacheKey	key;
	int			privileges;		/* bits */
} CacheEntry;

static HTAB *cache = NULL;
static bool cache_valid = false;
static Oid	cached_table = InvalidOid;	/* namespace_access when it was read */

static void
forget_role_access(Datum arg, int cacheid, uint32 hashvalue)
{
	cache_valid = false;
}

static void
forget_table_access(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == cached_table)
		cache_valid = false;
}

void
durable_security_init(void)
{
	CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, forget_role_access, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHOID, forget_role_access, (Datum) 0);
	CacheRegisterRelcacheCallback(forget_table_access, (Datum) 0);
}

text *
durable_namespace_resolve(text *given)
{
	if (given != NULL && VARSIZE_ANY_EXHDR(given) > 0)
		return given;
	if (durable_namespace != NULL && durable_namespace[0] != '\0')
		return cstring_to_text(durable_namespace);
	return cstring_to_text("default");
}

bool
durable_privilege_by_name(const char *name, DurablePrivilege *privilege)
{
	for (int p = 0; p < lengthof(privilege_names); p++)
	{
		if (strcmp(name, privilege_names[p].name) == 0)
		{
			*privilege = privilege_names[p].bit;
			return true;
		}
	}
	return false;
}

static int
privilege_bits(ArrayType *names)
{
	Datum	   *elements;
	int			count;
	int			bits = 0;

	deconstruct_array(names, TEXTOID, -1, false, TYPALIGN_INT, &elements, NULL, &count);
	for (int i = 0; i < count; i++)
	{
		DurablePrivilege privilege;

		if (durable_privilege_by_name(TextDatumGetCString(elements[i]), &privilege))
			bits |= privilege;
	}
	return bits;
}

/* What the table says; needs no privilege on it. */
static int
read_privileges(Oid role, const text *namespace)
{
	Relation	rel = durable_table_open(REL_NAMESPACE_ACCESS, AccessShareLock);
	/* a parallel query may take no new snapshot; row security runs in it */
	Snapshot	snapshot = RegisterSnapshot(IsInParallelMode() ?
											GetActiveSnapshot() : GetLatestSnapshot());
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	int			bits = 0;

	if (superuser_arg(role) || has_privs_of_role(role, rel->rd_rel->relowner))
		bits = ~0;
	ScanKeyInit(&key, ACCESS_NAMESPACE, BTEqualStrategyNumber, F_TEXTEQ,
				PointerGetDatum(namespace));
	scan = systable_beginscan(rel, durable_rel(IDX_ACCESS_PKEY), true, snapshot, 1, &key);
	while (bits != ~0 && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		isnull;
		Oid			grantee = DatumGetObjectId(heap_getattr(tuple, ACCESS_ROLE,
															RelationGetDescr(rel), &isnull));
		Datum		names = heap_getattr(tuple, ACCESS_PRIVILEGES,
										 RelationGetDescr(rel), &isnull);

		if (SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(grantee)) &&
			has_privs_of_role(role, grantee))
			bits |= privilege_bits(DatumGetArrayTypeP(names));
	}
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	return bits;
}

static void
reset_cache(void)
{
	HASHCTL		control = {
		.keysize = sizeof(CacheKey),
		.entrysize = sizeof(CacheEntry),
		.hcxt = TopMemoryContext,
	};

	if (cache != NULL)
		hash_destroy(cache);
	cache = hash_create("durable namespace access", 16, &control,
						HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	cache_valid = true;
	cached_table = durable_rel(REL_NAMESPACE_ACCESS);
}

bool
durable_access_has(const text *namespace, DurablePrivilege privilege)
{
	int			length = VARSIZE_ANY_EXHDR(namespace);
	CacheKey	key = {0};
	CacheEntry *entry;
	bool		found;
	int			bits;

	if (length > NAMESPACE_MAX)
		return false;
	if (!cache_valid || cache == NULL)
		reset_cache();
	key.role = GetUserId();
	memcpy(key.namespace, VARDATA_ANY(namespace), length);
	entry = hash_search(cache, &key, HASH_FIND, &found);
	if (found)
		return (entry->privileges & privilege) != 0;

	/* reading may process invalidations, and a parallel query reads with a
	 * snapshot that may be older than the last of them */
	bits = read_privileges(key.role, namespace);
	if (cache_valid && !IsInParallelMode())
	{
		entry = hash_search(cache, &key, HASH_ENTER, &found);
		entry->privileges = bits;
	}
	return (bits & privilege) != 0;
}

bool
durable_access_is_owner(void)
{
	Relation	rel = durable_table_open(REL_NAMESPACE_ACCESS, AccessShareLock);
	bool		owner = superuser() || has_privs_of_role(GetUserId(), rel->rd_rel->relowner);

	table_close(rel, AccessShareLock);
	return owner;
}

ArrayType *
durable_access_namespaces(DurablePrivilege privilege, int *n)
{
	Relation	rel = durable_table_open(REL_NAMESPACE_ACCESS, AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	SysScanDesc scan = systable_beginscan(rel, durable_rel(IDX_ACCESS_PKEY), true, snapshot, 0, NULL);
	ArrayBuildState *found = initArrayResult(TEXTOID, CurrentMemoryContext, false);
	text	   *last = NULL;
	HeapTuple	tuple;

	*n = 0;
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		isnull;
		Datum		value = heap_getattr(tuple, ACCESS_NAMESPACE, RelationGetDescr(rel), &isnull);
		text	   *namespace = DatumGetTextPCopy(value);

		if (last != NULL && durable_text_same(namespace, last))
			continue;
		last = namespace;
		if (!durable_access_has(namespace, privilege))
			continue;
		found = accumArrayResult(found, PointerGetDatum(namespace), false, TEXTOID, CurrentMemoryContext);
		(*n)++;
	}
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	return DatumGetArrayTypeP(makeArrayResult(found, CurrentMemoryContext));
}

static const char *
privilege_name(DurablePrivilege privilege)
{
	for (int p = 0; p < lengthof(privilege_names); p++)
	{
		if (privilege_names[p].bit == privilege)
			return privilege_names[p].name;
	}
	return "?";
}

void
durable_access_require(const text *namespace, DurablePrivilege privilege)
{
	/* a transaction that holds its locks already would not hear of a revoke */
	AcceptInvalidationMessages();
	if (!durable_access_has(namespace, privilege))
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				errmsg("permission denied for namespace \"%s\"",
					   text_to_cstring(namespace)),
				errdetail("The role \"%s\" does not hold the privilege \"%s\" there.",
						  GetUserNameFromId(GetUserId(), false),
						  privilege_name(privilege)),
				errhint("The extension's owner can grant it with durable.grant_usage."));
}

static Oid
extension_owner(void)
{
	Relation	rel = durable_table_open(REL_TASK, AccessShareLock);
	Oid			owner = rel->rd_rel->relowner;

	table_close(rel, AccessShareLock);
	return owner;
}

static void
switch_to(Oid role, int context, DurableSecurity *saved)
{
	GetUserIdAndSecContext(&saved->user, &saved->context);
	saved->guc_level = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp",
							 PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	SetUserIdAndSecContext(role, saved->context | context);
}

void
durable_security_enter(DurableSecurity *saved)
{
	switch_to(extension_owner(), SECURITY_LOCAL_USERID_CHANGE, saved);
}

void
durable_security_become(Oid role, DurableSecurity *saved)
{
	switch_to(role, SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION, saved);
}

void
durable_security_leave(const DurableSecurity *saved)
{
	AtEOXact_GUC(false, saved->guc_level);
	SetUserIdAndSecContext(saved->user, saved->context);
}

bool
durable_access_is_stale(void)
{
	Relation	rel = durable_table_open(REL_NAMESPACE_ACCESS, AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, snapshot, 0, NULL);
	HeapTuple	tuple;
	bool		stale = false;

	while (!stale && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		isnull;
		Datum		grantee = heap_getattr(tuple, ACCESS_ROLE, RelationGetDescr(rel), &isnull);

		stale = !SearchSysCacheExists1(AUTHOID, grantee);
	}
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	return stale;
}

/* A new role may get the number of a dropped one. */
static DurablePlan expire_plan = {
	.name = "expire namespace access",
	.sql =
	"DELETE FROM durable.namespace_access a WHERE NOT EXISTS ("
	" SELECT FROM pg_catalog.pg_roles r WHERE r.oid OPERATOR(pg_catalog.=) a.role)",
};

uint64
durable_access_expire(void)
{
	return durable_plan_run(&expire_plan, NULL, NULL);
}
