/*
 * What the peer says to own requests: the data of READs and what atomics
 * found, matched by the table of parts, and acks (docs/protocol.md 2.4, 5).
 */
#include <errno.h>
#include <string.h>

#include "mutant.h"
#include "relay_impl.h"

static void unsolicited(struct srdma_qp *qp)
{
	qp->relay->stats.refused[SRDMA_REFUSED_UNSOLICITED]++;
}

/* An ack tells that a packet of a time came. It went the way of requests, the
 * ack that of answers. */
static void measure(struct srdma_qp *qp, uint64_t sent)
{
	uint64_t now = qp->relay->now;

	if (!sent)
		return;
	srdma_congestion_rtt(&qp->sending, now, now - sent);
	srdma_congestion_rtt(&qp->asking, now, now - sent);
}

/* Before it so many were waiting. */
static void widen(struct srdma_qp *qp, uint32_t waiting)
{
	struct srdma_congestion *c = &qp->sending;

	if (waiting > qp->flights.waiting)
		srdma_congestion_arrived(c, waiting - qp->flights.waiting,
					 waiting >= srdma_congestion_window(c) /
							    2);
}

void srdma_reply_answer(struct srdma_qp *qp, const struct srdma_packet *p,
			struct srdma_buf **buf)
{
	const int atomic = p->opcode == SRDMA_OP_ATOMIC_ACKNOWLEDGE;
	const struct srdma_part_answer answer = {
		.request_id = p->request_id,
		.offset = p->offset,
		.len = atomic ? SRDMA_ATOMIC_LEN : p->payload_len,
		.atomic = atomic,
		.now = qp->relay->now,
		.patience = srdma_rtt_patience(&qp->rtt),
		.flights = qp->flights.first,
	};
	uint64_t flight;
	const struct srdma_wqe *w;
	struct srdma_op *op;

	if (srdma_part_fill(&qp->parts, &answer, &flight)) {
		unsolicited(qp);
		return;
	}
	srdma_congestion_arrived(
		&qp->asking, 1,
		qp->parts.due >= srdma_congestion_window(&qp->asking) / 2);
	if (flight != SRDMA_NO_FLIGHT)
		srdma_flight_over(&qp->flights, flight);
	srdma_retry_answered(qp);
	srdma_qp_owe(qp);
	op = srdma_op_add(qp, SRDMA_OP_RETURN);
	if (!op) {
		srdma_qp_fail(qp, SRDMA_REASON_LOCAL_DMA, p->request_id, 1);
		return;
	}
	w = srdma_qp_wqe(qp, p->request_id);
	op->addr = w->local_addr +
		   (SRDMA_MUTANT(ANSWER_BY_ORDER) ? w->got : p->offset);
	op->key = w->local_key;
	op->right = SRDMA_ACCESS_LOCAL_WRITE;
	op->len = answer.len;
	op->request_id = p->request_id;
	if (atomic)
		memcpy((*buf)->data, &p->original, sizeof(p->original));
	if (answer.len) {
		op->buf = *buf;
		*buf = NULL;
	}
}

/* All requests before id are executed: READs and atomics complete by their
 * answers. */
static void executed(struct srdma_qp *qp, uint64_t id)
{
	uint64_t i = qp->acked_id > qp->sq_head ? qp->acked_id : qp->sq_head;

	for (; i < id; i++) {
		struct srdma_wqe *w = srdma_qp_wqe(qp, i);

		if (!srdma_desc_is_answered(w->opcode))
			w->done = 1;
	}
	if (id > qp->acked_id)
		qp->acked_id = id;
}

/*
 * The highest packet number that an ack names, widened to the 64-bit value
 * nearest to the last number sent. 0, or -ERANGE: that number was never sent.
 * The number before the first one is legal: the peer verified nothing yet.
 */
static int highest_of(const struct srdma_qp *qp, const struct srdma_ack_body *a,
		      uint64_t *pn)
{
	const uint64_t next = srdma_session_next_pn(qp->session);
	const uint32_t behind = (uint32_t)(next - 1) - a->highest_pn;

	if (behind > INT32_MAX || behind > next - qp->first_pn)
		return -ERANGE;
	*pn = next - 1 - behind;
	return 0;
}

/* 1: no packet of an own request from this position on was sent. */
static int is_unsent(const struct srdma_qp *qp, const struct srdma_packet *p)
{
	const struct srdma_position end = { qp->sent_id, qp->sent_offset };

	return srdma_position_before(end, srdma_position_of(p));
}

/* The oldest part's request has been executed: its answers are due. */
static void expect_answers(struct srdma_qp *qp)
{
	struct srdma_part *oldest = qp->parts.head;

	if (oldest && !oldest->executed && oldest->state == SRDMA_PART_ASKED &&
	    !srdma_flight_at(&qp->flights, oldest->flight))
		srdma_part_executed(oldest, qp->relay->now);
}

/* What an ack says of the packets that were sent. 1: something new. */
static int judge(struct srdma_qp *qp, const struct srdma_packet *p,
		 uint64_t highest)
{
	const struct srdma_flight_word word = {
		.pn = p->pn,
		.id = p->request_id,
		.offset = p->offset,
		.highest = highest,
		.gap = p->ack.gap,
		.gaps = p->ack.gaps,
		.skips = p->ack.skips,
		.now = qp->relay->now,
		.patience = qp->rtt.srtt + srdma_rtt_patience(&qp->rtt),
		.ordered = srdma_relay_ordered(qp->relay),
	};
	const uint32_t waiting = qp->flights.waiting;
	const int newer = word.highest > qp->acked_pn;
	const uint64_t sent =
		newer ? srdma_flight_sent(&qp->flights, word.highest) : 0;
	int moved;

	if (!qp->flights.count)
		srdma_rtt_doubt(&qp->rtt, word.now);
	srdma_rtt_told(&qp->rtt, word.highest, sent, word.now);
	measure(qp, sent);
	if (newer)
		srdma_rekey_told(qp, word.highest);
	moved = srdma_flight_acknowledge(&qp->flights, word.id, word.offset) >
		0;
	if (moved)
		expect_answers(qp);
	moved |= srdma_flight_judge(&qp->flights, &word);
	widen(qp, waiting);
	return moved;
}

/* 1: it is later. */
static int later(uint32_t *serial, uint32_t seen)
{
	if ((int32_t)(seen - *serial) <= 0)
		return 0;
	*serial = seen;
	return 1;
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
	uint64_t highest;
	int moved;

	/* No field of such an ack is used: its sender errs or lies. */
	if (is_unsent(qp, p) || highest_of(qp, a, &highest)) {
		unsolicited(qp);
		return;
	}
	moved = judge(qp, p, highest);
	executed(qp,
		 SRDMA_MUTANT(DONE_WHEN_SENT) ? qp->sent_id : p->request_id);
	moved |= later(&qp->recv_credit, a->recv_credit);
	moved |= later(&qp->request_credit, a->request_credit);
	srdma_retry_heard(qp, moved);
	qp->asked |= a->kind == SRDMA_ACK_PING;
	qp->relay->stats.rnr_received += a->kind == SRDMA_ACK_RNR;
	if (a->kind == SRDMA_ACK_CLOSE) {
		srdma_qp_end(qp, closed_for(a->reason), SRDMA_OLDEST);
	} else if (a->kind == SRDMA_ACK_NAK) {
		qp->relay->stats.naks_received++;
		srdma_qp_end(qp, a->reason, p->request_id);
	}
}
