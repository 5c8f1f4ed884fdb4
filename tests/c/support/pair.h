/*
 * Fixture of the session tests: two sessions that share keys, and a legal
 * packet of every kind. It is a header only, so that the fuzzers link without a
 * test library.
 */
#ifndef SRDMA_TEST_PAIR_H
#define SRDMA_TEST_PAIR_H

#include <stdint.h>
#include <string.h>

#include "crypto/cmac.h"
#include "session/keycache.h"
#include "session/pdkeys.h"
#include "wire/reason.h"
#include "session/session.h"
#include "crypto/suite.h"

struct pair {
	struct srdma_session *end[2]; /* by role */
};

/* Protection that two QPs agree on. */
struct protection {
	const struct srdma_suite *suite; /* NULL: level none */
	uint8_t level;
	uint8_t tag_len;
	/* enum srdma_mode; a mode with PD or MEM requires pair_open() */
	uint8_t mode;
	uint8_t shared; /* with PD: both ends use the K_PD of role 1 */
};

/*
 * Objects that sessions in modes with PD or MEM use: the PD keys of each role,
 * and the key cache, provider and CMAC of a worker.
 */
static struct {
	struct srdma_pdkeys pd[2];
	struct srdma_keycache *cache;
	struct srdma_provider *provider; /* NULL: OpenSSL */
	struct srdma_cmac cmac;
} pair_means;

/*
 * Call before sessions in modes with PD or MEM, with a cache of this many
 * contexts. Returns 0 or -errno. Every pair_open needs a pair_close.
 */
static inline int pair_open(unsigned contexts)
{
	int r = srdma_keycache_create(&pair_means.cache, contexts,
				      pair_means.provider);

	for (int role = 0; role < 2; role++)
		for (unsigned i = 0; i < SRDMA_GROUP_KEY_LEN; i++)
			pair_means.pd[role].pd[i] =
				(uint8_t)(0x70 + 64 * role + i);
	return r ? r
		 : srdma_cmac_create(&pair_means.cmac, 16, pair_means.provider);
}

static inline void pair_close(void)
{
	srdma_keycache_destroy(pair_means.cache);
	srdma_cmac_destroy(&pair_means.cmac);
	pair_means.cache = NULL;
}

/* Next request id of both directions after pair_settle. */
enum { PAIR_NEXT_ID = 1000, PAIR_FIRST_PN = (1 << 23) + 17 };

/*
 * Sets *p to protection number i, ordered by suite, level and tag length, in key
 * mode basic. Returns 1, or 0 if there are not so many.
 */
static inline int protection_at(unsigned i, struct protection *p)
{
	p->mode = SRDMA_MODE_BASIC;
	p->shared = 0;
	for (unsigned row = 0; srdma_suite_at(row); row++) {
		p->suite = srdma_suite_at(row);
		for (p->level = 1; p->level <= SRDMA_LEVEL_AEAD; p->level++) {
			if (!(p->suite->levels >> p->level & 1))
				continue;
			for (p->tag_len = 1; p->tag_len <= 64; p->tag_len++)
				if (srdma_suite_tag_ok(p->suite, p->tag_len) &&
				    i-- == 0)
					return 1;
		}
	}
	return 0;
}

/*
 * Sets the parameters of the key mode. With PD, secrets derived from K_PD replace
 * the secrets set before.
 */
static inline void pair_params_mode(struct srdma_session_params *s,
				    const struct protection *p)
{
	const uint8_t role = s->role;
	struct srdma_pdkeys_flow tx = { .receiver.qpn = s->peer_qpn,
					.sender.qpn = s->local_qpn };

	s->mode = p->mode;
	s->shared = p->shared;
	if (p->mode & SRDMA_MODE_MEM)
		s->cmac = &pair_means.cmac;
	if (!(p->mode & SRDMA_MODE_PD))
		return;
	s->cache = pair_means.cache;
	s->pd = &pair_means.pd[p->shared ? 1 : role];
	s->pd_serial = s->pd->serial;
	memset(s->rx_secret, 0, sizeof(s->rx_secret));
	memset(s->tx_secret, 0, sizeof(s->tx_secret));
	if (p->shared)
		return;
	memcpy(tx.receiver.eid, s->peer_eid, SRDMA_EID_LEN);
	memcpy(tx.sender.eid, s->local_eid, SRDMA_EID_LEN);
	memcpy(tx.generation, s->generation, SRDMA_GENERATION_LEN);
	/* a failure leaves a zero secret, with which no packet verifies */
	srdma_pdkeys_secret(&pair_means.pd[!role], s->tx_secret, s->secret_len,
			    &tx);
}

static inline struct srdma_session_params
pair_params(const struct protection *p, uint8_t role)
{
	static const uint32_t qpn[2] = { 0x012345, 0xfedcba };
	static const uint64_t first[2] = { PAIR_FIRST_PN, PAIR_FIRST_PN + 999 };
	struct srdma_session_params s = {
		.role = role,
		.suite = p->suite ? p->suite->id : 0,
		.level = p->level,
		.tag_len = p->tag_len,
		.window = 64,
		.mtu = SRDMA_MAX_PAYLOAD,
		.provider = pair_means.provider,
		.generation = { 1, 2, 3, 4, 5, 6, 7, 8 },
		.local_qpn = qpn[role],
		.peer_qpn = qpn[!role],
		.tx_pn = first[role],
		.rx_pn = first[!role],
	};

	if (p->suite)
		s.secret_len = p->suite->key_len <= 16 ? 16 : 32;
	memset(s.local_eid, 0xe0 | role, sizeof(s.local_eid));
	memset(s.peer_eid, 0xe0 | !role, sizeof(s.peer_eid));
	memset(s.tx_secret, 0x50 | role, s.secret_len);
	memset(s.rx_secret, 0x50 | !role, s.secret_len);
	pair_params_mode(&s, p);
	return s;
}

/* Returns 0 or the first error of srdma_session_create. */
static inline int pair_create(struct pair *pair, const struct protection *p)
{
	int r = 0;

	for (uint8_t role = 0; role < 2; role++) {
		struct srdma_session_params s = pair_params(p, role);
		int e = srdma_session_create(&pair->end[role], &s);

		r = r ? r : e;
	}
	return r;
}

static inline void pair_destroy(struct pair *pair)
{
	srdma_session_destroy(pair->end[0]);
	srdma_session_destroy(pair->end[1]);
}

/* Both ends send request PAIR_NEXT_ID - 1. Returns 0 or the first error. */
static inline int pair_settle(struct pair *pair)
{
	uint8_t out[SRDMA_MAX_PACKET], plain[SRDMA_MAX_PAYLOAD];

	for (int role = 0; role < 2; role++) {
		struct srdma_packet p = { .opcode = SRDMA_OP_SEND_ONLY,
					  .request_id = PAIR_NEXT_ID - 1 };
		int len = srdma_session_seal(pair->end[role], &p, NULL, out,
					     sizeof(out));

		if (len < 0)
			return len;
		len = srdma_session_open(pair->end[!role], &p, out, (size_t)len,
					 plain);
		if (len)
			return len;
	}
	return 0;
}

/* Fills in a control packet; each variant is another kind and number of gaps. */
static inline void sample_ack(struct srdma_packet *p, unsigned variant)
{
	static const uint8_t gaps[3] = { 0, 1, SRDMA_MAX_GAPS };
	struct srdma_ack_body *a = &p->ack;

	a->kind = (uint8_t)(SRDMA_ACK_OPEN + variant % 6);
	a->gaps = gaps[variant / 6 % 3];
	if (a->kind == SRDMA_ACK_NAK)
		a->reason = SRDMA_REASON_OUT_OF_BOUNDS;
	if (a->kind == SRDMA_ACK_CLOSE)
		a->reason = SRDMA_REASON_PEER_CLOSED;
	p->request_id = PAIR_NEXT_ID;
	a->request_id = PAIR_NEXT_ID;
	a->offset = p->offset;
	a->highest_pn = 0x01020304;
	a->recv_credit = 5;
	if (a->kind != SRDMA_ACK_NAK && a->kind != SRDMA_ACK_CLOSE)
		a->path = 0x87650021;
	a->request_credit = PAIR_NEXT_ID + 64;
	for (uint8_t i = 0; i < a->gaps; i++)
		a->gap[i] = (struct srdma_gap){ PAIR_NEXT_ID + 1, 100u * i,
						i % 8 == 7 ? SRDMA_GAP_IDS + 3
							   : 50 };
}

enum { SAMPLE_VARIANTS = 18, SAMPLES = SRDMA_OP_COUNT * SAMPLE_VARIANTS };

/*
 * Sample i of SAMPLES: a packet that either end may send after pair_settle().
 * Returns 1, or 0 if there is no sample i (unknown opcode, or a repetition).
 */
static inline int sample_at(unsigned i, struct srdma_packet *p)
{
	const unsigned variant = i % SAMPLE_VARIANTS;
	const uint8_t opcode = (uint8_t)(i / SAMPLE_VARIANTS);
	const uint32_t t = srdma_wire_traits(opcode);
	const uint32_t only = SRDMA_T_FIRST | SRDMA_T_LAST;

	if (!t || (variant >= 3 && !(t & SRDMA_T_ACK)))
		return 0;
	*p = (struct srdma_packet){
		.opcode = opcode,
		.request_id = PAIR_NEXT_ID - !(t & SRDMA_T_REQUEST),
		.offset = 0x00a0b0c0,
		.va = 0x7f00112233445566,
		.rkey = 0x89abcdef,
		.dma_len = 4096,
		.swap_add = 0x1122334455667788,
		.compare = 0x99aabbccddeeff00,
		.original = 0x0102030405060708,
		.imm = 0xdeadbeef,
		.payload_len = t & SRDMA_T_PAYLOAD ? 5 : 0,
	};
	if (t & SRDMA_T_ACK) {
		sample_ack(p, variant);
	} else if (variant == 1) {
		p->flags = SRDMA_STH_ACK_NOW;
		if ((t & only) == only)
			p->payload_len = 0;
		else if (p->payload_len)
			p->payload_len = 8;
	} else if (variant == 2) {
		if (!(t & (SRDMA_T_WRITE | SRDMA_T_READ | SRDMA_T_ATOMIC)))
			return 0;
		p->flags = SRDMA_STH_PROOF | SRDMA_STH_HOLDER;
		p->depth = 3;
		p->expiry = 0x65000000;
		memset(p->proof, 0x33, sizeof(p->proof));
	}
	return 1;
}

#endif
