#include "atomic.h"

#include <errno.h>
#include <stdlib.h>

#include "mutant.h"

uint64_t srdma_atomic_apply(const struct srdma_atomic *how, uint64_t old)
{
	if (how->kind == SRDMA_ATOMIC_FETCH_ADD)
		return old + how->swap_add;
	return old == how->compare ? how->swap_add : old;
}

int srdma_atomic_create(struct srdma_atomic_results *t, uint32_t size)
{
	*t = (struct srdma_atomic_results){ .size = size };
	t->result = calloc(size, sizeof(*t->result));
	return t->result ? 0 : -ENOMEM;
}

void srdma_atomic_destroy(struct srdma_atomic_results *t)
{
	free(t->result);
	*t = (struct srdma_atomic_results){ 0 };
}

void srdma_atomic_keep(struct srdma_atomic_results *t, uint64_t request_id,
		       uint64_t original)
{
	t->result[t->next] =
		(struct srdma_atomic_result){ request_id, original };
	t->next = (t->next + 1) % t->size;
	if (t->count < t->size)
		t->count++;
}

int srdma_atomic_find(const struct srdma_atomic_results *t, uint64_t request_id,
		      uint64_t *original)
{
	for (uint32_t i = 0; i < t->count; i++) {
		if (t->result[i].request_id != request_id &&
		    !SRDMA_MUTANT(RESULT_OF_ANOTHER))
			continue;
		*original = t->result[i].original;
		return 0;
	}
	return -ENOENT;
}
