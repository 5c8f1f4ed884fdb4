/*
 * Doorbell: wakes a process that sleeps (docs/local-interface.md 4). The
 * sleeper sets a flag in a page that others can only read. Another process
 * writes the sleeper's eventfd only if the flag is set, and makes no system
 * call otherwise.
 *
 * Sleeper: arm, check for work again, wait for the eventfd, disarm. Ringer:
 * publish, full fence, ring. The sleeper's fence is in srdma_doorbell_arm().
 * With both fences, at least one side sees the store of the other.
 */
#ifndef SRDMA_DOORBELL_H
#define SRDMA_DOORBELL_H

#include <stdatomic.h>
#include <stdint.h>

#include "port/shm/shm.h"

/* Events that the sleeper waits for. */
enum srdma_doorbell_flag {
	SRDMA_DOORBELL_NEWS = 1,   /* packets, descriptors, records, room */
	SRDMA_DOORBELL_MEMORY = 2, /* writes into the host's memory */
};

struct srdma_doorbell {
	struct srdma_shm page;
	int fd; /* memfd, passed to processes that may ring */
};

/*
 * Returns 0 or -errno. destroy accepts a zeroed bell whose create failed or was
 * not called.
 */
int srdma_doorbell_create(struct srdma_doorbell *bell);
void srdma_doorbell_destroy(struct srdma_doorbell *bell);

/* flags: SRDMA_DOORBELL_NEWS, or both flags. Includes a full fence. */
void srdma_doorbell_arm(struct srdma_doorbell *bell, uint32_t flags);
void srdma_doorbell_disarm(struct srdma_doorbell *bell);

/*
 * Returns a non-blocking eventfd to sleep on, owned by the caller, or -errno.
 */
int srdma_doorbell_eventfd(void);

/* The other side: the doorbell and eventfd of another process. */
struct srdma_ringer {
	struct srdma_shm page;
	int eventfd;
};

/*
 * Maps bell_fd and duplicates eventfd; the caller keeps both descriptors.
 * Returns 0; -EPERM or -ERANGE if bell_fd is not a sealed memfd of at least one
 * page;
 * -EINVAL if eventfd is not a non-blocking eventfd; another -errno.
 */
int srdma_ringer_open(struct srdma_ringer *ringer, int eventfd, int bell_fd);

/* Accepts a zeroed ringer. */
void srdma_ringer_close(struct srdma_ringer *ringer);

/*
 * Wake the sleeper if it waits for one of flags. The caller issues a full fence
 * before.
 */
void srdma_ringer_ring(const struct srdma_ringer *ringer, uint32_t flags);

#endif
