/*
 * Runs an active QP in two steps. srdma_pump_urgent(): inbound writes, then
 * control packets. srdma_pump_send(), when the first step of all active QPs is
 * done: responses, then requests, then completion records. Therefore no ack waits
 * for what others send (docs/protocol.md 5.6). Responses and requests wait for
 * the next turn when the QP's tenant used up its part of this one.
 */
#include <errno.h>

#include "path/connect.h"
#include "path/path.h"
#include "qp/inbound.h"
#include "relay/relay_impl.h"
#include "requester/requester.h"
#include "responder/responder.h"

/* 1: the path is validated, so requests and responses may leave. */
static int flows(const struct srdma_qp *qp)
{
	return srdma_qp_can(qp, SRDMA_QP_SENDS) &&
	       srdma_connect_validated(qp) && srdma_path_is_up(qp);
}

/* The DMA of an op is done. 0, or -EIO: the QP failed, and the op is gone. */
static int finish(struct srdma_qp *qp, const struct srdma_op *op)
{
	if (op->kind == SRDMA_OP_RETURN && op->reason) {
		srdma_qp_fail(qp, op->reason, op->request_id, 1);
		return -EIO;
	}
	if (op->kind == SRDMA_OP_RETURN)
		srdma_complete_returned(qp, op);
	else if (op->kind == SRDMA_OP_PLACE)
		srdma_responder_placed(qp, op);
	return 0;
}

/* Executes and places accepted requests. 0; -EAGAIN: call again. */
static int place(struct srdma_qp *qp)
{
	int more = srdma_responder_drain(qp);
	int err = srdma_inbound_issue(qp);
	const struct srdma_op *op;

	while ((op = srdma_inbound_head(qp)) && op->state == SRDMA_OP_DONE) {
		if (finish(qp, op))
			return 0;
		srdma_inbound_retire(qp);
	}
	if (op || more)
		return err ? err : more;
	if (srdma_qp_is_ending(qp))
		srdma_qp_end_now(qp);
	else
		srdma_responder_settle(qp);
	return 0;
}

/*
 * Control packets and responses of a QP may not starve each other. Acks of
 * requests for which no slot is free may fill the wire. If responses wait, they
 * leave before the control packets in the next turn, as they free slots.
 */
static int respond(struct srdma_qp *qp)
{
	struct srdma_relay_entry *e = srdma_qp_entry(qp);
	const int responses_first = e->responses_first;
	int again = 0;

	if (flows(qp))
		again |= srdma_respond_reads(qp);
	else
		srdma_respond_unfetch(qp);
	e->responses_first = (uint8_t)(srdma_respond_waits(qp) && flows(qp));
	if (responses_first && srdma_path_is_up(qp))
		again |= srdma_respond_control(qp);
	return again;
}

/* 1: requests wait for the end of the grace, and the QP event follows them. */
static int has_requests_in_grace(const struct srdma_qp *qp)
{
	return srdma_qp_is_in_grace(qp) && !srdma_post_is_empty(qp);
}

/* Writes the completion records that are due. -EAGAIN: the completion queue is
 * full. A failed QP completes nothing while DMA may still touch its buffers. */
static int complete(struct srdma_qp *qp)
{
	int err;

	if (srdma_qp_state(qp) == SRDMA_QP_ERR && srdma_qp_dmas(qp))
		return 0;
	err = srdma_complete_requests(qp);
	if (srdma_receive_queue_complete(qp))
		err = -EAGAIN;
	if (err || has_requests_in_grace(qp))
		return err;
	return srdma_qp_record_event(qp);
}

void srdma_pump_discard(struct srdma_qp *qp)
{
	srdma_requester_discard(qp);
	srdma_responder_discard(qp);
}

void srdma_pump_urgent(struct srdma_qp *qp)
{
	int again = 0;

	if (srdma_qp_state(qp) == SRDMA_QP_ERR)
		srdma_pump_discard(qp);
	else
		again |= place(qp);
	if (srdma_path_is_up(qp) && !srdma_qp_entry(qp)->responses_first)
		again |= srdma_respond_control(qp);
	if (again)
		srdma_qp_activate(qp);
}

enum srdma_qp_run srdma_pump_send(struct srdma_qp *qp)
{
	const int spent = srdma_qp_is_spent(qp);
	int again = respond(qp);

	if (flows(qp))
		again |= srdma_requester_send(qp);
	else
		srdma_requester_unfetch(qp);
	again |= complete(qp);
	if (!again && !srdma_qp_runs_again(qp))
		return SRDMA_QP_RAN;
	return spent ? SRDMA_QP_LATE : SRDMA_QP_AGAIN;
}
