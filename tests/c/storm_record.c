#include <string.h>

#include "relay_impl.h"
#include "storm_host.h"
#include "storm_memory.h"

static void check_arrived(struct storm_leg *leg, const uint8_t *at,
			  const struct storm_wr *wr, const char *what)
{
	uint32_t i = storm_memory_index(leg, at);

	if (!wr->len || !storm_memory_pure(leg, at))
		return;
	for (uint32_t n = 0; n < wr->len; n++) {
		if (storm_memory_fixed(leg, i + n))
			continue;
		STORM_CHECK(leg->w, at[n] == wr->data[n],
			    "%s: byte %u of %u is not what was sent", what, n,
			    wr->len);
		leg->shadow[i + n] = at[n];
	}
}

/* A request succeeded: it has happened, wholly. */
static void succeeded(struct storm_qp *qp, struct storm_end *e,
		      const struct storm_wr *wr)
{
	struct storm *w = e->leg->w;
	struct storm_end *peer = storm_host_peer(qp, e->leg->side);
	const struct storm_wr *recv = &peer->rq.wr[wr->message];

	if (qp->evil)
		return;
	STORM_CHECK(w, wr->legal, "what must be refused succeeded");
	if (storm_host_takes_recv(wr->op)) {
		STORM_CHECK(w, wr->message < peer->rq.tail,
			    "no receive was posted for this message");
		STORM_CHECK(w, wr->message >= peer->rq.head || !recv->failed,
			    "a message arrived, its receive failed");
	}
	if (wr->op == SRDMA_DESC_READ) {
		check_arrived(e->leg, wr->local, wr, "READ");
	} else if (wr->remote) {
		check_arrived(peer->leg, wr->remote, wr, "WRITE");
		storm_memory_expect(peer->leg, wr->remote, wr->len, STORM_EXACT,
				    NULL);
	} else if (wr->message >= peer->rq.head && !peer->gone) {
		STORM_CHECK(w, !memcmp(recv->local, wr->data, wr->len),
			    "SEND: %u bytes are not what was sent", wr->len);
	}
}

static void end_request(struct storm_qp *qp, struct storm_end *e, uint32_t i,
			uint32_t reason)
{
	struct storm *w = e->leg->w;
	struct storm_wr *wr = &e->sq.wr[i];

	if (reason) {
		STORM_CHECK(w, w->lossy || qp->doomed,
			    "request %u (op %u, %u bytes) failed: %s", i,
			    wr->op, wr->len, srdma_reason(reason)->name);
		if (!e->sq.failed) {
			e->sq.failed = (int)reason;
			e->sq.failed_op = wr->op;
		}
		wr->failed = 1;
	} else {
		STORM_CHECK(w, !e->sq.failed, "success behind an error");
		succeeded(qp, e, wr);
	}
	if (wr->local)
		storm_memory_spoil(e->leg, wr->local, wr->len);
}

/* Those before it that were to end silently have succeeded. */
static void send_record(struct storm_qp *qp, struct storm_end *e,
			const struct srdma_record *r)
{
	static const uint8_t opcodes[] = { 0,
					   SRDMA_WC_RDMA_WRITE,
					   SRDMA_WC_RDMA_WRITE,
					   SRDMA_WC_RDMA_READ,
					   SRDMA_WC_SEND,
					   SRDMA_WC_SEND };
	struct storm *w = e->leg->w;
	struct storm_queue *sq = &e->sq;
	uint32_t i = (uint32_t)r->id;

	STORM_CHECK(w, i >= sq->head && i < sq->tail,
		    "request %u of [%u, %u) ended", i, sq->head, sq->tail);
	for (; sq->head < i; sq->head++) {
		STORM_CHECK(w, !(sq->wr[sq->head].flags & SRDMA_DESC_SIGNALED),
			    "request %u has no record", sq->head);
		end_request(qp, e, sq->head, 0);
	}
	STORM_CHECK(w, r->opcode == opcodes[sq->wr[i].op], "opcode %u",
		    r->opcode);
	STORM_CHECK(w, r->vendor_err || sq->wr[i].flags & SRDMA_DESC_SIGNALED,
		    "a record that was not asked for");
	end_request(qp, e, i, r->vendor_err);
	sq->head++;
}

static void received(struct storm_qp *qp, struct storm_end *e,
		     const struct srdma_record *r)
{
	struct storm *w = e->leg->w;
	uint32_t i = (uint32_t)r->id;
	const struct storm_wr *wr = &e->rq.wr[i];
	const struct storm_wr *m =
		storm_host_message(&storm_host_peer(qp, e->leg->side)->sq, i);
	uint32_t at = storm_memory_index(e->leg, wr->local), len;

	STORM_CHECK(w, !e->rq.failed, "a receive succeeds behind an error");
	if (qp->evil)
		return;
	STORM_CHECK(w, m && m->legal && m->len == r->byte_len,
		    "receive %u: %u bytes that nobody sent", i, r->byte_len);
	STORM_CHECK(w,
		    (r->opcode == SRDMA_WC_RECV) ==
			    (m->op != SRDMA_DESC_WRITE_IMM),
		    "opcode %u", r->opcode);
	if (m->op != SRDMA_DESC_SEND)
		STORM_CHECK(w,
			    r->imm == m->imm &&
				    r->flags == SRDMA_RECORD_WITH_IMM,
			    "immediate");
	len = m->op == SRDMA_DESC_WRITE_IMM ? 0 : m->len;
	if (len)
		check_arrived(e->leg, wr->local, m, "receive");
	if (storm_memory_pure(e->leg, wr->local))
		STORM_CHECK(w,
			    !memcmp(wr->local + len, e->leg->shadow + at + len,
				    wr->len - len),
			    "bytes behind a message changed");
}

static void recv_record(struct storm_qp *qp, struct storm_end *e,
			const struct srdma_record *r)
{
	struct storm *w = e->leg->w;
	struct storm_queue *rq = &e->rq;
	struct storm_wr *wr = &rq->wr[rq->head];

	STORM_CHECK(w, r->id == rq->head && rq->head < rq->tail,
		    "receive %u of [%u, %u) ended", (uint32_t)r->id, rq->head,
		    rq->tail);
	if (!r->vendor_err) {
		received(qp, e, r);
	} else {
		STORM_CHECK(w, w->lossy || qp->doomed, "receive failed: %s",
			    srdma_reason(r->vendor_err)->name);
		wr->failed = 1;
		rq->failed = 1;
	}
	rq->head++;
	storm_memory_spoil(e->leg, wr->local, wr->len);
}

/* A request that the peer refused is the first that fails. */
static void qp_event(const struct storm_qp *qp, struct storm_end *e,
		     uint32_t reason)
{
	struct storm *w = e->leg->w;
	const struct srdma_qp *own =
		srdma_relay_qp(w->side[e->leg->side].relay, e->info.qpn);

	e->events++;
	if (qp->evil || qp->lossy || w->lossy || !own ||
	    own->failed_id >= SRDMA_NONE ||
	    reason > SRDMA_REASON_PROOF_EXPIRED || !e->sq.failed)
		return;
	/* A READ before it whose answers were lost cannot end well. */
	if ((w->faults & STORM_LOSSES) && e->sq.failed_op == SRDMA_DESC_READ)
		return;
	STORM_CHECK(w, e->sq.failed == (int)reason,
		    "refused with %s; the first to fail did with %s",
		    srdma_reason(reason)->name,
		    srdma_reason((uint32_t)e->sq.failed)->name);
}

static void take_record(struct storm_leg *leg, const struct srdma_record *r)
{
	struct storm *w = leg->w;
	int too_short = r->vendor_err == SRDMA_REASON_RECV_TOO_SHORT &&
			r->opcode == SRDMA_WC_RECV;

	STORM_CHECK(w,
		    too_short
			    ? r->status == 1
			    : r->status == srdma_reason(r->vendor_err)->status,
		    "status %u of reason %u", r->status, r->vendor_err);
	for (int i = 0; i < 2 * (STORM_QPS + 1); i++) {
		struct storm_qp *qp = &w->qp[i / 2];
		struct storm_end *e = &qp->end[i % 2];

		if (!qp->live || e->leg != leg || e->info.qpn != r->qpn)
			continue;
		if (e->gone) /* written before, seen after */
			return;
		if (r->opcode == SRDMA_WC_QP_EVENT)
			qp_event(qp, e, r->vendor_err);
		else if (r->opcode & SRDMA_WC_RECV)
			recv_record(qp, e, r);
		else
			send_record(qp, e, r);
		return;
	}
	STORM_CHECK(w, 0, "a record of QP %#x", r->qpn);
}

static void tell_credit(struct storm_leg *leg)
{
	struct srdma_desc d = { .opcode = SRDMA_DESC_CREDIT };

	if (leg->consumed - leg->told >= leg->ring / 2)
		storm_host_put(leg, &d, NULL);
}

void storm_record_poll(struct storm_leg *leg, uint32_t n)
{
	const uint8_t *ring;
	struct srdma_record r;

	if (!leg->mem || !leg->open || leg->closing || leg->broken)
		return;
	ring = srdma_port_mem_ring(leg->conn);
	while (n--) {
		uint32_t slot = leg->consumed & (leg->ring - 1);
		uint32_t old = leg->consumed < leg->ring
				       ? 0
				       : leg->consumed + 1 - leg->ring;

		srdma_record_decode(&r, ring + (size_t)slot * SRDMA_RECORD_LEN);
		if (r.sequence == old)
			break;
		STORM_CHECK(leg->w, r.sequence == leg->consumed + 1,
			    "record %u was overrun", leg->consumed + 1);
		leg->consumed++;
		take_record(leg, &r);
	}
	tell_credit(leg);
}
