/*
 * The peer's requests, wire to host (docs/protocol.md 4.6, 5, 6). A packet
 * that comes here has verified and is at the position (order.c). The access
 * is authorized (judge.c) before any DMA; its payload lies in a private buffer
 * until then.
 */
#include <errno.h>
#include <string.h>

#include "mutant.h"
#include "relay_impl.h"

enum {
	ANSWERED = SRDMA_T_READ | SRDMA_T_ATOMIC,
	SPARE = 4, /* one in so many slots is for what is asked again */
};

struct request {
	const struct srdma_arrival *arrival;
	struct srdma_qp *qp;
	const struct srdma_packet *p;
	uint32_t traits;
};

/* 1: its sender waits for more than an ack. */
static int is_answered(const struct srdma_packet *p)
{
	return (srdma_wire_traits(p->opcode) & ANSWERED) != 0;
}

/* Bytes that its sender asks for. */
static uint32_t asked(const struct srdma_packet *p)
{
	return p->opcode == SRDMA_OP_READ_REQUEST ? p->dma_len
						  : SRDMA_ATOMIC_LEN;
}

/* Hand the payload to the place list and move the position. */
static enum srdma_reason place(const struct request *rq,
			       const struct srdma_span *a)
{
	struct srdma_qp *qp = rq->qp;
	const struct srdma_packet *p = rq->p;
	int last = (rq->traits & SRDMA_T_LAST) != 0;
	struct srdma_op *op = srdma_op_add(qp, SRDMA_OP_PLACE);

	op->addr = a->addr;
	op->key = a->rkey;
	op->right = a->right;
	op->len = a->len;
	op->allowed = qp->relay->mrs.serial;
	op->opcode = p->opcode;
	op->request_id = p->request_id;
	op->offset = p->offset + p->payload_len;
	op->ends = (uint8_t)last;
	op->dma_len = p->imm;
	if (p->payload_len) {
		op->buf = *rq->arrival->buf;
		*rq->arrival->buf = NULL;
	}
	qp->rx_offset += p->payload_len;
	if (last) {
		op->consumes = qp->message.kind == SRDMA_T_SEND ||
			       (rq->traits & SRDMA_T_IMM) != 0;
		qp->rq_next += op->consumes;
		qp->message = (struct srdma_message){ 0 };
		qp->rx_id++;
		qp->rx_offset = 0;
	}
	if (SRDMA_MUTANT(ACKED_BEFORE_DMA)) {
		qp->done_id = qp->rx_id;
		qp->done_offset = qp->rx_offset;
		qp->ctl |= SRDMA_SAY_ACK;
	}
	return SRDMA_REASON_NONE;
}

/* FIRST and ONLY begin a message, the others continue one of their kind. */
static int out_of_turn(const struct request *rq, uint8_t kind)
{
	const struct srdma_message *m = &rq->qp->message;

	if (rq->traits & SRDMA_T_FIRST)
		return m->kind != 0;
	return m->kind != kind;
}

/* A message begins, all of which must lie in the region. */
static enum srdma_reason begin_write(const struct request *rq)
{
	const struct srdma_packet *p = rq->p;
	const struct srdma_span all = { SRDMA_ACCESS_REMOTE_WRITE, p->rkey,
					p->va, p->dma_len };
	struct srdma_mr *mr;
	enum srdma_reason why;

	if (p->dma_len > SRDMA_MAX_MESSAGE)
		return SRDMA_REASON_MALFORMED;
	why = all.len ? srdma_judge_region(rq->qp, &all, &mr)
		      : SRDMA_REASON_NONE;
	if (!why)
		rq->qp->message =
			(struct srdma_message){ .kind = SRDMA_T_WRITE,
						.rkey = p->rkey,
						.va = p->va,
						.length = p->dma_len };
	return why;
}

static enum srdma_reason rx_write(const struct request *rq)
{
	struct srdma_qp *qp = rq->qp;
	const struct srdma_packet *p = rq->p;
	const struct srdma_message *m = &qp->message;
	uint64_t end = (uint64_t)p->offset + p->payload_len;
	int last = (rq->traits & SRDMA_T_LAST) != 0;
	enum srdma_reason why = SRDMA_REASON_NONE;
	struct srdma_span own;

	if (out_of_turn(rq, SRDMA_T_WRITE))
		return SRDMA_REASON_MALFORMED;
	if (rq->traits & SRDMA_T_FIRST)
		why = begin_write(rq);
	if (why)
		return why;
	if (last ? end != m->length : end >= m->length)
		return SRDMA_REASON_MALFORMED;
	own = (struct srdma_span){ SRDMA_ACCESS_REMOTE_WRITE, m->rkey,
				   m->va + p->offset, p->payload_len };
	why = srdma_judge_access(rq->arrival, &own);
	if (why)
		return why;
	if ((rq->traits & SRDMA_T_IMM) && qp->rq_next == qp->rq_tail)
		return SRDMA_REASON_NO_RECV;
	return place(rq, &own);
}

static enum srdma_reason rx_send(const struct request *rq)
{
	struct srdma_qp *qp = rq->qp;
	const struct srdma_packet *p = rq->p;
	uint64_t end = (uint64_t)p->offset + p->payload_len;
	struct srdma_span own;
	struct srdma_rqe *e;

	if (out_of_turn(rq, SRDMA_T_SEND))
		return SRDMA_REASON_MALFORMED;
	if (rq->traits & SRDMA_T_IETH)
		return SRDMA_REASON_UNSUPPORTED;
	if (qp->rq_next == qp->rq_tail)
		return SRDMA_REASON_NO_RECV;
	qp->message.kind = SRDMA_T_SEND;
	e = srdma_qp_rqe(qp, qp->rq_next);
	if (end > e->length)
		return SRDMA_REASON_RECV_TOO_SHORT;
	own = (struct srdma_span){ SRDMA_ACCESS_LOCAL_WRITE, e->key,
				   e->addr + p->offset, p->payload_len };
	return place(rq, &own);
}

/* Of slots, and of what an atomic finds: those that hold a slot come first. */
static int has_memory(struct srdma_qp *qp, const struct srdma_packet *p)
{
	struct srdma_relay *r = qp->relay;

	if (!qp->slots)
		qp->slots = srdma_table_take(&r->tables, r->params.reads,
					     sizeof(*qp->slots));
	return qp->slots &&
	       (!(srdma_wire_traits(p->opcode) & SRDMA_T_ATOMIC) ||
		!srdma_atomic_make_room(&qp->atomics, qp->slots_count + 1));
}

int srdma_rx_full(struct srdma_qp *qp, const struct srdma_packet *p)
{
	return is_answered(p) && (qp->slots_count == qp->relay->params.reads ||
				  !has_memory(qp, p));
}

int srdma_rx_waits(struct srdma_qp *qp, const struct srdma_packet *p)
{
	const uint32_t reads = qp->relay->params.reads;

	return is_answered(p) &&
	       (qp->slots_count >= reads - reads / SPARE || !has_memory(qp, p));
}

static struct srdma_slot *slot_at(const struct srdma_qp *qp, uint32_t i)
{
	return &qp->slots[(qp->slots_head + i) % qp->relay->params.reads];
}

/* What was authorized, or was before: its slot, which is free, is answered
 * behind what came before. */
static struct srdma_op *take_slot(const struct request *rq, uint8_t again)
{
	struct srdma_qp *qp = rq->qp;
	const struct srdma_packet *p = rq->p;
	struct srdma_op *op = srdma_op_add(qp, SRDMA_OP_PLACE);

	op->opcode = p->opcode;
	op->request_id = p->request_id;
	op->offset = p->offset + asked(p);
	op->again = again;
	*slot_at(qp, qp->slots_count++) = (struct srdma_slot){
		.request_id = p->request_id,
		.va = p->va,
		.rkey = p->rkey,
		.start = p->offset,
		.next = p->offset,
		.sent = p->offset,
		.end = p->offset + asked(p),
		.again = again,
		.atomic = (rq->traits & SRDMA_T_ATOMIC) != 0,
		.allowed = qp->relay->mrs.serial,
	};
	return op;
}

/* The part moves the position; of length 0, it is all of its READ. */
static void pass_part(struct srdma_qp *qp, const struct srdma_packet *p)
{
	const struct srdma_position next = srdma_position_after(p);

	qp->message = (struct srdma_message){
		.kind = p->dma_len ? SRDMA_T_READ : 0,
		.rkey = p->rkey,
		.va = p->va,
	};
	qp->rx_id = next.id;
	qp->rx_offset = next.offset;
}

/* What must be true of every part. */
static int part_legal(const struct srdma_packet *p)
{
	return p->dma_len <= SRDMA_READ_PART &&
	       p->offset <= SRDMA_MAX_MESSAGE &&
	       p->dma_len <= SRDMA_MAX_MESSAGE - p->offset;
}

static enum srdma_reason rx_read(const struct request *rq)
{
	struct srdma_qp *qp = rq->qp;
	const struct srdma_packet *p = rq->p;
	const struct srdma_message *m = &qp->message;
	const struct srdma_span part = { SRDMA_ACCESS_REMOTE_READ, p->rkey,
					 p->va + p->offset, p->dma_len };
	enum srdma_reason why;

	if (m->kind ? m->kind != SRDMA_T_READ || m->va != p->va ||
			      m->rkey != p->rkey || !p->dma_len
		    : p->offset != 0)
		return SRDMA_REASON_MALFORMED;
	if (!part_legal(p))
		return SRDMA_REASON_MALFORMED;
	if (part.addr < p->va)
		return SRDMA_REASON_OUT_OF_BOUNDS;
	why = srdma_judge_access(rq->arrival, &part);
	if (why)
		return why;
	take_slot(rq, 0)->ends = !p->dma_len;
	pass_part(qp, p);
	return SRDMA_REASON_NONE;
}

/* The op of the slot executes it, before it is answered. */
static void aim(const struct request *rq, struct srdma_op *op)
{
	const struct srdma_packet *p = rq->p;

	op->addr = p->va;
	op->key = p->rkey;
	op->right = SRDMA_ACCESS_REMOTE_ATOMIC;
	op->len = SRDMA_ATOMIC_LEN;
	op->allowed = rq->qp->relay->mrs.serial;
	op->atomic = (struct srdma_atomic){
		.kind = p->opcode == SRDMA_OP_FETCH_ADD
				? SRDMA_ATOMIC_FETCH_ADD
				: SRDMA_ATOMIC_COMPARE_SWAP,
		.swap_add = p->swap_add,
		.compare = p->compare,
	};
	op->buf = *rq->arrival->buf; /* for what was there */
	*rq->arrival->buf = NULL;
}

static enum srdma_reason rx_atomic(const struct request *rq)
{
	struct srdma_qp *qp = rq->qp;
	const struct srdma_packet *p = rq->p;
	const struct srdma_span own = { SRDMA_ACCESS_REMOTE_ATOMIC, p->rkey,
					p->va, SRDMA_ATOMIC_LEN };
	enum srdma_reason why;
	struct srdma_op *op;

	if (out_of_turn(rq, 0))
		return SRDMA_REASON_MALFORMED;
	if (p->va % SRDMA_ATOMIC_LEN)
		return SRDMA_REASON_MISALIGNED;
	why = srdma_judge_access(rq->arrival, &own);
	if (why)
		return why;
	op = take_slot(rq, 0);
	op->ends = 1;
	aim(rq, op);
	qp->rx_id++;
	qp->rx_offset = 0;
	return SRDMA_REASON_NONE;
}

static struct request request_of(const struct srdma_arrival *a)
{
	return (struct request){ a, a->qp, a->p,
				 srdma_wire_traits(a->p->opcode) };
}

enum srdma_reason srdma_rx_execute(const struct srdma_arrival *a)
{
	const struct request rq = request_of(a);

	srdma_qp_owe(a->qp);
	if (rq.traits & SRDMA_T_WRITE)
		return rx_write(&rq);
	if (rq.traits & SRDMA_T_SEND)
		return rx_send(&rq);
	return rq.traits & SRDMA_T_READ ? rx_read(&rq) : rx_atomic(&rq);
}

/* 1: a slot still has to answer some of the part. */
static int on_its_way(const struct srdma_qp *qp, const struct srdma_packet *p)
{
	for (uint32_t i = 0; i < qp->slots_count; i++) {
		const struct srdma_slot *s = slot_at(qp, i);

		if (s->request_id != p->request_id)
			continue;
		if (asked(p) ? s->sent < p->offset + asked(p) &&
				       p->offset < s->end
			     : s->start == s->end)
			return 1;
	}
	return 0;
}

/* It is not executed again: what it found then is said. */
static void atomic_again(const struct request *rq)
{
	struct srdma_qp *qp = rq->qp;
	struct srdma_op *op;
	uint64_t original;

	if (srdma_atomic_find(&qp->atomics, rq->p->request_id, &original))
		return;
	srdma_qp_owe(qp);
	op = take_slot(rq, 1);
	slot_at(qp, qp->slots_count - 1)->original = original;
	if (SRDMA_MUTANT(ATOMIC_AGAIN))
		aim(rq, op);
	qp->relay->stats.atomics_repeated++;
}

void srdma_rx_again(const struct srdma_arrival *a)
{
	const struct request rq = request_of(a);
	const struct srdma_packet *p = a->p;
	const struct srdma_span part = { SRDMA_ACCESS_REMOTE_READ, p->rkey,
					 p->va + p->offset, p->dma_len };

	if (srdma_rx_full(a->qp, p) || on_its_way(a->qp, p))
		return;
	if (rq.traits & SRDMA_T_ATOMIC) {
		atomic_again(&rq);
		return;
	}
	if (!part_legal(p) || part.addr < p->va || srdma_judge_access(a, &part))
		return;
	srdma_qp_owe(a->qp);
	take_slot(&rq, 1);
}

/* The RECV that this op's message consumed is full. */
static void receive_done(struct srdma_qp *qp, const struct srdma_op *op)
{
	uint32_t traits = srdma_wire_traits(op->opcode);
	struct srdma_rqe *e = srdma_qp_rqe(qp, qp->rq_done++);

	e->done = 1;
	e->byte_len = op->offset;
	e->with_imm = (traits & SRDMA_T_IMM) != 0;
	e->imm = op->dma_len;
	e->opcode = (traits & SRDMA_T_WRITE) ? SRDMA_WC_RECV_RDMA_WITH_IMM
					     : SRDMA_WC_RECV;
}

/* The bytes of an answer to a READ are in host memory. */
static void returned(struct srdma_qp *qp, const struct srdma_op *op)
{
	struct srdma_wqe *w = srdma_qp_wqe(qp, op->request_id);

	w->got += op->len;
	if (w->got == w->length && w->asked == w->length) {
		w->done = 1;
		qp->reads_open--;
	}
}

/* All before it is placed; of an atomic, what it found is known. */
static void answerable(struct srdma_qp *qp, const struct srdma_op *op)
{
	struct srdma_slot *s = slot_at(qp, qp->slots_ready++);

	if (!op->atomic.kind)
		return;
	memcpy(&s->original, op->buf->data, sizeof(s->original));
	srdma_atomic_keep(&qp->atomics, op->request_id, s->original);
	qp->relay->stats.atomics_executed++;
}

static void placed(struct srdma_qp *qp, const struct srdma_op *op)
{
	if (srdma_wire_traits(op->opcode) & ANSWERED)
		answerable(qp, op);
	if (op->again)
		return;
	if (op->consumes)
		receive_done(qp, op);
	qp->done_id = op->request_id + op->ends;
	qp->done_offset = op->ends ? 0 : op->offset;
	qp->ctl |= SRDMA_SAY_ACK;
}

/* Host memory did not take a payload: refused, and all behind it too. */
static void give_up(struct srdma_qp *qp, const struct srdma_op *failed)
{
	qp->refusing = failed->reason;
	qp->rx_id = failed->request_id;
	qp->rx_offset = srdma_op_start(failed);
	srdma_beyond_drop(&qp->beyond);
	for (struct srdma_op *op = failed->next; op; op = op->next) {
		if (op->kind != SRDMA_OP_PLACE)
			continue;
		op->kind = SRDMA_OP_WASTE;
		if (op->state == SRDMA_OP_NEW)
			op->state = SRDMA_OP_DONE;
	}
}

/* All before it is placed and answered, and what fitted is placed. */
static void refuse(struct srdma_qp *qp)
{
	struct srdma_rqe *e = srdma_qp_rqe(qp, qp->rq_next);

	if (qp->refusing == SRDMA_REASON_RECV_TOO_SHORT) {
		e->done = 1;
		e->opcode = SRDMA_WC_RECV;
		e->reason = SRDMA_REASON_RECV_TOO_SHORT;
	}
	srdma_qp_nak(qp, qp->refusing, qp->rx_id, qp->rx_offset);
}

/* An op's DMA is done. 0, or -EIO: the QP has failed. */
static int finish(struct srdma_qp *qp, const struct srdma_op *op)
{
	if (op->kind == SRDMA_OP_RETURN && op->reason) {
		srdma_qp_fail(qp, op->reason, op->request_id, 1);
		return -EIO;
	}
	if (op->kind == SRDMA_OP_RETURN)
		returned(qp, op);
	else if (op->kind == SRDMA_OP_PLACE && op->reason)
		give_up(qp, op);
	else if (op->kind == SRDMA_OP_PLACE)
		placed(qp, op);
	return 0;
}

int srdma_rx_place(struct srdma_qp *qp)
{
	int more = srdma_order_drain(qp);
	int err = srdma_op_issue(qp, &qp->place);
	struct srdma_op *op;

	while ((op = qp->place.head) && op->state == SRDMA_OP_DONE) {
		if (finish(qp, op))
			return 0;
		srdma_op_retire(&qp->place);
		qp->served = qp->relay->now;
	}
	if (qp->place.head || more)
		return err ? err : more;
	if (qp->ending)
		srdma_qp_fail(qp, qp->ending, qp->ending_id, 0);
	else if (qp->refusing && !qp->slots_ready)
		refuse(qp);
	return 0;
}
