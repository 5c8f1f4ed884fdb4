/*
 * The host's half of a leg over shared memory (docs/local-interface.md 2, 4):
 * the descriptor ring that the host fills, the completion ring that the worker
 * fills, and the doorbells of both directions. The caller passes the file
 * descriptors of the leg and its regions over the control socket.
 *
 *     create -> OPEN with srdma_leg_shm_fds() -> attach(the response's two fds)
 *     slot -> srdma_host_post() into it -> post -> ... -> flush
 *     arm -> check ring and room again -> wait for fd -> disarm
 *
 * libsrdma uses the leg by the interface of leg.h, which is the same for all
 * kinds. The functions below serve the programs of bench/ and the Python
 * extension modules, which have legs of this kind only.
 */
#ifndef SRDMA_LEG_SHM_H
#define SRDMA_LEG_SHM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "host/leg.h"
#include "port/shm/leg_layout.h"

struct srdma_leg_shm;

/*
 * ring: number of records, a power of two from MIN_RING to MAX_RING. Returns 0,
 * -EINVAL, -ENOMEM or another -errno.
 */
int srdma_leg_shm_create(struct srdma_leg_shm **out, uint32_t ring);
/* leg may be NULL. */
void srdma_leg_shm_destroy(struct srdma_leg_shm *leg);

/*
 * The SRDMA_LEG_SHM_OPEN_FDS descriptors to send with OPEN; the leg owns them.
 */
const int *srdma_leg_shm_fds(const struct srdma_leg_shm *leg);

/*
 * Attach the descriptors received in the response to OPEN. The caller keeps
 * them and may close them. Returns 0; -EPERM, -ERANGE or -EINVAL if they are
 * not an eventfd and a doorbell; -EISCONN if the leg is attached already.
 */
int srdma_leg_shm_attach(struct srdma_leg_shm *leg,
			 const int fds[SRDMA_LEG_SHM_ANSWER_FDS]);

/*
 * The interface of leg.h. tracer: process that regions without a memfd permit
 * to trace this one (PR_SET_PTRACER), because it copies them by process_vm_*;
 * 0: none. The leg is destroyed by either of the two functions.
 */
struct srdma_host_leg *srdma_leg_shm_base(struct srdma_leg_shm *leg,
					  pid_t tracer);

/*
 * The next free slot of SRDMA_DESC_SLOT bytes; NULL: none is free, or not
 * attached.
 */
uint8_t *srdma_leg_shm_slot(struct srdma_leg_shm *leg);
/* Append the slot, of which len bytes are used. Returns 0 or -EMSGSIZE. */
int srdma_leg_shm_post(struct srdma_leg_shm *leg, uint32_t len);
/* Publish posted descriptors and wake the worker if it sleeps. */
void srdma_leg_shm_flush(struct srdma_leg_shm *leg);

/* The completion ring, an array of ring records, for srdma_host_create(). */
const uint8_t *srdma_leg_shm_ring(const struct srdma_leg_shm *leg);

/*
 * Prepare to sleep. From now on fd becomes readable when a record arrives, when
 * a full descriptor ring has room again and, if memory is not 0, when the
 * worker wrote into a region of the leg. Check these conditions again after arm
 * and before sleeping.
 */
void srdma_leg_shm_arm(struct srdma_leg_shm *leg, int memory);
int srdma_leg_shm_fd(const struct srdma_leg_shm *leg);
/* Call after waking, or instead of sleeping. */
void srdma_leg_shm_disarm(struct srdma_leg_shm *leg);

/*
 * Allocate zeroed memory of size bytes, rounded up to pages, that REG_MR can
 * map. The caller sends *fd with REG_MR at offset 0 and closes it, and passes
 * *addr to region_free with the same size. Returns 0 or -errno.
 */
int srdma_leg_shm_region(size_t size, int *fd, void **addr);
void srdma_leg_shm_region_free(void *addr, size_t size);

#endif
