/*
 * Doorbell: wakes a process that sleeps (docs/protocol.md 11). The sleeper sets
 * a flag in a page that others can only read. Another process writes the
 * sleeper's eventfd only if the flag is set, and makes no system call
 * otherwise.
 *
 * Sleeper: arm, check for work again, wait for the eventfd, disarm. Ringer:
 * publish, full fence, ring. The sleeper's fence is in srdma_bell_arm(). With
 * both fences, at least one side sees the store of the other.
 */
#ifndef SRDMA_BELL_H
#define SRDMA_BELL_H

#include <stdatomic.h>
#include <stdint.h>

#include "shm.h"

/* Events that the sleeper waits for. */
enum srdma_bell_flag {
	SRDMA_BELL_NEWS = 1,   /* packets, descriptors, records, room */
	SRDMA_BELL_MEMORY = 2, /* writes into the host's memory */
};

struct srdma_bell {
	struct srdma_shm page;
	int fd; /* memfd, passed to processes that may ring */
};

/*
 * Returns 0 or -errno. destroy accepts a zeroed bell whose create failed or was
 * not called.
 */
int srdma_bell_create(struct srdma_bell *bell);
void srdma_bell_destroy(struct srdma_bell *bell);

/* flags: SRDMA_BELL_NEWS, or both flags. Includes a full fence. */
void srdma_bell_arm(struct srdma_bell *bell, uint32_t flags);
void srdma_bell_disarm(struct srdma_bell *bell);

/*
 * Returns a non-blocking eventfd to sleep on, owned by the caller, or -errno.
 */
int srdma_bell_eventfd(void);

/* The other side: the doorbell and eventfd of another process. */
struct srdma_ringer {
	struct srdma_shm page;
	int eventfd;
};

/*
 * Maps bell_fd and duplicates eventfd; the caller keeps both descriptors.
 * Returns 0; -EPERM or -ERANGE if bell_fd is not a sealed memfd of a page;
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
