/*
 * Fixture for memory proof tests at the responder: handmade packets of side 0's
 * QP 0, with arbitrary keys.
 */
#ifndef SRDMA_TEST_PROVING_H
#define SRDMA_TEST_PROVING_H

#include <string.h>

#include "support/inside.h"
#include "support/relay_pair.h"

enum { BLOCK = 256, BLOCKS = 16, REGION = BLOCK * BLOCKS };

/* A region at the server. */
struct place {
	struct srdma_leg *leg; /* NULL: the server's leg */
	uint64_t at;
	uint32_t access;
	uint32_t scope_qpn;
};

static inline uint32_t add_region(struct pair *p, struct place place)
{
	struct side *s = &p->side[1];
	const int proof = (place.access & SRDMA_ACCESS_PROOF) != 0;
	const struct srdma_mr_params mp = {
		.region = { .addr = (uintptr_t)s->memory + place.at,
			    .length = REGION,
			    .access = place.access,
			    .fd = -1 },
		.scope_qpn = place.scope_qpn,
		.log2_block = proof ? 8 : 0,
		.depth = proof ? 48 : 0,
	};
	uint32_t key;

	assert_int_equal(srdma_relay_mr_reg(s->relay,
					    place.leg ? place.leg : s->leg, &mp,
					    &key),
			 0);
	return key;
}

/* Makes a capability at the server and prepares its keys. */
static inline void take(struct pair *p, struct srdma_leg *leg,
			const struct srdma_cap_params *params,
			struct srdma_capability *cap)
{
	struct srdma_relay *r = p->side[1].relay;

	assert_int_equal(srdma_relay_mr_capability(r, leg, params, cap), 0);
	assert_int_equal(srdma_capability_ready(cap, &r->cmac), 0);
}

/* Adds the capability's proof for the first byte of the packet. */
static inline void prove_with(struct srdma_packet *p,
			      const struct srdma_capability *cap, uint8_t right)
{
	static const struct srdma_memkey_bearer nobody;
	struct srdma_capability_entry e;

	assert_int_equal(
		srdma_capability_find(cap, right,
				      p->va + p->offset - cap->tree.start, &e),
		0);
	p->flags |= SRDMA_STH_PROOF;
	if (memcmp(cap->bearer.holder, nobody.holder, sizeof(nobody.holder)))
		p->flags |= SRDMA_STH_HOLDER;
	p->depth = e.node->depth;
	p->expiry = cap->bearer.expiry;
	p->access_key = e.key;
}

static inline struct srdma_qp *qp_of(struct pair *p, int side)
{
	return srdma_relay_qp(p->side[side].relay, p->side[side].qp[0].qpn);
}

/* Sends a packet with a payload of 0x5a. The QP does not count it as sent, but
 * it accepts a NAK that names any byte of the request. */
static inline void send_packet(struct pair *p, struct srdma_packet *packet)
{
	static uint8_t payload[SRDMA_MAX_PAYLOAD];

	memset(payload, 0x5a, sizeof(payload));
	srdma_qp_requester(qp_of(p, 0))->sent.offset = UINT32_MAX;
	assert_int_equal(srdma_path_send(qp_of(p, 0), packet, payload), 0);
	pair_settle(p);
}

/* The server's reason for a refusal; SRDMA_REASON_NONE: its QP is open. */
static inline uint32_t verdict(struct pair *p)
{
	uint32_t reason = SRDMA_REASON_NONE, told;

	if (pair_state(p, 1, 0, &reason) == SRDMA_QP_RTS)
		return SRDMA_REASON_NONE;
	assert_int_equal(pair_state(p, 0, 0, &told), SRDMA_QP_ERR);
	assert_int_equal(told, reason); /* from the NAK */
	return reason;
}

/* Number of the server's bytes that a packet has changed. */
static inline unsigned changed(const struct pair *p, uint64_t at, uint64_t len)
{
	unsigned n = 0;

	for (uint64_t i = at; i < at + len; i++)
		n += p->side[1].memory[i] == 0x5a;
	return n;
}

#endif
