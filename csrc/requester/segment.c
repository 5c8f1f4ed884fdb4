/*
 * Segmentation: own requests become packets - lost ones first, then new ones
 * that may start - and the payload of each is fetched from the host
 * (docs/protocol.md 5, 5.1, 5.3).
 */
#include <errno.h>

#include "requester/requester_impl.h"

/* Opcodes of a message by place: first, middle, last, only. */
struct opcodes {
	uint8_t first, middle, last, only;
};

static const struct opcodes opcodes[] = {
	[SRDMA_DESC_WRITE] = { SRDMA_OP_WRITE_FIRST, SRDMA_OP_WRITE_MIDDLE,
			       SRDMA_OP_WRITE_LAST, SRDMA_OP_WRITE_ONLY },
	[SRDMA_DESC_WRITE_IMM] = { SRDMA_OP_WRITE_FIRST, SRDMA_OP_WRITE_MIDDLE,
				   SRDMA_OP_WRITE_LAST_IMM,
				   SRDMA_OP_WRITE_ONLY_IMM },
	[SRDMA_DESC_READ] = { .only = SRDMA_OP_READ_REQUEST },
	[SRDMA_DESC_SEND] = { SRDMA_OP_SEND_FIRST, SRDMA_OP_SEND_MIDDLE,
			      SRDMA_OP_SEND_LAST, SRDMA_OP_SEND_ONLY },
	[SRDMA_DESC_SEND_IMM] = { SRDMA_OP_SEND_FIRST, SRDMA_OP_SEND_MIDDLE,
				  SRDMA_OP_SEND_LAST_IMM,
				  SRDMA_OP_SEND_ONLY_IMM },
	[SRDMA_DESC_COMPARE_SWAP] = { .only = SRDMA_OP_COMPARE_SWAP },
	[SRDMA_DESC_FETCH_ADD] = { .only = SRDMA_OP_FETCH_ADD },
};

static uint8_t opcode_at(const struct srdma_wqe *w, uint32_t offset,
			 uint32_t len)
{
	const struct opcodes *o = &opcodes[w->opcode];
	int first = offset == 0;
	int last = offset + len == w->length;

	if (srdma_desc_is_answered(w->opcode)) /* each chunk is one packet */
		return o->only;
	if (first)
		return last ? o->only : o->first;
	return last ? o->last : o->middle;
}

/* Sets the opcode and its traits, which later stages test. */
static void set_opcode(struct srdma_op *op, uint8_t opcode)
{
	op->opcode = opcode;
	op->traits = srdma_wire_traits(opcode);
}

static int has_credit(const struct srdma_requester *rq,
		      const struct srdma_wqe *w)
{
	if ((int32_t)(rq->request_credit - (uint32_t)rq->sq_next) <= 0)
		return 0;
	return !srdma_desc_consumes_recv(w->opcode) ||
	       (int32_t)(rq->recv_credit - rq->sends) > 0;
}

/* 1: credit and FENCE permit the request to start. */
static int may_start(const struct srdma_requester *rq,
		     const struct srdma_wqe *w)
{
	if ((w->flags & SRDMA_DESC_FENCE) && rq->reads_open)
		return 0;
	return has_credit(rq, w);
}

int srdma_segment_starves(const struct srdma_requester *rq)
{
	const struct srdma_wqe *w = &rq->sq[rq->sq_next & rq->sq_mask];

	return rq->sq_next < rq->sq_tail && !w->started && !rq->flights.count &&
	       !rq->fetch.count && !has_credit(rq, w);
}

/* Bytes of the next packet or chunk: at most `most`, all in one node of the
 * capability. 0, or -EACCES: the capability was uninstalled, the QP failed. */
static int segment_len(struct srdma_requester *rq, struct srdma_wqe *w,
		       uint32_t most, uint32_t *len)
{
	struct srdma_captable_use use;

	*len = w->length - w->segmented;
	if (*len > most)
		*len = most;
	if (!w->capability || !*len)
		return 0;
	if (srdma_post_prove(rq, rq->sq_next, w->segmented, *len, &use)) {
		srdma_qp_fail(rq->qp, SRDMA_REASON_BAD_CAPABILITY, rq->sq_next,
			      1);
		return -EACCES;
	}
	*len = (uint32_t)use.run;
	return 0;
}

/* --- new packets ------------------------------------------------------------ */

static struct srdma_read_chunk *
add_chunk(struct srdma_requester *rq, const struct srdma_wqe *w, uint32_t len)
{
	if (srdma_desc_is_atomic(w->opcode))
		return srdma_read_chunk_add_atomic(&rq->chunks, rq->sq_next);
	return srdma_read_chunk_add(&rq->chunks, rq->sq_next, w->segmented,
				    w->segmented + len);
}

/* Responses that the peer sends or is about to send: without those to requests
 * that it keeps in its reorder buffer. */
static uint32_t responses_under_way(const struct srdma_requester *rq)
{
	return rq->chunks.due - rq->flights.held;
}

/* Requests the next chunk of a READ, or an atomic. 0; -EBUSY: enough responses
 * are under way; -EAGAIN: no op is free. */
static int segment_chunk(struct srdma_requester *rq, struct srdma_wqe *w,
			 uint32_t len)
{
	struct srdma_op *op;

	if (rq->chunks.count &&
	    responses_under_way(rq) +
			    srdma_read_chunk_responses(&rq->chunks, len) >
		    srdma_congestion_window(&rq->responses))
		return -EBUSY;
	if (!srdma_op_is_free(rq->qp, &rq->fetch))
		return -EAGAIN;
	if (!add_chunk(rq, w, len))
		return -EBUSY;
	op = srdma_op_add(&rq->fetch, rq->qp, SRDMA_OP_FETCH);
	set_opcode(op, opcode_at(w, w->segmented, len));
	op->request_id = rq->sq_next;
	op->offset = w->segmented;
	op->dma_len = len;
	w->segmented += len;
	return 0;
}

/* Bytes of a request that one packet carries or requests. */
struct piece {
	uint64_t id;
	uint32_t offset, len;
};

/* Adds an op that fetches the piece. 0, or -EAGAIN: no op or buffer is free. */
static int add_payload(struct srdma_requester *rq, const struct piece *piece,
		       enum srdma_resend resend, struct srdma_op **out)
{
	const struct srdma_wqe *w = srdma_requester_wqe(rq, piece->id);
	struct srdma_port *host = rq->env->host;
	struct srdma_buf *buf = NULL;
	struct srdma_op *op;

	if (piece->len && !(w->flags & SRDMA_DESC_INLINE)) {
		buf = host->ops->buf_get(host);
		if (!buf)
			return -EAGAIN;
	}
	op = resend ? srdma_op_add_resend(&rq->fetch, rq->qp)
		    : srdma_op_add(&rq->fetch, rq->qp, SRDMA_OP_FETCH);
	if (!op) {
		if (buf)
			host->ops->buf_put(buf);
		return -EAGAIN;
	}
	op->buf = buf;
	if (!buf && piece->len)
		op->data = rq->sq_behind[piece->id & rq->sq_mask].data +
			   piece->offset;
	op->sgl = srdma_requester_sgl(rq, piece->id);
	op->addr = w->local_addr + piece->offset;
	op->key = w->local_key;
	op->len = piece->len;
	set_opcode(op, opcode_at(w, piece->offset, piece->len));
	op->request_id = piece->id;
	op->offset = piece->offset;
	op->dma_len = w->length;
	*out = op;
	return 0;
}

static int segment_payload(struct srdma_requester *rq, struct srdma_wqe *w,
			   uint32_t len)
{
	const struct piece piece = { rq->sq_next, w->segmented, len };
	struct srdma_op *op;
	int err = add_payload(rq, &piece, SRDMA_RESEND_NO, &op);

	if (!err)
		w->segmented += len;
	return err;
}

/* --- packets that are sent again -------------------------------------------- */

static int add_request(struct srdma_requester *rq, const struct piece *piece,
		       struct srdma_op **out)
{
	struct srdma_op *op = srdma_op_add_resend(&rq->fetch, rq->qp);

	if (!op)
		return -EAGAIN;
	set_opcode(op, opcode_at(srdma_requester_wqe(rq, piece->id),
				 piece->offset, piece->len));
	op->request_id = piece->id;
	op->offset = piece->offset;
	op->dma_len = piece->len;
	*out = op;
	return 0;
}

int srdma_segment_blocked(const struct srdma_requester *rq)
{
	return rq->flights.waiting - rq->flights.losts >=
	       srdma_congestion_window(&rq->requests);
}

/* Segments a lost packet again. 0; -ENOENT: none may be sent; -EAGAIN. */
static int segment_lost(struct srdma_requester *rq)
{
	uint64_t serial;
	struct srdma_flight *flight =
		srdma_flight_next_lost(&rq->flights, &serial);
	struct piece piece;
	struct srdma_wqe *w;
	struct srdma_op *op;
	int err;

	if (!flight || (srdma_segment_blocked(rq) && !flight->probe))
		return -ENOENT;
	piece = (struct piece){ flight->id, flight->offset, flight->len };
	w = srdma_requester_wqe(rq, flight->id);
	err = srdma_desc_is_answered(w->opcode)
		      ? add_request(rq, &piece, &op)
		      : add_payload(rq, &piece, SRDMA_RESEND_FLIGHT, &op);
	if (err)
		return err;
	op->resend = SRDMA_RESEND_FLIGHT;
	op->flight = serial;
	if (!srdma_desc_is_answered(w->opcode))
		srdma_congestion_lost(&rq->requests, 1, flight->sent);
	srdma_flight_again(&rq->flights, flight);
	w->fetching++;
	return 0;
}

/* Requests a range of a READ, or an atomic, whose responses did not arrive. 0;
 * -ENOENT: there is none; -EAGAIN. */
static int segment_missing(struct srdma_requester *rq)
{
	struct srdma_read_chunk *chunk = srdma_read_chunk_next(&rq->chunks);
	struct piece piece;
	struct srdma_op *op;

	if (!chunk)
		return -ENOENT;
	piece = (struct piece){ chunk->request_id, chunk->from,
				chunk->until - chunk->from };
	if (add_request(rq, &piece, &op)) {
		srdma_read_chunk_not_yet(&rq->chunks, chunk);
		return -EAGAIN;
	}
	op->resend = SRDMA_RESEND_READ_CHUNK;
	srdma_congestion_lost(
		&rq->responses,
		srdma_read_chunk_responses(&rq->chunks, piece.len),
		chunk->asked);
	return 0;
}

static int fetch_again(struct srdma_requester *rq)
{
	int err = 0;

	if (!rq->flights.losts && !rq->chunks.wanted)
		return 0;
	while (!err && rq->fetch.count < SRDMA_FETCH_DEPTH) {
		if (!srdma_op_share(rq->qp, &rq->fetch))
			return -EAGAIN;
		err = segment_lost(rq);
		if (err == -ENOENT)
			err = segment_missing(rq);
	}
	return err == -ENOENT ? 0 : err;
}

/* --- the send queue ---------------------------------------------------------- */

/* Most bytes of a chunk: its responses come in one burst (docs/protocol.md
 * 5.5). */
static uint32_t chunk_most(const struct srdma_requester *rq)
{
	const uint32_t window = srdma_congestion_window(&rq->responses);
	const uint32_t n = window / 4 > SRDMA_CONGESTION_LEAST
				   ? window / 4
				   : SRDMA_CONGESTION_LEAST;

	if (rq->chunks.ordered || n >= SRDMA_MAX_READ_CHUNK / rq->chunks.mtu)
		return SRDMA_MAX_READ_CHUNK;
	return n * rq->chunks.mtu;
}

/* Segments one packet of the request at sq_next. 0, -EBUSY, -EAGAIN, or -EACCES:
 * the QP failed. */
static int segment(struct srdma_requester *rq)
{
	struct srdma_wqe *w = srdma_requester_wqe(rq, rq->sq_next);
	int answered = srdma_desc_is_answered(w->opcode);
	uint32_t len;
	int err;

	if (!w->started && !may_start(rq, w))
		return -EBUSY;
	err = segment_len(rq, w, answered ? chunk_most(rq) : rq->peer_mtu,
			  &len);
	if (!err)
		err = answered ? segment_chunk(rq, w, len)
			       : segment_payload(rq, w, len);
	if (err)
		return err;
	if (!w->started) {
		w->started = 1;
		rq->sends += (uint32_t)srdma_desc_consumes_recv(w->opcode);
		rq->reads_open += (uint32_t)answered;
	}
	if (w->segmented == w->length)
		rq->sq_next++;
	return 0;
}

/* When the next request begins to lack credit, its time-out starts. */
static void starve(struct srdma_requester *rq)
{
	int starves = srdma_segment_starves(rq);

	if (starves && !rq->starving) {
		srdma_path_set_progress(rq->qp);
		srdma_path_arm(rq->qp);
	}
	rq->starving = (uint8_t)starves;
}

/* 1: the peer can keep one more packet, and the window is not full. */
static int may_send(const struct srdma_requester *rq)
{
	return rq->fetch.count + rq->flights.count < rq->peer_window &&
	       rq->fetch.count + rq->flights.waiting <
		       srdma_congestion_window(&rq->requests);
}

/* 1: there is room for an op and its flight. */
static int has_room(struct srdma_requester *rq)
{
	return srdma_op_share(rq->qp, &rq->fetch) &&
	       !srdma_flight_make_room(&rq->flights, rq->fetch.count + 1);
}

/* Requests that are not segmented yet, as far as the list has room for them. */
static uint32_t requests_due(const struct srdma_requester *rq)
{
	const uint64_t due = rq->sq_tail - rq->sq_next;
	const uint32_t room = SRDMA_FETCH_DEPTH - rq->fetch.count;

	return due < room ? (uint32_t)due : room;
}

int srdma_segment_fetch(struct srdma_requester *rq)
{
	int err = fetch_again(rq);

	if (!err && may_send(rq))
		srdma_op_prepay(&rq->fetch, rq->qp, requests_due(rq));
	while (!err && rq->sq_next < rq->sq_tail &&
	       rq->fetch.count < SRDMA_FETCH_DEPTH && may_send(rq))
		err = has_room(rq) ? segment(rq) : -EAGAIN;
	starve(rq);
	if (rq->fetch.head && srdma_op_issue(rq->qp, &rq->fetch))
		return -EAGAIN;
	return err == -EAGAIN ? err : 0;
}
