/*
 * The host's half of a leg over shared memory (docs/protocol.md 9, 11): the
 * descriptor ring that the host fills, the completion ring that its worker
 * fills, and waking both ways. The caller carries descriptors of the leg and
 * its regions over the control socket.
 *
 *     create -> OPEN with srdma_leg_shm_fds() -> attach(the answer's two)
 *     slot -> srdma_host_post() into it -> post -> ... -> flush
 *     arm -> look at ring and room once more -> wait for fd -> disarm
 */
#ifndef SRDMA_LEG_SHM_H
#define SRDMA_LEG_SHM_H

#include <stddef.h>
#include <stdint.h>

#include "port/shm/leg_layout.h"

struct srdma_leg_shm;

/* ring: records, a power of two. 0, -EINVAL, -ENOMEM, -errno. */
int srdma_leg_shm_create(struct srdma_leg_shm **out, uint32_t ring);
/* NULL is allowed. */
void srdma_leg_shm_destroy(struct srdma_leg_shm *leg);

/* The descriptors to send with OPEN; they stay the leg's. */
const int *srdma_leg_shm_fds(const struct srdma_leg_shm *leg);

/*
 * The descriptors that came with OPEN's answer; they stay the caller's, who
 * may close them. 0; -EPERM, -ERANGE, -EINVAL: not what a worker sends;
 * -EISCONN.
 */
int srdma_leg_shm_attach(struct srdma_leg_shm *leg,
			 const int fds[SRDMA_LEG_SHM_ANSWER_FDS]);

/* The next free slot, SRDMA_DESC_SLOT bytes; NULL: none, or not attached. */
uint8_t *srdma_leg_shm_slot(struct srdma_leg_shm *leg);
/* Take in the slot with len bytes in it. 0 or -EMSGSIZE. */
int srdma_leg_shm_post(struct srdma_leg_shm *leg, uint32_t len);
/* Show the worker what was posted and wake it if it sleeps. */
void srdma_leg_shm_flush(struct srdma_leg_shm *leg);

/* The completion ring: ring records, for srdma_host_create(). */
const uint8_t *srdma_leg_shm_ring(const struct srdma_leg_shm *leg);

/*
 * Before sleeping: from now on fd becomes readable at a new record, when a
 * full descriptor ring has room again and, with memory set, when the worker
 * wrote into a region of the leg. Look at all that once more after it.
 */
void srdma_leg_shm_arm(struct srdma_leg_shm *leg, int memory);
int srdma_leg_shm_fd(const struct srdma_leg_shm *leg);
/* After waking, or instead of sleeping. */
void srdma_leg_shm_disarm(struct srdma_leg_shm *leg);

/*
 * Zeroed memory of size bytes, rounded up to pages, that REG_MR can map:
 * *fd is to be sent with it, at offset 0, and closed by the caller, *addr to
 * be given back to region_free with the same size. 0 or -errno.
 */
int srdma_leg_shm_region(size_t size, int *fd, void **addr);
void srdma_leg_shm_region_free(void *addr, size_t size);

#endif
