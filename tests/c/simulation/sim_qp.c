#include "simulation/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "support/inside.h"
#include "crypto/suite.h"

enum { MOST_GRACE_MS = 200 };

uint8_t sim_qp_secret_len(const struct sim *w)
{
	const struct srdma_suite *s = srdma_suite_by_id(w->suite);

	if (!s)
		return 0;
	return s->key_len > 16 ? 32 : 16;
}

/*
 * Returns 1 if both legs are in a trust group and the client's leg has, or can
 * adopt, the server's K_PD.
 */
static int may_share(const struct sim_leg *client, const struct sim_leg *server)
{
	const struct srdma_leg *c = client->leg, *s = server->leg;

	return c->shared && s->shared &&
	       (!c->keys_in_use ||
		!memcmp(c->keys.pd, s->keys.pd, sizeof(c->keys.pd)));
}

static void make_generation(const struct sim_qp *qp,
			    uint8_t generation[SRDMA_GENERATION_LEN])
{
	memset(generation, 0, SRDMA_GENERATION_LEN);
	srdma_store32(generation + 4, qp->serial);
}

void sim_qp_ask(const struct sim_qp *qp, int side,
		struct srdma_qp_secret *params)
{
	const struct srdma_qp_info *peer = &qp->end[!side].info;

	*params = (struct srdma_qp_secret){
		.qpn = qp->end[side].info.qpn,
		.secret_len = sim_qp_secret_len(qp->end[side].leg->w),
		.group = qp->shared,
		.peer_qpn = peer->qpn,
	};
	memcpy(params->peer_eid, peer->eid, sizeof(params->peer_eid));
	make_generation(qp, params->generation);
}

/* KEY: only at the server for a trust group, else at both ends. */
static void ask_keys(struct sim *w, struct sim_qp *qp,
		     struct srdma_qp_secret_answer answer[2])
{
	struct srdma_qp_secret k;

	for (int side = 0; side < 2; side++) {
		if (!(qp->mode & SRDMA_MODE_PD) ||
		    (qp->shared && side == qp->client))
			continue;
		sim_qp_ask(qp, side, &k);
		SIM_CHECK(w,
			  !srdma_relay_qp_secret(w->side[side].relay,
						 qp->end[side].leg->leg, &k,
						 &answer[side]),
			  "KEY: %s", srdma_relay_why(w->side[side].relay));
	}
}

static void give_secrets(const struct sim_qp *qp, int side,
			 const struct srdma_qp_secret_answer answer[2],
			 struct srdma_qp_keys *k)
{
	if (!(qp->mode & SRDMA_MODE_PD)) {
		memset(k->tx_secret, (int)(2 * qp->serial) + side,
		       sizeof(k->tx_secret));
		memset(k->rx_secret, (int)(2 * qp->serial) + !side,
		       sizeof(k->rx_secret));
	} else if (qp->shared) {
		memcpy(k->group_key, answer[!qp->client].group_key,
		       sizeof(k->group_key));
	} else {
		memcpy(k->tx_secret, answer[!side].secret,
		       sizeof(k->tx_secret));
	}
}

static void give_keys(struct sim *w, struct sim_qp *qp, int side,
		      const struct srdma_qp_secret_answer answer[2])
{
	const struct srdma_qp_info *own = &qp->end[side].info;
	const struct srdma_qp_info *peer = &qp->end[!side].info;
	struct srdma_qp_keys k = {
		.qpn = own->qpn,
		.role = side != qp->client,
		.suite = w->suite,
		.level = w->level,
		.tag_len = w->tag_len,
		.mode = qp->mode,
		.secret_len = sim_qp_secret_len(w),
		.peer_qpn = peer->qpn,
		.peer_pn = peer->pn,
		.peer_mtu = peer->mtu,
		.peer_window = peer->window,
		.peer_reads = peer->reads,
	};

	memcpy(k.peer_eid, peer->eid, sizeof(k.peer_eid));
	snprintf(k.peer_wire, sizeof(k.peer_wire), "%s",
		 w->side[!side].wire->address);
	make_generation(qp, k.generation);
	sim_grant_holder(!side, k.peer_holder);
	give_secrets(qp, side, answer, &k);
	SIM_CHECK(w,
		  !srdma_relay_qp_keys(w->side[side].relay,
				       qp->end[side].leg->leg, &k),
		  "KEYS: %s", srdma_relay_why(w->side[side].relay));
	w->side[side].poked = 1;
}

static void choose_mode(struct sim *w, struct sim_qp *qp)
{
	qp->client = (int)sim_random(w, 2);
	if (w->level != SRDMA_LEVEL_NONE)
		qp->mode = (uint8_t)sim_random(w, SRDMA_MODES);
	if (!(qp->mode & SRDMA_MODE_PD))
		return;
	qp->shared =
		may_share(qp->end[qp->client].leg, qp->end[!qp->client].leg);
	/* A leg in a trust group has no QPs with PD outside the group. */
	if (!qp->shared &&
	    (qp->end[0].leg->leg->shared || qp->end[1].leg->leg->shared))
		qp->mode &= ~SRDMA_MODE_PD;
}

/* Some QPs have a grace after the end of their peer. */
static void give_grace(struct sim *w, const struct sim_end *e)
{
	const struct srdma_qp_change change = {
		.qpn = e->info.qpn,
		.fields = SRDMA_QP_FIELD_GRACE,
		.grace_ms = 1 + sim_random(w, MOST_GRACE_MS),
	};

	if (sim_random(w, 4))
		return;
	assert_int_equal(srdma_relay_qp_modify(w->side[e->leg->side].relay,
					       e->leg->leg, &change),
			 0);
}

void sim_qp_open(struct sim *w, int i, int leg0, int leg1)
{
	struct sim_qp *qp = &w->qp[i];
	struct srdma_qp_params p = { .timeout_ms = w->timeout_ms };
	struct srdma_qp_secret_answer answer[2];

	*qp = (struct sim_qp){ .live = 1, .serial = ++w->serials };
	sim_fault_join(w, qp);
	for (int side = 0; side < 2; side++) {
		struct sim_end *e = &qp->end[side];

		/*
		 * Advances the relay's clock, from which the new QP's deadlines
		 * count.
		 */
		srdma_relay_run(w->side[side].relay, w->now, 0);
		e->leg = &w->side[side].leg[side ? leg1 : leg0];
		p.sq = e->sq.depth = 1 + sim_random(w, 24);
		p.rq = e->rq.depth = 1 + sim_random(w, 24);
		assert_int_equal(srdma_relay_qp_init(w->side[side].relay,
						     e->leg->leg, &p, &e->info),
				 0);
		give_grace(w, e);
	}
	for (int side = 0; side < 2; side++)
		qp->end[side].pn = qp->end[!side].info.pn - 1;
	choose_mode(w, qp);
	for (uint32_t n = sim_random(w, 3); n; n--)
		sim_host_recv(w, qp, (int)sim_random(w, 2),
			      w->calm ? SIM_FRESH_LEN : 100);
	ask_keys(w, qp, answer);
	w->opening = 1;
	give_keys(w, qp, !qp->client, answer);
	give_keys(w, qp, qp->client, answer);
	w->opening = 0;
}

/* --- replacement ---------------------------------------------------------- */

enum { TIRED = 20, SOON = 3 }; /* one in so many checks */

static int is_live(const struct sim_leg *leg)
{
	return leg->open && !leg->closing;
}

/* Returns 1 if a leg needs renewal: it gets no new QPs until then. */
static int is_worn(const struct sim_leg *leg)
{
	for (int i = 0; i < SIM_AREAS; i++)
		if (leg->area[i].state != SIM_LIVE)
			return 1;
	return !is_live(leg) || leg->broken || leg->tainted ||
	       leg->revocations > SIM_REVOKED / 2;
}

static int has_qps(const struct sim *w, const struct sim_leg *leg)
{
	for (int i = 0; i < w->qps; i++)
		if (w->qp[i].live && w->qp[i].end[leg->side].leg == leg)
			return 1;
	return 0;
}

/* No QP uses the leg any more: checks its memory and renews it. */
static void renew_leg(struct sim *w, struct sim_leg *leg, int i)
{
	struct sim_area *guarded = &leg->area[SIM_GUARDED];
	int again = 0;

	if (!leg->open) {
		sim_memory_check(leg);
		sim_open_leg(w, leg->side, i);
		sim_grant_renew(w, leg);
		return;
	}
	if (leg->closing)
		return;
	if (leg->broken || leg->tainted) {
		sim_fault_close(leg);
		return;
	}
	if (leg->revocations && guarded->state == SIM_LIVE)
		sim_fault_deregister(leg, SIM_GUARDED);
	for (int n = 0; n < SIM_AREAS; n++) {
		if (leg->area[n].state != SIM_FROZEN)
			continue;
		sim_memory_again(leg, n);
		again |= w->guarded && n == SIM_GUARDED;
	}
	if (!again)
		return;
	leg->revocations = 0;
	sim_grant_renew(w, leg);
}

static int is_over(struct sim *w, const struct sim_qp *qp)
{
	const struct sim_end *a = &qp->end[0], *b = &qp->end[1];

	if (sim_host_is_dead(a) && sim_host_is_dead(b))
		return 1;
	if (sim_host_is_dead(a) || sim_host_is_dead(b) || is_worn(a->leg) ||
	    is_worn(b->leg))
		return sim_one_in(w, SOON);
	return qp->doomed && sim_one_in(w, TIRED);
}

/* Keeps the QPNs of an ended QP, because its records may still arrive. */
static void remember(struct sim *w, const struct sim_qp *qp)
{
	for (int side = 0; side < 2; side++) {
		struct sim_side *s = &w->side[side];

		s->former[s->former_count++ % SIM_FORMER] =
			qp->end[side].info.qpn;
	}
}

static void end_qp(struct sim *w, struct sim_qp *qp)
{
	int gone = 1;

	qp->doomed = 1;
	for (int side = 0; side < 2; side++) {
		struct sim_end *e = &qp->end[side];

		sim_fault_destroy(w, e);
		gone &= e->gone || !e->leg->open;
	}
	if (!gone)
		return;
	remember(w, qp);
	sim_host_bury(qp);
}

void sim_qp_renew(struct sim *w)
{
	for (int i = 0; i < w->qps; i++) {
		uint32_t a = sim_random(w, SIM_LEGS - 1);
		uint32_t b = sim_random(w, SIM_LEGS - 1);

		if (w->qp[i].live && is_over(w, &w->qp[i]))
			end_qp(w, &w->qp[i]);
		else if (!w->qp[i].live && !is_worn(&w->side[0].leg[a]) &&
			 !is_worn(&w->side[1].leg[b]))
			sim_qp_open(w, i, (int)a, (int)b);
	}
	for (int i = 0; i < 2 * (SIM_LEGS - 1); i++) {
		struct sim_leg *leg = &w->side[i % 2].leg[i / 2];

		if (is_worn(leg) && !has_qps(w, leg))
			renew_leg(w, leg, i / 2);
	}
}
