#include "host/leg_verbs_impl.h"

#include <errno.h>
#include <string.h>

enum { BATCH = 32 }; /* completions taken at once */

/* wr_id of heartbeats; those of descriptors are serial numbers of 32 bits. */
static const uint64_t BEAT = 1ULL << 32;

static uint32_t slot_of(uint32_t serial)
{
	return serial % SRDMA_LEG_VERBS_SLOTS;
}

static struct srdma_leg_verbs *verbs_of(struct srdma_host_leg *leg)
{
	return (struct srdma_leg_verbs *)leg;
}

void srdma_leg_verbs_data_init(struct srdma_leg_verbs *leg)
{
	for (uint32_t i = 0; i < SRDMA_LEG_VERBS_SLOTS; i++) {
		leg->sges[i] = (struct ibv_sge){
			.addr = (uintptr_t)leg->slots + i * SRDMA_DESC_SLOT,
			.lkey = leg->slots_mr->lkey,
		};
		leg->wrs[i] = (struct ibv_send_wr){
			.next = &leg->wrs[slot_of(i + 1)],
			.sg_list = &leg->sges[i],
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
		};
	}
	leg->beat = (struct ibv_send_wr){ .wr_id = BEAT,
					  .opcode = IBV_WR_SEND,
					  .send_flags = IBV_SEND_SIGNALED };
	for (uint32_t i = 0; i + 1 < SRDMA_LEG_VERBS_REFILL; i++)
		leg->refill[i].next = &leg->refill[i + 1];
}

/* --- receives ------------------------------------------------------------ */

/* A record consumes a receive, which has no memory. */
static int post_receives(struct srdma_leg_verbs *leg)
{
	struct ibv_recv_wr *bad;

	return ibv_post_recv(leg->qp, leg->refill, &bad);
}

int srdma_leg_verbs_data_receive(struct srdma_leg_verbs *leg)
{
	int err = 0;

	for (uint32_t i = 0; !err && i < leg->receives;
	     i += SRDMA_LEG_VERBS_REFILL)
		err = post_receives(leg);
	return -err;
}

static void repost(struct srdma_leg_verbs *leg)
{
	int err = 0;

	while (!err && leg->consumed >= SRDMA_LEG_VERBS_REFILL) {
		err = post_receives(leg);
		leg->consumed -= SRDMA_LEG_VERBS_REFILL;
	}
	if (err)
		srdma_leg_verbs_end(leg, "posting receives: %s", strerror(err));
}

/* --- completions --------------------------------------------------------- */

/* A completion of a SEND stands for all earlier ones. */
static void complete(struct srdma_leg_verbs *leg, const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS)
		srdma_leg_verbs_end(leg, "%s",
				    leg->rdma->wc_status_str(wc->status));
	else if (wc->opcode & IBV_WC_RECV)
		leg->consumed++;
	else if (wc->wr_id == BEAT)
		leg->beating = 0;
	else
		leg->done = (uint32_t)wc->wr_id + 1;
}

void srdma_leg_verbs_poll(struct srdma_host_leg *base)
{
	struct srdma_leg_verbs *leg = verbs_of(base);
	struct ibv_wc wcs[BATCH];
	int n = BATCH;

	while (n == BATCH && !leg->has_ended) {
		n = ibv_poll_cq(leg->cq, BATCH, wcs);
		for (int i = 0; i < n; i++)
			complete(leg, &wcs[i]);
		if (n < 0)
			srdma_leg_verbs_end(leg, "polling the CQ failed");
	}
	if (!leg->has_ended)
		repost(leg);
}

/* --- descriptors --------------------------------------------------------- */

static int is_full(const struct srdma_leg_verbs *leg)
{
	return leg->tail - leg->done == SRDMA_LEG_VERBS_SLOTS;
}

uint8_t *srdma_leg_verbs_slot(struct srdma_host_leg *base)
{
	struct srdma_leg_verbs *leg = verbs_of(base);

	if (is_full(leg)) {
		srdma_leg_verbs_flush(base);
		srdma_leg_verbs_poll(base);
	}
	if (leg->has_ended || is_full(leg))
		return NULL;
	return leg->slots + (size_t)slot_of(leg->tail) * SRDMA_DESC_SLOT;
}

int srdma_leg_verbs_post(struct srdma_host_leg *base, uint32_t len)
{
	struct srdma_leg_verbs *leg = verbs_of(base);
	const uint32_t slot = slot_of(leg->tail);
	struct ibv_send_wr *wr = &leg->wrs[slot];

	if (!len || len > SRDMA_DESC_SLOT)
		return -EMSGSIZE;
	leg->sges[slot].length = len;
	wr->wr_id = leg->tail++;
	wr->send_flags = len <= leg->inline_max ? IBV_SEND_INLINE : 0;
	if (leg->tail % SRDMA_LEG_VERBS_SIGNAL == 0)
		wr->send_flags |= IBV_SEND_SIGNALED;
	return 0;
}

void srdma_leg_verbs_flush(struct srdma_host_leg *base)
{
	struct srdma_leg_verbs *leg = verbs_of(base);
	struct ibv_send_wr *first, *last, *next, *bad;
	int err;

	if (leg->posted == leg->tail || leg->has_ended)
		return;
	first = &leg->wrs[slot_of(leg->posted)];
	last = &leg->wrs[slot_of(leg->tail - 1)];
	next = last->next;
	last->next = NULL;
	err = ibv_post_send(leg->qp, first, &bad);
	last->next = next;
	leg->posted = leg->tail;
	if (err)
		srdma_leg_verbs_end(leg, "posting descriptors: %s",
				    strerror(err));
}

void srdma_leg_verbs_beat(struct srdma_leg_verbs *leg)
{
	struct ibv_send_wr *bad;
	const int err = ibv_post_send(leg->qp, &leg->beat, &bad);

	leg->beating = 1;
	if (err)
		srdma_leg_verbs_end(leg, "posting a heartbeat: %s",
				    strerror(err));
}

/* The poll after the request handles completions for which no event will come.
 */
void srdma_leg_verbs_arm(struct srdma_host_leg *base)
{
	struct srdma_leg_verbs *leg = verbs_of(base);
	int err;

	srdma_leg_verbs_flush(base);
	if (leg->has_ended)
		return;
	err = ibv_req_notify_cq(leg->cq, 0);
	if (err)
		srdma_leg_verbs_end(leg, "requesting an event of the CQ: %s",
				    strerror(err));
	srdma_leg_verbs_poll(base);
}
