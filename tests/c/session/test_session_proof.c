/*
 * Memory proofs through sessions: memkey accepts a proof made by seal over the
 * claim of the other end, and over nothing else (docs/protocol.md 6.1).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/memory.h"
#include "wire/stats.h"
#include "support/traffic.h"

enum { DEPTH = 3, EXPIRY = 1900000000, NOW = EXPIRY - 5 };

static struct srdma_memtree tree;
static struct srdma_memnode node;
static struct srdma_memkey_cache cache;
static uint8_t access_key[SRDMA_MEMKEY_LEN];
static const struct srdma_memkey_bearer bearer = {
	.holder = "somebody by name",
	.expiry = EXPIRY,
};

/* A region of 16 blocks, and K_access of one of its nodes. */
static void grant(uint8_t right)
{
	uint8_t key[SRDMA_MEMKEY_LEN];

	tree = region(16 * 4096, 12, 48);
	assert_int_equal(srdma_memtree_find(&tree, DEPTH, 9000, &node), 0);
	node_key(key, &tree, right, &node);
	assert_int_equal(
		srdma_memkey_access(&cmac, access_key, key, &node, &bearer), 0);
	make_mr_key(key, &tree);
	srdma_memkey_cache_init(&cache, &tree, key);
}

/* A packet that carries a proof; len bytes of payload if its opcode has any. */
static struct srdma_packet proven(uint8_t opcode, uint32_t len)
{
	const uint32_t t = srdma_wire_traits(opcode);

	return (struct srdma_packet){
		.opcode = opcode,
		.request_id = PAIR_NEXT_ID,
		.flags = SRDMA_STH_PROOF | SRDMA_STH_HOLDER,
		.depth = DEPTH,
		.expiry = EXPIRY,
		.access_key = access_key,
		.va = tree.start + node.lo + 8,
		.rkey = 0x8badf00d,
		.dma_len = len,
		.payload_len = t & SRDMA_T_PAYLOAD ? len : 0,
	};
}

static int check_claim(const struct srdma_packet *p, uint8_t right,
		       const uint8_t *ad, size_t ad_len, const uint8_t *proof)
{
	const struct srdma_memkey_claim claim = {
		.right = right,
		.depth = p->depth,
		.addr = tree.start + node.lo + 8,
		.len = 16,
		.bearer = bearer,
		.ad = ad,
		.ad_len = ad_len,
		.proof = proof,
	};

	return srdma_memkey_check(&cache, &cmac, &claim, NOW);
}

/* Flips every bit of the claim and of the proof, and changes the length. */
static void check_bits(const struct srdma_packet *p, uint8_t right,
		       const uint8_t *ad, size_t len)
{
	uint8_t changed[256], proof[SRDMA_PROOF_LEN];

	memcpy(changed, ad, len);
	memcpy(proof, p->proof, sizeof(proof));
	for (size_t bit = 0; bit < len * 8; bit++) {
		changed[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(check_claim(p, right, changed, len, proof),
				 -EBADMSG);
		changed[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	for (size_t bit = 0; bit < sizeof(proof) * 8; bit++) {
		proof[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(check_claim(p, right, ad, len, proof),
				 -EBADMSG);
		proof[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_int_equal(check_claim(p, right, changed, len - 1, proof),
			 -EBADMSG);
	assert_int_equal(check_claim(p, right, changed, len, proof), 0);
	changed[len] = 0;
	assert_int_equal(check_claim(p, right, changed, len + 1, proof),
			 -EBADMSG);
}

/* Sends one packet and checks its fields, its claim and its proof. */
static void check_packet(struct pair *pair, int from, struct srdma_packet p,
			 uint8_t right)
{
	struct srdma_packet q;
	const uint8_t *ad;
	size_t ad_len;
	int len =
		srdma_session_seal(pair->end[from], &p, text, out, sizeof(out));

	assert_true(len > 0);
	assert_int_equal(srdma_session_open(pair->end[!from], &q, out,
					    (size_t)len, plain),
			 0);
	assert_memory_equal(plain, text, p.payload_len);
	/* seal reports the proof that is sent */
	assert_memory_equal(p.proof, q.proof, SRDMA_PROOF_LEN);
	assert_int_equal(q.flags, p.flags);
	assert_int_equal(q.expiry, EXPIRY);
	ad_len = srdma_session_claim(pair->end[!from], &q, &ad);
	/*
	 * generation, then 4.4 up to the expiry in the STH, which is before the
	 * proof
	 */
	assert_int_equal(ad_len, 8 + 68 + q.tag_at - SRDMA_PROOF_LEN);
	assert_memory_equal(ad + ad_len - 4, "\x71\x3f\xb3\x00", 4);
	assert_int_equal(check_claim(&q, right, ad, ad_len, q.proof), 0);
	check_bits(&q, right, ad, ad_len);
}

/*
 * One protection per level suffices to test every bit, because the proof
 * depends on these bytes only.
 */
static const struct {
	const char *suite;
	uint8_t level, mode;
} rows[] = {
	{ "aes-128-gcm", SRDMA_LEVEL_AEAD, SRDMA_MODE_MEM },
	{ "chacha20-poly1305", SRDMA_LEVEL_AEAD,
	  SRDMA_MODE_PD | SRDMA_MODE_MEM },
	{ "hmac-sha256", SRDMA_LEVEL_HEADER, SRDMA_MODE_PD | SRDMA_MODE_MEM },
	{ "aes-256-gmac", SRDMA_LEVEL_PACKET, SRDMA_MODE_MEM },
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static struct protection row(unsigned i)
{
	struct protection p = by_name(rows[i].suite, rows[i].level);

	p.mode = rows[i].mode;
	return p;
}

static void test_proof_of_every_kind_of_packet(void **state)
{
	static const struct {
		uint8_t opcode, right;
	} kinds[] = {
		{ SRDMA_OP_WRITE_FIRST, SRDMA_MEMKEY_WRITE },
		{ SRDMA_OP_WRITE_MIDDLE, SRDMA_MEMKEY_WRITE },
		{ SRDMA_OP_WRITE_LAST, SRDMA_MEMKEY_WRITE },
		{ SRDMA_OP_WRITE_LAST_IMM, SRDMA_MEMKEY_WRITE },
		{ SRDMA_OP_WRITE_ONLY, SRDMA_MEMKEY_WRITE },
		{ SRDMA_OP_WRITE_ONLY_IMM, SRDMA_MEMKEY_WRITE },
		{ SRDMA_OP_READ_REQUEST, SRDMA_MEMKEY_READ },
		{ SRDMA_OP_COMPARE_SWAP, SRDMA_MEMKEY_ATOMIC },
		{ SRDMA_OP_FETCH_ADD, SRDMA_MEMKEY_ATOMIC },
	};

	(void)state;
	assert_int_equal(pair_open(4), 0);
	for (unsigned i = 0; i < ROWS; i++) {
		const struct protection p = row(i);
		struct pair pair;

		assert_int_equal(pair_create(&pair, &p), 0);
		assert_int_equal(pair_settle(&pair), 0);
		for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
			grant(kinds[k].right);
			for (int from = 0; from < 2; from++)
				check_packet(&pair, from,
					     proven(kinds[k].opcode, 16),
					     kinds[k].right);
		}
		pair_destroy(&pair);
	}
	pair_close();
}

/*
 * Every protection in both modes with MEM; each packet has a different proof.
 */
static void test_proof_in_every_protection(void **state)
{
	struct protection p;

	(void)state;
	grant(SRDMA_MEMKEY_WRITE);
	assert_int_equal(pair_open(4), 0);
	for (unsigned i = 0; protection_at(i, &p); i++) {
		uint8_t last[SRDMA_PROOF_LEN] = { 0 };
		struct pair pair;

		p.mode =
			i & 1 ? SRDMA_MODE_MEM : SRDMA_MODE_MEM | SRDMA_MODE_PD;
		assert_int_equal(pair_create(&pair, &p), 0);
		for (int n = 0; n < 3; n++) {
			struct srdma_packet q = proven(SRDMA_OP_WRITE_ONLY, 16);
			const uint8_t *ad;
			size_t ad_len;
			int len;

			len = srdma_session_seal(pair.end[0], &q, text, out,
						 sizeof(out));
			assert_int_equal(srdma_session_open(pair.end[1], &q,
							    out, (size_t)len,
							    plain),
					 0);
			ad_len = srdma_session_claim(pair.end[1], &q, &ad);
			assert_int_equal(check_claim(&q, SRDMA_MEMKEY_WRITE, ad,
						     ad_len, q.proof),
					 0);
			assert_memory_not_equal(last, q.proof, sizeof(last));
			memcpy(last, q.proof, sizeof(last));
		}
		pair_destroy(&pair);
	}
	pair_close();
}

/* The tag covers the proof: it cannot be removed, changed or added. */
static void test_tag_covers_proof(void **state)
{
	(void)state;
	grant(SRDMA_MEMKEY_WRITE);
	assert_int_equal(pair_open(4), 0);
	for (unsigned i = 0; i < ROWS; i++) {
		const struct protection p = row(i);
		struct srdma_packet q = proven(SRDMA_OP_WRITE_ONLY, 16);
		struct pair pair;
		int len;

		assert_int_equal(pair_create(&pair, &p), 0);
		len = srdma_session_seal(pair.end[0], &q, text, out,
					 sizeof(out));
		for (uint32_t at = q.tag_at - SRDMA_PROOF_LEN; at < q.tag_at;
		     at++)
			for (int bit = 0; bit < 8; bit++) {
				out[at] ^= (uint8_t)(1 << bit);
				assert_int_equal(receive(pair.end[1], len),
						 -SRDMA_REFUSED_TAG);
				out[at] ^= (uint8_t)(1 << bit);
			}
		assert_int_equal(receive(pair.end[1], len), 0);
		pair_destroy(&pair);
	}
	pair_close();
}

/* Without a key the given proof is sent; without flag P no proof is made. */
static void test_proof_only_with_flag(void **state)
{
	const struct protection p = row(0);
	struct srdma_packet q;
	struct pair pair;

	(void)state;
	grant(SRDMA_MEMKEY_WRITE);
	assert_int_equal(pair_open(4), 0);
	assert_int_equal(pair_create(&pair, &p), 0);
	q = proven(SRDMA_OP_WRITE_ONLY, 16);
	q.access_key = NULL;
	memset(q.proof, 0x44, sizeof(q.proof));
	assert_true(srdma_session_seal(pair.end[0], &q, text, out,
				       sizeof(out)) > 0);
	for (int i = 0; i < SRDMA_PROOF_LEN; i++)
		assert_int_equal(out[q.tag_at - SRDMA_PROOF_LEN + i], 0x44);
	q = proven(SRDMA_OP_WRITE_ONLY, 16);
	q.flags = 0;
	assert_true(srdma_session_seal(pair.end[0], &q, text, out,
				       sizeof(out)) > 0);
	assert_int_equal(q.tag_at, 12 + 16 + 8);
	assert_true(is_zero(q.proof, sizeof(q.proof)));
	pair_destroy(&pair);
	pair_close();
}

/* In a mode without MEM no proof is made, and no packet number is used. */
static void test_modes_without_mem_make_no_proof(void **state)
{
	(void)state;
	grant(SRDMA_MEMKEY_WRITE);
	assert_int_equal(pair_open(4), 0);
	for (int i = 0; i < 3; i++) {
		struct protection p = i == 2 ? none() : gcm();
		struct srdma_packet q = proven(SRDMA_OP_WRITE_ONLY, 16);
		struct pair pair;
		uint64_t next;

		p.mode = i == 1 ? SRDMA_MODE_PD : SRDMA_MODE_BASIC;
		assert_int_equal(pair_create(&pair, &p), 0);
		next = srdma_session_next_pn(pair.end[0]);
		assert_int_equal(srdma_session_seal(pair.end[0], &q, text, out,
						    sizeof(out)),
				 -EINVAL);
		assert_int_equal(srdma_session_next_pn(pair.end[0]), next);
		pair_destroy(&pair);
	}
	pair_close();
}

static int open_all(void **state)
{
	return fill_text(state) || open_cmac(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_proof_of_every_kind_of_packet),
		cmocka_unit_test(test_proof_in_every_protection),
		cmocka_unit_test(test_tag_covers_proof),
		cmocka_unit_test(test_proof_only_with_flag),
		cmocka_unit_test(test_modes_without_mem_make_no_proof),
	};

	return cmocka_run_group_tests(tests, open_all, close_cmac);
}
