/*
 * A ring in shared memory whose other end writes arbitrary bytes at any time: no
 * call reads or writes outside the ring, and a ring that broke stays unusable.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "port/shm/ring.h"

#define CHECK(x)                                                               \
	do {                                                                   \
		if (!(x))                                                      \
			abort();                                               \
	} while (0)

enum { SLOTS = 16, SIZE = 64 };

/* The fuzzer's bytes, followed by zeros. */
struct input {
	const uint8_t *at;
	size_t left;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t next(struct input *in)
{
	if (!in->left)
		return 0;
	in->left--;
	return *in->at++;
}

/* The other end writes a count near its own or any, a length, or any byte. */
static void scribble(struct input *in, uint8_t *base, uint32_t near)
{
	const size_t bytes = srdma_ring_bytes(SLOTS, SIZE);
	const size_t stride = SRDMA_RING_SLOT_HEADER + SIZE;
	const uint8_t how = next(in);
	uint32_t value = near + next(in) % (SLOTS + 2) - 1;
	size_t at = how & 4 ? SRDMA_RING_HEAD : SRDMA_RING_TAIL;

	if (how & 1)
		value = (uint32_t)next(in) << 24 | next(in);
	if (how & 2)
		at = SRDMA_RING_SLOTS + next(in) % SLOTS * stride;
	if (how & 8)
		at = (size_t)(next(in) << 8 | next(in)) % (bytes - 4);
	memcpy(base + at, &value, sizeof(value));
}

static void produce(struct srdma_ring *ring, struct input *in)
{
	const uint32_t len = next(in);
	uint8_t *slot = srdma_ring_reserve(ring);
	int r;

	if (!slot)
		return;
	CHECK(!ring->broken);
	memset(slot, 0x5a, SIZE);
	r = srdma_ring_commit(ring, len);
	CHECK(r == (len && len <= SIZE ? 0 : -EMSGSIZE));
}

static void consume(struct srdma_ring *ring, struct input *in)
{
	const uint32_t cap = 1 + next(in) % SIZE;
	const int broken = ring->broken;
	uint8_t *out = malloc(cap); /* not a byte more */
	int r;

	CHECK(out);
	r = srdma_ring_take(ring, out, cap);
	CHECK(r == -EPROTO || (r >= 0 && r <= (int)cap));
	CHECK(!broken || r == -EPROTO);
	free(out);
}

/* The hint is an address of a slot. */
static void look(struct srdma_ring *ring, struct input *in)
{
	const uint8_t *at = srdma_ring_ahead(ring, next(in));
	uint8_t copy[SIZE];

	if (at)
		memcpy(copy, at, SIZE);
}

static void step(struct srdma_ring *ring, struct input *in)
{
	switch (next(in) % 9) {
	case 0:
		produce(ring, in);
		break;
	case 1:
		srdma_ring_show(ring);
		break;
	case 2:
		srdma_ring_has_room(ring);
		break;
	case 3:
		consume(ring, in);
		break;
	case 4:
		srdma_ring_give(ring);
		break;
	case 5:
		look(ring, in);
		break;
	case 6:
		srdma_ring_has_data(ring);
		break;
	case 7:
		if (next(in) == 0)
			srdma_ring_freeze(ring);
		break;
	default:
		scribble(in, ring->base, ring->mine);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const size_t bytes = (srdma_ring_bytes(SLOTS, SIZE) + 63) / 64 * 64;
	struct input in = { data, size };
	struct srdma_ring ring;
	uint8_t *base = aligned_alloc(64, bytes);

	CHECK(base);
	memset(base, 0, bytes);
	srdma_ring_init(&ring, base, SLOTS, SIZE);
	while (in.left)
		step(&ring, &in);
	free(base);
	return 0;
}
