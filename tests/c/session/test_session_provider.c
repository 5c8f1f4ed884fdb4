/*
 * A failing crypto provider: OpenSSL gets no memory. A packet that cannot be
 * sealed uses its number and leaves no plaintext. A packet that cannot be
 * opened does not count as a forgery and is accepted once the provider works
 * again.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "support/failing.h"
#include "session/session_state.h"
#include "wire/stats.h"
#include "support/traffic.h"

/* successful allocations left for OpenSSL; < 0: no limit */
static long budget = -1;

static int spend(void)
{
	if (budget > 0)
		budget--;
	return budget != 0;
}

static void *limited_malloc(size_t len, const char *file, int line)
{
	(void)file;
	(void)line;
	return spend() ? malloc(len) : NULL;
}

static void *limited_realloc(void *p, size_t len, const char *file, int line)
{
	(void)file;
	(void)line;
	return spend() ? realloc(p, len) : NULL;
}

static void limited_free(void *p, const char *file, int line)
{
	(void)file;
	(void)line;
	free(p);
}

static struct protection in_mode(struct protection p, uint8_t mode)
{
	p.mode = mode;
	return p;
}

/* Deriving the key fails after each possible number of allocations. */
static void seal_without_memory(const struct protection *p)
{
	struct pair pair;
	long n;

	assert_int_equal(pair_create(&pair, p), 0);
	for (n = 1;; n++) {
		const uint64_t next = srdma_session_next_pn(pair.end[0]);
		struct srdma_keycache_counts c;
		int len;

		memset(out, 0xee, sizeof(out));
		budget = n;
		len = send(pair.end[0], (uint64_t)n, 64);
		budget = -1;
		assert_int_equal(srdma_session_next_pn(pair.end[0]), next + 1);
		if (len > 0) {
			assert_int_equal(receive(pair.end[1], len), 0);
			break;
		}
		assert_int_equal(len, -EIO);
		assert_null(memmem(out, sizeof(out), text, 4));
		srdma_keycache_count(pair_means.cache, &c);
		assert_int_equal(c.kept, 0);
	}
	assert_true(n > 1); /* at least one seal failed */
	pair_destroy(&pair);
}

/*
 * A cache for 0 keys still keeps the context of the last packet, which could
 * take another key without new memory. Taking the context for no suite frees
 * it, so that the next packet needs memory.
 */
static void forget_idle_context(void)
{
	struct srdma_keyslot *link = NULL;

	srdma_keycache_take(pair_means.cache, &link, NULL, NULL);
	srdma_keycache_drop(pair_means.cache, &link);
}

static void open_without_memory(const struct protection *p)
{
	struct srdma_session *to;
	struct pair pair;
	int len, r;
	long n;

	assert_int_equal(pair_create(&pair, p), 0);
	to = pair.end[1];
	len = send(pair.end[0], 0, 64);
	forget_idle_context();
	for (n = 1;; n++) {
		const struct srdma_session before = *to;

		memset(plain, 0, sizeof(plain));
		budget = n;
		r = receive(to, len);
		budget = -1;
		if (!r)
			break;
		assert_int_equal(r, -SRDMA_REFUSED_PROVIDER);
		assert_memory_equal(&to->window, &before.window,
				    sizeof(to->window));
		assert_int_equal(to->peer_next, before.peer_next);
		assert_int_equal(srdma_session_forgeries(to), 0);
		for (int i = 0; i < 64; i++)
			assert_int_equal(plain[i], 0);
	}
	assert_true(n > 1);
	assert_memory_equal(plain, text, 64);
	assert_int_equal(receive(to, len), -SRDMA_REFUSED_REPLAY);
	pair_destroy(&pair);
}

static void test_failed_derivation(void **state)
{
	struct protection p;

	(void)state;
	for (unsigned i = 0; protection_at(i, &p); i++) {
		p.mode = SRDMA_MODE_PD;
		p.shared = (uint8_t)(i & 1);
		assert_int_equal(pair_open(i & 2 ? 0 : 4), 0);
		seal_without_memory(&p);
		open_without_memory(&p);
		pair_close();
	}
}

/*
 * A context that fails to take another key, or to clear its key, is not used
 * again.
 */
static void test_failing_context_is_not_used_again(void **state)
{
	const struct protection p = in_mode(gcm(), SRDMA_MODE_PD);
	struct srdma_suite_verbs verbs;
	struct srdma_keycache_counts c;
	struct pair pair;

	(void)state;
	assert_int_equal(pair_open(0), 0);
	assert_int_equal(pair_create(&pair, &p), 0);
	verbs = *pair.end[0]->tx.epochs.verbs;
	verbs.again = failing_again;
	pair.end[0]->tx.epochs.verbs = &verbs;
	assert_true(send(pair.end[0], 0, 16) > 0);
	assert_int_equal(send(pair.end[0], 1, 16), -EIO);
	verbs.forget = failing_forget;
	for (uint64_t id = 2; id < 5; id++) /* each with a new context */
		assert_true(send(pair.end[0], id, 16) > 0);
	srdma_keycache_count(pair_means.cache, &c);
	assert_int_equal(c.kept, 0);
	pair_destroy(&pair);
	pair_close();
}

/* A session is created completely or not at all. */
static void test_create_session_without_memory(void **state)
{
	static const uint8_t modes[] = { SRDMA_MODE_BASIC, SRDMA_MODE_MEM };

	(void)state;
	assert_int_equal(pair_open(4), 0);
	for (size_t i = 0; i < sizeof(modes); i++) {
		const struct protection p = in_mode(gcm(), modes[i]);
		const struct srdma_session_params params = pair_params(&p, 0);
		struct srdma_session *s = NULL;
		long n = 0;
		int r;

		do {
			budget = ++n;
			r = srdma_session_create(&s, &params);
			budget = -1;
			assert_int_equal(s == NULL, r != 0);
			assert_true(!r || r == -ENOMEM || r == -EIO);
		} while (r);
		assert_true(n > 1);
		srdma_session_destroy(s);
	}
	pair_close();
}

static void test_create_cache_without_memory(void **state)
{
	struct srdma_keycache *c;
	long n = 0;
	int r;

	(void)state;
	do {
		budget = ++n;
		r = srdma_keycache_create(&c, 2, NULL);
		budget = -1;
		assert_int_equal(c == NULL, r != 0);
	} while (r);
	assert_true(n > 1);
	srdma_keycache_destroy(c);
}

/*
 * A context that refuses to open is a failure of the provider, not a forgery.
 */
/* review A35 */
static void test_cipher_failure_is_no_forgery(void **state)
{
	struct protection p;

	(void)state;
	for (unsigned i = 0; protection_at(i, &p); i++) {
		struct srdma_keyed sealer;
		struct pair pair;
		int len;

		assert_int_equal(pair_create(&pair, &p), 0);
		len = send(pair.end[0], 0, 16);
		/* a context for sealing cannot open, nor the reverse */
		sealer = pair.end[1]->tx.epochs.key[0].own;
		pair.end[1]->tx.epochs.key[0].own =
			pair.end[1]->rx.epochs.key[0].own;
		pair.end[1]->rx.epochs.key[0].own = sealer;
		assert_int_equal(receive(pair.end[1], len),
				 -SRDMA_REFUSED_PROVIDER);
		assert_int_equal(srdma_session_forgeries(pair.end[1]), 0);
		memset(out, 0xee, sizeof(out));
		assert_int_equal(send(pair.end[1], 0, 16), -EIO);
		assert_null(memmem(out, sizeof(out), text, 16));
		pair_destroy(&pair);
	}
}

/* The proof is made before the tag; its failure has the same effect. */
/* review A35 */
static void test_failed_proof_sends_nothing(void **state)
{
	const struct protection p = in_mode(gcm(), SRDMA_MODE_MEM);
	const uint8_t access_key[16] = "K_access";
	struct srdma_packet q = {
		.opcode = SRDMA_OP_WRITE_ONLY,
		.flags = SRDMA_STH_PROOF,
		.access_key = access_key,
		.payload_len = 16,
	};
	struct pair pair;
	uint64_t next;
	struct srdma_suite_verbs failing;

	(void)state;
	assert_int_equal(pair_open(4), 0);
	assert_int_equal(pair_create(&pair, &p), 0);
	next = srdma_session_next_pn(pair.end[0]);
	failing = *pair_means.cmac.verbs;
	failing.again = failing_again;
	pair_means.cmac.verbs = &failing;
	assert_int_equal(
		srdma_session_seal(pair.end[0], &q, text, out, sizeof(out)),
		-EIO);
	assert_null(memmem(out, sizeof(out), text, 16));
	assert_int_equal(srdma_session_next_pn(pair.end[0]), next + 1);
	/* works again with a key that the provider accepts */
	assert_true(srdma_session_seal(pair.end[0], &q, text, out,
				       sizeof(out)) > 0);
	pair_destroy(&pair);
	pair_close();
}

/*
 * Runs the self-tests, like a worker at its start. OpenSSL never finds an
 * algorithm again whose first lookup failed for lack of memory.
 */
static int open_all(void **state)
{
	for (unsigned i = 0; srdma_suite_at(i); i++)
		if (srdma_suite_selftest(srdma_suite_at(i), NULL))
			return -1;
	return fill_text(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failed_derivation),
		cmocka_unit_test(test_failing_context_is_not_used_again),
		cmocka_unit_test(test_create_session_without_memory),
		cmocka_unit_test(test_create_cache_without_memory),
		cmocka_unit_test(test_cipher_failure_is_no_forgery),
		cmocka_unit_test(test_failed_proof_sends_nothing),
	};

	if (!CRYPTO_set_mem_functions(limited_malloc, limited_realloc,
				      limited_free))
		return 1;
	return cmocka_run_group_tests(tests, open_all, NULL);
}
