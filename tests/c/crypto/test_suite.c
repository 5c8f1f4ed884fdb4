#include "crypto/suite.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "session/session.h"
#include "wire/wire.h"

enum { AD_LEN = 91, TEXT_LEN = 53 };

/* a second copy of the table of 3.3 */
static const struct {
	uint8_t id;
	const char *name;
	uint8_t key_len, iv_len, tag_len;
	uint8_t aead;
	unsigned packets; /* log2 */
} page[] = {
	{ 0x01, "aes-128-gcm", 16, 12, 16, 1, 26 },
	{ 0x02, "aes-192-gcm", 24, 12, 16, 1, 26 },
	{ 0x03, "aes-256-gcm", 32, 12, 16, 1, 26 },
	{ 0x04, "aes-128-ocb", 16, 12, 16, 1, 39 },
	{ 0x05, "aes-192-ocb", 24, 12, 16, 1, 39 },
	{ 0x06, "aes-256-ocb", 32, 12, 16, 1, 39 },
	{ 0x07, "chacha20-poly1305", 32, 12, 16, 1, 40 },
	{ 0x10, "hmac-sha1", 20, 0, 20, 0, 40 },
	{ 0x11, "hmac-sha224", 28, 0, 28, 0, 40 },
	{ 0x12, "hmac-sha256", 32, 0, 32, 0, 40 },
	{ 0x13, "hmac-sha384", 48, 0, 48, 0, 40 },
	{ 0x14, "hmac-sha512", 64, 0, 64, 0, 40 },
	{ 0x15, "hmac-sha3-224", 28, 0, 28, 0, 40 },
	{ 0x16, "hmac-sha3-256", 32, 0, 32, 0, 40 },
	{ 0x17, "hmac-sha3-384", 48, 0, 48, 0, 40 },
	{ 0x18, "hmac-sha3-512", 64, 0, 64, 0, 40 },
	{ 0x20, "aes-128-cmac", 16, 0, 16, 0, 40 },
	{ 0x21, "aes-192-cmac", 24, 0, 16, 0, 40 },
	{ 0x22, "aes-256-cmac", 32, 0, 16, 0, 40 },
	{ 0x30, "aes-128-gmac", 16, 12, 16, 0, 26 },
	{ 0x31, "aes-192-gmac", 24, 12, 16, 0, 26 },
	{ 0x32, "aes-256-gmac", 32, 12, 16, 0, 26 },
	{ 0x38, "poly1305", 32, 12, 16, 0, 40 },
};

enum { ROWS = sizeof(page) / sizeof(page[0]) };

static void test_table_of_suites(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ROWS; i++) {
		const struct srdma_suite *s = srdma_suite_by_id(page[i].id);

		assert_ptr_equal(s, srdma_suite_at(i));
		assert_ptr_equal(s, srdma_suite_by_name(page[i].name));
		assert_string_equal(s->name, page[i].name);
		assert_int_equal(s->key_len, page[i].key_len);
		assert_int_equal(s->iv_len, page[i].iv_len);
		assert_int_equal(s->tag_len, page[i].tag_len);
		assert_int_equal(s->levels,
				 page[i].aead
					 ? 1 << SRDMA_LEVEL_AEAD
					 : 1 << SRDMA_LEVEL_HEADER |
						   1 << SRDMA_LEVEL_PACKET);
		assert_int_equal(s->packets, 1ull << page[i].packets);
		assert_int_equal(s->forgeries, 1ull << 36);
		assert_int_equal(srdma_suite_forgeries(s, s->tag_len),
				 1ull << 36);
		assert_int_equal(srdma_suite_forgeries(s, 16), 1ull << 36);
		assert_int_equal(srdma_suite_forgeries(s, 12), 1ull << 32);
	}
	assert_null(srdma_suite_at(ROWS));
}

static void test_unknown_suites(void **state)
{
	unsigned found = 0;

	(void)state;
	for (unsigned id = 0; id < 256; id++)
		found += srdma_suite_by_id((uint8_t)id) != NULL;
	assert_int_equal(found, ROWS);
	assert_null(srdma_suite_by_id(0));
	assert_null(srdma_suite_by_name("none"));
	assert_null(srdma_suite_by_name(""));
	assert_null(srdma_suite_by_name("AES-128-GCM"));
}

/* Suites for comparison only are never chosen automatically. */
static void test_recommended_suites(void **state)
{
	static const char *const names[] = {
		"aes-128-gcm",	"aes-256-gcm",	"chacha20-poly1305",
		"hmac-sha256",	"aes-128-cmac", "aes-256-cmac",
		"aes-128-gmac", "aes-256-gmac", "poly1305",
	};
	unsigned n = 0;

	(void)state;
	for (unsigned i = 0; i < ROWS; i++)
		n += srdma_suite_at(i)->recommended;
	assert_int_equal(n, sizeof(names) / sizeof(names[0]));
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(srdma_suite_by_name(names[i])->recommended, 1);
}

static void test_selftest_passes(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ROWS; i++)
		assert_int_equal(srdma_suite_selftest(srdma_suite_at(i), NULL),
				 0);
}

/* A suite with a wrong answer, key or algorithm fails its self-test. */
static void test_selftest_detects_errors(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ROWS; i++) {
		const struct srdma_suite *good = srdma_suite_at(i);
		struct srdma_suite_answer answer = *good->answer;
		struct srdma_suite bad = *good;
		char wrong[256];

		bad.answer = &answer;
		assert_int_equal(srdma_suite_selftest(&bad, NULL), 0);
		memcpy(wrong, good->answer->tag, good->tag_len);
		wrong[0] ^= 1;
		answer.tag = wrong;
		assert_int_equal(srdma_suite_selftest(&bad, NULL), -EIO);
		answer.tag = good->answer->tag;
		memcpy(wrong, good->answer->key, good->key_len);
		wrong[0] ^= 1;
		answer.key = wrong;
		assert_int_equal(srdma_suite_selftest(&bad, NULL), -EIO);
		answer.key = good->answer->key;
		bad.algorithm = "no such algorithm";
		assert_int_equal(srdma_suite_selftest(&bad, NULL), -EIO);
	}
}

static int open_any_tag(struct srdma_suite_ctx *c,
			const struct srdma_suite_io *io, const uint8_t *tag)
{
	const int r = srdma_suite_aead_mac.open(c, io, tag);

	return r == -EBADMSG ? 0 : r;
}

/* A suite that accepts a wrong tag fails its self-test. */
/* review A28 */
static void test_selftest_detects_accepted_tag(void **state)
{
	struct srdma_suite bad = *srdma_suite_by_name("aes-128-gmac");
	struct srdma_suite_verbs verbs = srdma_suite_aead_mac;

	(void)state;
	bad.verbs = &verbs;
	assert_int_equal(srdma_suite_selftest(&bad, NULL), 0);
	verbs.open = open_any_tag;
	assert_int_equal(srdma_suite_selftest(&bad, NULL), -EIO);
}

static int create(struct srdma_suite_ctx **ctx, const struct srdma_suite *s,
		  enum srdma_suite_use use, uint32_t tag_len)
{
	static const uint8_t key[SRDMA_SUITE_MAX_KEY] = { 7, 7, 7 };
	const struct srdma_suite_key k = { s, use, tag_len, key };

	return s->verbs->create(ctx, NULL, &k);
}

/* A cipher with another key size than its suite is refused at creation. */
static void test_wrong_key_size_is_refused(void **state)
{
	struct srdma_suite bad = *srdma_suite_by_name("aes-128-gcm");
	struct srdma_suite_ctx *ctx;

	(void)state;
	bad.algorithm = "AES-256-GCM";
	assert_int_equal(create(&ctx, &bad, SRDMA_SUITE_SEAL, 16), -EIO);
	assert_null(ctx);
	bad = *srdma_suite_by_name("aes-128-cmac");
	bad.primitive = "AES-256-CBC";
	assert_int_equal(create(&ctx, &bad, SRDMA_SUITE_SEAL, 16), -EIO);
	assert_null(ctx);
	bad = *srdma_suite_by_name("hmac-sha256");
	bad.primitive = "SHA512";
	assert_int_equal(create(&ctx, &bad, SRDMA_SUITE_SEAL, 32), -EIO);
	assert_null(ctx);
}

/* review A29 */
static void test_tag_lengths(void **state)
{
	/*
	 * 3.3: suites with these names permit each tag length of a tag code up
	 * to the length in the table. All others permit the length in the table
	 * only.
	 */
	static const char *const by_option[] = { "hmac-", "-cmac" };
	static const uint8_t codes[] = { 12, 16, 20, 28, 32, 48, 64 };

	(void)state;
	for (unsigned i = 0; i < ROWS; i++) {
		const struct srdma_suite *s = srdma_suite_at(i);
		const int any = strstr(s->name, by_option[0]) ||
				strstr(s->name, by_option[1]);

		for (uint32_t len = 0; len < 100; len++) {
			const int ok = any ? len <= page[i].tag_len &&
						       memchr(codes, (int)len,
							      sizeof(codes))
					   : len == page[i].tag_len;
			struct srdma_suite_ctx *ctx;
			int r = create(&ctx, s, SRDMA_SUITE_OPEN, len);

			assert_int_equal(srdma_suite_tag_ok(s, len), ok);
			assert_int_equal(r, ok ? 0 : -EINVAL);
			assert_int_equal(ctx != NULL, ok);
			s->verbs->destroy(ctx);
		}
	}
}

/* Contexts of a suite for sealing and opening, and a packet. */
struct bench {
	const struct srdma_suite *suite;
	struct srdma_suite_ctx *seal, *open;
	uint32_t tag_len;
	uint8_t nonce[12], ad[AD_LEN], text[TEXT_LEN], out[TEXT_LEN];
	uint8_t back[TEXT_LEN], tag[SRDMA_MAX_TAG];
};

static void set_up(struct bench *b, unsigned row, uint32_t tag_len)
{
	memset(b, 0, sizeof(*b));
	b->suite = srdma_suite_at(row);
	b->tag_len = tag_len ? tag_len : b->suite->tag_len;
	memset(b->nonce, 1, sizeof(b->nonce));
	memset(b->ad, 2, sizeof(b->ad));
	memset(b->text, 3, sizeof(b->text));
	assert_int_equal(
		create(&b->seal, b->suite, SRDMA_SUITE_SEAL, b->tag_len), 0);
	assert_int_equal(
		create(&b->open, b->suite, SRDMA_SUITE_OPEN, b->tag_len), 0);
}

static void tear_down(struct bench *b)
{
	b->suite->verbs->destroy(b->seal);
	b->suite->verbs->destroy(b->open);
	b->suite->verbs->destroy(NULL);
}

static int aead(const struct bench *b)
{
	return b->suite->levels == 1 << SRDMA_LEVEL_AEAD;
}

static int seal(struct bench *b, struct srdma_suite_ctx *ctx, size_t len)
{
	const struct srdma_suite_io io = {
		.nonce = b->nonce,
		.ad = b->ad,
		.ad_len = sizeof(b->ad),
		.in = b->text,
		.in_len = len,
		.out = b->out,
	};
	int r = b->suite->verbs->seal(ctx, &io, b->tag);

	if (!aead(b))
		memcpy(b->out, b->text, len);
	return r;
}

static int open(struct bench *b, struct srdma_suite_ctx *ctx, size_t len)
{
	const struct srdma_suite_io io = {
		.nonce = b->nonce,
		.ad = b->ad,
		.ad_len = sizeof(b->ad),
		.in = b->out,
		.in_len = len,
		.out = b->back,
	};

	memset(b->back, 0xa5, sizeof(b->back));
	return b->suite->verbs->open(ctx, &io, b->tag);
}

/*
 * Flips each bit of size bytes at p. Each flip gives -EBADMSG and no plaintext.
 */
static void flip_all(struct bench *b, uint8_t *p, size_t size)
{
	static const uint8_t wiped[TEXT_LEN];

	for (size_t bit = 0; bit < size * 8; bit++) {
		p[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(open(b, b->open, TEXT_LEN), -EBADMSG);
		if (aead(b))
			assert_memory_equal(b->back, wiped, TEXT_LEN);
		p[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_int_equal(open(b, b->open, TEXT_LEN), 0);
}

/* RFC 5042 X5 */
static void test_every_flipped_bit_is_detected(void **state)
{
	(void)state;
	for (unsigned row = 0; row < ROWS; row++) {
		for (uint32_t tag_len = 1; tag_len <= 64; tag_len++) {
			struct bench b;

			if (!srdma_suite_tag_ok(srdma_suite_at(row), tag_len))
				continue;
			set_up(&b, row, tag_len);
			assert_int_equal(seal(&b, b.seal, TEXT_LEN), 0);
			flip_all(&b, b.tag, tag_len);
			flip_all(&b, b.ad, sizeof(b.ad));
			flip_all(&b, b.out, sizeof(b.out));
			flip_all(&b, b.nonce, b.suite->iv_len);
			if (aead(&b))
				assert_memory_equal(b.back, b.text, TEXT_LEN);
			tear_down(&b);
		}
	}
}

/*
 * Contexts keep no state between packets: a new context gives the same result.
 */
static void test_contexts_keep_no_state(void **state)
{
	(void)state;
	for (unsigned row = 0; row < ROWS; row++) {
		struct bench a, b;

		set_up(&a, row, 0);
		for (size_t len = 0; len <= TEXT_LEN; len++) {
			a.nonce[11] = (uint8_t)len;
			assert_int_equal(seal(&a, a.seal, len), 0);
			set_up(&b, row, 0);
			b.nonce[11] = (uint8_t)len;
			assert_int_equal(seal(&b, b.seal, len), 0);
			assert_memory_equal(a.tag, b.tag, a.tag_len);
			assert_memory_equal(a.out, b.out, len);
			tear_down(&b);
			a.tag[0] ^= len & 1;
			assert_int_equal(open(&a, a.open, len),
					 len & 1 ? -EBADMSG : 0);
		}
		tear_down(&a);
	}
}

/* A context for sealing refuses to open, and the reverse. */
static void test_wrong_use_is_refused(void **state)
{
	(void)state;
	for (unsigned row = 0; row < ROWS; row++) {
		struct bench b;

		set_up(&b, row, 0);
		assert_int_equal(seal(&b, b.open, TEXT_LEN), -EIO);
		assert_int_equal(seal(&b, b.seal, TEXT_LEN), 0);
		assert_int_equal(open(&b, b.seal, TEXT_LEN), -EIO);
		assert_int_equal(open(&b, b.open, TEXT_LEN), 0);
		tear_down(&b);
	}
}

/* A context whose key is cleared fails until it gets another key. */
static void test_cleared_context_fails(void **state)
{
	static const uint8_t wiped[TEXT_LEN], key[SRDMA_SUITE_MAX_KEY];

	(void)state;
	for (unsigned row = 0; row < ROWS; row++) {
		struct bench b;
		struct srdma_suite_key k;

		set_up(&b, row, 0);
		assert_int_equal(seal(&b, b.seal, TEXT_LEN), 0);
		assert_int_equal(b.suite->verbs->forget(b.open), 0);
		assert_int_equal(open(&b, b.open, TEXT_LEN), -EIO);
		if (aead(&b))
			assert_memory_equal(b.back, wiped, TEXT_LEN);
		assert_int_equal(b.suite->verbs->forget(b.seal), 0);
		assert_int_equal(seal(&b, b.seal, TEXT_LEN), -EIO);
		k = (struct srdma_suite_key){ b.suite, SRDMA_SUITE_OPEN,
					      b.tag_len, key };
		assert_int_equal(b.suite->verbs->again(b.seal, &k), 0);
		assert_int_equal(seal(&b, b.seal, TEXT_LEN), -EIO);
		tear_down(&b);
	}
}

/* A short tag is the beginning of the full one. */
static void test_short_tag_is_prefix(void **state)
{
	(void)state;
	for (unsigned row = 0; row < ROWS; row++) {
		struct bench whole;

		set_up(&whole, row, 0);
		assert_int_equal(seal(&whole, whole.seal, TEXT_LEN), 0);
		for (uint32_t len = 1; len < whole.tag_len; len++) {
			struct bench b;

			if (!srdma_suite_tag_ok(whole.suite, len))
				continue;
			set_up(&b, row, len);
			assert_int_equal(seal(&b, b.seal, TEXT_LEN), 0);
			assert_memory_equal(b.tag, whole.tag, len);
			assert_int_equal(b.tag[len], 0);
			tear_down(&b);
		}
		tear_down(&whole);
	}
}

/* A code of which only the beginning is sent does not stay on the stack. */
static void test_shortened_code_is_wiped(void **state)
{
	enum { LEN = 4 };
	static const uint8_t wiped[SRDMA_SUITE_MAX_TAG];
	uint8_t code[SRDMA_SUITE_MAX_TAG] = "a code", tag[LEN + 1] = "     ";

	(void)state;
	assert_int_equal(srdma_suite_shorten(-EIO, code, tag, LEN), -EIO);
	assert_memory_equal(tag, "     ", sizeof(tag));
	assert_memory_equal(code, wiped, sizeof(code));
	memcpy(code, "a code", LEN + 2);
	assert_int_equal(srdma_suite_shorten(0, code, tag, LEN), 0);
	assert_memory_equal(tag, "a co ", sizeof(tag));
	assert_memory_equal(code, wiped, sizeof(code));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table_of_suites),
		cmocka_unit_test(test_unknown_suites),
		cmocka_unit_test(test_recommended_suites),
		cmocka_unit_test(test_selftest_passes),
		cmocka_unit_test(test_selftest_detects_errors),
		cmocka_unit_test(test_selftest_detects_accepted_tag),
		cmocka_unit_test(test_wrong_key_size_is_refused),
		cmocka_unit_test(test_tag_lengths),
		cmocka_unit_test(test_every_flipped_bit_is_detected),
		cmocka_unit_test(test_contexts_keep_no_state),
		cmocka_unit_test(test_wrong_use_is_refused),
		cmocka_unit_test(test_cleared_context_fails),
		cmocka_unit_test(test_short_tag_is_prefix),
		cmocka_unit_test(test_shortened_code_is_wiped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
