/*
 * Each call of libcrypto, of intel-ipsec-mb and of the allocator that keys need
 * fails once: derivation, sessions, memory keys, capabilities. The function
 * reports it, its output holds no secret, and it works when it is called again.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "crypto/kdf.h"
#include "crypto/provider.h"
#include "faults/faults.h"
#include "memory/capability.h"
#include "memory/memguard.h"
#include "session/observer.h"
#include "session/session_state.h"
#include "support/traffic.h"
#include "wire/stats.h"

enum { TEXT = 64, BLOCK = 4096 };

/* The protection and the objects of the scene that runs. */
struct scene {
	struct protection how;
	struct pair pair;
	struct srdma_session_params params;
	int len; /* of a sealed packet in `out` */
};

static const uint8_t zero[256];

static int is_failure(int r)
{
	return r == -ENOMEM || r == -EIO;
}

/* 1 if the call may have been that of a context that should forget its key: it
 * is destroyed instead, and nothing else fails. */
static int forgets(const char *name)
{
	return !strcmp(name, "EVP_MAC_init") ||
	       !strcmp(name, "srdma_openssl_cipher_key");
}

/* 1 if the call also refuses the wrong tags of the self-test. */
static int refuses_tags(const char *name)
{
	return !strcmp(name, "srdma_openssl_cipher_judge");
}

/* A function reports each failed call. */
static void judge(int r)
{
	const char *name = faults_disarm();

	if (name && !is_failure(r) && (r || !forgets(name)))
		fail_msg("%s failed, and the result is %d", name, r);
	if (!name)
		assert_int_equal(r, 0);
}

/* --- key derivation ------------------------------------------------------- */

static void derive(void *ctx, unsigned long n)
{
	const struct srdma_kdf_info info = { "label", text, 40 };
	uint8_t key[200];
	int r;

	memset(key, 0xee, sizeof(key));
	faults_arm(n);
	r = srdma_kdf(key, sizeof(key), text, *(size_t *)ctx, &info);
	judge(r);
	assert_int_equal(!memcmp(key, zero, sizeof(key)), r != 0);
}

static void test_failed_derivation_leaves_zeros(void **state)
{
	size_t len;

	(void)state;
	for (len = 16; len <= 32; len += 16)
		assert_true(faults_each(derive, &len) > 8);
}

static void create_provider(void *ctx, unsigned long n)
{
	struct srdma_provider *p;
	const char *name;
	int r;

	faults_arm(n);
	r = srdma_provider_create(&p, ctx);
	name = faults_disarm();
	if (name && !refuses_tags(name))
		assert_true(is_failure(r));
	if (!name)
		assert_true(!r || r == -ENOTSUP);
	assert_true(!r || !p);
	srdma_provider_destroy(p);
}

static void self_test(void *ctx, unsigned long n)
{
	const char *name;
	int r;

	faults_arm(n);
	r = srdma_suite_selftest(ctx, NULL);
	name = faults_disarm();
	if (name && !refuses_tags(name))
		assert_int_equal(r, -EIO);
	if (!name)
		assert_int_equal(r, 0);
}

static void test_failed_self_test_refuses_provider(void **state)
{
	static char names[][16] = { "ipsec-mb", "nettle" };

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct srdma_provider *p;
		int r = srdma_provider_create(&p, names[i]);

		srdma_provider_destroy(p);
		if (!r)
			assert_true(faults_each(create_provider, names[i]) > 8);
	}
	for (unsigned i = 0; srdma_suite_at(i); i++) {
		struct srdma_suite s = *srdma_suite_at(i);

		assert_true(faults_each(self_test, &s) > 8);
	}
}

/* --- sessions ------------------------------------------------------------- */

static void create(void *ctx, unsigned long n)
{
	struct scene *s = ctx;
	struct srdma_session *made = NULL;
	int r;

	faults_arm(n);
	r = srdma_session_create(&made, &s->params);
	judge(r);
	assert_int_equal(made == NULL, r != 0);
	srdma_session_destroy(made);
}

static void begin(struct scene *s)
{
	assert_int_equal(pair_create(&s->pair, &s->how), 0);
}

static void end(struct scene *s)
{
	pair_destroy(&s->pair);
}

/* The number of a packet that was not sealed is not used again. */
static void seal(void *ctx, unsigned long n)
{
	struct scene *s = ctx;
	const char *name;
	uint64_t next;
	int len;

	begin(s);
	next = srdma_session_next_pn(s->pair.end[0]);
	memset(out, 0xee, sizeof(out));
	faults_arm(n);
	len = send(s->pair.end[0], 0, TEXT);
	name = faults_disarm();
	if (len < 0) {
		assert_non_null(name);
		assert_int_equal(len, -EIO);
		assert_null(memmem(out, sizeof(out), text, 4));
	} else {
		assert_true(!name || forgets(name));
		assert_int_equal(receive(s->pair.end[1], len), 0);
	}
	assert_int_equal(srdma_session_next_pn(s->pair.end[0]), next + 1);
	end(s);
}

/* The failure at the end of a packet is that of a wrong tag, which counts as a
 * forgery. */
static void refused(const struct srdma_session *to, const char *name, int r)
{
	const int tag = refuses_tags(name);

	assert_int_equal(r, tag ? -SRDMA_REFUSED_TAG : -SRDMA_REFUSED_PROVIDER);
	assert_int_equal(srdma_session_forgeries(to), tag);
	assert_memory_equal(plain, zero, TEXT);
}

/* Nothing is delivered, and the same packet is accepted afterwards. */
/* Receives a packet of the text while call n fails. If that fails, the packet is
 * received again, which succeeds. Returns the call that failed if the packet was
 * received at once, else NULL. */
static const char *receive_despite(struct srdma_session *to, int len,
				   unsigned long n)
{
	const char *name;
	int r;

	memset(plain, 0, sizeof(plain));
	faults_arm(n);
	r = receive(to, len);
	name = faults_disarm();
	if (r) {
		assert_non_null(name);
		refused(to, name, r);
		assert_int_equal(receive(to, len), 0);
	}
	assert_memory_equal(plain, text, TEXT);
	return r ? NULL : name;
}

static void open_(void *ctx, unsigned long n)
{
	struct scene *s = ctx;
	struct srdma_session *to;
	const char *name;
	int len;

	begin(s);
	to = s->pair.end[1];
	len = send(s->pair.end[0], 0, TEXT);
	name = receive_despite(to, len, n);
	assert_true(!name || forgets(name));
	assert_int_equal(receive(to, len), -SRDMA_REFUSED_REPLAY);
	end(s);
}

/* The first packet of a next epoch, with a new secret or by the chain. */
static void follow(struct scene *s, unsigned long n, int renewed)
{
	struct srdma_session *from, *to;
	const char *name;
	int r;

	begin(s);
	from = s->pair.end[0];
	to = s->pair.end[1];
	if (renewed) {
		assert_int_equal(srdma_session_renew(from, SRDMA_TX, text, 0),
				 0);
		assert_int_equal(srdma_session_renew(to, SRDMA_RX, text, 0), 0);
	}
	from->rekey.packets = 0;
	faults_arm(n);
	r = srdma_session_advance(from, 1, UINT64_MAX);
	name = faults_disarm();
	if (r != 1) {
		assert_true(name && is_failure(r));
		assert_int_equal(srdma_session_epoch(from, SRDMA_TX), 0);
		r = srdma_session_advance(from, 1, UINT64_MAX);
	}
	assert_int_equal(r, 1);
	receive_despite(to, send(from, 0, TEXT), n);
	assert_int_equal(srdma_session_epoch(to, SRDMA_RX), 1);
	end(s);
}

static void follow_chain(void *ctx, unsigned long n)
{
	follow(ctx, n, 0);
}

static void follow_renewed(void *ctx, unsigned long n)
{
	follow(ctx, n, 1);
}

static void prove(void *ctx, unsigned long n)
{
	const struct scene *s = ctx;
	static const uint8_t context[SRDMA_PROVE_CONTEXT_LEN] = { 1 };
	uint8_t proof[SRDMA_RENEWAL_LEN] = { 0 };
	int r;

	faults_arm(n);
	r = srdma_session_prove(s->pair.end[0], context, proof);
	judge(r);
	assert_int_equal(!memcmp(proof, zero, sizeof(proof)), r != 0);
	assert_int_equal(srdma_session_prove(s->pair.end[0], context, proof),
			 0);
	faults_arm(n);
	r = srdma_session_check_proof(s->pair.end[1], context, proof);
	judge(r);
}

static void every_step(struct scene *s)
{
	s->params = pair_params(&s->how, 0);
	assert_true(faults_each(create, s) > 0);
	assert_true(faults_each(seal, s) > 0);
	assert_true(faults_each(open_, s) > 0);
}

static void test_failed_calls_of_sessions(void **state)
{
	struct scene s = { .len = 0 };

	(void)state;
	for (unsigned i = 0; protection_at(i, &s.how); i++)
		every_step(&s);
	s.how = gcm();
	for (s.how.mode = 0; s.how.mode < SRDMA_MODES; s.how.mode++) {
		assert_int_equal(pair_open(0), 0);
		every_step(&s);
		assert_true(faults_each(follow_chain, &s) > 0);
		if (!(s.how.mode & SRDMA_MODE_PD))
			assert_true(faults_each(follow_renewed, &s) > 0);
		begin(&s);
		assert_true(faults_each(prove, &s) > 0);
		end(&s);
		pair_close();
	}
}

/* --- observers ------------------------------------------------------------ */

static void observe(void *ctx, unsigned long n)
{
	const struct scene *s = ctx;
	const struct srdma_observer_params o = {
		.suite = s->params.suite,
		.level = s->params.level,
		.tag_len = s->params.tag_len,
		.secret_len = s->params.secret_len,
		.pn = s->params.tx_pn,
	};
	struct srdma_observer *made = NULL;
	int r;

	faults_arm(n);
	r = srdma_observer_create(&made, &o);
	judge(r);
	assert_int_equal(made == NULL, r != 0);
	if (!r) {
		faults_arm(n);
		judge(srdma_observer_step(made));
	}
	srdma_observer_destroy(made);
}

static void test_failed_calls_of_observers(void **state)
{
	struct scene s = { .how = gcm() };

	(void)state;
	s.params = pair_params(&s.how, 0);
	assert_true(faults_each(observe, &s) > 0);
}

/* --- memory --------------------------------------------------------------- */

static const struct srdma_memtree tree = {
	.start = 0x1000,
	.end = 0x1000 + 64 * BLOCK,
	.log2_block = 12,
	.depth_limit = 48,
};
static const struct srdma_capability_scope scope = {
	.lo = BLOCK,
	.hi = 7 * BLOCK,
	.rights = SRDMA_MEMKEY_ALL,
};
static const struct srdma_memguard_fresh fresh = { { 1 }, 1 };

struct memory {
	struct srdma_cmac cmac;
	struct srdma_memguard_params params;
	struct srdma_memguard *guard;
	uint32_t revoked;
};

static void memory_begin(struct memory *m)
{
	memset(m, 0, sizeof(*m));
	assert_int_equal(srdma_cmac_create(&m->cmac, 16, NULL), 0);
	m->params = (struct srdma_memguard_params){
		.tree = tree,
		.rkey = 7,
		.cmac = &m->cmac,
		.pd_key = text,
		.revoked = &m->revoked,
	};
	assert_int_equal(srdma_memguard_create(&m->guard, &m->params, &fresh),
			 0);
}

static void memory_end(struct memory *m)
{
	srdma_memguard_destroy(m->guard);
	srdma_cmac_destroy(&m->cmac);
	assert_int_equal(m->revoked, 0);
}

static void guard(void *ctx, unsigned long n)
{
	struct memory *m = ctx;
	struct srdma_memguard *made = NULL;
	int r;

	faults_arm(n);
	r = srdma_memguard_create(&made, &m->params, &fresh);
	judge(r);
	assert_int_equal(made == NULL, r != 0);
	srdma_memguard_destroy(made);
}

static void revoke(void *ctx, unsigned long n)
{
	struct memory m;
	int r;

	(void)ctx;
	memory_begin(&m);
	faults_arm(n);
	r = srdma_memguard_revoke(m.guard, BLOCK, 3 * BLOCK, &fresh);
	judge(r);
	assert_int_equal(m.revoked, r == 0);
	faults_arm(n);
	r = srdma_memguard_revoke_all(m.guard, &fresh);
	judge(r);
	assert_true(r || m.revoked == 0);
	memory_end(&m);
}

static void is_wiped(const struct srdma_capability *cap, int r)
{
	if (r)
		assert_memory_equal(cap->key, zero, sizeof(zero));
}

/* grant, narrow, seal, make ready */
static void grant(void *ctx, unsigned long n)
{
	const struct srdma_capability_scope part = {
		.lo = 2 * BLOCK,
		.hi = 5 * BLOCK,
		.rights = SRDMA_MEMKEY_READ,
	};
	const struct srdma_memkey_bearer bearer = { .expiry = 99 };
	struct srdma_capability cap, narrow;
	struct memory m;
	int r;

	(void)ctx;
	memory_begin(&m);
	m.params.uncached = 1;
	faults_arm(n);
	r = srdma_memguard_grant(m.guard, &cap, &scope);
	judge(r);
	is_wiped(&cap, r);
	assert_int_equal(srdma_memguard_grant(m.guard, &cap, &scope), 0);
	faults_arm(n);
	r = srdma_capability_narrow(&narrow, &m.cmac, &cap, &part);
	judge(r);
	is_wiped(&narrow, r);
	faults_arm(n);
	r = srdma_capability_ready(&cap, &m.cmac);
	judge(r);
	is_wiped(&cap, r);
	if (!srdma_memguard_grant(m.guard, &cap, &scope)) {
		faults_arm(n);
		r = srdma_capability_seal(&cap, &m.cmac, &bearer);
		judge(r);
		is_wiped(&cap, r);
	}
	memory_end(&m);
}

/* The check sum of a token. */
static void encode(void *ctx, unsigned long n)
{
	uint8_t token[SRDMA_CAPABILITY_MAX];
	const struct srdma_capability *cap = ctx;
	struct srdma_capability again;
	int len, r;

	faults_arm(n);
	len = srdma_capability_encode(token, cap);
	if (faults_disarm()) {
		assert_int_equal(len, -EIO);
		assert_memory_equal(token, zero, sizeof(zero));
	}
	len = srdma_capability_encode(token, cap);
	assert_true(len > 0);
	faults_arm(n);
	r = srdma_capability_decode(&again, token, (size_t)len);
	judge(r);
	is_wiped(&again, r);
}

static void holder(void *ctx, unsigned long n)
{
	uint8_t name[SRDMA_MEMKEY_HOLDER_LEN];

	(void)ctx;
	faults_arm(n);
	judge(srdma_memkey_holder(name, "spiffe://example/a"));
}

/* A claim that cannot be checked is refused; a right one is then accepted. */
static void check(void *ctx, unsigned long n)
{
	uint8_t proof[SRDMA_MEMKEY_PROOF_LEN];
	struct srdma_memkey_claim claim = {
		.right = SRDMA_MEMKEY_READ,
		.addr = tree.start + BLOCK,
		.len = BLOCK,
		.ad = text,
		.ad_len = 60,
		.proof = proof,
	};
	struct srdma_capability cap;
	struct srdma_capability_entry e;
	struct memory m;

	(void)ctx;
	memory_begin(&m);
	assert_int_equal(srdma_memguard_grant(m.guard, &cap, &scope), 0);
	assert_int_equal(srdma_capability_ready(&cap, &m.cmac), 0);
	assert_int_equal(
		srdma_capability_find(&cap, SRDMA_MEMKEY_READ, BLOCK, &e), 0);
	claim.depth = e.node->depth;
	assert_int_equal(srdma_memkey_proof(&m.cmac, proof, e.key, claim.ad,
					    claim.ad_len),
			 0);
	srdma_memguard_destroy(m.guard);
	assert_int_equal(srdma_memguard_create(&m.guard, &m.params, &fresh), 0);
	faults_arm(n);
	judge(srdma_memguard_check(m.guard, &claim, 1));
	assert_int_equal(srdma_memguard_check(m.guard, &claim, 1), 0);
	memory_end(&m);
}

static void test_failed_calls_of_memory_keys(void **state)
{
	struct srdma_capability cap;
	struct memory m;

	(void)state;
	memory_begin(&m);
	assert_true(faults_each(guard, &m) > 0);
	assert_true(faults_each(revoke, NULL) > 0);
	assert_true(faults_each(grant, NULL) > 0);
	assert_true(faults_each(check, NULL) > 0);
	assert_true(faults_each(holder, NULL) > 0);
	assert_int_equal(srdma_memguard_grant(m.guard, &cap, &scope), 0);
	assert_true(faults_each(encode, &cap) > 0);
	memory_end(&m);
}

static void test_every_function_failed(void **state)
{
	static const char *const names[] = {
		"EVP_CIPHER_fetch",
		"OSSL_PROVIDER_query_operation",
		"srdma_openssl_cipher_key",
		"srdma_openssl_cipher_begin",
		"srdma_openssl_cipher_add",
		"srdma_openssl_cipher_text",
		"srdma_openssl_cipher_end",
		"srdma_openssl_cipher_judge",
		"srdma_openssl_cipher_tag",
		"EVP_MAC_fetch",
		"EVP_MAC_CTX_new",
		"EVP_MAC_CTX_get_mac_size",
		"EVP_MAC_init",
		"EVP_MAC_update",
		"EVP_MAC_final",
		"SHA256",
		"malloc",
		"calloc",
		NULL,
	};

	(void)state;
	faults_all(names);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failed_derivation_leaves_zeros),
		cmocka_unit_test(test_failed_self_test_refuses_provider),
		cmocka_unit_test(test_failed_calls_of_sessions),
		cmocka_unit_test(test_failed_calls_of_observers),
		cmocka_unit_test(test_failed_calls_of_memory_keys),
		cmocka_unit_test(test_every_function_failed),
	};

	return cmocka_run_group_tests(tests, fill_text, NULL);
}
