/*-------------------------------------------------------------------------
 *
 * extension_state.c
 *	  Whether this database may hand out work.
 *
 * A copy of a database must not repeat work that the original does. Creating the
 * extension writes a row that names the cluster and the database; CREATE
 * DATABASE ... TEMPLATE carries that row along, and a restored dump adds it to
 * the row of its own installation. Where the one row that names this place is
 * not the only one, claims are refused until durable.activate(). A physical
 * standby that is promoted keeps its identity: it is the same database, gone on.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/inval.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "base/extension_state.h"
#include "base/rel.h"

/* columns, from 1 */
enum
{
	IDENTITY_INSTALLATION = 1,
	IDENTITY_SYSTEM,
	IDENTITY_DATABASE
};

/* Forgotten when the table's trigger says that a row changed. */
static bool known_active = false;
static Oid	identity_table = InvalidOid;

static void
forget_identity(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == identity_table)
		known_active = false;
}

void
durable_extension_state_init(void)
{
	CacheRegisterRelcacheCallback(forget_identity, (Datum) 0);
}

int64
durable_system_identifier(void)
{
	return (int64) GetSystemIdentifier();
}

static bool
identity_matches(void)
{
	Relation	rel = durable_table_open(REL_IDENTITY, AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);
	bool		matches = false;
	int			rows = 0;

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		bool		isnull;
		int64		system = DatumGetInt64(slot_getattr(slot, IDENTITY_SYSTEM, &isnull));
		Oid			database = DatumGetObjectId(slot_getattr(slot, IDENTITY_DATABASE, &isnull));

		matches = (system == durable_system_identifier() && database == MyDatabaseId);
		rows++;
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	return matches && rows == 1;
}

bool
durable_is_active(void)
{
	if (known_active)
		return true;
	/* set first: an invalidation that arrives while reading clears it again */
	known_active = true;
	identity_table = durable_rel(REL_IDENTITY);
	if (!IsBinaryUpgrade && identity_matches())
		return true;
	known_active = false;
	return false;
}

void
durable_require_active(void)
{
	if (!durable_is_active())
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("this database is a copy and hands out no work"),
				errdetail("Its durable data was restored from a dump or written in another cluster or database."),
				errhint("If the original no longer runs this work, the owner of the extension can call durable.activate()."));
}
