#include "host/id_pool.h"

#include <errno.h>
#include <stdlib.h>

struct place {
	uint64_t wr_id;
	uint32_t turn; /* how often it was used, modulo TURNS */
	uint32_t next; /* of the free ones; USED: it is not free */
};

enum { USED = UINT32_MAX - 1, END = UINT32_MAX };
enum { TURNS = 1 << 27 };

_Static_assert((UINT64_C(1) << SRDMA_ID_POOL_BITS) / SRDMA_ID_POOL_DEPTH ==
		       TURNS,
	       "numbers");

struct srdma_id_pool {
	uint32_t depth, count;
	uint32_t free; /* first free place */
	struct place places[];
};

struct srdma_id_pool *srdma_id_pool_create(uint32_t depth)
{
	struct srdma_id_pool *p =
		calloc(1, sizeof(*p) + depth * sizeof(struct place));

	if (!p)
		return NULL;
	p->depth = depth;
	for (uint32_t i = 0; i < depth; i++)
		p->places[i].next = i + 1 < depth ? i + 1 : END;
	return p;
}

void srdma_id_pool_free(struct srdma_id_pool *p)
{
	free(p);
}

int srdma_id_pool_is_full(const struct srdma_id_pool *p)
{
	return p->free == END;
}

uint32_t srdma_id_pool_count(const struct srdma_id_pool *p)
{
	return p->count;
}

uint64_t srdma_id_pool_add(struct srdma_id_pool *p, uint64_t wr_id)
{
	const uint32_t at = p->free;
	struct place *place = &p->places[at];

	p->free = place->next;
	place->next = USED;
	place->wr_id = wr_id;
	place->turn = (place->turn + 1) % TURNS;
	p->count++;
	return (uint64_t)place->turn * p->depth + at;
}

int srdma_id_pool_take(struct srdma_id_pool *p, uint64_t number,
		       uint64_t *wr_id)
{
	const uint32_t at = (uint32_t)(number % p->depth);
	struct place *place = &p->places[at];

	if (place->next != USED || number / p->depth != place->turn)
		return -ENOENT;
	*wr_id = place->wr_id;
	place->next = p->free;
	p->free = at;
	p->count--;
	return 0;
}
