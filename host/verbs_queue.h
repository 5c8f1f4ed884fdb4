/*
 * The data path of a leg over verbs (docs/local-interface.md 2.4): descriptors
 * are SENDs of a QP, records consume receives without memory. The objects of the
 * device belong to the caller: the leg of libsrdma, or pyverbs. After a failure
 * the caller ends the leg, and no function has an effect.
 */
#ifndef SRDMA_HOST_VERBS_QUEUE_H
#define SRDMA_HOST_VERBS_QUEUE_H

#include <stdint.h>

#include <infiniband/verbs.h>

#include "wire/wire.h"

enum {
	SRDMA_VERBS_QUEUE_SLOTS = 256, /* a power of two */
	/* send queue: the last place is that of a heartbeat */
	SRDMA_VERBS_QUEUE_SENDS = SRDMA_VERBS_QUEUE_SLOTS + 1,
	SRDMA_VERBS_QUEUE_SIGNAL = 16, /* every n-th SEND is signaled */
	SRDMA_VERBS_QUEUE_REFILL = 16, /* receives are posted n at a time */
};

struct srdma_verbs_queue_params {
	struct ibv_qp
		*qp; /* queues of SENDS and srdma_verbs_queue_receives() */
	struct ibv_cq *cq; /* of both queues */
	uint8_t *slots;	   /* SLOTS times SRDMA_DESC_SLOT bytes */
	uint32_t lkey;	   /* of the slots */
	uint32_t inline_max;
	uint32_t ring; /* records, a power of two from 64 */
};

struct srdma_verbs_queue {
	struct srdma_verbs_queue_params p;
	uint32_t consumed; /* receives to post again */
	struct ibv_recv_wr refill[SRDMA_VERBS_QUEUE_REFILL]; /* linked */
	/* Serial numbers of descriptors: done <= posted <= tail. */
	uint32_t done, posted, tail;
	struct ibv_send_wr wrs[SRDMA_VERBS_QUEUE_SLOTS]; /* a linked circle */
	struct ibv_sge sges[SRDMA_VERBS_QUEUE_SLOTS];
	struct ibv_send_wr beat; /* the heartbeat */
	int beating;		 /* 1: it is under way */
	int64_t beat_at;	 /* time of the last one, ms; 0: none */

	/* The failure: what could not be done, and errno; or the status of a
	 * completion. NULL, 0: none. */
	const char *failed;
	int error;
	enum ibv_wc_status status;
};

/*
 * Depth of the receive queue for a ring. A receive is posted for each record
 * that the worker may write if the queue is polled before each SRDMA_HOST_BATCH
 * records: of their receives the CQ may tell later.
 */
uint32_t srdma_verbs_queue_receives(uint32_t ring);

void srdma_verbs_queue_init(struct srdma_verbs_queue *q,
			    const struct srdma_verbs_queue_params *params);
/* Posts all receives; the QP is in INIT. 0 or -errno. */
int srdma_verbs_queue_start(struct srdma_verbs_queue *q);

/* The next free slot, the same until post; NULL: none is free. */
uint8_t *srdma_verbs_queue_slot(struct srdma_verbs_queue *q);
/* Appends the slot, of which len bytes are used. 0 or -EMSGSIZE. */
int srdma_verbs_queue_post(struct srdma_verbs_queue *q, uint32_t len);
void srdma_verbs_queue_flush(struct srdma_verbs_queue *q);
/* Takes the completions. Returns their number. */
int srdma_verbs_queue_poll(struct srdma_verbs_queue *q);
/* Requests an event of the CQ. Poll afterwards: it comes for later completions
 * only. */
void srdma_verbs_queue_notify(struct srdma_verbs_queue *q);
/*
 * Sends heartbeats. now: monotonic, ms. Returns 1 if it sent one: to be called
 * again after SRDMA_LEG_BEAT_MS, and from then on every SRDMA_LEG_LOOK_MS, or
 * more often; 0; -ETIMEDOUT if a heartbeat was not acknowledged in time: the
 * worker is lost.
 */
int srdma_verbs_queue_keepalive(struct srdma_verbs_queue *q, int64_t now);

/* 1 after a failure. */
static inline int
srdma_verbs_queue_has_failed(const struct srdma_verbs_queue *q)
{
	return q->failed || q->status != IBV_WC_SUCCESS;
}

#endif
