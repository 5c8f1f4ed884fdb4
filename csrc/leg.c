#include "leg.h"

#include <errno.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "relay_impl.h"

static struct srdma_qp *qp_of(struct srdma_leg *leg, uint32_t qpn)
{
	struct srdma_qp *qp = srdma_relay_qp(leg->relay, qpn);

	return qp && qp->leg == leg && !qp->silent ? qp : NULL;
}

/* A host that counts beyond what was written is not believed. */
static void consume(struct srdma_leg *leg, uint32_t consumed)
{
	if (consumed - leg->consumed <= leg->written - leg->consumed)
		leg->consumed = consumed;
}

void srdma_leg_descriptor(struct srdma_leg *leg, const struct srdma_buf *buf)
{
	struct srdma_stats *stats = &leg->relay->stats;
	struct srdma_desc d;
	struct srdma_qp *qp;
	int err = srdma_desc_decode(&d, buf->data, buf->len);

	stats->descriptors++;
	if (err && err != -EMSGSIZE) { /* too long a message is named */
		qp = qp_of(leg, srdma_desc_qpn(buf->data, buf->len));
		if (qp)
			srdma_qp_fail(qp, SRDMA_REASON_BAD_DESCRIPTOR,
				      SRDMA_OLDEST, 1);
		else
			stats->reason[SRDMA_REASON_BAD_DESCRIPTOR]++;
		return;
	}
	consume(leg, d.consumed);
	if (d.opcode == SRDMA_DESC_CREDIT) {
		for (qp = leg->qps; qp; qp = qp->leg_next)
			srdma_relay_activate(qp);
		return;
	}
	qp = qp_of(leg, d.qpn);
	if (qp)
		srdma_post(qp, &d, buf->data + SRDMA_DESC_LEN);
	else
		stats->reason[SRDMA_REASON_QP_STATE]++;
}

int srdma_leg_record(struct srdma_leg *leg, struct srdma_record *rec)
{
	uint8_t bytes[SRDMA_RECORD_LEN];
	int err;

	if (leg->down)
		return 0;
	if (leg->written - leg->consumed >= leg->ring)
		return -EAGAIN;
	rec->sequence = leg->written + 1;
	srdma_record_encode(bytes, rec);
	err = leg->relay->host->ops->complete(
		leg->conn, leg->written & (leg->ring - 1), bytes);
	if (err == -EAGAIN)
		return err;
	/* Any other failure is the leg's end, which arrives as an event. */
	leg->written++;
	leg->relay->stats.completions++;
	if (rec->status)
		leg->relay->stats.completions_failed++;
	return 0;
}

void srdma_leg_end(struct srdma_leg *leg)
{
	leg->closing = 1;
	for (struct srdma_qp *qp = leg->qps; qp; qp = qp->leg_next) {
		qp->silent = 1;
		srdma_qp_fail(qp, SRDMA_REASON_PEER_HOST_GONE, SRDMA_NONE, 1);
		if (!qp->closing)
			qp->closing = leg->relay->now;
		srdma_relay_activate(qp);
	}
	srdma_relay_wake_at(leg->relay, leg->relay->now);
}

static int free_regions(struct srdma_leg *leg)
{
	struct srdma_mr_table *t = &leg->relay->mrs;
	struct srdma_mr *mr, *next;

	for (int i = 0; leg->mrs && i < SRDMA_MR_BUCKETS; i++) {
		for (mr = t->bucket[i]; mr; mr = next) {
			next = mr->next;
			if (mr->leg != leg)
				continue;
			mr->dead = 1;
			if (mr->dmas)
				return -EBUSY;
			srdma_mr_free(t, mr);
			leg->mrs--;
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
		next = qp->leg_next;
		if (srdma_qp_removable(qp))
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
	srdma_grant_wipe(&leg->grants);
	srdma_wipe(leg, sizeof(*leg));
	free(leg);
}
