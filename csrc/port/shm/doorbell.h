/*
 * Waking a process that sleeps (docs/protocol.md 11): the sleeper sets a
 * flag in a page that others can only read; who has news for it writes its
 * eventfd if the flag is set, and makes no system call otherwise.
 *
 * Sleeper: arm, look once more, wait for the eventfd, disarm.
 * Ringer: publish, then ring. Between the two lies a full fence on both
 * sides, so that one of them sees the other.
 */
#ifndef SRDMA_DOORBELL_H
#define SRDMA_DOORBELL_H

#include <stdatomic.h>
#include <stdint.h>

#include "port/shm/shm.h"

/* What the flag says the sleeper waits for. */
enum srdma_doorbell_flag {
	SRDMA_DOORBELL_NEWS = 1,   /* packets, descriptors, records, room */
	SRDMA_DOORBELL_MEMORY = 2, /* and writes into its memory */
};

struct srdma_doorbell {
	struct srdma_shm page;
	int fd; /* memfd, given to those who may ring */
};

/* 0 or -errno; destroy may follow a failed or no create of a zeroed one. */
int srdma_doorbell_create(struct srdma_doorbell *bell);
void srdma_doorbell_destroy(struct srdma_doorbell *bell);

/* flags: SRDMA_DOORBELL_NEWS, or both. */
void srdma_doorbell_arm(struct srdma_doorbell *bell, uint32_t flags);
void srdma_doorbell_disarm(struct srdma_doorbell *bell);

/* An eventfd to sleep on, non-blocking. Returns it or -errno. */
int srdma_doorbell_eventfd(void);

/* The other side: somebody's bell and eventfd. */
struct srdma_ringer {
	struct srdma_shm page;
	int eventfd;
};

/*
 * Both descriptors stay the caller's. 0; -EPERM, -ERANGE: bell_fd is not a
 * sealed page; -EINVAL: eventfd is not a non-blocking eventfd.
 */
int srdma_ringer_open(struct srdma_ringer *ringer, int eventfd, int bell_fd);

/* A zeroed one is allowed. */
void srdma_ringer_close(struct srdma_ringer *ringer);

/* Wake the sleeper if it waits for one of flags. After a full fence. */
void srdma_ringer_ring(const struct srdma_ringer *ringer, uint32_t flags);

#endif
