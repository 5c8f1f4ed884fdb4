#include "simulation/sim.h"

#include <errno.h>
#include <string.h>

#include "simulation/sim_host.h"
#include "simulation/sim_memory.h"

enum { LATER = 2000 }; /* an expiry that no simulation reaches */

void sim_grant_holder(int side, uint8_t holder[SRDMA_MEMKEY_HOLDER_LEN])
{
	memset(holder, 0xc0 + side, SRDMA_MEMKEY_HOLDER_LEN);
}

static uint64_t granule(const struct sim *w)
{
	const struct srdma_memtree t = { 0, w->area_len, w->log2_block,
					 w->tree_depth };

	return srdma_memtree_granule(&t);
}

/* Capability 0 covers the whole area, the others a random part of it. */
static struct srdma_cap_params choose(struct sim *w, const struct sim_leg *from,
				      const struct sim_leg *to, int i)
{
	uint32_t unit = (uint32_t)granule(w);
	uint32_t units = (w->area_len + unit - 1) / unit;
	uint32_t lo = i ? sim_random(w, units) : 0;
	uint32_t n = i ? 1 + sim_random(w, units - lo) : units;
	uint64_t hi = (uint64_t)(lo + n) * unit;
	struct srdma_cap_params params = {
		.key = to->area[SIM_GUARDED].key,
		.offset = (uint64_t)lo * unit,
		.rights = SRDMA_MEMKEY_READ | SRDMA_MEMKEY_WRITE |
			  SRDMA_MEMKEY_ATOMIC,
	};

	if (i && sim_one_in(w, 3))
		params.rights = (uint8_t)(1 + sim_random(w, 7));
	if (sim_one_in(w, 2))
		sim_grant_holder(from->side, params.bearer.holder);
	if (sim_one_in(w, 3))
		params.bearer.expiry = LATER;
	params.length = (hi < w->area_len ? hi : w->area_len) - params.offset;
	return params;
}

static void install(struct sim *w, struct sim_leg *from, struct sim_grant *g)
{
	SIM_CHECK(w,
		  !srdma_relay_install(w->side[from->side].relay, from->leg,
				       g->token, g->len, &g->handle),
		  "INSTALL: %s", srdma_relay_why(w->side[from->side].relay));
}

static void drop(struct sim *w, struct sim_leg *from, const struct sim_grant *g)
{
	SIM_CHECK(w,
		  !srdma_relay_uninstall(w->side[from->side].relay, from->leg,
					 g->handle),
		  "UNINSTALL");
}

static void grant(struct sim *w, struct sim_leg *from, struct sim_leg *to,
		  int i)
{
	struct sim_grant *g = &from->grant[to - w->side[to->side].leg][i];
	struct srdma_cap_params params = choose(w, from, to, i);
	struct srdma_relay *r = w->side[to->side].relay;
	struct srdma_capability cap;
	int len;

	if (g->handle)
		drop(w, from, g);
	SIM_CHECK(w, !srdma_relay_mr_capability(r, to->leg, &params, &cap),
		  "CAP: %s", srdma_relay_why(r));
	len = srdma_capability_encode(g->token, &cap);
	srdma_capability_wipe(&cap);
	SIM_CHECK(w, len > 0, "a token: %d", len);
	g->len = (size_t)len;
	g->lo = (uint32_t)params.offset;
	g->hi = (uint32_t)(params.offset + params.length);
	g->rights = params.rights;
	install(w, from, g);
}

void sim_grant_open(struct sim *w, struct sim_leg *a, struct sim_leg *b)
{
	for (int i = 0; w->guarded && i < SIM_GRANTS; i++) {
		if (!b->revocations)
			grant(w, a, b, i);
		if (!a->revocations)
			grant(w, b, a, i);
	}
}

/* Drops the capabilities of one leg for the former area of another. */
static void forget(struct sim *w, struct sim_leg *from,
		   const struct sim_leg *to)
{
	struct sim_grant *g = from->grant[to - w->side[to->side].leg];

	for (int i = 0; i < SIM_GRANTS; i++) {
		if (g[i].handle)
			drop(w, from, &g[i]);
		g[i] = (struct sim_grant){ 0 };
	}
}

void sim_grant_renew(struct sim *w, struct sim_leg *leg)
{
	for (int i = 0; i < SIM_LEGS - 1; i++) {
		struct sim_leg *other = &w->side[!leg->side].leg[i];

		if (other->open && !other->closing)
			forget(w, other, leg);
		if (other->open && !other->closing &&
		    other->area[SIM_GUARDED].state == SIM_LIVE)
			sim_grant_open(w, leg, other);
	}
}

int sim_grant_has(const struct sim_leg *from, const struct sim_leg *to)
{
	return from->grant[to - to->w->side[to->side].leg][0].handle != 0;
}

uint32_t sim_grant_choose(struct sim_leg *from, const struct sim_leg *to,
			  const struct sim_wr *wr)
{
	struct sim *w = from->w;
	const struct sim_grant *g = from->grant[to - w->side[to->side].leg];
	uint32_t at = sim_memory_index(to, sim_host_target(wr)) -
		      to->area[SIM_GUARDED].at;
	uint8_t right = SRDMA_MEMKEY_WRITE;

	if (wr->op == SRDMA_DESC_READ)
		right = SRDMA_MEMKEY_READ;
	if (wr->counter)
		right = SRDMA_MEMKEY_ATOMIC;

	for (int i = 1; i < SIM_GRANTS; i++)
		if (g[i].rights & right && g[i].lo <= at &&
		    at + wr->len <= g[i].hi && sim_one_in(w, 2))
			return g[i].handle;
	return g[0].handle;
}

/* --- revocation ----------------------------------------------------------- */

static int overlaps(const struct sim_wr *wr, const struct sim_leg *leg,
		    const struct sim_revoked *r)
{
	uint32_t at;

	if (!sim_host_target(wr))
		return 0;
	at = sim_memory_index(leg, sim_host_target(wr));
	return r->lo < at + wr->len && at < r->hi;
}

/*
 * Marks the requests that may fail because of a revocation: only those that
 * overlap the range.
 */
static void doom_users(struct sim *w, const struct sim_leg *leg,
		       const struct sim_revoked *r)
{
	for (int i = 0; i < 2 * w->qps; i++) {
		struct sim_qp *qp = &w->qp[i / 2];
		struct sim_end *e = &qp->end[i % 2];

		if (!qp->live || sim_host_peer(qp, i % 2)->leg != leg)
			continue;
		for (uint32_t n = e->sq.head; n < e->sq.tail; n++)
			qp->doomed |= overlaps(sim_host_wr(&e->sq, n), leg, r);
	}
}

/* A random range of blocks, or the whole area. */
static void choose_range(struct sim *w, const struct sim_leg *leg,
			 struct sim_revoked *r)
{
	uint32_t block = 1u << w->log2_block;
	uint32_t blocks = (w->area_len + block - 1) / block;
	const struct sim_area *a = &leg->area[SIM_GUARDED];
	uint32_t lo = sim_random(w, blocks);
	uint32_t hi = lo + 1 + sim_random(w, blocks - lo);

	*r = (struct sim_revoked){ .params.key = a->key,
				   .lo = a->at,
				   .hi = a->at + a->len };
	if (sim_one_in(w, 5))
		return;
	r->lo = a->at + lo * block;
	if (hi * block < a->len)
		r->hi = a->at + hi * block;
	r->params.offset = r->lo - a->at;
	r->params.length = r->hi - r->lo;
}

/*
 * The revocation is complete, so that no peer can access the range any more:
 * the host uses it for other data.
 */
static void take_back(struct sim_leg *leg, struct sim_revoked *r)
{
	r->done = 1;
	if (leg->area[SIM_GUARDED].state == SIM_FROZEN)
		return;
	sim_memory_reclaim(leg, r->lo, r->hi);
}

static void revoke(struct sim *w, struct sim_leg *leg)
{
	struct sim_revoked *r = &leg->revoked[leg->revocations];
	int err;

	if (leg->revocations == SIM_REVOKED ||
	    leg->area[SIM_GUARDED].state != SIM_LIVE)
		return;
	choose_range(w, leg, r);
	leg->revocations++;
	doom_users(w, leg, r);
	err = srdma_relay_mr_revoke(w->side[leg->side].relay, leg->leg,
				    &r->params, &r->ticket);
	SIM_CHECK(w, !err || err == -EINPROGRESS, "REVOKE: %d", err);
	w->side[leg->side].poked = 1;
	if (!err)
		take_back(leg, r);
}

/*
 * Installs the same token again with a new handle. Requests that name the old
 * handle may fail.
 */
static void reinstall(struct sim *w, struct sim_leg *leg)
{
	struct sim_grant *g = &leg->grant[sim_random(w, SIM_LEGS - 1)]
					 [sim_random(w, SIM_GRANTS)];
	uint32_t old = g->handle;

	for (int i = 0; i < w->qps; i++) {
		struct sim_qp *qp = &w->qp[i];
		struct sim_end *e = &qp->end[leg->side];

		if (!qp->live || e->leg != leg)
			continue;
		for (uint32_t n = e->sq.head; n < e->sq.tail; n++)
			qp->doomed |= sim_host_wr(&e->sq, n)->capability == old;
	}
	if (!old)
		return;
	drop(w, leg, g);
	install(w, leg, g);
	SIM_CHECK(w, g->handle != old, "a handle was reused");
}

void sim_grant_strike(struct sim *w)
{
	struct sim_leg *leg =
		&w->side[sim_random(w, 2)].leg[sim_random(w, SIM_LEGS - 1)];

	if (!w->guarded || !leg->open || leg->closing)
		return;
	if (sim_one_in(w, 3))
		reinstall(w, leg);
	else
		revoke(w, leg);
}

void sim_grant_race(struct sim *w)
{
	struct sim_leg *leg = w->stalled;

	w->stalled = NULL;
	if (leg && leg->open && !leg->closing && w->active & SIM_REVOKE &&
	    sim_one_in(w, 8))
		revoke(w, leg);
}

void sim_grant_follow(struct sim_leg *leg)
{
	struct srdma_relay *r = leg->w->side[leg->side].relay;

	for (uint32_t i = 0; i < leg->revocations; i++) {
		struct sim_revoked *v = &leg->revoked[i];

		if (!v->done && !srdma_relay_mr_revoking(r, leg->leg,
							 &v->params, v->ticket))
			take_back(leg, v);
	}
}
