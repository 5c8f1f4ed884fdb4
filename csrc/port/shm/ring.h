/*
 * A ring of datagrams in shared memory, one producer, one consumer, who do
 * not trust each other (docs/protocol.md 11). Each end keeps its own count
 * and the other's last checked one in private memory; what the other wrote
 * is read once, checked, and never decides an address by itself.
 */
#ifndef SRDMA_RING_H
#define SRDMA_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum srdma_ring_layout {
	SRDMA_RING_HEAD = 0,  /* consumer's count */
	SRDMA_RING_TAIL = 64, /* producer's count */
	SRDMA_RING_SLOTS = 128,
	SRDMA_RING_SLOT_HEADER = 8, /* length 4, zero 4 */
};

/* One end. Fields are private; the struct is here to be embedded. */
struct srdma_ring {
	uint8_t *base;
	uint32_t slots;	 /* a power of two */
	uint32_t size;	 /* bytes of a datagram at most */
	uint32_t mine;	 /* own count */
	uint32_t shown;	 /* own count as the other may see it */
	uint32_t theirs; /* the other's count, checked */
	bool full;	 /* producer: found no room last time */
	bool frozen;	 /* consumer: takes nothing published later */
	bool broken;	 /* the other's count was impossible */
};

/* Bytes of a ring in shared memory. */
size_t srdma_ring_bytes(uint32_t slots, uint32_t size);

/* An end of the ring at base, which is 64-byte aligned and starts zeroed. */
void srdma_ring_init(struct srdma_ring *ring, uint8_t *base, uint32_t slots,
		     uint32_t size);

/* --- producer --------------------------------------------------------- */

/* Where the next datagram goes, size bytes; NULL: full, or broken. */
uint8_t *srdma_ring_reserve(struct srdma_ring *ring);

/* Take in the reserved one. 0 or -EMSGSIZE. Not seen before show. */
int srdma_ring_commit(struct srdma_ring *ring, uint32_t len);

/*
 * Show the consumer all that was committed. Returns 1 if there was any:
 * then look at its bell.
 */
int srdma_ring_show(struct srdma_ring *ring);

/*
 * reserve failed last time, but would not now; or the ring is broken. Said
 * once: who still wants the room reserves, who does not may sleep.
 */
int srdma_ring_has_room(struct srdma_ring *ring);

/* --- consumer --------------------------------------------------------- */

/*
 * Copy the oldest datagram into out of cap bytes. Returns its length, 0 when
 * the ring is empty, -EPROTO when the producer wrote an impossible count or
 * length (the ring is of no use any more).
 */
int srdma_ring_take(struct srdma_ring *ring, uint8_t *out, uint32_t cap);

/* Where the bytes lie that the i-th take from now on gives, unless they change;
 * NULL: nothing is there yet. */
const uint8_t *srdma_ring_ahead(struct srdma_ring *ring, uint32_t i);

/*
 * Give the producer the room of what was taken. Returns 1 if it may have
 * been waiting for that: then look at its bell.
 */
int srdma_ring_give(struct srdma_ring *ring);

/* Something to take, or an error to find. */
int srdma_ring_has_data(const struct srdma_ring *ring);

/* Take only what is there now: the producer has ended. */
void srdma_ring_freeze(struct srdma_ring *ring);

#endif
