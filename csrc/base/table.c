#include "base/table.h"

#include <stdlib.h>

void *srdma_table_take(struct srdma_table_memory *m, size_t n, size_t size)
{
	const uint64_t bytes = (uint64_t)n * size;
	void *table;

	if (m->most && bytes > m->most - m->used)
		return NULL;
	table = calloc(n, size);
	if (table)
		m->used += bytes;
	return table;
}

void srdma_table_give(struct srdma_table_memory *m, void *table, size_t n,
		      size_t size)
{
	if (!table)
		return;
	m->used -= (uint64_t)n * size;
	free(table);
}
