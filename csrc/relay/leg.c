#include "relay/leg.h"

#include <errno.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "relay/relay_impl.h"
#include "requester/requester.h"
#include "responder/responder.h"

static struct srdma_qp *qp_of(struct srdma_leg *leg, uint32_t qpn)
{
	struct srdma_qp *qp = srdma_relay_qp(leg->relay, qpn);

	return qp && srdma_qp_leg(qp) == leg && !srdma_qp_is_silent(qp) ? qp
									: NULL;
}

static struct srdma_qp *next_of(const struct srdma_qp *qp)
{
	return srdma_qp_entry(qp)->leg_next;
}

static void post(struct srdma_leg *leg, struct srdma_qp *qp,
		 const struct srdma_desc *d, const uint8_t *behind)
{
	/* The peer's silence counts from the first request or receive. */
	if (!srdma_expire_is_waiting(qp)) {
		srdma_qp_set_heard(qp);
		srdma_qp_wake(qp, leg->relay->env.now + SRDMA_SECOND);
	}
	srdma_qp_entry(qp)->last_work = leg->relay->env.now;
	if (d->opcode == SRDMA_DESC_RECV)
		srdma_receive_queue_post(qp, d, behind);
	else
		srdma_post_request(qp, d, behind);
	srdma_qp_activate(qp);
}

/* A descriptor that cannot be decoded fails the QP that it names, if any. */
static void refuse(struct srdma_leg *leg, const struct srdma_buf *buf)
{
	struct srdma_qp *qp = qp_of(leg, srdma_desc_qpn(buf->data, buf->len));

	if (!qp) {
		leg->relay->env.stats.reason[SRDMA_REASON_BAD_DESCRIPTOR]++;
		return;
	}
	srdma_qp_fail(qp, SRDMA_REASON_BAD_DESCRIPTOR, SRDMA_OLDEST, 1);
}

void srdma_leg_descriptor(struct srdma_leg *leg, const struct srdma_buf *buf)
{
	struct srdma_stats *stats = &leg->relay->env.stats;
	struct srdma_desc d;
	struct srdma_qp *qp;
	int err = srdma_desc_decode(&d, buf->data, buf->len);

	stats->descriptors++;
	leg->taken++;
	/* -EMSGSIZE is reported by a completion record of the request. */
	if (err && err != -EMSGSIZE) {
		refuse(leg, buf);
		return;
	}
	srdma_cq_consume(&leg->cq, d.consumed);
	if (d.opcode == SRDMA_DESC_CREDIT) {
		for (qp = leg->qps; qp; qp = next_of(qp))
			srdma_qp_activate(qp);
		return;
	}
	qp = qp_of(leg, d.qpn);
	if (qp)
		post(leg, qp, &d, buf->data + SRDMA_DESC_LEN);
	else
		stats->reason[SRDMA_REASON_QP_STATE]++;
}

/* RFC 5042 R07-2 */
void srdma_leg_end(struct srdma_leg *leg)
{
	struct srdma_env *env = &leg->relay->env;

	leg->closing = 1;
	for (struct srdma_qp *qp = leg->qps; qp; qp = next_of(qp)) {
		struct srdma_relay_entry *e = srdma_qp_entry(qp);

		srdma_qp_silence(qp);
		srdma_qp_fail(qp, SRDMA_REASON_PEER_HOST_GONE, SRDMA_NONE, 1);
		if (!e->closing)
			e->closing = env->now;
		srdma_qp_activate(qp);
	}
	srdma_env_wake(env, env->now);
}

/* 0, or -EBUSY: a DMA on a region is under way. */
static int free_regions(struct srdma_leg *leg)
{
	struct srdma_mr_table *t = &leg->relay->env.mrs;
	struct srdma_mr *mr, *next;

	for (int i = 0; leg->mrs && i < SRDMA_MR_BUCKETS; i++) {
		for (mr = t->bucket[i]; mr; mr = next) {
			next = mr->next;
			if (mr->leg != leg)
				continue;
			srdma_mr_end(t, mr);
			if (mr->dmas)
				return -EBUSY;
			srdma_relay_free_mr(mr);
		}
	}
	return 0;
}

int srdma_leg_reap(struct srdma_leg *leg)
{
	struct srdma_relay *r = leg->relay;
	struct srdma_qp *qp, *next;

	if (!leg->closing)
		return 0;
	for (qp = leg->qps; qp; qp = next) {
		next = next_of(qp);
		if (srdma_relay_is_removable(qp))
			srdma_relay_forget(qp);
	}
	if (leg->qps || free_regions(leg))
		return 0;
	leg->conn->port->ops->close(leg->conn);
	r->legs[leg->id % SRDMA_MAX_LEGS] = NULL;
	r->leg_count--;
	srdma_leg_free(leg);
	srdma_cmac_forget(&r->cmac);
	return 1;
}

void srdma_leg_free(struct srdma_leg *leg)
{
	if (!leg)
		return;
	if (leg->account)
		srdma_relay_release_leg(leg);
	srdma_captable_wipe(&leg->captable);
	srdma_wipe(leg, sizeof(*leg));
	free(leg);
}
