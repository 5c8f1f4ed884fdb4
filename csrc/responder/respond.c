/*
 * What a target says, target to wire: acks, NAKs and the rest of the
 * control packets, the data of READs, and what atomics found (docs/protocol.md
 * 2.4, 5). None of it waits behind requests.
 */
#include <errno.h>

#include "relay/relay_impl.h"

enum { ANSWER_BURST = 64 };

struct control {
	uint8_t bit;  /* enum srdma_say */
	uint8_t kind; /* enum srdma_ack_kind */
	uint8_t flags;
	uint8_t last_words; /* may be sent in ERR */
};

static const struct control controls[] = {
	{ SRDMA_SAY_NAK, SRDMA_ACK_NAK, 0, 1 },
	{ SRDMA_SAY_CLOSE, SRDMA_ACK_CLOSE, 0, 1 },
	{ SRDMA_SAY_OPEN, SRDMA_ACK_OPEN, SRDMA_STH_ACK_NOW, 0 },
	{ SRDMA_SAY_PING, SRDMA_ACK_PING, SRDMA_STH_ACK_NOW, 0 },
	{ SRDMA_SAY_ACK, SRDMA_ACK_ACK, 0, 0 },
};

/* A PING is told if no receive is posted for the next message. */
static uint8_t kind_of(const struct srdma_qp *qp, const struct control *c)
{
	return c->kind == SRDMA_ACK_ACK && qp->asked &&
			       qp->rq_next == qp->rq_tail
		       ? SRDMA_ACK_RNR
		       : c->kind;
}

static int emit_control(struct srdma_qp *qp, const struct control *c)
{
	int nak = c->kind == SRDMA_ACK_NAK;
	uint64_t id = nak ? qp->nak_id : qp->done_id;
	uint32_t offset = nak ? qp->nak_offset : qp->done_offset;
	struct srdma_packet p = {
		.opcode = SRDMA_OP_ACKNOWLEDGE,
		.request_id = id,
		.offset = offset,
		.flags = c->flags,
		.ack = {
			.kind = kind_of(qp, c),
			.request_id = (uint32_t)id,
			.offset = offset,
			.highest_pn = (uint32_t)srdma_session_highest(
				qp->session),
			.recv_credit = (uint32_t)qp->rq_tail,
			.request_credit = (uint32_t)qp->done_id +
					  SRDMA_REQUEST_CREDIT,
		},
	};
	int err;

	if (!c->last_words)
		srdma_sequence_gaps(qp, &p.ack);
	if (nak)
		p.ack.reason = qp->nak_reason;
	if (c->kind == SRDMA_ACK_CLOSE)
		p.ack.reason = qp->close_reason;
	err = srdma_path_send(qp, &p, NULL);
	if (err)
		return err;
	qp->advertised = (uint32_t)qp->rq_tail;
	if (c->last_words)
		qp->said = qp->relay->now;
	/* Every kind carries what an ack does. */
	qp->ctl &= (uint8_t) ~(c->bit | SRDMA_SAY_ACK);
	qp->asked = 0;
	qp->relay->stats.rnr_sent += p.ack.kind == SRDMA_ACK_RNR;
	if (nak)
		qp->relay->stats.naks_sent++;
	else
		qp->relay->stats.acks_sent++;
	return 0;
}

int srdma_respond_control(struct srdma_qp *qp)
{
	for (unsigned i = 0; i < sizeof(controls) / sizeof(*controls); i++) {
		const struct control *c = &controls[i];
		int err;

		if (!(qp->ctl & c->bit) ||
		    (qp->state == SRDMA_QP_ERR && !c->last_words))
			continue;
		err = emit_control(qp, c);
		if (err)
			return err;
	}
	return 0;
}

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

/* The answer to an atomic is there already. 0 or -EAGAIN. */
static int fetch_original(struct srdma_qp *qp, struct srdma_slot *s)
{
	struct srdma_op *op = srdma_op_add(qp, SRDMA_OP_RESPOND);

	if (!op)
		return -EAGAIN;
	op->opcode = SRDMA_OP_ATOMIC_ACKNOWLEDGE;
	op->request_id = s->request_id;
	op->original = s->original;
	op->again = s->again;
	qp->slots_fetched++;
	return 0;
}

/* Start the DMA of the next packet of a slot. 0 or -EAGAIN. */
static int fetch_answer(struct srdma_qp *qp, struct srdma_slot *s)
{
	struct srdma_port *host = qp->relay->host;
	uint32_t len = s->end - s->next;
	struct srdma_buf *buf = NULL;
	struct srdma_op *op;

	if (s->atomic)
		return fetch_original(qp, s);
	if (len > qp->answer_mtu)
		len = qp->answer_mtu;
	if (len) {
		buf = host->ops->buf_get(host);
		if (!buf)
			return -EAGAIN;
	}
	op = srdma_op_add(qp, SRDMA_OP_RESPOND);
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
	if (s->next == s->end)
		qp->slots_fetched++;
	return 0;
}

static int fetch_answers(struct srdma_qp *qp)
{
	int err = 0;

	while (!err && qp->slots_fetched < qp->slots_ready &&
	       qp->answer.count < SRDMA_FETCH_DEPTH) {
		uint32_t at = (qp->slots_head + qp->slots_fetched) %
			      qp->relay->params.reads;

		err = srdma_op_share(qp, &qp->answer)
			      ? fetch_answer(qp, &qp->slots[at])
			      : -EAGAIN;
	}
	return srdma_op_issue(qp, &qp->answer) ? -EAGAIN : err;
}

/* One answer less to give. */
static void answered(struct srdma_qp *qp, const struct srdma_op *op)
{
	qp->served = qp->relay->now;
	qp->slots[qp->slots_head].sent = op->offset + op->len;
	if (!(srdma_wire_traits(op->opcode) & SRDMA_T_LAST))
		return;
	qp->slots_head = (qp->slots_head + 1) % qp->relay->params.reads;
	qp->slots_count--;
	qp->slots_ready--;
	qp->slots_fetched--;
	if (qp->refusing || qp->beyond.head)
		srdma_relay_activate(qp);
}

static int emit_answer(struct srdma_qp *qp, const struct srdma_op *op)
{
	struct srdma_packet p = {
		.opcode = op->opcode,
		.request_id = op->request_id,
		.offset = op->offset,
		.original = op->original,
		.payload_len = op->len,
	};
	int err = srdma_path_send(qp, &p, op->buf ? op->buf->data : NULL);

	if (!err)
		answered(qp, op);
	return err;
}

/* What was fetched for an answer: sent, or, of one given again, not if it
 * failed. 0, or why nothing more is sent now. */
static int finish_answer(struct srdma_qp *qp, const struct srdma_op *op)
{
	if (!op->reason)
		return emit_answer(qp, op);
	if (op->again) {
		answered(qp, op);
		return 0;
	}
	srdma_qp_nak(qp, op->reason, op->request_id, srdma_op_start(op));
	return -EIO;
}

int srdma_respond_reads(struct srdma_qp *qp)
{
	for (int n = 0; n < ANSWER_BURST;) {
		int err = fetch_answers(qp);
		struct srdma_op *op = qp->answer.head;

		if (!op || op->state != SRDMA_OP_DONE)
			return err;
		for (; op && op->state == SRDMA_OP_DONE; n++) {
			err = finish_answer(qp, op);
			if (err)
				return err == -EIO ? 0 : err;
			srdma_op_retire(&qp->answer);
			op = qp->answer.head;
		}
	}
	return -EAGAIN;
}
