/*
 * Crypto providers: each computes the same as OpenSSL and rejects what OpenSSL
 * rejects. SRDMA_PACKETS sets the number of random packets.
 */
#include "crypto/provider.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef __aarch64__
#include <asm/hwcap.h>
#include <dlfcn.h>
#include <sys/auxv.h>
#endif

#include "wire/wire.h"

enum { PACKETS = 20000, AD_MAX = 255, GUARD = 16 };

static uint64_t seed = 20;

static uint32_t random32(void)
{
	seed = seed * UINT64_C(6364136223846793005) +
	       UINT64_C(1442695040888963407);
	return (uint32_t)(seed >> 32);
}

static void fill(uint8_t *out, size_t len)
{
	while (len--)
		*out++ = (uint8_t)random32();
}

/* Half of the packets are small or near the maximum. */
static size_t random_len(void)
{
	switch (random32() % 4) {
	case 0:
		return random32() % 65;
	case 1:
		return SRDMA_MAX_PAYLOAD - random32() % 33;
	default:
		return random32() % (SRDMA_MAX_PAYLOAD + 1);
	}
}

/* A packet, sealed by both providers. */
struct packet {
	uint8_t key[SRDMA_SUITE_MAX_KEY], nonce[16], ad[AD_MAX];
	uint8_t in[SRDMA_MAX_PAYLOAD];
	uint8_t out[2][SRDMA_MAX_PAYLOAD + GUARD];
	uint8_t tag[2][SRDMA_MAX_TAG + GUARD];
	size_t ad_len, in_len;
	uint32_t tag_len;
};

static int is_aead(const struct srdma_suite *s)
{
	return s->answer->out != NULL;
}

static struct srdma_suite_ctx *keyed(const struct srdma_suite *s,
				     struct srdma_provider *p,
				     const struct packet *x,
				     enum srdma_suite_use use)
{
	const struct srdma_suite_key k = { s, use, x->tag_len, x->key };
	struct srdma_suite_ctx *ctx;

	assert_int_equal(srdma_provider_verbs(p, s)->create(&ctx, p, &k), 0);
	return ctx;
}

static uint32_t random_tag_len(const struct srdma_suite *s)
{
	uint32_t len;

	do
		len = s->tag_min + random32() % (s->tag_len - s->tag_min + 1u);
	while (!srdma_suite_tag_ok(s, len));
	return len;
}

static void seal(const struct srdma_suite *s, struct srdma_provider *p,
		 struct packet *x)
{
	const struct srdma_suite_verbs *verbs = srdma_provider_verbs(p, s);
	struct srdma_suite_ctx *ctx = keyed(s, p, x, SRDMA_SUITE_SEAL);
	const struct srdma_suite_io io = { x->nonce, x->ad,	x->ad_len,
					   x->in,    x->in_len, x->out[!p] };

	assert_int_equal(verbs->seal(ctx, &io, x->tag[!p]), 0);
	verbs->destroy(ctx);
}

/* Opens what the other provider sealed; a flipped bit anywhere is detected. */
static void open(const struct srdma_suite *s, struct srdma_provider *p,
		 struct packet *x)
{
	static const uint8_t wiped[SRDMA_MAX_PAYLOAD];
	const struct srdma_suite_verbs *verbs = srdma_provider_verbs(p, s);
	struct srdma_suite_ctx *ctx = keyed(s, p, x, SRDMA_SUITE_OPEN);
	uint8_t *text = is_aead(s) ? x->out[0] : x->in, back[SRDMA_MAX_PAYLOAD];
	const struct srdma_suite_io io = { x->nonce, x->ad,	x->ad_len,
					   text,     x->in_len, back };
	uint8_t *where[] = { x->tag[0] + random32() % x->tag_len,
			     x->ad + random32() % x->ad_len,
			     x->in_len ? text + random32() % x->in_len
				       : x->tag[0] };

	assert_int_equal(verbs->open(ctx, &io, x->tag[0]), 0);
	if (is_aead(s))
		assert_memory_equal(back, x->in, x->in_len);
	for (int i = 0; i < 3; i++) {
		const uint8_t bit = (uint8_t)(1 << random32() % 8);

		*where[i] ^= bit;
		assert_int_equal(verbs->open(ctx, &io, x->tag[0]), -EBADMSG);
		if (is_aead(s))
			assert_memory_equal(back, wiped, x->in_len);
		*where[i] ^= bit;
	}
	verbs->destroy(ctx);
}

static void random_packet(struct packet *x, const struct srdma_suite *s)
{
	fill(x->key, sizeof(x->key));
	fill(x->nonce, sizeof(x->nonce));
	x->ad_len = 1 + random32() % AD_MAX;
	fill(x->ad, x->ad_len);
	x->in_len = random_len();
	fill(x->in, x->in_len);
	x->tag_len = random_tag_len(s);
	memset(x->out, 0xa5, sizeof(x->out));
	memset(x->tag, 0xa5, sizeof(x->tag));
}

static void test_random_packets_equal_openssl(void **state)
{
	struct srdma_provider *p = *state;
	const char *packets = getenv("SRDMA_PACKETS");
	const long n = packets ? atol(packets) : PACKETS;
	unsigned rows = 0;

	while (srdma_suite_at(rows))
		rows++;
	for (long i = 0; i < n;) {
		const struct srdma_suite *s = srdma_suite_at(random32() % rows);
		static struct packet x;

		if (srdma_provider_verbs(p, s) == s->verbs)
			continue;
		random_packet(&x, s);
		seal(s, p, &x);
		seal(s, NULL, &x);
		assert_memory_equal(x.out[0], x.out[1], sizeof(x.out[0]));
		assert_memory_equal(x.tag[0], x.tag[1], sizeof(x.tag[0]));
		open(s, p, &x);
		i++;
	}
	print_message("%ld packets\n", n);
}

/*
 * The number of suites that the provider implements itself, and the calls that
 * it refuses.
 */
static void test_illegal_calls_are_refused(void **state)
{
	struct srdma_provider *p = *state;
	static const uint8_t key[SRDMA_SUITE_MAX_KEY];
	const struct srdma_suite *s;
	unsigned own = 0;

	for (unsigned i = 0; (s = srdma_suite_at(i)) != NULL; i++) {
		const struct srdma_suite_verbs *verbs =
			srdma_provider_verbs(p, s);
		struct srdma_suite_key k = { s, SRDMA_SUITE_SEAL, 0, key };
		struct srdma_suite_ctx *ctx;
		uint8_t out[16], tag[SRDMA_MAX_TAG] = { 0 }, nonce[16] = { 0 };
		const struct srdma_suite_io io = {
			nonce, key, 16, key, 16, out
		};

		if (verbs == s->verbs)
			continue;
		own++;
		for (; k.tag_len <= 15; k.tag_len += 15) {
			assert_int_equal(verbs->create(&ctx, p, &k), -EINVAL);
			assert_null(ctx);
		}
		k.tag_len = s->tag_len;
		assert_int_equal(verbs->create(&ctx, p, &k), 0);
		assert_int_equal(verbs->open(ctx, &io, tag), -EIO);
		assert_int_equal(verbs->forget(ctx), 0);
		assert_int_equal(verbs->seal(ctx, &io, tag), -EIO);
		k.use = SRDMA_SUITE_OPEN;
		assert_int_equal(verbs->again(ctx, &k), 0);
		assert_int_equal(verbs->seal(ctx, &io, tag), -EIO);
		assert_int_equal(verbs->open(ctx, &io, tag), -EBADMSG);
		k.tag_len = 0;
		assert_int_equal(verbs->again(ctx, &k), -EINVAL);
		assert_int_equal(verbs->forget(ctx), 0);
		assert_int_equal(verbs->open(ctx, &io, tag), -EIO);
		verbs->destroy(ctx);
		verbs->destroy(NULL);
	}
	/*
	 * GCM and GMAC with three key sizes each, ChaCha20-Poly1305, Poly1305,
	 * CMAC with two key sizes
	 */
	assert_int_equal(own, 10);
}

/* A packet with a missing field is neither sealed nor opened. */
static void check_lacking(const struct srdma_suite *s, struct srdma_provider *p,
			  const struct srdma_suite_io *io)
{
	static struct packet x;
	static const uint8_t wiped[16];
	const struct srdma_suite_verbs *verbs = srdma_provider_verbs(p, s);
	uint8_t tag[SRDMA_MAX_TAG] = { 0 };
	struct srdma_suite_ctx *ctx;

	x.tag_len = s->tag_len;
	ctx = keyed(s, p, &x, SRDMA_SUITE_SEAL);
	assert_int_equal(verbs->seal(ctx, io, tag), -EIO);
	verbs->destroy(ctx);
	ctx = keyed(s, p, &x, SRDMA_SUITE_OPEN);
	assert_int_equal(verbs->open(ctx, io, tag), -EIO);
	verbs->destroy(ctx);
	if (is_aead(s) && io->out)
		assert_memory_equal(io->out, wiped, io->in_len);
}

/* A packet is not opened without a tag, not even one that is sealed by the same
 * key: OpenSSL, asked to open without a tag, seals. */
static void check_no_tag(const struct srdma_suite *s, struct srdma_provider *p)
{
	const struct srdma_suite_verbs *verbs = srdma_provider_verbs(p, s);
	static const uint8_t wiped[32];
	static struct packet x;
	struct srdma_suite_ctx *ctx;
	struct srdma_suite_io io;

	random_packet(&x, s);
	x.in_len = sizeof(wiped);
	seal(s, p, &x);
	ctx = keyed(s, p, &x, SRDMA_SUITE_OPEN);
	io = (struct srdma_suite_io){ x.nonce,	x.ad,
				      x.ad_len, is_aead(s) ? x.out[!p] : x.in,
				      x.in_len, x.out[!!p] };
	assert_int_equal(verbs->open(ctx, &io, NULL), -EIO);
	if (is_aead(s))
		assert_memory_equal(io.out, wiped, sizeof(wiped));
	verbs->destroy(ctx);
}

/* OpenSSL, without a provider, generates a nonce if there is none, and
 * authenticates a text that has no output. */
static void test_missing_fields_are_refused(void **state)
{
	static const uint8_t bytes[16];
	const struct srdma_suite *s;

	for (unsigned i = 0; (s = srdma_suite_at(i)) != NULL; i++) {
		uint8_t out[16] = "sixteen letters";
		const struct srdma_suite_io rows[] = {
			{ NULL, bytes, 16, bytes, 16, out },
			{ bytes, NULL, 16, bytes, 16, out },
			{ bytes, bytes, 16, NULL, 16, out },
			{ bytes, bytes, 16, bytes, 16, NULL },
		};
		const int n = is_aead(s) ? 4 : 3; /* a MAC has no output text */

		check_no_tag(s, *state);
		if (!s->iv_len)
			continue;
		for (int row = 0; row < n; row++)
			check_lacking(s, *state, &rows[row]);
	}
}

/* The same context seals short and long packets with changing keys: no packet is
 * sealed with a former key. */
static void seal_with_new_keys(const struct srdma_suite *s,
			       struct srdma_provider *p)
{
	static const size_t lens[] = { 0, 32, 768, 769, SRDMA_MAX_PAYLOAD };
	enum { LENS = sizeof(lens) / sizeof(lens[0]) };
	const struct srdma_suite_verbs *verbs = srdma_provider_verbs(p, s);
	static struct packet x;
	struct srdma_suite_ctx *ctx;

	random_packet(&x, s);
	ctx = keyed(s, p, &x, SRDMA_SUITE_SEAL);
	for (int i = 0; i < 40; i++) {
		const struct srdma_suite_key k = { s, SRDMA_SUITE_SEAL,
						   x.tag_len, x.key };
		struct srdma_suite_io io = { x.nonce, x.ad, x.ad_len,
					     x.in,    0,    x.out[0] };

		if (i % 3) {
			fill(x.key, sizeof(x.key));
			assert_int_equal(verbs->again(ctx, &k), 0);
		} else if (i % 2) {
			assert_int_equal(verbs->forget(ctx), 0);
			assert_int_equal(verbs->again(ctx, &k), 0);
		}
		x.in_len = io.in_len = lens[random32() % LENS];
		assert_int_equal(verbs->seal(ctx, &io, x.tag[0]), 0);
		seal(s, NULL, &x);
		assert_memory_equal(x.tag[0], x.tag[1], x.tag_len);
		if (is_aead(s))
			assert_memory_equal(x.out[0], x.out[1], x.in_len);
	}
	verbs->destroy(ctx);
}

static void test_new_keys_apply_to_all_lengths(void **state)
{
	for (unsigned i = 0; srdma_suite_at(i); i++)
		seal_with_new_keys(srdma_suite_at(i), *state);
}

/* A provider computes the algorithms that it knows. */
static void test_unknown_algorithm_is_refused(void **state)
{
	struct srdma_suite s = *srdma_suite_by_name("aes-128-gcm");
	static const uint8_t key[SRDMA_SUITE_MAX_KEY];
	const struct srdma_suite_key k = { &s, SRDMA_SUITE_SEAL, 16, key };
	struct srdma_provider *p;
	struct srdma_suite_ctx *ctx;

	(void)state;
	s.algorithm = "rot13-GCM";
	assert_int_equal(s.verbs->create(&ctx, NULL, &k), -EIO);
	assert_null(ctx);
	if (srdma_provider_create(&p, "nettle") == 0) {
		assert_int_equal(
			srdma_provider_verbs(p, &s)->create(&ctx, p, &k), -EIO);
		assert_null(ctx);
	}
	srdma_provider_destroy(p);
}

#ifdef __aarch64__
static int has_instructions(void)
{
	const unsigned long need = HWCAP_AES | HWCAP_PMULL;

	return (getauxval(AT_HWCAP) & need) == need;
}

/* The name of the provider that this CPU gets if no name is given. */
static const char *default_name(void)
{
	struct srdma_provider *p;

	if (!has_instructions() || getenv("NETTLE_FAT_OVERRIDE") ||
	    !dlsym(RTLD_DEFAULT, "_nettle_aes128_encrypt_arm64") ||
	    srdma_provider_create(&p, "nettle"))
		return "openssl";
	srdma_provider_destroy(p);
	return "nettle";
}

/* Nettle was told at its start which instructions to use: maybe none. */
static void test_nettle_without_instructions_is_no_default(void **state)
{
	struct srdma_provider *p;

	(void)state;
	setenv("NETTLE_FAT_OVERRIDE", "none", 1);
	assert_int_equal(srdma_provider_create(&p, NULL), 0);
	assert_string_equal(srdma_provider_name(p), "openssl");
	srdma_provider_destroy(p);
	unsetenv("NETTLE_FAT_OVERRIDE");
}
#else
/* The name of the provider that this CPU gets if no name is given. */
static const char *default_name(void)
{
	struct srdma_provider *p;

	if (srdma_provider_create(&p, "ipsec-mb"))
		return "openssl";
	srdma_provider_destroy(p);
	return "ipsec-mb";
}
#endif

static void test_provider_names(void **state)
{
	struct srdma_provider *p;

	(void)state;
	assert_int_equal(srdma_provider_create(&p, "rot13"), -ENOENT);
	assert_null(p);
	assert_int_equal(srdma_provider_create(&p, "openssl"), 0);
	assert_null(p);
	assert_string_equal(srdma_provider_name(p), "openssl");
	srdma_provider_destroy(p);
	assert_int_equal(srdma_provider_create(&p, NULL), 0);
	assert_string_equal(srdma_provider_name(p), default_name());
	srdma_provider_destroy(p);
}

/* Runs the tests of a provider, if this build and CPU have it. */
static int run(const char *name)
{
	struct srdma_provider *p;
	int r = srdma_provider_create(&p, name);

	if (r) {
		print_message("%s: %s\n", name,
			      r == -ENOENT ? "not in this build"
					   : strerror(-r));
		return r == -ENOENT || r == -ENOTSUP ? 0 : 1;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_prestate(test_illegal_calls_are_refused, p),
		cmocka_unit_test_prestate(test_missing_fields_are_refused, p),
		cmocka_unit_test_prestate(test_new_keys_apply_to_all_lengths,
					  p),
		cmocka_unit_test_prestate(test_random_packets_equal_openssl, p),
	};
	r = cmocka_run_group_tests_name(name, tests, NULL, NULL);
	srdma_provider_destroy(p);
	return r;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_provider_names),
#ifdef __aarch64__
		cmocka_unit_test(
			test_nettle_without_instructions_is_no_default),
#endif
		cmocka_unit_test(test_missing_fields_are_refused),
		cmocka_unit_test(test_new_keys_apply_to_all_lengths),
		cmocka_unit_test(test_unknown_algorithm_is_refused),
	};

	return cmocka_run_group_tests_name("openssl", tests, NULL, NULL) +
	       run("ipsec-mb") + run("nettle");
}
