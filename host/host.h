/*
 * Host side of a leg (docs/local-interface.md 2): fills descriptor slots, reads
 * the completion ring, tracks credits. No I/O: the caller owns the ring that
 * the NIC writes and transfers the slots to the NIC. One thread at a time.
 *
 * A descriptor's id is a local number of the work request in its queue, not the
 * application's wr_id. So nothing that the NIC writes to the ring can complete
 * a work request twice or name a wr_id that is not outstanding. Records that
 * match no outstanding work request are counted and ignored.
 */
#ifndef SRDMA_HOST_H
#define SRDMA_HOST_H

#include <stdint.h>

#include "port/shm/leg_layout.h"
#include "wire/wire.h"

struct srdma_host;

enum {
	SRDMA_HOST_MAX_RING = SRDMA_LEG_SHM_MAX_RING,
	SRDMA_HOST_MAX_DEPTH = 4096,
	/* Records that a caller takes by one srdma_host_poll(), at most. The leg
	 * is polled before each. */
	SRDMA_HOST_BATCH = 64,
};

/*
 * ring: `entries` (a power of two, at most SRDMA_HOST_MAX_RING) records of
 * SRDMA_RECORD_LEN bytes, zeroed, 8-byte aligned; owned by the caller, must
 * outlive the host. 0, -EINVAL, -ENOMEM.
 */
int srdma_host_create(struct srdma_host **out, const void *ring,
		      uint32_t entries);
/* Frees h; outstanding work requests do not complete. NULL is allowed. */
void srdma_host_destroy(struct srdma_host *h);

/*
 * Adds a QP with queues of sq and rq work requests, 1..SRDMA_HOST_MAX_DEPTH. 0;
 * -EINVAL: QPN or a depth is out of range; -EEXIST: the QP exists; -ENOSPC: the
 * ring has no room for sq + rq + 1 more records; -ENOMEM.
 */
int srdma_host_qp_add(struct srdma_host *h, uint32_t qpn, uint32_t sq,
		      uint32_t rq);
/*
 * The worker has destroyed a QP that the program goes on using. After the
 * records that are still in the ring, poll completes its outstanding work
 * requests with an error, signaled or not: the first request with reason (enum
 * srdma_reason), other requests and receives with FLUSHED. The same happens to
 * those posted from now on. There is no QP event. 0, or -ENOENT: no such QP.
 */
int srdma_host_qp_fail(struct srdma_host *h, uint32_t qpn, uint32_t reason);
/*
 * The worker has another QP in place of this one, with the same QPN and depths
 * (docs/local-interface.md 3.6, REINIT): outstanding work requests do not complete,
 * and it shares no queue. Records of the QPN up to number `records` of the leg,
 * modulo 2^32, are ignored as after srdma_host_qp_remove(). 0, or -ENOENT: no such QP,
 * or the QP holds a shared queue.
 */
int srdma_host_qp_restart(struct srdma_host *h, uint32_t qpn, uint32_t records);
/* Removes a QP after DESTROY; its outstanding work requests do not complete. Over
 * verbs, its last records may arrive later: they are ignored, and each one ends the
 * receive of a shared queue that it names. 0, or -ENOENT: no such QP. */
int srdma_host_qp_remove(struct srdma_host *h, uint32_t qpn);

/*
 * The receives of the QP become a shared queue (docs/local-interface.md 3.6,
 * SHARE): the QPs that take them complete them, in any order. Requires that the
 * QP has none. 0; -ENOENT: no such QP; -ENOMEM.
 */
int srdma_host_share(struct srdma_host *h, uint32_t holder);
/* The QP takes its receives from the shared queue of the holder. -ENOENT: one of
 * both does not exist, or the holder has no shared queue. */
int srdma_host_join(struct srdma_host *h, uint32_t qpn, uint32_t holder);
/* Number of outstanding receives of a shared queue; 0: no such holder. */
uint32_t srdma_host_shared(const struct srdma_host *h, uint32_t holder);

/*
 * Queues one work request and writes its descriptor to slot (SRDMA_DESC_SLOT
 * bytes). wr->id is the application's wr_id; wr->consumed is ignored. behind:
 * NULL; or with wr->sges the SGL, from srdma_sgl_encode(); or wr->length bytes
 * of inline data. INLINE is set here. RECVs are always signaled.
 * Returns the number of bytes in slot, which the caller must transfer to the
 * NIC; 0: nothing must be transferred, because the QP has failed;
 * -ENOSPC: the queue is full until a completion is polled;
 * -EMSGSIZE: longer than SRDMA_MAX_MESSAGE or than the limit of inline data;
 * -EINVAL: no such QP, opcode or flag, a capability on an opcode that names no
 * remote memory, inline data on an opcode that sends none, an SGL on an opcode
 * that has none, an atomic whose length or operands are not legal, or an
 * ATOMIC_WRITE whose length is not 8 or whose address is no multiple of 8;
 * -ENOTCONN: after srdma_host_fail().
 */
int srdma_host_post(struct srdma_host *h, const struct srdma_desc *wr,
		    const void *behind, uint8_t *slot);

/* Requests that can be posted to the QP before -ENOSPC; 0: no such QP. */
uint32_t srdma_host_send_room(const struct srdma_host *h, uint32_t qpn);

/* 1 if a CREDIT descriptor is due: at least half of the ring was consumed since
 * the last descriptor. */
int srdma_host_owes(const struct srdma_host *h);

/*
 * Writes a CREDIT descriptor to slot (SRDMA_DESC_LEN bytes) if one is due.
 * Returns the number of bytes used, or 0.
 */
int srdma_host_credit(struct srdma_host *h, uint8_t *slot);

/*
 * Polls up to n completions, in posting order per queue. Their id is the
 * application's wr_id. A QP event has opcode SRDMA_WC_QP_EVENT and id 0.
 * Returns the number of completions.
 */
int srdma_host_poll(struct srdma_host *h, struct srdma_record *out, int n);

/*
 * The worker ended. After the records that are still in the ring, poll
 * completes each outstanding work request, signaled or not, with an error: the
 * first of each queue with reason (enum srdma_reason), the others with FLUSHED.
 * Each QP without a QP event gets one. Only the first call has an effect.
 */
void srdma_host_fail(struct srdma_host *h, uint32_t reason);

/* Number of descriptors that were written to slots, modulo 2^32. */
uint32_t srdma_host_posted(const struct srdma_host *h);

/* Number of records ignored so far. */
uint64_t srdma_host_ignored(const struct srdma_host *h);

#endif
