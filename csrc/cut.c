/*
 * Own requests become packets: what was lost first, then what is new and may
 * start; the payload of each is fetched from the host (docs/protocol.md 5,
 * 5.1, 5.3).
 */
#include <errno.h>

#include "grant.h"
#include "mutant.h"
#include "relay_impl.h"

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

	if (srdma_desc_is_answered(w->opcode)) /* a part is a packet */
		return o->only;
	if (first)
		return last ? o->only : o->first;
	return last ? o->last : o->middle;
}

static int has_credit(const struct srdma_qp *qp, const struct srdma_wqe *w)
{
	if ((int32_t)(qp->request_credit - (uint32_t)qp->sq_next) <= 0)
		return 0;
	return !srdma_desc_consumes_recv(w->opcode) ||
	       SRDMA_MUTANT(CREDIT_IGNORED) ||
	       (int32_t)(qp->recv_credit - qp->sends) > 0;
}

/* Whether the peer and the rules let this request begin. */
static int may_start(const struct srdma_qp *qp, const struct srdma_wqe *w)
{
	if ((w->flags & SRDMA_DESC_FENCE) && qp->reads_open &&
	    !SRDMA_MUTANT(FENCE_IGNORED))
		return 0;
	return has_credit(qp, w);
}

int srdma_cut_starves(const struct srdma_qp *qp)
{
	const struct srdma_wqe *w = &qp->sq[qp->sq_next & qp->sq_mask];

	return qp->sq_next < qp->sq_tail && !w->started && !qp->flights.count &&
	       !qp->fetch.count && !has_credit(qp, w);
}

/* Bytes of the next packet or part: most, or fewer, but all in one node of
 * the capability. 0, or -EACCES: it was dropped, and the request fails. */
static int cut_len(struct srdma_qp *qp, const struct srdma_wqe *w,
		   uint32_t most, uint32_t *len)
{
	struct srdma_grant_use use;

	*len = w->length - w->asked;
	if (*len > most)
		*len = most;
	if (!w->capability || !*len)
		return 0;
	if (srdma_post_grant(qp, w, w->asked, *len, &use)) {
		srdma_qp_fail(qp, SRDMA_REASON_BAD_CAPABILITY, qp->sq_next, 1);
		return -EACCES;
	}
	*len = (uint32_t)use.run;
	return 0;
}

static struct srdma_part *add_part(struct srdma_qp *qp,
				   const struct srdma_wqe *w, uint32_t len)
{
	if (srdma_desc_is_atomic(w->opcode))
		return srdma_part_add_atomic(&qp->parts, qp->sq_next);
	return srdma_part_add(&qp->parts, qp->sq_next, w->asked,
			      w->asked + len);
}

/* Answers to expect: of what the peer has executed, or is about to. */
static uint32_t answers_under_way(const struct srdma_qp *qp)
{
	return qp->parts.due - qp->flights.held;
}

/* Ask for the next part of a READ, or an atomic. 0, or -EBUSY: enough is under
 * way. */
static int cut_part(struct srdma_qp *qp, struct srdma_wqe *w, uint32_t len)
{
	struct srdma_parts *parts = &qp->parts;
	struct srdma_op *op;

	if (parts->count &&
	    answers_under_way(qp) + srdma_part_answers(parts, len) >
		    srdma_congestion_window(&qp->asking))
		return -EBUSY;
	if (!qp->relay->ops.left)
		return -EAGAIN;
	if (!add_part(qp, w, len))
		return -EBUSY;
	op = srdma_op_add(qp, SRDMA_OP_FETCH);
	op->opcode = opcode_at(w, w->asked, len);
	op->request_id = qp->sq_next;
	op->offset = w->asked;
	op->dma_len = len;
	w->asked += len;
	return 0;
}

/* Bytes of a request that one packet carries. */
struct piece {
	uint64_t id;
	uint32_t offset, len;
};

/* An op for them, which first: of what is sent again. 0 or -EAGAIN. */
static int add_payload(struct srdma_qp *qp, const struct piece *piece,
		       enum srdma_resend resend, struct srdma_op **out)
{
	const struct srdma_wqe *w = srdma_qp_wqe(qp, piece->id);
	struct srdma_port *host = qp->relay->host;
	struct srdma_buf *buf = NULL;
	struct srdma_op *op;

	if (piece->len && !(w->flags & SRDMA_DESC_INLINE)) {
		buf = host->ops->buf_get(host);
		if (!buf)
			return -EAGAIN;
	}
	op = resend ? srdma_op_add_resend(qp)
		    : srdma_op_add(qp, SRDMA_OP_FETCH);
	if (!op) {
		if (buf)
			host->ops->buf_put(buf);
		return -EAGAIN;
	}
	op->buf = buf;
	if (!buf && piece->len)
		op->data = qp->sq_inline +
			   (piece->id & qp->sq_mask) * SRDMA_MAX_INLINE +
			   piece->offset;
	op->addr = w->local_addr + piece->offset;
	op->key = w->local_key;
	op->len = piece->len;
	op->opcode = opcode_at(w, piece->offset, piece->len);
	op->request_id = piece->id;
	op->offset = piece->offset;
	op->dma_len = w->length;
	*out = op;
	return 0;
}

static int cut_payload(struct srdma_qp *qp, struct srdma_wqe *w, uint32_t len)
{
	const struct piece piece = { qp->sq_next, w->asked, len };
	struct srdma_op *op;
	int err = add_payload(qp, &piece, SRDMA_RESEND_NO, &op);

	if (!err)
		w->asked += len;
	return err;
}

/* --- what is sent again ----------------------------------------------- */

static int cut_request(struct srdma_qp *qp, const struct piece *piece,
		       struct srdma_op **out)
{
	struct srdma_op *op = srdma_op_add_resend(qp);

	if (!op)
		return -EAGAIN;
	op->opcode = opcode_at(srdma_qp_wqe(qp, piece->id), piece->offset,
			       piece->len);
	op->request_id = piece->id;
	op->offset = piece->offset;
	op->dma_len = piece->len;
	*out = op;
	return 0;
}

int srdma_cut_blocked(const struct srdma_qp *qp)
{
	return qp->flights.waiting - qp->flights.losts >=
	       srdma_congestion_window(&qp->sending);
}

/* A lost packet. 0, -ENOENT: there is none that may be sent, -EAGAIN. */
static int cut_lost(struct srdma_qp *qp)
{
	uint64_t serial;
	struct srdma_flight *flight =
		srdma_flight_next_lost(&qp->flights, &serial);
	struct piece piece;
	struct srdma_wqe *w;
	struct srdma_op *op;
	int err;

	if (!flight || (srdma_cut_blocked(qp) && !flight->probe))
		return -ENOENT;
	piece = (struct piece){ flight->id, flight->offset, flight->len };
	w = srdma_qp_wqe(qp, flight->id);
	err = srdma_desc_is_answered(w->opcode)
		      ? cut_request(qp, &piece, &op)
		      : add_payload(qp, &piece, SRDMA_RESEND_FLIGHT, &op);
	if (err)
		return err;
	op->resend = SRDMA_RESEND_FLIGHT;
	op->flight = serial;
	if (!srdma_desc_is_answered(w->opcode))
		srdma_congestion_lost(&qp->sending, 1, flight->sent);
	srdma_flight_again(&qp->flights, flight);
	w->fetching++;
	return 0;
}

/* A range of a READ, or an atomic, whose answers did not come. The same. */
static int cut_missing(struct srdma_qp *qp)
{
	struct srdma_part *part = srdma_part_next(&qp->parts);
	struct piece piece;
	struct srdma_op *op;

	if (!part)
		return -ENOENT;
	piece = (struct piece){ part->request_id, part->from,
				part->until - part->from };
	if (cut_request(qp, &piece, &op)) {
		srdma_part_not_yet(&qp->parts, part);
		return -EAGAIN;
	}
	op->resend = SRDMA_RESEND_PART;
	srdma_congestion_lost(&qp->asking,
			      srdma_part_answers(&qp->parts, piece.len),
			      part->asked);
	return 0;
}

static int fetch_again(struct srdma_qp *qp)
{
	int err = 0;

	while (!err && qp->fetch.count < SRDMA_FETCH_DEPTH) {
		if (!srdma_op_share(qp, &qp->fetch))
			return -EAGAIN;
		err = cut_lost(qp);
		if (err == -ENOENT)
			err = cut_missing(qp);
	}
	return err == -ENOENT ? 0 : err;
}

/* Bytes of a part, which is answered in one burst (docs/protocol.md 5.5). */
static uint32_t part_most(const struct srdma_qp *qp)
{
	const uint32_t window = srdma_congestion_window(&qp->asking);
	const uint32_t n = window / 4 > SRDMA_CONGESTION_LEAST
				   ? window / 4
				   : SRDMA_CONGESTION_LEAST;

	if (qp->parts.ordered || n >= SRDMA_READ_PART / qp->parts.mtu)
		return SRDMA_READ_PART;
	return n * qp->parts.mtu;
}

/* Cut one packet of the request at sq_next. 0, -EBUSY, -EAGAIN, -EACCES. */
static int cut(struct srdma_qp *qp)
{
	struct srdma_wqe *w = srdma_qp_wqe(qp, qp->sq_next);
	int answered = srdma_desc_is_answered(w->opcode);
	uint32_t len;
	int err;

	if (!w->started && !may_start(qp, w))
		return -EBUSY;
	err = cut_len(qp, w, answered ? part_most(qp) : qp->peer_mtu, &len);
	if (!err)
		err = answered ? cut_part(qp, w, len) : cut_payload(qp, w, len);
	if (err)
		return err;
	if (!w->started) {
		w->started = 1;
		qp->sends += (uint32_t)srdma_desc_consumes_recv(w->opcode);
		qp->reads_open += (uint32_t)answered;
	}
	if (w->asked == w->length)
		qp->sq_next++;
	return 0;
}

/* Time counts from when the first request waits. */
static void starve(struct srdma_qp *qp)
{
	int starves = srdma_cut_starves(qp);

	if (starves && !qp->starving) {
		qp->progress = qp->relay->now;
		srdma_retry_arm(qp);
	}
	qp->starving = (uint8_t)starves;
}

/* The peer can hold one more, and not too many are under way. */
static int may_send(const struct srdma_qp *qp)
{
	return qp->fetch.count + qp->flights.count < qp->peer_window &&
	       qp->fetch.count + qp->flights.waiting <
		       srdma_congestion_window(&qp->sending);
}

/* For an op, and its flight. */
static int has_room(struct srdma_qp *qp)
{
	return srdma_op_share(qp, &qp->fetch) &&
	       !srdma_flight_make_room(&qp->flights, qp->fetch.count + 1);
}

int srdma_cut_fetch(struct srdma_qp *qp)
{
	int err = fetch_again(qp);

	while (!err && qp->sq_next < qp->sq_tail &&
	       qp->fetch.count < SRDMA_FETCH_DEPTH && may_send(qp))
		err = has_room(qp) ? cut(qp) : -EAGAIN;
	starve(qp);
	if (srdma_op_issue(qp, &qp->fetch))
		return -EAGAIN;
	return err == -EAGAIN ? err : 0;
}
