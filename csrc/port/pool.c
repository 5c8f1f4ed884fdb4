#include "port/pool.h"

#include "port/port.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

enum { MOST = 1 << 20 };

struct srdma_pool {
	struct srdma_buf *bufs;
	struct srdma_buf *first; /* free ones */
	uint8_t *bytes;
	uint32_t left, count;
};

int srdma_pool_create(struct srdma_pool **out, struct srdma_port *port,
		      uint32_t count)
{
	struct srdma_pool *pool;

	if (!count || count > MOST)
		return -EINVAL;
	pool = calloc(1, sizeof(*pool));
	if (!pool)
		return -ENOMEM;
	pool->count = count;
	pool->bufs = calloc(count, sizeof(*pool->bufs));
	pool->bytes =
		aligned_alloc(SRDMA_POOL_ALIGN, (size_t)count * SRDMA_POOL_CAP);
	if (!pool->bufs || !pool->bytes) {
		srdma_pool_destroy(pool);
		return -ENOMEM;
	}
	for (uint32_t i = count; i-- > 0;) {
		pool->bufs[i].data = pool->bytes + (size_t)i * SRDMA_POOL_CAP;
		pool->bufs[i].cap = SRDMA_POOL_CAP;
		pool->bufs[i].port = port;
		srdma_pool_put(pool, &pool->bufs[i]);
	}
	*out = pool;
	return 0;
}

void srdma_pool_destroy(struct srdma_pool *pool)
{
	if (!pool)
		return;
	free(pool->bufs);
	free(pool->bytes);
	free(pool);
}

struct srdma_buf *srdma_pool_get(struct srdma_pool *pool)
{
	struct srdma_buf *buf = pool->first;

	if (!buf)
		return NULL;
	pool->first = buf->next;
	pool->left--;
	buf->next = NULL;
	buf->len = 0;
	return buf;
}

void srdma_pool_put(struct srdma_pool *pool, struct srdma_buf *buf)
{
	assert(pool->left < pool->count);
	buf->next = pool->first;
	pool->first = buf;
	pool->left++;
}

int srdma_pool_left(const struct srdma_pool *pool)
{
	return (int)pool->left;
}
