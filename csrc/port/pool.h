/*
 * A pool of equal private buffers, made once: what the ports in memory hand
 * their datagrams up in. Last put, first got, so that the bytes stay warm.
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

/* count buffers of SRDMA_POOL_CAP bytes. 0, -EINVAL, -ENOMEM. */
int srdma_pool_create(struct srdma_pool **out, struct srdma_port *port,
		      uint32_t count);

/* Frees the buffers too, whoever has them. NULL is allowed. */
void srdma_pool_destroy(struct srdma_pool *pool);

/* An empty buffer, or NULL when none is left. */
struct srdma_buf *srdma_pool_get(struct srdma_pool *pool);
void srdma_pool_put(struct srdma_pool *pool, struct srdma_buf *buf);

/* Buffers that can be got now. */
int srdma_pool_left(const struct srdma_pool *pool);

#endif
