/*
 * A peer that is gone. The worker tells at once that a peer closed its QP or
 * that the path is lost, and flushes requests and receives. With an RDMA device a
 * program notices it when it sends: the request completes with
 * IBV_WC_RETRY_EXC_ERR, and then receives are flushed. Programs depend on it: one
 * of two ends its QP first. So receives that were flushed are held until the
 * worker's QP event says why, which follows them, and on a loss until a request
 * fails or the program moves the QP to error.
 */
#include "verbs/objects.h"
#include "wire/reason.h"

/* 1: the reason is that of a peer that does not answer. */
static int is_loss(uint32_t reason)
{
	return reason == SRDMA_REASON_PEER_CLOSED ||
	       reason == SRDMA_REASON_PEER_HOST_GONE ||
	       reason == SRDMA_REASON_WIRE_LOST ||
	       reason == SRDMA_REASON_PEER_SILENT;
}

static void put(struct verbs_qp *qp, const struct ibv_wc *wc)
{
	const int recv = wc->opcode & IBV_WC_RECV;

	if (recv && qp->ibv.srq)
		verbs_srq_done((struct verbs_srq *)qp->ibv.srq);
	else
		qp->recvs -= recv != 0;
	verbs_cq_put(
		(struct verbs_cq *)(recv ? qp->ibv.recv_cq : qp->ibv.send_cq),
		wc);
}

void verbs_loss_known(struct verbs_qp *qp)
{
	struct ibv_wc wc = { .status = IBV_WC_WR_FLUSH_ERR,
			     .opcode = IBV_WC_RECV,
			     .vendor_err = SRDMA_REASON_FLUSHED,
			     .qp_num = qp->ibv.qp_num };

	if (qp->ibv.srq && qp->ibv.state != IBV_QPS_ERR)
		verbs_event_put(verbs_root_of(qp->ibv.context), &qp->last_wqe,
				IBV_EVENT_QP_LAST_WQE_REACHED);
	qp->ibv.state = IBV_QPS_ERR;
	for (uint32_t i = 0; i < qp->held; i++) {
		wc.wr_id = qp->flushed[i];
		put(qp, &wc);
	}
	qp->held = 0;
}

void verbs_loss_sort(struct verbs_qp *qp, struct ibv_wc *wc)
{
	const int flushed = wc->status == IBV_WC_WR_FLUSH_ERR;

	if (wc->status == IBV_WC_SUCCESS || qp->ibv.state == IBV_QPS_ERR) {
		put(qp, wc);
		return;
	}
	if (flushed && (wc->opcode & IBV_WC_RECV)) {
		if (qp->held < qp->rq) {
			qp->flushed[qp->held++] = wc->wr_id;
			return;
		}
		verbs_loss_known(qp);
		put(qp, wc);
		return;
	}
	if (flushed && qp->peer_gone)
		wc->status = IBV_WC_RETRY_EXC_ERR;
	put(qp, wc);
	verbs_loss_known(qp);
}

void verbs_loss_event(struct verbs_qp *qp, uint32_t reason)
{
	qp->peer_gone = is_loss(reason);
	if (!qp->peer_gone)
		verbs_loss_known(qp);
}
