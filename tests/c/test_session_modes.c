/* Sessions in the four key modes: what travels does not depend on the cache,
 * and what differs in a key is refused (docs/protocol.md 3.4). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "session_state.h"
#include "stats.h"
#include "traffic.h"

/* The modes, and PD once more with policy shared. */
static const struct {
	uint8_t mode, shared;
} modes[] = {
	{ SRDMA_MODE_BASIC, 0 },
	{ SRDMA_MODE_PD, 0 },
	{ SRDMA_MODE_PD, 1 },
	{ SRDMA_MODE_MEM, 0 },
	{ SRDMA_MODE_PD | SRDMA_MODE_MEM, 0 },
	{ SRDMA_MODE_PD | SRDMA_MODE_MEM, 1 },
};

enum { MODES = sizeof(modes) / sizeof(modes[0]) };

static struct protection in_mode(struct protection p, unsigned m)
{
	p.mode = modes[m].mode;
	p.shared = modes[m].shared;
	return p;
}

/* Run a check for every protection in every mode, with a cache. */
static void for_all(unsigned contexts, void (*check)(const struct protection *))
{
	struct protection p, q;

	assert_int_equal(pair_open(contexts), 0);
	for (unsigned i = 0; protection_at(i, &p); i++)
		for (unsigned m = 0; m < MODES; m++) {
			q = in_mode(p, m);
			check(&q);
		}
	pair_close();
}

static struct srdma_keycache_counts counts(void)
{
	struct srdma_keycache_counts c;

	srdma_keycache_count(pair_means.cache, &c);
	return c;
}

/* What is created ---------------------------------------------------------- */

static void create_wants(void **state)
{
	struct srdma_cmac long_keys;
	struct protection p;

	(void)state;
	assert_int_equal(pair_open(1), 0);
	assert_int_equal(srdma_cmac_create(&long_keys, 32), 0);
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

/* The same bytes with every cache ------------------------------------------ */

enum { STEPS = 24, STEP_MAX = 256 };

/* What a pair said: its datagrams, in their order. */
struct said {
	int len[STEPS];
	uint8_t data[STEPS][STEP_MAX];
};

/* Step n of a talk: who sends what. */
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

/* A talk uses four flows, each in STEPS / 2 packets. */
static void check_counts(const struct protection *p, unsigned contexts,
			 const struct srdma_keycache_counts *before)
{
	const struct srdma_keycache_counts c = counts();
	const int pd = (p->mode & SRDMA_MODE_PD) != 0;
	const uint64_t packets = pd ? 2 * STEPS : 0;
	const uint64_t derived = !pd ? 0 : contexts < 4 ? packets : 4;

	assert_int_equal(c.misses - before->misses, derived);
	assert_int_equal(c.hits - before->hits, packets - derived);
	assert_int_equal(c.kept, 0); /* the sessions are gone */
}

static void same_bytes_with_any_cache(void **state)
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

/* What an end derives and what it was given are the same S. */
static void owner_and_shared_agree(void **state)
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

/* What is refused ---------------------------------------------------------- */

/* The datagram in out fails its tag at s, and moves nothing. */
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
	assert_int_equal(s->forgeries, before.forgeries + 1);
	for (int i = 0; i < 64; i++)
		assert_int_equal(plain[i], 0);
}

/* An end with one thing changed does not understand the other. */
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
	/* the parent of the other length is not asked */
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
	/* what it should receive by is not a secret that it was given */
	to = good;
	memset(to.rx_secret, 0x77, sizeof(to.rx_secret));
	check_wrong(how, &to, 1);
}

static void wrong_keys(void **state)
{
	(void)state;
	for_all(16, check_wrong_keys);
	for_all(0, check_wrong_keys);
}

/* A sender with another S; policy shared does not look at it. */
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

static void wrong_secret(void **state)
{
	(void)state;
	for_all(16, check_wrong_secret);
}

/* The same secrets under another mode: the mode is in the associated data. */
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
	/* PD against none of it, with the same S */
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

static void other_modes(void **state)
{
	(void)state;
	for_all(16, check_other_modes);
}

/* Many sessions and one cache ---------------------------------------------- */

enum { PAIRS = 10 };

/* Pairs of their own QPNs, protections and modes. */
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

static void interleaved(void **state)
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

/* The session whose packet is oldest derives again, and no other. */
static void least_recently_used_derives(void **state)
{
	const struct protection p = { .suite = srdma_suite_by_id(1),
				      .level = SRDMA_LEVEL_AEAD,
				      .tag_len = 16,
				      .mode = SRDMA_MODE_PD,
				      .shared = 1 };
	struct srdma_session *s[4];
	/* who sends, and whether it has to derive */
	static const struct {
		int who, derives;
	} rows[] = {
		{ 0, 1 }, { 1, 1 }, { 2, 1 }, { 0, 0 }, { 3, 1 }, /* 1 leaves */
		{ 0, 0 }, { 2, 0 }, { 1, 1 },			  /* 3 leaves */
		{ 0, 0 }, { 3, 1 },				  /* 2 leaves */
		{ 1, 0 }, { 0, 0 }, { 3, 0 }, { 2, 1 },		  /* 1 leaves */
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

/* A session that ends takes its contexts along; those of others stay. */
static void ended_sessions_leave_the_cache(void **state)
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
	/* one that never sent a packet has none */
	assert_int_equal(pair_create(&a, &p), 0);
	assert_int_equal(counts().kept, 4);
	pair_destroy(&a);
	pair_destroy(&b);
	assert_int_equal(counts().kept, 0);
	pair_close();
}

/* What a session stores ---------------------------------------------------- */

static void check_state(const struct protection *how)
{
	const uint32_t secret = how->suite->key_len <= 16 ? 16 : 32;
	uint32_t key = 2 * how->suite->key_len, iv = 2 * how->suite->iv_len;
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

static void stored_state(void **state)
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

/* In PD the S that a session receives by is nowhere in it. */
static void derived_secrets_are_not_stored(void **state)
{
	struct protection p = in_mode(gcm(), 1);
	struct srdma_session_params other;
	struct srdma_session *s;
	struct pair pair;

	(void)state;
	assert_int_equal(pair_open(0), 0);
	other = pair_params(&p, 0);
	assert_int_equal(pair_create(&pair, &p), 0);
	s = pair.end[1]; /* receives by what end 0 was given as tx_secret */
	assert_int_equal(pair_settle(&pair), 0);
	assert_null(memmem(s, sizeof(*s), other.tx_secret, 16));
	assert_null(s->rx.root.slot);
	assert_null(s->rx.root.secret);
	assert_null(s->tx.root.slot);
	assert_non_null(s->tx.root.secret);
	pair_destroy(&pair);
	pair_close();
}

/* Limits count packets in every mode. */
static void check_limits(const struct protection *how)
{
	struct pair pair;
	int len;

	assert_int_equal(pair_create(&pair, how), 0);
	assert_int_equal(srdma_session_limit(pair.end[0], 2, 1), 0);
	assert_int_equal(srdma_session_limit(pair.end[1], 2, 1), 0);
	len = send(pair.end[0], 0, 8);
	assert_int_equal(receive(pair.end[1], len), 0);
	len = send(pair.end[0], 1, 8);
	assert_int_equal(send(pair.end[0], 2, 8), -EKEYEXPIRED);
	out[20] ^= 1; /* of the tag */
	assert_int_equal(receive(pair.end[1], len), -SRDMA_REFUSED_TAG);
	assert_int_equal(srdma_session_spent(pair.end[1]), 1);
	assert_int_equal(receive(pair.end[1], len), -SRDMA_REFUSED_QP_STATE);
	pair_destroy(&pair);
}

static void limits_as_in_basic(void **state)
{
	(void)state;
	for_all(1, check_limits);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(create_wants),
		cmocka_unit_test(same_bytes_with_any_cache),
		cmocka_unit_test(owner_and_shared_agree),
		cmocka_unit_test(wrong_keys),
		cmocka_unit_test(wrong_secret),
		cmocka_unit_test(other_modes),
		cmocka_unit_test(interleaved),
		cmocka_unit_test(least_recently_used_derives),
		cmocka_unit_test(ended_sessions_leave_the_cache),
		cmocka_unit_test(stored_state),
		cmocka_unit_test(derived_secrets_are_not_stored),
		cmocka_unit_test(limits_as_in_basic),
	};

	return cmocka_run_group_tests(tests, fill_text, NULL);
}
