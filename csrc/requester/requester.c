/*
 * Sends the packets of own requests, and keeps them as flights until the peer
 * has executed them (docs/protocol.md 5, 5.1). Creates and frees requesters.
 */
#include "requester/requester.h"

#include <errno.h>
#include <stdlib.h>

#include "base/prefetch.h"
#include "ledger/ledger.h"
#include "requester/requester_impl.h"

enum { SEND_BURST = 64 }; /* packets of one QP in one turn */

/* Fills in the fields from which the session makes the proof of an access to len
 * bytes (6.1). 0, or -EACCES: the capability was uninstalled, and the QP failed.
 */
static int prove(struct srdma_requester *rq, const struct srdma_op *op,
		 uint32_t len, struct srdma_packet *p)
{
	struct srdma_captable_use use;

	if (!srdma_requester_wqe(rq, op->request_id)->capability || !len)
		return 0;
	if (srdma_post_prove(rq, op->request_id, op->offset, len, &use)) {
		srdma_qp_fail(rq->qp, SRDMA_REASON_BAD_CAPABILITY,
			      op->request_id, 1);
		return -EACCES;
	}
	p->flags = use.flags;
	p->depth = use.node->depth;
	p->expiry = use.expiry;
	p->access_key = use.key;
	return 0;
}

/* 1: a read chunk or an atomic, which its responses complete. */
static int is_chunk(const struct srdma_op *op)
{
	return (op->traits & (SRDMA_T_READ | SRDMA_T_ATOMIC)) != 0;
}

/* Bytes of the peer's memory, or of the message, that the packet covers. */
static uint32_t accessed(const struct srdma_op *op)
{
	return is_chunk(op) ? op->dma_len : op->len;
}

/* w: the request of the op. */
static int send_request(struct srdma_requester *rq, const struct srdma_wqe *w,
			const struct srdma_op *op, int ask, uint64_t *pn)
{
	struct srdma_packet p;
	int err;

	srdma_packet_clear(&p);
	p.opcode = op->opcode;
	p.request_id = op->request_id;
	p.offset = op->offset;
	p.va = w->remote_addr;
	p.rkey = w->rkey;
	p.dma_len = op->dma_len;
	p.imm = w->imm;
	p.swap_add = w->swap_add;
	p.compare = w->compare;
	p.payload_len = op->len;
	err = prove(rq, op, accessed(op), &p);
	if (ask)
		p.flags |= SRDMA_STH_ACK_NOW;
	if (!err)
		err = srdma_path_send(rq->qp, &p,
				      op->buf ? op->buf->data : op->data);
	*pn = p.pn;
	return err;
}

/* 1: the next packet asks for an ack, to measure the round-trip time. */
static int measures(struct srdma_requester *rq)
{
	struct srdma_rtt *rtt = srdma_path_rtt(rq->qp);

	if (!rq->flights.count)
		srdma_rtt_doubt(rtt, rq->env->now);
	return srdma_rtt_wants(rtt, rq->env->now);
}

static int send_new(struct srdma_requester *rq, const struct srdma_op *op)
{
	const struct srdma_wqe *w = srdma_requester_wqe(rq, op->request_id);
	struct srdma_flight flight = { .id = op->request_id,
				       .offset = op->offset,
				       .len = accessed(op),
				       .sent = rq->env->now };
	int err = send_request(rq, w, op, measures(rq), &flight.pn);
	struct srdma_read_chunk *chunk;
	uint64_t serial;

	if (err) /* the QP may have failed, and the op be gone */
		return err;
	if (is_chunk(op))
		flight.responses =
			srdma_read_chunk_responses(&rq->chunks, op->dma_len);
	serial = srdma_flight_add(&rq->flights, &flight);
	if (is_chunk(op)) {
		chunk = srdma_read_chunk_find(&rq->chunks, op->request_id,
					      op->offset,
					      op->offset + op->dma_len);
		srdma_read_chunk_asked(&rq->chunks, chunk, serial,
				       rq->env->now);
	}
	rq->sent.offset = flight.offset + flight.len;
	if (rq->sent.offset == w->length)
		rq->sent = (struct srdma_position){ op->request_id + 1, 0 };
	return 0;
}

/* 1: an ack made it unnecessary to send the packet again. */
static int is_over(const struct srdma_requester *rq, const struct srdma_op *op)
{
	const struct srdma_flight *x =
		srdma_flight_at(&rq->flights, op->flight);

	return op->resend == SRDMA_RESEND_FLIGHT &&
	       (!x || x->state != SRDMA_FLIGHT_AGAIN);
}

static int send_lost(struct srdma_requester *rq, const struct srdma_op *op)
{
	struct srdma_flight *flight = srdma_flight_at(&rq->flights, op->flight);
	struct srdma_wqe *w = srdma_requester_wqe(rq, op->request_id);
	uint64_t pn;
	int err;

	if (!is_over(rq, op)) {
		err = send_request(rq, w, op, flight->probe, &pn);
		if (err)
			return err;
		srdma_flight_resent(&rq->flights, flight, pn, rq->env->now);
		rq->env->stats.packets_resent++;
		srdma_qp_counts(rq->qp)->packets_resent++;
	}
	w->fetching--;
	return 0;
}

/* Requests responses again, if they are still missing. */
static int send_missing(struct srdma_requester *rq, const struct srdma_op *op)
{
	struct srdma_read_chunk *chunk =
		srdma_read_chunk_find(&rq->chunks, op->request_id, op->offset,
				      op->offset + op->dma_len);
	uint64_t pn;
	int err;

	if (!chunk || chunk->state != SRDMA_READ_CHUNK_CUT)
		return 0;
	err = send_request(rq, srdma_requester_wqe(rq, op->request_id), op, 0,
			   &pn);
	if (err)
		return err;
	srdma_read_chunk_asked(&rq->chunks, chunk, SRDMA_NO_FLIGHT,
			       rq->env->now);
	rq->env->stats.packets_resent++;
	srdma_qp_counts(rq->qp)->packets_resent++;
	return 0;
}

/* Sends a packet whose payload is fetched. 0, or -errno: no more packets leave
 * now. */
static int send_op(struct srdma_requester *rq, const struct srdma_op *op)
{
	if (op->reason && !is_over(rq, op)) {
		srdma_qp_fail(rq->qp, op->reason, op->request_id, 1);
		return -EIO;
	}
	switch (op->resend) {
	case SRDMA_RESEND_FLIGHT:
		return send_lost(rq, op);
	case SRDMA_RESEND_READ_CHUNK:
		return send_missing(rq, op);
	default:
		return send_new(rq, op);
	}
}

void srdma_requester_unfetch(struct srdma_qp *qp)
{
	srdma_op_give_buffers(&srdma_qp_requester(qp)->fetch);
}

/* Fetched packets cannot leave now. */
static int wait_for_room(struct srdma_requester *rq)
{
	if (srdma_op_scarce(rq->env))
		srdma_requester_unfetch(rq->qp);
	return -EAGAIN;
}

static int send_requests(struct srdma_requester *rq)
{
	struct srdma_qp *qp = rq->qp;
	int err;

	if (rq->fetch.head && !srdma_path_has_room(qp))
		return wait_for_room(rq);
	for (int n = 0; n < SEND_BURST && !srdma_qp_is_spent(qp);) {
		struct srdma_op *op;

		err = srdma_segment_fetch(rq);
		op = rq->fetch.head;
		if (!op || op->state != SRDMA_OP_DONE)
			return err;
		for (;
		     op && op->state == SRDMA_OP_DONE && !srdma_qp_is_spent(qp);
		     n++) {
			err = send_op(rq, op);
			if (err == -EAGAIN)
				return wait_for_room(rq);
			if (err)
				return err == -EIO ? 0 : err;
			if (!n) /* the others leave at the same time */
				srdma_path_arm(qp);
			srdma_op_sent(&rq->fetch);
			op = rq->fetch.head;
		}
	}
	return wait_for_room(rq);
}

int srdma_requester_send(struct srdma_qp *qp)
{
	struct srdma_requester *rq = srdma_qp_requester(qp);
	int err = send_requests(rq);

	srdma_op_settle(&rq->fetch, qp);
	return err;
}

int srdma_requester_in_flight(const struct srdma_qp *qp)
{
	return srdma_qp_requester(qp)->flights.count != 0;
}

/* --- life -------------------------------------------------------------------- */

int srdma_requester_create(struct srdma_qp *qp,
			   const struct srdma_requester_make *make)
{
	struct srdma_requester *rq = srdma_qp_requester(qp);
	const uint32_t room = srdma_table_room(0, 1, make->depth);

	rq->qp = qp;
	rq->env = srdma_qp_env(qp);
	rq->captable = make->captable;
	rq->timeout = make->timeout;
	rq->sq_depth = make->depth;
	rq->sq_mask = room - 1;
	rq->sq = calloc(room, sizeof(*rq->sq));
	return rq->sq ? 0 : -ENOMEM;
}

void srdma_requester_set_timeout(struct srdma_qp *qp, uint64_t timeout)
{
	srdma_qp_requester(qp)->timeout = timeout;
}

void srdma_requester_begin(struct srdma_qp *qp,
			   const struct srdma_requester_params *params)
{
	struct srdma_requester *rq = srdma_qp_requester(qp);
	const int ordered = srdma_env_ordered(rq->env);
	const uint32_t responses = rq->env->window < SRDMA_UNDER_WAY
					   ? rq->env->window
					   : SRDMA_UNDER_WAY;

	srdma_flight_create(&rq->flights, &rq->env->tables,
			    params->peer_window);
	srdma_read_chunk_create(&rq->chunks, &rq->env->tables,
				SRDMA_READ_CHUNKS);
	rq->peer_mtu = params->mtu;
	rq->peer_window = params->peer_window;
	rq->chunks.mtu = params->response_mtu;
	rq->chunks.results = SRDMA_ATOMIC_RESULTS;
	rq->chunks.ordered = ordered;
	srdma_congestion_init(&rq->requests, SRDMA_UNDER_WAY,
			      ordered ? 0 : SRDMA_CONGESTION_REQUESTS);
	srdma_congestion_init(&rq->responses, responses,
			      ordered ? 0 : SRDMA_CONGESTION_RESPONSES);
}

void srdma_requester_discard(struct srdma_qp *qp)
{
	struct srdma_requester *rq = srdma_qp_requester(qp);

	srdma_op_drop(&rq->fetch);
	srdma_read_chunk_clear(&rq->chunks);
}

void srdma_requester_restart(struct srdma_qp *qp)
{
	struct srdma_requester *rq = srdma_qp_requester(qp);

	srdma_congestion_restart(&rq->requests);
	srdma_congestion_restart(&rq->responses);
}

void srdma_requester_destroy(struct srdma_qp *qp)
{
	struct srdma_requester *rq = srdma_qp_requester(qp);

	srdma_op_drop(&rq->fetch);
	free(rq->sq);
	srdma_requester_give_tables(qp);
	srdma_flight_destroy(&rq->flights);
	srdma_read_chunk_destroy(&rq->chunks);
}

int srdma_requester_has_tables(const struct srdma_qp *qp)
{
	const struct srdma_requester *rq = srdma_qp_requester(qp);

	return rq->flights.room || rq->chunks.room || rq->sq_behind;
}

int srdma_requester_is_idle(const struct srdma_qp *qp)
{
	const struct srdma_requester *rq = srdma_qp_requester(qp);

	return rq->sq_head == rq->sq_tail && !rq->flights.count &&
	       !rq->chunks.count && !rq->fetch.count;
}

void srdma_requester_give_tables(struct srdma_qp *qp)
{
	struct srdma_requester *rq = srdma_qp_requester(qp);

	srdma_table_give(&rq->env->tables, rq->sq_behind,
			 (size_t)rq->sq_mask + 1, sizeof(*rq->sq_behind));
	rq->sq_behind = NULL;
	srdma_flight_shrink(&rq->flights);
	srdma_read_chunk_shrink(&rq->chunks);
}

void srdma_requester_prefetch(const struct srdma_qp *qp)
{
	const struct srdma_requester *rq = srdma_qp_requester(qp);

	srdma_prefetch(&rq->sq[rq->sq_tail & rq->sq_mask], sizeof(*rq->sq));
	if (rq->flights.ring)
		srdma_prefetch(&rq->flights.ring[rq->flights.head],
			       sizeof(*rq->flights.ring));
}
