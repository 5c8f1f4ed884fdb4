/*
 * Key modes and policies (protocol.md 3.4), and the KEY and KEYS calls, through
 * two relays.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/inside.h"
#include "support/relay_pair.h"

/* expects `text` in the error text of the relay's last refusal */
#define SAYS(relay, text) assert_non_null(strstr(srdma_relay_why(relay), text))

static const struct protection {
	uint8_t suite, level, tag;
} protections[] = {
	{ 0x01, SRDMA_LEVEL_AEAD, 16 },	  { 0x03, SRDMA_LEVEL_AEAD, 16 },
	{ 0x07, SRDMA_LEVEL_AEAD, 16 },	  { 0x12, SRDMA_LEVEL_PACKET, 32 },
	{ 0x30, SRDMA_LEVEL_HEADER, 16 },
};
enum { PROTECTIONS = sizeof(protections) / sizeof(*protections) };

/*
 * Rows of docs/protocol.md 3.4: a key mode. shared, with PD only: 1 is the
 * policy of a trust group.
 */
static const struct policy {
	uint8_t mode, shared;
} policies[] = {
	{ SRDMA_MODE_BASIC, 0 },
	{ SRDMA_MODE_PD, 0 },
	{ SRDMA_MODE_PD, 1 },
	{ SRDMA_MODE_MEM, 0 },
	{ SRDMA_MODE_PD | SRDMA_MODE_MEM, 0 },
	{ SRDMA_MODE_PD | SRDMA_MODE_MEM, 1 },
};
enum { POLICIES = sizeof(policies) / sizeof(*policies) };

static void set(struct pair *p, const struct policy *policy,
		const struct protection *protection)
{
	pair_defaults(p);
	p->mode = policy->mode;
	p->shared = policy->shared;
	p->suite = protection->suite;
	p->level = protection->level;
	p->tag_len = protection->tag;
}

/* Opens a pair in key mode pd, and inits QP 0 without giving it keys. */
static void open_pd(struct pair *p, uint8_t shared)
{
	set(p, &(struct policy){ SRDMA_MODE_PD, shared }, &protections[0]);
	pair_open(p);
	pair_init_qp(p, 0);
}

/* --- data ----------------------------------------------------------------- */

enum { HALF = PAIR_MEMORY / 2 };

static void fill(uint8_t *m, uint32_t len, uint32_t seed)
{
	for (uint32_t i = 0; i < len; i++)
		m[i] = (uint8_t)((i * 2654435761u + seed) >> 13);
}

/* QP i of side 0 WRITEs, READs back and SENDs the bytes. */
static void round_trip(struct pair *p, int i, uint32_t len)
{
	uint8_t *a = p->side[0].memory, *b = p->side[1].memory;
	struct srdma_desc d = { .qpn = p->side[0].qp[i].qpn,
				.length = len,
				.local_addr = (uintptr_t)a,
				.remote_addr = (uintptr_t)b };
	struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV,
				   .qpn = p->side[1].qp[i].qpn,
				   .id = 4,
				   .length = len,
				   .local_addr = (uintptr_t)b + HALF };

	fill(a, len, len + (uint32_t)i);
	d.opcode = SRDMA_DESC_WRITE;
	d.id = 1;
	pair_post(p, 0, d, NULL);
	pair_settle(p);
	pair_expect(p, 0, 1, SRDMA_REASON_NONE);
	assert_memory_equal(b, a, len);
	d.opcode = SRDMA_DESC_READ;
	d.id = 2;
	d.local_addr += HALF;
	pair_post(p, 0, d, NULL);
	pair_settle(p);
	pair_expect(p, 0, 2, SRDMA_REASON_NONE);
	assert_memory_equal(a + HALF, b, len);
	d.opcode = SRDMA_DESC_SEND;
	d.id = 3;
	pair_post(p, 1, recv, NULL);
	pair_post(p, 0, d, NULL);
	pair_settle(p);
	pair_expect(p, 0, 3, SRDMA_REASON_NONE);
	pair_expect(p, 1, 4, SRDMA_REASON_NONE);
	assert_memory_equal(b + HALF, a + HALF, len);
}

static void all_sizes(struct pair *p, int qps)
{
	const uint32_t sizes[] = { 0, 1, p->mtu, 3 * p->mtu + 1, 200000 };

	for (size_t n = 0; n < sizeof(sizes) / sizeof(*sizes); n++) {
		for (int i = 0; i < qps; i++) {
			memset(p->side[1].memory, 0xee, sizes[n] + 1);
			round_trip(p, i, sizes[n]);
			assert_int_equal(p->side[1].memory[sizes[n]], 0xee);
		}
	}
	pair_expect_none(p, 0);
	pair_expect_none(p, 1);
}

/*
 * Every mode and policy, some protections, and caches smaller and larger than
 * the number of flows.
 */
static void test_data_in_every_mode(void **state)
{
	static const uint32_t caches[] = { 0, 2, 1024 };

	(void)state;
	for (int row = 0; row < POLICIES * PROTECTIONS * 3; row++) {
		const struct srdma_stats *stats;
		struct pair p;

		set(&p, &policies[row % POLICIES],
		    &protections[row / POLICIES % PROTECTIONS]);
		p.key_cache = caches[row / POLICIES / PROTECTIONS];
		p.mtu = 2048;
		pair_open(&p);
		pair_connect(&p, 0);
		pair_connect(&p, 1);
		all_sizes(&p, 2);
		for (int side = 0; side < 2; side++) {
			stats = srdma_relay_stats(p.side[side].relay);
			for (int i = 0; i < SRDMA_REFUSED_COUNT; i++)
				assert_int_equal(stats->refused[i], 0);
		}
		pair_close(&p);
	}
}

/* --- KEY ------------------------------------------------------------------ */

static void test_key_refusals(void **state)
{
	struct srdma_qp_secret good, k;
	struct srdma_qp_secret_answer answer;
	struct srdma_qp_keys keys;
	struct srdma_relay *r;
	struct pair p;

	(void)state;
	open_pd(&p, 0);
	r = p.side[1].relay;
	pair_key(&p, 1, 0, &good);
#define KEY(err, text, ...)                                                    \
	do {                                                                   \
		k = good;                                                      \
		__VA_ARGS__;                                                   \
		memset(&answer, 0xaa, sizeof(answer));                         \
		assert_int_equal(                                              \
			srdma_relay_qp_secret(r, p.side[1].leg, &k, &answer),  \
			err);                                                  \
		SAYS(r, text);                                                 \
		for (size_t i = 0; i < sizeof(answer); i++)                    \
			assert_int_equal(((uint8_t *)&answer)[i], 0);          \
	} while (0)
	KEY(-ENOENT, "no QP", k.qpn ^= 1);
	KEY(-EINVAL, "16 or 32", k.secret_len = 0);
	KEY(-EINVAL, "16 or 32", k.secret_len = 24);
	KEY(-EINVAL, "peer's QP", k.peer_qpn = 0);
	KEY(-EINVAL, "peer's QP", k.peer_qpn = 1 << 24);
	KEY(-EINVAL, "0 or 1", k.group = 2);
	KEY(-EPERM, "not opened for a trust group", k.group = 1);
	pair_keys(&p, 1, 0, &keys);
	assert_int_equal(srdma_relay_qp_keys(r, p.side[1].leg, &keys), 0);
	KEY(-EISCONN, "already", k.generation[7] ^= 1);
	KEY(-EISCONN, "already", k.peer_eid[0] ^= 1);
	KEY(-EISCONN, "already", k.peer_qpn ^= 1);
	KEY(-EISCONN, "already", k.secret_len = 32);
	pair_close(&p);
}

/* A QP that failed before KEYS gets none, and the error names its state. */
static void test_no_keys_for_a_failed_qp(void **state)
{
	struct srdma_qp_secret_answer answer;
	struct srdma_qp_secret k;
	struct srdma_qp_keys keys;
	struct pair p;

	(void)state;
	open_pd(&p, 0);
	pair_key(&p, 0, 0, &k);
	pair_keys(&p, 0, 0, &keys);
	pair_post(&p, 0,
		  (struct srdma_desc){ .opcode = SRDMA_DESC_READ,
				       .capability = 1 },
		  NULL);
	pair_run(&p, 2);
	assert_int_equal(pair_state(&p, 0, 0, NULL), SRDMA_QP_ERR);
	assert_int_equal(srdma_relay_qp_secret(p.side[0].relay, p.side[0].leg,
					       &k, &answer),
			 -ENOTCONN);
	SAYS(p.side[0].relay, "not connected"); /* the reason is in QP_STATE */
	assert_int_equal(
		srdma_relay_qp_keys(p.side[0].relay, p.side[0].leg, &keys),
		-ENOTCONN);
	SAYS(p.side[0].relay, "INIT another");
	pair_close(&p);
}

/*
 * The secret S depends on the peer's endpoint id and QPN, the generation and
 * the secret length.
 */
static void test_secret_depends_on_flow(void **state)
{
	enum { FLOWS = 5 };
	struct srdma_qp_secret_answer a[FLOWS];
	struct srdma_qp_secret k;
	struct pair p;

	(void)state;
	open_pd(&p, 0);
	for (int i = 0; i < FLOWS; i++) {
		pair_key(&p, 1, 0, &k);
		k.peer_eid[15] ^= i == 1;
		k.peer_qpn ^= i == 2;
		k.generation[7] ^= i == 3;
		k.secret_len = i == 4 ? 32 : 16;
		assert_int_equal(srdma_relay_qp_secret(p.side[1].relay,
						       p.side[1].leg, &k,
						       &a[i]),
				 0);
	}
	for (int i = 1; i < FLOWS; i++)
		for (int n = 0; n < i; n++)
			assert_memory_not_equal(a[i].secret, a[n].secret, 16);
	for (int i = 16; i < 32; i++)
		assert_int_equal(a[0].secret[i], 0);
	for (int i = 0; i < SRDMA_GROUP_KEY_LEN; i++)
		assert_int_equal(a[0].group_key[i], 0);
	pair_close(&p);
}

static void test_key_returns_group_key(void **state)
{
	struct pair p;

	(void)state;
	open_pd(&p, 1);
	assert_memory_equal(p.side[1].secret[0].group_key,
			    p.side[1].leg->keys.pd, SRDMA_GROUP_KEY_LEN);
	pair_close(&p);
}

/* --- KEYS ----------------------------------------------------------------- */

/* Expects a refusal that changes neither the leg nor the QP. */
static void refused_keys(struct pair *p, int side,
			 const struct srdma_qp_keys *k, int err,
			 const char *says)
{
	struct srdma_leg *leg = p->side[side].leg;
	struct srdma_pdkeys keys = leg->keys;
	int in_use = leg->keys_in_use;
	const struct srdma_qp *qp = srdma_relay_qp(p->side[side].relay, k->qpn);

	assert_int_equal(srdma_relay_qp_keys(p->side[side].relay, leg, k), err);
	SAYS(p->side[side].relay, says);
	assert_memory_equal(&leg->keys, &keys, sizeof(keys));
	assert_int_equal(leg->keys_in_use, in_use);
	assert_int_equal(srdma_qp_state(qp), SRDMA_QP_INIT);
	assert_int_equal(srdma_qp_keyed(qp)->mode, 0);
	assert_null(srdma_qp_session(qp));
}

static void test_keys_refusals(void **state)
{
	struct srdma_qp_keys good, k;
	struct pair p;

	(void)state;
	open_pd(&p, 0);
	pair_keys(&p, 0, 0, &good);
#define KEYS(err, text, ...)                                                   \
	do {                                                                   \
		k = good;                                                      \
		__VA_ARGS__;                                                   \
		refused_keys(&p, 0, &k, err, text);                            \
	} while (0)
	KEYS(-EINVAL, "rx secret", k.rx_secret[31] = 1);
	KEYS(-EINVAL, "neither", memset(k.tx_secret, 0, 32));
	KEYS(-EINVAL, "both", k.group_key[47] = 1);
	KEYS(-EPERM, "not opened for a trust group", memset(k.tx_secret, 0, 32);
	     k.group_key[0] = 1);
	KEYS(-EINVAL, "without pd", k.mode = SRDMA_MODE_BASIC;
	     k.group_key[0] = 1);
	KEYS(-EINVAL, "without pd", k.mode = SRDMA_MODE_MEM;
	     k.group_key[0] = 1);
	KEYS(-ENOTSUP, "not in this version", k.mode = SRDMA_MODES);
	KEYS(-ECONNREFUSED, "wire to", strcpy(k.peer_wire, "nobody"));
	assert_int_equal(
		srdma_relay_qp_keys(p.side[0].relay, p.side[0].leg, &good), 0);
	pair_close(&p);
}

/* Level none derives no keys, so that no key mode is allowed. */
static void test_level_none_refuses_key_modes(void **state)
{
	struct srdma_qp_keys k;
	struct pair p;

	(void)state;
	for (uint8_t mode = 1; mode < SRDMA_MODES; mode++) {
		pair_defaults(&p);
		p.allow_unprotected = 1;
		pair_open(&p);
		pair_init_qp(&p, 0);
		pair_keys(&p, 0, 0, &k);
		k.mode = mode;
		k.level = k.suite = k.tag_len = k.secret_len = 0;
		if (mode & SRDMA_MODE_PD)
			memset(k.rx_secret, 0, sizeof(k.rx_secret));
		assert_true(srdma_relay_qp_keys(p.side[0].relay, p.side[0].leg,
						&k) < 0);
		assert_int_equal(pair_state(&p, 0, 0, NULL), SRDMA_QP_INIT);
		pair_close(&p);
	}
}

/* --- K_PD of a trust group ------------------------------------------------ */

static int give_keys(struct pair *p, int side, int i)
{
	struct srdma_qp_keys k;

	pair_keys(p, side, i, &k);
	return srdma_relay_qp_keys(p->side[side].relay, p->side[side].leg, &k);
}

/* The client's leg adopts the K_PD of a trust group once and keeps it. */
static void test_leg_adopts_group_key_once(void **state)
{
	struct srdma_qp_keys k;
	struct pair p;

	(void)state;
	open_pd(&p, 1);
	assert_int_equal(p.side[0].leg->keys_in_use, 0);
	assert_memory_not_equal(p.side[0].leg->keys.pd, p.side[1].leg->keys.pd,
				SRDMA_GROUP_KEY_LEN);
	/* After a failed call the leg still has its own K_PD. */
	pair_keys(&p, 0, 0, &k);
	strcpy(k.peer_wire, "nobody");
	refused_keys(&p, 0, &k, -ECONNREFUSED, "wire to");
	k.secret_len = 0;
	refused_keys(&p, 0, &k, -EINVAL, "outside the protocol");
	assert_int_equal(give_keys(&p, 1, 0), 0);
	assert_int_equal(give_keys(&p, 0, 0), 0);
	assert_memory_equal(p.side[0].leg->keys.pd, p.side[1].leg->keys.pd,
			    SRDMA_GROUP_KEY_LEN);
	assert_memory_not_equal(p.side[0].leg->keys.mem,
				p.side[1].leg->keys.mem, 16);
	pair_settle(&p);
	round_trip(&p, 0, 5000);
	/* QPs of the same group are accepted, another group is refused. */
	pair_connect(&p, 1);
	round_trip(&p, 1, 5000);
	pair_init_qp(&p, 2);
	pair_keys(&p, 0, 2, &k);
	k.group_key[0] ^= 1;
	refused_keys(&p, 0, &k, -EBUSY, "another group");
	assert_int_equal(give_keys(&p, 0, 2), 0);
	pair_close(&p);
}

/*
 * A leg in a trust group has no QPs outside the group, because every member
 * could derive their keys.
 */
/* RFC 5042 R3-3 */
static void test_leg_in_group_serves_members_only(void **state)
{
	struct srdma_qp_secret_answer answer;
	struct srdma_qp_secret secret;
	struct srdma_qp_keys k;
	struct pair p;

	(void)state;
	open_pd(&p, 1);
	for (int side = 0; side < 2; side++) {
		const int in_use = p.side[side].leg->keys_in_use;

		pair_key(&p, side, 0, &secret);
		secret.group = 0;
		assert_int_equal(srdma_relay_qp_secret(p.side[side].relay,
						       p.side[side].leg,
						       &secret, &answer),
				 -EPERM);
		SAYS(p.side[side].relay, "with members of the group only");
		for (size_t i = 0; i < sizeof(answer.secret); i++)
			assert_int_equal(answer.secret[i], 0);
		assert_int_equal(p.side[side].leg->keys_in_use, in_use);
		pair_keys(&p, side, 0, &k);
		memset(k.group_key, 0, sizeof(k.group_key));
		k.tx_secret[0] = 1;
		refused_keys(&p, side, &k, -EPERM,
			     "with members of the group only");
	}
	pair_close(&p);
}

/* A leg that disclosed its own K_PD, or derived a secret from it, keeps it. */
static void test_used_own_key_is_not_replaced(void **state)
{
	(void)state;
	for (int by_keys = 0; by_keys < 2; by_keys++) {
		struct srdma_qp_secret_answer answer;
		struct srdma_qp_secret secret;
		struct srdma_qp_keys k;
		struct pair p;

		open_pd(&p, 1);
		pair_key(&p, 0, 0, &secret);
		secret.group = 1;
		if (by_keys) {
			pair_keys(&p, 0, 0, &k);
			memcpy(k.group_key, p.side[0].leg->keys.pd,
			       sizeof(k.group_key));
			assert_int_equal(srdma_relay_qp_keys(p.side[0].relay,
							     p.side[0].leg, &k),
					 0);
			pair_init_qp(&p, 1);
			pair_keys(&p, 0, 1, &k);
		} else {
			assert_int_equal(srdma_relay_qp_secret(
						 p.side[0].relay, p.side[0].leg,
						 &secret, &answer),
					 0);
			pair_keys(&p, 0, 0, &k);
		}
		refused_keys(&p, 0, &k, -EBUSY, "its own");
		pair_close(&p);
	}
}

/* A QP in a mode without PD does not use K_PD. */
static void test_modes_without_pd_leave_group_key_free(void **state)
{
	struct srdma_qp_keys k;
	struct pair p;

	(void)state;
	open_pd(&p, 1);
	p.mode = SRDMA_MODE_MEM;
	pair_init_qp(&p, 1);
	assert_int_equal(give_keys(&p, 0, 1), 0);
	p.mode = SRDMA_MODE_PD;
	pair_keys(&p, 0, 0, &k);
	assert_int_equal(
		srdma_relay_qp_keys(p.side[0].relay, p.side[0].leg, &k), 0);
	pair_close(&p);
}

/* --- wrong keys ----------------------------------------------------------- */

enum wrong { WRONG_TX, WRONG_GENERATION, WRONG_EID, WRONG_MODE, WRONGS };

static void spoil(struct srdma_qp_keys *k, enum wrong what)
{
	switch (what) {
	case WRONG_TX:
		/* A trust group has no tx_secret, but uses this part of K_PD. */
		if (k->tx_secret[0] || k->tx_secret[1])
			k->tx_secret[0] ^= 1;
		else
			k->group_key[0] ^= 1;
		break;
	case WRONG_GENERATION:
		k->generation[0] ^= 1;
		break;
	case WRONG_EID:
		k->peer_eid[0] ^= 1;
		break;
	default:
		k->mode ^= SRDMA_MODE_MEM;
	}
}

/* No packet verifies at either end, and the request ends at its deadline. */
static void test_wrong_keys_verify_nothing(void **state)
{
	(void)state;
	for (int row = 0; row < POLICIES * WRONGS; row++) {
		struct srdma_desc d = { .opcode = SRDMA_DESC_WRITE,
					.id = 1,
					.length = 100 };
		const struct srdma_stats *stats;
		struct srdma_qp_keys k;
		struct pair p;

		set(&p, &policies[row % POLICIES], &protections[0]);
		p.timeout_ms = 1000;
		pair_open(&p);
		pair_init_qp(&p, 0);
		assert_int_equal(give_keys(&p, 1, 0), 0);
		pair_keys(&p, 0, 0, &k);
		spoil(&k, row / POLICIES);
		assert_int_equal(
			srdma_relay_qp_keys(p.side[0].relay, p.side[0].leg, &k),
			0);
		d.local_addr = (uintptr_t)p.side[0].memory;
		d.remote_addr = (uintptr_t)p.side[1].memory;
		memset(p.side[0].memory, 0x11, 100);
		pair_post(&p, 0, d, NULL);
		pair_settle(&p);
		stats = srdma_relay_stats(p.side[1].relay);
		assert_int_equal(stats->packets_verified, 0);
		assert_int_equal(stats->refused[SRDMA_REFUSED_TAG], 1);
		pair_wait_ms(&p, 1001);
		pair_expect(&p, 0, 1, SRDMA_REASON_DEADLINE);
		assert_int_equal(pair_state(&p, 1, 0, NULL), SRDMA_QP_RTR);
		assert_int_equal(p.side[1].memory[0], 0);
		pair_close(&p);
	}
}

/* --- generations ---------------------------------------------------------- */

enum { LIVES = 200, TAPE = 64 };

/* The packets of one generation, as an eavesdropper recorded them. */
struct tape {
	int on;
	uint32_t count;
	struct {
		int side;
		uint32_t len;
		uint8_t data[SRDMA_MAX_PACKET];
	} packet[TAPE];
};

static enum srdma_mem_fate record(void *ctx, struct srdma_mem_datagram *d)
{
	struct tape *t = ctx;

	if (t->on && t->count < TAPE) {
		t->packet[t->count].side = d->side;
		t->packet[t->count].len = d->len;
		memcpy(t->packet[t->count++].data, d->data, d->len);
	}
	return SRDMA_MEM_PASS;
}

static uint64_t verified(const struct pair *p)
{
	return srdma_relay_stats(p->side[0].relay)->packets_verified +
	       srdma_relay_stats(p->side[1].relay)->packets_verified;
}

static void play(struct pair *p, const struct tape *t)
{
	for (uint32_t i = 0; i < t->count; i++) {
		struct side *to = &p->side[!t->packet[i].side];
		const struct srdma_qp *qp =
			srdma_relay_qp(to->relay, to->qp[0].qpn);

		assert_int_equal(srdma_port_mem_inject(srdma_path_conn(qp),
						       t->packet[i].data,
						       t->packet[i].len),
				 0);
		pair_settle(p);
	}
}

/*
 * Opens the next generation with the QPN and packet numbers of the one before.
 */
static void live(struct pair *p)
{
	const struct srdma_qp_info before = p->side[1].qp[0];

	p->side[0].seed = p->side[1].seed = 4711;
	pair_connect(p, 0);
	if (before.qpn) {
		assert_int_equal(p->side[1].qp[0].qpn, before.qpn);
		assert_int_equal(p->side[1].qp[0].pn, before.pn);
	}
}

static void write_some(struct pair *p, uint8_t value)
{
	struct srdma_desc d = { .opcode = SRDMA_DESC_WRITE,
				.id = 9,
				.length = 30000,
				.local_addr = (uintptr_t)p->side[0].memory,
				.remote_addr = (uintptr_t)p->side[1].memory };

	memset(p->side[0].memory, value, d.length);
	pair_post(p, 0, d, NULL);
	pair_settle(p);
	pair_expect(p, 0, 9, SRDMA_REASON_NONE);
}

/*
 * QPs are opened repeatedly with the same numbers: no generation accepts the
 * packets of another.
 */
static void many_lives(const struct policy *policy, struct tape *t)
{
	uint64_t before, tags = 0;
	struct pair p;

	set(&p, policy, &protections[0]);
	p.wire.ctx = t;
	p.wire.fate = record;
	p.key_cache = 1024;
	pair_open(&p);
	t->on = 0;
	t->count = 0;
	for (int n = 0; n < LIVES; n++) {
		p.life = (uint8_t)n;
		live(&p);
		memset(p.side[1].memory, 0x99, 30000);
		before = verified(&p);
		t->on = 0;
		play(&p, t);
		assert_int_equal(verified(&p), before);
		for (int i = 0; i < 30000; i++)
			assert_int_equal(p.side[1].memory[i], 0x99);
		t->on = 1;
		t->count = 0;
		write_some(&p, (uint8_t)n);
		assert_true(t->count > 7);
		pair_destroy_qp(&p, 0);
		while (pair_record(&p, 1, &(struct srdma_record){ 0 }) ||
		       pair_record(&p, 0, &(struct srdma_record){ 0 }))
			;
	}
	tags = pair_refused(&p, 0, SRDMA_REFUSED_TAG) +
	       pair_refused(&p, 1, SRDMA_REFUSED_TAG);
	assert_true(tags > LIVES);
	pair_close(&p);
}

/* RFC 5042 A5.4.1; review A3 */
static void test_replay_to_other_generation_fails(void **state)
{
	struct tape *t = calloc(1, sizeof(*t));

	(void)state;
	assert_non_null(t);
	for (int i = 0; i < 3; i++) /* policies with a key cache */
		many_lives(&policies[i], t);
	free(t);
}

/*
 * Validates the test above: with the same generation the packets are accepted.
 */
static void test_replay_to_same_generation_succeeds(void **state)
{
	struct tape *t = calloc(1, sizeof(*t));
	uint64_t before;
	struct pair p;

	(void)state;
	assert_non_null(t);
	set(&p, &policies[1], &protections[0]);
	p.wire.ctx = t;
	p.wire.fate = record;
	pair_open(&p);
	live(&p);
	t->on = 1;
	write_some(&p, 1);
	t->on = 0;
	pair_destroy_qp(&p, 0);
	live(&p);
	before = verified(&p);
	play(&p, t);
	assert_true(verified(&p) > before);
	pair_close(&p);
	free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_data_in_every_mode),
		cmocka_unit_test(test_key_refusals),
		cmocka_unit_test(test_no_keys_for_a_failed_qp),
		cmocka_unit_test(test_secret_depends_on_flow),
		cmocka_unit_test(test_key_returns_group_key),
		cmocka_unit_test(test_leg_in_group_serves_members_only),
		cmocka_unit_test(test_keys_refusals),
		cmocka_unit_test(test_level_none_refuses_key_modes),
		cmocka_unit_test(test_leg_adopts_group_key_once),
		cmocka_unit_test(test_used_own_key_is_not_replaced),
		cmocka_unit_test(test_modes_without_pd_leave_group_key_free),
		cmocka_unit_test(test_wrong_keys_verify_nothing),
		cmocka_unit_test(test_replay_to_other_generation_fails),
		cmocka_unit_test(test_replay_to_same_generation_succeeds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
