/* Attributes of a QP that the worker enforces (docs/run.md 4). */
#include <errno.h>

#include "verbs/objects.h"
#include "verbs/verbs.h"

enum {
	REMOTE = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		 IBV_ACCESS_REMOTE_ATOMIC,
	LEAST_LIMIT_MS = 30000, /* keys for the QP are made meanwhile */
	MOST_LIMIT_MS = 600000,
	MOST_TIMEOUT = 31, /* 5 bits */
	MOST_RETRIES = 7,  /* 3 bits; of rnr_retry: endless */
};

/* Time limit of a request, ms: what the retries after lost packets take (IBA
 * 9.7.6.1.3). None if the request waits for receives of the peer without end. */
static uint32_t limit_of(const struct ibv_qp_attr *a)
{
	const uint64_t tries = (uint64_t)a->retry_cnt + 1;
	const uint64_t ms = (tries << a->timeout) * 4096 / 1000000;

	if (!a->timeout || a->rnr_retry == MOST_RETRIES)
		return SRDMA_TIMEOUT_NONE;
	if (ms > MOST_LIMIT_MS)
		return MOST_LIMIT_MS;
	return ms < LEAST_LIMIT_MS ? LEAST_LIMIT_MS : (uint32_t)ms;
}

int verbs_attr_tell(struct verbs_qp *qp, const struct ibv_qp_attr *a, int mask)
{
	const int limits = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
	struct srdma_qp_mod mod = { .access = a->qp_access_flags & REMOTE };
	unsigned what = 0;

	if (a->timeout > MOST_TIMEOUT || a->retry_cnt > MOST_RETRIES ||
	    a->rnr_retry > MOST_RETRIES)
		return EINVAL;
	mod.timeout_ms = limit_of(a);
	if (mask & IBV_QP_ACCESS_FLAGS)
		what |= SRDMA_QP_MASK_ACCESS;
	if (mask & limits)
		what |= SRDMA_QP_MASK_TIMEOUT;
	return what ? verbs_error(srdma_modify_qp(qp->qp, &mod, what)) : 0;
}
