#include "storm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "inside.h"
#include "crypto/suite.h"

uint8_t storm_qp_secret_len(const struct storm *w)
{
	const struct srdma_suite *s = srdma_suite_by_id(w->suite);

	if (!s)
		return 0;
	return s->key_len > 16 ? 32 : 16;
}

/*
 * Both legs are in trust groups, and the client's can adopt the server's K_PD.
 */
static int may_share(const struct storm_leg *client,
		     const struct storm_leg *server)
{
	const struct srdma_leg *c = client->leg, *s = server->leg;

	return c->shared && s->shared &&
	       (!c->keys_in_use ||
		!memcmp(c->keys.pd, s->keys.pd, sizeof(c->keys.pd)));
}

static void make_generation(const struct storm_qp *qp,
			    uint8_t generation[SRDMA_GENERATION_LEN])
{
	memset(generation, 0, SRDMA_GENERATION_LEN);
	srdma_store32(generation + 4, qp->serial);
}

void storm_qp_ask(const struct storm_qp *qp, int side,
		  struct srdma_qp_secret *params)
{
	const struct srdma_qp_info *peer = &qp->end[!side].info;

	*params = (struct srdma_qp_secret){
		.qpn = qp->end[side].info.qpn,
		.secret_len = storm_qp_secret_len(qp->end[side].leg->w),
		.group = qp->shared,
		.peer_qpn = peer->qpn,
	};
	memcpy(params->peer_eid, peer->eid, sizeof(params->peer_eid));
	make_generation(qp, params->generation);
}

/* KEY: only at the server for a trust group, else at both ends. */
static void ask_keys(struct storm *w, struct storm_qp *qp,
		     struct srdma_qp_secret_answer answer[2])
{
	struct srdma_qp_secret k;

	for (int side = 0; side < 2; side++) {
		if (!(qp->mode & SRDMA_MODE_PD) ||
		    (qp->shared && side == qp->client))
			continue;
		storm_qp_ask(qp, side, &k);
		STORM_CHECK(w,
			    !srdma_relay_qp_secret(w->side[side].relay,
						   qp->end[side].leg->leg, &k,
						   &answer[side]),
			    "KEY: %s", srdma_relay_why(w->side[side].relay));
	}
}

static void give_secrets(const struct storm_qp *qp, int side,
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

static void give_keys(struct storm *w, struct storm_qp *qp, int side,
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
		.secret_len = storm_qp_secret_len(w),
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
	storm_grant_holder(!side, k.peer_holder);
	give_secrets(qp, side, answer, &k);
	STORM_CHECK(w,
		    !srdma_relay_qp_keys(w->side[side].relay,
					 qp->end[side].leg->leg, &k),
		    "KEYS: %s", srdma_relay_why(w->side[side].relay));
	w->side[side].poked = 1;
}

static void choose_mode(struct storm *w, struct storm_qp *qp)
{
	qp->client = (int)storm_random(w, 2);
	if (w->level != SRDMA_LEVEL_NONE)
		qp->mode = (uint8_t)storm_random(w, SRDMA_MODES);
	if (!(qp->mode & SRDMA_MODE_PD))
		return;
	qp->shared =
		may_share(qp->end[qp->client].leg, qp->end[!qp->client].leg);
	/* A leg in a trust group has no other policy. */
	if (!qp->shared &&
	    (qp->end[0].leg->leg->shared || qp->end[1].leg->leg->shared))
		qp->mode &= ~SRDMA_MODE_PD;
}

void storm_qp_open(struct storm *w, int i, int leg0, int leg1)
{
	struct storm_qp *qp = &w->qp[i];
	struct srdma_qp_params p = { .timeout_ms = w->timeout_ms };
	struct srdma_qp_secret_answer answer[2];

	*qp = (struct storm_qp){ .live = 1, .serial = ++w->serials };
	storm_fault_join(w, qp);
	for (int side = 0; side < 2; side++) {
		struct storm_end *e = &qp->end[side];

		/*
		 * Advances the relay's clock, from which the new QP's deadlines
		 * count.
		 */
		srdma_relay_run(w->side[side].relay, w->now, 0);
		e->leg = &w->side[side].leg[side ? leg1 : leg0];
		p.sq = e->sq.depth = 1 + storm_random(w, 24);
		p.rq = e->rq.depth = 1 + storm_random(w, 24);
		assert_int_equal(srdma_relay_qp_init(w->side[side].relay,
						     e->leg->leg, &p, &e->info),
				 0);
	}
	for (int side = 0; side < 2; side++)
		qp->end[side].pn = qp->end[!side].info.pn - 1;
	choose_mode(w, qp);
	for (uint32_t n = storm_random(w, 3); n; n--)
		storm_host_recv(w, qp, (int)storm_random(w, 2),
				w->calm ? STORM_FRESH_LEN : 100);
	ask_keys(w, qp, answer);
	w->opening = 1;
	give_keys(w, qp, !qp->client, answer);
	give_keys(w, qp, qp->client, answer);
	w->opening = 0;
}

/* --- replacement ---------------------------------------------------------- */

enum { TIRED = 20, SOON = 3 }; /* one in so many checks */

static int is_live(const struct storm_leg *leg)
{
	return leg->open && !leg->closing;
}

/* Returns 1 if a leg needs renewal: it gets no new QPs until then. */
static int is_worn(const struct storm_leg *leg)
{
	for (int i = 0; i < STORM_AREAS; i++)
		if (leg->area[i].state != STORM_LIVE)
			return 1;
	return !is_live(leg) || leg->broken || leg->tainted ||
	       leg->revocations > STORM_REVOKED / 2;
}

static int has_qps(const struct storm *w, const struct storm_leg *leg)
{
	for (int i = 0; i < w->qps; i++)
		if (w->qp[i].live && w->qp[i].end[leg->side].leg == leg)
			return 1;
	return 0;
}

/* No QP uses the leg any more: checks its memory and renews it. */
static void renew_leg(struct storm *w, struct storm_leg *leg, int i)
{
	struct storm_area *guarded = &leg->area[STORM_GUARDED];
	int again = 0;

	if (!leg->open) {
		storm_memory_check(leg);
		storm_open_leg(w, leg->side, i);
		storm_grant_renew(w, leg);
		return;
	}
	if (leg->closing)
		return;
	if (leg->broken || leg->tainted) {
		storm_fault_close(leg);
		return;
	}
	if (leg->revocations && guarded->state == STORM_LIVE)
		storm_fault_deregister(leg, STORM_GUARDED);
	for (int n = 0; n < STORM_AREAS; n++) {
		if (leg->area[n].state != STORM_FROZEN)
			continue;
		storm_memory_again(leg, n);
		again |= w->guarded && n == STORM_GUARDED;
	}
	if (!again)
		return;
	leg->revocations = 0;
	storm_grant_renew(w, leg);
}

static int is_over(struct storm *w, const struct storm_qp *qp)
{
	const struct storm_end *a = &qp->end[0], *b = &qp->end[1];

	if (storm_host_is_dead(a) && storm_host_is_dead(b))
		return 1;
	if (storm_host_is_dead(a) || storm_host_is_dead(b) || is_worn(a->leg) ||
	    is_worn(b->leg))
		return storm_one_in(w, SOON);
	return qp->doomed && storm_one_in(w, TIRED);
}

/* Keeps the QPNs, whose records may still arrive. */
static void remember(struct storm *w, const struct storm_qp *qp)
{
	for (int side = 0; side < 2; side++) {
		struct storm_side *s = &w->side[side];

		s->former[s->former_count++ % STORM_FORMER] =
			qp->end[side].info.qpn;
	}
}

static void end_qp(struct storm *w, struct storm_qp *qp)
{
	int gone = 1;

	qp->doomed = 1;
	for (int side = 0; side < 2; side++) {
		struct storm_end *e = &qp->end[side];

		storm_fault_destroy(w, e);
		gone &= e->gone || !e->leg->open;
	}
	if (!gone)
		return;
	remember(w, qp);
	storm_host_bury(qp);
}

void storm_qp_renew(struct storm *w)
{
	for (int i = 0; i < w->qps; i++) {
		uint32_t a = storm_random(w, STORM_LEGS - 1);
		uint32_t b = storm_random(w, STORM_LEGS - 1);

		if (w->qp[i].live && is_over(w, &w->qp[i]))
			end_qp(w, &w->qp[i]);
		else if (!w->qp[i].live && !is_worn(&w->side[0].leg[a]) &&
			 !is_worn(&w->side[1].leg[b]))
			storm_qp_open(w, i, (int)a, (int)b);
	}
	for (int i = 0; i < 2 * (STORM_LEGS - 1); i++) {
		struct storm_leg *leg = &w->side[i % 2].leg[i / 2];

		if (is_worn(leg) && !has_qps(w, leg))
			renew_leg(w, leg, i / 2);
	}
}
