#include "host/verbs_queue.h"

#include <errno.h>

#include "host/host.h"
#include "port/leg_time.h"

enum { BATCH = 32 }; /* completions taken at once */

/* wr_id of heartbeats; those of descriptors are serial numbers of 32 bits. */
static const uint64_t BEAT = 1ULL << 32;

static uint32_t slot_of(uint32_t serial)
{
	return serial % SRDMA_VERBS_QUEUE_SLOTS;
}

uint32_t srdma_verbs_queue_receives(uint32_t ring)
{
	return ring + SRDMA_VERBS_QUEUE_REFILL + SRDMA_HOST_BATCH;
}

void srdma_verbs_queue_init(struct srdma_verbs_queue *q,
			    const struct srdma_verbs_queue_params *params)
{
	*q = (struct srdma_verbs_queue){
		.p = *params,
		.beat = { .wr_id = BEAT,
			  .opcode = IBV_WR_SEND,
			  .send_flags = IBV_SEND_SIGNALED },
	};
	for (uint32_t i = 0; i < SRDMA_VERBS_QUEUE_SLOTS; i++) {
		q->sges[i] = (struct ibv_sge){
			.addr = (uintptr_t)q->p.slots + i * SRDMA_DESC_SLOT,
			.lkey = q->p.lkey,
		};
		q->wrs[i] = (struct ibv_send_wr){
			.next = &q->wrs[slot_of(i + 1)],
			.sg_list = &q->sges[i],
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
		};
	}
	for (uint32_t i = 0; i + 1 < SRDMA_VERBS_QUEUE_REFILL; i++)
		q->refill[i].next = &q->refill[i + 1];
}

/* Only the first failure is kept. */
static void fail(struct srdma_verbs_queue *q, const char *what, int err)
{
	if (!err || srdma_verbs_queue_has_failed(q))
		return;
	q->failed = what;
	q->error = err;
}

/* --- receives ------------------------------------------------------------ */

static int post_receives(struct srdma_verbs_queue *q)
{
	struct ibv_recv_wr *bad;

	return ibv_post_recv(q->p.qp, q->refill, &bad);
}

int srdma_verbs_queue_start(struct srdma_verbs_queue *q)
{
	const uint32_t n = srdma_verbs_queue_receives(q->p.ring);
	int err = 0;

	for (uint32_t i = 0; !err && i < n; i += SRDMA_VERBS_QUEUE_REFILL)
		err = post_receives(q);
	return -err;
}

static void repost(struct srdma_verbs_queue *q)
{
	int err = 0;

	while (!err && q->consumed >= SRDMA_VERBS_QUEUE_REFILL) {
		err = post_receives(q);
		q->consumed -= SRDMA_VERBS_QUEUE_REFILL;
	}
	fail(q, "posting receives", err);
}

/* --- completions --------------------------------------------------------- */

/* A completion of a SEND stands for all earlier ones. */
static void complete(struct srdma_verbs_queue *q, const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS) {
		if (!srdma_verbs_queue_has_failed(q))
			q->status = wc->status;
	} else if (wc->opcode & IBV_WC_RECV) {
		q->consumed++;
	} else if (wc->wr_id == BEAT) {
		q->beating = 0;
	} else {
		q->done = (uint32_t)wc->wr_id + 1;
	}
}

int srdma_verbs_queue_poll(struct srdma_verbs_queue *q)
{
	struct ibv_wc wcs[BATCH];
	int n = BATCH, total = 0;

	while (n == BATCH && !srdma_verbs_queue_has_failed(q)) {
		n = ibv_poll_cq(q->p.cq, BATCH, wcs);
		for (int i = 0; i < n; i++)
			complete(q, &wcs[i]);
		total += n > 0 ? n : 0;
		fail(q, "polling the CQ", n < 0 ? EIO : 0);
	}
	if (!srdma_verbs_queue_has_failed(q))
		repost(q);
	return total;
}

void srdma_verbs_queue_notify(struct srdma_verbs_queue *q)
{
	if (!srdma_verbs_queue_has_failed(q))
		fail(q, "requesting an event of the CQ",
		     ibv_req_notify_cq(q->p.cq, 0));
}

/* --- descriptors --------------------------------------------------------- */

static int is_full(const struct srdma_verbs_queue *q)
{
	return q->tail - q->done == SRDMA_VERBS_QUEUE_SLOTS;
}

uint8_t *srdma_verbs_queue_slot(struct srdma_verbs_queue *q)
{
	if (is_full(q)) {
		srdma_verbs_queue_flush(q);
		srdma_verbs_queue_poll(q);
	}
	if (srdma_verbs_queue_has_failed(q) || is_full(q))
		return NULL;
	return q->p.slots + (size_t)slot_of(q->tail) * SRDMA_DESC_SLOT;
}

int srdma_verbs_queue_post(struct srdma_verbs_queue *q, uint32_t len)
{
	const uint32_t slot = slot_of(q->tail);
	struct ibv_send_wr *wr = &q->wrs[slot];

	if (!len || len > SRDMA_DESC_SLOT)
		return -EMSGSIZE;
	q->sges[slot].length = len;
	wr->wr_id = q->tail++;
	wr->send_flags = len <= q->p.inline_max ? IBV_SEND_INLINE : 0;
	if (q->tail % SRDMA_VERBS_QUEUE_SIGNAL == 0)
		wr->send_flags |= IBV_SEND_SIGNALED;
	return 0;
}

void srdma_verbs_queue_flush(struct srdma_verbs_queue *q)
{
	struct ibv_send_wr *first, *last, *next, *bad;
	int err;

	if (q->posted == q->tail || srdma_verbs_queue_has_failed(q))
		return;
	first = &q->wrs[slot_of(q->posted)];
	last = &q->wrs[slot_of(q->tail - 1)];
	next = last->next;
	last->next = NULL;
	err = ibv_post_send(q->p.qp, first, &bad);
	last->next = next;
	q->posted = q->tail;
	fail(q, "posting descriptors", err);
}

/* --- heartbeats ---------------------------------------------------------- */

int srdma_verbs_queue_keepalive(struct srdma_verbs_queue *q, int64_t now)
{
	const int64_t age = now - q->beat_at;
	struct ibv_send_wr *bad;

	/* If the program did not look for long, the ack may be in the CQ. */
	if (q->beating && age >= SRDMA_LEG_SILENCE_MS)
		srdma_verbs_queue_poll(q);
	if (srdma_verbs_queue_has_failed(q))
		return 0;
	if (q->beating)
		return age >= SRDMA_LEG_SILENCE_MS ? -ETIMEDOUT : 0;
	if (q->beat_at && age < SRDMA_LEG_BEAT_MS)
		return 0;
	q->beat_at = now;
	q->beating = 1;
	fail(q, "posting a heartbeat", ibv_post_send(q->p.qp, &q->beat, &bad));
	return 1;
}
