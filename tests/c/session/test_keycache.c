/* The key cache alone, with contexts of a real suite. */
#include "session/keycache.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "crypto/cmac.h"
#include "support/memory.h"
#include "crypto/suite.h"

enum { FLOWS = 12 };

static struct srdma_keycache *cache;
static struct srdma_keyslot *link_of[FLOWS];
static const struct srdma_suite *suite;

static void open_cache(unsigned contexts)
{
	suite = srdma_suite_by_name("aes-128-gcm");
	memset(link_of, 0, sizeof(link_of));
	assert_int_equal(srdma_keycache_create(&cache, contexts, NULL), 0);
}

static void close_cache(void)
{
	for (int i = 0; i < FLOWS; i++)
		srdma_keycache_drop(cache, &link_of[i]);
	srdma_keycache_destroy(cache);
}

/* A context that was taken from another flow cannot be used before it is keyed.
 */
static void expect_no_key(struct srdma_suite_ctx *ctx)
{
	const uint8_t text[1] = { 0 };
	uint8_t nonce[SRDMA_NONCE_LEN] = { 0 }, tag[16], out[sizeof(text)];
	const struct srdma_suite_io io = {
		.nonce = nonce,
		.ad = text,
		.ad_len = sizeof(text),
		.in = text,
		.in_len = sizeof(text),
		.out = out,
	};

	assert_int_equal(suite->verbs->seal(ctx, &io, tag), -EIO);
}

/*
 * Uses the context of a flow as for a packet. Returns 1 if it was in the cache.
 */
static int use(unsigned flow)
{
	const uint8_t key[16] = { (uint8_t)flow };
	const struct srdma_suite_key k = { suite, SRDMA_SUITE_SEAL, 16, key };
	struct srdma_keyslot **link = &link_of[flow];
	const int hit = srdma_keycache_take(cache, link, suite, suite->verbs);
	struct srdma_suite_ctx **ctx;

	assert_non_null(*link);
	ctx = &(*link)->keyed.ctx;
	if (hit) {
		assert_int_equal((*link)->keyed.iv[0], flow + 1);
	} else {
		assert_true(is_zero((*link)->keyed.iv, SRDMA_NONCE_LEN));
		if (*ctx)
			expect_no_key(*ctx);
		assert_int_equal(*ctx ? suite->verbs->again(*ctx, &k)
				      : suite->verbs->create(ctx, NULL, &k),
				 0);
		memset((*link)->keyed.iv, (int)flow + 1, SRDMA_NONCE_LEN);
	}
	srdma_keycache_release(cache, link);
	return hit;
}

static void counts_are(uint64_t hits, uint64_t misses, uint32_t kept)
{
	struct srdma_keycache_counts c;

	srdma_keycache_count(cache, &c);
	assert_int_equal(c.hits, hits);
	assert_int_equal(c.misses, misses);
	assert_int_equal(c.kept, kept);
}

/* RFC 5042 R5.4.5-3 */
static void test_least_recently_used_is_evicted(void **state)
{
	(void)state;
	open_cache(3);
	counts_are(0, 0, 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(use(i), 0);
	counts_are(0, 3, 3);
	assert_int_equal(use(0), 1); /* 1 is the least recently used now */
	assert_int_equal(use(3), 0);
	assert_null(link_of[1]);
	assert_non_null(link_of[0]);
	assert_non_null(link_of[2]);
	assert_int_equal(use(2), 1);
	assert_int_equal(use(0), 1);
	assert_int_equal(use(1), 0);
	assert_null(link_of[3]);
	counts_are(3, 5, 3);
	close_cache();
}

static void test_dropped_slot_is_free(void **state)
{
	(void)state;
	open_cache(2);
	use(0);
	use(1);
	srdma_keycache_drop(cache, &link_of[1]);
	assert_null(link_of[1]);
	counts_are(0, 2, 1);
	/* takes the free slot, although 0 was used less recently */
	assert_int_equal(use(2), 0);
	assert_int_equal(use(0), 1);
	srdma_keycache_drop(cache, &link_of[5]); /* not in the cache */
	counts_are(1, 3, 2);
	close_cache();
}

/* A slot that is dropped, or taken for another flow, is wiped. */
static void test_lost_slot_is_wiped(void **state)
{
	struct srdma_keyslot *slot;

	(void)state;
	open_cache(1);
	use(0);
	slot = link_of[0];
	assert_false(is_zero(&slot->keyed, sizeof(slot->keyed)));
	srdma_keycache_drop(cache, &link_of[0]);
	assert_true(is_zero(&slot->keyed, sizeof(slot->keyed)));
	use(1);
	assert_ptr_equal(link_of[1], slot);
	/* use() checks the slot that the next flow gets */
	assert_int_equal(use(2), 0);
	assert_ptr_equal(link_of[2], slot);
	assert_null(link_of[1]);
	close_cache();
}

/* Without contexts in the cache, none outlives its packet. */
static void test_empty_cache_keeps_none(void **state)
{
	(void)state;
	open_cache(0);
	for (int n = 0; n < 5; n++) {
		assert_int_equal(use(0), 0);
		assert_null(link_of[0]);
	}
	counts_are(0, 5, 0);
	close_cache();
}

/* Random uses and drops, compared with a model of the least recent use. */
static void test_random_uses_match_model(void **state)
{
	static const unsigned sizes[] = { 1, 2, 5, FLOWS, FLOWS + 4 };
	uint64_t seed = 3;

	(void)state;
	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
		/* 0: not in the cache */
		unsigned last[FLOWS] = { 0 }, kept = 0;

		open_cache(sizes[k]);
		for (unsigned now = 1; now < 3000; now++) {
			const unsigned f = random_below(&seed, FLOWS);
			unsigned oldest = f;

			if (random_below(&seed, 8) == 0) {
				srdma_keycache_drop(cache, &link_of[f]);
				kept -= last[f] != 0;
				last[f] = 0;
				continue;
			}
			assert_int_equal(use(f), last[f] != 0);
			kept += last[f] == 0;
			last[f] = now;
			for (unsigned i = 0; kept > sizes[k] && i < FLOWS; i++)
				if (last[i] && last[i] < last[oldest])
					oldest = i;
			if (kept > sizes[k]) {
				last[oldest] = 0;
				kept--;
			}
			for (unsigned i = 0; i < FLOWS; i++)
				assert_int_equal(link_of[i] != NULL,
						 last[i] != 0);
		}
		close_cache();
	}
}

/* contexts for key derivation */
static void test_derivation_contexts(void **state)
{
	(void)state;
	open_cache(4);
	assert_int_equal(srdma_keycache_prf(cache, 16)->key_len, 16);
	assert_int_equal(srdma_keycache_prf(cache, 32)->key_len, 32);
	close_cache();
	srdma_keycache_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_least_recently_used_is_evicted),
		cmocka_unit_test(test_dropped_slot_is_free),
		cmocka_unit_test(test_lost_slot_is_wiped),
		cmocka_unit_test(test_empty_cache_keeps_none),
		cmocka_unit_test(test_random_uses_match_model),
		cmocka_unit_test(test_derivation_contexts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
