/*
 * Sessions in the four key modes: the datagrams do not depend on the cache, and
 * every difference in the keys is refused (docs/protocol.md 3.4).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/modes.h"
#include "session/session_state.h"
#include "wire/stats.h"

/* --- creation ------------------------------------------------------------- */

static void test_each_mode_needs_its_params(void **state)
{
	struct srdma_cmac long_keys;
	struct protection p;

	(void)state;
	assert_int_equal(pair_open(1), 0);
	assert_int_equal(srdma_cmac_create(&long_keys, 32, NULL), 0);
	for (unsigned m = 0; m < MODES; m++) {
		const int pd = (modes[m].mode & SRDMA_MODE_PD) != 0;
		const int mem = (modes[m].mode & SRDMA_MODE_MEM) != 0;
		struct srdma_session_params good, bad;
		struct srdma_session *s;

		p = in_mode(gcm(), m);
		good = pair_params(&p, 0);
		assert_int_equal(srdma_session_create(&s, &good), 0);
		srdma_session_destroy(s);
#define WITHOUT(change, needed)                                                \
	do {                                                                   \
		bad = good;                                                    \
		change;                                                        \
		assert_int_equal(srdma_session_create(&s, &bad),               \
				 (needed) ? -EINVAL : 0);                      \
		srdma_session_destroy(s);                                      \
	} while (0)
		WITHOUT(bad.pd = NULL, pd);
		WITHOUT(bad.cache = NULL, pd);
		WITHOUT(bad.cmac = NULL, mem);
		WITHOUT(bad.cmac = &long_keys, mem);
		WITHOUT(bad.secret_len = 0, 1);
		WITHOUT(bad.secret_len = 32, 1);
#undef WITHOUT
		/* level none has key mode basic only */
		p = in_mode(none(), m);
		bad = pair_params(&p, 0);
		assert_int_equal(srdma_session_create(&s, &bad),
				 modes[m].mode ? -EINVAL : 0);
		srdma_session_destroy(s);
	}
	srdma_cmac_destroy(&long_keys);
	pair_close();
}

/* --- equal bytes with every cache ----------------------------------------- */

enum { STEPS = 24, STEP_MAX = 256 };

/* The datagrams of a pair, in order. */
struct said {
	int len[STEPS];
	uint8_t data[STEPS][STEP_MAX];
};

/* Packet n of a talk; the ends alternate. */
static struct srdma_packet step(unsigned n)
{
	static const uint8_t opcodes[] = { SRDMA_OP_WRITE_ONLY,
					   SRDMA_OP_READ_REQUEST,
					   SRDMA_OP_SEND_ONLY };
	struct srdma_packet p = {
		.opcode = opcodes[n / 2 % 3],
		.request_id = n / 2,
		.va = 0x7f0011223344,
		.rkey = 0x8badf00d,
		.dma_len = 50,
	};

	if (p.opcode != SRDMA_OP_READ_REQUEST)
		p.payload_len = 50 + n;
	return p;
}

static void talk(const struct protection *how, struct said *said)
{
	struct pair pair;

	memset(said, 0, sizeof(*said));
	assert_int_equal(pair_create(&pair, how), 0);
	for (unsigned n = 0; n < STEPS; n++) {
		struct srdma_packet p = step(n), q;
		int len = srdma_session_seal(pair.end[n & 1], &p, text, out,
					     sizeof(out));

		assert_in_range(len, 20, STEP_MAX);
		said->len[n] = len;
		memcpy(said->data[n], out, (size_t)len);
		assert_int_equal(srdma_session_open(pair.end[!(n & 1)], &q, out,
						    (size_t)len, plain),
				 0);
		assert_int_equal(q.opcode, p.opcode);
		assert_int_equal(q.pn, p.pn);
		assert_int_equal(q.payload_len, p.payload_len);
		assert_memory_equal(plain, text, p.payload_len);
		assert_int_equal(receive(pair.end[!(n & 1)], len),
				 -SRDMA_REFUSED_REPLAY);
	}
	pair_destroy(&pair);
}

/* A talk uses four flows, each for STEPS / 2 packets. */
static void check_counts(const struct protection *p, unsigned contexts,
			 const struct srdma_keycache_counts *before)
{
	const struct srdma_keycache_counts c = counts();
	const int pd = (p->mode & SRDMA_MODE_PD) != 0;
	const uint64_t packets = pd ? 2 * STEPS : 0;
	const uint64_t derived = !pd ? 0 : contexts < 4 ? packets : 4;

	assert_int_equal(c.misses - before->misses, derived);
	assert_int_equal(c.hits - before->hits, packets - derived);
	assert_int_equal(c.kept, 0); /* the sessions are destroyed */
}

/* RFC 5042 R5.4.5-2 */
static void test_same_datagrams_with_any_cache(void **state)
{
	static const unsigned sizes[] = { 1024, 0, 1 };
	static struct said first, said;
	struct protection p, q;

	(void)state;
	for (unsigned i = 0; protection_at(i, &p); i++)
		for (unsigned m = 0; m < MODES; m++)
			for (int k = 0; k < 3; k++) {
				struct srdma_keycache_counts before;

				assert_int_equal(pair_open(sizes[k]), 0);
				before = counts();
				q = in_mode(p, m);
				talk(&q, k ? &said : &first);
				check_counts(&q, sizes[k], &before);
				if (k)
					assert_memory_equal(&said, &first,
							    sizeof(said));
				pair_close();
			}
}

/* A derived S equals the S that the other end was given. */
static void test_derived_and_given_secret_agree(void **state)
{
	struct protection p;

	(void)state;
	assert_int_equal(pair_open(16), 0);
	for (unsigned i = 0; protection_at(i, &p); i++) {
		struct srdma_session_params owner, other;
		struct srdma_pdkeys_flow flow = { 0 };
		struct pair a, b;
		uint8_t kept[128];
		int len;

		p.mode = SRDMA_MODE_PD;
		p.shared = 1;
		assert_int_equal(pair_create(&a, &p), 0);
		owner = pair_params(&p, 0);
		other = pair_params(&p, 1);
		flow.receiver.qpn = owner.peer_qpn;
		flow.sender.qpn = owner.local_qpn;
		memcpy(flow.receiver.eid, owner.peer_eid, SRDMA_EID_LEN);
		memcpy(flow.sender.eid, owner.local_eid, SRDMA_EID_LEN);
		memcpy(flow.generation, owner.generation, 8);
		assert_int_equal(srdma_pdkeys_secret(owner.pd, owner.tx_secret,
						     owner.secret_len, &flow),
				 0);
		owner.shared = 0;
		assert_int_equal(srdma_session_create(&b.end[0], &owner), 0);
		assert_int_equal(srdma_session_create(&b.end[1], &other), 0);
		len = send(a.end[0], 0, 20);
		memcpy(kept, out, (size_t)len);
		assert_int_equal(send(b.end[0], 0, 20), len);
		assert_memory_equal(out, kept, (size_t)len);
		assert_int_equal(receive(a.end[1], len), 0);
		assert_int_equal(receive(b.end[1], len), 0);
		pair_destroy(&a);
		pair_destroy(&b);
	}
	pair_close();
}

/* --- refusals ------------------------------------------------------------- */

/* Expects that the datagram in out fails its tag at s and changes no state. */
static void refuse_tag(struct srdma_session *s, int len)
{
	const struct srdma_session before = *s;

	memset(plain, 0, 64);
	assert_int_equal(receive(s, len), -SRDMA_REFUSED_TAG);
	assert_memory_equal(&s->window, &before.window, sizeof(s->window));
	assert_int_equal(s->peer_next, before.peer_next);
	assert_int_equal(s->own_next, before.own_next);
	assert_int_equal(s->tx_pn, before.tx_pn);
	assert_int_equal(s->sealed, before.sealed);
	assert_int_equal(srdma_session_forgeries(s),
			 srdma_session_forgeries(&before) + 1);
	for (int i = 0; i < 64; i++)
		assert_int_equal(plain[i], 0);
}

/*
 * Expects that a session with the parameters `to` accepts a packet of the pair,
 * or refuses it at the tag (understood = 0).
 */
static void check_wrong(const struct protection *how,
			const struct srdma_session_params *to, int understood)
{
	struct srdma_session *s;
	struct pair pair;
	int len;

	assert_int_equal(pair_create(&pair, how), 0);
	assert_int_equal(srdma_session_create(&s, to), 0);
	len = send(pair.end[0], 0, 16);
	if (understood)
		assert_int_equal(receive(s, len), 0);
	else
		refuse_tag(s, len);
	srdma_session_destroy(s);
	pair_destroy(&pair);
}

static void check_wrong_keys(const struct protection *how)
{
	const struct srdma_session_params good = pair_params(how, 1);
	const int long_key = good.secret_len == 32;
	struct srdma_session_params to;
	struct srdma_pdkeys pd;

	if (!(how->mode & SRDMA_MODE_PD))
		return;
	pd = *good.pd;
	to = good;
	to.pd = &pd;
	check_wrong(how, &to, 1);
	/* the parent key of the other length is not used */
	pd.pd[long_key ? 0 : 16] ^= 1;
	check_wrong(how, &to, 1);
	memset(pd.mem, 0xee, sizeof(pd.mem));
	check_wrong(how, &to, 1);
	pd.pd[long_key ? 47 : 15] ^= 0x80;
	check_wrong(how, &to, 0);

	to = good;
	to.generation[7] ^= 1;
	check_wrong(how, &to, 0);
	to = good;
	to.peer_eid[0] ^= 1;
	check_wrong(how, &to, 0);
	to = good;
	to.local_eid[15] ^= 1;
	check_wrong(how, &to, 0);
	to = good;
	to.peer_qpn ^= 1;
	check_wrong(how, &to, 0);
	/* the receive direction uses its derived secret, not rx_secret */
	to = good;
	memset(to.rx_secret, 0x77, sizeof(to.rx_secret));
	check_wrong(how, &to, 1);
}

static void test_wrong_keys_are_refused(void **state)
{
	(void)state;
	for_all(16, check_wrong_keys);
	for_all(0, check_wrong_keys);
}

/*
 * Packets of a sender with another secret S are refused, except in a trust
 * group, where S is not used.
 */
static void check_wrong_secret(const struct protection *how)
{
	struct srdma_session_params from = pair_params(how, 0);
	struct srdma_session *s;
	struct pair pair;
	int len;

	from.tx_secret[from.secret_len - 1] ^= 1;
	assert_int_equal(pair_create(&pair, how), 0);
	assert_int_equal(srdma_session_create(&s, &from), 0);
	len = send(s, 0, 16);
	if (how->shared)
		assert_int_equal(receive(pair.end[1], len), 0);
	else
		refuse_tag(pair.end[1], len);
	srdma_session_destroy(s);
	pair_destroy(&pair);
}

static void test_wrong_secret_is_refused(void **state)
{
	(void)state;
	for_all(16, check_wrong_secret);
}

/*
 * The same secrets in another mode fail, because the mode is in the associated
 * data.
 */
static void check_other_modes(const struct protection *how)
{
	struct srdma_session_params a = pair_params(how, 0);
	struct srdma_session_params b = pair_params(how, 1);
	struct srdma_session *from, *to;
	int len;

	a.mode ^= SRDMA_MODE_MEM;
	a.cmac = &pair_means.cmac;
	assert_int_equal(srdma_session_create(&from, &a), 0);
	assert_int_equal(srdma_session_create(&to, &b), 0);
	len = send(from, 0, 16);
	refuse_tag(to, len);
	srdma_session_destroy(from);
	/* PD against no PD, with the same S */
	a = pair_params(how, 0);
	if ((how->mode & SRDMA_MODE_PD) && !how->shared) {
		a.mode &= (uint8_t)~SRDMA_MODE_PD;
		assert_int_equal(srdma_session_create(&from, &a), 0);
		len = send(from, 0, 16);
		refuse_tag(to, len);
		srdma_session_destroy(from);
	}
	srdma_session_destroy(to);
}

static void test_other_modes_are_refused(void **state)
{
	(void)state;
	for_all(16, check_other_modes);
}

/* Limits count packets in every mode. */
static void check_limits(const struct protection *how)
{
	struct pair pair;
	int len;

	assert_int_equal(pair_create(&pair, how), 0);
	assert_int_equal(srdma_session_limit(pair.end[0], 10, 1), 0);
	assert_int_equal(srdma_session_limit(pair.end[1], 10, 1), 0);
	len = send(pair.end[0], 0, 8);
	assert_int_equal(receive(pair.end[1], len), 0);
	len = send(pair.end[0], 1, 8);
	assert_int_equal(send(pair.end[0], 2, 8), -EKEYEXPIRED);
	out[20] ^= 1; /* in the tag */
	assert_int_equal(receive(pair.end[1], len), -SRDMA_REFUSED_TAG);
	assert_int_equal(srdma_session_spent(pair.end[1]), 1);
	assert_int_equal(receive(pair.end[1], len), -SRDMA_REFUSED_QP_STATE);
	pair_destroy(&pair);
}

static void test_limits_in_every_mode(void **state)
{
	(void)state;
	for_all(1, check_limits);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_mode_needs_its_params),
		cmocka_unit_test(test_same_datagrams_with_any_cache),
		cmocka_unit_test(test_derived_and_given_secret_agree),
		cmocka_unit_test(test_wrong_keys_are_refused),
		cmocka_unit_test(test_wrong_secret_is_refused),
		cmocka_unit_test(test_other_modes_are_refused),
		cmocka_unit_test(test_limits_in_every_mode),
	};

	return cmocka_run_group_tests(tests, fill_text, NULL);
}
