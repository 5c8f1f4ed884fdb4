/*
 * May a packet of the peer touch memory? Its region, its rights and its proof
 * (docs/protocol.md 6, 6.1).
 */
#include <errno.h>
#include <string.h>

#include "memory/memguard.h"
#include "relay_impl.h"

static uint8_t right_of(const struct srdma_span *span)
{
	switch (span->right) {
	case SRDMA_ACCESS_REMOTE_READ:
		return SRDMA_MEMKEY_READ;
	case SRDMA_ACCESS_REMOTE_ATOMIC:
		return SRDMA_MEMKEY_ATOMIC;
	default:
		return SRDMA_MEMKEY_WRITE;
	}
}

static enum srdma_reason verdict_of(int err)
{
	switch (err) {
	case 0:
		return SRDMA_REASON_NONE;
	case -ERANGE:
		return SRDMA_REASON_PROOF_RANGE;
	case -EKEYEXPIRED:
		return SRDMA_REASON_PROOF_EXPIRED;
	case -EBADMSG:
		return SRDMA_REASON_PROOF_WRONG;
	default: /* the provider failed: it is not the peer's fault */
		return SRDMA_REASON_TARGET_DMA;
	}
}

/* The table "At the target" of 6.1. */
static enum srdma_reason prove(const struct srdma_arrival *a,
			       const struct srdma_span *span,
			       const struct srdma_mr *mr)
{
	const struct srdma_packet *p = a->p;
	const struct srdma_qp *qp = a->qp;
	enum srdma_reason why;
	struct srdma_memkey_claim claim = {
		.right = right_of(span),
		.depth = p->depth,
		.addr = span->addr,
		.len = span->len,
		.bearer.expiry = p->expiry,
		.proof = p->proof,
	};

	if (!(p->flags & SRDMA_STH_PROOF))
		return mr->guard ? SRDMA_REASON_PROOF_REQUIRED
				 : SRDMA_REASON_NONE;
	if (!(qp->mode & SRDMA_MODE_MEM) || !mr->guard)
		return SRDMA_REASON_PROOF_UNSUPPORTED;
	if (p->flags & SRDMA_STH_HOLDER)
		memcpy(claim.bearer.holder, qp->peer_holder,
		       sizeof(claim.bearer.holder));
	if (a->kept) {
		claim.ad = a->kept->claim;
		claim.ad_len = a->kept->claim_len;
	} else {
		claim.ad_len = srdma_session_claim(qp->session, p, &claim.ad);
	}
	why = verdict_of(
		srdma_memguard_check(mr->guard, &claim, qp->relay->wall));
	qp->relay->stats.proofs_verified += why == SRDMA_REASON_NONE;
	return why;
}

enum srdma_reason srdma_judge_region(const struct srdma_qp *qp,
				     const struct srdma_span *span,
				     struct srdma_mr **mr)
{
	const struct srdma_mr_want want = {
		qp->leg, qp->qpn, span->rkey, span->right, span->addr, span->len
	};

	return srdma_mr_check(&qp->relay->mrs, &want, mr);
}

enum srdma_reason srdma_judge_access(const struct srdma_arrival *a,
				     const struct srdma_span *span)
{
	struct srdma_mr *mr;
	enum srdma_reason why;

	if (!span->len)
		return SRDMA_REASON_NONE;
	why = srdma_judge_region(a->qp, span, &mr);
	return why ? why : prove(a, span, mr);
}
