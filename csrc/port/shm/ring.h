/*
 * A ring of datagrams in shared memory with one producer and one consumer that
 * do not trust each other (docs/local-interface.md 4). Each end keeps its own
 * count and the last validated count of the other end in private memory. A
 * value written by the other end is read once and validated before it is used
 * in an address.
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
	SRDMA_RING_SLOT_HEADER = 8, /* length 4 bytes, zero 4 bytes */
};

/*
 * One end of a ring. The fields are private; the struct is public to be
 * embedded.
 */
struct srdma_ring {
	uint8_t *base;
	uint32_t slots;	 /* a power of two */
	uint32_t size;	 /* maximum bytes of a datagram */
	uint32_t mine;	 /* count of this end */
	uint32_t shown;	 /* count of this end as published */
	uint32_t theirs; /* count of the other end, validated */
	bool full;	 /* producer: the last reserve found no room */
	bool frozen;	 /* consumer: ignores datagrams published after the
			    freeze */
	bool broken;	 /* the other end published an impossible count or
			    length */
};

/* Bytes of a ring in shared memory. */
size_t srdma_ring_bytes(uint32_t slots, uint32_t size);

/*
 * Initialize one end of the ring at base, which must be 64-byte aligned and
 * initially zero.
 */
void srdma_ring_init(struct srdma_ring *ring, uint8_t *base, uint32_t slots,
		     uint32_t size);

/* --- producer --------------------------------------------------------- */

/*
 * Returns the address of the next datagram, with room for size bytes. NULL:
 * full or broken.
 */
uint8_t *srdma_ring_reserve(struct srdma_ring *ring);

/*
 * Append the reserved datagram with len bytes. It is invisible to the consumer
 * before show. Returns 0 or -EMSGSIZE.
 */
int srdma_ring_commit(struct srdma_ring *ring, uint32_t len);

/*
 * Publish all committed datagrams. Returns 1 if there were any: then ring the
 * consumer's doorbell.
 */
int srdma_ring_show(struct srdma_ring *ring);

/*
 * Returns 1 if the last reserve failed and there is room now, or if the ring is
 * broken. Reported once per transition from full to free.
 */
int srdma_ring_has_room(struct srdma_ring *ring);

/* --- consumer --------------------------------------------------------- */

/*
 * Copy the oldest datagram into out, which has room for cap bytes. Returns its
 * length, 0 if the ring is empty, or -EPROTO if the producer wrote an
 * impossible count or length; the ring is unusable then.
 */
int srdma_ring_take(struct srdma_ring *ring, uint8_t *out, uint32_t cap);

/*
 * Prefetch hint: the address of the datagram that the i-th take from now on
 * (counted from 0) will return, as long as the producer does not change it.
 * NULL: there is no such datagram yet.
 */
const uint8_t *srdma_ring_ahead(struct srdma_ring *ring, uint32_t i);

/*
 * Publish the room of the datagrams taken. Returns 1 if the producer may be
 * waiting for room: then ring its doorbell.
 */
int srdma_ring_give(struct srdma_ring *ring);

/* 1 if take would return a datagram or an error. */
int srdma_ring_has_data(const struct srdma_ring *ring);

/*
 * Take only datagrams published so far; call this when the producer has ended.
 */
void srdma_ring_freeze(struct srdma_ring *ring);

#endif
