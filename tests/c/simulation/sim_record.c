#include <string.h>

#include "support/inside.h"
#include "simulation/sim_host.h"
#include "simulation/sim_memory.h"

/* A request succeeded: all its effects must be visible. */
static void succeeded(struct sim_qp *qp, struct sim_end *e, struct sim_wr *wr)
{
	struct sim *w = e->leg->w;
	struct sim_end *peer = sim_host_peer(qp, e->leg->side);

	SIM_CHECK(w, wr->legal, "an illegal request succeeded");
	if (sim_host_takes_recv(wr->op)) {
		SIM_CHECK(w, wr->message < peer->rq.tail,
			  "no RECV was posted for this message");
		SIM_CHECK(w,
			  !peer->rq.failed || wr->message < peer->rq.failed_at,
			  "a message arrived but its RECV failed");
	}
	SIM_CHECK(w, !wr->counter || wr->executed || peer->leg->tainted,
		  "an atomic succeeded but was not executed");
	if (srdma_desc_is_answered(wr->op))
		sim_memory_arrived(e->leg, wr->local, wr->len, "response");
	else if (wr->remote)
		sim_memory_arrived(peer->leg, wr->remote, wr->len, "WRITE");
	else if (wr->message >= peer->rq.head && !peer->gone)
		sim_memory_arrived(peer->leg,
				   sim_host_wr(&peer->rq, wr->message)->local,
				   wr->len, "SEND");
}

static void end_request(struct sim_qp *qp, struct sim_end *e, uint32_t i,
			uint32_t reason)
{
	struct sim *w = e->leg->w;
	struct sim_wr *wr = sim_host_wr(&e->sq, i);

	if (reason) {
		SIM_CHECK(w, qp->doomed,
			  "request %u (op %u, %u bytes) failed: %s", i, wr->op,
			  wr->len, srdma_reason(reason)->name);
		if (!e->sq.failed) {
			e->sq.failed_at = i;
			e->sq.failed = (int)reason;
			e->sq.failed_op = wr->op;
		}
	} else {
		SIM_CHECK(w, !e->sq.failed, "success after an error");
		if (!qp->evil)
			succeeded(qp, e, wr);
	}
	if (reason || qp->evil)
		sim_host_lost(qp, e, wr);
	else
		sim_host_done(qp, e, wr);
}

/*
 * The record of a request: all earlier requests without a record were
 * unsignaled and have succeeded.
 */
static void send_record(struct sim_qp *qp, struct sim_end *e,
			const struct srdma_record *r)
{
	static const uint8_t opcodes[] = { 0,
					   SRDMA_WC_RDMA_WRITE,
					   SRDMA_WC_RDMA_WRITE,
					   SRDMA_WC_RDMA_READ,
					   SRDMA_WC_SEND,
					   SRDMA_WC_SEND,
					   SRDMA_WC_COMP_SWAP,
					   SRDMA_WC_FETCH_ADD };
	struct sim *w = e->leg->w;
	struct sim_queue *sq = &e->sq;
	uint32_t i = (uint32_t)r->id;

	SIM_CHECK(w, i >= sq->head && i < sq->tail,
		  "request %u of [%u, %u) ended", i, sq->head, sq->tail);
	for (; sq->head < i; sq->head++) {
		SIM_CHECK(w,
			  !(sim_host_wr(sq, sq->head)->flags &
			    SRDMA_DESC_SIGNALED),
			  "request %u has no record", sq->head);
		end_request(qp, e, sq->head, 0);
	}
	SIM_CHECK(w, r->opcode == opcodes[sim_host_wr(sq, i)->op], "opcode %u",
		  r->opcode);
	SIM_CHECK(w,
		  r->vendor_err ||
			  sim_host_wr(sq, i)->flags & SRDMA_DESC_SIGNALED,
		  "a record of an unsignaled request");
	end_request(qp, e, i, r->vendor_err);
	sq->head++;
}

static void received(struct sim_qp *qp, struct sim_end *e,
		     const struct srdma_record *r)
{
	struct sim *w = e->leg->w;
	uint32_t i = (uint32_t)r->id;
	const struct sim_wr *wr = sim_host_wr(&e->rq, i);
	struct sim_end *peer = sim_host_peer(qp, e->leg->side);
	const struct sim_message *m = sim_host_message(peer, i);

	SIM_CHECK(w, !e->rq.failed, "a RECV succeeded after an error");
	if (qp->evil)
		return;
	SIM_CHECK(w, i < peer->messages && m->legal && m->len == r->byte_len,
		  "receive %u: %u bytes, but nothing like it was sent", i,
		  r->byte_len);
	SIM_CHECK(w,
		  (r->opcode == SRDMA_WC_RECV) ==
			  (m->op != SRDMA_DESC_WRITE_IMM),
		  "opcode %u", r->opcode);
	if (m->op != SRDMA_DESC_SEND)
		SIM_CHECK(w,
			  r->imm == m->imm && r->flags == SRDMA_RECORD_WITH_IMM,
			  "immediate");
	if (m->op != SRDMA_DESC_WRITE_IMM)
		sim_memory_arrived(e->leg, wr->local, m->len, "receive");
}

static void recv_record(struct sim_qp *qp, struct sim_end *e,
			const struct srdma_record *r)
{
	struct sim *w = e->leg->w;
	struct sim_queue *rq = &e->rq;
	struct sim_wr *wr = sim_host_wr(rq, rq->head);

	SIM_CHECK(w, r->id == rq->head && rq->head < rq->tail,
		  "RECV %u of [%u, %u) ended", (uint32_t)r->id, rq->head,
		  rq->tail);
	if (!r->vendor_err) {
		received(qp, e, r);
	} else {
		SIM_CHECK(w, qp->doomed, "RECV failed: %s",
			  srdma_reason(r->vendor_err)->name);
		if (!rq->failed)
			rq->failed_at = rq->head;
		rq->failed = 1;
	}
	rq->head++;
	sim_memory_give(e->leg, wr->local, wr->len);
}

/*
 * Returns 1 if a READ or atomic before the refused request may be flushed
 * instead of answered (docs/protocol.md 5): packets may be lost or overtaken on
 * another connection, or a read chunk was dropped for lack of room.
 */
static int may_lose_answers(const struct sim *w, const struct sim_end *e)
{
	const struct srdma_stats *own =
		srdma_relay_stats(w->side[e->leg->side].relay);
	const struct srdma_stats *peers =
		srdma_relay_stats(w->side[!e->leg->side].relay);

	return (w->faults & SIM_LOSSES) || own->wires_lost ||
	       peers->wires_lost || peers->refused[SRDMA_REFUSED_GAP];
}

/* Id of the request for which the QP failed, or SRDMA_NONE or SRDMA_OLDEST. */
static uint64_t blamed(const struct srdma_qp *qp)
{
	const struct srdma_requester *rq = srdma_qp_requester(qp);

	return rq->flushing ? rq->flush_id : srdma_qp_failed_id(qp);
}

/* The QP event has the reason of the first request that fails. */
static void qp_event(const struct sim_qp *qp, struct sim_end *e,
		     uint32_t reason)
{
	struct sim *w = e->leg->w;
	const struct srdma_qp *own =
		srdma_relay_qp(w->side[e->leg->side].relay, e->info.qpn);

	e->events++;
	if (qp->evil || qp->lossy || !own || blamed(own) >= SRDMA_NONE ||
	    reason > SRDMA_REASON_PROOF_EXPIRED || !e->sq.failed)
		return;
	if (may_lose_answers(w, e) && srdma_desc_is_answered(e->sq.failed_op))
		return;
	SIM_CHECK(w, e->sq.failed == (int)reason,
		  "refused with %s, but the first failure is %s",
		  srdma_reason(reason)->name,
		  srdma_reason((uint32_t)e->sq.failed)->name);
}

static void take_record(struct sim_leg *leg, const struct srdma_record *r)
{
	struct sim *w = leg->w;
	int too_short = r->vendor_err == SRDMA_REASON_RECV_TOO_SHORT &&
			r->opcode == SRDMA_WC_RECV;

	SIM_CHECK(w,
		  too_short ? r->status == 1
			    : r->status == srdma_reason(r->vendor_err)->status,
		  "status %u of reason %u", r->status, r->vendor_err);
	for (int i = 0; i < 2 * (SIM_QPS + 1); i++) {
		struct sim_qp *qp = &w->qp[i / 2];
		struct sim_end *e = &qp->end[i % 2];

		if (!qp->live || e->leg != leg || e->info.qpn != r->qpn)
			continue;
		if (e->gone) /* written before the QP was destroyed */
			return;
		if (r->opcode == SRDMA_WC_QP_EVENT)
			qp_event(qp, e, r->vendor_err);
		else if (r->opcode & SRDMA_WC_RECV)
			recv_record(qp, e, r);
		else
			send_record(qp, e, r);
		return;
	}
	for (int i = 0; i < SIM_FORMER; i++)
		if (w->side[leg->side].former[i] == r->qpn)
			return;
	SIM_CHECK(w, 0, "a record of QP %#x", r->qpn);
}

static void tell_credit(struct sim_leg *leg)
{
	struct srdma_desc d = { .opcode = SRDMA_DESC_CREDIT };

	if (leg->consumed - leg->told >= leg->ring / 2)
		sim_host_put(leg, &d, NULL);
}

void sim_record_poll(struct sim_leg *leg, uint32_t n)
{
	const uint8_t *ring;
	struct srdma_record r;

	if (!leg->mem || !leg->open || leg->closing || leg->broken)
		return;
	ring = srdma_port_mem_ring(leg->conn);
	while (n--) {
		uint32_t slot = leg->consumed & (leg->ring - 1);
		const uint8_t *at = ring + (size_t)slot * SRDMA_RECORD_LEN;
		uint32_t old = leg->consumed < leg->ring
				       ? 0
				       : leg->consumed + 1 - leg->ring;

		srdma_record_decode(&r, at);
		if (r.sequence == old)
			break;
		SIM_CHECK(leg->w, r.sequence == leg->consumed + 1,
			  "record %u was overrun", leg->consumed + 1);
		leg->consumed++;
		sim_trace_record(leg, at);
		take_record(leg, &r);
	}
	tell_credit(leg);
}
