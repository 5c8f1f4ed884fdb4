/*
 * Memory shared by file descriptor: memfds that cannot shrink, so that a
 * mapping of one never faults, whatever its other owner does to it
 * (docs/protocol.md 11).
 */
#ifndef SRDMA_SHM_H
#define SRDMA_SHM_H

#include <stddef.h>
#include <stdint.h>

enum { SRDMA_PAGE = 4096 };

/* A mapping; at may lie inside its first page. */
struct srdma_shm {
	uint8_t *at;
	size_t len; /* usable bytes from at */
};

/* n rounded up to whole pages. */
size_t srdma_shm_round(size_t n);

/*
 * Make a zeroed memfd of len bytes, sealed at this size, and map it.
 * Returns the descriptor, which is the caller's, or -errno.
 */
int srdma_shm_create(struct srdma_shm *shm, const char *name, size_t len);

/*
 * Map len bytes from offset of a memfd that somebody else made; fd stays
 * the caller's. 0; -EPERM: no memfd with F_SEAL_SHRINK; -ERANGE: shorter
 * than offset + len; -errno of mmap.
 */
int srdma_shm_map(struct srdma_shm *shm, int fd, uint64_t offset, size_t len,
		  int writable);

/* Unmap; a second time does nothing. */
void srdma_shm_unmap(struct srdma_shm *shm);

#endif
