/*
 * The stages of a request packet (responder.h), and the responder's life. A row
 * of `kinds` per kind of request names what each stage does.
 */
#include "responder/responder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ledger/ledger.h"
#include "memory/rights.h"
#include "path/connect.h"
#include "responder/responder_impl.h"
#include "session/session.h"

/* --- stages --------------------------------------------------------------- */

struct request {
	const struct srdma_arrival *arrival;
	struct srdma_responder *rs;
	const struct srdma_packet *p;
	struct srdma_span span; /* bytes that the packet itself accesses */
};

/* 1: a FIRST or ONLY packet inside a message, or another packet outside a
 * message of its kind. */
static int out_of_turn(const struct request *rq, uint8_t kind)
{
	const struct srdma_message *m = &rq->rs->message;

	if (rq->p->traits & SRDMA_T_FIRST)
		return m->kind != 0;
	return m->kind != kind;
}

static enum srdma_reason write_sequence(struct request *rq)
{
	if (out_of_turn(rq, SRDMA_T_WRITE))
		return SRDMA_REASON_MALFORMED;
	if ((rq->p->traits & SRDMA_T_FIRST) &&
	    rq->p->dma_len > SRDMA_MAX_MESSAGE)
		return SRDMA_REASON_MALFORMED;
	return SRDMA_REASON_NONE;
}

/* Begins a message, all of which must lie in the region *mr. */
static enum srdma_reason begin_write(const struct request *rq,
				     struct srdma_mr **mr)
{
	const struct srdma_packet *p = rq->p;
	const struct srdma_span all = { SRDMA_ACCESS_REMOTE_WRITE, p->rkey,
					p->va, p->dma_len };
	enum srdma_reason why = srdma_access_bounds(rq->rs, &all, mr);

	if (!why)
		rq->rs->message =
			(struct srdma_message){ .kind = SRDMA_T_WRITE,
						.rkey = p->rkey,
						.va = p->va,
						.length = p->dma_len };
	return why;
}

static enum srdma_reason write_access(struct request *rq)
{
	struct srdma_responder *rs = rq->rs;
	const struct srdma_packet *p = rq->p;
	const struct srdma_message *m = &rs->message;
	const int first = (p->traits & SRDMA_T_FIRST) != 0;
	const uint64_t end = (uint64_t)p->offset + p->payload_len;
	struct srdma_mr *mr = NULL;
	enum srdma_reason why =
		first ? begin_write(rq, &mr) : SRDMA_REASON_NONE;

	if (why)
		return why;
	if ((p->traits & SRDMA_T_LAST) ? end != m->length : end >= m->length)
		return SRDMA_REASON_MALFORMED;
	rq->span = (struct srdma_span){ SRDMA_ACCESS_REMOTE_WRITE, m->rkey,
					m->va + p->offset, p->payload_len };
	/* begin_write() checked the bounds of the whole message. */
	why = first ? srdma_access_permits(rq->arrival, &rq->span, mr)
		    : srdma_access_check(rq->arrival, &rq->span);
	if (why)
		return why;
	if ((p->traits & SRDMA_T_IMM) && rs->rq_next == rs->rq_tail)
		return SRDMA_REASON_NO_RECV;
	return SRDMA_REASON_NONE;
}

static enum srdma_reason send_sequence(struct request *rq)
{
	if (out_of_turn(rq, SRDMA_T_SEND))
		return SRDMA_REASON_MALFORMED;
	if (rq->p->traits & SRDMA_T_IETH)
		return SRDMA_REASON_UNSUPPORTED;
	if (rq->rs->rq_next == rq->rs->rq_tail)
		return SRDMA_REASON_NO_RECV;
	return SRDMA_REASON_NONE;
}

/* The receive's own memory is checked at its DMA. */
/* RFC 5042 R6.4.5-1, A6.4.5 */
static enum srdma_reason send_access(struct request *rq)
{
	struct srdma_responder *rs = rq->rs;
	const struct srdma_packet *p = rq->p;
	const struct srdma_rqe *e = srdma_responder_rqe(rs, rs->rq_next);

	rs->message.kind = SRDMA_T_SEND;
	if ((uint64_t)p->offset + p->payload_len > e->length)
		return SRDMA_REASON_RECV_TOO_SHORT;
	rq->span = (struct srdma_span){ SRDMA_ACCESS_LOCAL_WRITE, e->key,
					e->addr + p->offset, p->payload_len };
	return SRDMA_REASON_NONE;
}

static void place(const struct request *rq)
{
	srdma_execute_place(rq->arrival, &rq->span);
}

static enum srdma_reason read_sequence(struct request *rq)
{
	const struct srdma_packet *p = rq->p;
	const struct srdma_message *m = &rq->rs->message;

	if (m->kind ? m->kind != SRDMA_T_READ || m->va != p->va ||
			      m->rkey != p->rkey || !p->dma_len
		    : p->offset != 0)
		return SRDMA_REASON_MALFORMED;
	return srdma_slot_is_legal(p) ? SRDMA_REASON_NONE
				      : SRDMA_REASON_MALFORMED;
}

/* RFC 5042 R6.3.5-2 */
static enum srdma_reason read_access(struct request *rq)
{
	const struct srdma_packet *p = rq->p;

	rq->span = (struct srdma_span){ SRDMA_ACCESS_REMOTE_READ, p->rkey,
					p->va + p->offset, p->dma_len };
	if (rq->span.addr < p->va)
		return SRDMA_REASON_OUT_OF_BOUNDS;
	return srdma_access_check(rq->arrival, &rq->span);
}

static void read_execute(const struct request *rq)
{
	srdma_execute_read(rq->arrival);
}

static enum srdma_reason atomic_sequence(struct request *rq)
{
	if (out_of_turn(rq, 0))
		return SRDMA_REASON_MALFORMED;
	return rq->p->va % SRDMA_ATOMIC_LEN ? SRDMA_REASON_MISALIGNED
					    : SRDMA_REASON_NONE;
}

static enum srdma_reason atomic_access(struct request *rq)
{
	const struct srdma_packet *p = rq->p;

	rq->span = (struct srdma_span){ SRDMA_ACCESS_REMOTE_ATOMIC, p->rkey,
					p->va, SRDMA_ATOMIC_LEN };
	return srdma_access_check(rq->arrival, &rq->span);
}

static void atomic_execute(const struct request *rq)
{
	srdma_execute_atomic(rq->arrival);
}

struct kind {
	uint32_t trait;
	enum srdma_reason (*sequence)(struct request *rq); /* in its message */
	enum srdma_reason (*access)(struct request *rq);   /* sets rq->span */
	void (*execute)(const struct request *rq);
};

static const struct kind kinds[] = {
	{ SRDMA_T_WRITE, write_sequence, write_access, place },
	{ SRDMA_T_SEND, send_sequence, send_access, place },
	{ SRDMA_T_READ, read_sequence, read_access, read_execute },
	{ SRDMA_T_ATOMIC, atomic_sequence, atomic_access, atomic_execute },
};

static const struct kind *kind_of(const struct srdma_packet *p)
{
	const struct kind *k = kinds;

	while (!(p->traits & k->trait)) /* a request has one of them */
		k++;
	return k;
}

enum srdma_reason srdma_responder_run(const struct srdma_arrival *a)
{
	const struct kind *kind = kind_of(a->p);
	struct request rq = { .arrival = a, .rs = a->rs, .p = a->p };
	enum srdma_reason why;

	srdma_inbound_begin(a->rs->qp);
	why = kind->sequence(&rq);
	if (!why)
		why = kind->access(&rq);
	if (!why)
		kind->execute(&rq);
	return why;
}

/* RFC 5042 R6.1.1-5 */
void srdma_responder_refuse(struct srdma_responder *rs,
			    enum srdma_reason reason)
{
	if (rs->refusing)
		return;
	rs->refusing = (uint8_t)reason;
	srdma_reorder_drop(&rs->reorder);
	srdma_qp_activate(rs->qp);
}

/* A receive that failed completes no earlier: DMA of its message uses its SGL. */
static void refuse(struct srdma_responder *rs)
{
	if (rs->refusing == SRDMA_REASON_RECV_TOO_SHORT)
		srdma_receive_queue_too_short(rs);
	else if (rs->refusing == SRDMA_REASON_LOCAL_KEY ||
		 rs->refusing == SRDMA_REASON_LOCAL_DMA)
		srdma_receive_queue_failed(rs, rs->refusing);
	srdma_qp_nak(rs->qp, rs->refusing, rs->accepted);
}

void srdma_responder_settle(struct srdma_qp *qp)
{
	struct srdma_responder *rs = srdma_qp_responder(qp);

	if (rs->refusing && !rs->slots_ready)
		refuse(rs);
}

void srdma_responder_count(struct srdma_qp *qp, const struct srdma_packet *p)
{
	srdma_reorder_count(&srdma_qp_responder(qp)->reorder, p->pn);
}

void srdma_responder_pinged(struct srdma_qp *qp)
{
	srdma_qp_responder(qp)->pinged = 1;
}

/* --- life ----------------------------------------------------------------- */

int srdma_responder_create(struct srdma_qp *qp, uint32_t depth)
{
	struct srdma_responder *rs = srdma_qp_responder(qp);
	const uint32_t room = srdma_table_room(0, 1, depth);

	rs->qp = qp;
	rs->env = srdma_qp_env(qp);
	srdma_atomic_create(&rs->atomics, &rs->env->tables,
			    SRDMA_ATOMIC_RESULTS);
	rs->reorder.pool = rs->env->reorder;
	TAILQ_INIT(&rs->waiters);
	rs->access = SRDMA_RIGHTS_REMOTE;
	rs->rq_depth = depth;
	rs->rq_mask = room - 1;
	rs->rq = calloc(room, sizeof(*rs->rq));
	return rs->rq ? 0 : -ENOMEM;
}

void srdma_responder_set_access(struct srdma_qp *qp, uint32_t access)
{
	srdma_qp_responder(qp)->access = access;
}

void srdma_responder_begin(struct srdma_qp *qp, uint32_t mtu)
{
	struct srdma_responder *rs = srdma_qp_responder(qp);

	rs->response_mtu = mtu;
	rs->reorder.share.group = &srdma_qp_tenant(qp)->reorder;
	rs->reorder.account = srdma_qp_identity(qp);
	rs->reorder.pn = srdma_session_highest(srdma_qp_session(qp));
}

void srdma_responder_discard(struct srdma_qp *qp)
{
	struct srdma_responder *rs = srdma_qp_responder(qp);

	srdma_shared_queue_discard(rs);
	srdma_op_drop(&rs->responses);
	srdma_inbound_drop(qp);
	srdma_reorder_drop(&rs->reorder);
	if (rs->slots_count)
		srdma_account_give(srdma_qp_identity(qp), SRDMA_RES_READS,
				   rs->slots_count);
	rs->slots_count = rs->slots_ready = rs->slots_fetched = 0;
	srdma_inbound_set_responses(qp, 0);
}

void srdma_responder_destroy(struct srdma_qp *qp)
{
	struct srdma_responder *rs = srdma_qp_responder(qp);

	srdma_responder_discard(qp);
	srdma_shared_queue_end(rs);
	srdma_responder_give_tables(qp);
	srdma_receive_queue_free_sgls(rs);
	free(rs->rq);
	srdma_atomic_destroy(&rs->atomics);
}

/* 1: no receive needs them. Users of a holder may give receives back to it. */
static int has_idle_sgls(const struct srdma_responder *rs)
{
	return rs->rq_sgls && rs->rq_head == rs->rq_tail && !rs->users;
}

int srdma_responder_has_tables(const struct srdma_qp *qp)
{
	const struct srdma_responder *rs = srdma_qp_responder(qp);

	return rs->slots || has_idle_sgls(rs);
}

int srdma_responder_is_idle(const struct srdma_qp *qp)
{
	return !srdma_qp_responder(qp)->slots_count;
}

void srdma_responder_give_tables(struct srdma_qp *qp)
{
	struct srdma_responder *rs = srdma_qp_responder(qp);

	if (has_idle_sgls(rs))
		srdma_receive_queue_free_sgls(rs);
	if (!rs->slots) /* also of a responder whose creation failed */
		return;
	srdma_table_give(&rs->env->tables, rs->slots, rs->env->reads,
			 sizeof(*rs->slots));
	rs->slots = NULL;
	rs->slots_head = 0;
}

uint64_t srdma_responder_executed(const struct srdma_qp *qp)
{
	return srdma_qp_responder(qp)->executed.id;
}

/* --- time limits ---------------------------------------------------------- */

/* A request waits because other QPs of the identity have all slots that its
 * quota permits: their ends do not activate this QP. */
static uint64_t retry_slots(struct srdma_responder *rs, uint64_t end)
{
	const uint64_t next = rs->env->now + SRDMA_SLOT_RETRY;

	if (!rs->slots_refused)
		return end;
	srdma_qp_activate(rs->qp);
	return next < end ? next : end;
}

uint64_t srdma_responder_expire_kept(struct srdma_qp *qp, uint64_t now)
{
	struct srdma_responder *rs = srdma_qp_responder(qp);
	uint64_t end = rs->moved + rs->env->silence;

	if (!rs->reorder.share.count)
		return SRDMA_NEVER;
	if (now < end)
		return retry_slots(rs, end);
	srdma_reorder_drop(&rs->reorder);
	return SRDMA_NEVER;
}

/* The DMA of an op takes too long. */
static void fail_dma(struct srdma_responder *rs, const struct srdma_op *op)
{
	if (op->kind == SRDMA_OP_RETURN) {
		srdma_qp_fail(rs->qp, SRDMA_REASON_LOCAL_DMA, op->request_id,
			      1);
		return;
	}
	if (!rs->refusing) {
		rs->accepted = (struct srdma_position){ op->request_id,
							srdma_op_start(op) };
		rs->refusing = op->right == SRDMA_ACCESS_LOCAL_WRITE
				       ? SRDMA_REASON_LOCAL_DMA
				       : SRDMA_REASON_TARGET_DMA;
	}
	refuse(rs);
}

/* Inbound work holds buffers that all QPs share, so it must make progress. While
 * the path is not validated, the time limit of connect.h counts, except for a
 * DMA under way. */
uint64_t srdma_responder_expire(struct srdma_qp *qp, uint64_t now)
{
	struct srdma_responder *rs = srdma_qp_responder(qp);
	const struct srdma_op *op = srdma_inbound_head(qp);
	uint64_t end;
	int dma;

	if (!srdma_inbound_busy(qp))
		return SRDMA_NEVER;
	if (!op)
		op = rs->responses.head;
	dma = op && op->state != SRDMA_OP_DONE;
	if (!dma && !srdma_connect_validated(qp))
		return SRDMA_NEVER;
	end = dma ? srdma_inbound_since(qp) + SRDMA_DMA_LIMIT_S * SRDMA_SECOND
		  : srdma_env_silent(rs->env, srdma_inbound_since(qp));
	if (now < end)
		return end;
	if (dma)
		fail_dma(rs, op);
	else
		srdma_qp_fail(qp, SRDMA_REASON_PEER_SILENT, SRDMA_OLDEST, 1);
	return SRDMA_NEVER;
}
