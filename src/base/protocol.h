/*-------------------------------------------------------------------------
 *
 * protocol.h
 *	  The protocol between the engine and workers outside: which versions it
 *	  speaks, and what version 1 can do.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_PROTOCOL_H
#define DURABLE_PROTOCOL_H

/* A worker that speaks none of these is not handed anything. */
#define DURABLE_PROTOCOL_MIN 1
#define DURABLE_PROTOCOL_MAX 1

/* What a worker can do that does not say. Frozen: what comes later has to be
 * said. In order, byte by byte. */
#define DURABLE_CAPABILITIES_V1 { \
	"cancellation", "child-workflows", "continue-as-new", "entities", "priority", "queries", \
	"saga", "schedules", "search-attributes", "signals", "singleton" \
}

#endif							/* DURABLE_PROTOCOL_H */
