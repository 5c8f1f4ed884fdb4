/* The turn: events in, QPs that have something to do pumped, bursts out. */
#include "relay.h"

#include <stddef.h>

#include "ahead.h"
#include "base/prefetch.h"
#include "relay_impl.h"

enum { BLOCKED_NS = 1000000, LAST_WORDS_NS = 1000000 };

void srdma_relay_activate(struct srdma_qp *qp)
{
	struct srdma_relay *r = qp->relay;

	if (qp->active)
		return;
	qp->active = 1;
	qp->active_next = NULL;
	if (r->active_tail)
		r->active_tail->active_next = qp;
	else
		r->active_head = qp;
	r->active_tail = qp;
}

void srdma_relay_wake_at(struct srdma_relay *r, uint64_t when)
{
	if (when < r->timer)
		r->timer = when;
}

void srdma_relay_wake_qp(struct srdma_qp *qp, uint64_t when)
{
	srdma_timer_wake(&qp->relay->timers, &qp->timer, when);
}

struct srdma_qp *srdma_relay_qp(struct srdma_relay *r, uint32_t qpn)
{
	struct srdma_qp *qp = *srdma_relay_bucket(r, qpn);

	while (qp && qp->qpn != qpn)
		qp = qp->hash_next;
	return qp;
}

struct srdma_qp *srdma_relay_next_qp(const struct srdma_relay *r,
				     const struct srdma_qp *qp)
{
	uint32_t i = qp ? qp->leg->id % SRDMA_MAX_LEGS + 1 : 0;

	if (qp && qp->leg_next)
		return qp->leg_next;
	for (; i < SRDMA_MAX_LEGS; i++)
		if (r->legs[i] && r->legs[i]->qps)
			return r->legs[i]->qps;
	return NULL;
}

/* --- what arrives ---------------------------------------------------- */

static void count_refusal(struct srdma_qp *qp, int err)
{
	struct srdma_relay *r = qp->relay;

	r->stats.refused[-err]++;
	if (err == -SRDMA_REFUSED_TAG && srdma_session_spent(qp->session))
		srdma_qp_fail(qp, SRDMA_REASON_FORGERY_LIMIT, SRDMA_OLDEST, 1);
}

static void count_verified(struct srdma_qp *qp, const struct srdma_packet *p)
{
	struct srdma_stats *stats = &qp->relay->stats;

	if (qp->level == SRDMA_LEVEL_NONE) {
		stats->packets_unprotected_received++;
		return;
	}
	stats->packets_verified++;
	stats->bytes_verified += p->payload_len;
	if (p->epoch != (qp->peer_epoch & 3))
		srdma_rekey_heard(qp);
}

/* A verified packet: the one place where a session's state moves. */
static void verified(struct srdma_qp *qp, struct srdma_conn *conn,
		     const struct srdma_packet *p, struct srdma_buf **buf)
{
	uint32_t traits = srdma_wire_traits(p->opcode);

	count_verified(qp, p);
	srdma_beyond_count(&qp->beyond, p->pn);
	srdma_link_follow(qp, p, conn);
	qp->heard = qp->relay->now;
	if (qp->state == SRDMA_QP_RTR) {
		qp->state = SRDMA_QP_RTS;
		/* Receives that were posted behind the OPEN. */
		if (qp->advertised != (uint32_t)qp->rq_tail)
			qp->ctl |= SRDMA_SAY_ACK;
		srdma_relay_wake_qp(qp, qp->relay->now + SRDMA_SECOND);
	}
	if (p->flags & SRDMA_STH_ACK_NOW)
		qp->ctl |= SRDMA_SAY_ACK;
	if (traits & SRDMA_T_REQUEST)
		srdma_order_request(qp, p, buf);
	else if (traits & SRDMA_T_ACK)
		srdma_reply_ack(qp, p);
	else
		srdma_reply_answer(qp, p, buf);
	srdma_relay_activate(qp);
}

/* A QP that went to ERR by words of its own, which the peer seems not to have
 * heard: it says them again (5.4). */
static void verified_late(struct srdma_qp *qp, struct srdma_conn *conn,
			  const struct srdma_packet *p)
{
	count_verified(qp, p);
	if (p->opcode == SRDMA_OP_ACKNOWLEDGE &&
	    (p->ack.kind == SRDMA_ACK_NAK || p->ack.kind == SRDMA_ACK_CLOSE))
		return;
	if (qp->relay->now < qp->said + LAST_WORDS_NS)
		return;
	srdma_link_follow(qp, p, conn);
	qp->ctl |= qp->last_words;
	srdma_relay_activate(qp);
}

/* 1: it opens packets, in ERR only to say its last words again. */
static int hears(const struct srdma_qp *qp)
{
	return qp->state == SRDMA_QP_RTR || qp->state == SRDMA_QP_RTS ||
	       qp->last_words;
}

/* buf_at of the plaintext is 0: *plain is what a placed op takes over. */
static void datagram(struct srdma_relay *r, struct srdma_conn *conn,
		     const struct srdma_buf *in)
{
	int32_t qpn = srdma_wire_qpn(in->data, in->len);
	struct srdma_qp *qp = qpn < 0 ? NULL : srdma_relay_qp(r, (uint32_t)qpn);
	struct srdma_packet p;
	int err;

	if (qpn < 0) {
		r->stats.refused[SRDMA_REFUSED_SHORT]++;
		return;
	}
	if (!qp) {
		r->stats.refused[SRDMA_REFUSED_UNKNOWN_QP]++;
		return;
	}
	if (!hears(qp)) {
		r->stats.refused[SRDMA_REFUSED_QP_STATE]++;
		return;
	}
	err = srdma_session_open(qp->session, &p, in->data, in->len,
				 r->spare->data);
	if (err)
		count_refusal(qp, err);
	else if (qp->state == SRDMA_QP_ERR)
		verified_late(qp, conn, &p);
	else
		verified(qp, conn, &p, &r->spare);
}

static void host_event(struct srdma_relay *r, const struct srdma_event *ev)
{
	struct srdma_leg *leg = ev->conn ? ev->conn->user : NULL;

	switch (ev->kind) {
	case SRDMA_EV_RECV:
		if (leg && !leg->closing)
			srdma_leg_descriptor(leg, ev->buf);
		r->host->ops->buf_put(ev->buf);
		break;
	case SRDMA_EV_DMA_DONE:
		srdma_op_done((struct srdma_op *)(uintptr_t)ev->cookie,
			      ev->status);
		break;
	case SRDMA_EV_DOWN:
		leg->down = 1;
		srdma_leg_end(leg);
		break;
	default:
		break;
	}
}

static void wire_event(struct srdma_relay *r, const struct srdma_event *ev)
{
	switch (ev->kind) {
	case SRDMA_EV_RECV:
		datagram(r, ev->conn, ev->buf);
		r->wire->ops->buf_put(ev->buf);
		break;
	case SRDMA_EV_ACCEPT:
		srdma_link_accept(r, ev->conn);
		break;
	case SRDMA_EV_UP:
		srdma_link_up(r, ev->conn);
		break;
	case SRDMA_EV_DOWN:
		srdma_link_down(r, ev->conn);
		break;
	default:
		break;
	}
}

static int take_host(struct srdma_relay *r, int budget)
{
	int n = r->host->ops->poll(r->host, r->events, budget);

	srdma_ahead_host(r, r->events, n);
	for (int i = 0; i < n; i++)
		host_event(r, &r->events[i]);
	return n;
}

/*
 * Each packet may keep one buffer and one op: no more are taken than can be
 * kept, so that nothing that verified is ever dropped for want of memory. One at
 * a time: what a packet does may end the connection that the next came on.
 */
static int take_wire(struct srdma_relay *r, int budget)
{
	int n = 0;

	srdma_ahead_wire(r, budget);
	while (n < budget) {
		if (!r->spare)
			r->spare = r->host->ops->buf_get(r->host);
		if (!r->spare || !r->ops.left)
			break;
		if (r->wire->ops->poll(r->wire, r->events, 1) < 1)
			break;
		wire_event(r, &r->events[0]);
		n++;
	}
	return n;
}

/* --- what is sent ----------------------------------------------------- */

/* Control packets may leave, to prove a wire too. */
static int can_send(const struct srdma_qp *qp)
{
	const struct srdma_link *link = qp->wire ? qp->wire->user : NULL;

	return qp->session && link && link->up;
}

static int flows(const struct srdma_qp *qp)
{
	return qp->state == SRDMA_QP_RTS && srdma_dial_settled(qp) &&
	       can_send(qp);
}

static void drop_all(struct srdma_qp *qp)
{
	srdma_op_drop(&qp->fetch);
	srdma_op_drop(&qp->answer);
	srdma_op_drop(&qp->place);
}

/* An answer is ready, and the wire did not take it. */
static int answer_waits(const struct srdma_qp *qp)
{
	return qp->answer.head && qp->answer.head->state == SRDMA_OP_DONE;
}

/*
 * Acks and answers, neither of which may starve the other: where acks alone
 * fill the wire, as those that tell of a request for which no slot is free,
 * answers, which free the slots, come first the next time.
 */
static int speak(struct srdma_qp *qp)
{
	const int answers_first = qp->answers_first;
	int again = 0;

	if (can_send(qp) && !answers_first)
		again |= srdma_answer_control(qp);
	if (flows(qp))
		again |= srdma_answer_reads(qp);
	qp->answers_first = (uint8_t)(flows(qp) && answer_waits(qp));
	if (can_send(qp) && answers_first)
		again |= srdma_answer_control(qp);
	return again;
}

static void pump(struct srdma_qp *qp)
{
	int again = 0;

	if (qp->state == SRDMA_QP_ERR)
		drop_all(qp);
	else
		again |= srdma_rx_place(qp);
	again |= speak(qp);
	if (flows(qp))
		again |= srdma_tx_requests(qp);
	again |= srdma_qp_complete(qp);
	if (again)
		srdma_relay_activate(qp);
}

static void pump_all(struct srdma_relay *r)
{
	struct srdma_qp *qp = r->active_head;

	r->active_head = r->active_tail = NULL;
	while (qp) {
		struct srdma_qp *next = qp->active_next;

		qp->active = 0;
		pump(qp);
		qp = next;
	}
	/* Whoever is blocked by a full ring tries again by itself. */
	if (r->active_head)
		srdma_relay_wake_at(r, r->now + BLOCKED_NS);
}

static struct srdma_qp *qp_of(struct srdma_timer *t)
{
	return (struct srdma_qp *)(void *)((char *)t -
					   offsetof(struct srdma_qp, timer));
}

/* Each QP that is due once a turn: one may wake itself, or others. */
static void expire_qps(struct srdma_relay *r)
{
	struct srdma_timer *next, *t = srdma_timers_take(&r->timers, r->now);

	for (; t; t = next) {
		struct srdma_qp *qp = qp_of(t);

		next = t->next;
		if (next)
			srdma_prefetch(qp_of(next), sizeof(*qp));
		r->stats.timer_looks++;
		srdma_relay_wake_qp(qp, srdma_qp_expire(qp, r->now));
	}
}

static void expire(struct srdma_relay *r)
{
	expire_qps(r);
	if (r->now < r->timer)
		return;
	r->timer = SRDMA_NEVER;
	srdma_link_expire(r);
	for (int i = 0; i < SRDMA_MAX_LEGS; i++)
		if (r->legs[i] && r->legs[i]->closing &&
		    !srdma_leg_reap(r->legs[i]))
			srdma_relay_wake_at(r, r->now + BLOCKED_NS);
}

static uint64_t packets_sent(const struct srdma_relay *r)
{
	return r->stats.packets_sealed + r->stats.packets_unprotected_sent;
}

int srdma_relay_run(struct srdma_relay *r, uint64_t now, int budget)
{
	uint64_t before = packets_sent(r);
	int n;

	r->now = now;
	r->dials = 0;
	if (budget > SRDMA_MAX_BURST)
		budget = SRDMA_MAX_BURST;
	n = take_host(r, budget);
	n += take_wire(r, budget);
	if (r->active_head)
		pump_all(r);
	/* Behind the pump and flush: last words are out before wires go. */
	if (now >= srdma_relay_timer(r)) {
		r->wire->ops->flush(r->wire);
		expire(r);
	}
	if (r->active_head)
		pump_all(r);
	r->wire->ops->flush(r->wire);
	r->host->ops->flush(r->host);
	return n + (int)(packets_sent(r) - before);
}

void srdma_relay_clock(struct srdma_relay *r, uint32_t seconds)
{
	r->wall = seconds;
}

uint64_t srdma_relay_timer(const struct srdma_relay *r)
{
	const uint64_t qps = srdma_timers_first(&r->timers);

	return qps < r->timer ? qps : r->timer;
}
