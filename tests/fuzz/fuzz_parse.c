/*
 * Parsers of untrusted bytes: packets, descriptors, records. An accepted input
 * must equal the bytes built from its fields.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wire/stats.h"
#include "wire/wire.h"

#define CHECK(x)                                                               \
	do {                                                                   \
		if (!(x))                                                      \
			abort();                                               \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/*
 * Equal except for bytes outside the fields: the router's byte, tag and
 * payload.
 */
static void same_datagram(const struct srdma_packet *p, uint8_t *built)
{
	const uint32_t body = p->tag_at + p->tag_len;
	const uint32_t pad = p->payload_at + p->payload_len;

	built[4] = p->data[4];
	CHECK(memcmp(built, p->data, p->tag_at) == 0);
	CHECK(memcmp(built + body, p->data + body, p->payload_at - body) == 0);
	CHECK(memcmp(built + pad, p->data + pad, p->pad) == 0);
}

static void packet(const uint8_t *data, size_t size, uint32_t tag_len,
		   uint32_t mtu)
{
	static uint8_t built[SRDMA_MAX_PACKET];
	struct srdma_packet p, q;
	int r = srdma_wire_parse(&p, data, size, tag_len, mtu);

	CHECK(r <= 0 && r >= -SRDMA_REFUSED_TAG_CODE);
	if (r)
		return;
	CHECK(p.payload_len <= mtu && p.len == size);
	CHECK(p.payload_at + p.payload_len + p.pad == size);
	q = p;
	CHECK(srdma_wire_build(&q, built, tag_len) == (int)size);
	CHECK(q.payload_at == p.payload_at && q.tag_at == p.tag_at);
	same_datagram(&p, built);
}

static void descriptor(const uint8_t *data, size_t size)
{
	/* larger than a descriptor because of atomics */
	uint8_t again[SRDMA_DESC_SLOT];
	struct srdma_desc d;

	if (srdma_desc_decode(&d, data, size))
		return;
	CHECK(d.length <= SRDMA_MAX_MESSAGE);
	CHECK(!(d.flags & SRDMA_DESC_INLINE) ||
	      d.length + SRDMA_DESC_LEN <= size);
	CHECK(d.sges * SRDMA_SGE_LEN + SRDMA_DESC_LEN <= size);
	srdma_desc_encode(again, &d);
	CHECK(memcmp(again, data, SRDMA_DESC_LEN) == 0);
}

static void record(const uint8_t *data, size_t size)
{
	uint8_t again[SRDMA_RECORD_LEN];
	struct srdma_record r;

	if (size < SRDMA_RECORD_LEN)
		return;
	srdma_record_decode(&r, data);
	srdma_record_encode(again, &r);
	CHECK(memcmp(again, data, SRDMA_RECORD_LEN) == 0);
}

/* The first byte chooses tag length and MTU. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint32_t tags[] = { 0, 12, 16, 20, 28, 32, 48, 64 };

	if (size < 1)
		return 0;
	packet(data + 1, size - 1, tags[data[0] & 7],
	       data[0] & 8 ? SRDMA_MAX_PAYLOAD : 256);
	descriptor(data + 1, size - 1);
	record(data + 1, size - 1);
	return 0;
}
