/* Rights of regions (enum srdma_access) that concern peers, and rights of
 * capabilities. */
#ifndef SRDMA_MEMORY_RIGHTS_H
#define SRDMA_MEMORY_RIGHTS_H

#include <stdint.h>

#include "memory/memkey.h"
#include "srdma/types.h"

/* Rights of peers, and those of them that change a region. */
enum {
	SRDMA_RIGHTS_WRITTEN =
		SRDMA_ACCESS_REMOTE_WRITE | SRDMA_ACCESS_REMOTE_ATOMIC,
	SRDMA_RIGHTS_REMOTE = SRDMA_ACCESS_REMOTE_READ | SRDMA_RIGHTS_WRITTEN,
};

/* Maps remote access flags (enum srdma_access) to the rights that a capability
 * grants for them (enum srdma_memkey_right). */
static inline uint8_t srdma_rights_of(uint32_t access)
{
	uint8_t rights = 0;

	if (access & SRDMA_ACCESS_REMOTE_READ)
		rights |= SRDMA_MEMKEY_READ;
	if (access & SRDMA_ACCESS_REMOTE_WRITE)
		rights |= SRDMA_MEMKEY_WRITE;
	if (access & SRDMA_ACCESS_REMOTE_ATOMIC)
		rights |= SRDMA_MEMKEY_ATOMIC;
	return rights;
}

#endif
