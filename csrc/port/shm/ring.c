#include "port/shm/ring.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/prefetch.h"

static _Atomic uint32_t *word(const struct srdma_ring *ring, uint32_t at)
{
	return (_Atomic uint32_t *)(void *)(ring->base + at);
}

static uint8_t *slot(const struct srdma_ring *ring, uint32_t count)
{
	size_t stride = SRDMA_RING_SLOT_HEADER + (size_t)ring->size;

	return ring->base + SRDMA_RING_SLOTS +
	       (count & (ring->slots - 1)) * stride;
}

size_t srdma_ring_bytes(uint32_t slots, uint32_t size)
{
	return SRDMA_RING_SLOTS +
	       (size_t)slots * (SRDMA_RING_SLOT_HEADER + (size_t)size);
}

void srdma_ring_init(struct srdma_ring *ring, uint8_t *base, uint32_t slots,
		     uint32_t size)
{
	*ring = (struct srdma_ring){ .base = base,
				     .slots = slots,
				     .size = size };
}

/*
 * Read the consumer's count. Acquire: its reads of a slot happen before our
 * writes to it.
 */
static void refresh_head(struct srdma_ring *ring)
{
	uint32_t head = atomic_load_explicit(word(ring, SRDMA_RING_HEAD),
					     memory_order_acquire);

	if (ring->mine - head > ring->slots)
		ring->broken = true;
	ring->theirs = head;
}

uint8_t *srdma_ring_reserve(struct srdma_ring *ring)
{
	if (ring->mine - ring->theirs >= ring->slots)
		refresh_head(ring);
	ring->full = ring->broken || ring->mine - ring->theirs >= ring->slots;
	if (ring->full)
		return NULL;
	return slot(ring, ring->mine) + SRDMA_RING_SLOT_HEADER;
}

int srdma_ring_commit(struct srdma_ring *ring, uint32_t len)
{
	uint32_t header[2] = { len, 0 };

	if (!len || len > ring->size)
		return -EMSGSIZE;
	memcpy(slot(ring, ring->mine), header, sizeof(header));
	ring->mine++;
	return 0;
}

int srdma_ring_show(struct srdma_ring *ring)
{
	if (ring->shown == ring->mine)
		return 0;
	ring->shown = ring->mine;
	atomic_store_explicit(word(ring, SRDMA_RING_TAIL), ring->mine,
			      memory_order_release);
	return 1;
}

int srdma_ring_has_room(struct srdma_ring *ring)
{
	if (!ring->full)
		return 0;
	refresh_head(ring);
	if (!ring->broken)
		ring->full = ring->mine - ring->theirs >= ring->slots;
	return ring->broken || !ring->full;
}

static uint32_t load_tail(const struct srdma_ring *ring)
{
	return atomic_load_explicit(word(ring, SRDMA_RING_TAIL),
				    memory_order_acquire);
}

static void refresh_tail(struct srdma_ring *ring)
{
	uint32_t tail;

	if (ring->frozen)
		return;
	tail = load_tail(ring);
	if (tail - ring->mine > ring->slots)
		ring->broken = true;
	else
		ring->theirs = tail;
}

int srdma_ring_take(struct srdma_ring *ring, uint8_t *out, uint32_t cap)
{
	const uint8_t *at;
	uint32_t len;

	if (ring->theirs == ring->mine)
		refresh_tail(ring);
	if (ring->broken)
		return -EPROTO;
	if (ring->theirs == ring->mine)
		return 0;
	at = slot(ring, ring->mine);
	len = atomic_load_explicit((const _Atomic uint32_t *)(const void *)at,
				   memory_order_relaxed);
	if (!len || len > ring->size || len > cap) {
		ring->broken = true;
		return -EPROTO;
	}
	srdma_prefetch_rest(at + SRDMA_RING_SLOT_HEADER, len, 0);
	memcpy(out, at + SRDMA_RING_SLOT_HEADER, len);
	ring->mine++;
	if (ring->theirs != ring->mine) /* overlaps with the processing of
					   this one */
		srdma_prefetch_front(slot(ring, ring->mine), len, 0);
	return (int)len;
}

const uint8_t *srdma_ring_ahead(struct srdma_ring *ring, uint32_t i)
{
	if (ring->theirs == ring->mine)
		refresh_tail(ring);
	if (ring->broken || i >= ring->theirs - ring->mine)
		return NULL;
	return slot(ring, ring->mine + i) + SRDMA_RING_SLOT_HEADER;
}

/*
 * A producer that waits for room has filled all slots that the consumer's last
 * published count left free. The fence pairs with the fence of the producer's
 * doorbell: either the producer sees the new count before it sleeps, or this
 * function sees its tail and the doorbell flag.
 */
int srdma_ring_give(struct srdma_ring *ring)
{
	uint32_t before = ring->shown;

	if (before == ring->mine)
		return 0;
	ring->shown = ring->mine;
	atomic_store_explicit(word(ring, SRDMA_RING_HEAD), ring->mine,
			      memory_order_release);
	atomic_thread_fence(memory_order_seq_cst);
	return load_tail(ring) - before >= ring->slots;
}

int srdma_ring_has_data(const struct srdma_ring *ring)
{
	if (ring->broken || ring->theirs != ring->mine)
		return 1;
	return !ring->frozen && load_tail(ring) != ring->mine;
}

void srdma_ring_freeze(struct srdma_ring *ring)
{
	refresh_tail(ring);
	ring->frozen = true;
}
