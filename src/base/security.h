/*-------------------------------------------------------------------------
 *
 * security.h
 *	  Who may do what, and acting as the extension's owner for its own SQL.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_SECURITY_H
#define DURABLE_SECURITY_H

#include "postgres.h"

#include "utils/array.h"

/* The rights that durable.grant_usage knows. */
typedef enum DurablePrivilege
{
	PRIVILEGE_START = 1 << 0,
	PRIVILEGE_SIGNAL = 1 << 1,
	PRIVILEGE_WORK = 1 << 2,
	PRIVILEGE_READ = 1 << 3,
	PRIVILEGE_MANAGE = 1 << 4
} DurablePrivilege;

extern bool durable_privilege_by_name(const char *name, DurablePrivilege *privilege);

/* The namespace's name: NULL and '' mean the session's (durable.namespace),
 * whose own default is "default". The result may be the argument itself. */
extern text *durable_namespace_resolve(text *given);

/* Whether the current role holds the privilege there. Superusers and the
 * extension's owner hold all of them everywhere. */
extern bool durable_access_has(const text *namespace, DurablePrivilege privilege);

/* Whether it is a superuser or has the rights of the extension's owner. */
extern bool durable_access_is_owner(void);

/* The namespaces, of those that anybody was granted something in, where the current role
 * holds the privilege: a text[] of n elements. */
extern ArrayType *durable_access_namespaces(DurablePrivilege privilege, int *n);

/* 42501 unless it does */
extern void durable_access_require(const text *namespace, DurablePrivilege privilege);

/* Run the extension's own SQL: owner's rights, search_path = pg_catalog. An
 * error unwinds both by itself. */
typedef struct DurableSecurity
{
	Oid			user;
	int			context;
	int			guc_level;
} DurableSecurity;

extern void durable_security_enter(DurableSecurity *saved);
/* Run a function of that role's in whoever's session: as the role, fenced in. */
extern void durable_security_become(Oid role, DurableSecurity *saved);
extern void durable_security_leave(const DurableSecurity *saved);

/* Whether dropped roles left something. */
extern bool durable_access_is_stale(void);

/* Deletes what dropped roles left; between durable_plan_begin() and _end(). */
extern uint64 durable_access_expire(void);

extern void durable_security_init(void);

#endif							/* DURABLE_SECURITY_H */
