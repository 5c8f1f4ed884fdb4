#include "support/relay_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "relay/leg.h"
#include "crypto/suite.h"

static int random_of(void *ctx, uint8_t *out, size_t len)
{
	uint64_t *s = ctx;

	while (len--) {
		*s = *s * UINT64_C(6364136223846793005) +
		     UINT64_C(1442695040888963407);
		*out++ = (uint8_t)(*s >> 56);
	}
	return 0;
}

void pair_defaults(struct pair *p)
{
	memset(p, 0, sizeof(*p));
	p->suite = 0x01;
	p->level = SRDMA_LEVEL_AEAD;
	p->tag_len = 16;
	p->mtu = 4096;
	p->window = 512;
	p->reads = 16;
	p->timeout_ms = 30000;
	p->depth = 64;
	p->now = 1;
	p->memory = PAIR_MEMORY;
	p->ring = PAIR_RING;
}

void pair_open_relay(struct pair *p, int i, struct srdma_port *host,
		     struct srdma_port *wire)
{
	struct side *s = &p->side[i];
	const struct srdma_relay_params rp = {
		.host = s->host = host,
		.wire = s->wire = wire,
		.allow_unprotected = p->allow_unprotected,
		.mtu = p->mtu,
		.window = p->window,
		.reads = p->reads,
		.key_cache = p->key_cache,
		.qps = p->qps,
		.processes = p->processes,
		.process = p->process,
		.table_memory = p->table_memory,
		.rekey_packets = p->rekey_packets,
		.provider = p->provider,
		.random = random_of,
		.random_ctx = &s->seed,
	};

	s->seed = 77 + (uint64_t)i;
	assert_int_equal(srdma_relay_create(&s->relay, &rp), 0);
}

void pair_open_side(struct pair *p, int i, struct srdma_port *wire)
{
	struct side *s = &p->side[i];
	struct srdma_leg_params lp = { .ring = p->ring,
				       .shared = p->shared,
				       .fds = { -1, -1, -1 } };
	struct srdma_leg_answer answer;
	struct srdma_port *host;

	assert_int_equal(srdma_port_mem_host(&host, &p->host[i]), 0);
	pair_open_relay(p, i, host, wire);
	assert_int_equal(srdma_relay_leg_open(s->relay, &lp, &s->leg, &answer),
			 0);
	s->conn = s->leg->conn;
	s->memory = calloc(1, p->memory);
	assert_non_null(s->memory);
	s->key = pair_register(
		p, i,
		(struct pair_region){ .len = p->memory,
				      .access = SRDMA_ACCESS_ALL });
}

void pair_open_on(struct pair *p, struct srdma_port *a, struct srdma_port *b)
{
	pair_open_side(p, 0, a);
	pair_open_side(p, 1, b);
	pair_run(p, 2);
}

void pair_open(struct pair *p)
{
	struct srdma_port *a, *b;

	assert_int_equal(srdma_port_mem_wire_pair(&a, &b, &p->wire), 0);
	pair_open_on(p, a, b);
}

static uint8_t secret_len(const struct pair *p)
{
	const struct srdma_suite *s = srdma_suite_by_id(p->suite);

	if (!s)
		return 0;
	return s->key_len > 16 ? 32 : 16;
}

void pair_holder(int side, uint8_t holder[SRDMA_MEMKEY_HOLDER_LEN])
{
	memset(holder, 0xd0 + side, SRDMA_MEMKEY_HOLDER_LEN);
}

void pair_key(struct pair *p, int side, int i, struct srdma_qp_secret *k)
{
	const struct srdma_qp_info *peer = &p->side[!side].qp[i];

	*k = (struct srdma_qp_secret){
		.qpn = p->side[side].qp[i].qpn,
		.secret_len = secret_len(p),
		.group = p->shared && side == 1,
		.peer_qpn = peer->qpn,
	};
	memset(k->generation, 0x47 + p->life + i, sizeof(k->generation));
	memcpy(k->peer_eid, peer->eid, sizeof(k->peer_eid));
}

void pair_init_qp(struct pair *p, int i)
{
	struct srdma_qp_params qp = { .sq = p->depth,
				      .rq = p->depth,
				      .timeout_ms = p->timeout_ms };
	struct srdma_qp_secret k;

	for (int s = 0; s < 2; s++)
		assert_int_equal(srdma_relay_qp_init(p->side[s].relay,
						     p->side[s].leg, &qp,
						     &p->side[s].qp[i]),
				 0);
	/* The client adopts the key of the group's server (8.1). */
	for (int s = p->shared; s < 2 && p->mode & SRDMA_MODE_PD; s++) {
		pair_key(p, s, i, &k);
		assert_int_equal(srdma_relay_qp_secret(p->side[s].relay,
						       p->side[s].leg, &k,
						       &p->side[s].secret[i]),
				 0);
	}
}

/* Sets the secrets according to the key mode (3.4). */
static void give_secrets(struct pair *p, int side, int i,
			 struct srdma_qp_keys *k)
{
	if (!(p->mode & SRDMA_MODE_PD)) {
		memset(k->tx_secret, side ? 0xb0 : 0xa0, sizeof(k->tx_secret));
		memset(k->rx_secret, side ? 0xa0 : 0xb0, sizeof(k->rx_secret));
	} else if (p->shared) {
		memcpy(k->group_key, p->side[1].secret[i].group_key,
		       sizeof(k->group_key));
	} else {
		memcpy(k->tx_secret, p->side[!side].secret[i].secret,
		       sizeof(k->tx_secret));
	}
}

void pair_keys(struct pair *p, int side, int i, struct srdma_qp_keys *k)
{
	const struct srdma_qp_info *own = &p->side[side].qp[i];
	const struct srdma_qp_info *peer = &p->side[!side].qp[i];

	*k = (struct srdma_qp_keys){
		.qpn = own->qpn,
		.role = (uint8_t)side,
		.suite = p->suite,
		.level = p->level,
		.tag_len = p->tag_len,
		.mode = p->mode,
		.secret_len = secret_len(p),
		.peer_qpn = peer->qpn,
		.peer_pn = peer->pn,
		.peer_mtu = peer->mtu,
		.peer_window = peer->window,
		.peer_reads = peer->reads,
	};
	memset(k->generation, 0x47 + p->life + i, sizeof(k->generation));
	memcpy(k->peer_eid, peer->eid, sizeof(k->peer_eid));
	pair_holder(!side, k->peer_holder);
	k->peer_holder[0] ^= side ? p->identity : 0;
	snprintf(p->uri[!side], sizeof(p->uri[!side]), "spiffe://pair/%d-%u",
		 !side, side ? p->identity : 0);
	k->peer_identity = p->uri[!side];
	give_secrets(p, side, i, k);
	snprintf(k->peer_wire, sizeof(k->peer_wire), "%s",
		 p->side[!side].wire->address);
}

void pair_connect(struct pair *p, int i)
{
	pair_init_qp(p, i);
	pair_meet(p, i);
}

void pair_meet(struct pair *p, int i)
{
	struct srdma_qp_keys k;

	for (int side = 1; side >= 0; side--) {
		pair_keys(p, side, i, &k);
		assert_int_equal(srdma_relay_qp_keys(p->side[side].relay,
						     p->side[side].leg, &k),
				 0);
	}
	pair_settle(p);
	assert_int_equal(pair_state(p, 0, i, NULL), SRDMA_QP_RTS);
	assert_int_equal(pair_state(p, 1, i, NULL), SRDMA_QP_RTS);
}

void pair_destroy_qp(struct pair *p, int i)
{
	for (int s = 0; s < 2; s++)
		while (srdma_relay_qp_destroy(p->side[s].relay, p->side[s].leg,
					      p->side[s].qp[i].qpn))
			pair_run(p, 1);
	pair_settle(p);
}

uint32_t pair_register(struct pair *p, int side, struct pair_region region)
{
	struct side *s = &p->side[side];
	struct srdma_mr_params mp = {
		.region = { .addr = (uintptr_t)s->memory + region.at,
			    .length = region.len,
			    .access = region.access,
			    .fd = -1 },
		.log2_block = region.log2_block,
		.depth = region.depth,
	};
	uint32_t key;

	assert_int_equal(srdma_relay_mr_reg(s->relay, s->leg, &mp, &key), 0);
	return key;
}

size_t pair_token(struct pair *p, int side, struct srdma_cap_params params,
		  uint8_t token[SRDMA_CAPABILITY_MAX])
{
	struct side *s = &p->side[side];
	struct srdma_capability cap;
	int len;

	assert_int_equal(
		srdma_relay_mr_capability(s->relay, s->leg, &params, &cap), 0);
	len = srdma_capability_encode(token, &cap);
	srdma_capability_wipe(&cap);
	assert_true(len > 0);
	return (size_t)len;
}

uint32_t pair_install(struct pair *p, int side, struct srdma_cap_params params)
{
	uint8_t token[SRDMA_CAPABILITY_MAX];
	size_t len = pair_token(p, !side, params, token);
	uint32_t handle;

	assert_int_equal(srdma_relay_install(p->side[side].relay,
					     p->side[side].leg, token, len,
					     &handle),
			 0);
	return handle;
}

void pair_close(struct pair *p)
{
	for (int i = 0; i < 2; i++) {
		srdma_relay_destroy(p->side[i].relay);
		free(p->side[i].memory);
	}
}

void pair_run(struct pair *p, int n)
{
	while (n--) {
		p->now += 1000;
		for (int i = 0; i < 2; i++)
			srdma_relay_run(p->side[i].relay, p->now, 64);
	}
}

void pair_settle(struct pair *p)
{
	int quiet = 0;

	for (int n = 0; n < 10000 && quiet < 8; n++) {
		int did = 0;

		p->now += 1000;
		for (int i = 0; i < 2; i++) {
			struct srdma_relay *r = p->side[i].relay;

			did += srdma_relay_run(r, p->now, 64);
			did += srdma_relay_timer(r) <= p->now + 1000000;
		}
		quiet = did ? 0 : quiet + 1;
	}
}

void pair_wait_ms(struct pair *p, uint64_t ms)
{
	p->now += ms * 1000000;
	pair_settle(p);
}

/* Writes inline data or SGL behind a descriptor. Returns its length. */
static uint32_t put_behind(const struct side *s, struct srdma_desc *d,
			   const void *payload, uint8_t *out)
{
	struct srdma_sge sgl[SRDMA_MAX_SGES];

	if (!d->sges) {
		d->flags |= SRDMA_DESC_INLINE;
		memcpy(out, payload, d->length);
		return d->length;
	}
	memcpy(sgl, payload, d->sges * sizeof(*sgl));
	for (unsigned i = 0; i < d->sges; i++)
		if (!sgl[i].lkey)
			sgl[i].lkey = s->key;
	srdma_sgl_encode(out, sgl, d->sges);
	return (uint32_t)d->sges * SRDMA_SGE_LEN;
}

void pair_post(struct pair *p, int side, struct srdma_desc d,
	       const void *payload)
{
	uint8_t slot[SRDMA_DESC_SLOT] = { 0 };
	struct side *s = &p->side[side];
	uint32_t len, behind = 0;

	if (!d.qpn)
		d.qpn = s->qp[0].qpn;
	if (!d.local_key)
		d.local_key = s->key;
	if (!d.rkey)
		d.rkey = p->side[!side].key;
	if (!(d.id >> 63) && d.opcode != SRDMA_DESC_CREDIT)
		d.flags |= SRDMA_DESC_SIGNALED;
	d.consumed = s->consumed;
	if (payload)
		behind = put_behind(s, &d, payload, slot + SRDMA_DESC_LEN);
	len = srdma_desc_encode(slot, &d) + behind;
	assert_int_equal(srdma_port_mem_post(s->conn, slot, len), 0);
}

int pair_record(struct pair *p, int side, struct srdma_record *r)
{
	struct side *s = &p->side[side];
	const uint8_t *ring = srdma_port_mem_ring(s->conn);

	srdma_record_decode(r, ring + (size_t)(s->consumed % p->ring) *
					       SRDMA_RECORD_LEN);
	if (r->sequence != s->consumed + 1)
		return 0;
	s->consumed++;
	return 1;
}

/* A receive that is too short completes with LOC_LEN_ERR (13.1). */
static int status_of(const struct srdma_record *r)
{
	if (r->vendor_err == SRDMA_REASON_RECV_TOO_SHORT &&
	    r->opcode == SRDMA_WC_RECV)
		return 1;
	return srdma_reason(r->vendor_err)->status;
}

void pair_expect_at(struct pair *p, int side, uint64_t id, uint32_t reason,
		    const char *file, int line)
{
	struct srdma_record r;

	if (!pair_record(p, side, &r)) {
		print_error("%s:%d: no record on side %d\n", file, line, side);
		fail();
	}
	if (r.id != id || r.vendor_err != reason || r.status != status_of(&r)) {
		print_error("%s:%d: side %d: id %llu, %s, status %u\n", file,
			    line, side, (unsigned long long)r.id,
			    srdma_reason(r.vendor_err)->name, r.status);
		fail();
	}
}

void pair_expect_none(struct pair *p, int side)
{
	struct srdma_record r;

	assert_int_equal(pair_record(p, side, &r), 0);
}

uint64_t pair_refused(struct pair *p, int side, unsigned refusal)
{
	return srdma_relay_stats(p->side[side].relay)->refused[refusal];
}

uint32_t pair_state(struct pair *p, int side, int i, uint32_t *reason)
{
	uint32_t ignored;
	int state = srdma_relay_qp_state(p->side[side].relay, p->side[side].leg,
					 p->side[side].qp[i].qpn,
					 reason ? reason : &ignored);

	assert_true(state > 0);
	return (uint32_t)state;
}
