/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  Every difference between PostgreSQL 15 and 18 that durable meets.
 *
 * No other file looks at PG_VERSION_NUM. Each shim names the release that
 * made it necessary.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_COMPAT_H
#define DURABLE_COMPAT_H

#include "access/genam.h"
#include "access/tableam.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_proc.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "postmaster/bgworker.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/procarray.h"
#include "storage/sinvaladt.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/regproc.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 190000
#error "durable supports PostgreSQL 15 to 18"
#endif

/* 16: the varlena macros have a header of their own */
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* 16: PGDLLEXPORT says what it means to gcc too; we hide all else */
#if PG_VERSION_NUM < 160000
#undef PGDLLEXPORT
#define PGDLLEXPORT __attribute__((visibility("default")))
#endif

/* 16: PG_FUNCTION_INFO_V1 exports the function itself, not only its record */
#define DURABLE_FUNCTION(name) \
	extern PGDLLEXPORT Datum name(PG_FUNCTION_ARGS); \
	PG_FUNCTION_INFO_V1(name)

/* 16: index entries can be limited to summarizing indexes after an update */
static inline List *
compat_insert_index_tuples(ResultRelInfo *rri, TupleTableSlot *slot,
						   EState *estate, bool update, bool no_dup_error,
						   bool *conflict, List *arbiters, bool summarizing)
{
#if PG_VERSION_NUM >= 160000
	return ExecInsertIndexTuples(rri, slot, estate, update, no_dup_error,
								 conflict, arbiters, summarizing);
#else
	return ExecInsertIndexTuples(rri, slot, estate, update, no_dup_error,
								 conflict, arbiters);
#endif
}

/* 18: takes the tuple being updated, which an insert does not have */
static inline bool
compat_check_index_constraints(ResultRelInfo *rri, TupleTableSlot *slot,
							   EState *estate, ItemPointer conflict,
							   List *arbiters)
{
#if PG_VERSION_NUM >= 180000
	ItemPointerData none;

	ItemPointerSetInvalid(&none);
	return ExecCheckIndexConstraints(rri, slot, estate, conflict, &none,
									 arbiters);
#else
	return ExecCheckIndexConstraints(rri, slot, estate, conflict, arbiters);
#endif
}

/* 16: a bool became TU_UpdateIndexes */
static inline TM_Result
compat_table_update(Relation rel, ItemPointer tid, TupleTableSlot *slot,
					CommandId cid, Snapshot snapshot, bool wait,
					TM_FailureData *failure, bool *update_indexes,
					bool *summarizing)
{
	LockTupleMode lockmode;
	TM_Result	result;
#if PG_VERSION_NUM >= 160000
	TU_UpdateIndexes update;

	result = table_tuple_update(rel, tid, slot, cid, snapshot, InvalidSnapshot,
								wait, failure, &lockmode, &update);
	*update_indexes = (result == TM_Ok && update != TU_None);
	*summarizing = (result == TM_Ok && update == TU_Summarizing);
#else
	result = table_tuple_update(rel, tid, slot, cid, snapshot, InvalidSnapshot,
								wait, failure, &lockmode, update_indexes);
	*update_indexes = (result == TM_Ok && *update_indexes);
	*summarizing = false;
#endif
	return result;
}

/* 16: parsing a name can report errors softly */
static inline List *
compat_qualified_name(const char *name)
{
#if PG_VERSION_NUM >= 160000
	return stringToQualifiedNameList(name, NULL);
#else
	return stringToQualifiedNameList(name);
#endif
}

/* 16: one function checks the ACLs of every kind of object */
static inline bool
compat_may_execute(Oid function, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_aclcheck(ProcedureRelationId, function, role, ACL_EXECUTE) == ACLCHECK_OK;
#else
	return pg_proc_aclcheck(function, role, ACL_EXECUTE) == ACLCHECK_OK;
#endif
}

/* 16: one function tells who owns an object of any kind */
static inline bool
compat_owns_database(Oid database, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(DatabaseRelationId, database, role);
#else
	return pg_database_ownercheck(database, role);
#endif
}

static inline bool
compat_owns_extension(Oid extension, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(ExtensionRelationId, extension, role);
#else
	return pg_extension_ownercheck(extension, role);
#endif
}

static inline bool
compat_may_connect(Oid database, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_aclcheck(DatabaseRelationId, database, role, ACL_CONNECT) == ACLCHECK_OK;
#else
	return pg_database_aclcheck(database, role, ACL_CONNECT) == ACLCHECK_OK;
#endif
}

/* 17: a background worker may be a role that must not log in */
#if PG_VERSION_NUM >= 170000
#define COMPAT_ANY_ROLE BGWORKER_BYPASS_ROLELOGINCHECK
#else
#define COMPAT_ANY_ROLE 0
#endif

/* 17: transactions can have a timeout */
static inline void
compat_no_transaction_timeout(void)
{
#if PG_VERSION_NUM >= 170000
	SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
#endif
}

/* 18: the scan can count index searches for EXPLAIN */
static inline IndexScanDesc
compat_index_beginscan(Relation heap, Relation index, Snapshot snapshot,
					   int nkeys)
{
#if PG_VERSION_NUM >= 180000
	return index_beginscan(heap, index, snapshot, NULL, nkeys, 0);
#else
	return index_beginscan(heap, index, snapshot, nkeys, 0);
#endif
}

/* 17: a backend's number counts from 0 and is called so */
static inline PGPROC *
compat_vxid_proc(const VirtualTransactionId *vxid)
{
#if PG_VERSION_NUM >= 170000
	return vxid->procNumber == INVALID_PROC_NUMBER ? NULL : ProcNumberGetProc(vxid->procNumber);
#else
	return vxid->backendId == InvalidBackendId ? NULL : BackendIdGetProc(vxid->backendId);
#endif
}

/* 17: extensions may name their wait events */
static inline uint32
compat_wait_event(const char *name)
{
#if PG_VERSION_NUM >= 170000
	return WaitEventExtensionNew(name);
#else
	return PG_WAIT_EXTENSION;
#endif
}

#endif							/* DURABLE_COMPAT_H */
