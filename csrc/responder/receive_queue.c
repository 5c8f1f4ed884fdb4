/* Receive queue of a QP (docs/local-interface.md 2.1). */
#include <errno.h>

#include "responder/responder_impl.h"

int srdma_receive_queue_make_sgls(struct srdma_responder *rs)
{
	if (!rs->rq_sgls)
		rs->rq_sgls = srdma_table_take(&rs->env->tables,
					       (size_t)rs->rq_mask + 1,
					       sizeof(*rs->rq_sgls));
	return rs->rq_sgls ? 0 : -ENOMEM;
}

void srdma_receive_queue_move(struct srdma_responder *to, uint64_t to_at,
			      struct srdma_responder *from, uint64_t from_at)
{
	struct srdma_rqe *e = srdma_responder_rqe(from, from_at);

	if (e->sges)
		to->rq_sgls[to_at & to->rq_mask] =
			from->rq_sgls[from_at & from->rq_mask];
	*srdma_responder_rqe(to, to_at) = *e;
	*e = (struct srdma_rqe){ 0 };
}

/* Keeps the SGL of the receive that is posted next. 0 or -ENOMEM. */
static int keep_sgl(struct srdma_responder *rs, const struct srdma_desc *d,
		    const uint8_t *behind)
{
	if (!d->sges)
		return 0;
	if (srdma_receive_queue_make_sgls(rs))
		return -ENOMEM;
	srdma_sgl_decode(rs->rq_sgls[rs->rq_tail & rs->rq_mask].sge, behind,
			 d->sges);
	return 0;
}

const struct srdma_sge *
srdma_receive_queue_sgl(const struct srdma_responder *rs)
{
	const uint64_t at = rs->rq_next & rs->rq_mask;

	return rs->rq[at].sges ? rs->rq_sgls[at].sge : NULL;
}

void srdma_receive_queue_free_sgls(struct srdma_responder *rs)
{
	if (!rs->rq_sgls) /* also of a responder whose creation failed */
		return;
	srdma_table_give(&rs->env->tables, rs->rq_sgls, (size_t)rs->rq_mask + 1,
			 sizeof(*rs->rq_sgls));
	rs->rq_sgls = NULL;
}

/* The receive completes with this reason. */
static void fail_receive(struct srdma_rqe *e, enum srdma_reason reason)
{
	e->done = 1;
	e->opcode = SRDMA_WC_RECV;
	e->reason = (uint8_t)reason;
}

/* RFC 5042 R6.4.3.1-1 */
void srdma_receive_queue_post(struct srdma_qp *qp, const struct srdma_desc *d,
			      const uint8_t *behind)
{
	struct srdma_responder *rs = srdma_qp_responder(qp);
	struct srdma_rqe *e = srdma_responder_rqe(rs, rs->rq_tail);

	if (rs->shared) {
		srdma_qp_fail(qp, SRDMA_REASON_BAD_DESCRIPTOR, SRDMA_OLDEST, 1);
		return;
	}
	if (rs->rq_tail - rs->rq_head == rs->rq_depth) {
		srdma_qp_fail(qp, SRDMA_REASON_QUEUE_FULL, SRDMA_NONE, 1);
		return;
	}
	*e = (struct srdma_rqe){ .id = d->id,
				 .addr = d->local_addr,
				 .length = d->length,
				 .key = d->local_key,
				 .sges = d->sges };
	if (keep_sgl(rs, d, behind)) {
		e->sges = 0;
		fail_receive(e, SRDMA_REASON_LOCAL_DMA);
		srdma_qp_fail(qp, SRDMA_REASON_LOCAL_DMA, SRDMA_NONE, 1);
	}
	rs->rq_tail++;
	srdma_shared_queue_serve(rs);
	/* Advertises new credit when the peer has used at least half of it. */
	if (srdma_qp_state(qp) == SRDMA_QP_RTS &&
	    (rs->advertised - (uint32_t)rs->rq_next) * 2 <=
		    rs->rq_tail - rs->rq_next)
		srdma_qp_schedule(qp, SRDMA_SAY_ACK);
}

/* RFC 5042 A6.4.3.1a */
void srdma_receive_queue_advertise(struct srdma_qp *qp)
{
	const struct srdma_responder *rs = srdma_qp_responder(qp);

	if (rs->advertised != srdma_receive_queue_credit(rs))
		srdma_qp_schedule(qp, SRDMA_SAY_ACK);
}

int srdma_receive_queue_is_ready(const struct srdma_responder *rs)
{
	const struct srdma_responder *from = rs->shared ? rs->shared : rs;

	return rs->rq_next != rs->rq_tail || from->rq_next != from->rq_tail;
}

uint32_t srdma_receive_queue_credit(const struct srdma_responder *rs)
{
	return (uint32_t)(rs->shared ? rs->rq_next + SRDMA_REQUEST_CREDIT
				     : rs->rq_tail);
}

void srdma_receive_queue_done(struct srdma_responder *rs,
			      const struct srdma_op *op)
{
	struct srdma_rqe *e = srdma_responder_rqe(rs, rs->rq_done++);

	e->done = 1;
	e->byte_len = op->offset;
	e->with_imm = (op->traits & SRDMA_T_IMM) != 0;
	e->imm = op->dma_len;
	e->opcode = (op->traits & SRDMA_T_WRITE) ? SRDMA_WC_RECV_RDMA_WITH_IMM
						 : SRDMA_WC_RECV;
}

void srdma_receive_queue_failed(struct srdma_responder *rs,
				enum srdma_reason reason)
{
	fail_receive(srdma_responder_rqe(rs, rs->rq_done), reason);
}

void srdma_receive_queue_too_short(struct srdma_responder *rs)
{
	fail_receive(srdma_responder_rqe(rs, rs->rq_next),
		     SRDMA_REASON_RECV_TOO_SHORT);
}

int srdma_receive_queue_complete(struct srdma_qp *qp)
{
	struct srdma_responder *rs = srdma_qp_responder(qp);
	const int failed = srdma_qp_state(qp) == SRDMA_QP_ERR;

	/* srdma_shared_queue_end() gives them back. */
	if (rs->shared && srdma_qp_is_silent(qp))
		return 0;
	for (; rs->rq_head < rs->rq_tail; rs->rq_head++) {
		const struct srdma_rqe *e =
			srdma_responder_rqe(rs, rs->rq_head);
		struct srdma_record rec = {
			.id = e->id,
			.opcode = e->done ? e->opcode : SRDMA_WC_RECV,
			.flags = e->with_imm ? SRDMA_RECORD_WITH_IMM : 0,
			.byte_len = e->byte_len,
			.imm = e->imm,
		};

		if (!e->done && !failed)
			return 0;
		if (srdma_qp_record(qp, &rec,
				    e->done ? e->reason : SRDMA_REASON_FLUSHED))
			return -EAGAIN;
		if (rs->shared) /* it may take another one */
			srdma_qp_activate(qp);
	}
	return 0;
}

int srdma_receive_queue_is_empty(const struct srdma_qp *qp)
{
	const struct srdma_responder *rs = srdma_qp_responder(qp);

	return rs->rq_head == rs->rq_tail;
}

uint32_t srdma_receive_queue_depth(const struct srdma_qp *qp)
{
	return srdma_qp_responder(qp)->rq_depth;
}
