/*
 * Stage respond (docs/protocol.md 2.4, 5): control packets - acks, NAK, CLOSE,
 * OPEN, PING - and responses to READs and atomics. They do not wait for own
 * requests.
 */
#include <errno.h>

#include "path/limit.h"
#include "path/path.h"
#include "path/probe.h"
#include "responder/responder_impl.h"

enum { RESPONSE_BURST = 64 }; /* responses of one QP in one turn */

struct control {
	uint8_t bit;  /* enum srdma_say */
	uint8_t kind; /* enum srdma_ack_kind */
	uint8_t flags;
	uint8_t final; /* may be sent in ERR */
};

static const struct control controls[] = {
	{ SRDMA_SAY_NAK, SRDMA_ACK_NAK, 0, 1 },
	{ SRDMA_SAY_CLOSE, SRDMA_ACK_CLOSE, 0, 1 },
	{ SRDMA_SAY_OPEN, SRDMA_ACK_OPEN, SRDMA_STH_ACK_NOW, 0 },
	{ SRDMA_SAY_PING, SRDMA_ACK_PING, SRDMA_STH_ACK_NOW, 0 },
	{ SRDMA_SAY_PROBE, SRDMA_ACK_PING, SRDMA_STH_ACK_NOW, 0 },
	{ SRDMA_SAY_ACK, SRDMA_ACK_ACK, 0, 0 },
};

/* A PING is answered by RNR if no receive is posted for the next message. */
static uint8_t kind_of(const struct srdma_responder *rs,
		       const struct control *c)
{
	return c->kind == SRDMA_ACK_ACK && rs->pinged &&
			       !srdma_receive_queue_is_ready(rs)
		       ? SRDMA_ACK_RNR
		       : c->kind;
}

static uint8_t reason_of(const struct srdma_qp_last *last,
			 const struct control *c)
{
	if (c->kind == SRDMA_ACK_NAK)
		return last->nak_reason;
	return c->kind == SRDMA_ACK_CLOSE ? last->close_reason : 0;
}

/* A PING to the candidate. If its limit permits none now, the next try follows
 * (probe.h). */
static int send_probe(struct srdma_responder *rs, struct srdma_packet *p)
{
	int err = srdma_path_send_probe(rs->qp, p);

	if (!err || err == -EAGAIN)
		srdma_qp_said(rs->qp, SRDMA_SAY_PROBE);
	rs->env->stats.acks_sent += !err;
	return err == -EAGAIN ? 0 : err;
}

static int send_control(struct srdma_responder *rs, const struct control *c)
{
	struct srdma_session *session = srdma_qp_session(rs->qp);
	const struct srdma_qp_last *last = srdma_qp_last(rs->qp);
	const int nak = c->kind == SRDMA_ACK_NAK;
	const struct srdma_position at = nak ? last->nak_at : rs->executed;
	struct srdma_stats *stats = &rs->env->stats;
	struct srdma_packet p = {
		.opcode = SRDMA_OP_ACKNOWLEDGE,
		.request_id = at.id,
		.offset = (uint32_t)at.offset,
		.flags = c->flags,
		.ack = {
			.kind = kind_of(rs, c),
			.reason = reason_of(last, c),
			.request_id = (uint32_t)at.id,
			.offset = (uint32_t)at.offset,
			.highest_pn = (uint32_t)srdma_session_highest(session),
			.recv_credit = srdma_receive_queue_credit(rs),
			.request_credit = (uint32_t)rs->executed.id +
					  SRDMA_REQUEST_CREDIT,
		},
	};
	int err;

	if (!c->final)
		srdma_sequence_gaps(rs, &p.ack);
	if (c->bit == SRDMA_SAY_PROBE)
		return send_probe(rs, &p);
	err = srdma_path_send(rs->qp, &p, NULL);
	if (err)
		return err;
	rs->advertised = p.ack.recv_credit;
	srdma_qp_said(rs->qp, c->bit);
	if (srdma_probe_owes(rs->qp) &&
	    srdma_qp_state(rs->qp) != SRDMA_QP_ERR) {
		srdma_qp_schedule(rs->qp, SRDMA_SAY_ACK);
		srdma_qp_activate(rs->qp);
	}
	rs->pinged = 0;
	stats->rnr_sent += p.ack.kind == SRDMA_ACK_RNR;
	stats->naks_sent += (uint64_t)nak;
	stats->acks_sent += (uint64_t)!nak;
	return 0;
}

/* 1: the packet is scheduled, and neither the end of the QP nor the limit of its
 * path forbids it. */
static int may_send(const struct srdma_qp *qp, const struct control *c)
{
	if (!(srdma_qp_scheduled(qp) & c->bit) ||
	    (srdma_qp_state(qp) == SRDMA_QP_ERR && !c->final))
		return 0;
	return c->bit == SRDMA_SAY_PROBE ||
	       !srdma_limit_is_held(qp, c->bit == SRDMA_SAY_OPEN);
}

int srdma_respond_control(struct srdma_qp *qp)
{
	struct srdma_responder *rs = srdma_qp_responder(qp);

	if (!srdma_qp_scheduled(qp))
		return 0;
	for (unsigned i = 0; i < sizeof(controls) / sizeof(*controls); i++) {
		const struct control *c = &controls[i];
		int err;

		if (!may_send(qp, c))
			continue;
		err = send_control(rs, c);
		if (err)
			return err;
	}
	return 0;
}

/* --- responses to READs and atomics --------------------------------------- */

static uint8_t opcode_at(const struct srdma_slot *s, uint32_t len)
{
	int first = s->next == s->start;
	int last = s->next + len == s->end;

	if (first)
		return last ? SRDMA_OP_READ_RESPONSE_ONLY
			    : SRDMA_OP_READ_RESPONSE_FIRST;
	return last ? SRDMA_OP_READ_RESPONSE_LAST
		    : SRDMA_OP_READ_RESPONSE_MIDDLE;
}

/* Adds the response to an atomic, which needs no DMA. 0 or -EAGAIN. */
static int fetch_original(struct srdma_responder *rs, struct srdma_slot *s)
{
	struct srdma_op *op =
		srdma_op_add(&rs->responses, rs->qp, SRDMA_OP_RESPOND);

	if (!op)
		return -EAGAIN;
	op->opcode = SRDMA_OP_ATOMIC_ACKNOWLEDGE;
	op->request_id = s->request_id;
	op->original = s->original;
	op->again = s->again;
	op->ends = 1;
	rs->slots_fetched++;
	return 0;
}

/* Adds the op of the next response packet of a slot. 0 or -EAGAIN. */
static int fetch_response(struct srdma_responder *rs, struct srdma_slot *s)
{
	struct srdma_port *host = rs->env->host;
	uint32_t len = s->end - s->next;
	struct srdma_buf *buf = NULL;
	struct srdma_op *op;

	if (s->atomic)
		return fetch_original(rs, s);
	if (len > rs->response_mtu)
		len = rs->response_mtu;
	if (len) {
		buf = host->ops->buf_get(host);
		if (!buf)
			return -EAGAIN;
	}
	op = srdma_op_add(&rs->responses, rs->qp, SRDMA_OP_RESPOND);
	if (!op) {
		if (buf)
			host->ops->buf_put(buf);
		return -EAGAIN;
	}
	op->buf = buf;
	op->addr = s->va + s->next;
	op->key = s->rkey;
	op->right = SRDMA_ACCESS_REMOTE_READ;
	op->len = len;
	op->allowed = s->allowed;
	op->again = s->again;
	op->opcode = opcode_at(s, len);
	op->request_id = s->request_id;
	op->offset = s->next;
	s->next += len;
	op->ends = s->next == s->end;
	rs->slots_fetched += op->ends;
	return 0;
}

static int fetch_responses(struct srdma_responder *rs)
{
	int err = 0;

	while (!err && rs->slots_fetched < rs->slots_ready &&
	       rs->responses.count < SRDMA_FETCH_DEPTH)
		err = srdma_op_share(rs->qp, &rs->responses)
			      ? fetch_response(
					rs,
					srdma_slot_at(rs, rs->slots_fetched))
			      : -EAGAIN;
	return srdma_op_issue(rs->qp, &rs->responses) ? -EAGAIN : err;
}

/* The slots with this index and behind are to be fetched again, the first of
 * them from this offset on. */
static void rewind_slots(struct srdma_responder *rs, uint32_t first,
			 uint32_t offset)
{
	for (uint32_t i = first; i <= rs->slots_fetched && i < rs->slots_ready;
	     i++) {
		struct srdma_slot *s = srdma_slot_at(rs, i);

		s->next = i == first ? offset : s->start;
	}
	rs->slots_fetched = first;
}

void srdma_respond_unfetch(struct srdma_qp *qp)
{
	struct srdma_responder *rs = srdma_qp_responder(qp);
	struct srdma_op *last = srdma_op_last_issued(&rs->responses);
	const struct srdma_op *first = last ? last->next : rs->responses.head;
	uint32_t slot = rs->slots_fetched;

	if (!first)
		return;
	for (const struct srdma_op *op = first; op; op = op->next)
		slot -= op->ends;
	rewind_slots(rs, slot, first->offset);
	srdma_op_cut(&rs->responses, last);
}

/* No response leaves now. -EAGAIN, or 0: there are none. */
static int wait_for_turn(struct srdma_responder *rs)
{
	if (srdma_op_scarce(rs->env))
		srdma_respond_unfetch(rs->qp);
	return rs->slots_ready ? -EAGAIN : 0;
}

/* 1: a response waits for nothing but room on the path. */
static int is_ready(const struct srdma_responder *rs)
{
	const struct srdma_op *op = rs->responses.head;

	return op ? op->state == SRDMA_OP_DONE : rs->slots_ready != 0;
}

/* The path has no room for a response. Returns as above. */
static int wait_for_room(struct srdma_responder *rs)
{
	rs->held_up |= is_ready(rs);
	return wait_for_turn(rs);
}

/* A response of the oldest slot left, or was dropped. */
static void responded(struct srdma_responder *rs, const struct srdma_op *op)
{
	rs->held_up = 0;
	srdma_inbound_progress(rs->qp);
	rs->slots[rs->slots_head].sent = op->offset + op->len;
	if (!op->ends)
		return;
	srdma_slot_pop(rs);
	if (rs->refusing || rs->reorder.head)
		srdma_qp_activate(rs->qp);
}

static int send_response(struct srdma_responder *rs, const struct srdma_op *op)
{
	struct srdma_packet p = {
		.opcode = op->opcode,
		.request_id = op->request_id,
		.offset = op->offset,
		.original = op->original,
		.payload_len = op->len,
	};
	int err = srdma_path_send(rs->qp, &p, op->buf ? op->buf->data : NULL);

	if (!err)
		responded(rs, op);
	return err;
}

/* The DMA of a response is done. If it failed, the QP fails, except that a
 * repeated response is dropped. 0, or -errno: no more responses leave now. */
static int finish_response(struct srdma_responder *rs,
			   const struct srdma_op *op)
{
	const struct srdma_position at = { op->request_id, srdma_op_start(op) };

	if (!op->reason)
		return send_response(rs, op);
	if (op->again) {
		responded(rs, op);
		return 0;
	}
	srdma_qp_nak(rs->qp, op->reason, at);
	return -EIO;
}

int srdma_respond_reads(struct srdma_qp *qp)
{
	struct srdma_responder *rs = srdma_qp_responder(qp);

	if (!rs->slots_ready)
		return 0;
	if (!srdma_path_has_room(qp))
		return wait_for_room(rs);
	for (int n = 0; n < RESPONSE_BURST && !srdma_qp_is_spent(qp);) {
		int err = fetch_responses(rs);
		struct srdma_op *op = rs->responses.head;

		if (!op || op->state != SRDMA_OP_DONE)
			return err;
		for (;
		     op && op->state == SRDMA_OP_DONE && !srdma_qp_is_spent(qp);
		     n++) {
			err = finish_response(rs, op);
			if (err == -EAGAIN)
				return wait_for_room(rs);
			if (err)
				return err == -EIO ? 0 : err;
			srdma_op_retire(&rs->responses);
			op = rs->responses.head;
		}
	}
	return wait_for_turn(rs);
}

int srdma_respond_waits(const struct srdma_qp *qp)
{
	const struct srdma_responder *rs = srdma_qp_responder(qp);

	return is_ready(rs) || (rs->held_up && rs->slots_ready);
}
