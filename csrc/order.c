/*
 * The peer's requests, into their order (docs/protocol.md 5, 5.2, 5.3). A
 * packet that comes here has verified. It is executed at the position; what
 * came too early is kept until then, or dropped and asked for again; what came
 * already is acknowledged.
 */
#include <errno.h>
#include <string.h>

#include "mutant.h"
#include "relay_impl.h"

enum order { BEHIND, AT, BEYOND };

/* 1: the message before the position is a READ, and no part of it is kept. One
 * that was dropped is asked for again when its answers do not come. */
static int may_have_ended(const struct srdma_qp *qp)
{
	const struct srdma_kept *k = qp->beyond.head;

	return qp->message.kind == SRDMA_T_READ &&
	       !(k && k->packet.request_id == qp->rx_id);
}

static enum order order_of(struct srdma_qp *qp, const struct srdma_packet *p)
{
	const struct srdma_position at = srdma_position_of(p);
	struct srdma_position expected = { qp->rx_id, qp->rx_offset };

	if (at.id == qp->rx_id + 1 && !at.offset && may_have_ended(qp)) {
		qp->rx_id++;
		qp->rx_offset = 0;
		qp->message = (struct srdma_message){ 0 };
		return AT;
	}
	if (srdma_position_before(at, expected))
		return SRDMA_MUTANT(EXECUTED_AGAIN) ? AT : BEHIND;
	if (!srdma_position_before(expected, at))
		return AT;
	return SRDMA_MUTANT(EXECUTED_EARLY) ? AT : BEYOND;
}

/* Nothing that is sent now is so far away. */
static int too_far(const struct srdma_qp *qp, const struct srdma_packet *p)
{
	const uint32_t len = p->opcode == SRDMA_OP_READ_REQUEST
				     ? p->dma_len
				     : p->payload_len;

	return p->request_id >= qp->rx_id + SRDMA_REQUEST_CREDIT ||
	       p->offset > SRDMA_MAX_MESSAGE ||
	       len > SRDMA_MAX_MESSAGE - p->offset;
}

static void drop(struct srdma_qp *qp)
{
	qp->relay->stats.refused[SRDMA_REFUSED_GAP]++;
	qp->ctl |= SRDMA_SAY_ACK;
}

/* 1: the position is inside it: what came of its bytes was cut in another way,
 * and an ack would have it sent again, at once and for ever. */
static int cut_otherwise(const struct srdma_qp *qp,
			 const struct srdma_packet *p)
{
	return p->payload_len && p->request_id == qp->rx_id &&
	       (uint64_t)p->offset + p->payload_len > qp->rx_offset;
}

static enum srdma_reason duplicate(const struct srdma_arrival *a)
{
	if (cut_otherwise(a->qp, a->p))
		return SRDMA_REASON_MALFORMED;
	a->qp->relay->stats.duplicates++;
	a->qp->ctl |= SRDMA_SAY_ACK;
	if (srdma_wire_traits(a->p->opcode) & (SRDMA_T_READ | SRDMA_T_ATOMIC))
		srdma_rx_again(a);
	return SRDMA_REASON_NONE;
}

/* What arrives in order, and what leaves, finds a buffer all the same. */
static int room(const struct srdma_qp *qp)
{
	struct srdma_port *host = qp->relay->host;

	return host->ops->buf_free(host) >
	       SRDMA_MAX_BURST + 1 + (int)qp->beyond.count;
}

static int keep(const struct srdma_arrival *a)
{
	struct srdma_qp *qp = a->qp;
	struct srdma_kept *k;
	const uint8_t *claim;
	int r = room(qp) ? srdma_beyond_keep(&qp->beyond, a->p, a->buf, &k)
			 : -ENOSPC;

	if (r < 0)
		return r;
	srdma_relay_wake_qp(qp, qp->relay->now + SRDMA_SECOND);
	if (!(a->p->flags & SRDMA_STH_PROOF))
		return r;
	k->claim_len = srdma_session_claim(qp->session, a->p, &claim);
	memcpy(k->claim, claim, k->claim_len);
	return r;
}

/* Beyond the position, or at it without a slot. */
static void set_aside(const struct srdma_arrival *a)
{
	struct srdma_qp *qp = a->qp;
	int r;

	if (too_far(qp, a->p)) {
		drop(qp);
		return;
	}
	r = keep(a);
	srdma_beyond_note(&qp->beyond, a->p);
	if (r == -EINVAL) { /* no ack: it would be sent again at once */
		qp->relay->stats.refused[SRDMA_REFUSED_GAP]++;
		return;
	}
	if (r == -ENOSPC) {
		drop(qp);
		return;
	}
	qp->relay->stats.kept += r == 0;
	qp->relay->stats.duplicates += r == -EALREADY;
	qp->ctl |= SRDMA_SAY_ACK;
}

static enum srdma_reason execute(const struct srdma_arrival *a)
{
	if (srdma_rx_waits(a->qp, a->p)) {
		set_aside(a);
		return SRDMA_REASON_NONE;
	}
	srdma_beyond_note(&a->qp->beyond, a->p);
	return srdma_rx_execute(a);
}

void srdma_order_request(struct srdma_qp *qp, const struct srdma_packet *p,
			 struct srdma_buf **buf)
{
	const struct srdma_arrival a = { qp, p, buf, NULL };
	enum srdma_reason why = SRDMA_REASON_NONE;

	if (qp->refusing || qp->ending)
		return;
	switch (order_of(qp, p)) {
	case BEHIND:
		why = duplicate(&a);
		break;
	case AT:
		why = execute(&a);
		break;
	case BEYOND:
		set_aside(&a);
		break;
	}
	if (why)
		srdma_qp_refuse(qp, why);
	if (srdma_order_drain(qp))
		srdma_relay_activate(qp);
}

int srdma_order_drain(struct srdma_qp *qp)
{
	struct srdma_kept *k;

	while ((k = qp->beyond.head) != NULL) {
		const struct srdma_arrival a = { qp, &k->packet, &k->buf, k };
		enum order order = order_of(qp, a.p);
		enum srdma_reason why;

		if (order == BEYOND || (order == AT && srdma_rx_waits(qp, a.p)))
			return 0;
		if (!qp->relay->ops.left)
			return -EAGAIN;
		why = order == BEHIND ? duplicate(&a) : srdma_rx_execute(&a);
		srdma_beyond_pop(&qp->beyond);
		if (why)
			srdma_qp_refuse(qp, why);
	}
	return 0;
}

void srdma_order_gaps(struct srdma_qp *qp, struct srdma_ack_body *ack)
{
	const struct srdma_beyond_from from = {
		.at = { qp->rx_id, qp->rx_offset },
		.reading = qp->message.kind == SRDMA_T_READ,
		.highest = srdma_session_highest(qp->session),
		.credit = qp->rx_id + SRDMA_REQUEST_CREDIT,
	};
	struct srdma_beyond_gaps gaps;

	srdma_beyond_gaps(&qp->beyond, &from, &gaps);
	ack->gaps = gaps.count;
	ack->skips = gaps.skips;
	memcpy(ack->gap, gaps.gap, sizeof(ack->gap));
}
