#include "qp.h"

#include <errno.h>
#include <stdlib.h>

#include "mutant.h"
#include "relay_impl.h"

enum { CLOSE_PATIENCE_MS = 1000, DMA_S = 10, PINGS = 10, REST_S = 10 };

static uint32_t power_of_two(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p *= 2;
	return p;
}

int srdma_qp_create(struct srdma_qp **out, struct srdma_relay *r,
		    struct srdma_leg *leg, const struct srdma_qp_params *params)
{
	struct srdma_qp *qp = calloc(1, sizeof(*qp));
	uint32_t sq = power_of_two(params->sq);
	uint32_t rq = power_of_two(params->rq);

	if (!qp)
		return -ENOMEM;
	qp->sq = calloc(sq, sizeof(*qp->sq));
	qp->rq = calloc(rq, sizeof(*qp->rq));
	qp->relay = r;
	if (!qp->sq || !qp->rq) {
		srdma_qp_free(qp);
		return -ENOMEM;
	}
	srdma_atomic_create(&qp->atomics, &r->tables, SRDMA_ATOMIC_RESULTS);
	qp->beyond.pool = &r->beyond;
	qp->leg = leg;
	qp->state = SRDMA_QP_INIT;
	qp->sq_depth = params->sq;
	qp->sq_mask = sq - 1;
	qp->rq_depth = params->rq;
	qp->rq_mask = rq - 1;
	qp->failed_id = SRDMA_NONE;
	*out = qp;
	return 0;
}

static size_t inline_len(const struct srdma_qp *qp)
{
	return ((size_t)qp->sq_mask + 1) * SRDMA_MAX_INLINE;
}

int srdma_qp_make_inline(struct srdma_qp *qp)
{
	if (!qp->sq_inline)
		qp->sq_inline =
			srdma_table_take(&qp->relay->tables, inline_len(qp), 1);
	return qp->sq_inline ? 0 : -ENOMEM;
}

/* What nothing is in: it is made again when it is needed. */
static void give_tables(struct srdma_qp *qp)
{
	struct srdma_table_memory *m = &qp->relay->tables;

	srdma_table_give(m, qp->sq_inline, inline_len(qp), 1);
	srdma_table_give(m, qp->slots, qp->relay->params.reads,
			 sizeof(*qp->slots));
	qp->sq_inline = NULL;
	qp->slots = NULL;
	qp->slots_head = 0;
	srdma_flight_shrink(&qp->flights);
	srdma_part_shrink(&qp->parts);
}

void srdma_qp_free(struct srdma_qp *qp)
{
	srdma_op_drop(&qp->fetch);
	srdma_op_drop(&qp->answer);
	srdma_op_drop(&qp->place);
	srdma_beyond_drop(&qp->beyond);
	srdma_session_destroy(qp->session);
	if (qp->leg)
		srdma_rekey_release(qp);
	free(qp->sq);
	free(qp->rq);
	give_tables(qp);
	srdma_flight_destroy(&qp->flights);
	srdma_part_destroy(&qp->parts);
	srdma_atomic_destroy(&qp->atomics);
	free(qp);
}

void srdma_qp_fail(struct srdma_qp *qp, enum srdma_reason reason, uint64_t id,
		   int tell)
{
	if (qp->state == SRDMA_QP_ERR)
		return;
	qp->state = SRDMA_QP_ERR;
	qp->reason = reason;
	qp->failed_id = id;
	qp->relay->stats.reason[reason]++;
	qp->ctl &= SRDMA_SAY_NAK;
	if (tell && qp->session) {
		qp->ctl |= SRDMA_SAY_CLOSE;
		qp->close_reason = srdma_reason(reason)->close
					   ? (uint8_t)reason
					   : SRDMA_REASON_PEER_ERROR;
	}
	qp->last_words = qp->ctl;
	srdma_op_drop(&qp->fetch);
	srdma_op_drop(&qp->answer);
	srdma_op_drop(&qp->place);
	srdma_beyond_drop(&qp->beyond);
	qp->slots_count = qp->slots_ready = qp->slots_fetched = 0;
	srdma_part_clear(&qp->parts);
	qp->event_due = 1;
	srdma_relay_activate(qp);
}

void srdma_qp_nak(struct srdma_qp *qp, enum srdma_reason reason, uint64_t id,
		  uint32_t offset)
{
	if (qp->state == SRDMA_QP_ERR)
		return;
	qp->ctl |= SRDMA_SAY_NAK;
	qp->nak_reason = srdma_reason(reason)->nak ? (uint8_t)reason
						   : SRDMA_REASON_TARGET_DMA;
	qp->nak_id = id;
	qp->nak_offset = offset;
	srdma_qp_fail(qp, reason, SRDMA_NONE, 0);
}

void srdma_qp_end(struct srdma_qp *qp, enum srdma_reason reason, uint64_t id)
{
	if (qp->ending)
		return;
	qp->ending = (uint8_t)reason;
	qp->ending_id = id;
	srdma_relay_activate(qp);
}

void srdma_qp_refuse(struct srdma_qp *qp, enum srdma_reason reason)
{
	if (qp->refusing)
		return;
	qp->refusing = (uint8_t)reason;
	srdma_beyond_drop(&qp->beyond);
	srdma_relay_activate(qp);
}

/* RECV_TOO_SHORT is the sender's fault there, the receive's own here (13.1). */
static uint8_t status_of(const struct srdma_record *rec, uint32_t reason)
{
	enum { WC_LOC_LEN_ERR = 1 };

	if (reason == SRDMA_REASON_RECV_TOO_SHORT &&
	    rec->opcode == SRDMA_WC_RECV)
		return WC_LOC_LEN_ERR;
	return srdma_reason(reason)->status;
}

static int put_record(struct srdma_qp *qp, struct srdma_record *rec,
		      uint32_t reason)
{
	rec->qpn = qp->qpn;
	rec->status = status_of(rec, reason);
	rec->vendor_err = reason;
	return qp->silent ? 0 : srdma_leg_record(qp->leg, rec);
}

static uint8_t wc_opcode(uint8_t desc_op)
{
	switch (desc_op) {
	case SRDMA_DESC_WRITE:
	case SRDMA_DESC_WRITE_IMM:
		return SRDMA_WC_RDMA_WRITE;
	case SRDMA_DESC_READ:
		return SRDMA_WC_RDMA_READ;
	case SRDMA_DESC_COMPARE_SWAP:
		return SRDMA_WC_COMP_SWAP;
	case SRDMA_DESC_FETCH_ADD:
		return SRDMA_WC_FETCH_ADD;
	default:
		return SRDMA_WC_SEND;
	}
}

/* Why the request at sq_head ends now; -1: it does not yet. */
static int64_t verdict(struct srdma_qp *qp, const struct srdma_wqe *w)
{
	int err = qp->state == SRDMA_QP_ERR;

	if (w->done && !qp->flushing && (err || !w->fetching))
		return SRDMA_REASON_NONE;
	if (!err)
		return -1;
	if (!qp->flushing && qp->failed_id == SRDMA_OLDEST)
		qp->failed_id = qp->sq_head;
	qp->flushing = 1;
	return qp->sq_head == qp->failed_id ? (int64_t)qp->reason
					    : SRDMA_REASON_FLUSHED;
}

static int complete_sends(struct srdma_qp *qp)
{
	for (; qp->sq_head < qp->sq_tail; qp->sq_head++) {
		const struct srdma_wqe *w = srdma_qp_wqe(qp, qp->sq_head);
		int64_t reason = verdict(qp, w);
		struct srdma_record rec = { .id = w->id,
					    .opcode = wc_opcode(w->opcode),
					    .byte_len = w->length };

		if (reason < 0)
			return 0;
		if (!reason && !(w->flags & SRDMA_DESC_SIGNALED))
			continue;
		if (put_record(qp, &rec, (uint32_t)reason))
			return -EAGAIN;
	}
	return 0;
}

static int complete_receives(struct srdma_qp *qp)
{
	for (; qp->rq_head < qp->rq_tail; qp->rq_head++) {
		const struct srdma_rqe *e = srdma_qp_rqe(qp, qp->rq_head);
		struct srdma_record rec = {
			.id = e->id,
			.opcode = e->done ? e->opcode : SRDMA_WC_RECV,
			.flags = e->with_imm ? SRDMA_RECORD_WITH_IMM : 0,
			.byte_len = e->byte_len,
			.imm = e->imm,
		};

		if (!e->done && qp->state != SRDMA_QP_ERR)
			return 0;
		if (put_record(qp, &rec,
			       e->done ? e->reason : SRDMA_REASON_FLUSHED))
			return -EAGAIN;
	}
	return 0;
}

int srdma_qp_complete(struct srdma_qp *qp)
{
	struct srdma_record event = { .opcode = SRDMA_WC_QP_EVENT };
	int err = 0;

	/* No buffer is given back to the host while DMA may touch it. */
	if (qp->state == SRDMA_QP_ERR && qp->dmas)
		return 0;
	err = complete_sends(qp);
	if (complete_receives(qp))
		err = -EAGAIN;
	if (!err && qp->event_due) {
		err = put_record(qp, &event, qp->reason);
		qp->event_due = err != 0;
	}
	return err;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t expire_request(struct srdma_qp *qp, uint64_t now)
{
	const struct srdma_wqe *w;
	uint64_t i = qp->sq_head;
	int waits;

	while (i < qp->sq_tail && srdma_qp_wqe(qp, i)->done)
		i++;
	if (i == qp->sq_tail)
		return SRDMA_NEVER;
	w = srdma_qp_wqe(qp, i);
	if (now < w->deadline || SRDMA_MUTANT(DEADLINE_IGNORED))
		return w->deadline;
	waits = !w->started && qp->state == SRDMA_QP_RTS &&
		srdma_desc_consumes_recv(w->opcode) &&
		qp->recv_credit == qp->sends;
	srdma_qp_fail(
		qp, waits ? SRDMA_REASON_NO_RECV_CREDIT : SRDMA_REASON_DEADLINE,
		i, 1);
	return SRDMA_NEVER;
}

/* The first ping, and again: one that is lost shall not end the QP. */
static uint64_t next_ping(const struct srdma_qp *qp)
{
	const struct srdma_relay *r = qp->relay;

	if (qp->heard >= qp->pinged)
		return qp->heard + r->ping;
	return qp->pinged + (r->silence - r->ping) / PINGS;
}

static uint64_t expire_silence(struct srdma_qp *qp, uint64_t now)
{
	const struct srdma_relay *r = qp->relay;
	uint64_t silent = qp->heard + r->silence;
	uint64_t ping;

	if (qp->state != SRDMA_QP_RTS || !srdma_dial_settled(qp) ||
	    (qp->sq_head == qp->sq_tail && qp->rq_head == qp->rq_tail))
		return SRDMA_NEVER;
	if (now >= silent) {
		srdma_qp_fail(qp, SRDMA_REASON_PEER_SILENT, SRDMA_OLDEST, 1);
		return SRDMA_NEVER;
	}
	ping = next_ping(qp);
	if (now >= ping) {
		srdma_link_go_home(qp);
		if (qp->pinged > qp->heard)
			srdma_link_try_another(qp);
		qp->ctl |= SRDMA_SAY_PING;
		qp->pinged = now;
		ping = next_ping(qp);
		srdma_relay_activate(qp);
	}
	return earlier(ping, silent);
}

/* What a silent peer left beyond a gap is forgotten: others need the room. */
static uint64_t expire_kept(struct srdma_qp *qp, uint64_t now)
{
	uint64_t end = qp->heard + qp->relay->silence;

	if (!qp->beyond.count)
		return SRDMA_NEVER;
	if (now < end)
		return end;
	srdma_beyond_drop(&qp->beyond);
	return SRDMA_NEVER;
}

void srdma_qp_owe(struct srdma_qp *qp)
{
	if (qp->place.count || qp->slots_count)
		return;
	qp->served = qp->relay->now;
	srdma_relay_wake_qp(qp, qp->served + DMA_S * SRDMA_SECOND);
}

/* What is owed to the peer holds buffers: it gets on, or the QP ends. */
static uint64_t expire_service(struct srdma_qp *qp, uint64_t now)
{
	const struct srdma_op *op =
		qp->place.head ? qp->place.head : qp->answer.head;
	int dma = op && op->state != SRDMA_OP_DONE;
	uint64_t end =
		qp->served + (dma ? DMA_S * SRDMA_SECOND : qp->relay->silence);

	if (!qp->place.count && !qp->slots_count)
		return SRDMA_NEVER;
	if (!dma && !srdma_dial_settled(qp))
		return SRDMA_NEVER; /* the wire's time counts */
	if (now < end)
		return end;
	if (!dma)
		srdma_qp_fail(qp, SRDMA_REASON_PEER_SILENT, SRDMA_OLDEST, 1);
	else if (op->kind == SRDMA_OP_RETURN)
		srdma_qp_fail(qp, SRDMA_REASON_LOCAL_DMA, op->request_id, 1);
	else if (qp->refusing)
		srdma_qp_nak(qp, qp->refusing, qp->rx_id, qp->rx_offset);
	else
		srdma_qp_nak(qp, SRDMA_REASON_TARGET_DMA, op->request_id,
			     srdma_op_start(op));
	return SRDMA_NEVER;
}

static int is_idle(const struct srdma_qp *qp)
{
	return qp->sq_head == qp->sq_tail && !qp->flights.count &&
	       !qp->parts.count && !qp->fetch.count && !qp->slots_count;
}

/* Who has rested for a while gives back what only work needs; a PING is none. */
static uint64_t expire_tables(struct srdma_qp *qp, uint64_t now)
{
	const uint64_t work = qp->sq_tail + qp->done_id;

	if (!qp->flights.room && !qp->parts.room && !qp->sq_inline &&
	    !qp->slots)
		return SRDMA_NEVER;
	if (qp->worked != work || !is_idle(qp)) {
		qp->worked = work;
		qp->rested = now + REST_S * SRDMA_SECOND;
	}
	if (now < qp->rested)
		return qp->rested;
	give_tables(qp);
	return SRDMA_NEVER;
}

uint64_t srdma_qp_expire(struct srdma_qp *qp, uint64_t now)
{
	uint64_t next;

	if (qp->state == SRDMA_QP_INIT || qp->state == SRDMA_QP_ERR)
		return SRDMA_NEVER;
	next = earlier(expire_request(qp, now), expire_silence(qp, now));
	if (qp->state == SRDMA_QP_ERR)
		return SRDMA_NEVER;
	next = earlier(next, expire_service(qp, now));
	if (qp->state == SRDMA_QP_ERR)
		return SRDMA_NEVER;
	next = earlier(next, srdma_dial_expire(qp, now));
	if (qp->state == SRDMA_QP_ERR)
		return SRDMA_NEVER;
	next = earlier(next, expire_kept(qp, now));
	next = earlier(next, expire_tables(qp, now));
	return earlier(next, srdma_retry_expire(qp, now));
}

int srdma_qp_removable(const struct srdma_qp *qp)
{
	uint64_t patience = CLOSE_PATIENCE_MS * (SRDMA_SECOND / 1000);

	if (qp->dmas)
		return 0;
	return !qp->ctl || !qp->wire ||
	       qp->relay->now >= qp->closing + patience;
}
