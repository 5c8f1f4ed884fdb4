#include "port/verbs/port_verbs_impl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int srdma_verbs_leg_open(struct srdma_port *base,
			 const struct srdma_leg_params *params,
			 struct srdma_conn **leg,
			 struct srdma_leg_answer *answer)
{
	struct srdma_verbs_port *port = (struct srdma_verbs_port *)base;
	struct srdma_verbs_conn *conn;
	int err;

	if (!params->ring)
		return srdma_verbs_refuse(port, -EINVAL,
					  "the ring has 0 records: "
					  "request at least 1");
	err = srdma_verbs_conn_create(&conn, port, params->ring);
	if (err)
		return err;
	memcpy(conn->token, params->token, sizeof(conn->token));
	memcpy(answer->address, base->address, sizeof(answer->address));
	answer->fds[0] = answer->fds[1] = -1;
	*leg = &conn->base;
	return 0;
}

int srdma_verbs_leg_region_open(struct srdma_conn *leg,
				const struct srdma_region_params *params,
				struct srdma_region **out)
{
	struct srdma_verbs_port *port = (struct srdma_verbs_port *)leg->port;
	struct srdma_verbs_region *region;

	if ((params->access & IBV_ACCESS_REMOTE_ATOMIC) &&
	    port->limits.atomic_cap == IBV_ATOMIC_NONE)
		return srdma_verbs_refuse(port, -EOPNOTSUPP,
					  "REMOTE_ATOMIC: the worker's device "
					  "has no atomics");
	region = calloc(1, sizeof(*region));
	if (!region)
		return -ENOMEM;
	region->base.leg = leg;
	region->base.base = params->addr;
	region->base.length = params->length;
	region->rkey = params->host_rkey;
	*out = &region->base;
	return 0;
}

void srdma_verbs_leg_region_close(struct srdma_region *region)
{
	free(region);
}

int srdma_verbs_leg_next(struct srdma_verbs_conn *conn, struct ibv_send_wr **wr)
{
	if (conn->state > SRDMA_VERBS_UP)
		return -EPIPE;
	if (conn->state != SRDMA_VERBS_UP ||
	    conn->tail - conn->told == conn->depth)
		return -EAGAIN;
	*wr = &conn->wrs[srdma_verbs_slot(conn, conn->tail)];
	return 0;
}

static struct srdma_verbs_conn *leg_of(const struct srdma_dma *dma)
{
	return (struct srdma_verbs_conn *)dma->region->leg;
}

static uint32_t rkey_of(const struct srdma_dma *dma)
{
	return ((const struct srdma_verbs_region *)dma->region)->rkey;
}

/*
 * Without the fence, a WRITE or an atomic may take effect before an earlier
 * READ.
 */
static unsigned int fence(const struct srdma_verbs_conn *conn)
{
	return (int32_t)(conn->read_end - conn->done) > 0 ? IBV_SEND_FENCE : 0;
}

/*
 * The next work request with its buffer. Returns 0, -EINVAL, -EAGAIN or -EPIPE.
 */
static int dma_next(const struct srdma_dma *dma, struct ibv_send_wr **wr)
{
	const struct srdma_verbs_buf *buf =
		(const struct srdma_verbs_buf *)dma->buf;
	struct srdma_verbs_conn *conn = leg_of(dma);
	int err;

	if (dma->buf->port != &conn->port->base)
		return -EINVAL;
	err = srdma_verbs_leg_next(conn, wr);
	if (err)
		return err;
	(*wr)->num_sge = dma->len ? 1 : 0; /* some devices treat length 0 as
					      2^31 */
	(*wr)->sg_list->addr = (uintptr_t)dma->buf->data + dma->buf_at;
	(*wr)->sg_list->length = dma->len;
	(*wr)->sg_list->lkey = buf->slab->mr->lkey;
	return 0;
}

static void dma_queue(const struct srdma_dma *dma, unsigned int flags)
{
	struct srdma_verbs_conn *conn = leg_of(dma);
	struct srdma_verbs_send *send =
		&conn->sends[srdma_verbs_slot(conn, conn->tail)];

	send->cookie = dma->cookie;
	send->dma = 1;
	srdma_verbs_data_queue(conn, flags);
	conn->dma_end = conn->tail;
}

static int leg_dma(const struct srdma_dma *dma, enum ibv_wr_opcode opcode,
		   unsigned int flags)
{
	struct ibv_send_wr *wr;
	int err = dma_next(dma, &wr);

	if (err)
		return err;
	wr->opcode = opcode;
	wr->wr.rdma.remote_addr = dma->addr;
	wr->wr.rdma.rkey = rkey_of(dma);
	dma_queue(dma, flags);
	return 0;
}

int srdma_verbs_leg_read(const struct srdma_dma *dma)
{
	int err = leg_dma(dma, IBV_WR_RDMA_READ, 0);

	if (!err)
		leg_of(dma)->read_end = leg_of(dma)->tail;
	return err;
}

int srdma_verbs_leg_write(const struct srdma_dma *dma)
{
	return leg_dma(dma, IBV_WR_RDMA_WRITE, fence(leg_of(dma)));
}

int srdma_verbs_leg_atomic(const struct srdma_dma *dma,
			   const struct srdma_atomic *how)
{
	int adds = how->kind == SRDMA_ATOMIC_FETCH_ADD;
	struct ibv_send_wr *wr;
	int err = dma_next(dma, &wr);

	if (err)
		return err;
	wr->opcode =
		adds ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
	wr->wr.atomic.remote_addr = dma->addr;
	wr->wr.atomic.rkey = rkey_of(dma);
	wr->wr.atomic.compare_add = adds ? how->swap_add : how->compare;
	wr->wr.atomic.swap = adds ? 0 : how->swap_add;
	dma_queue(dma, fence(leg_of(dma)));
	leg_of(dma)->read_end = leg_of(dma)->tail;
	return 0;
}

/*
 * No fence: the record of a READ is written after the READ was reported, and a
 * record must not wait for READs of other requests.
 */
int srdma_verbs_leg_complete(struct srdma_conn *leg, uint32_t slot,
			     const uint8_t *record)
{
	struct srdma_verbs_conn *conn = (struct srdma_verbs_conn *)leg;
	uint32_t at = srdma_verbs_slot(conn, conn->tail);
	uint8_t *copy = conn->send_mem + (size_t)at * SRDMA_RECORD_LEN;
	struct ibv_send_wr *wr;
	int err;

	if (slot >= conn->ring)
		return -EINVAL;
	err = srdma_verbs_leg_next(conn, &wr);
	if (err)
		return err;
	memcpy(copy, record, SRDMA_RECORD_LEN);
	wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	memcpy(&wr->imm_data, record + SRDMA_RECORD_LEN - 4, 4);
	wr->num_sge = 1;
	wr->sg_list->addr = (uintptr_t)copy;
	wr->sg_list->length = SRDMA_RECORD_LEN;
	wr->sg_list->lkey = conn->slab->mr->lkey;
	wr->wr.rdma.remote_addr =
		conn->ring_addr + (uint64_t)slot * SRDMA_RECORD_LEN;
	wr->wr.rdma.rkey = conn->ring_rkey;
	conn->sends[at].dma = 0;
	srdma_verbs_data_queue(conn, SRDMA_RECORD_LEN <= conn->inline_max
					     ? IBV_SEND_INLINE
					     : 0);
	return 0;
}
