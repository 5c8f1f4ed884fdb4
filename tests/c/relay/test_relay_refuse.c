/* Refusals of the relay, and their errors at both hosts. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "relay/leg.h"
#include "support/inside.h"
#include "support/relay_pair.h"

static struct srdma_desc request(struct pair *p, uint8_t opcode, uint32_t len)
{
	return (struct srdma_desc){
		.opcode = opcode,
		.id = 1,
		.length = len,
		.local_addr = (uintptr_t)p->side[0].memory,
		.remote_addr = (uintptr_t)p->side[1].memory,
	};
}

static void open_pair(struct pair *p)
{
	pair_open(p);
	pair_connect(p, 0);
}

/* Expects the QP event of a QP that went to error. */
static void expect_event(struct pair *p, int side, uint32_t reason)
{
	struct srdma_record r;

	assert_int_equal(pair_record(p, side, &r), 1);
	assert_int_equal(r.opcode, SRDMA_WC_QP_EVENT);
	assert_int_equal(r.vendor_err, reason);
}

/* scope: a QP, or 0; holder: an identity, or NULL. */
static uint32_t new_scoped_mr(struct pair *p, int side, uint32_t access,
			      uint32_t scope, const uint8_t *holder)
{
	struct side *s = &p->side[side];
	struct srdma_mr_params mp = {
		.region = { .addr = (uintptr_t)s->memory,
			    .length = 8192,
			    .access = access,
			    .fd = -1 },
		.scope_qpn = scope,
	};
	uint32_t key;

	if (holder)
		memcpy(mp.scope_holder, holder, sizeof(mp.scope_holder));
	assert_int_equal(srdma_relay_mr_reg(s->relay, s->leg, &mp, &key), 0);
	return key;
}

static uint32_t new_mr(struct pair *p, int side, uint32_t access,
		       uint32_t scope)
{
	return new_scoped_mr(p, side, access, scope, NULL);
}

/*
 * Expects one refused request: a NAK, its reason at the requester, the next
 * request flushed, both QPs in error, memory unchanged.
 */
static void refused(struct pair *p, struct srdma_desc d, uint32_t reason)
{
	struct srdma_desc next = request(p, SRDMA_DESC_WRITE, 16);
	uint32_t why;

	memset(p->side[1].memory, 0x55, 16384);
	memset(p->side[0].memory, 0x66, 16384);
	next.id = 2;
	pair_post(p, 0, d, NULL);
	pair_post(p, 0, next, NULL);
	pair_settle(p);
	pair_expect(p, 0, 1, reason);
	pair_expect(p, 0, 2, SRDMA_REASON_FLUSHED);
	expect_event(p, 0, reason);
	assert_int_equal(pair_state(p, 0, 0, &why), SRDMA_QP_ERR);
	assert_int_equal(why, reason);
	assert_int_equal(pair_state(p, 1, 0, &why), SRDMA_QP_ERR);
	assert_int_equal(srdma_relay_stats(p->side[1].relay)->naks_sent, 1);
	assert_int_equal(srdma_relay_stats(p->side[0].relay)->naks_received, 1);
	for (int i = 0; i < 16384; i++) {
		assert_int_equal(p->side[1].memory[i], 0x55);
		assert_int_equal(p->side[0].memory[i], 0x66);
	}
	/* Later requests are flushed at once. */
	next.id = 3;
	pair_post(p, 0, next, NULL);
	pair_settle(p);
	pair_expect(p, 0, 3, SRDMA_REASON_FLUSHED);
	pair_expect_none(p, 0);
}

/* RFC 5042 R6.3.5-1, X4 */
static void test_remote_access_checks(void **state)
{
	enum { BASE = 0, SIZE = 8192 };
	static const struct {
		uint8_t op;
		uint32_t access; /* access of an 8 KiB region, 0: no region */
		uint64_t at;	 /* offset from its base */
		uint32_t len;
		uint32_t reason;
	} rows[] = {
		{ SRDMA_DESC_WRITE, 0, 0, 1, SRDMA_REASON_BAD_RKEY },
		{ SRDMA_DESC_READ, 0, 0, 1, SRDMA_REASON_BAD_RKEY },
		{ SRDMA_DESC_WRITE, 1, 0, 1, SRDMA_REASON_NO_RIGHT },
		{ SRDMA_DESC_READ, 1, 0, 1, SRDMA_REASON_NO_RIGHT },
		{ SRDMA_DESC_WRITE, 5, 0, 1, SRDMA_REASON_NO_RIGHT },
		{ SRDMA_DESC_READ, 3, 0, 1, SRDMA_REASON_NO_RIGHT },
		{ SRDMA_DESC_WRITE, 3, SIZE, 1, SRDMA_REASON_OUT_OF_BOUNDS },
		{ SRDMA_DESC_WRITE, 3, SIZE - 1, 2,
		  SRDMA_REASON_OUT_OF_BOUNDS },
		{ SRDMA_DESC_WRITE, 3, 0, SIZE + 1,
		  SRDMA_REASON_OUT_OF_BOUNDS },
		{ SRDMA_DESC_WRITE, 3, UINT64_MAX, 1,
		  SRDMA_REASON_OUT_OF_BOUNDS },
		{ SRDMA_DESC_READ, 4, SIZE, 1, SRDMA_REASON_OUT_OF_BOUNDS },
		{ SRDMA_DESC_READ, 4, 0, SIZE + 1, SRDMA_REASON_OUT_OF_BOUNDS },
		{ SRDMA_DESC_READ, 4, UINT64_MAX, 2,
		  SRDMA_REASON_OUT_OF_BOUNDS },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct pair p;
		struct srdma_desc d;

		pair_defaults(&p);
		open_pair(&p);
		d = request(&p, rows[i].op, rows[i].len);
		d.remote_addr += rows[i].at;
		d.rkey = rows[i].access ? new_mr(&p, 1, rows[i].access, 0)
					: p.side[1].key + 1;
		refused(&p, d, rows[i].reason);
		pair_close(&p);
	}
}

/* The end of the range would overflow 2^64. */
/* RFC 5042 R6.2.1-1 */
static void test_address_overflow_is_refused(void **state)
{
	struct pair p;
	struct srdma_desc d;

	(void)state;
	pair_defaults(&p);
	open_pair(&p);
	d = request(&p, SRDMA_DESC_READ, 65536 * 2);
	d.remote_addr = UINT64_MAX - 65535;
	pair_post(&p, 0, d, NULL);
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_OUT_OF_BOUNDS);
	pair_close(&p);
}

/* The peer of all QPs is one identity: its regions are open to each QP, and those
 * of another identity to none. */
static void test_scope_of_another_identity_is_refused(void **state)
{
	static const uint8_t ops[] = { SRDMA_DESC_WRITE, SRDMA_DESC_READ,
				       SRDMA_DESC_FETCH_ADD };
	uint8_t holder[SRDMA_MEMKEY_HOLDER_LEN];
	struct srdma_desc d;
	struct pair p;

	(void)state;
	for (size_t i = 0; i < sizeof(ops); i++) {
		pair_defaults(&p);
		open_pair(&p);
		pair_connect(&p, 1);
		pair_holder(0, holder);
		d = request(&p, ops[i], 8);
		d.rkey = new_scoped_mr(&p, 1, 15, 0, holder);
		for (int qp = 0; qp < 2; qp++) {
			d.qpn = p.side[0].qp[qp].qpn;
			pair_post(&p, 0, d, NULL);
			pair_settle(&p);
			pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
		}
		holder[15] ^= 1;
		d.rkey = new_scoped_mr(&p, 1, 15, 0, holder);
		d.qpn = 0;
		refused(&p, d, SRDMA_REASON_QP_SCOPE);
		pair_close(&p);
	}
}

/* RFC 5042 R6.1.1-2, R6.1.1-3, R2.2.4-1, A6.1.1a */
static void test_other_scope_or_pd_is_refused(void **state)
{
	struct pair p;
	struct srdma_desc d;
	struct srdma_leg_params lp = { .ring = PAIR_RING,
				       .fds = { -1, -1, -1 } };
	struct srdma_leg_answer answer;
	struct srdma_leg *other;
	struct srdma_mr_params mp = {
		.region = { .length = 4096, .access = 7, .fd = -1 }
	};

	(void)state;
	pair_defaults(&p);
	open_pair(&p);
	pair_connect(&p, 1);
	d = request(&p, SRDMA_DESC_WRITE, 8);
	d.rkey = new_mr(&p, 1, 3, p.side[1].qp[1].qpn);
	d.qpn = p.side[0].qp[1].qpn;
	pair_post(&p, 0, d, NULL);
	pair_settle(&p);
	/* the QP of its scope has access */
	pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
	d.qpn = 0;
	refused(&p, d, SRDMA_REASON_QP_SCOPE);
	pair_close(&p);

	pair_defaults(&p);
	open_pair(&p);
	assert_int_equal(
		srdma_relay_leg_open(p.side[1].relay, &lp, &other, &answer), 0);
	mp.region.addr = (uintptr_t)p.side[1].memory;
	d = request(&p, SRDMA_DESC_READ, 8);
	assert_int_equal(
		srdma_relay_mr_reg(p.side[1].relay, other, &mp, &d.rkey), 0);
	refused(&p, d, SRDMA_REASON_WRONG_PD);
	pair_close(&p);
}

static void test_local_access_checks(void **state)
{
	static const struct {
		uint8_t op;
		uint32_t access;
		uint32_t len;
	} rows[] = {
		{ SRDMA_DESC_WRITE, 0, 8 },    { SRDMA_DESC_SEND, 0, 8 },
		{ SRDMA_DESC_WRITE, 1, 8193 }, { SRDMA_DESC_READ, 4, 8 },
		{ SRDMA_DESC_READ, 0, 8 },     { SRDMA_DESC_READ, 1, 8193 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct pair p;
		struct srdma_desc d;
		uint32_t why;

		pair_defaults(&p);
		open_pair(&p);
		d = request(&p, rows[i].op, rows[i].len);
		d.local_key = rows[i].access ? new_mr(&p, 0, rows[i].access, 0)
					     : p.side[0].key + 1;
		pair_post(&p, 0, d, NULL);
		pair_settle(&p);
		pair_expect(&p, 0, 1, SRDMA_REASON_LOCAL_KEY);
		expect_event(&p, 0, SRDMA_REASON_LOCAL_KEY);
		assert_int_equal(pair_state(&p, 1, 0, &why), SRDMA_QP_ERR);
		assert_int_equal(why, SRDMA_REASON_PEER_ERROR);
		expect_event(&p, 1, SRDMA_REASON_PEER_ERROR);
		pair_close(&p);
	}
}

/* A region that is deregistered during a WRITE refuses the rest of it. */
static void test_deregistered_region_refuses_rest_of_write(void **state)
{
	struct pair p;
	struct srdma_desc d;
	struct srdma_relay *r;
	uint32_t key;

	(void)state;
	pair_defaults(&p);
	p.wire.slots = 4;
	p.host[1].dma_polls = 3;
	open_pair(&p);
	r = p.side[1].relay;
	d = request(&p, SRDMA_DESC_WRITE, 2 << 20);
	pair_post(&p, 0, d, NULL);
	pair_run(&p, 12);
	key = p.side[1].key;
	assert_int_equal(srdma_relay_mr_dereg(r, p.side[1].leg, key),
			 -EINPROGRESS);
	while (srdma_relay_mr_busy(r, p.side[1].leg, key))
		pair_run(&p, 1);
	memset(p.side[1].memory, 0x77, PAIR_MEMORY);
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_BAD_RKEY);
	for (int i = 0; i < PAIR_MEMORY; i++)
		assert_int_equal(p.side[1].memory[i], 0x77);
	pair_close(&p);
}

static void test_too_short_recv_fails_both_ends(void **state)
{
	struct pair p;
	struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV, .id = 9 };
	struct srdma_desc d;

	(void)state;
	pair_defaults(&p);
	open_pair(&p);
	recv.length = 5000;
	recv.local_addr = (uintptr_t)p.side[1].memory;
	pair_post(&p, 1, recv, NULL);
	recv.id = 10;
	pair_post(&p, 1, recv, NULL);
	pair_settle(&p);
	/* three packets, of which the second exceeds the receive */
	d = request(&p, SRDMA_DESC_SEND, 12000);
	memset(p.side[1].memory, 0x77, PAIR_MEMORY);
	pair_post(&p, 0, d, NULL);
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_RECV_TOO_SHORT);
	pair_expect(&p, 1, 9, SRDMA_REASON_RECV_TOO_SHORT);
	pair_expect(&p, 1, 10, SRDMA_REASON_FLUSHED);
	for (int i = 5000; i < PAIR_MEMORY; i++)
		assert_int_equal(p.side[1].memory[i], 0x77);
	pair_close(&p);
}

static void test_recv_with_bad_key_fails_send(void **state)
{
	struct pair p;
	struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV,
				   .id = 9,
				   .length = 100 };

	(void)state;
	pair_defaults(&p);
	open_pair(&p);
	recv.local_key = 12345;
	recv.local_addr = (uintptr_t)p.side[1].memory;
	pair_post(&p, 1, recv, NULL);
	recv.id = 10;
	pair_post(&p, 1, recv, NULL);
	pair_post(&p, 0, request(&p, SRDMA_DESC_SEND, 100), NULL);
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_TARGET_DMA);
	pair_expect(&p, 1, 9, SRDMA_REASON_LOCAL_KEY);
	pair_expect(&p, 1, 10, SRDMA_REASON_FLUSHED);
	expect_event(&p, 1, SRDMA_REASON_LOCAL_KEY);
	pair_close(&p);
}

/* RFC 5042 A6.4.3.1a */
static void test_send_without_recv_fails_at_deadline(void **state)
{
	struct pair p;

	(void)state;
	pair_defaults(&p);
	p.timeout_ms = 1000;
	open_pair(&p);
	pair_post(&p, 0, request(&p, SRDMA_DESC_SEND, 10), NULL);
	pair_settle(&p);
	pair_wait_ms(&p, 990);
	pair_expect_none(&p, 0);
	pair_wait_ms(&p, 12);
	pair_expect(&p, 0, 1, SRDMA_REASON_NO_RECV_CREDIT);
	expect_event(&p, 1, SRDMA_REASON_PEER_ERROR);
	pair_close(&p);
}

/* --- wire ----------------------------------------------------------------- */

struct meddler {
	int armed;
	int what; /* 0: drop, 1: flip a bit in the middle, 2: send twice */
	int side;
	int count;
};

static enum srdma_mem_fate meddle(void *ctx, struct srdma_mem_datagram *d)
{
	struct meddler *m = ctx;

	if (!m->armed || d->side != m->side)
		return SRDMA_MEM_PASS;
	m->armed--;
	m->count++;
	if (m->what == 0)
		return SRDMA_MEM_DROP;
	if (m->what == 2)
		return SRDMA_MEM_TWICE;
	d->data[d->len / 2] ^= 0x10;
	return SRDMA_MEM_PASS;
}

/* Loss and tampering are counted, and the packet is sent again. */
/* review A9 */
static void test_lost_or_changed_packet_is_resent(void **state)
{
	(void)state;
	for (int what = 0; what < 2; what++) {
		struct meddler m = { 0 };
		struct pair p;
		struct srdma_desc d;

		pair_defaults(&p);
		p.timeout_ms = 2000;
		p.wire.ctx = &m;
		p.wire.fate = meddle;
		open_pair(&p);
		m = (struct meddler){ .armed = 1, .what = what };
		d = request(&p, SRDMA_DESC_WRITE, 20000);
		memset(p.side[0].memory, 0x11, 20000);
		pair_post(&p, 0, d, NULL);
		pair_settle(&p);
		assert_int_equal(m.count, 1);
		assert_int_equal(pair_refused(&p, 1, SRDMA_REFUSED_TAG), what);
		assert_int_equal(srdma_relay_stats(p.side[1].relay)->kept, 4);
		assert_int_equal(
			srdma_relay_stats(p.side[0].relay)->packets_resent, 1);
		pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
		assert_memory_equal(p.side[1].memory, p.side[0].memory, 20000);
		pair_close(&p);
	}
}

/* RFC 5042 A5.4.1; review A46 */
static void test_replayed_packets_are_refused(void **state)
{
	struct meddler m = { 0 };
	struct pair p;

	(void)state;
	pair_defaults(&p);
	p.wire.ctx = &m;
	p.wire.fate = meddle;
	open_pair(&p);
	m = (struct meddler){ .armed = 1000, .what = 2 };
	for (int i = 0; i < 20; i++) {
		struct srdma_desc d = request(&p, SRDMA_DESC_WRITE, 5000);

		d.id = (uint64_t)i;
		pair_post(&p, 0, d, NULL);
	}
	pair_settle(&p);
	for (uint64_t i = 0; i < 20; i++)
		pair_expect(&p, 0, i, SRDMA_REASON_NONE);
	assert_true(pair_refused(&p, 1, SRDMA_REFUSED_REPLAY) >= 40);
	pair_close(&p);
}

static enum srdma_mem_call nobody(void *ctx, int side)
{
	(void)ctx;
	(void)side;
	return SRDMA_MEM_IMPOSSIBLE;
}

/* Cuts the connection for good: every connect is refused. */
static void test_lost_wire_fails_both_ends(void **state)
{
	struct pair p;
	struct srdma_qp *qp;

	(void)state;
	pair_defaults(&p);
	p.wire.slots = 4;
	open_pair(&p);
	p.wire.call = nobody;
	pair_post(&p, 0, request(&p, SRDMA_DESC_WRITE, 1 << 20), NULL);
	pair_run(&p, 5);
	qp = srdma_relay_qp(p.side[0].relay, p.side[0].qp[0].qpn);
	srdma_port_mem_cut(srdma_path_conn(qp));
	pair_settle(&p);
	for (int i = 0; i < 14; i++)
		pair_wait_ms(&p, 1000);
	pair_expect_none(&p, 0);
	pair_wait_ms(&p, 1000);
	pair_expect(&p, 0, 1, SRDMA_REASON_WIRE_LOST);
	expect_event(&p, 0, SRDMA_REASON_WIRE_LOST);
	expect_event(&p, 1, SRDMA_REASON_WIRE_LOST);
	pair_close(&p);
}

static void test_silent_peer_ends_qp(void **state)
{
	struct meddler m = { 0 };
	struct pair p;
	struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV, .id = 9 };

	(void)state;
	pair_defaults(&p);
	p.wire.ctx = &m;
	p.wire.fate = meddle;
	open_pair(&p);
	pair_post(&p, 0, recv, NULL);
	pair_settle(&p);
	m = (struct meddler){ .armed = 1 << 30, .side = 1 };
	for (int i = 0; i < 14; i++)
		pair_wait_ms(&p, 1000);
	pair_expect_none(&p, 0);
	for (int i = 0; i < 3; i++)
		pair_wait_ms(&p, 1000);
	pair_expect(&p, 0, 9, SRDMA_REASON_FLUSHED);
	expect_event(&p, 0, SRDMA_REASON_PEER_SILENT);
	pair_close(&p);
}

/* Datagrams without a header, for an unknown QP, or for a QP without keys. */
/* RFC 5042 A5.1.1c; review A5 */
static void test_stray_datagrams_are_counted(void **state)
{
	struct pair p;
	struct srdma_qp *qp;
	uint8_t junk[64] = { 0 };

	(void)state;
	pair_defaults(&p);
	open_pair(&p);
	pair_init_qp(&p, 1);
	qp = srdma_relay_qp(p.side[1].relay, p.side[1].qp[0].qpn);
	assert_int_equal(srdma_port_mem_inject(srdma_path_conn(qp), junk, 4),
			 0);
	pair_settle(&p);
	assert_int_equal(pair_refused(&p, 1, SRDMA_REFUSED_SHORT), 1);
	assert_int_equal(srdma_port_mem_inject(srdma_path_conn(qp), junk, 64),
			 0);
	pair_settle(&p);
	assert_int_equal(pair_refused(&p, 1, SRDMA_REFUSED_UNKNOWN_QP), 1);
	junk[5] = (uint8_t)(p.side[1].qp[1].qpn >> 16);
	junk[6] = (uint8_t)(p.side[1].qp[1].qpn >> 8);
	junk[7] = (uint8_t)p.side[1].qp[1].qpn;
	assert_int_equal(srdma_port_mem_inject(srdma_path_conn(qp), junk, 64),
			 0);
	pair_settle(&p);
	assert_int_equal(pair_refused(&p, 1, SRDMA_REFUSED_QP_STATE), 1);
	assert_int_equal(pair_state(&p, 1, 0, NULL), SRDMA_QP_RTS);
	pair_close(&p);
}

/* --- verified packets that no correct relay sends ------------------------- */

/* Seals a packet with side 0's session and injects it at side 1. */
static void forge(struct pair *p, struct srdma_packet pkt, const void *payload)
{
	struct srdma_qp *a =
		srdma_relay_qp(p->side[0].relay, p->side[0].qp[0].qpn);
	struct srdma_qp *b =
		srdma_relay_qp(p->side[1].relay, p->side[1].qp[0].qpn);
	uint8_t out[SRDMA_MAX_PACKET];
	int len;

	pkt.ack.highest_pn =
		(uint32_t)srdma_session_next_pn(srdma_qp_session(b)) - 1;
	len = srdma_session_seal(srdma_qp_session(a), &pkt, payload, out,
				 sizeof(out));
	assert_true(len > 0);
	assert_int_equal(
		srdma_port_mem_inject(srdma_path_conn(b), out, (uint32_t)len),
		0);
	pair_settle(p);
}

/* Packets that are refused together. va is an offset in the region. */
struct illegal {
	struct srdma_packet first, second; /* opcode 0: none */
	uint32_t reason;		   /* 0: MALFORMED */
	uint32_t placed; /* bytes of the legal part, from offset 0 */
};

#define FIRST                                                                  \
	{                                                                      \
		.opcode = SRDMA_OP_WRITE_FIRST, .payload_len = 8,              \
		.dma_len = 16                                                  \
	}
#define READ                                                                   \
	{                                                                      \
		.opcode = SRDMA_OP_READ_REQUEST, .dma_len = 8                  \
	}

static const struct illegal illegals[] = {
	/* MIDDLE without FIRST */
	{ .first = { .opcode = SRDMA_OP_WRITE_MIDDLE, .payload_len = 8 } },
	/* ONLY with fewer bytes than its DMALen */
	{ .first = { .opcode = SRDMA_OP_WRITE_ONLY,
		     .payload_len = 8,
		     .dma_len = 9 } },
	/* FIRST that holds the whole message */
	{ .first = { .opcode = SRDMA_OP_WRITE_FIRST,
		     .payload_len = 8,
		     .dma_len = 8 } },
	/* a SEND inside a WRITE */
	{ .first = FIRST,
	  .second = { .opcode = SRDMA_OP_SEND_LAST,
		      .offset = 8,
		      .payload_len = 8 },
	  .placed = 8 },
	/* more bytes than the DMALen of the WRITE */
	{ .first = FIRST,
	  .second = { .opcode = SRDMA_OP_WRITE_LAST,
		      .offset = 8,
		      .payload_len = 9 },
	  .placed = 8 },
	/* a READ longer than a read chunk */
	{ .first = { .opcode = SRDMA_OP_READ_REQUEST,
		     .dma_len = SRDMA_MAX_READ_CHUNK + 1 } },
	/* a SEND without credit */
	{ .first = { .opcode = SRDMA_OP_SEND_ONLY, .payload_len = 8 },
	  .reason = SRDMA_REASON_NO_RECV },
	/* a WRITE with immediate without credit */
	{ .first = { .opcode = SRDMA_OP_WRITE_ONLY_IMM,
		     .payload_len = 8,
		     .dma_len = 8 },
	  .reason = SRDMA_REASON_NO_RECV },
	/* a memory proof */
	{ .first = { .opcode = SRDMA_OP_WRITE_ONLY,
		     .payload_len = 8,
		     .dma_len = 8,
		     .flags = SRDMA_STH_PROOF },
	  .reason = SRDMA_REASON_PROOF_UNSUPPORTED },
	/* an atomic inside a READ */
	{ .first = READ,
	  .second = { .opcode = SRDMA_OP_FETCH_ADD,
		      .offset = 8,
		      .dma_len = 8 } },
	/* an atomic inside a WRITE */
	{ .first = FIRST,
	  .second = { .opcode = SRDMA_OP_COMPARE_SWAP, .offset = 8 },
	  .placed = 8 },
	{ .first = { .opcode = SRDMA_OP_SEND_ONLY_INV, .payload_len = 8 },
	  .reason = SRDMA_REASON_UNSUPPORTED },
	/* a message longer than 1 GiB */
	{ .first = { .opcode = SRDMA_OP_WRITE_FIRST,
		     .payload_len = 8,
		     .dma_len = SRDMA_MAX_MESSAGE + 1 } },
	/* a READ that continues at another address */
	{ .first = READ,
	  .second = { .opcode = SRDMA_OP_READ_REQUEST,
		      .offset = 8,
		      .va = 8,
		      .dma_len = 8 } },
	/* a READ that continues in another region */
	{ .first = READ,
	  .second = { .opcode = SRDMA_OP_READ_REQUEST,
		      .offset = 8,
		      .rkey = 1,
		      .dma_len = 8 } },
	/* duplicate bytes and more: different segmentation */
	{ .first = FIRST,
	  .second = { .opcode = SRDMA_OP_WRITE_ONLY,
		      .payload_len = 16,
		      .dma_len = 16 },
	  .placed = 8 },
	/* the same for a packet that is kept */
	{ .first = { .opcode = SRDMA_OP_WRITE_LAST,
		     .offset = 4,
		     .payload_len = 12 },
	  .second = FIRST,
	  .placed = 8 },
};

/* Seals a packet for the region of side 1 and injects it there. */
static void forge_at(struct pair *p, struct srdma_packet pkt)
{
	uint8_t payload[16];

	memset(payload, 0x5a, sizeof(payload));
	pkt.va += (uintptr_t)p->side[1].memory;
	pkt.rkey += p->side[1].key;
	forge(p, pkt, payload);
}

static void check_illegal(const struct illegal *row)
{
	struct pair p;
	uint32_t why;

	pair_defaults(&p);
	open_pair(&p);
	forge_at(&p, row->first);
	if (row->second.opcode)
		forge_at(&p, row->second);
	assert_int_equal(pair_state(&p, 1, 0, &why), SRDMA_QP_ERR);
	assert_int_equal(why,
			 row->reason ? row->reason : SRDMA_REASON_MALFORMED);
	assert_int_equal(srdma_relay_stats(p.side[1].relay)->naks_sent, 1);
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(p.side[1].memory[i],
				 i < row->placed ? 0x5a : 0);
	pair_close(&p);
}

/* RFC 5042 R6.4.5-1, A6.4.5 */
static void test_illegal_requests(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(illegals) / sizeof(*illegals); i++)
		check_illegal(&illegals[i]);
}

/* Verified responses and acks without a request have no effect. */
/* RFC 5042 A6.2.1, X2 */
static void test_unsolicited_packets_have_no_effect(void **state)
{
	static const uint8_t ones[64] = { 1, 1, 1 };
	struct pair p;
	struct srdma_packet answer = { .opcode = SRDMA_OP_READ_RESPONSE_ONLY,
				       .payload_len = 64 };
	struct srdma_packet ack = { .opcode = SRDMA_OP_ACKNOWLEDGE,
				    .offset = 5,
				    .ack = { .kind = SRDMA_ACK_ACK,
					     .offset = 5 } };

	(void)state;
	pair_defaults(&p);
	open_pair(&p);
	forge(&p, answer, ones);
	assert_int_equal(pair_refused(&p, 1, SRDMA_REFUSED_UNSOLICITED), 1);
	answer.opcode = SRDMA_OP_ATOMIC_ACKNOWLEDGE;
	answer.payload_len = 0;
	forge(&p, answer, NULL);
	assert_int_equal(pair_refused(&p, 1, SRDMA_REFUSED_UNSOLICITED), 2);
	forge(&p, ack, NULL);
	assert_int_equal(pair_refused(&p, 1, SRDMA_REFUSED_UNSOLICITED), 3);
	assert_int_equal(pair_state(&p, 1, 0, NULL), SRDMA_QP_RTS);
	pair_post(&p, 0, request(&p, SRDMA_DESC_WRITE, 0), NULL);
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
	pair_close(&p);
}

/* An ack for a request that is not completely sent completes nothing. */
static void test_ack_of_unsent_request_completes_nothing(void **state)
{
	struct pair p;
	struct srdma_desc d;
	struct srdma_packet ack = { .opcode = SRDMA_OP_ACKNOWLEDGE,
				    .request_id = 1,
				    .ack = { .kind = SRDMA_ACK_ACK,
					     .request_id = 1 } };

	(void)state;
	pair_defaults(&p);
	p.window = 2;
	p.host[1].dma_polls = 100000;
	open_pair(&p);
	/* Side 1 writes 1 MiB; only two packets fit the window. */
	d = request(&p, SRDMA_DESC_WRITE, 1 << 20);
	d.local_addr = (uintptr_t)p.side[1].memory;
	d.remote_addr = (uintptr_t)p.side[0].memory;
	p.host[1].dma_polls = 0;
	p.host[0].dma_polls = 1000000;
	pair_post(&p, 1, d, NULL);
	pair_run(&p, 20);
	forge(&p, ack, NULL);
	pair_expect_none(&p, 1);
	assert_int_equal(pair_refused(&p, 1, SRDMA_REFUSED_UNSOLICITED), 1);
	pair_close(&p);
}

/* RFC 5042 R6.4.4-1 */
static void test_forgery_limit_ends_qp(void **state)
{
	struct meddler m = { 0 };
	struct pair p;
	struct srdma_qp *qp;
	uint32_t why;

	(void)state;
	pair_defaults(&p);
	p.wire.ctx = &m;
	p.wire.fate = meddle;
	open_pair(&p);
	qp = srdma_relay_qp(p.side[1].relay, p.side[1].qp[0].qpn);
	assert_int_equal(srdma_session_limit(srdma_qp_session(qp), 1 << 20, 3),
			 0);
	m = (struct meddler){ .armed = 3, .what = 1 };
	pair_post(&p, 0, request(&p, SRDMA_DESC_WRITE, 40000), NULL);
	pair_settle(&p);
	assert_int_equal(pair_refused(&p, 1, SRDMA_REFUSED_TAG), 3);
	assert_int_equal(pair_state(&p, 1, 0, &why), SRDMA_QP_ERR);
	assert_int_equal(why, SRDMA_REASON_FORGERY_LIMIT);
	pair_expect(&p, 0, 1, SRDMA_REASON_PEER_ERROR);
	pair_close(&p);
}

/* --- hosts ---------------------------------------------------------------- */

static int fail_dma(void *ctx, const struct srdma_dma *dma, int is_write)
{
	int *countdown = ctx;

	(void)dma;
	(void)is_write;
	return *countdown && !--*countdown ? -EFAULT : 0;
}

static void test_dma_failure_ends_request(void **state)
{
	static const struct {
		uint8_t op;
		int side;
		uint32_t reason;
	} rows[] = {
		{ SRDMA_DESC_WRITE, 0, SRDMA_REASON_LOCAL_DMA },
		{ SRDMA_DESC_READ, 0, SRDMA_REASON_LOCAL_DMA },
		{ SRDMA_DESC_WRITE, 1, SRDMA_REASON_TARGET_DMA },
		{ SRDMA_DESC_READ, 1, SRDMA_REASON_TARGET_DMA },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		for (uint32_t slow = 0; slow < 3; slow += 2) {
			int countdown = 0;
			struct pair p;

			pair_defaults(&p);
			p.host[rows[i].side].dma_polls = slow;
			p.host[rows[i].side].dma = fail_dma;
			p.host[rows[i].side].ctx = &countdown;
			open_pair(&p);
			countdown = 3;
			pair_post(&p, 0, request(&p, rows[i].op, 30000), NULL);
			pair_settle(&p);
			pair_expect(&p, 0, 1, rows[i].reason);
			assert_int_equal(pair_state(&p, 1, 0, NULL),
					 SRDMA_QP_ERR);
			pair_close(&p);
		}
	}
}

/* RFC 5042 R07-2 */
static void test_bad_descriptor_ends_qp(void **state)
{
	struct pair p;
	uint8_t slot[SRDMA_DESC_LEN];
	uint32_t why;
	struct srdma_desc d;

	(void)state;
	pair_defaults(&p);
	open_pair(&p);
	d = request(&p, SRDMA_DESC_WRITE, 1);
	d.qpn = p.side[0].qp[0].qpn ^ 1;
	pair_post(&p, 0, d, NULL); /* unknown QP: counted */
	pair_settle(&p);
	assert_int_equal(srdma_relay_stats(p.side[0].relay)
				 ->reason[SRDMA_REASON_QP_STATE],
			 1);
	d.qpn = p.side[0].qp[0].qpn;
	srdma_desc_encode(slot, &d);
	slot[0] = 99;
	assert_int_equal(srdma_port_mem_post(p.side[0].conn, slot, 4), 0);
	assert_int_equal(
		srdma_port_mem_post(p.side[0].conn, slot, sizeof(slot)), 0);
	pair_settle(&p);
	assert_int_equal(pair_state(&p, 0, 0, &why), SRDMA_QP_ERR);
	assert_int_equal(why, SRDMA_REASON_BAD_DESCRIPTOR);
	pair_close(&p);
}

static void test_queue_overflow_ends_qp(void **state)
{
	(void)state;
	for (int recv = 0; recv < 2; recv++) {
		struct pair p;
		uint32_t why;

		pair_defaults(&p);
		p.depth = 4;
		open_pair(&p);
		for (uint64_t i = 0; i < 5; i++) {
			struct srdma_desc d = request(
				&p, recv ? SRDMA_DESC_RECV : SRDMA_DESC_SEND,
				0);

			d.id = i;
			pair_post(&p, 0, d, NULL);
		}
		pair_settle(&p);
		assert_int_equal(pair_state(&p, 0, 0, &why), SRDMA_QP_ERR);
		assert_int_equal(why, SRDMA_REASON_QUEUE_FULL);
		pair_close(&p);
	}
}

static void open_without_keys(struct pair *p)
{
	pair_defaults(p);
	pair_open(p);
	pair_init_qp(p, 0);
}

/* 7.1: requests wait for the keys. */
static void test_request_before_keys_waits(void **state)
{
	struct pair p;
	struct srdma_desc d;

	(void)state;
	open_without_keys(&p);
	memset(p.side[0].memory, 0x5A, 3);
	pair_post(&p, 0, request(&p, SRDMA_DESC_WRITE, 3), NULL);
	d = request(&p, SRDMA_DESC_SEND, 4);
	d.id = 2;
	pair_post(&p, 0, d, "abcd");
	pair_settle(&p);
	pair_expect_none(&p, 0);
	d = request(&p, SRDMA_DESC_RECV, 4);
	d.local_addr = (uintptr_t)p.side[1].memory + 8;
	pair_post(&p, 1, d, NULL);
	pair_meet(&p, 0);
	pair_expect(&p, 0, 1, 0);
	pair_expect(&p, 0, 2, 0);
	pair_expect(&p, 1, 1, 0);
	assert_memory_equal(p.side[1].memory, "\x5A\x5A\x5A", 3);
	assert_memory_equal(p.side[1].memory + 8, "abcd", 4);
	pair_close(&p);
}

static void test_request_without_keys_has_a_deadline(void **state)
{
	struct pair p;

	(void)state;
	open_without_keys(&p);
	pair_post(&p, 0, request(&p, SRDMA_DESC_WRITE, 1), NULL);
	pair_settle(&p);
	pair_wait_ms(&p, 29000);
	pair_expect_none(&p, 0);
	pair_wait_ms(&p, 1500);
	pair_expect(&p, 0, 1, SRDMA_REASON_DEADLINE);
	expect_event(&p, 0, SRDMA_REASON_DEADLINE);
	pair_close(&p);
}

static void test_capability_before_keys_fails(void **state)
{
	struct pair p;
	struct srdma_desc d;

	(void)state;
	open_without_keys(&p);
	d = request(&p, SRDMA_DESC_WRITE, 1);
	d.capability = 1;
	pair_post(&p, 0, d, NULL);
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_QP_STATE);
	pair_close(&p);
}

static void test_dead_host_ends_its_leg(void **state)
{
	(void)state;
	for (uint32_t slow = 0; slow < 4; slow += 3) {
		struct pair p;

		pair_defaults(&p);
		p.host[1].dma_polls = slow;
		p.wire.slots = 4;
		open_pair(&p);
		pair_post(&p, 0, request(&p, SRDMA_DESC_WRITE, 1 << 20), NULL);
		pair_run(&p, 7);
		srdma_port_mem_kill(p.side[1].conn);
		pair_settle(&p);
		pair_wait_ms(&p, 200);
		pair_expect(&p, 0, 1, SRDMA_REASON_PEER_HOST_GONE);
		expect_event(&p, 0, SRDMA_REASON_PEER_HOST_GONE);
		assert_null(srdma_relay_leg_by_id(p.side[1].relay, 1));
		assert_int_equal(p.side[1].relay->leg_count, 0);
		assert_int_equal(p.side[1].relay->qp_count, 0);
		pair_close(&p);
	}
}

static void test_destroy_waits_for_dma(void **state)
{
	struct pair p;
	struct srdma_relay *r;
	int err, turns = 0;

	(void)state;
	pair_defaults(&p);
	p.host[0].dma_polls = 5;
	open_pair(&p);
	r = p.side[0].relay;
	pair_post(&p, 0, request(&p, SRDMA_DESC_WRITE, 1 << 20), NULL);
	pair_run(&p, 4);
	while ((err = srdma_relay_qp_destroy(r, p.side[0].leg,
					     p.side[0].qp[0].qpn)) ==
	       -EINPROGRESS) {
		pair_run(&p, 1);
		assert_true(++turns < 1000);
	}
	assert_int_equal(err, 0);
	assert_true(turns > 0);
	assert_int_equal(r->env.ops.left, SRDMA_OPS); /* no DMA is left */
	pair_expect_none(&p, 0); /* a destroyed QP writes no records */
	pair_settle(&p);
	expect_event(&p, 1, SRDMA_REASON_PEER_CLOSED);
	assert_int_equal(
		srdma_relay_qp_destroy(r, p.side[0].leg, p.side[0].qp[0].qpn),
		-ENOENT);
	srdma_relay_leg_close(p.side[0].leg);
	pair_settle(&p);
	assert_int_equal(r->leg_count, 0);
	pair_close(&p);
}

/*
 * The connection ends after a CLOSE that waits for slow DMA: the reason of the
 * CLOSE is kept.
 */
static void test_reason_of_close_survives_lost_wire(void **state)
{
	struct pair p;
	uint32_t why;
	int turns = 0;

	(void)state;
	pair_defaults(&p);
	p.host[1].dma_polls = 500;
	open_pair(&p);
	pair_post(&p, 0, request(&p, SRDMA_DESC_WRITE, 20000), NULL);
	pair_run(&p, 4);
	while (srdma_relay_qp_destroy(p.side[0].relay, p.side[0].leg,
				      p.side[0].qp[0].qpn)) {
		pair_run(&p, 1);
		assert_true(++turns < 100);
	}
	/* side 1 receives both while its DMA is in progress */
	pair_run(&p, 20);
	assert_null(srdma_path_conn(
		srdma_relay_qp(p.side[1].relay, p.side[1].qp[0].qpn)));
	pair_run(&p, 1000);
	assert_int_equal(pair_state(&p, 1, 0, &why), SRDMA_QP_ERR);
	assert_int_equal(why, SRDMA_REASON_PEER_CLOSED);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_remote_access_checks),
		cmocka_unit_test(test_address_overflow_is_refused),
		cmocka_unit_test(test_scope_of_another_identity_is_refused),
		cmocka_unit_test(test_other_scope_or_pd_is_refused),
		cmocka_unit_test(test_local_access_checks),
		cmocka_unit_test(
			test_deregistered_region_refuses_rest_of_write),
		cmocka_unit_test(test_too_short_recv_fails_both_ends),
		cmocka_unit_test(test_recv_with_bad_key_fails_send),
		cmocka_unit_test(test_send_without_recv_fails_at_deadline),
		cmocka_unit_test(test_lost_or_changed_packet_is_resent),
		cmocka_unit_test(test_replayed_packets_are_refused),
		cmocka_unit_test(test_lost_wire_fails_both_ends),
		cmocka_unit_test(test_silent_peer_ends_qp),
		cmocka_unit_test(test_stray_datagrams_are_counted),
		cmocka_unit_test(test_illegal_requests),
		cmocka_unit_test(test_unsolicited_packets_have_no_effect),
		cmocka_unit_test(test_ack_of_unsent_request_completes_nothing),
		cmocka_unit_test(test_forgery_limit_ends_qp),
		cmocka_unit_test(test_dma_failure_ends_request),
		cmocka_unit_test(test_bad_descriptor_ends_qp),
		cmocka_unit_test(test_queue_overflow_ends_qp),
		cmocka_unit_test(test_request_before_keys_waits),
		cmocka_unit_test(test_request_without_keys_has_a_deadline),
		cmocka_unit_test(test_capability_before_keys_fails),
		cmocka_unit_test(test_dead_host_ends_its_leg),
		cmocka_unit_test(test_destroy_waits_for_dma),
		cmocka_unit_test(test_reason_of_close_survives_lost_wire),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
