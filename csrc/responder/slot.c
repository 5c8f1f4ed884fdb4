/*
 * Response slots: the READ chunks and atomics of the peer that wait for their
 * response (docs/protocol.md 5.3). A slot has no payload, only the range that is left to answer.
 */
#include <assert.h>

#include "ledger/ledger.h"
#include "path/bare.h"
#include "responder/responder_impl.h"

enum { SPARE = 4 }; /* one of SPARE slots is for repeated requests */

/* Bytes of the response. */
static uint32_t requested(const struct srdma_packet *p)
{
	return p->traits & SRDMA_T_READ ? p->dma_len : SRDMA_ATOMIC_LEN;
}

/* 1: there is memory for the ring of slots and, for an atomic, for the results of
 * this one and all that hold a slot. */
static int has_memory(struct srdma_responder *rs, const struct srdma_packet *p)
{
	if (!rs->slots)
		rs->slots = srdma_table_take(&rs->env->tables, rs->env->reads,
					     sizeof(*rs->slots));
	return rs->slots &&
	       (!(p->traits & SRDMA_T_ATOMIC) ||
		!srdma_atomic_make_room(&rs->atomics, rs->slots_count + 1));
}

static int has_quota(const struct srdma_responder *rs)
{
	return srdma_account_room(srdma_qp_identity(rs->qp), SRDMA_RES_READS) >
	       0;
}

int srdma_slot_full(struct srdma_responder *rs, const struct srdma_packet *p)
{
	return rs->slots_count == rs->env->reads || !has_quota(rs) ||
	       !has_memory(rs, p);
}

int srdma_slot_waits(struct srdma_responder *rs, const struct srdma_packet *p)
{
	const uint32_t reads = rs->env->reads;

	rs->slots_refused = !has_quota(rs);
	if (rs->slots_refused)
		srdma_qp_wake(rs->qp, rs->env->now + SRDMA_SLOT_RETRY);
	return rs->slots_refused || rs->slots_count >= reads - reads / SPARE ||
	       !has_memory(rs, p);
}

void srdma_slot_count_refusal(const struct srdma_responder *rs)
{
	struct srdma_account *a = srdma_qp_identity(rs->qp);

	if (rs->slots_refused && !srdma_account_take(a, SRDMA_RES_READS, 1))
		srdma_account_give(a, SRDMA_RES_READS, 1);
}

int srdma_slot_is_legal(const struct srdma_packet *p)
{
	return p->dma_len <= SRDMA_MAX_READ_CHUNK &&
	       p->offset <= SRDMA_MAX_MESSAGE &&
	       p->dma_len <= SRDMA_MAX_MESSAGE - p->offset;
}

/* RFC 5042 R6.4.3.3-1, RA-3, R6.4.3.3-3, A6.4.3.3 */
struct srdma_op *srdma_slot_take(const struct srdma_arrival *a, uint8_t again)
{
	struct srdma_responder *rs = a->rs;
	const struct srdma_packet *p = a->p;
	struct srdma_op *op = srdma_inbound_add(rs->qp, SRDMA_OP_PLACE);
	int err;

	srdma_bare_answers(rs->qp, again);
	op->opcode = p->opcode;
	op->traits = p->traits;
	op->request_id = p->request_id;
	op->offset = p->offset + requested(p);
	op->again = again;
	*srdma_slot_at(rs, rs->slots_count++) = (struct srdma_slot){
		.request_id = p->request_id,
		.va = p->va,
		.rkey = p->rkey,
		.start = p->offset,
		.next = p->offset,
		.sent = p->offset,
		.end = p->offset + requested(p),
		.again = again,
		.atomic = (p->traits & SRDMA_T_ATOMIC) != 0,
		.allowed = rs->env->mrs.serial,
	};
	err = srdma_account_take(srdma_qp_identity(rs->qp), SRDMA_RES_READS, 1);
	assert(!err); /* srdma_slot_full() or srdma_slot_waits() found room */
	(void)err;
	srdma_inbound_set_responses(rs->qp, rs->slots_count);
	return op;
}

void srdma_slot_pop(struct srdma_responder *rs)
{
	rs->slots_head = (rs->slots_head + 1) % rs->env->reads;
	rs->slots_count--;
	srdma_account_give(srdma_qp_identity(rs->qp), SRDMA_RES_READS, 1);
	rs->slots_ready--;
	rs->slots_fetched--;
	srdma_inbound_set_responses(rs->qp, rs->slots_count);
}

/* 1: a slot still has some of the packet's responses to send. */
static int is_under_way(const struct srdma_responder *rs,
			const struct srdma_packet *p)
{
	for (uint32_t i = 0; i < rs->slots_count; i++) {
		const struct srdma_slot *s = srdma_slot_at(rs, i);

		if (s->request_id != p->request_id)
			continue;
		if (requested(p) ? s->sent < p->offset + requested(p) &&
					   p->offset < s->end
				 : s->start == s->end)
			return 1;
	}
	return 0;
}

/* A repeated atomic is not executed again; the kept result is returned. Needs no
 * access check: it touches no memory. */
static void atomic_again(const struct srdma_arrival *a)
{
	struct srdma_responder *rs = a->rs;
	uint64_t original;

	if (srdma_atomic_find(&rs->atomics, a->p->request_id, &original))
		return;
	srdma_inbound_begin(rs->qp);
	srdma_slot_take(a, 1);
	srdma_slot_at(rs, rs->slots_count - 1)->original = original;
	rs->env->stats.atomics_repeated++;
}

/* 1: the access check permits the repeated READ chunk now. */
static int may_read(const struct srdma_arrival *a)
{
	const struct srdma_packet *p = a->p;
	const struct srdma_span span = { SRDMA_ACCESS_REMOTE_READ, p->rkey,
					 p->va + p->offset, p->dma_len };

	return srdma_slot_is_legal(p) && span.addr >= p->va &&
	       !srdma_access_check(a, &span);
}

void srdma_slot_again(const struct srdma_arrival *a)
{
	if (srdma_slot_full(a->rs, a->p) || is_under_way(a->rs, a->p))
		return;
	if (a->p->traits & SRDMA_T_ATOMIC) {
		atomic_again(a);
		return;
	}
	if (!may_read(a))
		return;
	srdma_inbound_begin(a->rs->qp);
	srdma_slot_take(a, 1);
}
