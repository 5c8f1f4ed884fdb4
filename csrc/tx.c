/*
 * Own packets, to the wire: sealed, and kept as flights until the peer has
 * executed them (docs/protocol.md 5, 5.1).
 */
#include <errno.h>

#include "grant.h"
#include "relay_impl.h"

enum {
	TX_BURST = 64, /* packets of one QP in one turn */
	PN_ASK = 1 << 20,
	PN_LEAD = 1 << 22,
};

/*
 * How far the packet numbers are ahead of what the peer told (5.1): it tells
 * when asked, and who goes on without an answer sends a packet per RTO.
 */
static int keep_near(struct srdma_qp *qp, struct srdma_packet *p)
{
	uint64_t ahead = srdma_session_next_pn(qp->session) - qp->acked_pn;

	if (ahead <= PN_ASK)
		return 0;
	if (ahead > PN_LEAD &&
	    qp->relay->now < qp->probed + srdma_rtt_rto(&qp->rtt))
		return -EAGAIN;
	p->flags |= SRDMA_STH_ACK_NOW;
	qp->probed = qp->relay->now;
	return 0;
}

/* A packet left; with flag A, it is measured. */
static void left(struct srdma_qp *qp, const struct srdma_packet *p)
{
	if (!(p->flags & SRDMA_STH_ACK_NOW))
		return;
	srdma_rtt_sent(&qp->rtt, p->pn, qp->relay->now);
	if (p->opcode == SRDMA_OP_ACKNOWLEDGE &&
	    (p->ack.kind == SRDMA_ACK_OPEN || p->ack.kind == SRDMA_ACK_PING)) {
		qp->progress = qp->relay->now;
		srdma_retry_arm(qp);
	}
}

/* Behind the last packets that a key permits, and where the provider failed,
 * there is no CLOSE either. */
static void cannot_seal(struct srdma_qp *qp, int err)
{
	if (err == -EKEYEXPIRED && qp->state != SRDMA_QP_ERR) {
		srdma_qp_fail(qp, SRDMA_REASON_KEY_LIMIT, SRDMA_OLDEST, 1);
		return;
	}
	srdma_qp_fail(qp, SRDMA_REASON_PROVIDER, SRDMA_OLDEST, 0);
	qp->ctl = qp->last_words = 0;
}

int srdma_tx_emit(struct srdma_qp *qp, struct srdma_packet *p,
		  const uint8_t *payload)
{
	struct srdma_relay *r = qp->relay;
	uint8_t *out = r->wire->ops->reserve(qp->wire);
	int len;

	if (!out || keep_near(qp, p))
		return -EAGAIN;
	len = srdma_rekey_before(qp, p);
	if (!len)
		len = srdma_session_seal(qp->session, p, payload, out,
					 SRDMA_MAX_PACKET);
	if (len < 0) {
		cannot_seal(qp, len);
		return len;
	}
	r->wire->ops->commit(qp->wire, (uint32_t)len);
	r->stats.wire_bytes_sent += (uint32_t)len;
	if (qp->level == SRDMA_LEVEL_NONE) {
		r->stats.packets_unprotected_sent++;
	} else {
		r->stats.packets_sealed++;
		r->stats.bytes_sealed += p->payload_len;
		r->stats.proofs_made += (p->flags & SRDMA_STH_PROOF) != 0;
	}
	left(qp, p);
	return 0;
}

/* The proof of an access to len bytes, which the session makes (6.1). 0, or
 * -EACCES: the capability was dropped, and the request fails. */
static int prove(struct srdma_qp *qp, const struct srdma_op *op, uint32_t len,
		 struct srdma_packet *p)
{
	const struct srdma_wqe *w = srdma_qp_wqe(qp, op->request_id);
	struct srdma_grant_use use;

	if (!w->capability || !len)
		return 0;
	if (srdma_post_grant(qp, w, op->offset, len, &use)) {
		srdma_qp_fail(qp, SRDMA_REASON_BAD_CAPABILITY, op->request_id,
			      1);
		return -EACCES;
	}
	p->flags = use.flags;
	p->depth = use.node->depth;
	p->expiry = use.expiry;
	p->access_key = use.key;
	return 0;
}

/* 1: a part, which answers end. */
static int is_part(const struct srdma_op *op)
{
	return (srdma_wire_traits(op->opcode) &
		(SRDMA_T_READ | SRDMA_T_ATOMIC)) != 0;
}

/* Bytes of the peer's memory that the packet names, or of its message. */
static uint32_t accessed(const struct srdma_op *op)
{
	return is_part(op) ? op->dma_len : op->len;
}

static int emit_request(struct srdma_qp *qp, const struct srdma_op *op, int ask,
			uint64_t *pn)
{
	const struct srdma_wqe *w = srdma_qp_wqe(qp, op->request_id);
	struct srdma_packet p = {
		.opcode = op->opcode,
		.request_id = op->request_id,
		.offset = op->offset,
		.va = w->remote_addr,
		.rkey = w->rkey,
		.dma_len = op->dma_len,
		.imm = w->imm,
		.swap_add = w->swap_add,
		.compare = w->compare,
		.payload_len = op->len,
	};
	int err = prove(qp, op, accessed(op), &p);

	if (ask)
		p.flags |= SRDMA_STH_ACK_NOW;
	if (!err)
		err = srdma_tx_emit(qp, &p, op->buf ? op->buf->data : op->data);
	*pn = p.pn;
	return err;
}

/* 1: the next packet shall be measured. */
static int measures(struct srdma_qp *qp)
{
	if (!qp->flights.count)
		srdma_rtt_doubt(&qp->rtt, qp->relay->now);
	return srdma_rtt_wants(&qp->rtt, qp->relay->now);
}

/* The first time. */
static int emit_new(struct srdma_qp *qp, const struct srdma_op *op)
{
	const struct srdma_wqe *w = srdma_qp_wqe(qp, op->request_id);
	struct srdma_flight flight = { .id = op->request_id,
				       .offset = op->offset,
				       .len = accessed(op),
				       .sent = qp->relay->now };
	int err = emit_request(qp, op, measures(qp), &flight.pn);
	struct srdma_part *part;
	uint64_t serial;

	if (err) /* the op may be gone with its QP */
		return err;
	if (is_part(op))
		flight.answers = srdma_part_answers(&qp->parts, op->dma_len);
	serial = srdma_flight_add(&qp->flights, &flight);
	if (is_part(op)) {
		part = srdma_part_find(&qp->parts, op->request_id, op->offset,
				       op->offset + op->dma_len);
		srdma_part_asked(&qp->parts, part, serial, qp->relay->now);
	}
	qp->sent_offset = flight.offset + flight.len;
	if (qp->sent_offset == w->length) {
		qp->sent_id = op->request_id + 1;
		qp->sent_offset = 0;
	}
	return 0;
}

/* 1: a packet that need not be sent any more. */
static int is_over(const struct srdma_qp *qp, const struct srdma_op *op)
{
	const struct srdma_flight *x =
		srdma_flight_at(&qp->flights, op->flight);

	return op->resend == SRDMA_RESEND_FLIGHT &&
	       (!x || x->state != SRDMA_FLIGHT_AGAIN);
}

/* A lost packet, if it is not known by now that it came. */
static int emit_lost(struct srdma_qp *qp, const struct srdma_op *op)
{
	struct srdma_flight *flight = srdma_flight_at(&qp->flights, op->flight);
	uint64_t pn;
	int err;

	if (!is_over(qp, op)) {
		err = emit_request(qp, op, flight->probe, &pn);
		if (err)
			return err;
		srdma_flight_resent(&qp->flights, flight, pn, qp->relay->now);
		qp->relay->stats.packets_resent++;
	}
	srdma_qp_wqe(qp, op->request_id)->fetching--;
	return 0;
}

/* A request for answers, if they are still missing. */
static int emit_missing(struct srdma_qp *qp, const struct srdma_op *op)
{
	struct srdma_part *part =
		srdma_part_find(&qp->parts, op->request_id, op->offset,
				op->offset + op->dma_len);
	uint64_t pn;
	int err;

	if (!part || part->state != SRDMA_PART_CUT)
		return 0;
	err = emit_request(qp, op, 0, &pn);
	if (err)
		return err;
	srdma_part_asked(&qp->parts, part, SRDMA_NO_FLIGHT, qp->relay->now);
	qp->relay->stats.packets_resent++;
	return 0;
}

/* What was fetched leaves. 0, or why nothing more does now. */
static int emit(struct srdma_qp *qp, const struct srdma_op *op)
{
	int err;

	if (op->reason && !is_over(qp, op)) {
		srdma_qp_fail(qp, op->reason, op->request_id, 1);
		return -EIO;
	}
	switch (op->resend) {
	case SRDMA_RESEND_FLIGHT:
		err = emit_lost(qp, op);
		break;
	case SRDMA_RESEND_PART:
		err = emit_missing(qp, op);
		break;
	default:
		err = emit_new(qp, op);
	}
	if (!err)
		srdma_retry_arm(qp);
	return err;
}

int srdma_tx_requests(struct srdma_qp *qp)
{
	int err;

	for (int n = 0; n < TX_BURST;) {
		struct srdma_op *op;

		err = srdma_cut_fetch(qp);
		op = qp->fetch.head;
		if (!op || op->state != SRDMA_OP_DONE)
			return err;
		for (; op && op->state == SRDMA_OP_DONE; n++) {
			err = emit(qp, op);
			if (err)
				return err == -EIO ? 0 : err;
			srdma_op_retire(&qp->fetch);
			op = qp->fetch.head;
		}
	}
	return -EAGAIN;
}
