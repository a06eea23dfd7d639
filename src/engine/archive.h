/*-------------------------------------------------------------------------
 *
 * archive.h
 *	  Calling the archive functions of retention policies.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_ENGINE_ARCHIVE_H
#define DURABLE_ENGINE_ARCHIVE_H

#include "postgres.h"

#include "engine/execute.h"

/* In a session of the policy's owner, committing as it goes. */
extern void durable_archive_execute(const DurableWorkItem *item);

#endif							/* DURABLE_ENGINE_ARCHIVE_H */
