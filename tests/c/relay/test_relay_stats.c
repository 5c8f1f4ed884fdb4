/*
 * Gauges of the memory that QPs of each key mode hold, counted as in Table 3 of
 * the paper.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "memory/mr.h"
#include "support/relay_pair.h"
#include "wire/wire.h"

enum { SECRET = 16, QPS = 3 };

/* The four gauges of a key mode. */
struct held {
	uint64_t qps, keys, nonces, windows;
};

static struct held held_of(struct srdma_relay *r, unsigned mode)
{
	const struct srdma_stats *s = srdma_relay_stats(r);

	srdma_relay_stats_measure(r);
#define OF(MODE)                                                               \
	(struct held)                                                          \
	{                                                                      \
		s->qps_##MODE, s->key_bytes_##MODE, s->nonce_bytes_##MODE,     \
			s->window_bytes_##MODE                                 \
	}
	switch (mode) {
	case SRDMA_MODE_BASIC:
		return OF(basic);
	case SRDMA_MODE_PD:
		return OF(pd);
	case SRDMA_MODE_MEM:
		return OF(mem);
	default:
		return OF(pd_mem);
	}
#undef OF
}

static void test_gauges_of_each_mode(void **state)
{
	struct pair p;
	struct held basic = { 0, 0, 0, 0 };

	(void)state;
	for (unsigned mode = 0; mode < SRDMA_MODES; mode++) {
		struct held one, all;

		pair_defaults(&p);
		p.mode = (uint8_t)mode;
		pair_open(&p);
		pair_connect(&p, 0);
		one = held_of(p.side[0].relay, mode);
		assert_int_equal(one.qps, 1);
		for (int i = 1; i < QPS; i++)
			pair_connect(&p, i);
		all = held_of(p.side[0].relay, mode);
		assert_int_equal(all.qps, QPS);
		assert_int_equal(all.keys, QPS * one.keys);
		assert_int_equal(all.nonces, QPS * one.nonces);
		assert_int_equal(all.windows, QPS * one.windows);
		for (unsigned other = 0; other < SRDMA_MODES; other++)
			if (other != mode)
				assert_int_equal(
					held_of(p.side[0].relay, other).qps, 0);
		if (mode == SRDMA_MODE_BASIC)
			basic = one;
		/*
		 * With PD only the secret of the sending direction is stored;
		 * the keys are derived from it and from K_PD.
		 */
		if (mode & SRDMA_MODE_PD) {
			assert_int_equal(one.keys, SECRET);
			assert_true(one.nonces < basic.nonces);
		} else {
			assert_int_equal(one.keys, basic.keys);
		}
		for (int i = 0; i < QPS; i++)
			pair_destroy_qp(&p, i);
		assert_int_equal(held_of(p.side[0].relay, mode).qps, 0);
		assert_int_equal(held_of(p.side[0].relay, mode).keys, 0);
		pair_close(&p);
	}
}

/* A QP of a trust group holds no key. */
static void test_group_qp_holds_no_key(void **state)
{
	struct pair p;
	struct held one;

	(void)state;
	pair_defaults(&p);
	p.mode = SRDMA_MODE_PD;
	p.shared = 1;
	pair_open(&p);
	pair_connect(&p, 0);
	one = held_of(p.side[0].relay, SRDMA_MODE_PD);
	assert_int_equal(one.qps, 1);
	assert_int_equal(one.keys, 0);
	assert_true(one.nonces > 0);
	assert_int_equal(srdma_relay_stats(p.side[0].relay)->legs, 1);
	assert_int_equal(srdma_relay_stats(p.side[0].relay)->key_bytes_legs,
			 SRDMA_GROUP_KEY_LEN + SRDMA_MEMKEY_LEN);
	pair_close(&p);
}

/* QPs without keys and QPs without protection are not counted. */
static void test_qp_without_keys_is_not_counted(void **state)
{
	struct pair p;

	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	pair_init_qp(&p, 0);
	assert_int_equal(held_of(p.side[0].relay, SRDMA_MODE_BASIC).qps, 0);
	pair_close(&p);

	pair_defaults(&p);
	p.suite = p.level = p.tag_len = 0;
	p.allow_unprotected = 1;
	pair_open(&p);
	pair_connect(&p, 0);
	assert_int_equal(held_of(p.side[0].relay, SRDMA_MODE_BASIC).qps, 0);
	pair_close(&p);
}

/* RFC 5042 R6.4.4-1 */
static void test_key_cache_counters(void **state)
{
	const struct srdma_stats *s;
	struct pair p;

	(void)state;
	for (unsigned contexts = 0; contexts <= 2; contexts += 2) {
		pair_defaults(&p);
		p.mode = SRDMA_MODE_PD;
		p.key_cache = contexts;
		pair_open(&p);
		pair_connect(&p, 0);
		s = srdma_relay_stats(p.side[0].relay);
		srdma_relay_stats_measure(p.side[0].relay);
		assert_true(s->key_cache_misses > 0);
		assert_int_equal(s->key_cache_kept, contexts);
		if (contexts == 0)
			assert_int_equal(s->key_cache_hits, 0);
		else
			assert_int_equal(s->key_cache_misses, 2);
		assert_int_equal(s->key_cache_hits + s->key_cache_misses,
				 s->packets_sealed + s->packets_verified);
		pair_close(&p);
	}
}

/* One end makes one proof per packet, the other end verifies it. */
/* review A46 */
static void test_proof_counters(void **state)
{
	const struct pair_region region = {
		.len = 4096,
		.access = SRDMA_ACCESS_ALL | SRDMA_ACCESS_PROOF,
		.log2_block = 10,
		.depth = 1,
	};
	struct srdma_cap_params params = { .length = 4096, .rights = 3 };
	struct srdma_desc d = {
		.opcode = SRDMA_DESC_WRITE,
		.length = 4096,
		.id = 7,
	};
	struct pair p;

	(void)state;
	pair_defaults(&p);
	p.mode = SRDMA_MODE_MEM;
	pair_open(&p);
	pair_connect(&p, 0);
	params.key = pair_register(&p, 1, region);
	d.capability = pair_install(&p, 0, params);
	d.rkey = params.key;
	d.local_addr = (uintptr_t)p.side[0].memory;
	d.remote_addr = (uintptr_t)p.side[1].memory;
	pair_post(&p, 0, d, NULL);
	pair_settle(&p);
	pair_expect(&p, 0, 7, SRDMA_REASON_NONE);
	assert_int_equal(srdma_relay_stats(p.side[0].relay)->proofs_made, 1);
	assert_int_equal(srdma_relay_stats(p.side[0].relay)->proofs_verified,
			 0);
	assert_int_equal(srdma_relay_stats(p.side[1].relay)->proofs_made, 0);
	assert_int_equal(srdma_relay_stats(p.side[1].relay)->proofs_verified,
			 1);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gauges_of_each_mode),
		cmocka_unit_test(test_group_qp_holds_no_key),
		cmocka_unit_test(test_qp_without_keys_is_not_counted),
		cmocka_unit_test(test_key_cache_counters),
		cmocka_unit_test(test_proof_counters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
