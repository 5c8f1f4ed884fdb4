/* Attributes of a QP that the worker enforces (docs/run.md 4). */
#include <errno.h>

#include "verbs/objects.h"
#include "verbs/verbs.h"

enum {
	LEAST_LIMIT_MS = 30000, /* keys for the QP are made meanwhile */
	MOST_TIMEOUT = 31,	/* 5 bits */
	MOST_RETRIES = 7,	/* 3 bits; of rnr_retry: endless */
	MOST_GRACE_MS = 10000,
};

/* Time that a NIC takes to retry a request without an ack, ms (IBA 9.7.6.1.3). */
static uint64_t retries_of(const struct ibv_qp_attr *a)
{
	const uint64_t tries = (uint64_t)a->retry_cnt + 1;

	return (tries << a->timeout) * 4096 / 1000000;
}

/* Time limit of a request, ms. None if the request waits for receives of the peer
 * without end. */
static uint32_t limit_of(const struct ibv_qp_attr *a)
{
	const uint64_t ms = retries_of(a);

	if (!a->timeout || a->rnr_retry == MOST_RETRIES)
		return SRDMA_TIMEOUT_NONE;
	if (ms > SRDMA_TIMEOUT_MAX_MS)
		return SRDMA_TIMEOUT_MAX_MS;
	return ms < LEAST_LIMIT_MS ? LEAST_LIMIT_MS : (uint32_t)ms;
}

/* Time for which requests wait that the peer's end leaves, ms. */
static uint32_t grace_of(const struct ibv_qp_attr *a)
{
	const uint64_t ms = retries_of(a);

	return !a->timeout || ms > MOST_GRACE_MS ? MOST_GRACE_MS : (uint32_t)ms;
}

int verbs_attr_tell(struct verbs_qp *qp, const struct ibv_qp_attr *a, int mask)
{
	const struct verbs_transport *t = qp->transport;
	struct srdma_qp_change change = { .access = a->qp_access_flags &
						    t->rights };

	if (mask & t->absent)
		return EINVAL;
	if (a->timeout > MOST_TIMEOUT || a->retry_cnt > MOST_RETRIES ||
	    a->rnr_retry > MOST_RETRIES)
		return EINVAL;
	change.timeout_ms = limit_of(a);
	change.grace_ms = grace_of(a);
	if (mask & IBV_QP_ACCESS_FLAGS)
		change.fields |= SRDMA_QP_FIELD_ACCESS;
	if (mask & t->limits)
		change.fields |= SRDMA_QP_FIELD_TIMEOUT | SRDMA_QP_FIELD_GRACE;
	return change.fields ? verbs_error(srdma_change_qp(qp->qp, &change))
			     : 0;
}

void verbs_attr_keep(struct ibv_qp_attr *to, const struct ibv_qp_attr *from,
		     int mask)
{
#define KEEP(BIT, FIELD)                                                       \
	if (mask & IBV_QP_##BIT)                                               \
	to->FIELD = from->FIELD
	KEEP(ACCESS_FLAGS, qp_access_flags);
	KEEP(PKEY_INDEX, pkey_index);
	KEEP(PORT, port_num);
	KEEP(QKEY, qkey);
	KEEP(AV, ah_attr);
	KEEP(PATH_MTU, path_mtu);
	KEEP(TIMEOUT, timeout);
	KEEP(RETRY_CNT, retry_cnt);
	KEEP(RNR_RETRY, rnr_retry);
	KEEP(RQ_PSN, rq_psn);
	KEEP(SQ_PSN, sq_psn);
	KEEP(MAX_QP_RD_ATOMIC, max_rd_atomic);
	KEEP(MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	KEEP(MIN_RNR_TIMER, min_rnr_timer);
	KEEP(DEST_QPN, dest_qp_num);
#undef KEEP
}
