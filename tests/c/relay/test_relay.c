/* Main path of the relay: data through two relays joined in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/relay_pair.h"

static const uint32_t sizes[] = { 0,	 1,	63,    64,     448,
				  449,	 4095,	4096,  4097,   8192,
				  65535, 65536, 65537, 131073, (1 << 20) + 3 };

static void fill(uint8_t *m, uint32_t len, uint32_t seed)
{
	for (uint32_t i = 0; i < len; i++)
		m[i] = (uint8_t)((i * 2654435761u + seed) >> 13);
}

static void write_and_read(struct pair *p, uint32_t len, uint32_t at)
{
	uint8_t *a = p->side[0].memory, *b = p->side[1].memory;
	struct srdma_desc w = { .opcode = SRDMA_DESC_WRITE,
				.id = 1,
				.length = len,
				.local_addr = (uintptr_t)a + at,
				.remote_addr = (uintptr_t)b + at + 7 };
	struct srdma_desc r = { .opcode = SRDMA_DESC_READ,
				.id = 2,
				.length = len,
				.local_addr = (uintptr_t)a + PAIR_MEMORY / 2,
				.remote_addr = (uintptr_t)b + at + 7 };

	memset(b, 0xee, PAIR_MEMORY);
	fill(a + at, len, len);
	pair_post(p, 0, w, NULL);
	pair_settle(p);
	pair_expect(p, 0, 1, SRDMA_REASON_NONE);
	assert_memory_equal(b + at + 7, a + at, len);
	assert_int_equal(b[at + 6], 0xee);
	assert_int_equal(b[at + 7 + len], 0xee);
	memset(a + PAIR_MEMORY / 2, 0xdd, len + 1);
	pair_post(p, 0, r, NULL);
	pair_settle(p);
	pair_expect(p, 0, 2, SRDMA_REASON_NONE);
	assert_memory_equal(a + PAIR_MEMORY / 2, b + at + 7, len);
	assert_int_equal(a[PAIR_MEMORY / 2 + len], 0xdd);
}

static void sizes_of_write_and_read(struct pair *p)
{
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		write_and_read(p, sizes[i], (uint32_t)i * 3 + 1);
	pair_expect_none(p, 0);
	pair_expect_none(p, 1);
}

static void test_write_and_read(void **state)
{
	struct pair p;

	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	pair_connect(&p, 0);
	sizes_of_write_and_read(&p);
	pair_close(&p);
}

static void test_write_and_read_with_slow_dma(void **state)
{
	struct pair p;

	(void)state;
	pair_defaults(&p);
	p.host[0].dma_polls = 3;
	p.host[1].dma_polls = 5;
	pair_open(&p);
	pair_connect(&p, 0);
	sizes_of_write_and_read(&p);
	pair_close(&p);
}

static void test_write_and_read_with_smallest_limits(void **state)
{
	struct pair p;

	(void)state;
	pair_defaults(&p);
	p.mtu = 256;
	p.window = 1;
	p.reads = 1;
	p.wire.slots = 2;
	pair_open(&p);
	pair_connect(&p, 0);
	write_and_read(&p, 70000, 5);
	write_and_read(&p, 0, 5);
	pair_close(&p);
}

static void test_every_suite_and_level(void **state)
{
	static const struct {
		uint8_t suite, level, tag;
	} rows[] = {
		{ 0x01, SRDMA_LEVEL_AEAD, 16 },
		{ 0x03, SRDMA_LEVEL_AEAD, 16 },
		{ 0x07, SRDMA_LEVEL_AEAD, 16 },
		{ 0x12, SRDMA_LEVEL_PACKET, 32 },
		{ 0x12, SRDMA_LEVEL_HEADER, 32 },
		{ 0x20, SRDMA_LEVEL_PACKET, 16 },
		{ 0x20, SRDMA_LEVEL_HEADER, 12 },
		{ 0x30, SRDMA_LEVEL_PACKET, 16 },
		{ 0x30, SRDMA_LEVEL_HEADER, 16 },
		{ 0x00, SRDMA_LEVEL_NONE, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const struct srdma_stats *s;
		struct pair p;

		pair_defaults(&p);
		p.suite = rows[i].suite;
		p.level = rows[i].level;
		p.tag_len = rows[i].tag;
		p.allow_unprotected = p.level == SRDMA_LEVEL_NONE;
		pair_open(&p);
		pair_connect(&p, 0);
		write_and_read(&p, 65537, 3);
		s = srdma_relay_stats(p.side[1].relay);
		if (p.level == SRDMA_LEVEL_NONE) {
			assert_int_equal(s->packets_verified, 0);
			assert_true(s->packets_unprotected_received > 17);
		} else {
			assert_true(s->packets_verified > 17);
			assert_int_equal(s->packets_unprotected_received, 0);
			assert_int_equal(s->packets_unprotected_sent, 0);
		}
		pair_close(&p);
	}
}

static void test_send_waits_for_recv(void **state)
{
	struct pair p;
	struct srdma_record r;

	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	pair_connect(&p, 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		int imm = i % 2;
		uint8_t *a = p.side[0].memory, *b = p.side[1].memory;
		struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV,
					   .id = 100 + i,
					   .length = sizes[i] + 1,
					   .local_addr = (uintptr_t)b + 9 };
		struct srdma_desc send = { .opcode = imm ? SRDMA_DESC_SEND_IMM
							 : SRDMA_DESC_SEND,
					   .id = 200 + i,
					   .length = sizes[i],
					   .imm = 0xabad1dea,
					   .local_addr = (uintptr_t)a + 1 };

		fill(a, sizes[i] + 1, 5);
		memset(b, 0, sizes[i] + 10);
		/* The SEND waits for its RECV. */
		pair_post(&p, 0, send, NULL);
		pair_settle(&p);
		pair_expect_none(&p, 0);
		pair_post(&p, 1, recv, NULL);
		pair_settle(&p);
		pair_expect(&p, 0, 200 + i, SRDMA_REASON_NONE);
		assert_int_equal(pair_record(&p, 1, &r), 1);
		assert_int_equal(r.id, 100 + i);
		assert_int_equal(r.status, 0);
		assert_int_equal(r.opcode, SRDMA_WC_RECV);
		assert_int_equal(r.byte_len, sizes[i]);
		assert_int_equal(r.flags, imm ? SRDMA_RECORD_WITH_IMM : 0);
		if (imm)
			assert_int_equal(r.imm, 0xabad1dea);
		assert_memory_equal(b + 9, a + 1, sizes[i]);
	}
	pair_close(&p);
}

static void test_write_with_immediate_completes_recv(void **state)
{
	struct pair p;
	struct srdma_record r;
	struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV, .id = 5 };
	struct srdma_desc w = { .opcode = SRDMA_DESC_WRITE_IMM,
				.id = 6,
				.length = 10000,
				.imm = 7 };

	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	pair_connect(&p, 0);
	w.local_addr = (uintptr_t)p.side[0].memory;
	w.remote_addr = (uintptr_t)p.side[1].memory + 100;
	fill(p.side[0].memory, 10000, 1);
	pair_post(&p, 1, recv, NULL);
	pair_post(&p, 0, w, NULL);
	pair_settle(&p);
	pair_expect(&p, 0, 6, SRDMA_REASON_NONE);
	assert_int_equal(pair_record(&p, 1, &r), 1);
	assert_int_equal(r.id, 5);
	assert_int_equal(r.opcode, SRDMA_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(r.imm, 7);
	assert_int_equal(r.byte_len, 10000);
	assert_memory_equal(p.side[1].memory + 100, p.side[0].memory, 10000);
	pair_close(&p);
}

static void test_inline_unsignaled_writes_give_no_record(void **state)
{
	struct pair p;
	uint8_t text[448];
	struct srdma_desc w = { .opcode = SRDMA_DESC_WRITE, .length = 448 };

	(void)state;
	fill(text, sizeof(text), 3);
	pair_defaults(&p);
	p.mtu = 256; /* inline data is segmented as well */
	pair_open(&p);
	pair_connect(&p, 0);
	w.remote_addr = (uintptr_t)p.side[1].memory;
	for (int i = 0; i < 10; i++) {
		w.id = (UINT64_C(1) << 63) + (uint64_t)i;
		pair_post(&p, 0, w, text);
		w.remote_addr += 448;
	}
	w.id = 10;
	pair_post(&p, 0, w, text);
	pair_settle(&p);
	pair_expect(&p, 0, 10, SRDMA_REASON_NONE);
	pair_expect_none(&p, 0);
	for (int i = 0; i < 11; i++)
		assert_memory_equal(p.side[1].memory + i * 448, text, 448);
	pair_close(&p);
}

/*
 * Many requests in both directions on several QPs, with full queues. Every
 * request completes once and in order.
 */
static void test_many_requests_on_many_qps_complete_in_order(void **state)
{
	struct pair p;
	struct srdma_record r;
	uint64_t next[2][PAIR_QPS] = { { 0 } };

	(void)state;
	pair_defaults(&p);
	p.wire.slots = 16;
	p.host[0].dma_polls = 2;
	pair_open(&p);
	for (int i = 0; i < PAIR_QPS; i++)
		pair_connect(&p, i);
	for (uint64_t n = 0; n < 64; n++) {
		for (int i = 0; i < PAIR_QPS; i++) {
			for (int s = 0; s < 2; s++) {
				struct srdma_desc d = {
					.opcode = n % 3 ? SRDMA_DESC_WRITE
							: SRDMA_DESC_READ,
					.id = n,
					.qpn = p.side[s].qp[i].qpn,
					.length = (uint32_t)(n * 701),
					.local_addr =
						(uintptr_t)p.side[s].memory,
					.remote_addr =
						(uintptr_t)p.side[!s].memory,
				};

				pair_post(&p, s, d, NULL);
			}
		}
		pair_run(&p, 1);
	}
	pair_settle(&p);
	for (int s = 0; s < 2; s++) {
		while (pair_record(&p, s, &r)) {
			int i = 0;

			while (p.side[s].qp[i].qpn != r.qpn)
				i++;
			assert_int_equal(r.status, 0);
			assert_int_equal(r.id, next[s][i]++);
		}
		for (int i = 0; i < PAIR_QPS; i++)
			assert_int_equal(next[s][i], 64);
	}
	pair_close(&p);
}

/* A fenced WRITE does not overtake the READ before it. */
static void test_fenced_write_waits_for_read(void **state)
{
	struct pair p;
	struct srdma_desc r = { .opcode = SRDMA_DESC_READ,
				.id = 1,
				.length = 300000 };
	struct srdma_desc w = { .opcode = SRDMA_DESC_WRITE,
				.id = 2,
				.flags = SRDMA_DESC_FENCE,
				.length = 300000 };

	(void)state;
	pair_defaults(&p);
	p.host[1].dma_polls = 4;
	pair_open(&p);
	pair_connect(&p, 0);
	r.local_addr = (uintptr_t)p.side[0].memory;
	w.local_addr = r.local_addr + 1000000;
	r.remote_addr = w.remote_addr = (uintptr_t)p.side[1].memory;
	fill(p.side[1].memory, 300000, 9);
	fill(p.side[0].memory + 1000000, 300000, 8);
	pair_post(&p, 0, r, NULL);
	pair_post(&p, 0, w, NULL);
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
	pair_expect(&p, 0, 2, SRDMA_REASON_NONE);
	assert_memory_equal(p.side[1].memory, p.side[0].memory + 1000000,
			    300000);
	fill(p.side[1].memory, 300000, 9);
	assert_memory_equal(p.side[0].memory, p.side[1].memory, 300000);
	pair_close(&p);
}

/* Record writing stops at a full ring and resumes when the host consumes. */
/* RFC 5042 R6.4.3.2-2, A6.4.3.2b */
static void test_full_record_ring_is_not_overrun(void **state)
{
	struct pair p;
	struct srdma_record r;
	uint64_t seen = 0, posted = 0;

	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	for (int i = 0; i < PAIR_QPS; i++)
		pair_connect(&p, i);
	while (seen < 4 * PAIR_RING) {
		struct srdma_desc d = { .opcode = SRDMA_DESC_WRITE,
					.qpn = p.side[0].qp[posted % 4].qpn };

		while (posted < seen + 200) {
			d.id = posted++;
			d.qpn = p.side[0].qp[posted % 4].qpn;
			pair_post(&p, 0, d, NULL);
		}
		pair_settle(&p);
		while (pair_record(&p, 0, &r)) {
			assert_int_equal(r.status, 0);
			seen++;
		}
		assert_int_equal(seen, posted);
	}
	pair_close(&p);
}

static void test_idle_qp_stays_rts(void **state)
{
	struct pair p;
	struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV, .id = 1 };

	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	pair_connect(&p, 0);
	pair_post(&p, 1, recv, NULL);
	for (int i = 0; i < 60; i++)
		pair_wait_ms(&p, 1000);
	assert_int_equal(pair_state(&p, 1, 0, NULL), SRDMA_QP_RTS);
	pair_expect_none(&p, 1);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write_and_read),
		cmocka_unit_test(test_write_and_read_with_slow_dma),
		cmocka_unit_test(test_write_and_read_with_smallest_limits),
		cmocka_unit_test(test_every_suite_and_level),
		cmocka_unit_test(test_send_waits_for_recv),
		cmocka_unit_test(test_write_with_immediate_completes_recv),
		cmocka_unit_test(test_inline_unsignaled_writes_give_no_record),
		cmocka_unit_test(
			test_many_requests_on_many_qps_complete_in_order),
		cmocka_unit_test(test_fenced_write_waits_for_read),
		cmocka_unit_test(test_full_record_ring_is_not_overrun),
		cmocka_unit_test(test_idle_qp_stays_rts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
