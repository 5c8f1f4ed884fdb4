#include "wire/wire.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/pair.h"
#include "wire/stats.h"

enum { TAG = 16, MTU = 4096 };

/* Parses a copy that fills its allocation exactly, for ASan. */
static int parse(struct srdma_packet *p, const uint8_t *data, size_t len,
		 uint32_t tag_len, uint32_t mtu)
{
	uint8_t *copy = malloc(len + !len);
	int r;

	assert_non_null(copy);
	memcpy(copy, data, len);
	r = srdma_wire_parse(p, copy, len, tag_len, mtu);
	free(copy);
	return r;
}

/* Compares the fields that are on the wire. */
static void assert_same(const struct srdma_packet *a,
			const struct srdma_packet *b)
{
	const uint32_t t = srdma_wire_traits(a->opcode);

	assert_int_equal(a->opcode, b->opcode);
	assert_int_equal(a->qpn, b->qpn);
	assert_int_equal(a->psn, b->psn);
	assert_int_equal(a->epoch, b->epoch);
	assert_int_equal(a->request_id & 0xffffff, b->request_id);
	assert_int_equal(a->offset, b->offset);
	assert_int_equal(a->flags, b->flags);
	assert_int_equal(a->depth, b->depth);
	assert_int_equal(a->expiry, b->expiry);
	assert_memory_equal(a->proof, b->proof, sizeof(a->proof));
	assert_int_equal(a->payload_len, b->payload_len);
	assert_int_equal(a->payload_at, b->payload_at);
	assert_int_equal(a->tag_at, b->tag_at);
	assert_memory_equal(&a->ack, &b->ack,
			    offsetof(struct srdma_ack_body, gap) +
				    a->ack.gaps * sizeof(*a->ack.gap));
	if (t & (SRDMA_T_RETH | SRDMA_T_ATOMIC_ETH)) {
		assert_int_equal(a->va, b->va);
		assert_int_equal(a->rkey, b->rkey);
	}
	if (t & SRDMA_T_RETH)
		assert_int_equal(a->dma_len, b->dma_len);
	if (t & SRDMA_T_ATOMIC_ETH) {
		assert_int_equal(a->swap_add, b->swap_add);
		assert_int_equal(a->compare, b->compare);
	}
	if (t & SRDMA_T_ATOMIC_ACK_ETH)
		assert_int_equal(a->original, b->original);
	if (t & (SRDMA_T_IMM | SRDMA_T_IETH))
		assert_int_equal(a->imm, b->imm);
}

/* Every opcode and variant with every tag length parses to what was built. */
static void test_built_packets_parse(void **state)
{
	static const uint32_t tags[] = { 0, 12, 16, 20, 28, 32, 48, 64 };
	uint8_t out[SRDMA_MAX_PACKET];
	unsigned seen = 0;

	(void)state;
	for (unsigned i = 0; i < SAMPLES * 8; i++) {
		struct srdma_packet p, q;
		int len;

		if (!sample_at(i / 8, &p))
			continue;
		seen |= 1u << p.opcode;
		p.qpn = 0xabcdef;
		p.psn = 0x123456;
		p.epoch = 2;
		memset(out, 0xee, sizeof(out));
		len = srdma_wire_build(&p, out, tags[i % 8]);
		assert_in_range(len, 20, SRDMA_MAX_PACKET);
		assert_int_equal(len % 4, 0);
		assert_int_equal(parse(&q, out, (size_t)len, tags[i % 8], MTU),
				 0);
		assert_same(&p, &q);
		assert_int_equal(srdma_wire_qpn(out, (size_t)len), 0xabcdef);
	}
	assert_int_equal(seen, 0xdfffff); /* 0x00..0x14, 0x16, 0x17 */
}

/* Header lengths of table 2.2, with a tag of 16 bytes and no proof. */
static void test_header_lengths(void **state)
{
	static const struct {
		uint8_t opcode;
		uint32_t payload_at;
	} rows[] = {
		{ 0x00, 36 }, { 0x01, 36 }, { 0x02, 36 }, { 0x03, 40 },
		{ 0x04, 36 }, { 0x05, 40 }, { 0x06, 52 }, { 0x07, 36 },
		{ 0x08, 36 }, { 0x09, 40 }, { 0x0a, 52 }, { 0x0b, 56 },
		{ 0x0c, 52 }, { 0x0d, 40 }, { 0x0e, 36 }, { 0x0f, 40 },
		{ 0x10, 40 }, { 0x11, 68 }, { 0x12, 48 }, { 0x13, 64 },
		{ 0x14, 64 }, { 0x16, 40 }, { 0x17, 40 },
	};
	uint8_t out[SRDMA_MAX_PACKET];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct srdma_packet p;

		assert_true(sample_at(rows[i].opcode * SAMPLE_VARIANTS, &p));
		assert_true(srdma_wire_build(&p, out, TAG) > 0);
		assert_int_equal(p.payload_at, rows[i].payload_at);
	}
}

/* The longest packet fits into SRDMA_MAX_PACKET. */
static void test_longest_packet(void **state)
{
	uint8_t out[SRDMA_MAX_PACKET];

	(void)state;
	for (unsigned i = 0; i < SAMPLES; i++) {
		struct srdma_packet p;
		int len;

		if (!sample_at(i, &p))
			continue;
		if (p.payload_len)
			p.payload_len = SRDMA_MAX_PAYLOAD;
		len = srdma_wire_build(&p, out, SRDMA_MAX_TAG);
		assert_in_range(len, 1, SRDMA_MAX_PACKET);
		assert_true(p.payload_at <= SRDMA_MAX_HEADER);
	}
}

/* sample packets that the table below changes */
enum sample {
	WRITE_ONLY = SRDMA_OP_WRITE_ONLY * SAMPLE_VARIANTS,
	WRITE_PROOF = WRITE_ONLY + 2,
	WRITE_MIDDLE = SRDMA_OP_WRITE_MIDDLE * SAMPLE_VARIANTS,
	SEND_ONLY = SRDMA_OP_SEND_ONLY * SAMPLE_VARIANTS,
	READ = SRDMA_OP_READ_REQUEST * SAMPLE_VARIANTS,
	READ_PROOF = READ + 2,
	RESPONSE = SRDMA_OP_READ_RESPONSE_ONLY * SAMPLE_VARIANTS,
	ACK_OPEN = SRDMA_OP_ACKNOWLEDGE * SAMPLE_VARIANTS,
	ACK_CLOSE = ACK_OPEN + 2,
	ACK_ACK = ACK_OPEN + 3,
	ACK_NAK = ACK_OPEN + 4,
	ACK_RNR = ACK_OPEN + 5,
	ACK_GAP = ACK_OPEN + 9,
	ACK_GAPS = ACK_OPEN + 15,
	FETCH_ADD = SRDMA_OP_FETCH_ADD * SAMPLE_VARIANTS,
	ATOMIC_ACK = SRDMA_OP_ATOMIC_ACKNOWLEDGE * SAMPLE_VARIANTS,
};

/* Every refusal of 2.5: a legal packet with one byte or its length changed. */
static const struct bend {
	unsigned sample;
	int at; /* -1: no byte */
	uint8_t value;
	int grow; /* bytes added or, if negative, removed */
	int refusal;
} bends[] = {
	{ SEND_ONLY, -1, 0, -25, SRDMA_REFUSED_SHORT },	 /* 19 bytes */
	{ WRITE_ONLY, -1, 0, -25, SRDMA_REFUSED_SHORT }, /* in the RETH */
	{ WRITE_ONLY, -1, 0, -9, SRDMA_REFUSED_SHORT },	 /* in the tag */
	{ WRITE_PROOF, -1, 0, -9, SRDMA_REFUSED_SHORT },
	{ FETCH_ADD, -1, 0, -1, SRDMA_REFUSED_SHORT },
	{ ACK_ACK, -1, 0, -1, SRDMA_REFUSED_SHORT }, /* in the body */
	{ ACK_ACK, -1, 0, -28, SRDMA_REFUSED_SHORT },
	{ ACK_GAP, -1, 0, -1, SRDMA_REFUSED_SHORT }, /* in a gap */
	/* announces a gap that does not follow */
	{ ACK_ACK, 42, 1, 0, SRDMA_REFUSED_SHORT },
	{ SEND_ONLY, 0, 0x15, 0, SRDMA_REFUSED_OPCODE },
	{ SEND_ONLY, 0, 0x18, 0, SRDMA_REFUSED_OPCODE },
	{ SEND_ONLY, 0, 0xff, 0, SRDMA_REFUSED_OPCODE },
	{ SEND_ONLY, 0, 0x24, 0, SRDMA_REFUSED_OPCODE }, /* UC */
	{ SEND_ONLY, 1, 0xb0, 0, SRDMA_REFUSED_HEADER }, /* SE */
	{ SEND_ONLY, 1, 0x70, 0, SRDMA_REFUSED_HEADER }, /* M */
	{ SEND_ONLY, 1, 0x31, 0, SRDMA_REFUSED_HEADER }, /* TVer */
	{ SEND_ONLY, 2, 0x7f, 0, SRDMA_REFUSED_HEADER }, /* P_Key */
	{ SEND_ONLY, 3, 0xfe, 0, SRDMA_REFUSED_HEADER },
	{ SEND_ONLY, 8, 0xa0, 0, SRDMA_REFUSED_HEADER }, /* AckReq */
	{ SEND_ONLY, 8, 0x21, 0, SRDMA_REFUSED_HEADER }, /* reserved */
	{ SEND_ONLY, 8, 0x22, 0, SRDMA_REFUSED_HEADER },
	{ SEND_ONLY, 8, 0x00, 0, SRDMA_REFUSED_TAG_CODE }, /* no tag */
	{ SEND_ONLY, 8, 0x10, 0, SRDMA_REFUSED_TAG_CODE },
	{ SEND_ONLY, 8, 0x30, 0, SRDMA_REFUSED_TAG_CODE },
	{ SEND_ONLY, 8, 0x70, 0, SRDMA_REFUSED_TAG_CODE },
	{ SEND_ONLY, 15, 0x01, 0, SRDMA_REFUSED_OPCODE }, /* undefined flag */
	{ SEND_ONLY, 15, 0x10, 0, SRDMA_REFUSED_OPCODE }, /* B */
	{ RESPONSE, 19, 0x10, 0, SRDMA_REFUSED_OPCODE },
	{ ACK_ACK, 19, 0x08, 0, SRDMA_REFUSED_OPCODE },
	{ WRITE_ONLY, 31, 0x40, 0, SRDMA_REFUSED_OPCODE }, /* H without P */
	{ SEND_ONLY, 15, 0x80, 24, SRDMA_REFUSED_OPCODE }, /* P on SEND */
	{ RESPONSE, 19, 0x80, 24, SRDMA_REFUSED_OPCODE },
	{ ACK_ACK, 19, 0x80, 24, SRDMA_REFUSED_OPCODE },
	/* reserved bytes of the proof */
	{ READ_PROOF, 37, 1, 0, SRDMA_REFUSED_HEADER },
	{ READ_PROOF, 38, 1, 0, SRDMA_REFUSED_HEADER },
	{ READ_PROOF, 39, 1, 0, SRDMA_REFUSED_HEADER },
	{ WRITE_MIDDLE, 1, 0x00, -8, SRDMA_REFUSED_LENGTH }, /* empty MIDDLE */
	{ READ, -1, 0, 4, SRDMA_REFUSED_LENGTH },   /* READ with payload */
	{ READ, 1, 0x10, 0, SRDMA_REFUSED_LENGTH }, /* pad beyond the end */
	{ READ, 1, 0x30, 4, SRDMA_REFUSED_LENGTH },
	{ ACK_ACK, -1, 0, 4, SRDMA_REFUSED_LENGTH },
	{ FETCH_ADD, -1, 0, 4, SRDMA_REFUSED_LENGTH },
	{ SEND_ONLY, -1, 0, 4092, SRDMA_REFUSED_LENGTH }, /* 4,097 bytes */
	{ SEND_ONLY, -1, 0, 100000, SRDMA_REFUSED_LENGTH },
	{ SEND_ONLY, -1, 0, 1, SRDMA_REFUSED_PAD },
	{ SEND_ONLY, -1, 0, -1, SRDMA_REFUSED_PAD },
	{ SEND_ONLY, 41, 1, 0, SRDMA_REFUSED_PAD }, /* pad byte */
	{ SEND_ONLY, 43, 0x80, 0, SRDMA_REFUSED_PAD },
	{ ACK_ACK, 40, 0, 0, SRDMA_REFUSED_ACK_BODY }, /* kind */
	{ ACK_ACK, 40, 7, 0, SRDMA_REFUSED_ACK_BODY },
	{ ACK_ACK, 41, 1, 0, SRDMA_REFUSED_ACK_BODY },	/* reason of an ACK */
	{ ACK_NAK, 41, 0, 0, SRDMA_REFUSED_ACK_BODY },	/* NAK without reason */
	{ ACK_NAK, 41, 18, 0, SRDMA_REFUSED_ACK_BODY }, /* undefined */
	{ ACK_RNR, 41, 21, 0, SRDMA_REFUSED_ACK_BODY }, /* reason of an RNR */
	{ ATOMIC_ACK, -1, 0, 4, SRDMA_REFUSED_LENGTH },
	{ ATOMIC_ACK, 12, 0x60, 0, SRDMA_REFUSED_HEADER },
	{ ACK_NAK, 41, 20, 0, SRDMA_REFUSED_ACK_BODY }, /* for CLOSE only */
	{ ACK_NAK, 41, 255, 0, SRDMA_REFUSED_ACK_BODY },
	{ ACK_CLOSE, 41, 0, 0, SRDMA_REFUSED_ACK_BODY },
	{ ACK_CLOSE, 41, 1, 0, SRDMA_REFUSED_ACK_BODY },  /* for NAK only */
	{ ACK_CLOSE, 41, 40, 0, SRDMA_REFUSED_ACK_BODY }, /* local reason */
	{ ACK_ACK, 42, 9, 0, SRDMA_REFUSED_ACK_BODY },	  /* number of gaps */
	{ ACK_ACK, 43, 1, 0, SRDMA_REFUSED_ACK_BODY },	  /* reserved byte */
	/* differs from the STH's id */
	{ ACK_ACK, 47, 0, 0, SRDMA_REFUSED_ACK_BODY },
	/* differs from its offset */
	{ ACK_ACK, 51, 0, 0, SRDMA_REFUSED_ACK_BODY },
	{ ACK_NAK, 64, 1, 0, SRDMA_REFUSED_ACK_BODY }, /* path */
	{ ACK_NAK, 67, 1, 0, SRDMA_REFUSED_ACK_BODY },
	{ ACK_CLOSE, 64, 0x80, 0, SRDMA_REFUSED_ACK_BODY },
	{ ACK_CLOSE, 67, 1, 0, SRDMA_REFUSED_ACK_BODY },
	{ ACK_GAP, 79, 0, 0, SRDMA_REFUSED_ACK_BODY }, /* empty gap */
	/* empty gap of ids */
	{ ACK_GAPS, 79 + 7 * 12, 0, 0, SRDMA_REFUSED_ACK_BODY },
	/* before the position */
	{ ACK_GAP, 68, 0xff, 0, SRDMA_REFUSED_ACK_BODY },
	{ ACK_GAP, 71, (uint8_t)PAIR_NEXT_ID, 0,
	  SRDMA_REFUSED_ACK_BODY }, /* the same request, before its offset */
	{ ACK_GAP, 76, 0x40, 0, SRDMA_REFUSED_ACK_BODY }, /* above 2^30 */
	{ ACK_GAP, 72, 0x40, 0, SRDMA_REFUSED_ACK_BODY },
	{ ACK_GAPS, 75 + 12, 49, 0, SRDMA_REFUSED_ACK_BODY }, /* overlap */
	{ ACK_GAPS, 78, 1, 0, SRDMA_REFUSED_ACK_BODY },
	{ RESPONSE, 12, 0x1e, 0, SRDMA_REFUSED_HEADER }, /* syndrome */
	{ RESPONSE, 15, 0x00, 0, SRDMA_REFUSED_HEADER }, /* MSN */
	{ ACK_OPEN, 12, 0x20, 0, SRDMA_REFUSED_HEADER },
	{ ACK_RNR, 12, 0x1f, 0, SRDMA_REFUSED_HEADER },
	/* this reason needs syndrome 0x62 */
	{ ACK_NAK, 12, 0x61, 0, SRDMA_REFUSED_HEADER },
	{ ACK_ACK, 40, SRDMA_ACK_RNR, 0, SRDMA_REFUSED_HEADER },
};

/* RFC 5042 R6.4-1 */
static void test_changed_packets_are_refused(void **state)
{
	const size_t room = SRDMA_MAX_PACKET + 100000;
	uint8_t *out = malloc(room);
	unsigned reached = 0;

	(void)state;
	assert_non_null(out);
	for (size_t i = 0; i < sizeof(bends) / sizeof(bends[0]); i++) {
		const struct bend *b = &bends[i];
		struct srdma_packet p;
		int len, r;

		assert_true(sample_at(b->sample, &p));
		memset(out, 0, room);
		len = srdma_wire_build(&p, out, TAG);
		assert_int_equal(parse(&p, out, (size_t)len, TAG, MTU), 0);
		if (b->at >= 0)
			out[b->at] = b->value;
		r = parse(&p, out, (size_t)(len + b->grow), TAG, MTU);
		if (r != -b->refusal)
			print_error("row %zu\n", i);
		assert_int_equal(r, -b->refusal);
		reached |= 1u << b->refusal;
	}
	/* every result of the parser was reached */
	for (int r = SRDMA_REFUSED_SHORT; r <= SRDMA_REFUSED_TAG_CODE; r++)
		reached &= ~(1u << r);
	assert_int_equal(reached, 0);
	free(out);
}

/* A truncated packet never parses with the full payload length. */
/* review A10 */
static void test_truncated_packets(void **state)
{
	uint8_t out[SRDMA_MAX_PACKET] = { 0 }; /* the payload too */

	(void)state;
	for (unsigned i = 0; i < SAMPLES; i++) {
		struct srdma_packet p;
		int len;

		if (!sample_at(i, &p))
			continue;
		len = srdma_wire_build(&p, out, TAG);
		for (int cut = 0; cut < len; cut++) {
			struct srdma_packet q;

			if (parse(&q, out, (size_t)cut, TAG, MTU) == 0)
				assert_true(q.payload_len < p.payload_len);
		}
	}
}

/* The bytes behind a truncated packet have no effect. */
/* review A10 */
static void test_bytes_behind_packet_are_not_read(void **state)
{
	uint8_t out[SRDMA_MAX_PACKET] = { 0 }, behind[SRDMA_MAX_PACKET];

	(void)state;
	for (unsigned i = 0; i < SAMPLES; i++) {
		struct srdma_packet p;
		int len;

		if (!sample_at(i, &p))
			continue;
		len = srdma_wire_build(&p, out, TAG);
		for (size_t cut = 0; cut < (size_t)len; cut++) {
			struct srdma_packet q;

			memset(behind, 0xff, sizeof(behind));
			memcpy(behind, out, cut);
			assert_int_equal(
				srdma_wire_parse(&q, behind, cut, TAG, MTU),
				parse(&q, out, cut, TAG, MTU));
		}
	}
}

static void test_payload_exceeding_mtu_is_refused(void **state)
{
	uint8_t out[SRDMA_MAX_PACKET];
	struct srdma_packet p = { .opcode = SRDMA_OP_SEND_ONLY,
				  .payload_len = 256 };
	int len;

	(void)state;
	len = srdma_wire_build(&p, out, TAG);
	assert_int_equal(parse(&p, out, (size_t)len, TAG, 256), 0);
	p.payload_len = 257;
	len = srdma_wire_build(&p, out, TAG);
	memset(out + p.payload_at, 1, p.payload_len);
	assert_int_equal(parse(&p, out, (size_t)len, TAG, 256),
			 -SRDMA_REFUSED_LENGTH);
	assert_int_equal(parse(&p, out, (size_t)len, TAG, 257), 0);
}

/* The byte that routers change is not checked. */
static void test_router_byte_is_not_checked(void **state)
{
	uint8_t out[SRDMA_MAX_PACKET];
	struct srdma_packet p;

	(void)state;
	assert_true(sample_at(WRITE_ONLY, &p));
	for (int v = 0; v < 256; v++) {
		int len = srdma_wire_build(&p, out, TAG);

		out[4] = (uint8_t)v;
		assert_int_equal(parse(&p, out, (size_t)len, TAG, MTU), 0);
	}
}

static void test_illegal_packets_are_not_built(void **state)
{
	static const struct srdma_packet rows[] = {
		{ .opcode = 0x15 },
		{ .opcode = 0xff },
		{ .opcode = SRDMA_OP_SEND_FIRST }, /* empty */
		{ .opcode = SRDMA_OP_SEND_ONLY, .payload_len = 4097 },
		{ .opcode = SRDMA_OP_SEND_ONLY, .payload_len = UINT32_MAX },
		{ .opcode = SRDMA_OP_READ_REQUEST, .payload_len = 1 },
		{ .opcode = SRDMA_OP_SEND_ONLY, .flags = SRDMA_STH_PROOF },
		{ .opcode = SRDMA_OP_WRITE_ONLY, .flags = SRDMA_STH_HOLDER },
		{ .opcode = SRDMA_OP_WRITE_ONLY, .flags = 0x01 },
		{ .opcode = SRDMA_OP_ACKNOWLEDGE }, /* no kind */
		{ .opcode = SRDMA_OP_ACKNOWLEDGE,
		  .ack = { .kind = SRDMA_ACK_ACK, .gaps = 9 } },
		{ .opcode = SRDMA_OP_ACKNOWLEDGE,
		  .ack = { .kind = SRDMA_ACK_ACK, .request_id = 1 } },
		{ .opcode = SRDMA_OP_ACKNOWLEDGE,
		  .ack = { .kind = SRDMA_ACK_ACK, .offset = 1 } },
		{ .opcode = SRDMA_OP_ACKNOWLEDGE,
		  .ack = { .kind = SRDMA_ACK_NAK } },
		{ .opcode = SRDMA_OP_ACKNOWLEDGE, /* an empty gap */
		  .ack = { .kind = SRDMA_ACK_ACK, .gaps = 1 } },
	};
	uint8_t out[SRDMA_MAX_PACKET];
	struct srdma_packet p;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		p = rows[i];
		assert_int_equal(srdma_wire_build(&p, out, TAG), -EINVAL);
	}
	assert_true(sample_at(SEND_ONLY, &p));
	for (uint32_t tag = 1; tag < 80; tag++)
		if (srdma_wire_tag_code(tag) < 0)
			assert_int_equal(srdma_wire_build(&p, out, tag),
					 -EINVAL);
}

/* Gaps at the limits of 5.2, behind position (0xfffffff0, 7). */
static void test_limits_of_gaps(void **state)
{
	enum { G = 1 << 30 };
	static const struct {
		struct srdma_gap gap[2];
		int legal;
	} rows[] = {
		{ { { 0xfffffff0, 7, 1 }, { 0xfffffff0, 8, 1 } }, 1 },
		{ { { 0xfffffff0, 6, 1 }, { 0xfffffff0, 8, 1 } }, 0 },
		{ { { 0xfffffff0, 7, 2 }, { 0xfffffff0, 8, 1 } }, 0 },
		{ { { 0xffffffef, 7, 1 }, { 0xfffffff0, 8, 1 } }, 0 },
		{ { { 0xffffffff, G, SRDMA_GAP_IDS + 1 }, { 0, 0, G } }, 1 },
		{ { { 0xffffffff, G, SRDMA_GAP_IDS + 2 }, { 0, 0, G } }, 0 },
		{ { { 0xffffffff, G, 1 }, { 0, 0, G } }, 0 },
		{ { { 0xffffffff, G - 1, 1 }, { 0, 1, G } }, 0 },
		{ { { 0, G + 1, SRDMA_GAP_IDS + 1 }, { 2, 0, 1 } }, 0 },
		{ { { 0, 5, SRDMA_GAP_IDS }, { 2, 0, 1 } }, 0 },
		{ { { 2, 0, 1 }, { 1, 0, 1 } }, 0 },
		{ { { 2, 0, 1 }, { 0x7fffffef, 0, SRDMA_GAP_IDS + 1 } }, 1 },
		{ { { 2, 0, 1 }, { 0x7fffffef, 0, SRDMA_GAP_IDS + 2 } }, 0 },
		{ { { 2, 0, 1 }, { 3, 0, UINT32_MAX } }, 0 },
		{ { { 2, 0, 1 }, { 3, G, G } }, 0 },
		{ { { 2, 0, 1 }, { 3, UINT32_MAX, 1 } }, 0 },
		{ { { 2, 0, 1 }, { 0xffffffef, 0, UINT32_MAX } }, 0 },
	};
	uint8_t out[SRDMA_MAX_PACKET];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct srdma_packet p = { .opcode = SRDMA_OP_ACKNOWLEDGE,
					  .request_id = 0xfffff0,
					  .offset = 7,
					  .ack = { .kind = SRDMA_ACK_ACK,
						   .gaps = 2,
						   .request_id = 0xfffffff0,
						   .offset = 7 } };

		memcpy(p.ack.gap, rows[i].gap, sizeof(rows[i].gap));
		if ((srdma_wire_build(&p, out, TAG) > 0) != rows[i].legal) {
			print_error("row %zu\n", i);
			fail();
		}
	}
}

/* RFC 5042 X1 */
static void test_tag_codes(void **state)
{
	static const uint8_t sizes[] = { 0, 12, 16, 20, 28, 32, 48, 64 };
	int codes = 0;

	(void)state;
	for (int i = 0; i < 8; i++)
		assert_int_equal(srdma_wire_tag_code(sizes[i]), i);
	for (uint32_t len = 0; len < 1000; len++)
		codes += srdma_wire_tag_code(len) >= 0;
	assert_int_equal(codes, 8);
}

static void test_qpn_of_datagram(void **state)
{
	const uint8_t bth[12] = { [5] = 0x12, [6] = 0x34, [7] = 0x56 };

	(void)state;
	assert_int_equal(srdma_wire_qpn(bth, 12), 0x123456);
	assert_int_equal(srdma_wire_qpn(bth, 11), -1);
	assert_int_equal(srdma_wire_qpn(NULL, 0), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_built_packets_parse),
		cmocka_unit_test(test_header_lengths),
		cmocka_unit_test(test_longest_packet),
		cmocka_unit_test(test_changed_packets_are_refused),
		cmocka_unit_test(test_truncated_packets),
		cmocka_unit_test(test_bytes_behind_packet_are_not_read),
		cmocka_unit_test(test_payload_exceeding_mtu_is_refused),
		cmocka_unit_test(test_router_byte_is_not_checked),
		cmocka_unit_test(test_illegal_packets_are_not_built),
		cmocka_unit_test(test_limits_of_gaps),
		cmocka_unit_test(test_tag_codes),
		cmocka_unit_test(test_qpn_of_datagram),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
