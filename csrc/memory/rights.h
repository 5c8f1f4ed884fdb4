/* Rights of capabilities, as access flags of regions name them. */
#ifndef SRDMA_MEMORY_RIGHTS_H
#define SRDMA_MEMORY_RIGHTS_H

#include <stdint.h>

#include "memory/memkey.h"
#include "srdma/types.h"

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
