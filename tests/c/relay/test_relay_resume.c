/*
 * Resumption of a session between two relays: the renewal key, PROVE, and the
 * withdrawal of a new secret (docs/protocol.md 8.6; local-interface.md 3.6).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "session/session_state.h"
#include "support/inside.h"
#include "support/relay_pair.h"

enum { LEN = SRDMA_RENEWAL_LEN, SECRET = 16, AES_256_GCM = 3 };

static struct srdma_qp *qp_of(struct pair *p, int side, int i)
{
	return srdma_relay_qp(p->side[side].relay, p->side[side].qp[i].qpn);
}

static struct srdma_session *session_of(struct pair *p, int side)
{
	return srdma_qp_session(qp_of(p, side, 0));
}

static int ask(struct pair *p, int side, const struct srdma_qp_prove *in,
	       struct srdma_qp_prove_answer *out)
{
	return srdma_relay_qp_prove(p->side[side].relay, p->side[side].leg, in,
				    out);
}

/* PROVE with the bytes first, first + 1, ... as context. */
static struct srdma_qp_prove request(const struct pair *p, int side, int i,
				     uint8_t first)
{
	struct srdma_qp_prove in = { .qpn = p->side[side].qp[i].qpn };

	for (int n = 0; n < LEN; n++)
		in.context[n] = (uint8_t)(first + n);
	return in;
}

/* The proof of a side. */
static void prove(struct pair *p, int side, int i, uint8_t first,
		  uint8_t proof[LEN])
{
	const struct srdma_qp_prove in = request(p, side, i, first);
	struct srdma_qp_prove_answer out;

	assert_int_equal(ask(p, side, &in, &out), 0);
	memcpy(proof, out.proof, LEN);
}

/* The result of the check by a side. */
static int check(struct pair *p, int side, int i, uint8_t first,
		 const uint8_t proof[LEN])
{
	static const uint8_t zero[LEN];
	struct srdma_qp_prove in = request(p, side, i, first);
	struct srdma_qp_prove_answer out;
	int err;

	in.check = 1;
	memcpy(in.proof, proof, LEN);
	err = ask(p, side, &in, &out);
	assert_memory_equal(out.proof, zero, LEN);
	return err;
}

static uint64_t refused(const struct pair *p, int side)
{
	return srdma_relay_stats(p->side[side].relay)->resumptions_refused;
}

static void says(const struct pair *p, const char *text)
{
	const char *why = srdma_relay_why(p->side[0].relay);

	if (!strstr(why, text))
		fail_msg("\"%s\" is not in \"%s\"", text, why);
}

static void open_in(struct pair *p, uint8_t mode)
{
	pair_defaults(p);
	p->mode = mode;
	pair_open(p);
	pair_connect(p, 0);
}

static void hex_is(const uint8_t *bytes, const char *want)
{
	char hex[2 * LEN + 1];

	for (int i = 0; i < LEN; i++)
		snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
	assert_string_equal(hex, want);
}

/* --- renewal key ---------------------------------------------------------- */

/* From tests/reference/renewal.py: secrets of bytes a0 (to the server) and b0,
 * generation of bytes 47, context 00 01 02 ... */
static void test_reference_proofs(void **state)
{
	static const struct {
		uint8_t suite;
		const char *key, *proof[2];
	} rows[] = {
		{ 1,
		  "02e6f04eef408898cc63fe50b39e74e56e5eaa4f93f7bed62e3af45fcad80e28",
		  { "e7db7d84ebddf605dbcc798edc4c097a2fbb429e031b08ff4c0350357a427bc2",
		    "fa270be4b454064d57c51ef4194108c76b47f68aa0eb16f85ab6bec4ea76d2b6" } },
		{ AES_256_GCM,
		  "23d9470594faebbb369ef5d100ef1c819ea8a1023776421f40d26107155c620c",
		  { "76843944ffd6e057db630b51bca3f821d24d423122b27991beeda755a0993869",
		    "ac2f7ce1b3eb0dcc1562496f1c06b858b97f0df6126ec990e6a861f61748fd6e" } },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct pair p;

		pair_defaults(&p);
		p.suite = rows[i].suite;
		pair_open(&p);
		pair_connect(&p, 0);
		for (int side = 0; side < 2; side++) {
			uint8_t proof[LEN];

			hex_is(session_of(&p, side)->renewal.key, rows[i].key);
			prove(&p, side, 0, 0, proof);
			hex_is(proof, rows[i].proof[side]);
		}
		pair_close(&p);
	}
}

/* Both ends have the same key in every mode, with each size of secrets. */
static void test_ends_prove_to_each_other(void **state)
{
	static const uint8_t suites[] = { 1, AES_256_GCM };

	(void)state;
	for (int n = 0; n < 3 * SRDMA_MODES; n++) {
		uint8_t proof[2][LEN], other[LEN];
		struct pair p;

		pair_defaults(&p);
		p.suite = suites[n % 2];
		p.mode = (uint8_t)(n / 2 % SRDMA_MODES);
		p.shared = n >= 2 * SRDMA_MODES && (p.mode & SRDMA_MODE_PD);
		pair_open(&p);
		pair_connect(&p, 0);
		pair_connect(&p, 1);
		for (int side = 0; side < 2; side++)
			prove(&p, side, 0, 9, proof[side]);
		assert_memory_not_equal(proof[0], proof[1], LEN);
		for (int side = 0; side < 2; side++) {
			assert_int_equal(check(&p, side, 0, 9, proof[!side]),
					 0);
			/* its own, one of another context or QP */
			assert_int_equal(check(&p, side, 0, 9, proof[side]),
					 -EBADMSG);
			prove(&p, !side, 0, 10, other);
			assert_int_equal(check(&p, side, 0, 9, other),
					 -EBADMSG);
			prove(&p, !side, 1, 9, other);
			assert_int_equal(check(&p, side, 0, 9, other),
					 -EBADMSG);
			assert_int_equal(refused(&p, side), 3);
		}
		pair_close(&p);
	}
}

static void test_each_bit_of_a_proof_counts(void **state)
{
	uint8_t proof[LEN];
	struct pair p;

	(void)state;
	open_in(&p, SRDMA_MODE_BASIC);
	prove(&p, 1, 0, 0, proof);
	for (int bit = 0; bit < 8 * LEN; bit++) {
		proof[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(check(&p, 0, 0, 0, proof), -EBADMSG);
		says(&p, "not that of the peer");
		proof[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_int_equal(check(&p, 0, 0, 0, proof), 0);
	assert_int_equal(refused(&p, 0), 8 * LEN);
	pair_close(&p);
}

static int rekey(struct pair *p, int side, uint8_t direction, uint8_t byte)
{
	struct srdma_qp_rekey k = { .qpn = p->side[side].qp[0].qpn,
				    .direction = direction };

	if (direction == SRDMA_RX || direction == SRDMA_TX)
		k.secret_len = SECRET;
	memset(k.secret, byte, k.secret_len);
	return srdma_relay_qp_rekey(p->side[side].relay, p->side[side].leg, &k);
}

/* Counts of the side: new secrets of TX and RX. */
static void counts_are(struct pair *p, int side, uint32_t tx, uint32_t rx)
{
	const struct srdma_qp_prove in = request(p, side, 0, 0);
	struct srdma_qp_prove_answer out;

	assert_int_equal(ask(p, side, &in, &out), 0);
	assert_int_equal(out.tx, tx);
	assert_int_equal(out.rx, rx);
}

/* New secrets and epochs do not change the key; they are counted. */
static void test_key_outlives_the_secrets(void **state)
{
	uint8_t before[LEN], after[LEN];
	struct pair p;

	(void)state;
	open_in(&p, SRDMA_MODE_BASIC);
	prove(&p, 0, 0, 0, before);
	counts_are(&p, 0, 0, 0);
	for (uint8_t n = 1; n <= 3; n++) {
		assert_int_equal(rekey(&p, 1, SRDMA_RX, n), 0);
		counts_are(&p, 1, 0, n);
		assert_int_equal(rekey(&p, 0, SRDMA_TX, n), 0);
		counts_are(&p, 0, n, 0);
		assert_int_equal(rekey(&p, 0, SRDMA_TX, n), -EBUSY);
		counts_are(&p, 0, n, 0);
		pair_settle(&p);
	}
	prove(&p, 0, 0, 0, after);
	assert_memory_equal(before, after, LEN);
	assert_int_equal(check(&p, 1, 0, 0, after), 0);
	pair_close(&p);
}

static void test_key_is_wiped_when_the_qp_ends(void **state)
{
	static const uint8_t zero[LEN];
	const struct srdma_session *s;
	uint8_t proof[LEN];
	struct pair p;

	(void)state;
	open_in(&p, SRDMA_MODE_BASIC);
	prove(&p, 1, 0, 0, proof);
	s = session_of(&p, 0);
	assert_memory_not_equal(s->renewal.key, zero, LEN);
	assert_int_equal(srdma_relay_qp_expire(p.side[0].relay, p.side[0].leg,
					       p.side[0].qp[0].qpn),
			 0);
	assert_memory_equal(s->renewal.key, zero, LEN);
	assert_int_equal(check(&p, 0, 0, 0, proof), -ENOTCONN);
	pair_settle(&p); /* the CLOSE ends the peer */
	assert_memory_equal(session_of(&p, 1)->renewal.key, zero, LEN);
	pair_close(&p);
}

static void test_prove_refusals(void **state)
{
	struct srdma_qp_prove_answer out;
	struct srdma_qp_prove in;
	struct pair p;

	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	pair_init_qp(&p, 0);
	in = request(&p, 0, 0, 0);
	assert_int_equal(ask(&p, 0, &in, &out), -ENOTCONN);
	says(&p, "RTR or RTS");
	pair_init_qp(&p, 1);
	pair_connect(&p, 0);
	in = request(&p, 0, 0, 0);
	in.check = 2;
	assert_int_equal(ask(&p, 0, &in, &out), -EINVAL);
	says(&p, "must be 0 or 1");
	in.check = 0;
	in.proof[LEN - 1] = 1;
	assert_int_equal(ask(&p, 0, &in, &out), -EINVAL);
	says(&p, "it must be zero");
	in.qpn ^= 1;
	assert_int_equal(ask(&p, 0, &in, &out), -ENOENT);
	assert_int_equal(refused(&p, 0), 0);
	pair_close(&p);

	pair_defaults(&p);
	p.suite = p.level = p.tag_len = 0;
	p.allow_unprotected = 1;
	pair_open(&p);
	pair_connect(&p, 0);
	in = request(&p, 0, 0, 0);
	assert_int_equal(ask(&p, 0, &in, &out), -EPERM);
	says(&p, "level none");
	pair_close(&p);
}

/* --- withdrawal ----------------------------------------------------------- */

static void write_ok(struct pair *p, int side)
{
	static uint8_t seed;

	memset(p->side[side].memory, ++seed, 10000);
	pair_post(p, side,
		  (struct srdma_desc){
			  .opcode = SRDMA_DESC_WRITE,
			  .id = seed,
			  .length = 10000,
			  .local_addr = (uintptr_t)p->side[side].memory,
			  .remote_addr = (uintptr_t)p->side[!side].memory },
		  NULL);
	pair_settle(p);
	pair_expect(p, side, seed, SRDMA_REASON_NONE);
	assert_memory_equal(p->side[0].memory, p->side[1].memory, 10000);
}

/* The receiver has the secret of an exchange that broke off, and takes that of
 * the next one in its place. */
static void test_withdrawn_secret_makes_room(void **state)
{
	struct pair p;

	(void)state;
	open_in(&p, SRDMA_MODE_BASIC);
	assert_int_equal(rekey(&p, 1, SRDMA_RX, 1), 0);
	assert_int_equal(rekey(&p, 1, SRDMA_RX, 2), -EBUSY);
	assert_int_equal(rekey(&p, 1, SRDMA_REKEY_WITHDRAW, 0), 0);
	counts_are(&p, 1, 0, 0);
	assert_int_equal(rekey(&p, 1, SRDMA_REKEY_QUERY, 0), 0);
	write_ok(&p, 0);
	assert_int_equal(rekey(&p, 1, SRDMA_RX, 2), 0);
	assert_int_equal(rekey(&p, 0, SRDMA_TX, 2), 0);
	counts_are(&p, 1, 0, 1);
	pair_settle(&p);
	assert_int_equal(srdma_session_epoch(session_of(&p, 1), SRDMA_RX), 1);
	assert_int_equal(rekey(&p, 1, SRDMA_REKEY_QUERY, 0), 0);
	write_ok(&p, 0);
	assert_int_equal(pair_refused(&p, 1, SRDMA_REFUSED_TAG), 0);
	pair_close(&p);
}

/* Packets of the withdrawn secret do not verify. */
static void test_withdrawn_secret_opens_nothing(void **state)
{
	struct pair p;

	(void)state;
	open_in(&p, SRDMA_MODE_BASIC);
	assert_int_equal(rekey(&p, 1, SRDMA_RX, 1), 0);
	assert_int_equal(rekey(&p, 1, SRDMA_REKEY_WITHDRAW, 0), 0);
	assert_int_equal(rekey(&p, 0, SRDMA_TX, 1), 0);
	pair_settle(&p);
	assert_true(pair_refused(&p, 1, SRDMA_REFUSED_TAG) > 0);
	assert_int_equal(srdma_session_epoch(session_of(&p, 1), SRDMA_RX), 0);
	pair_close(&p);
}

/* Only the count changes: with a K_PD that was not rotated, S' equals S. */
static void test_secret_taken_up_is_withdrawn(void **state)
{
	struct pair p;

	(void)state;
	open_in(&p, SRDMA_MODE_BASIC);
	assert_int_equal(rekey(&p, 0, SRDMA_REKEY_WITHDRAW, 0), -ENODATA);
	says(&p, "got no new secret");
	/* a secret for sending is not withdrawn */
	assert_int_equal(rekey(&p, 1, SRDMA_RX, 1), 0);
	assert_int_equal(rekey(&p, 0, SRDMA_TX, 1), 0);
	assert_int_equal(rekey(&p, 0, SRDMA_REKEY_WITHDRAW, 0), -ENODATA);
	pair_settle(&p);
	counts_are(&p, 0, 1, 0);
	counts_are(&p, 1, 0, 1);
	assert_int_equal(rekey(&p, 1, SRDMA_REKEY_WITHDRAW, 0), 0);
	counts_are(&p, 1, 0, 0);
	write_ok(&p, 0);
	assert_int_equal(rekey(&p, 1, SRDMA_REKEY_WITHDRAW, 0), -ENODATA);
	pair_close(&p);
}

static uint32_t rotate(struct pair *p, int side)
{
	uint32_t serial;

	assert_int_equal(srdma_relay_leg_rotate(p->side[side].relay,
						p->side[side].leg, 0, &serial),
			 0);
	return serial;
}

static void key(struct pair *p, int side, uint8_t secret[SRDMA_MAX_SECRET])
{
	struct srdma_qp_secret_answer answer;
	struct srdma_qp_secret in;

	pair_key(p, side, 0, &in);
	assert_int_equal(srdma_relay_qp_secret(p->side[side].relay,
					       p->side[side].leg, &in, &answer),
			 0);
	memcpy(secret, answer.secret, SRDMA_MAX_SECRET);
}

/* A withdrawn secret of key mode pd releases its K_PD. */
static void test_withdrawal_in_mode_pd(void **state)
{
	struct srdma_qp_rekey tx = { .direction = SRDMA_TX,
				     .secret_len = SECRET };
	uint8_t secret[SRDMA_MAX_SECRET], proof[LEN];
	const struct srdma_pdkeys *keys;
	uint32_t users;
	struct pair p;

	(void)state;
	open_in(&p, SRDMA_MODE_PD);
	keys = &p.side[1].leg->keys;
	assert_int_equal(rotate(&p, 1), 1);
	assert_int_equal(keys->users, 0);
	key(&p, 1, secret);
	assert_int_equal(keys->users, 1);
	assert_int_equal(rekey(&p, 1, SRDMA_RX, 0), 0);
	users = keys->users_before;
	assert_int_equal(keys->users, 1);
	assert_int_equal(rekey(&p, 1, SRDMA_REKEY_WITHDRAW, 0), 0);
	assert_int_equal(keys->users, 0);
	assert_int_equal(keys->users_before, users);
	write_ok(&p, 0);
	/* the next exchange */
	key(&p, 1, tx.secret);
	memset(tx.secret + SECRET, 0, sizeof(tx.secret) - SECRET);
	assert_int_equal(rekey(&p, 1, SRDMA_RX, 0), 0);
	tx.qpn = p.side[0].qp[0].qpn;
	assert_int_equal(
		srdma_relay_qp_rekey(p.side[0].relay, p.side[0].leg, &tx), 0);
	pair_settle(&p);
	write_ok(&p, 0);
	assert_int_equal(rekey(&p, 1, SRDMA_REKEY_QUERY, 0), 0);
	prove(&p, 0, 0, 0, proof);
	assert_int_equal(check(&p, 1, 0, 0, proof), 0);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reference_proofs),
		cmocka_unit_test(test_ends_prove_to_each_other),
		cmocka_unit_test(test_each_bit_of_a_proof_counts),
		cmocka_unit_test(test_key_outlives_the_secrets),
		cmocka_unit_test(test_key_is_wiped_when_the_qp_ends),
		cmocka_unit_test(test_prove_refusals),
		cmocka_unit_test(test_withdrawn_secret_makes_room),
		cmocka_unit_test(test_withdrawn_secret_opens_nothing),
		cmocka_unit_test(test_secret_taken_up_is_withdrawn),
		cmocka_unit_test(test_withdrawal_in_mode_pd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
