/*
 * Stage access (docs/protocol.md 6, 6.1): checks region, rights and proof of the
 * bytes that a packet of the peer names.
 */
#include <errno.h>
#include <string.h>

#include "memory/memguard.h"
#include "memory/rights.h"
#include "responder/responder_impl.h"

static enum srdma_reason reason_of(int err)
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
	default: /* the provider failed, not the peer */
		return SRDMA_REASON_TARGET_DMA;
	}
}

/* Checks the proof, by the table "At the target" of 6.1. */
static enum srdma_reason prove(const struct srdma_arrival *a,
			       const struct srdma_span *span,
			       const struct srdma_mr *mr)
{
	const struct srdma_packet *p = a->p;
	struct srdma_responder *rs = a->rs;
	const struct srdma_qp_keyed *keyed = srdma_qp_keyed(rs->qp);
	enum srdma_reason why;
	struct srdma_memkey_claim claim = {
		.right = srdma_rights_of(span->right),
		.depth = p->depth,
		.addr = span->addr,
		.len = span->len,
		.bearer.expiry = p->expiry,
		.proof = p->proof,
	};

	if (!(keyed->mode & SRDMA_MODE_MEM) || !mr->guard)
		return SRDMA_REASON_PROOF_UNSUPPORTED;
	if (p->flags & SRDMA_STH_HOLDER)
		memcpy(claim.bearer.holder, keyed->holder,
		       sizeof(claim.bearer.holder));
	if (a->kept) {
		claim.ad = a->kept->claim;
		claim.ad_len = a->kept->claim_len;
	} else {
		claim.ad_len = srdma_session_claim(srdma_qp_session(rs->qp), p,
						   &claim.ad);
	}
	why = reason_of(srdma_memguard_check(mr->guard, &claim, rs->env->wall));
	rs->env->stats.proofs_verified += why == SRDMA_REASON_NONE;
	return why;
}

/* RFC 5042 R6.2.1-1 */
enum srdma_reason srdma_access_bounds(const struct srdma_responder *rs,
				      const struct srdma_span *span,
				      struct srdma_mr **mr)
{
	return span->len ? srdma_qp_access(rs->qp, span, mr)
			 : SRDMA_REASON_NONE;
}

/* RFC 5042 R2.2.4-1, R6.2.1-2, R6.3.5-1, X4 */
enum srdma_reason srdma_access_permits(const struct srdma_arrival *a,
				       const struct srdma_span *span,
				       const struct srdma_mr *mr)
{
	if (!span->len) /* an access to no bytes needs no rkey and no proof */
		return SRDMA_REASON_NONE;
	if (!(a->rs->access & span->right))
		return SRDMA_REASON_NO_RIGHT;
	if (a->p->flags & SRDMA_STH_PROOF)
		return prove(a, span, mr);
	return mr->guard ? SRDMA_REASON_PROOF_REQUIRED : SRDMA_REASON_NONE;
}

enum srdma_reason srdma_access_check(const struct srdma_arrival *a,
				     const struct srdma_span *span)
{
	struct srdma_mr *mr = NULL;
	const enum srdma_reason why = srdma_access_bounds(a->rs, span, &mr);

	return why ? why : srdma_access_permits(a, span, mr);
}
