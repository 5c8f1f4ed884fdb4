/*
 * Simulation: epochs and new secrets (docs/protocol.md 3.5), and the life of a QP
 * (local-interface.md 3.6). New secrets come in the order of the key exchange:
 * first to the receiver, then to the sender.
 */
#include <errno.h>
#include <string.h>

#include "support/inside.h"
#include "session/session_state.h"
#include "simulation/sim.h"

static struct srdma_relay *relay_of(const struct sim_end *e)
{
	return e->leg->w->side[e->leg->side].relay;
}

static int can_be_asked(const struct sim_end *e)
{
	return !sim_host_is_dead(e);
}

/*
 * With PD the receiver's worker derives the secret from the current K_PD of its
 * leg.
 */
static void ask_secret(struct sim *w, struct sim_qp *qp, int to,
		       struct srdma_qp_rekey *next)
{
	struct sim_end *e = &qp->end[to];
	struct srdma_qp_secret k;
	struct srdma_qp_secret_answer answer;
	uint32_t serial;

	if (sim_one_in(w, 2))
		SIM_CHECK(w,
			  !srdma_relay_leg_rotate(relay_of(e), e->leg->leg, 0,
						  &serial),
			  "ROTATE: %s", srdma_relay_why(relay_of(e)));
	sim_qp_ask(qp, to, &k);
	SIM_CHECK(w,
		  !srdma_relay_qp_secret(relay_of(e), e->leg->leg, &k, &answer),
		  "KEY: %s", srdma_relay_why(relay_of(e)));
	memcpy(next->secret, answer.secret, sizeof(next->secret));
}

static int give(const struct sim_end *e, struct srdma_qp_rekey *next,
		enum srdma_direction direction)
{
	next->qpn = e->info.qpn;
	next->direction = (uint8_t)direction;
	e->leg->w->side[e->leg->side].poked = 1;
	return srdma_relay_qp_rekey(relay_of(e), e->leg->leg, next);
}

/* Makes a new secret and gives it to the receiver. */
static void begin(struct sim *w, struct sim_qp *qp, int to)
{
	struct srdma_qp_rekey *next = &qp->next[to], rx;
	int err;

	*next = (struct srdma_qp_rekey){ .secret_len = sim_qp_secret_len(w) };
	for (uint32_t i = 0; i < next->secret_len; i++)
		next->secret[i] = (uint8_t)(1 + sim_random(w, 255));
	if (qp->mode & SRDMA_MODE_PD)
		ask_secret(w, qp, to, next);
	rx = *next;
	if (qp->mode & SRDMA_MODE_PD)
		memset(rx.secret, 0, sizeof(rx.secret));
	err = give(&qp->end[to], &rx, SRDMA_RX);
	SIM_CHECK(w, !err || err == -EBUSY || err == -ENOTCONN, "REKEY rx: %d",
		  err);
	qp->waits[to] = !err;
}

/* A QP that may fail, and every 8th QP, gets a short life. Any other QP gets one
 * that does not end within the simulation. */
static void give_life(struct sim *w, struct sim_qp *qp, struct sim_end *e)
{
	uint32_t seconds;

	qp->doomed |= qp->serial % 8 == 3;
	seconds = qp->doomed ? 1 : SRDMA_MAX_LIFE_S;
	SIM_CHECK(w,
		  !srdma_relay_qp_life(relay_of(e), e->leg->leg, e->info.qpn,
				       seconds),
		  "LIFE: %s", srdma_relay_why(relay_of(e)));
	e->life = qp->doomed ? w->now + SRDMA_SECOND : 0;
}

void sim_rekey_strike(struct sim *w)
{
	struct sim_qp *qp = &w->qp[sim_random(w, (uint32_t)w->qps)];
	int to = (int)sim_random(w, 2);

	if (!qp->live || qp->waits[to] || qp->shared ||
	    w->level == SRDMA_LEVEL_NONE || !can_be_asked(&qp->end[0]) ||
	    !can_be_asked(&qp->end[1]))
		return;
	begin(w, qp, to);
	give_life(w, qp, &qp->end[to]);
}

/*
 * Gives the sender its secret. The sender has no other new secret waiting,
 * because the receiver got this one only after the previous one was in use.
 * Exception: with PD and an unchanged K_PD the next secret of the chain equals
 * the new one. The receiver then takes an epoch of the chain for the new secret
 * while the sender's still waits, and REKEY returns -EBUSY.
 */
static void finish(struct sim *w, struct sim_qp *qp, int to)
{
	const struct sim_end *e = &qp->end[!to];
	int err;

	qp->waits[to] = 0;
	if (!can_be_asked(e))
		return;
	err = give(e, &qp->next[to], SRDMA_TX);
	qp->waits[to] = err == -EBUSY && qp->mode & SRDMA_MODE_PD;
	SIM_CHECK(w, !err || qp->waits[to] || err == -ENOTCONN, "REKEY tx: %d",
		  err);
}

void sim_rekey_follow(struct sim *w)
{
	for (int i = 0; i < 2 * w->qps; i++)
		if (w->qp[i / 2].live && w->qp[i / 2].waits[i % 2] &&
		    (w->calm || sim_one_in(w, 10)))
			finish(w, &w->qp[i / 2], i % 2);
}

/* --- checks --------------------------------------------------------------- */

/*
 * A receive key is dropped when the window has passed the first verified packet
 * of the next epoch. This check sees the new epoch somewhat later than that
 * packet, so that its bound is later too.
 */
static void check_end(struct sim *w, struct sim_end *e)
{
	const struct srdma_qp *qp = srdma_relay_qp(relay_of(e), e->info.qpn);
	const struct srdma_session *s = qp ? srdma_qp_session(qp) : NULL;
	const struct srdma_epochs *epochs;

	if (!s || !s->suite)
		return;
	epochs = &s->rx.epochs;
	if (epochs->number != e->epoch_seen) {
		e->epoch_seen = epochs->number;
		e->epoch_seen_at = s->window.next;
	}
	SIM_CHECK(w,
		  !epochs->key[SRDMA_EPOCH_BEFORE].live ||
			  s->window.next <= e->epoch_seen_at + s->window.size,
		  "the key of epoch %u is still kept", epochs->number - 1);
}

void sim_rekey_check(struct sim *w)
{
	for (int i = 0; i < 2 * w->qps; i++) {
		struct sim_end *e = &w->qp[i / 2].end[i % 2];

		if (w->qp[i / 2].live && e->leg->open && !e->gone)
			check_end(w, e);
	}
}

static void check_life(struct sim *w, struct sim_end *e)
{
	SIM_CHECK(w, !e->life || w->now <= e->life || sim_host_is_dead(e),
		  "QP %#x outlives its life", e->info.qpn);
}

void sim_rekey_calm(struct sim *w)
{
	for (int i = 0; i < 2 * w->qps; i++)
		if (w->qp[i / 2].live)
			check_life(w, &w->qp[i / 2].end[i % 2]);
	for (int i = 0; i < w->qps; i++) {
		const struct sim_qp *qp = &w->qp[i];

		for (int side = 0; side < 2; side++) {
			const struct srdma_qp *own = srdma_relay_qp(
				w->side[side].relay, qp->end[side].info.qpn);

			if (!qp->live || qp->doomed || qp->evil || !own)
				continue;
			SIM_CHECK(w,
				  !srdma_session_renewing(srdma_qp_session(own),
							  SRDMA_TX) &&
					  !srdma_session_renewing(
						  srdma_qp_session(own),
						  SRDMA_RX),
				  "a new secret of QP %d is not in use", i);
		}
	}
}

/* --- wire ----------------------------------------------------------------- */

static int is_last_word(const struct sim *w, const uint8_t *data)
{
	const uint32_t body = /* after BTH, AETH, STH and tag */
		SRDMA_BTH_LEN + 4 + SRDMA_STH_LEN + w->tag_len;

	return data[0] == SRDMA_OP_ACKNOWLEDGE &&
	       (data[body] == SRDMA_ACK_NAK || data[body] == SRDMA_ACK_CLOSE);
}

void sim_rekey_wire(struct sim *w, struct sim_end *from, const uint8_t *data)
{
	uint8_t bits = data[8] >> 2 & 3;

	if (bits == from->epoch) {
		from->epoch_packets++;
	} else {
		SIM_CHECK(w, bits == (from->epoch + 1) % 4, "epoch %u after %u",
			  bits, from->epoch);
		from->epoch = bits;
		from->epoch_packets = 1;
		w->rekeys++;
	}
	SIM_CHECK(w, !from->limit || from->epoch_packets <= from->limit,
		  "packet %u of an epoch that permits %u", from->epoch_packets,
		  from->limit);
	SIM_CHECK(w,
		  !from->limit ||
			  from->epoch_packets + SRDMA_LAST_WORDS <=
				  from->limit ||
			  is_last_word(w, data),
		  "packet %u of an epoch that permits %u is no NAK or CLOSE",
		  from->epoch_packets, from->limit);
}
