/*
 * Completion of own requests: acks, responses matched by the table of read
 * chunks, and completion records (docs/protocol.md 2.4, 5; local-interface.md
 * 2).
 */
#include <errno.h>
#include <string.h>

#include "qp/inbound.h"
#include "requester/requester_impl.h"
#include "session/session.h"

static void unsolicited(struct srdma_requester *rq)
{
	rq->env->stats.refused[SRDMA_REFUSED_UNSOLICITED]++;
}

/* A packet that left at `sent` (0: unknown) is acknowledged now. Its round trip
 * concerns both windows: the packet took the way of requests, its ack that of
 * responses. */
static void measure(struct srdma_requester *rq, uint64_t sent)
{
	uint64_t now = rq->env->now;

	if (!sent)
		return;
	srdma_congestion_rtt(&rq->requests, now, now - sent);
	srdma_congestion_rtt(&rq->responses, now, now - sent);
}

/* Widens the window by the flights that the ack reported. waiting: flights that
 * waited before the ack. */
static void widen(struct srdma_requester *rq, uint32_t waiting)
{
	struct srdma_congestion *c = &rq->requests;

	if (waiting > rq->flights.waiting)
		srdma_congestion_arrived(c, waiting - rq->flights.waiting,
					 waiting >= srdma_congestion_window(c) /
							    2);
}

/* --- responses ---------------------------------------------------------------- */

/* Adds the payload of a response to the inbound list. */
static void place(struct srdma_requester *rq, const struct srdma_packet *p,
		  const struct srdma_read_chunk_response *response,
		  struct srdma_buf **buf)
{
	const struct srdma_wqe *w = srdma_requester_wqe(rq, p->request_id);
	struct srdma_op *op = srdma_inbound_add(rq->qp, SRDMA_OP_RETURN);

	if (!op) {
		srdma_qp_fail(rq->qp, SRDMA_REASON_LOCAL_DMA, p->request_id, 1);
		return;
	}
	op->sgl = srdma_requester_sgl(rq, p->request_id);
	op->offset = p->offset;
	op->addr = w->local_addr + p->offset;
	op->key = w->local_key;
	op->right = SRDMA_ACCESS_LOCAL_WRITE;
	op->len = response->len;
	op->request_id = p->request_id;
	if (response->atomic)
		memcpy((*buf)->data, &p->original, sizeof(p->original));
	if (response->len) {
		op->buf = *buf;
		*buf = NULL;
	}
}

void srdma_complete_response(struct srdma_qp *qp, const struct srdma_packet *p,
			     struct srdma_buf **buf)
{
	struct srdma_requester *rq = srdma_qp_requester(qp);
	const int atomic = p->opcode == SRDMA_OP_ATOMIC_ACKNOWLEDGE;
	const struct srdma_read_chunk_response response = {
		.request_id = p->request_id,
		.offset = p->offset,
		.len = atomic ? SRDMA_ATOMIC_LEN : p->payload_len,
		.atomic = atomic,
		.now = rq->env->now,
		.patience = srdma_rtt_patience(srdma_path_rtt(qp)),
		.flights = rq->flights.first,
	};
	uint64_t flight;

	if (srdma_read_chunk_fill(&rq->chunks, &response, &flight)) {
		unsolicited(rq);
		return;
	}
	srdma_congestion_arrived(
		&rq->responses, 1,
		rq->chunks.due >= srdma_congestion_window(&rq->responses) / 2);
	if (flight != SRDMA_NO_FLIGHT)
		srdma_flight_over(&rq->flights, flight);
	srdma_retry_responded(rq);
	srdma_inbound_begin(qp);
	place(rq, p, &response, buf);
}

void srdma_complete_returned(struct srdma_qp *qp, const struct srdma_op *op)
{
	struct srdma_requester *rq = srdma_qp_requester(qp);
	struct srdma_wqe *w = srdma_requester_wqe(rq, op->request_id);

	w->got += op->len;
	if (w->got == w->length && w->segmented == w->length) {
		w->done = 1;
		rq->reads_open--;
	}
}

/* --- acks --------------------------------------------------------------------- */

/* All requests before id are executed. READs and atomics complete by their
 * responses. */
static void executed(struct srdma_requester *rq, uint64_t id)
{
	uint64_t i = srdma_time_later(rq->acked_id, rq->sq_head);

	for (; i < id; i++) {
		struct srdma_wqe *w = srdma_requester_wqe(rq, i);

		if (!srdma_desc_is_answered(w->opcode))
			w->done = 1;
	}
	if (id > rq->acked_id)
		rq->acked_id = id;
}

/*
 * Widens the highest packet number of an ack to the 64-bit value that is nearest
 * to the last number sent and not above it. 0, or -ERANGE: that number was never
 * sent. The number before the first one is legal: the peer verified nothing yet.
 */
static int highest_of(const struct srdma_requester *rq,
		      const struct srdma_ack_body *a, uint64_t *pn)
{
	const uint64_t next = srdma_session_next_pn(srdma_qp_session(rq->qp));
	const uint32_t behind = (uint32_t)(next - 1) - a->highest_pn;

	if (behind > INT32_MAX || behind > next - srdma_path_first(rq->qp))
		return -ERANGE;
	*pn = next - 1 - behind;
	return 0;
}

/* 1: the position of an ack is after the end of what was sent. */
static int is_unsent(const struct srdma_requester *rq,
		     const struct srdma_packet *p)
{
	return srdma_position_before(rq->sent, srdma_position_of(p));
}

/* If the peer has executed the request of the oldest chunk, the time-out of its
 * responses starts. */
static void expect_responses(struct srdma_requester *rq)
{
	struct srdma_read_chunk *oldest = rq->chunks.head;

	if (oldest && !oldest->executed &&
	    oldest->state == SRDMA_READ_CHUNK_ASKED &&
	    !srdma_flight_at(&rq->flights, oldest->flight))
		srdma_read_chunk_executed(oldest, rq->env->now);
}

/* Applies an ack to the packets that were sent. 1: it reported something new. */
static int acknowledge(struct srdma_requester *rq, const struct srdma_packet *p,
		       uint64_t highest)
{
	struct srdma_rtt *rtt = srdma_path_rtt(rq->qp);
	const struct srdma_flight_ack ack = {
		.pn = p->pn,
		.position = srdma_position_of(p),
		.highest = highest,
		.gap = p->ack.gap,
		.gaps = p->ack.gaps,
		.skips = p->ack.skips,
		.now = rq->env->now,
		.patience = srdma_rtt_smoothed(rtt) + srdma_rtt_patience(rtt),
		.ordered = srdma_env_ordered(rq->env),
	};
	const uint32_t waiting = rq->flights.waiting;
	const int newer = ack.highest > srdma_path_acked(rq->qp);
	const uint64_t sent =
		newer ? srdma_flight_sent(&rq->flights, ack.highest) : 0;
	int moved;

	if (!rq->flights.count)
		srdma_rtt_doubt(rtt, ack.now);
	srdma_rtt_acked(rtt, ack.highest, sent, ack.now);
	measure(rq, sent);
	if (newer)
		srdma_path_set_acked(rq->qp, ack.highest);
	moved = srdma_flight_acknowledge(&rq->flights, ack.position) > 0;
	if (moved)
		expect_responses(rq);
	moved |= srdma_flight_judge(&rq->flights, &ack);
	widen(rq, waiting);
	return moved;
}

/* Takes a credit counter, modulo 2^32, if it is later. 1: it is. */
static int advance(uint32_t *serial, uint32_t seen)
{
	if ((int32_t)(seen - *serial) <= 0)
		return 0;
	*serial = seen;
	return 1;
}

/* The reason of this QP's end for the reason in the peer's CLOSE. */
static enum srdma_reason closed_for(uint8_t reason)
{
	if (reason == SRDMA_REASON_PEER_CLOSED ||
	    reason == SRDMA_REASON_PEER_HOST_GONE)
		return reason;
	return SRDMA_REASON_PEER_ERROR;
}

/* RFC 5042 X2 */
int srdma_complete_ack(struct srdma_qp *qp, const struct srdma_packet *p)
{
	struct srdma_requester *rq = srdma_qp_requester(qp);
	const struct srdma_ack_body *a = &p->ack;
	uint64_t highest;
	int moved;

	/* The ack names packets that were never sent: no field of it is used.
	 */
	if (is_unsent(rq, p) || highest_of(rq, a, &highest)) {
		unsolicited(rq);
		return 0;
	}
	moved = acknowledge(rq, p, highest);
	executed(rq, p->request_id);
	moved |= advance(&rq->recv_credit, a->recv_credit);
	moved |= advance(&rq->request_credit, a->request_credit);
	srdma_retry_acked(rq, moved);
	rq->env->stats.rnr_received += a->kind == SRDMA_ACK_RNR;
	if (a->kind == SRDMA_ACK_CLOSE) {
		srdma_qp_end(qp, closed_for(a->reason), SRDMA_OLDEST);
	} else if (a->kind == SRDMA_ACK_NAK) {
		rq->env->stats.naks_received++;
		srdma_qp_end(qp, a->reason, p->request_id);
	}
	return 1;
}

/* --- completion records -------------------------------------------------------- */

/* Reason with which the request at sq_head completes now; -1: it does not
 * complete yet. */
static int64_t verdict(struct srdma_requester *rq, const struct srdma_wqe *w)
{
	const int failed = srdma_qp_state(rq->qp) == SRDMA_QP_ERR;

	if (w->done && !rq->flushing && (failed || !w->fetching))
		return SRDMA_REASON_NONE;
	if (!failed || srdma_qp_is_in_grace(rq->qp))
		return -1;
	if (!rq->flushing) {
		rq->flush_id = srdma_qp_failed_id(rq->qp);
		if (rq->flush_id == SRDMA_OLDEST)
			rq->flush_id = rq->sq_head;
	}
	rq->flushing = 1;
	return rq->sq_head == rq->flush_id ? (int64_t)srdma_qp_reason(rq->qp)
					   : SRDMA_REASON_FLUSHED;
}

int srdma_complete_requests(struct srdma_qp *qp)
{
	struct srdma_requester *rq = srdma_qp_requester(qp);

	for (; rq->sq_head < rq->sq_tail; rq->sq_head++) {
		const struct srdma_wqe *w =
			srdma_requester_wqe(rq, rq->sq_head);
		int64_t reason = verdict(rq, w);
		struct srdma_record rec = {
			.id = w->id,
			.opcode = (uint8_t)srdma_desc_wc_opcode(w->opcode),
			.byte_len = w->length
		};

		if (reason < 0)
			return 0;
		if (!reason && !(w->flags & SRDMA_DESC_SIGNALED))
			continue;
		if (srdma_qp_record(qp, &rec, (uint32_t)reason))
			return -EAGAIN;
	}
	return 0;
}
