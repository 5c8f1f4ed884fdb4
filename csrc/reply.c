/*
 * What the peer says to own requests: the data of READs, matched by the
 * table of parts, and acks (docs/protocol.md 2.4, 5).
 */
#include <errno.h>

#include "relay_impl.h"

static void unsolicited(struct srdma_qp *qp)
{
	qp->relay->stats.refused[SRDMA_REFUSED_UNSOLICITED]++;
}

/* Whether the answer is the next one of the oldest part asked for. */
static int fits(const struct srdma_part *part, const struct srdma_packet *p)
{
	uint32_t traits = srdma_wire_traits(p->opcode);
	uint32_t left = part->end - part->next;
	int first = (traits & SRDMA_T_FIRST) != 0;
	int last = (traits & SRDMA_T_LAST) != 0;

	return p->request_id == part->request_id && p->offset == part->next &&
	       p->payload_len <= left && first == (part->next == part->start) &&
	       last == (p->payload_len == left);
}

void srdma_reply_answer(struct srdma_qp *qp, const struct srdma_packet *p,
			struct srdma_buf **buf)
{
	struct srdma_part *part = &qp->parts[qp->parts_head];
	const struct srdma_wqe *w;
	struct srdma_op *op;

	if (p->opcode == SRDMA_OP_ATOMIC_ACKNOWLEDGE || !qp->parts_sent ||
	    !fits(part, p)) {
		unsolicited(qp);
		return;
	}
	srdma_qp_owe(qp);
	op = srdma_op_add(qp, SRDMA_OP_RETURN);
	if (!op) {
		srdma_qp_fail(qp, SRDMA_REASON_LOCAL_DMA, p->request_id, 1);
		return;
	}
	w = srdma_qp_wqe(qp, p->request_id);
	op->addr = w->local_addr + p->offset;
	op->key = w->local_key;
	op->right = SRDMA_ACCESS_LOCAL_WRITE;
	op->len = p->payload_len;
	op->request_id = p->request_id;
	if (p->payload_len) {
		op->buf = *buf;
		*buf = NULL;
	}
	part->next += p->payload_len;
	if (part->next == part->end) {
		qp->answers_due -= part->packets;
		qp->parts_head = (qp->parts_head + 1) % qp->peer_reads;
		qp->parts_count--;
		qp->parts_sent--;
	}
}

/* All requests before id are executed: READs complete by their data. */
static void executed(struct srdma_qp *qp, uint64_t id)
{
	uint64_t i = qp->acked_id > qp->sq_head ? qp->acked_id : qp->sq_head;

	for (; i < id; i++) {
		struct srdma_wqe *w = srdma_qp_wqe(qp, i);

		if (w->opcode != SRDMA_DESC_READ)
			w->done = 1;
	}
	if (id > qp->acked_id)
		qp->acked_id = id;
}

static void acknowledge_numbers(struct srdma_qp *qp, uint32_t highest)
{
	uint64_t last = srdma_session_next_pn(qp->session) - 1;
	uint64_t pn = last - (uint32_t)((uint32_t)last - highest);

	if (pn > last || pn < qp->acked_pn)
		return;
	qp->acked_pn = pn;
	while (qp->inflight_count && qp->inflight[qp->inflight_head] <= pn) {
		qp->inflight_head = (qp->inflight_head + 1) % qp->peer_window;
		qp->inflight_count--;
	}
}

static void later(uint32_t *serial, uint32_t seen)
{
	if ((int32_t)(seen - *serial) > 0)
		*serial = seen;
}

/* Why this QP ends when the peer closes for a reason. */
static enum srdma_reason closed_for(uint8_t reason)
{
	if (reason == SRDMA_REASON_PEER_CLOSED ||
	    reason == SRDMA_REASON_PEER_HOST_GONE)
		return reason;
	return SRDMA_REASON_PEER_ERROR;
}

void srdma_reply_ack(struct srdma_qp *qp, const struct srdma_packet *p)
{
	const struct srdma_ack_body *a = &p->ack;

	if (p->request_id > qp->sent_id) { /* executed before it was sent? */
		unsolicited(qp);
		return;
	}
	acknowledge_numbers(qp, a->highest_pn);
	executed(qp, p->request_id);
	later(&qp->recv_credit, a->recv_credit);
	later(&qp->request_credit, a->request_credit);
	if (a->kind == SRDMA_ACK_CLOSE) {
		srdma_qp_end(qp, closed_for(a->reason), SRDMA_OLDEST);
	} else if (a->kind == SRDMA_ACK_NAK) {
		qp->relay->stats.naks_received++;
		srdma_qp_end(qp, a->reason, p->request_id);
	}
}
