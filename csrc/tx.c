/*
 * Own requests, host to wire: a descriptor becomes a request, a request is
 * cut into packets, a packet's payload is fetched from the host, sealed and
 * sent (docs/protocol.md 5).
 */
#include <errno.h>
#include <string.h>

#include "grant.h"
#include "relay_impl.h"

enum { TX_BURST = 64 }; /* packets of one QP in one turn */

static int consumes_recv(uint8_t desc_op)
{
	return desc_op == SRDMA_DESC_SEND || desc_op == SRDMA_DESC_SEND_IMM ||
	       desc_op == SRDMA_DESC_WRITE_IMM;
}

static void post_recv(struct srdma_qp *qp, const struct srdma_desc *d)
{
	struct srdma_rqe *e = srdma_qp_rqe(qp, qp->rq_tail);

	if (qp->rq_tail - qp->rq_head == qp->rq_depth) {
		srdma_qp_fail(qp, SRDMA_REASON_QUEUE_FULL, SRDMA_NONE, 1);
		return;
	}
	*e = (struct srdma_rqe){ .id = d->id,
				 .addr = d->local_addr,
				 .length = d->length,
				 .key = d->local_key };
	qp->rq_tail++;
	/* Tell the peer before it starves. */
	if (qp->state == SRDMA_QP_RTS &&
	    (qp->advertised - (uint32_t)qp->rq_next) * 2 <=
		    qp->rq_tail - qp->rq_next)
		qp->ctl |= SRDMA_SAY_ACK;
}

/* Whether the local buffer may be used so; checked again at each DMA. */
static int local_ok(struct srdma_qp *qp, const struct srdma_desc *d)
{
	struct srdma_mr_want want = { .leg = qp->leg,
				      .qpn = qp->qpn,
				      .key = d->local_key,
				      .addr = d->local_addr,
				      .len = d->length };
	struct srdma_mr *mr;

	if (!d->length || (d->flags & SRDMA_DESC_INLINE))
		return 1;
	if (d->opcode == SRDMA_DESC_READ)
		want.right = SRDMA_ACCESS_LOCAL_WRITE;
	return !srdma_mr_check(&qp->relay->mrs, &want, &mr);
}

/* What a request's capability grants of its bytes from offset on. */
static int find_grant(const struct srdma_qp *qp, const struct srdma_wqe *w,
		      uint32_t offset, uint32_t len,
		      struct srdma_grant_use *use)
{
	struct srdma_grant_want want = {
		.handle = w->capability,
		.rkey = w->rkey,
		.right = w->opcode == SRDMA_DESC_READ ? SRDMA_MEMKEY_READ
						      : SRDMA_MEMKEY_WRITE,
		.addr = w->remote_addr + offset,
		.len = len,
	};

	return srdma_grant_find(&qp->leg->grants, &want, use);
}

/* Whether the request may prove what it asks; found again at each packet. */
static int capability_ok(const struct srdma_qp *qp, const struct srdma_wqe *w)
{
	struct srdma_grant_use use;

	if (!w->capability)
		return 1;
	return (qp->mode & SRDMA_MODE_MEM) &&
	       !find_grant(qp, w, 0, w->length, &use);
}

static void post_send(struct srdma_qp *qp, const struct srdma_desc *d,
		      const uint8_t *payload)
{
	uint64_t id = qp->sq_tail;
	struct srdma_wqe *w = srdma_qp_wqe(qp, id);

	if (qp->sq_tail - qp->sq_head == qp->sq_depth) {
		srdma_qp_fail(qp, SRDMA_REASON_QUEUE_FULL, SRDMA_OLDEST, 1);
		return;
	}
	*w = (struct srdma_wqe){ .id = d->id,
				 .local_addr = d->local_addr,
				 .remote_addr = d->remote_addr,
				 .deadline = qp->relay->now + qp->timeout,
				 .length = d->length,
				 .local_key = d->local_key,
				 .rkey = d->rkey,
				 .imm = d->imm,
				 .capability = d->capability,
				 .opcode = d->opcode,
				 .flags = d->flags };
	if ((d->flags & SRDMA_DESC_INLINE) && d->length <= SRDMA_MAX_IMMEDIATE)
		memcpy(qp->sq_inline + (id & qp->sq_mask) * SRDMA_MAX_IMMEDIATE,
		       payload, d->length);
	qp->sq_tail++;
	if (qp->state == SRDMA_QP_INIT)
		srdma_qp_fail(qp, SRDMA_REASON_QP_STATE, id, 1);
	else if (d->length > SRDMA_MAX_MESSAGE)
		srdma_qp_fail(qp, SRDMA_REASON_MESSAGE_TOO_LONG, id, 1);
	else if (!local_ok(qp, d))
		srdma_qp_fail(qp, SRDMA_REASON_LOCAL_KEY, id, 1);
	else if (!capability_ok(qp, w))
		srdma_qp_fail(qp, SRDMA_REASON_BAD_CAPABILITY, id, 1);
	srdma_relay_wake_at(qp->relay, w->deadline);
}

void srdma_tx_post(struct srdma_qp *qp, const struct srdma_desc *d,
		   const uint8_t *payload)
{
	/* Silence counts from when somebody waits. */
	if (qp->sq_head == qp->sq_tail && qp->rq_head == qp->rq_tail) {
		qp->heard = qp->relay->now;
		srdma_relay_wake_at(qp->relay, qp->relay->now + SRDMA_SECOND);
	}
	if (d->opcode == SRDMA_DESC_RECV)
		post_recv(qp, d);
	else
		post_send(qp, d, payload);
	srdma_relay_activate(qp);
}

int srdma_tx_emit(struct srdma_qp *qp, struct srdma_packet *p,
		  const uint8_t *payload)
{
	struct srdma_relay *r = qp->relay;
	uint8_t *out = r->wire->ops->reserve(qp->wire);
	int len;

	if (!out)
		return -EAGAIN;
	len = srdma_session_seal(qp->session, p, payload, out,
				 SRDMA_MAX_PACKET);
	if (len < 0) {
		/* Nothing can be sealed any more, a CLOSE neither. */
		srdma_qp_fail(qp,
			      len == -EKEYEXPIRED ? SRDMA_REASON_KEY_LIMIT
						  : SRDMA_REASON_PROVIDER,
			      SRDMA_OLDEST, 0);
		qp->ctl = 0;
		return len;
	}
	r->wire->ops->commit(qp->wire, (uint32_t)len);
	if (qp->level == SRDMA_LEVEL_NONE) {
		r->stats.packets_unprotected_sent++;
	} else {
		r->stats.packets_sealed++;
		r->stats.bytes_sealed += p->payload_len;
		r->stats.proofs_made += (p->flags & SRDMA_STH_PROOF) != 0;
	}
	return 0;
}

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
	[SRDMA_DESC_READ] = { SRDMA_OP_READ_REQUEST, SRDMA_OP_READ_REQUEST,
			      SRDMA_OP_READ_REQUEST, SRDMA_OP_READ_REQUEST },
	[SRDMA_DESC_SEND] = { SRDMA_OP_SEND_FIRST, SRDMA_OP_SEND_MIDDLE,
			      SRDMA_OP_SEND_LAST, SRDMA_OP_SEND_ONLY },
	[SRDMA_DESC_SEND_IMM] = { SRDMA_OP_SEND_FIRST, SRDMA_OP_SEND_MIDDLE,
				  SRDMA_OP_SEND_LAST_IMM,
				  SRDMA_OP_SEND_ONLY_IMM },
};

static uint8_t opcode_at(const struct srdma_wqe *w, uint32_t len)
{
	const struct opcodes *o = &opcodes[w->opcode];
	int first = w->asked == 0;
	int last = w->asked + len == w->length;

	if (first)
		return last ? o->only : o->first;
	return last ? o->last : o->middle;
}

/* Whether the peer and the rules let this request begin. */
static int may_start(const struct srdma_qp *qp, const struct srdma_wqe *w)
{
	if ((w->flags & SRDMA_DESC_FENCE) && qp->reads_open)
		return 0;
	if ((int32_t)(qp->request_credit - (uint32_t)qp->sq_next) <= 0)
		return 0;
	return !consumes_recv(w->opcode) ||
	       (int32_t)(qp->recv_credit - qp->sends) > 0;
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
	if (find_grant(qp, w, w->asked, *len, &use)) {
		srdma_qp_fail(qp, SRDMA_REASON_BAD_CAPABILITY, qp->sq_next, 1);
		return -EACCES;
	}
	*len = (uint32_t)use.run;
	return 0;
}

/* Ask for the next part of a READ. 0, or -EBUSY: the peer is full. */
static int cut_read(struct srdma_qp *qp, struct srdma_wqe *w, uint32_t len)
{
	struct srdma_part *part;
	struct srdma_op *op;
	uint32_t packets;

	packets = len ? (len + qp->mtu - 1) / qp->mtu : 1;
	if (qp->parts_count == qp->peer_reads ||
	    (qp->parts_count &&
	     qp->answers_due + packets > qp->relay->params.window))
		return -EBUSY;
	op = srdma_op_add(qp, SRDMA_OP_FETCH);
	if (!op)
		return -EAGAIN;
	op->opcode = SRDMA_OP_READ_REQUEST;
	op->request_id = qp->sq_next;
	op->offset = w->asked;
	op->dma_len = len;
	part = &qp->parts[(qp->parts_head + qp->parts_count++) %
			  qp->peer_reads];
	*part = (struct srdma_part){ .request_id = qp->sq_next,
				     .start = w->asked,
				     .next = w->asked,
				     .end = w->asked + len,
				     .packets = packets };
	qp->answers_due += packets;
	w->asked += len;
	return 0;
}

static int cut_payload(struct srdma_qp *qp, struct srdma_wqe *w, uint32_t len)
{
	struct srdma_port *host = qp->relay->host;
	struct srdma_buf *buf = NULL;
	struct srdma_op *op;

	if (len && !(w->flags & SRDMA_DESC_INLINE)) {
		buf = host->ops->buf_get(host);
		if (!buf)
			return -EAGAIN;
	}
	op = srdma_op_add(qp, SRDMA_OP_FETCH);
	if (!op) {
		if (buf)
			host->ops->buf_put(buf);
		return -EAGAIN;
	}
	op->buf = buf;
	if (!buf && len)
		op->data = qp->sq_inline +
			   (qp->sq_next & qp->sq_mask) * SRDMA_MAX_IMMEDIATE +
			   w->asked;
	op->addr = w->local_addr + w->asked;
	op->key = w->local_key;
	op->len = len;
	op->opcode = opcode_at(w, len);
	op->request_id = qp->sq_next;
	op->offset = w->asked;
	op->dma_len = w->length;
	w->asked += len;
	return 0;
}

/* Cut one packet of the request at sq_next. 0, -EBUSY, -EAGAIN, -EACCES. */
static int cut(struct srdma_qp *qp)
{
	struct srdma_wqe *w = srdma_qp_wqe(qp, qp->sq_next);
	int read = w->opcode == SRDMA_DESC_READ;
	uint32_t len;
	int err;

	if (!w->started && !may_start(qp, w))
		return -EBUSY;
	err = cut_len(qp, w, read ? SRDMA_READ_PART : qp->peer_mtu, &len);
	if (!err)
		err = read ? cut_read(qp, w, len) : cut_payload(qp, w, len);
	if (err)
		return err;
	if (!w->started) {
		w->started = 1;
		qp->sends += (uint32_t)consumes_recv(w->opcode);
		qp->reads_open += (uint32_t)read;
	}
	if (w->asked == w->length)
		qp->sq_next++;
	return 0;
}

static int fetch(struct srdma_qp *qp)
{
	int err = 0;

	while (!err && qp->sq_next < qp->sq_tail &&
	       qp->fetch.count < SRDMA_FETCH_DEPTH &&
	       qp->fetch.count + qp->inflight_count < qp->peer_window)
		err = srdma_op_share(qp, &qp->fetch) ? cut(qp) : -EAGAIN;
	if (srdma_op_issue(qp, &qp->fetch))
		return -EAGAIN;
	return err == -EAGAIN ? err : 0;
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
	if (find_grant(qp, w, op->offset, len, &use)) {
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

static int emit_request(struct srdma_qp *qp, const struct srdma_op *op)
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
		.payload_len = op->len,
	};
	int read = op->opcode == SRDMA_OP_READ_REQUEST;
	uint32_t len = read ? op->dma_len : op->len;
	uint32_t end = op->offset + len;
	int err = prove(qp, op, len, &p);

	if (!err)
		err = srdma_tx_emit(qp, &p, op->buf ? op->buf->data : op->data);
	if (err) /* the op may be gone with its QP */
		return err;
	qp->inflight[(qp->inflight_head + qp->inflight_count++) %
		     qp->peer_window] = p.pn;
	qp->parts_sent += (uint32_t)read;
	if (end == w->length)
		qp->sent_id = p.request_id + 1;
	return 0;
}

int srdma_tx_requests(struct srdma_qp *qp)
{
	int err;

	for (int n = 0; n < TX_BURST;) {
		struct srdma_op *op;

		err = fetch(qp);
		op = qp->fetch.head;
		if (!op || op->state != SRDMA_OP_DONE)
			return err;
		for (; op && op->state == SRDMA_OP_DONE; n++) {
			if (op->reason) {
				srdma_qp_fail(qp, op->reason, op->request_id,
					      1);
				return 0;
			}
			err = emit_request(qp, op);
			if (err)
				return err;
			srdma_op_retire(&qp->fetch);
			op = qp->fetch.head;
		}
	}
	return -EAGAIN;
}
