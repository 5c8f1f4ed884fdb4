/*
 * Doorbell: wakes a process that sleeps (docs/local-interface.md 4). The
 * sleeper sets a flag in a page that others can only read. Another process
 * writes the sleeper's wake-up object only if the flag is set, and makes no
 * system call otherwise.
 *
 * The object is an eventfd where the ringer trusts the sleeper: write() blocks
 * if the sleeper clears O_NONBLOCK and fills the counter. A worker wakes hosts
 * and other workers through socket pairs: send() with MSG_DONTWAIT does not
 * block, whatever the sleeper does with its descriptors.
 *
 * Sleeper: arm, check for work again, wait for the object, disarm. Ringer:
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

/* Ends of the socket pair of a sleeper that its ringer does not trust. */
enum srdma_doorbell_end {
	SRDMA_DOORBELL_SLEEPER, /* readable from a ring until drain */
	SRDMA_DOORBELL_RINGER,	/* passed to the ringer; the sleeper keeps it
				   open, because without it the end of the
				   ringer makes its own end readable */
};

/*
 * Create a socket pair to sleep on, whose ends the caller owns. Returns 0 or
 * -errno.
 */
int srdma_doorbell_socket(int ends[2]);
/*
 * Remove all rings from the sleeper's end. Does not block if the ringer passes
 * no files.
 */
void srdma_doorbell_drain(int end);
/*
 * The same for a ringer that the sleeper does not trust: does not block.
 * Removes at most 64 rings. Returns 0, or -EPROTO: the ringer passed files. They
 * stay in the queue: closing `end` may block.
 */
int srdma_doorbell_drain_checked(int end);

/* The wake-up object of a sleeper. */
enum srdma_wake {
	SRDMA_WAKE_EVENTFD,
	SRDMA_WAKE_SOCKET,
};

/* The other side: the doorbell and wake-up object of another process. */
struct srdma_ringer {
	struct srdma_shm page;
	enum srdma_wake wake;
	int fd;
};

/*
 * Maps bell_fd and duplicates fd; the caller keeps both descriptors. A socket
 * is shut down for reading, so that its receive queue stays empty. Returns 0;
 * -EPERM or -ERANGE if bell_fd is not a sealed memfd of at least one page;
 * -EINVAL if fd is not a non-blocking eventfd, or not one end of a pair of
 * empty Unix stream sockets, as `wake` demands; another -errno.
 */
int srdma_ringer_open(struct srdma_ringer *ringer, enum srdma_wake wake, int fd,
		      int bell_fd);

/* Accepts a zeroed ringer. */
void srdma_ringer_close(struct srdma_ringer *ringer);

/*
 * Wake the sleeper if it waits for one of flags. The caller issues a full fence
 * before.
 */
void srdma_ringer_ring(const struct srdma_ringer *ringer, uint32_t flags);

#endif
