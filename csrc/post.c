/*
 * What the own host posts: a descriptor becomes a receive or a request
 * (docs/protocol.md 9.1).
 */
#include <errno.h>
#include <string.h>

#include "grant.h"
#include "relay_impl.h"

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
	if (srdma_desc_is_answered(d->opcode))
		want.right = SRDMA_ACCESS_LOCAL_WRITE;
	return !srdma_mr_check(&qp->relay->mrs, &want, &mr);
}

static uint8_t right_of(uint8_t desc_op)
{
	if (srdma_desc_is_atomic(desc_op))
		return SRDMA_MEMKEY_ATOMIC;
	return desc_op == SRDMA_DESC_READ ? SRDMA_MEMKEY_READ
					  : SRDMA_MEMKEY_WRITE;
}

int srdma_post_grant(const struct srdma_qp *qp, const struct srdma_wqe *w,
		     uint32_t offset, uint32_t len, struct srdma_grant_use *use)
{
	struct srdma_grant_want want = {
		.handle = w->capability,
		.rkey = w->rkey,
		.right = right_of(w->opcode),
		.addr = w->remote_addr + offset,
		.len = len,
	};

	return srdma_grant_find(&qp->leg->grants, &want, use);
}

/* Whether the request may prove what it asks; found again at each packet. What
 * is not cut, an atomic, must lie in one node. */
static int capability_ok(const struct srdma_qp *qp, const struct srdma_wqe *w)
{
	struct srdma_grant_use use;

	if (!w->capability)
		return 1;
	if (!(qp->mode & SRDMA_MODE_MEM) ||
	    srdma_post_grant(qp, w, 0, w->length, &use))
		return 0;
	return !srdma_desc_is_atomic(w->opcode) || use.run == w->length;
}

/* What came with the descriptor; 0: there is no memory for it. */
static int keep_inline(struct srdma_qp *qp, uint64_t id,
		       const struct srdma_desc *d, const uint8_t *payload)
{
	if (!(d->flags & SRDMA_DESC_INLINE) || d->length > SRDMA_MAX_INLINE)
		return 1;
	if (srdma_qp_make_inline(qp))
		return 0;
	memcpy(qp->sq_inline + (id & qp->sq_mask) * SRDMA_MAX_INLINE, payload,
	       d->length);
	return 1;
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
				 .swap_add = d->swap_add,
				 .compare = d->compare,
				 .opcode = d->opcode,
				 .flags = d->flags };
	qp->sq_tail++;
	if (!keep_inline(qp, id, d, payload))
		srdma_qp_fail(qp, SRDMA_REASON_LOCAL_DMA, id, 1);
	if (qp->state == SRDMA_QP_INIT)
		srdma_qp_fail(qp, SRDMA_REASON_QP_STATE, id, 1);
	else if (d->length > SRDMA_MAX_MESSAGE)
		srdma_qp_fail(qp, SRDMA_REASON_MESSAGE_TOO_LONG, id, 1);
	else if (!local_ok(qp, d))
		srdma_qp_fail(qp, SRDMA_REASON_LOCAL_KEY, id, 1);
	else if (!capability_ok(qp, w))
		srdma_qp_fail(qp, SRDMA_REASON_BAD_CAPABILITY, id, 1);
	srdma_relay_wake_qp(qp, w->deadline);
}

void srdma_post(struct srdma_qp *qp, const struct srdma_desc *d,
		const uint8_t *payload)
{
	/* Silence counts from when somebody waits. */
	if (qp->sq_head == qp->sq_tail && qp->rq_head == qp->rq_tail) {
		qp->heard = qp->relay->now;
		srdma_relay_wake_qp(qp, qp->relay->now + SRDMA_SECOND);
	}
	if (d->opcode == SRDMA_DESC_RECV)
		post_recv(qp, d);
	else
		post_send(qp, d, payload);
	srdma_relay_activate(qp);
}
