/*
 * Bring-up and end of QPs, as the control socket asks for them
 * (docs/protocol.md 7, 10, 12).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "relay_impl.h"

enum { DEFAULT_TIMEOUT_MS = 30000 };

static int check_qp(struct srdma_relay *r, const struct srdma_leg *leg,
		    const struct srdma_qp_params *p)
{
	if (!p->sq || !p->rq || p->sq > SRDMA_MAX_DEPTH ||
	    p->rq > SRDMA_MAX_DEPTH)
		return srdma_relay_refuse(
			r, -EINVAL,
			"queues of %u and %u; 1..%u each would be right", p->sq,
			p->rq, SRDMA_MAX_DEPTH);
	if (p->timeout_ms > SRDMA_MAX_TIMEOUT_MS)
		return srdma_relay_refuse(
			r, -EINVAL,
			"a timeout of %u ms; at most %u would be right",
			p->timeout_ms, SRDMA_MAX_TIMEOUT_MS);
	if (p->mtu && (p->mtu < SRDMA_MIN_MTU || p->mtu > r->params.mtu))
		return srdma_relay_refuse(r, -EINVAL,
					  "an mtu of %u; %u..%u would be right",
					  p->mtu, SRDMA_MIN_MTU, r->params.mtu);
	if (leg->reserved + p->sq + p->rq + 1 > leg->ring)
		return srdma_relay_refuse(
			r, -ENOSPC,
			"the leg's ring of %u records cannot hold %u more; open the PD with a larger ring",
			leg->ring, p->sq + p->rq + 1);
	if (r->qp_count == r->params.qps)
		return srdma_relay_refuse(r, -EDQUOT,
					  "the worker has its limit of %u QPs",
					  r->params.qps);
	return 0;
}

static int name_qp(struct srdma_relay *r, struct srdma_qp *qp,
		   struct srdma_qp_info *info)
{
	uint8_t bytes[6];
	int err;

	do {
		err = srdma_relay_random(r, bytes, sizeof(bytes));
		qp->qpn = srdma_load24(bytes);
	} while (!err && (!qp->qpn || srdma_relay_qp(r, qp->qpn)));
	if (!err)
		err = srdma_relay_random(r, info->random, sizeof(info->random));
	/* [2^23, 2^24): never so low that a candidate could be negative. */
	qp->first_pn = SRDMA_MIN_PN | (srdma_load24(bytes + 3) & 0x7fffff);
	return err;
}

static void join_leg(struct srdma_qp *qp)
{
	struct srdma_leg *leg = qp->leg;

	qp->leg_next = leg->qps;
	if (qp->leg_next)
		qp->leg_next->leg_at = &qp->leg_next;
	qp->leg_at = &leg->qps;
	leg->qps = qp;
}

static void leave_leg(struct srdma_qp *qp)
{
	*qp->leg_at = qp->leg_next;
	if (qp->leg_next)
		qp->leg_next->leg_at = qp->leg_at;
}

int srdma_relay_qp_init(struct srdma_relay *r, struct srdma_leg *leg,
			const struct srdma_qp_params *params,
			struct srdma_qp_info *info)
{
	struct srdma_qp *qp, **bucket;
	uint32_t ms;
	int err = check_qp(r, leg, params);

	if (!err)
		err = srdma_qp_create(&qp, r, leg, params);
	if (err)
		return err;
	err = name_qp(r, qp, info);
	if (err) {
		srdma_qp_free(qp);
		return err;
	}
	ms = params->timeout_ms ? params->timeout_ms : DEFAULT_TIMEOUT_MS;
	qp->timeout = (uint64_t)ms * (SRDMA_SECOND / 1000);
	qp->mtu = params->mtu ? params->mtu : r->params.mtu;
	bucket = srdma_relay_bucket(r, qp->qpn);
	qp->hash_next = *bucket;
	*bucket = qp;
	join_leg(qp);
	leg->reserved += qp->sq_depth + qp->rq_depth + 1;
	r->qp_count++;
	info->qpn = qp->qpn;
	memcpy(info->eid, r->eid, sizeof(info->eid));
	info->pn = qp->first_pn;
	info->mtu = qp->mtu;
	info->window = r->params.window;
	info->reads = r->params.reads;
	return 0;
}

void srdma_relay_forget(struct srdma_qp *qp)
{
	struct srdma_relay *r = qp->relay;
	struct srdma_qp **at = srdma_relay_bucket(r, qp->qpn);

	while (*at != qp)
		at = &(*at)->hash_next;
	*at = qp->hash_next;
	leave_leg(qp);
	if (qp->active) {
		struct srdma_qp *before = NULL;

		for (at = &r->active_head; *at != qp; at = &(*at)->active_next)
			before = *at;
		*at = qp->active_next;
		if (r->active_tail == qp)
			r->active_tail = before;
	}
	qp->leg->reserved -= qp->sq_depth + qp->rq_depth + 1;
	r->qp_count--;
	srdma_link_unwire(qp);
	srdma_timer_cancel(&r->timers, &qp->timer);
	srdma_qp_free(qp);
}

struct srdma_qp *srdma_relay_own_qp(struct srdma_relay *r,
				    const struct srdma_leg *leg, uint32_t qpn)
{
	struct srdma_qp *qp = srdma_relay_qp(r, qpn);

	if (!qp || qp->leg != leg) {
		srdma_relay_refuse(r, -ENOENT, "the leg has no QP %u", qpn);
		return NULL;
	}
	return qp;
}

int srdma_relay_qp_state(struct srdma_relay *r, struct srdma_leg *leg,
			 uint32_t qpn, uint32_t *reason)
{
	const struct srdma_qp *qp = srdma_relay_own_qp(r, leg, qpn);

	if (!qp)
		return -ENOENT;
	*reason = qp->reason;
	return qp->state;
}

int srdma_relay_qp_end(struct srdma_relay *r, struct srdma_leg *leg,
		       uint32_t qpn, uint32_t reason)
{
	struct srdma_qp *qp = srdma_relay_own_qp(r, leg, qpn);

	if (!qp)
		return -ENOENT;
	if (reason < SRDMA_REASON_PEER_CLOSED ||
	    reason > SRDMA_REASON_WIRE_LOST)
		return srdma_relay_refuse(
			r, -EINVAL,
			"reason %u; %u (PEER_CLOSED), %u (PEER_HOST_GONE) or %u (WIRE_LOST) would be right",
			reason, SRDMA_REASON_PEER_CLOSED,
			SRDMA_REASON_PEER_HOST_GONE, SRDMA_REASON_WIRE_LOST);
	srdma_qp_end(qp, (enum srdma_reason)reason, SRDMA_OLDEST);
	return 0;
}

int srdma_relay_qp_destroy(struct srdma_relay *r, struct srdma_leg *leg,
			   uint32_t qpn)
{
	struct srdma_qp *qp = srdma_relay_own_qp(r, leg, qpn);

	if (!qp)
		return -ENOENT;
	if (!qp->closing) {
		qp->closing = r->now ? r->now : 1;
		qp->silent = 1;
		srdma_qp_fail(qp, SRDMA_REASON_PEER_CLOSED, SRDMA_NONE, 1);
		srdma_relay_activate(qp);
	}
	if (!srdma_qp_removable(qp)) {
		srdma_relay_wake_at(r, r->now + SRDMA_SECOND / 1000);
		return -EINPROGRESS;
	}
	srdma_relay_forget(qp);
	return 0;
}
