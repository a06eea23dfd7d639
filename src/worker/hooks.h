/*-------------------------------------------------------------------------
 *
 * hooks.h
 *	  Commands on databases, roles and extensions that concern the workers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DURABLE_HOOKS_H
#define DURABLE_HOOKS_H

/* Only when the library is preloaded. */
extern void durable_hooks_init(void);

#endif							/* DURABLE_HOOKS_H */
