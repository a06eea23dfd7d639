/*-------------------------------------------------------------------------
 *
 * hop.h
 *	  From group to group along an index: the first row of each.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_STORE_HOP_H
#define DURABLE_STORE_HOP_H

#include "postgres.h"

#include "base/rel.h"

/* A group is what has the same first two columns in an index, which are texts; "major"
 * and "minor" are these columns in the table. */
typedef struct DurableHop
{
	DurableProbe probe;
	int			major;
	int			minor;
	text	   *at_major;		/* NULL: at the beginning */
	text	   *at_minor;
} DurableHop;

/* Between the two the newest snapshot is active. */
extern void durable_hop_open(DurableHop *hop, DurableRel table, DurableRel index,
							 int major, int minor);
extern void durable_hop_close(DurableHop *hop);

/* The first visible row of the next group. Its values hold until the next call, but
 * at_major and at_minor are copies in the current memory context. */
extern bool durable_hop_next(DurableHop *hop, DurableRow *row);

#endif							/* DURABLE_STORE_HOP_H */
