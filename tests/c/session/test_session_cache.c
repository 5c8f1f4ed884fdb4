/*
 * Sessions with derived keys: many of them share one cache. Also the state that
 * each session stores.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/memory.h"
#include "support/modes.h"
#include "session/session_state.h"

/* --- many sessions and one cache ------------------------------------------ */

enum { PAIRS = 10 };

/* Creates pairs with different QPNs, protections and modes. */
static void create_pairs(struct pair pairs[PAIRS])
{
	for (unsigned i = 0; i < PAIRS; i++) {
		struct protection p;

		assert_true(protection_at(i * 3, &p));
		p = in_mode(p, i % MODES);
		for (uint8_t role = 0; role < 2; role++) {
			struct srdma_session_params s = pair_params(&p, role);

			s.shared = (p.mode & SRDMA_MODE_PD) != 0;
			s.pd = &pair_means.pd[0];
			s.local_qpn += i;
			s.peer_qpn += i;
			assert_int_equal(
				srdma_session_create(&pairs[i].end[role], &s),
				0);
		}
	}
}

static void test_interleaved_sessions(void **state)
{
	static const unsigned sizes[] = { 0, 1, 2, 3, 7, 64 };
	uint64_t next[PAIRS][2], x = 88172645463325252ull;
	struct pair pairs[PAIRS];

	(void)state;
	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
		assert_int_equal(pair_open(sizes[k]), 0);
		create_pairs(pairs);
		memset(next, 0, sizeof(next));
		for (int n = 0; n < 2000; n++) {
			unsigned i, from;
			int len;

			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			i = x % PAIRS;
			from = x >> 32 & 1;
			len = send(pairs[i].end[from], next[i][from]++, 40);
			assert_true(len > 0);
			out[24] ^= n % 5 == 0;
			if (n % 5 == 0)
				assert_int_not_equal(
					receive(pairs[i].end[!from], len), 0);
			out[24] ^= n % 5 == 0;
			assert_int_equal(receive(pairs[i].end[!from], len), 0);
			assert_true(counts().kept <= sizes[k]);
		}
		for (unsigned i = 0; i < PAIRS; i++)
			pair_destroy(&pairs[i]);
		assert_int_equal(counts().kept, 0);
		pair_close();
	}
}

/*
 * Only the session whose context was used least recently has to derive it
 * again.
 */
static void test_least_recently_used_session_derives(void **state)
{
	const struct protection p = { .suite = srdma_suite_by_id(1),
				      .level = SRDMA_LEVEL_AEAD,
				      .tag_len = 16,
				      .mode = SRDMA_MODE_PD,
				      .shared = 1 };
	struct srdma_session *s[4];
	/* sending session, and whether it must derive its key */
	static const struct {
		int who, derives;
	} rows[] = {
		{ 0, 1 }, { 1, 1 }, { 2, 1 }, { 0, 0 }, { 3, 1 }, /* evicts 1 */
		{ 0, 0 }, { 2, 0 }, { 1, 1 },			  /* evicts 3 */
		{ 0, 0 }, { 3, 1 },				  /* evicts 2 */
		{ 1, 0 }, { 0, 0 }, { 3, 0 }, { 2, 1 },		  /* evicts 1 */
		{ 1, 1 },
	};

	(void)state;
	assert_int_equal(pair_open(3), 0);
	for (int i = 0; i < 4; i++) {
		struct srdma_session_params params = pair_params(&p, 0);

		params.generation[0] = (uint8_t)i;
		assert_int_equal(srdma_session_create(&s[i], &params), 0);
	}
	for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++) {
		const uint64_t misses = counts().misses;

		assert_true(send(s[rows[n].who], n, 8) > 0);
		assert_int_equal(counts().misses - misses, rows[n].derives);
	}
	assert_int_equal(counts().kept, 3);
	for (int i = 0; i < 4; i++)
		srdma_session_destroy(s[i]);
	assert_int_equal(counts().kept, 0);
	pair_close();
}

/*
 * A session that ends removes its contexts from the cache; those of others
 * stay.
 */
static void test_ended_session_leaves_cache(void **state)
{
	struct protection p = in_mode(gcm(), 1);
	struct pair a, b;

	(void)state;
	assert_int_equal(pair_open(8), 0);
	assert_int_equal(pair_create(&a, &p), 0);
	assert_int_equal(pair_create(&b, &p), 0);
	assert_int_equal(pair_settle(&a), 0);
	assert_int_equal(pair_settle(&b), 0);
	assert_int_equal(counts().kept, 8);
	srdma_session_destroy(a.end[0]);
	assert_int_equal(counts().kept, 6);
	assert_int_equal(counts().misses, 8);
	assert_int_equal(receive(b.end[1], send(b.end[0], PAIR_NEXT_ID, 9)), 0);
	assert_int_equal(counts().misses, 8);
	srdma_session_destroy(a.end[1]);
	/* a session that never sent a packet has none */
	assert_int_equal(pair_create(&a, &p), 0);
	assert_int_equal(counts().kept, 4);
	pair_destroy(&a);
	pair_destroy(&b);
	assert_int_equal(counts().kept, 0);
	pair_close();
}

/* --- stored state --------------------------------------------------------- */

static void check_state(const struct protection *how)
{
	const uint32_t secret = how->suite->key_len <= 16 ? 16 : 32;
	uint32_t key = 2 * (how->suite->key_len + secret),
		 iv = 2 * how->suite->iv_len;
	struct srdma_session_state state;
	struct pair pair;

	if (how->mode & SRDMA_MODE_PD) {
		key = how->shared ? 0 : secret;
		iv = 0;
	}
	assert_int_equal(pair_create(&pair, how), 0);
	for (int used = 0; used < 2; used++) {
		srdma_session_state(pair.end[0], &state);
		assert_int_equal(state.key_bytes, key);
		assert_int_equal(state.nonce_bytes, 16 + iv);
		assert_int_equal(state.window_bytes, SRDMA_WINDOW_WORDS * 8);
		assert_int_equal(pair_settle(&pair), 0);
	}
	pair_destroy(&pair);
}

static void test_stored_state(void **state)
{
	const struct protection bare = none();
	struct srdma_session_state s;
	struct pair pair;

	(void)state;
	for_all(4, check_state);
	assert_int_equal(pair_create(&pair, &bare), 0);
	srdma_session_state(pair.end[0], &s);
	assert_int_equal(s.key_bytes, 0);
	assert_int_equal(s.nonce_bytes, 16);
	pair_destroy(&pair);
}

/* With PD the session does not store the secret S of its receive direction. */
static void test_derived_secret_is_not_stored(void **state)
{
	struct protection p = in_mode(gcm(), 1);
	struct srdma_session_params other;
	struct srdma_session *s;
	struct pair pair;

	(void)state;
	assert_int_equal(pair_open(0), 0);
	other = pair_params(&p, 0);
	assert_int_equal(pair_create(&pair, &p), 0);
	/* receives with the secret that end 0 got as tx_secret */
	s = pair.end[1];
	assert_int_equal(pair_settle(&pair), 0);
	assert_null(memmem(s, sizeof(*s), other.tx_secret, 16));
	assert_true(is_zero(s->rx.epochs.key[SRDMA_EPOCH_NOW].secret,
			    SRDMA_MAX_SECRET));
	assert_false(is_zero(s->tx.epochs.key[SRDMA_EPOCH_NOW].secret,
			     SRDMA_MAX_SECRET));
	for (int at = 0; at < SRDMA_EPOCHS; at++) {
		assert_null(s->rx.epochs.key[at].slot);
		assert_null(s->tx.epochs.key[at].slot);
	}
	pair_destroy(&pair);
	pair_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_interleaved_sessions),
		cmocka_unit_test(test_least_recently_used_session_derives),
		cmocka_unit_test(test_ended_session_leaves_cache),
		cmocka_unit_test(test_stored_state),
		cmocka_unit_test(test_derived_secret_is_not_stored),
	};

	return cmocka_run_group_tests(tests, fill_text, NULL);
}
