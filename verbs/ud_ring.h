/* Indices of a ring. */
#ifndef VERBS_UD_RING_H
#define VERBS_UD_RING_H

#include <stdint.h>

struct ud_ring {
	uint32_t head, count, room;
};

static inline uint32_t ud_ring_at(const struct ud_ring *r, uint32_t i)
{
	return (r->head + i) % r->room;
}

static inline void ud_ring_pop(struct ud_ring *r)
{
	r->head = ud_ring_at(r, 1);
	r->count--;
}

#endif
