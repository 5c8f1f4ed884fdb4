/*
 * The wr_ids of a shared queue of receives, whose records come in any order. Each
 * outstanding one has a number, which a later one does not get again for 2^27
 * uses of its place. So no record completes a receive twice. No I/O.
 */
#ifndef SRDMA_HOST_ID_POOL_H
#define SRDMA_HOST_ID_POOL_H

#include <stdint.h>

struct srdma_id_pool;

/* All numbers are below 2^SRDMA_ID_POOL_BITS. */
enum { SRDMA_ID_POOL_BITS = 39, SRDMA_ID_POOL_DEPTH = 4096 };

/* depth: 1 to SRDMA_ID_POOL_DEPTH. NULL: no memory. */
struct srdma_id_pool *srdma_id_pool_create(uint32_t depth);
/* NULL is allowed. */
void srdma_id_pool_free(struct srdma_id_pool *p);
/* 1: `depth` ids are outstanding. */
int srdma_id_pool_is_full(const struct srdma_id_pool *p);
/* Number of outstanding ids. */
uint32_t srdma_id_pool_count(const struct srdma_id_pool *p);
/* Returns the number of an id from now on. Requires that the pool is not full. */
uint64_t srdma_id_pool_add(struct srdma_id_pool *p, uint64_t wr_id);
/* Ends the number, which may be any, and sets *wr_id. 0, or -ENOENT: no such id is
 * outstanding. */
int srdma_id_pool_take(struct srdma_id_pool *p, uint64_t number,
		       uint64_t *wr_id);

#endif
