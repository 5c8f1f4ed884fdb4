/*
 * Stage execute: makes the ops of an authorized request, and handles the end of
 * their DMA (docs/protocol.md 5, 5.2). Until the DMA the payload lies in a buffer
 * that no host can read.
 */
#include <string.h>

#include "responder/responder_impl.h"

static void next_message(struct srdma_responder *rs)
{
	rs->message = (struct srdma_message){ 0 };
	rs->accepted = (struct srdma_position){ rs->accepted.id + 1, 0 };
}

void srdma_execute_place(const struct srdma_arrival *a,
			 const struct srdma_span *to)
{
	struct srdma_responder *rs = a->rs;
	const struct srdma_packet *p = a->p;
	const int last = (p->traits & SRDMA_T_LAST) != 0;
	struct srdma_op *op = srdma_inbound_add(rs->qp, SRDMA_OP_PLACE);

	op->addr = to->addr;
	if (rs->message.kind == SRDMA_T_SEND)
		op->sgl = srdma_receive_queue_sgl(rs);
	op->key = to->key;
	op->right = to->right;
	op->len = to->len;
	op->allowed = rs->env->mrs.serial;
	op->opcode = p->opcode;
	op->traits = p->traits;
	op->request_id = p->request_id;
	op->offset = p->offset + p->payload_len;
	op->ends = (uint8_t)last;
	op->dma_len = p->imm;
	if (p->payload_len) {
		op->buf = *a->buf;
		*a->buf = NULL;
	}
	rs->accepted.offset += p->payload_len;
	if (!last)
		return;
	op->consumes = rs->message.kind == SRDMA_T_SEND ||
		       (p->traits & SRDMA_T_IMM) != 0;
	rs->rq_next += op->consumes;
	next_message(rs);
}

void srdma_execute_read(const struct srdma_arrival *a)
{
	struct srdma_responder *rs = a->rs;
	const struct srdma_packet *p = a->p;

	/* A chunk of length 0 is a whole READ. */
	srdma_slot_take(a, 0)->ends = !p->dma_len;
	rs->message = (struct srdma_message){
		.kind = p->dma_len ? SRDMA_T_READ : 0,
		.rkey = p->rkey,
		.va = p->va,
	};
	rs->accepted = srdma_position_after(p);
}

/* The op that makes the slot ready executes the atomic. */
void srdma_execute_atomic(const struct srdma_arrival *a)
{
	struct srdma_responder *rs = a->rs;
	const struct srdma_packet *p = a->p;
	struct srdma_op *op = srdma_slot_take(a, 0);

	op->ends = 1;
	op->addr = p->va;
	op->key = p->rkey;
	op->right = SRDMA_ACCESS_REMOTE_ATOMIC;
	op->len = SRDMA_ATOMIC_LEN;
	op->allowed = rs->env->mrs.serial;
	op->atomic = (struct srdma_atomic){
		.kind = p->opcode == SRDMA_OP_FETCH_ADD
				? SRDMA_ATOMIC_FETCH_ADD
				: SRDMA_ATOMIC_COMPARE_SWAP,
		.swap_add = p->swap_add,
		.compare = p->compare,
	};
	op->buf = *a->buf; /* receives the original value */
	*a->buf = NULL;
	rs->accepted = (struct srdma_position){ rs->accepted.id + 1, 0 };
}

/* --- when the DMA is done ------------------------------------------------- */

/* The op of a slot is done: all earlier payloads are placed and, for an atomic,
 * the original value is known. The slot may be answered. */
static void slot_ready(struct srdma_responder *rs, const struct srdma_op *op)
{
	struct srdma_slot *s = srdma_slot_at(rs, rs->slots_ready++);

	if (!op->atomic.kind)
		return;
	memcpy(&s->original, op->buf->data, sizeof(s->original));
	srdma_atomic_keep(&rs->atomics, op->request_id, s->original);
	rs->env->stats.atomics_executed++;
}

/* The DMA of a payload failed: refuses this request and all after it. */
static void give_up(struct srdma_responder *rs, const struct srdma_op *failed)
{
	rs->refusing = failed->reason;
	rs->accepted = (struct srdma_position){ failed->request_id,
						srdma_op_start(failed) };
	srdma_reorder_drop(&rs->reorder);
	srdma_inbound_waste(failed);
}

void srdma_responder_placed(struct srdma_qp *qp, const struct srdma_op *op)
{
	struct srdma_responder *rs = srdma_qp_responder(qp);

	if (op->reason) {
		give_up(rs, op);
		return;
	}
	if (op->traits & SRDMA_T_ANSWERED)
		slot_ready(rs, op);
	if (op->again)
		return;
	if (op->consumes)
		srdma_receive_queue_done(rs, op);
	rs->executed.id = op->request_id + op->ends;
	rs->executed.offset = op->ends ? 0 : op->offset;
	srdma_qp_schedule(qp, SRDMA_SAY_ACK);
}
