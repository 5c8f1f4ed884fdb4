/* Own requests: a descriptor becomes a request of the SQ (docs/local-interface.md
 * 2.1). */
#include <errno.h>
#include <string.h>

#include "memory/rights.h"
#include "requester/requester_impl.h"
#include "session/session.h"

/* 1: the request may use this memory, which each DMA checks again. */
static int memory_ok(struct srdma_requester *rq, uint8_t desc_op,
		     const struct srdma_sge *sge)
{
	const struct srdma_span span = {
		.right = srdma_desc_is_answered(desc_op)
				 ? SRDMA_ACCESS_LOCAL_WRITE
				 : 0,
		.key = sge->lkey,
		.addr = sge->addr,
		.len = sge->length,
	};
	struct srdma_mr *mr;

	return !sge->length || !srdma_qp_access(rq->qp, &span, &mr);
}

/* 1: the request may use all its local memory. */
static int local_ok(struct srdma_requester *rq, uint64_t id)
{
	const struct srdma_wqe *w = srdma_requester_wqe(rq, id);
	const struct srdma_sge one = { w->local_addr, w->length, w->local_key };
	const struct srdma_sge *sgl = srdma_requester_sgl(rq, id);
	const struct srdma_sge *sge = sgl ? sgl : &one;
	unsigned n = sgl ? w->sges : 1;

	if (w->flags & SRDMA_DESC_INLINE)
		return 1;
	while (n && memory_ok(rq, w->opcode, sge)) {
		sge++;
		n--;
	}
	return !n;
}

/* --- capabilities ---------------------------------------------------------- */

/* The access to the peer's memory that a request makes. */
static uint32_t access_of(uint8_t desc_op)
{
	if (srdma_desc_is_atomic(desc_op))
		return SRDMA_ACCESS_REMOTE_ATOMIC;
	return desc_op == SRDMA_DESC_READ ? SRDMA_ACCESS_REMOTE_READ
					  : SRDMA_ACCESS_REMOTE_WRITE;
}

/* Resolves the capability of a request from offset on. The result holds for the
 * bytes up to the end of a node. 0, or an error of srdma_captable_find(). */
static int resolve(struct srdma_requester *rq, uint64_t id, uint32_t offset)
{
	const struct srdma_wqe *w = srdma_requester_wqe(rq, id);
	const struct srdma_captable_want want = {
		.handle = w->capability,
		.rkey = w->rkey,
		.right = srdma_rights_of(access_of(w->opcode)),
		.addr = w->remote_addr + offset,
		.len = w->length - offset,
	};
	struct srdma_captable_use use = { 0 };
	int err = srdma_captable_find(rq->captable, &want, &use);

	if (!err)
		rq->proof = (struct srdma_post_proof){
			id, offset, offset + (uint32_t)use.run, use
		};
	return err;
}

/* 1: the proof resolved last is of this byte of the request, and is valid. */
static int is_resolved(struct srdma_requester *rq, uint64_t id, uint32_t offset)
{
	const struct srdma_post_proof *proof = &rq->proof;

	return id == proof->id && offset >= proof->from && offset < proof->to &&
	       srdma_captable_is_current(
		       rq->captable, srdma_requester_wqe(rq, id)->capability,
		       &proof->use);
}

int srdma_post_prove(struct srdma_requester *rq, uint64_t id, uint32_t offset,
		     uint32_t len, struct srdma_captable_use *use)
{
	int err = is_resolved(rq, id, offset) ? 0 : resolve(rq, id, offset);

	if (err)
		return err;
	*use = rq->proof.use;
	use->run = rq->proof.to - offset;
	if (use->run > len)
		use->run = len;
	return 0;
}

/* An atomic is one packet: it must lie in one node of the capability. */
static int capability_ok(struct srdma_requester *rq, uint64_t id)
{
	const struct srdma_wqe *w = srdma_requester_wqe(rq, id);

	if (!w->capability)
		return 1;
	if (!(srdma_qp_keyed(rq->qp)->mode & SRDMA_MODE_MEM) ||
	    resolve(rq, id, 0))
		return 0;
	return !srdma_desc_is_atomic(w->opcode) ||
	       rq->proof.use.run == w->length;
}

/* --- posting --------------------------------------------------------------- */

/* Keeps inline data or SGL of a request. 0 or -ENOMEM. */
static int keep_behind(struct srdma_requester *rq, uint64_t id,
		       const struct srdma_desc *d, const uint8_t *behind)
{
	union srdma_behind *to;

	if (!d->sges &&
	    (!(d->flags & SRDMA_DESC_INLINE) || d->length > SRDMA_MAX_INLINE))
		return 0;
	if (!rq->sq_behind)
		rq->sq_behind = srdma_table_take(&rq->env->tables,
						 (size_t)rq->sq_mask + 1,
						 sizeof(*rq->sq_behind));
	if (!rq->sq_behind)
		return -ENOMEM;
	to = &rq->sq_behind[id & rq->sq_mask];
	if (d->sges)
		srdma_sgl_decode(to->sgl, behind, d->sges);
	else
		memcpy(to->data, behind, d->length);
	return 0;
}

static uint64_t deadline_of(const struct srdma_requester *rq)
{
	return rq->timeout == SRDMA_NEVER ? SRDMA_NEVER
					  : rq->env->now + rq->timeout;
}

void srdma_post_request(struct srdma_qp *qp, const struct srdma_desc *d,
			const uint8_t *behind)
{
	struct srdma_requester *rq = srdma_qp_requester(qp);
	uint64_t id = rq->sq_tail;
	struct srdma_wqe *w = srdma_requester_wqe(rq, id);

	if (rq->sq_tail - rq->sq_head == rq->sq_depth) {
		srdma_qp_fail(qp, SRDMA_REASON_QUEUE_FULL, SRDMA_OLDEST, 1);
		return;
	}
	*w = (struct srdma_wqe){ .id = d->id,
				 .local_addr = d->local_addr,
				 .remote_addr = d->remote_addr,
				 .deadline = deadline_of(rq),
				 .length = d->length,
				 .local_key = d->local_key,
				 .rkey = d->rkey,
				 .imm = d->imm,
				 .capability = d->capability,
				 .swap_add = d->swap_add,
				 .compare = d->compare,
				 .opcode = d->opcode,
				 .sges = d->sges,
				 .flags = d->flags };
	rq->sq_tail++;
	if (keep_behind(rq, id, d, behind))
		srdma_qp_fail(qp, SRDMA_REASON_LOCAL_DMA, id, 1);
	/* A capability is of the QP's key mode, which KEYS tells. */
	else if (srdma_qp_state(qp) == SRDMA_QP_INIT && d->capability)
		srdma_qp_fail(qp, SRDMA_REASON_QP_STATE, id, 1);
	else if (d->length > SRDMA_MAX_MESSAGE)
		srdma_qp_fail(qp, SRDMA_REASON_MESSAGE_TOO_LONG, id, 1);
	else if (!local_ok(rq, id))
		srdma_qp_fail(qp, SRDMA_REASON_LOCAL_KEY, id, 1);
	else if (!capability_ok(rq, id))
		srdma_qp_fail(qp, SRDMA_REASON_BAD_CAPABILITY, id, 1);
	srdma_qp_wake(qp, w->deadline);
}

int srdma_post_is_empty(const struct srdma_qp *qp)
{
	const struct srdma_requester *rq = srdma_qp_requester(qp);

	return rq->sq_head == rq->sq_tail;
}

uint32_t srdma_post_depth(const struct srdma_qp *qp)
{
	return srdma_qp_requester(qp)->sq_depth;
}

uint64_t srdma_post_count(const struct srdma_qp *qp)
{
	return srdma_qp_requester(qp)->sq_tail;
}
