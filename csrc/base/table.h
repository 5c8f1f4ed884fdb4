/*
 * Memory of the tables that a QP makes when it first needs them: all of it is
 * counted, and a worker may have a limit (docs/protocol.md 12). What a table
 * may grow to is the QP's own limit, and not known here.
 */
#ifndef SRDMA_TABLE_H
#define SRDMA_TABLE_H

#include <stddef.h>
#include <stdint.h>

/* All zero: nothing is used, without a limit. */
struct srdma_table_memory {
	uint64_t used, most; /* bytes; most 0: no limit */
};

/* How many entries a table of `room`, first of `first`, is to have for `need`. */
static inline uint32_t srdma_table_room(uint32_t room, uint32_t first,
					uint32_t need)
{
	if (!room)
		room = first;
	while (room < need)
		room *= 2;
	return room;
}

/* n entries, all zero; NULL: the limit, or no memory. */
void *srdma_table_take(struct srdma_table_memory *m, size_t n, size_t size);
/* Give it back, of as many entries. NULL is allowed. */
void srdma_table_give(struct srdma_table_memory *m, void *table, size_t n,
		      size_t size);

#endif
