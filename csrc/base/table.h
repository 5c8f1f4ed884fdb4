/*
 * Memory of the tables that a QP allocates on first use. Every byte is counted,
 * and a worker may have a limit for all its tables (docs/local-interface.md 5).
 * The limit of a single table is enforced by its QP.
 */
#ifndef SRDMA_TABLE_H
#define SRDMA_TABLE_H

#include <stddef.h>
#include <stdint.h>

/* All zero: no bytes used, no limit. */
struct srdma_table_memory {
	uint64_t used, most; /* bytes; most 0: no limit */
};

/*
 * Number of entries for a table of `room` entries that needs `need`: `room`
 * doubled as often as necessary. A table without entries starts with `first`.
 */
static inline uint32_t srdma_table_room(uint32_t room, uint32_t first,
					uint32_t need)
{
	if (!room)
		room = first;
	while (room < need)
		room *= 2;
	return room;
}

/* Allocates n zeroed entries of size bytes. NULL if the limit would be exceeded
 * or memory is exhausted. */
void *srdma_table_take(struct srdma_table_memory *m, size_t n, size_t size);
/* Frees a table that was taken with the same n and size. NULL is allowed. */
void srdma_table_give(struct srdma_table_memory *m, void *table, size_t n,
		      size_t size);

#endif
