/*
 * The host's side of a leg (docs/protocol.md 9): fills descriptor slots,
 * reads the completion ring, keeps the credits. It does no I/O: the caller
 * owns the ring that the NIC writes and carries the slots to the NIC.
 * One thread at a time.
 *
 * A descriptor's id is the host's own number of the work request in its
 * queue, so the NIC's word alone never names a wr_id: every work request
 * ends once, whatever the ring says. Records that name no outstanding work
 * request are counted and left out.
 */
#ifndef SRDMA_HOST_H
#define SRDMA_HOST_H

#include <stdint.h>

#include "wire/wire.h"

struct srdma_host;

enum { SRDMA_HOST_MAX_RING = 65536, SRDMA_HOST_MAX_DEPTH = 4096 };

/*
 * ring: entries (a power of two) records of SRDMA_RECORD_LEN bytes, zeroed,
 * 8-byte aligned; the caller's, must outlive the host. 0, -EINVAL, -ENOMEM.
 */
int srdma_host_create(struct srdma_host **out, const void *ring,
		      uint32_t entries);
/* NULL is allowed. What is outstanding is forgotten. */
void srdma_host_destroy(struct srdma_host *h);

/*
 * A QP with queues of sq and rq work requests. 0; -EINVAL: number or a depth
 * out of range; -EEXIST; -ENOSPC: the ring has no room for sq + rq + 1
 * records more; -ENOMEM.
 */
int srdma_host_qp_add(struct srdma_host *h, uint32_t qpn, uint32_t sq,
		      uint32_t rq);
/* Forgets what is outstanding: call it after DESTROY. 0 or -ENOENT. */
int srdma_host_qp_remove(struct srdma_host *h, uint32_t qpn);

/*
 * Put one work request into slot (SRDMA_DESC_SLOT bytes). wr->id is the
 * application's wr_id; wr->consumed is not looked at; INLINE is set here
 * when payload (wr->length bytes, may be NULL) is given. RECVs are always
 * signaled. Returns the bytes used in the slot, which must then reach the
 * NIC; -ENOSPC: the queue is full until a completion is polled; -EMSGSIZE:
 * longer than a message or than an immediate payload may be; -EINVAL: no such
 * QP, opcode or flag, a capability where no peer's memory is named, or an
 * atomic of another length than SRDMA_ATOMIC_LEN;
 * -ENOTCONN: after srdma_host_fail().
 */
int srdma_host_post(struct srdma_host *h, const struct srdma_desc *wr,
		    const void *payload, uint8_t *slot);

/* 1: half a ring was consumed, and no descriptor told it. */
int srdma_host_owes(const struct srdma_host *h);

/*
 * Put a CREDIT descriptor into slot (SRDMA_DESC_LEN bytes) if one is owed.
 * Returns the bytes used, or 0.
 */
int srdma_host_credit(struct srdma_host *h, uint8_t *slot);

/*
 * Collect up to n completions, each with the wr_id as its id, in posting
 * order per queue. QP events have opcode SRDMA_WC_QP_EVENT and id 0.
 * Returns how many.
 */
int srdma_host_poll(struct srdma_host *h, struct srdma_record *out, int n);

/*
 * The worker is gone: from now on, behind what the ring still holds, poll
 * ends every outstanding work request, signaled or not: the first of each
 * queue with reason (enum srdma_reason), the others FLUSHED, and makes the
 * QP event of each QP that had none.
 */
void srdma_host_fail(struct srdma_host *h, uint32_t reason);

/* Records left out so far. */
uint64_t srdma_host_ignored(const struct srdma_host *h);

#endif
