#include "responder/atomic.h"

#include <errno.h>
#include <string.h>

enum { FIRST_ROOM = 16 };

void srdma_atomic_create(struct srdma_atomic_results *t,
			 struct srdma_table_memory *memory, uint32_t size)
{
	*t = (struct srdma_atomic_results){ .memory = memory, .size = size };
}

/* The ring has its full size before it wraps, so a growing ring has its results
 * at [0, count). */
int srdma_atomic_make_room(struct srdma_atomic_results *t, uint32_t n)
{
	const uint32_t all = t->count + n < t->size ? t->count + n : t->size;
	uint32_t room = srdma_table_room(t->room, FIRST_ROOM, all);
	struct srdma_atomic_result *result;

	if (all <= t->room)
		return 0;
	if (room > t->size)
		room = t->size;
	result = srdma_table_take(t->memory, room, sizeof(*result));
	if (!result)
		return -ENOMEM;
	if (t->count)
		memcpy(result, t->result, t->count * sizeof(*result));
	srdma_table_give(t->memory, t->result, t->room, sizeof(*result));
	t->result = result;
	t->room = room;
	return 0;
}

void srdma_atomic_destroy(struct srdma_atomic_results *t)
{
	srdma_table_give(t->memory, t->result, t->room, sizeof(*t->result));
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
		if (t->result[i].request_id != request_id)
			continue;
		*original = t->result[i].original;
		return 0;
	}
	return -ENOENT;
}
