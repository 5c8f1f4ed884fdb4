#include "port/verbs/port_verbs_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void cut(struct srdma_verbs_slab *slab, struct srdma_verbs_port *port,
		uint32_t n, uint32_t stride)
{
	struct srdma_verbs_buf *buf = slab->bufs;
	uint32_t i;

	for (i = 0; i < n; ++i, ++buf) {
		buf->base.data = slab->mem + (size_t)i * stride;
		buf->base.cap = stride;
		buf->base.port = &port->base;
		buf->slab = slab;
		buf->sge.addr = (uintptr_t)buf->base.data;
		buf->sge.length = stride;
		buf->sge.lkey = slab->mr->lkey;
		buf->wr.sg_list = &buf->sge;
		buf->wr.num_sge = 1;
	}
}

static int slab_register(struct srdma_verbs_slab *slab,
			 struct srdma_verbs_port *port)
{
	slab->mem = mmap(NULL, slab->size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (slab->mem == MAP_FAILED) {
		slab->mem = NULL;
		return -ENOMEM;
	}
	slab->mr = ibv_reg_mr(port->pd, slab->mem, slab->size,
			      IBV_ACCESS_LOCAL_WRITE);
	if (slab->mr)
		return 0;
	return srdma_verbs_refuse(
		port, -errno, "registering %zu bytes failed: %s%s", slab->size,
		strerror(errno), errno == ENOMEM ? " (raise `ulimit -l`)" : "");
}

int srdma_verbs_slab_create(struct srdma_verbs_slab **out,
			    struct srdma_verbs_port *port, uint32_t n,
			    uint32_t stride, size_t extra)
{
	struct srdma_verbs_slab *slab = calloc(1, sizeof(*slab));
	int err = -ENOMEM;

	if (!slab)
		return err;
	slab->size = (size_t)n * stride + extra;
	slab->bufs = calloc(n, sizeof(*slab->bufs));
	if (slab->bufs)
		err = slab_register(slab, port);
	if (err) {
		srdma_verbs_slab_destroy(slab);
		return err;
	}
	cut(slab, port, n, stride);
	*out = slab;
	return 0;
}

void srdma_verbs_slab_destroy(struct srdma_verbs_slab *slab)
{
	if (!slab)
		return;
	if (slab->mr)
		ibv_dereg_mr(slab->mr);
	if (slab->mem)
		munmap(slab->mem, slab->size);
	free(slab->bufs);
	free(slab);
}

void srdma_verbs_slab_orphan(struct srdma_verbs_conn *conn)
{
	struct srdma_verbs_slab *slab = conn->slab;

	conn->slab = NULL;
	if (!slab)
		return;
	slab->conn = NULL;
	if (slab->lent)
		LIST_INSERT_HEAD(&conn->port->orphans, slab, link);
	else
		srdma_verbs_slab_destroy(slab);
}

void srdma_verbs_pool_fill(struct srdma_verbs_port *port, uint32_t n)
{
	while (n--)
		srdma_verbs_buf_put(&port->pool->bufs[n].base);
}

struct srdma_buf *srdma_verbs_buf_get(struct srdma_port *base)
{
	struct srdma_verbs_port *port = (struct srdma_verbs_port *)base;
	struct srdma_buf *buf = port->free;

	if (!buf)
		return NULL;
	port->free = buf->next;
	--port->free_count;
	buf->next = NULL;
	buf->len = 0;
	return buf;
}

/* Return a receive buffer to the connection on which it arrived. */
static void give_back(struct srdma_verbs_buf *buf)
{
	struct srdma_verbs_slab *slab = buf->slab;
	struct srdma_verbs_conn *conn = slab->conn;
	struct ibv_recv_wr *bad;

	--slab->lent;
	if (!conn) {
		if (slab->lent)
			return;
		LIST_REMOVE(slab, link);
		srdma_verbs_slab_destroy(slab);
		return;
	}
	if (conn->state == SRDMA_VERBS_FINISHED)
		return;
	buf->wr.next = conn->refill;
	conn->refill = &buf->wr;
	if (++conn->refills < SRDMA_VERBS_REFILL)
		return;
	if (ibv_post_recv(conn->qp, conn->refill, &bad))
		srdma_verbs_conn_end(conn, -EIO);
	conn->refill = NULL;
	conn->refills = 0;
}

void srdma_verbs_buf_put(struct srdma_buf *base)
{
	struct srdma_verbs_buf *buf = (struct srdma_verbs_buf *)base;
	struct srdma_verbs_port *port = (struct srdma_verbs_port *)base->port;

	if (buf->slab != port->pool) {
		give_back(buf);
		return;
	}
	base->next = port->free;
	port->free = base;
	++port->free_count;
}

int srdma_verbs_buf_free(struct srdma_port *base)
{
	return (int)((struct srdma_verbs_port *)base)->free_count;
}
