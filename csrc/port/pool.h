/*
 * A pool of equal private buffers, allocated once. The ports without device
 * memory (shm, udp, mem) hand datagrams up in them. Buffers are reused in LIFO
 * order to stay in the cache.
 */
#ifndef SRDMA_POOL_H
#define SRDMA_POOL_H

#include <stdint.h>

#include "wire/wire.h"

enum {
	SRDMA_POOL_ALIGN = 64,
	/* bytes of a buffer */
	SRDMA_POOL_CAP = (SRDMA_MAX_PACKET + SRDMA_POOL_ALIGN - 1) /
			 SRDMA_POOL_ALIGN * SRDMA_POOL_ALIGN,
};

struct srdma_buf;
struct srdma_pool;
struct srdma_port;

/*
 * Create a pool of count buffers of SRDMA_POOL_CAP bytes for port. Returns 0,
 * -EINVAL (count is 0 or above 2^20) or -ENOMEM.
 */
int srdma_pool_create(struct srdma_pool **out, struct srdma_port *port,
		      uint32_t count);

/*
 * Frees the pool and all its buffers, including those in use. pool may be NULL.
 */
void srdma_pool_destroy(struct srdma_pool *pool);

/*
 * Returns an empty buffer, or NULL if none is free. The caller owns it until
 * srdma_pool_put().
 */
struct srdma_buf *srdma_pool_get(struct srdma_pool *pool);
void srdma_pool_put(struct srdma_pool *pool, struct srdma_buf *buf);

/* Number of free buffers. */
int srdma_pool_left(const struct srdma_pool *pool);

#endif
