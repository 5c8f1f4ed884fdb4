/*
 * Memory shared by file descriptor: memfds sealed against shrinking, so that no
 * other holder of the memfd can make an access to a mapping fault
 * (docs/local-interface.md 4).
 */
#ifndef SRDMA_SHM_H
#define SRDMA_SHM_H

#include <stddef.h>
#include <stdint.h>

enum { SRDMA_PAGE = 4096 };

/* A mapping. at need not be page-aligned. */
struct srdma_shm {
	uint8_t *at;
	size_t len; /* usable bytes from at */
};

/* Round n up to whole pages. */
size_t srdma_shm_round(size_t n);

/*
 * Create and map a zeroed memfd of len bytes, sealed at this size. Returns its
 * descriptor, owned by the caller, or -errno.
 */
int srdma_shm_create(struct srdma_shm *shm, const char *name, size_t len);

/*
 * Map len bytes at offset of a memfd made by another process. The caller keeps
 * fd. Returns 0; -EPERM if fd is not a tmpfs memfd with F_SEAL_SHRINK; -ERANGE
 * if it is shorter than offset + len; or -errno of fstat or mmap.
 */
int srdma_shm_map(struct srdma_shm *shm, int fd, uint64_t offset, size_t len,
		  int writable);

/* Unmap. Calling it again has no effect. */
void srdma_shm_unmap(struct srdma_shm *shm);

#endif
