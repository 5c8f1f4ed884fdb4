/* Encoding of capabilities: each has one token, and nothing else decodes. */
#include "memory/capability.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/sha.h>

#include "support/granting.h"

static uint8_t token[SRDMA_CAPABILITY_MAX + 32];

static int decode(size_t len)
{
	struct srdma_capability got;
	int r = srdma_capability_decode(&got, token, len);

	if (r)
		assert_true(is_zero(&got, sizeof(got)));
	return r;
}

/* Flips every bit, tries every length, and swaps every two keys. */
static void mutate(const struct srdma_capability *cap)
{
	const size_t len = (size_t)srdma_capability_encode(token, cap);
	const size_t keys = (len - SRDMA_CAPABILITY_HEAD) / SRDMA_MEMKEY_LEN;
	uint8_t whole[SRDMA_CAPABILITY_MAX];

	memcpy(whole, token, len);
	assert_int_equal(decode(len), 0);
	for (size_t bit = 0; bit < 8 * len; bit++) {
		token[bit / 8] ^= (uint8_t)(1U << bit % 8);
		assert_int_equal(decode(len), bit < 24 ? -EPROTO : -EBADMSG);
		token[bit / 8] ^= (uint8_t)(1U << bit % 8);
	}
	memset(token + len, 0, 32);
	for (size_t n = 0; n < len + 32; n++)
		assert_true(n == len || decode(n) < 0);
	for (size_t i = 0; i < keys; i++) {
		for (size_t j = 0; j < i; j++) {
			uint8_t *at = token + SRDMA_CAPABILITY_HEAD;

			memcpy(at + 16 * i, whole + 64 + 16 * j, 16);
			memcpy(at + 16 * j, whole + 64 + 16 * i, 16);
			assert_int_equal(decode(len), -EBADMSG);
			memcpy(token, whole, len);
		}
	}
}

static void test_changed_token_is_refused(void **state)
{
	static const struct srdma_memkey_bearer bearers[] = {
		{ { 0 }, 1 }, { "\1", 0 }, { "sixteen bytes it", UINT32_MAX }
	};
	const struct srdma_memtree t = region(64 * 13 - 5, 6, 48);
	struct srdma_capability cap, sealed;

	(void)state;
	set_region(&t);
	assert_int_equal(grant(&cap, 64, 64 * 12, 7), 0);
	mutate(&cap);
	assert_int_equal(grant(&cap, 64, 64 * 4, 2), 0);
	mutate(&cap);
	for (int i = 0; i < 3; i++) {
		sealed = cap;
		srdma_capability_seal(&sealed, &cmac, &bearers[i]);
		mutate(&sealed);
	}
}

/*
 * Recomputes the check value, which needs no secret: an attacker who changes a
 * token can do so too.
 */
static void set_check(size_t len)
{
	uint8_t digest[SHA256_DIGEST_LENGTH];

	SHA256(token, len - SRDMA_CAPABILITY_CHECK, digest);
	memcpy(token + len - SRDMA_CAPABILITY_CHECK, digest,
	       SRDMA_CAPABILITY_CHECK);
}

/*
 * With a correct check value, a changed token either fails or encodes to the
 * same bytes again.
 */
static void test_decoded_token_encodes_to_same_bytes(void **state)
{
	const struct srdma_memtree t = region(64 * 13 - 5, 6, 48);
	struct srdma_capability cap;
	size_t len, taken = 0;

	(void)state;
	set_region(&t);
	assert_int_equal(grant(&cap, 64, 64 * 12, 3), 0);
	len = (size_t)srdma_capability_encode(token, &cap);
	for (size_t bit = 0; bit < 8 * (len - 8); bit++) {
		uint8_t again[SRDMA_CAPABILITY_MAX];

		token[bit / 8] ^= (uint8_t)(1U << bit % 8);
		set_check(len);
		if (!srdma_capability_decode(&cap, token, len)) {
			assert_int_equal(srdma_capability_encode(again, &cap),
					 len);
			assert_memory_equal(again, token, len);
			taken++;
		}
		token[bit / 8] ^= (uint8_t)(1U << bit % 8);
	}
	/*
	 * A change of these bits gives another legal token: 32 of the rkey, 2
	 * of the rights, and all bits of the keys.
	 */
	assert_in_range(taken, 32 + 2 + 8 * (len - 72), 8 * len);
}

/* One field each, in a token with two nodes of a region of 640 bytes. */
static void test_illegal_fields_are_refused(void **state)
{
	static const struct {
		unsigned at, flip;
		int want;
	} rows[] = {
		{ 2, 0x03, -EPROTO }, /* version 2 */
		{ 3, 0x01, -EPROTO }, /* sealed without holder */
		{ 3, 0x02, -EPROTO },
		{ 3, 0x80, -EPROTO },
		{ 7, 0x0d, -EPROTO },  /* rkey 0 */
		{ 8, 0xff, -EPROTO },  /* start after end */
		{ 16, 0x80, -EPROTO }, /* longer than 2^63 */
		{ 31, 0x01, -EPROTO }, /* lo */
		{ 30, 0x01, -EPROTO }, /* lo after hi */
		{ 38, 0x80, -EPROTO }, /* hi after the end */
		{ 39, 0x01, -EPROTO },
		{ 40, 0x01, -EPROTO }, /* holder in an open token */
		{ 59, 0x01, -EPROTO }, /* expiry in an open token */
		{ 60, 6 ^ 5, -EPROTO },
		{ 60, 6 ^ 31, -EPROTO },
		{ 60, 6 ^ 7, -EPROTO }, /* 64 is no multiple of the block */
		{ 61, 48, -EPROTO },	/* depth limit 0 */
		{ 61, 48 ^ 49, -EPROTO },
		{ 61, 48 ^ 3, -EPROTO }, /* 64 is no multiple of the granule */
		{ 62, 1, -EPROTO },	 /* no rights */
		{ 62, 8, -EPROTO },
		{ 62, 2, -EMSGSIZE }, /* two rights, keys for one only */
		{ 63, 1, -EPROTO },
		{ 62, 3, 0 }, /* the other right */
		{ 61, 48 ^ 4, 0 },
		{ 64, 1, 0 },
	};
	const struct srdma_memtree t = region(640, 6, 48);
	struct srdma_capability cap;
	size_t len;

	(void)state;
	set_region(&t);
	assert_int_equal(grant(&cap, 64, 256, 1), 0);
	cap.rkey = 13;
	len = (size_t)srdma_capability_encode(token, &cap);
	assert_int_equal(len, 64 + 32 + 8);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		token[rows[i].at] ^= (uint8_t)rows[i].flip;
		set_check(len);
		assert_int_equal(decode(len), rows[i].want);
		token[rows[i].at] ^= (uint8_t)rows[i].flip;
	}
	memset(token, 0, sizeof(token));
	memcpy(token, "sC\1", 3);
	set_check(72);
	assert_int_equal(decode(72), -EPROTO);
}

static void test_longest_token(void **state)
{
	const uint64_t len = UINT64_C(1) << 63, g = UINT64_C(1) << 15;
	const struct srdma_memtree t = { 1, 1 + len, 6, 48 };
	struct srdma_capability cap;

	(void)state;
	set_region(&t);
	assert_int_equal(grant(&cap, g, len - g, 7), 0);
	assert_int_equal(srdma_capability_encode(token, &cap),
			 SRDMA_CAPABILITY_MAX);
	assert_int_equal(decode(SRDMA_CAPABILITY_MAX), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_changed_token_is_refused),
		cmocka_unit_test(test_decoded_token_encodes_to_same_bytes),
		cmocka_unit_test(test_illegal_fields_are_refused),
		cmocka_unit_test(test_longest_token),
	};

	return cmocka_run_group_tests(tests, open_cmac, close_cmac);
}
