/*
 * Idle QPs, and their end when QPs run out (docs/local-interface.md 3.10,
 * Reclaiming; RFC 5042 R6.4.2-1).
 */
#include "base/time.h"
#include "ledger/ledger.h"
#include "path/path.h"
#include "relay/relay_impl.h"
#include "requester/requester.h"
#include "responder/responder.h"

enum {
	/* Buckets examined per search: all of a worker with the default
	 * --max-qps. */
	LOOKS = 2 * SRDMA_DEFAULT_QPS,
	PAUSE_MS = 10, /* after a search that found none */
};

uint64_t srdma_relay_idle(const struct srdma_qp *qp, uint64_t now)
{
	const uint64_t worked = srdma_qp_entry(qp)->last_work;

	if (!srdma_requester_is_idle(qp) || !srdma_responder_is_idle(qp))
		return 0;
	return now > worked ? now - worked : 0;
}

/* The account of the QP on the side of another account; NULL: none. */
static const struct srdma_account *account_of(const struct srdma_qp *qp,
					      const struct srdma_account *side)
{
	if (srdma_account_kind(side) == SRDMA_ACCOUNT_IDENTITY)
		return srdma_qp_identity(qp);
	return srdma_qp_entry(qp)->leg->account;
}

/* 1: its records are written, its DMA has ended, and its CLOSE was sent. */
static int is_done(const struct srdma_qp *qp)
{
	return !srdma_qp_event_is_due(qp) && !srdma_qp_dmas(qp) &&
	       (!srdma_qp_scheduled(qp) || !srdma_path_conn(qp));
}

/* ns that the QP has been idle, if it may be reclaimed; else 0. */
static uint64_t reclaimable(const struct srdma_relay *r,
			    const struct srdma_qp *qp,
			    const struct srdma_account *side)
{
	const struct srdma_account *a = account_of(qp, side);
	const uint64_t limit = a ? srdma_account_idle(a) * SRDMA_SECOND : 0;
	const uint64_t idle = srdma_relay_idle(qp, r->env.now);

	if (!limit || idle <= limit || srdma_qp_entry(qp)->closing ||
	    srdma_shared_queue_users(qp))
		return 0;
	if (srdma_qp_state(qp) == SRDMA_QP_ERR && !is_done(qp))
		return 0; /* it is found when it is done */
	return srdma_account_is_above(a, SRDMA_RES_QPS) ? idle : 0;
}

/* The idlest of the buckets examined; NULL: none. */
static struct srdma_qp *search(struct srdma_relay *r,
			       const struct srdma_account *side)
{
	struct srdma_qp *found = NULL;
	uint64_t longest = 0;

	for (uint32_t i = 0; i <= r->qp_mask && i < LOOKS; i++) {
		struct srdma_qp *qp = r->qps[r->reclaim_at++ & r->qp_mask];

		for (; qp; qp = srdma_qp_entry(qp)->hash_next) {
			const uint64_t idle = reclaimable(r, qp, side);

			if (idle <= longest)
				continue;
			longest = idle;
			found = qp;
		}
	}
	return found;
}

/* The result of a search is the same for all accounts of a side. The pause keeps
 * requests that are refused from making the worker search all the time. */
static struct srdma_qp *idlest(struct srdma_relay *r,
			       const struct srdma_account *a)
{
	uint64_t *next = &r->reclaim_next[srdma_account_kind(a) ==
					  SRDMA_ACCOUNT_IDENTITY];
	struct srdma_qp *qp;

	if (r->env.now < *next)
		return NULL;
	qp = search(r, a);
	if (!qp)
		*next = r->env.now + PAUSE_MS * SRDMA_MS;
	return qp;
}

/* RFC 5042 R6.4.2-1, A6.4.2 */
int srdma_relay_reclaim(struct srdma_relay *r, const struct srdma_account *a)
{
	struct srdma_qp *qp = idlest(r, a);

	if (!qp)
		return 0;
	srdma_qp_fail(qp, SRDMA_REASON_RECLAIMED, SRDMA_OLDEST, 1);
	/* One turn writes its records and sends CLOSE. If that is not possible,
	 * the QP in ERR is found when it is done. */
	srdma_qp_activate(qp);
	srdma_relay_run(r, r->env.now, 0);
	if (!is_done(qp))
		return 0;
	srdma_relay_forget(qp);
	return 1;
}
