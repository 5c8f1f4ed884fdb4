/*
 * Capabilities at the requester (protocol.md 6.4): the requests that they
 * permit, segmentation at their nodes, the proofs in the packets, and the error
 * of each refusal.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/sha.h>

#include "base/bytes.h"
#include "support/inside.h"
#include "support/relay_pair.h"

#define SAYS(relay, text) assert_non_null(strstr(srdma_relay_why(relay), text))

enum {
	AT = 3000, /* offset of the region in side 1's memory */
	LEN = 65536,
	LOG2_BLOCK = 12,
	LO = 4096, /* range that most tests grant */
	HI = 57344,
	ALL = SRDMA_MEMKEY_READ | SRDMA_MEMKEY_WRITE,
	HALF = PAIR_MEMORY / 2,
};

/* A pair. Side 1 has a region that demands proofs. */
struct world {
	struct pair p;
	struct pair_region region;
	uint32_t rkey;
};

static void defaults(struct world *w)
{
	pair_defaults(&w->p);
	w->p.mode = SRDMA_MODE_MEM;
	w->region = (struct pair_region){
		.at = AT,
		.len = LEN,
		.access = SRDMA_ACCESS_ALL | SRDMA_ACCESS_PROOF,
		.log2_block = LOG2_BLOCK,
		.depth = SRDMA_MEMTREE_DEPTH_MAX,
	};
}

static void open_world(struct world *w)
{
	pair_open(&w->p);
	w->rkey = pair_register(&w->p, 1, w->region);
	pair_connect(&w->p, 0);
}

static struct srdma_cap_params range(const struct world *w, uint64_t lo,
				     uint64_t hi, uint8_t rights)
{
	return (struct srdma_cap_params){ .key = w->rkey,
					  .offset = lo,
					  .length = hi - lo,
					  .rights = rights };
}

/* A request for bytes of the region, starting at an offset. */
static struct srdma_desc request(const struct world *w, uint8_t op,
				 uint64_t offset, uint32_t len)
{
	return (struct srdma_desc){
		.opcode = op,
		.id = 1,
		.length = len,
		.local_addr = (uintptr_t)w->p.side[0].memory,
		.rkey = w->rkey,
		.remote_addr =
			(uintptr_t)w->p.side[1].memory + w->region.at + offset,
	};
}

static void fill(uint8_t *m, uint64_t len, uint32_t seed)
{
	for (uint64_t i = 0; i < len; i++)
		m[i] = (uint8_t)(((uint32_t)i * 2654435761u + seed) >> 13);
}

/*
 * WRITEs with the capability and READs back. No byte outside the range changes.
 */
static void round_trip(struct world *w, uint32_t handle, uint64_t offset,
		       uint32_t len)
{
	struct srdma_desc d = request(w, SRDMA_DESC_WRITE, offset, len);
	uint8_t *a = w->p.side[0].memory;
	uint8_t *b = w->p.side[1].memory + w->region.at + offset;

	memset(w->p.side[1].memory, 0xee, HALF);
	fill(a, len, len);
	memset(a + HALF, 0xdd, len + 1);
	d.capability = handle;
	pair_post(&w->p, 0, d, NULL);
	d.opcode = SRDMA_DESC_READ;
	d.id = 2;
	d.local_addr += HALF;
	pair_post(&w->p, 0, d, NULL);
	pair_settle(&w->p);
	pair_expect(&w->p, 0, 1, SRDMA_REASON_NONE);
	pair_expect(&w->p, 0, 2, SRDMA_REASON_NONE);
	assert_memory_equal(b, a, len);
	assert_int_equal(b[-1], 0xee);
	assert_int_equal(b[len], 0xee);
	assert_memory_equal(a + HALF, a, len);
	assert_int_equal(a[HALF + len], 0xdd);
}

/* --- success -------------------------------------------------------------- */

static void test_round_trip_in_every_mode_and_suite(void **state)
{
	static const struct {
		uint8_t mode, shared, suite, level, tag;
	} rows[] = {
		{ 2, 0, 0x01, SRDMA_LEVEL_AEAD, 16 },
		{ 3, 0, 0x01, SRDMA_LEVEL_AEAD, 16 },
		{ 3, 1, 0x01, SRDMA_LEVEL_AEAD, 16 },
		{ 2, 0, 0x07, SRDMA_LEVEL_AEAD, 16 },
		{ 2, 0, 0x12, SRDMA_LEVEL_PACKET, 32 },
		{ 3, 0, 0x30, SRDMA_LEVEL_HEADER, 16 },
		{ 3, 1, 0x20, SRDMA_LEVEL_PACKET, 12 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct world w;
		uint32_t handle, sizes[] = { 0, 1, 4096, 12289, HI - LO - 77 };

		defaults(&w);
		w.p.mode = rows[i].mode;
		w.p.shared = rows[i].shared;
		w.p.suite = rows[i].suite;
		w.p.level = rows[i].level;
		w.p.tag_len = rows[i].tag;
		w.p.key_cache = i % 2;
		open_world(&w);
		handle = pair_install(&w.p, 0, range(&w, LO, HI, ALL));
		for (size_t n = 0; n < sizeof(sizes) / sizeof(*sizes); n++)
			round_trip(&w, handle, LO + 77, sizes[n]);
		pair_close(&w.p);
	}
}

/*
 * Nodes of all sizes down to a block of 64 bytes, with small mtu, window and
 * queues.
 */
static void test_round_trip_with_small_nodes(void **state)
{
	static const struct {
		uint32_t mtu, window, reads, slots, polls;
		uint8_t depth;
	} rows[] = {
		{ 4096, 128, 16, 0, 0, 48 }, { 256, 1, 1, 2, 3, 48 },
		{ 1024, 3, 2, 5, 1, 48 },    { 4096, 1024, 128, 0, 2, 10 },
		{ 4096, 16, 16, 16, 0, 1 },  { 256, 16, 4, 16, 0, 5 },
	};
	enum { BIG = (1 << 16) + 17, HEIGHT = 11 };

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct world w;
		uint64_t granule;
		uint32_t handle;

		defaults(&w);
		w.p.mtu = rows[i].mtu;
		w.p.window = rows[i].window;
		w.p.reads = rows[i].reads;
		w.p.wire.slots = rows[i].slots;
		w.p.host[0].dma_polls = w.p.host[1].dma_polls = rows[i].polls;
		w.region.len = BIG;
		w.region.log2_block = SRDMA_MEMTREE_BLOCK_MIN;
		w.region.depth = rows[i].depth;
		open_world(&w);
		granule = 64;
		if (rows[i].depth < HEIGHT)
			granule <<= HEIGHT - rows[i].depth;
		handle = pair_install(&w.p, 0, range(&w, granule, BIG, ALL));
		round_trip(&w, handle, granule, (uint32_t)(BIG - granule));
		if (granule * 4 < BIG) {
			/* first and last node of the smallest size */
			uint64_t hi = (BIG / granule - 1) * granule;

			handle = pair_install(&w.p, 0,
					      range(&w, granule, hi, ALL));
			round_trip(&w, handle, granule,
				   (uint32_t)(hi - granule));
		}
		pair_close(&w.p);
	}
}

static void test_inline_write_with_immediate(void **state)
{
	uint8_t text[SRDMA_MAX_INLINE];
	struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV, .id = 5 };
	struct srdma_record r;
	struct srdma_desc d;
	struct world w;

	(void)state;
	defaults(&w);
	w.region.log2_block = SRDMA_MEMTREE_BLOCK_MIN;
	open_world(&w);
	fill(text, sizeof(text), 1);
	d = request(&w, SRDMA_DESC_WRITE_IMM, 64 + 3, sizeof(text));
	d.imm = 77;
	d.capability =
		pair_install(&w.p, 0, range(&w, 64, 1024, SRDMA_MEMKEY_WRITE));
	pair_post(&w.p, 1, recv, NULL);
	pair_post(&w.p, 0, d, text);
	pair_settle(&w.p);
	pair_expect(&w.p, 0, 1, SRDMA_REASON_NONE);
	assert_int_equal(pair_record(&w.p, 1, &r), 1);
	assert_int_equal(r.imm, 77);
	assert_int_equal(r.byte_len, sizeof(text));
	assert_memory_equal(w.p.side[1].memory + AT + 64 + 3, text,
			    sizeof(text));
	pair_close(&w.p);
}

/* --- packets on the wire -------------------------------------------------- */

enum { SEEN = 64 };

struct spy {
	uint32_t count;
	struct srdma_packet seen[SEEN]; /* requests of side 0 */
};

static enum srdma_mem_fate look(void *ctx, struct srdma_mem_datagram *d)
{
	struct srdma_packet p;
	struct spy *spy = ctx;

	if (!d->side &&
	    !srdma_wire_parse(&p, d->data, d->len, 16, SRDMA_MAX_PAYLOAD) &&
	    (srdma_wire_traits(p.opcode) & SRDMA_T_REQUEST) &&
	    spy->count < SEEN)
		spy->seen[spy->count++] = p;
	return SRDMA_MEM_PASS;
}

struct piece {
	uint32_t len;
	uint8_t depth;
};

/*
 * Expects that the request was sent in these packets, each with its own proof.
 */
static void expect_pieces(const struct spy *spy, const struct srdma_desc *d,
			  const struct piece *pieces, uint32_t n)
{
	int read = d->opcode == SRDMA_DESC_READ;
	uint32_t at = 0;

	assert_int_equal(spy->count, n);
	for (uint32_t i = 0; i < n; i++) {
		const struct srdma_packet *p = &spy->seen[i];
		uint32_t traits = srdma_wire_traits(p->opcode);

		assert_int_equal(p->offset, at);
		assert_int_equal(read ? p->dma_len : p->payload_len,
				 pieces[i].len);
		assert_int_equal(p->flags & ~SRDMA_STH_ACK_NOW,
				 SRDMA_STH_PROOF);
		assert_int_equal(p->depth, pieces[i].depth);
		assert_int_equal(p->expiry, 0);
		assert_int_equal(!!(traits & SRDMA_T_RETH), read || !i);
		if (traits & SRDMA_T_RETH) {
			assert_int_equal(p->va, d->remote_addr);
			assert_int_equal(p->rkey, d->rkey);
		}
		if (!read && !i)
			assert_int_equal(p->dma_len, d->length);
		if (!read)
			assert_int_equal(!!(traits & SRDMA_T_LAST), i + 1 == n);
		for (uint32_t k = 0; k < i; k++)
			assert_memory_not_equal(p->proof, spy->seen[k].proof,
						SRDMA_PROOF_LEN);
		at += pieces[i].len;
	}
	assert_int_equal(at, d->length);
}

/*
 * [4096, 57344) of 65536 bytes in blocks of 4096: nodes end at 8192, 16384,
 * 32768, 49152, 57344, in depths 4, 3, 2, 2, 3.
 */
static void test_segmentation_at_node_boundaries(void **state)
{
	static const struct piece packets[] = {
		{ 3192, 4 }, { 4096, 3 }, { 4096, 3 }, { 4096, 2 }, { 4096, 2 },
		{ 4096, 2 }, { 4096, 2 }, { 4096, 2 }, { 4096, 2 }, { 4096, 2 },
		{ 4096, 2 }, { 4096, 3 }, { 1752, 3 },
	};
	static const struct piece parts[] = { { 3192, 4 },
					      { 8192, 3 },
					      { 16384, 2 },
					      { 16384, 2 },
					      { 5848, 3 } };
	static const struct piece one[] = { { 1, 4 } };
	struct spy *spy = calloc(1, sizeof(*spy));
	struct srdma_desc d;
	struct world w;

	(void)state;
	assert_non_null(spy);
	defaults(&w);
	w.p.wire.ctx = spy;
	w.p.wire.fate = look;
	open_world(&w);
	d = request(&w, SRDMA_DESC_WRITE, 5000, 50000);
	d.capability = pair_install(&w.p, 0, range(&w, LO, HI, ALL));
	pair_post(&w.p, 0, d, NULL);
	pair_settle(&w.p);
	pair_expect(&w.p, 0, 1, SRDMA_REASON_NONE);
	expect_pieces(spy, &d, packets, 13);
	spy->count = 0;
	d.opcode = SRDMA_DESC_READ;
	pair_post(&w.p, 0, d, NULL);
	pair_settle(&w.p);
	pair_expect(&w.p, 0, 1, SRDMA_REASON_NONE);
	expect_pieces(spy, &d, parts, 5);
	spy->count = 0;
	d = request(&w, SRDMA_DESC_WRITE, 8191, 1); /* last byte of a node */
	d.capability = 1;
	pair_post(&w.p, 0, d, NULL);
	pair_settle(&w.p);
	pair_expect(&w.p, 0, 1, SRDMA_REASON_NONE);
	expect_pieces(spy, &d, one, 1);
	pair_close(&w.p);
	free(spy);
}

/* Requests without bytes and requests without a capability carry no proof. */
static void test_requests_without_bytes_carry_no_proof(void **state)
{
	struct spy *spy = calloc(1, sizeof(*spy));
	struct srdma_desc d;
	struct world w;

	(void)state;
	assert_non_null(spy);
	defaults(&w);
	w.p.wire.ctx = spy;
	w.p.wire.fate = look;
	open_world(&w);
	d = request(&w, SRDMA_DESC_WRITE, 0, 0);
	d.capability = pair_install(&w.p, 0, range(&w, LO, HI, ALL));
	pair_post(&w.p, 0, d, NULL);
	d.opcode = SRDMA_DESC_READ;
	pair_post(&w.p, 0, d, NULL);
	d = request(&w, SRDMA_DESC_WRITE, 0, 8);
	d.rkey = w.p.side[1].key; /* region without PROOF */
	pair_post(&w.p, 0, d, NULL);
	pair_settle(&w.p);
	for (int i = 0; i < 3; i++)
		pair_expect(&w.p, 0, 1, SRDMA_REASON_NONE);
	assert_int_equal(spy->count, 3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(spy->seen[i].flags, 0);
	pair_close(&w.p);
	free(spy);
}

/* --- refusals at the requester -------------------------------------------- */

/* The request is refused when it is posted. Only a CLOSE is sent. */
static void expect_bad(struct world *w, const struct srdma_desc *d)
{
	struct srdma_desc next = request(w, SRDMA_DESC_WRITE, LO, 8);
	const struct srdma_stats *stats = srdma_relay_stats(w->p.side[0].relay);
	uint64_t sealed = stats->packets_sealed;
	uint32_t why;

	next.id = 2;
	memset(w->p.side[1].memory, 0x55, AT + LEN + 100);
	pair_post(&w->p, 0, *d, NULL);
	pair_post(&w->p, 0, next, NULL);
	pair_settle(&w->p);
	pair_expect(&w->p, 0, 1, SRDMA_REASON_BAD_CAPABILITY);
	pair_expect(&w->p, 0, 2, SRDMA_REASON_FLUSHED);
	assert_int_equal(pair_state(&w->p, 0, 0, &why), SRDMA_QP_ERR);
	assert_int_equal(why, SRDMA_REASON_BAD_CAPABILITY);
	assert_int_equal(pair_state(&w->p, 1, 0, &why), SRDMA_QP_ERR);
	assert_int_equal(why, SRDMA_REASON_PEER_ERROR);
	assert_int_equal(stats->packets_sealed, sealed + 1);
	assert_int_equal(stats->reason[SRDMA_REASON_BAD_CAPABILITY], 1);
	for (int i = 0; i < AT + LEN + 100; i++)
		assert_int_equal(w->p.side[1].memory[i], 0x55);
}

enum change { AS_IT_IS, UNKNOWN, SAME_SLOT, DROPPED, OTHER_KEY };

static void change_handle(struct world *w, struct srdma_desc *d,
			  enum change what)
{
	switch (what) {
	case UNKNOWN:
		d->capability++;
		break;
	case SAME_SLOT:
		d->capability += SRDMA_CAPTABLE_MAX;
		break;
	case DROPPED:
		assert_int_equal(srdma_relay_uninstall(w->p.side[0].relay,
						       w->p.side[0].leg,
						       d->capability),
				 0);
		break;
	case OTHER_KEY:
		d->rkey = w->p.side[1].key;
		break;
	default:
		break;
	}
}

static void test_refusals_at_post(void **state)
{
	static const struct {
		uint8_t op, mode;
		enum change what;
		int64_t at;
		uint32_t len;
	} rows[] = {
		{ SRDMA_DESC_WRITE, 2, UNKNOWN, LO, 8 },
		{ SRDMA_DESC_WRITE, 2, UNKNOWN, LO, 0 },
		{ SRDMA_DESC_WRITE, 2, SAME_SLOT, LO, 8 },
		{ SRDMA_DESC_WRITE_IMM, 2, DROPPED, LO, 8 },
		{ SRDMA_DESC_WRITE, 2, DROPPED, LO, 0 },
		{ SRDMA_DESC_WRITE, 2, OTHER_KEY, LO, 8 },
		/* only WRITE is granted */
		{ SRDMA_DESC_READ, 2, AS_IT_IS, LO, 8 },
		{ SRDMA_DESC_WRITE, 2, AS_IT_IS, LO - 1, 1 },
		{ SRDMA_DESC_WRITE, 2, AS_IT_IS, LO - 1, 2 },
		{ SRDMA_DESC_WRITE, 2, AS_IT_IS, HI, 1 },
		{ SRDMA_DESC_WRITE, 2, AS_IT_IS, HI - 1, 2 },
		{ SRDMA_DESC_WRITE, 2, AS_IT_IS, LO, HI - LO + 1 },
		/* before byte 0 of the region */
		{ SRDMA_DESC_WRITE, 2, AS_IT_IS, -1, 1 },
		{ SRDMA_DESC_WRITE, 2, AS_IT_IS, INT64_MIN, 8 },
		{ SRDMA_DESC_WRITE, 0, AS_IT_IS, LO, 8 },
		{ SRDMA_DESC_WRITE, 0, AS_IT_IS, LO, 0 },
		{ SRDMA_DESC_WRITE, 1, AS_IT_IS, LO, 8 },
		{ SRDMA_DESC_WRITE, 3, UNKNOWN, LO, 8 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct srdma_desc d;
		struct world w;

		defaults(&w);
		w.p.mode = rows[i].mode;
		open_world(&w);
		d = request(&w, rows[i].op, (uint64_t)rows[i].at, rows[i].len);
		d.capability = pair_install(
			&w.p, 0, range(&w, LO, HI, SRDMA_MEMKEY_WRITE));
		change_handle(&w, &d, rows[i].what);
		expect_bad(&w, &d);
		pair_close(&w.p);
	}
}

/* A range that ends beyond the last address. */
static void test_address_overflow_is_refused(void **state)
{
	struct srdma_desc d;
	struct world w;

	(void)state;
	defaults(&w);
	open_world(&w);
	d = request(&w, SRDMA_DESC_WRITE, LO, 8);
	d.capability = pair_install(&w.p, 0, range(&w, LO, HI, ALL));
	d.remote_addr = UINT64_MAX - 3;
	expect_bad(&w, &d);
	pair_close(&w.p);
}

/* A handle is valid on the leg that it was installed on. */
static void test_handle_of_other_leg_is_refused(void **state)
{
	struct srdma_leg_params lp = { .ring = PAIR_RING,
				       .fds = { -1, -1, -1 } };
	uint8_t token[SRDMA_CAPABILITY_MAX];
	struct srdma_leg_answer answer;
	struct srdma_leg *other;
	struct srdma_desc d;
	struct world w;
	size_t len;

	(void)state;
	defaults(&w);
	open_world(&w);
	assert_int_equal(
		srdma_relay_leg_open(w.p.side[0].relay, &lp, &other, &answer),
		0);
	len = pair_token(&w.p, 1, range(&w, LO, HI, ALL), token);
	d = request(&w, SRDMA_DESC_WRITE, LO, 8);
	assert_int_equal(srdma_relay_install(w.p.side[0].relay, other, token,
					     len, &d.capability),
			 0);
	assert_int_equal(srdma_relay_uninstall(w.p.side[0].relay,
					       w.p.side[0].leg, d.capability),
			 -ENOENT);
	expect_bad(&w, &d);
	pair_close(&w.p);
}

static void test_dropped_while_segmenting_fails(void **state)
{
	static const uint8_t ops[] = { SRDMA_DESC_WRITE, SRDMA_DESC_READ };

	(void)state;
	for (int row = 0; row < 4; row++) {
		struct srdma_desc d;
		struct world w;
		uint32_t why;

		defaults(&w);
		w.p.mtu = 256;
		w.p.window = 4;
		w.p.reads = 1;
		w.p.wire.slots = 4;
		/* drops before segmentation, or before a packet is sealed */
		w.p.host[0].dma_polls = row < 2 ? 0 : 9;
		open_world(&w);
		d = request(&w, ops[row % 2], LO, HI - LO);
		d.capability = pair_install(&w.p, 0, range(&w, LO, HI, ALL));
		memset(w.p.side[0].memory, 0xab, HI - LO);
		pair_post(&w.p, 0, d, NULL);
		pair_run(&w.p, 8);
		pair_expect_none(&w.p, 0);
		assert_int_equal(srdma_relay_uninstall(w.p.side[0].relay,
						       w.p.side[0].leg,
						       d.capability),
				 0);
		pair_settle(&w.p);
		pair_expect(&w.p, 0, 1, SRDMA_REASON_BAD_CAPABILITY);
		assert_int_equal(pair_state(&w.p, 1, 0, &why), SRDMA_QP_ERR);
		assert_int_equal(why, SRDMA_REASON_PEER_ERROR);
		assert_int_equal(w.p.side[1].memory[AT + HI - 1], 0);
		pair_close(&w.p);
	}
}

/*
 * The capability is dropped while the only packet waits for its payload: the
 * packet is not sent.
 */
static void test_dropped_before_sealing_sends_nothing(void **state)
{
	struct srdma_desc d;
	struct world w;

	(void)state;
	defaults(&w);
	w.p.host[0].dma_polls = 6;
	open_world(&w);
	d = request(&w, SRDMA_DESC_WRITE, LO, 100);
	d.capability = pair_install(&w.p, 0, range(&w, LO, HI, ALL));
	memset(w.p.side[0].memory, 0xab, 100);
	pair_post(&w.p, 0, d, NULL);
	pair_run(&w.p, 3);
	assert_int_equal(
		srdma_qp_requester(srdma_relay_qp(w.p.side[0].relay,
						  w.p.side[0].qp[0].qpn))
			->fetch.count,
		1);
	assert_int_equal(srdma_relay_uninstall(w.p.side[0].relay,
					       w.p.side[0].leg, d.capability),
			 0);
	pair_settle(&w.p);
	pair_expect(&w.p, 0, 1, SRDMA_REASON_BAD_CAPABILITY);
	for (int i = 0; i < 100; i++)
		assert_int_equal(w.p.side[1].memory[AT + LO + i], 0);
	pair_close(&w.p);
}

/* A READ no longer needs the capability once all its requests are sent. */
static void test_dropped_after_last_request_succeeds(void **state)
{
	struct srdma_desc d;
	struct world w;

	(void)state;
	defaults(&w);
	w.p.host[1].dma_polls = 7;
	open_world(&w);
	d = request(&w, SRDMA_DESC_READ, LO, HI - LO);
	d.capability = pair_install(&w.p, 0, range(&w, LO, HI, ALL));
	fill(w.p.side[1].memory + AT, LEN, 3);
	pair_post(&w.p, 0, d, NULL);
	pair_run(&w.p, 3);
	pair_expect_none(&w.p, 0);
	assert_int_equal(srdma_relay_uninstall(w.p.side[0].relay,
					       w.p.side[0].leg, d.capability),
			 0);
	pair_settle(&w.p);
	pair_expect(&w.p, 0, 1, SRDMA_REASON_NONE);
	assert_memory_equal(w.p.side[0].memory, w.p.side[1].memory + AT + LO,
			    HI - LO);
	pair_close(&w.p);
}

/* --- refusals at the responder -------------------------------------------- */

/* Both ends report the reason of the responder, and no byte changes. */
static void expect_refused(struct world *w, uint32_t handle, uint8_t op,
			   uint32_t reason)
{
	struct srdma_desc d = request(w, op, LO, 9000);
	uint32_t why;

	memset(w->p.side[1].memory, 0x55, AT + LEN);
	memset(w->p.side[0].memory, 0x66, 9000);
	d.capability = handle;
	pair_post(&w->p, 0, d, NULL);
	pair_settle(&w->p);
	pair_expect(&w->p, 0, 1, reason);
	assert_int_equal(pair_state(&w->p, 1, 0, &why), SRDMA_QP_ERR);
	assert_int_equal(why, reason);
	for (int i = 0; i < AT + LEN; i++)
		assert_int_equal(w->p.side[1].memory[i], 0x55);
	for (int i = 0; i < 9000; i++)
		assert_int_equal(w->p.side[0].memory[i], 0x66);
}

/* review A17 */
static void test_holder_and_expiry(void **state)
{
	enum { SOON = 1000, CLOCK = SOON - 1 };
	static const struct {
		int holder; /* side of the holder, or -1: any */
		uint32_t expiry, clock;
		uint32_t reason;
	} rows[] = {
		{ 0, 0, CLOCK, SRDMA_REASON_NONE },
		{ 0, 0, 0, SRDMA_REASON_NONE },
		{ 0, SOON, CLOCK, SRDMA_REASON_NONE },
		{ -1, SOON, CLOCK, SRDMA_REASON_NONE },
		{ 1, 0, CLOCK, SRDMA_REASON_PROOF_WRONG },
		{ 1, SOON, CLOCK, SRDMA_REASON_PROOF_WRONG },
		{ -1, SOON, SOON, SRDMA_REASON_PROOF_EXPIRED },
		{ 0, SOON, SOON, SRDMA_REASON_PROOF_EXPIRED },
		{ 0, SOON, UINT32_MAX, SRDMA_REASON_PROOF_EXPIRED },
		{ -1, UINT32_MAX, 0, SRDMA_REASON_PROOF_EXPIRED },
	};

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(*rows); i++) {
		struct srdma_cap_params params;
		struct world w;
		uint32_t handle, row = (uint32_t)i / 2;
		uint8_t op = i % 2 ? SRDMA_DESC_READ : SRDMA_DESC_WRITE;

		defaults(&w);
		open_world(&w);
		if (rows[row].clock) /* 0: the relay never learns the time */
			srdma_relay_clock(w.p.side[1].relay, rows[row].clock);
		params = range(&w, LO, HI, ALL);
		params.bearer.expiry = rows[row].expiry;
		if (rows[row].holder >= 0)
			pair_holder(rows[row].holder, params.bearer.holder);
		handle = pair_install(&w.p, 0, params);
		if (rows[row].reason)
			expect_refused(&w, handle, op, rows[row].reason);
		else
			round_trip(&w, handle, LO + 5, 9000);
		pair_close(&w.p);
	}
}

/* Installs a token with some bytes changed and its check value recomputed. */
static uint32_t install_changed(struct world *w, size_t at, const void *bytes,
				size_t n)
{
	uint8_t token[SRDMA_CAPABILITY_MAX], sum[SHA256_DIGEST_LENGTH];
	size_t len = pair_token(&w->p, 1, range(w, LO, HI, ALL), token);
	uint32_t handle;

	assert_memory_not_equal(token + at, bytes, n);
	memcpy(token + at, bytes, n);
	SHA256(token, len - SRDMA_CAPABILITY_CHECK, sum);
	memcpy(token + len - SRDMA_CAPABILITY_CHECK, sum,
	       SRDMA_CAPABILITY_CHECK);
	assert_int_equal(srdma_relay_install(w->p.side[0].relay,
					     w->p.side[0].leg, token, len,
					     &handle),
			 0);
	return handle;
}

/*
 * Changes one bit of the key that the access uses. The other keys stay valid.
 */
static void test_wrong_key_is_refused(void **state)
{
	enum {
		READ_KEY = SRDMA_CAPABILITY_HEAD,
		WRITE_KEY = READ_KEY + 5 * 16
	};
	uint8_t token[SRDMA_CAPABILITY_MAX], byte;

	(void)state;
	for (int read = 0; read < 2; read++) {
		size_t at = read ? READ_KEY : WRITE_KEY;
		struct world w;

		defaults(&w);
		open_world(&w);
		pair_token(&w.p, 1, range(&w, LO, HI, ALL), token);
		byte = token[at] ^ 1;
		expect_refused(&w, install_changed(&w, at, &byte, 1),
			       read ? SRDMA_DESC_READ : SRDMA_DESC_WRITE,
			       SRDMA_REASON_PROOF_WRONG);
		pair_close(&w.p);
	}
}

/* The keys of one region are not valid for another region of the same bytes. */
static void test_token_of_other_region_is_refused(void **state)
{
	enum { RKEY_AT = 4 };
	uint8_t name[4];
	struct world w;
	uint32_t other, handle;

	(void)state;
	defaults(&w);
	open_world(&w);
	other = pair_register(&w.p, 1, w.region);
	srdma_store32(name, other);
	handle = install_changed(&w, RKEY_AT, name, sizeof(name));
	w.rkey = other;
	expect_refused(&w, handle, SRDMA_DESC_WRITE, SRDMA_REASON_PROOF_WRONG);
	pair_close(&w.p);
}

static void test_revoked_capability_is_refused(void **state)
{
	(void)state;
	for (int whole = 0; whole < 2; whole++) {
		struct srdma_revoke_params revoke = { 0 };
		struct world w;
		uint32_t handle;
		uint64_t ticket;

		defaults(&w);
		open_world(&w);
		handle = pair_install(&w.p, 0, range(&w, LO, HI, ALL));
		round_trip(&w, handle, LO, 9000);
		revoke.key = w.rkey;
		revoke.offset = whole ? 0 : LO;
		revoke.length = whole ? 0 : HI - LO;
		assert_int_equal(srdma_relay_mr_revoke(w.p.side[1].relay,
						       w.p.side[1].leg, &revoke,
						       &ticket),
				 0);
		expect_refused(&w, handle, SRDMA_DESC_WRITE,
			       SRDMA_REASON_PROOF_WRONG);
		pair_close(&w.p);
	}
}

/* --- CAP -------------------------------------------------------------- */

/* A capability has no right that its region lacks, and none of a region that is
 * gone. */
static void test_grant_refusals(void **state)
{
	enum { READ = SRDMA_MEMKEY_READ, WRITE = SRDMA_MEMKEY_WRITE };
	struct srdma_cap_params params;
	struct srdma_capability cap;
	struct srdma_relay *r;
	struct srdma_leg *leg;
	struct world w;

	(void)state;
	defaults(&w);
	w.region.access = SRDMA_ACCESS_REMOTE_READ | SRDMA_ACCESS_PROOF;
	open_world(&w);
	r = w.p.side[1].relay;
	leg = w.p.side[1].leg;
	params = range(&w, LO, HI, READ | WRITE);
	assert_int_equal(srdma_relay_mr_capability(r, leg, &params, &cap),
			 -EACCES);
	SAYS(r, "the region can grant 0x1");
	params.rights = WRITE;
	assert_int_equal(srdma_relay_mr_capability(r, leg, &params, &cap),
			 -EACCES);
	params.rights = 0;
	assert_int_equal(srdma_relay_mr_capability(r, leg, &params, &cap),
			 -EACCES);
	params.rights = READ;
	assert_int_equal(srdma_relay_mr_capability(r, leg, &params, &cap), 0);
	srdma_mr_find(&r->env.mrs, w.rkey)->dead = 1; /* waits for its DMA */
	assert_int_equal(srdma_relay_mr_capability(r, leg, &params, &cap),
			 -ENOENT);
	srdma_mr_find(&r->env.mrs, w.rkey)->dead = 0;
	pair_close(&w.p);
}

/* --- INSTALL -------------------------------------------------------------- */

static void test_install_refusals(void **state)
{
	uint8_t token[SRDMA_CAPABILITY_MAX + 1] = { 0 };
	struct srdma_leg *leg;
	struct srdma_relay *r;
	uint32_t handle = 5;
	struct world w;
	size_t len;

	(void)state;
	defaults(&w);
	open_world(&w);
	r = w.p.side[0].relay;
	leg = w.p.side[0].leg;
	len = pair_token(&w.p, 1, range(&w, LO, HI, ALL), token);
#define INSTALL(len, err, text)                                                \
	do {                                                                   \
		assert_int_equal(                                              \
			srdma_relay_install(r, leg, token, len, &handle),      \
			err);                                                  \
		SAYS(r, text);                                                 \
		assert_int_equal(leg->captable.count, 0);                      \
	} while (0)
	INSTALL(0, -EMSGSIZE, "no token has this length");
	INSTALL(71, -EMSGSIZE, "no token has this length");
	INSTALL(sizeof(token), -EMSGSIZE, "no token has this length");
	INSTALL(len - 16, -EBADMSG, "damaged");
	token[70] ^= 1;
	INSTALL(len, -EBADMSG, "damaged");
	token[70] ^= 1;
	token[0] ^= 1;
	INSTALL(len, -EPROTO, "version 1");
	token[0] ^= 1;
	assert_int_equal(srdma_relay_uninstall(r, leg, 0), -ENOENT);
	SAYS(r, "no capability of this handle");
	for (int i = 0; i < SRDMA_CAPTABLE_MAX; i++)
		assert_int_equal(
			srdma_relay_install(r, leg, token, len, &handle), 0);
	assert_int_equal(srdma_relay_install(r, leg, token, len, &handle),
			 -EDQUOT);
	SAYS(r, "limit of 1024 capabilities");
	assert_int_equal(srdma_relay_uninstall(r, leg, handle), 0);
	assert_int_equal(srdma_relay_uninstall(r, leg, handle), -ENOENT);
	assert_int_equal(srdma_relay_install(r, leg, token, len, &handle), 0);
	round_trip(&w, handle, LO, 100);
	pair_close(&w.p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip_in_every_mode_and_suite),
		cmocka_unit_test(test_round_trip_with_small_nodes),
		cmocka_unit_test(test_inline_write_with_immediate),
		cmocka_unit_test(test_segmentation_at_node_boundaries),
		cmocka_unit_test(test_requests_without_bytes_carry_no_proof),
		cmocka_unit_test(test_refusals_at_post),
		cmocka_unit_test(test_address_overflow_is_refused),
		cmocka_unit_test(test_handle_of_other_leg_is_refused),
		cmocka_unit_test(test_dropped_while_segmenting_fails),
		cmocka_unit_test(test_dropped_before_sealing_sends_nothing),
		cmocka_unit_test(test_dropped_after_last_request_succeeds),
		cmocka_unit_test(test_holder_and_expiry),
		cmocka_unit_test(test_wrong_key_is_refused),
		cmocka_unit_test(test_token_of_other_region_is_refused),
		cmocka_unit_test(test_revoked_capability_is_refused),
		cmocka_unit_test(test_grant_refusals),
		cmocka_unit_test(test_install_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
