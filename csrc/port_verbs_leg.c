#include "port_verbs_impl.h"

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
		return srdma_verbs_refuse(port, -EINVAL, "a ring of 0 records");
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
	struct srdma_verbs_region *region = calloc(1, sizeof(*region));

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

/* The next work request of the leg; -EAGAIN, -EPIPE. */
static int leg_next(struct srdma_verbs_conn *conn, struct ibv_send_wr **wr)
{
	if (conn->state > SRDMA_VERBS_UP)
		return -EPIPE;
	if (conn->state != SRDMA_VERBS_UP ||
	    conn->tail - conn->told == conn->depth)
		return -EAGAIN;
	*wr = &conn->wrs[srdma_verbs_slot(conn, conn->tail)];
	return 0;
}

static int leg_dma(const struct srdma_dma *dma, enum ibv_wr_opcode opcode,
		   unsigned int flags)
{
	const struct srdma_verbs_region *region =
		(const struct srdma_verbs_region *)dma->region;
	const struct srdma_verbs_buf *buf =
		(const struct srdma_verbs_buf *)dma->buf;
	struct srdma_verbs_conn *conn =
		(struct srdma_verbs_conn *)dma->region->leg;
	struct srdma_verbs_send *send;
	struct ibv_send_wr *wr;
	int err;

	if (dma->buf->port != &conn->port->base)
		return -EINVAL;
	err = leg_next(conn, &wr);
	if (err)
		return err;
	wr->opcode = opcode;
	wr->num_sge = dma->len ? 1 : 0; /* 0 is 2^31 to some devices */
	wr->sg_list->addr = (uintptr_t)dma->buf->data + dma->buf_at;
	wr->sg_list->length = dma->len;
	wr->sg_list->lkey = buf->slab->mr->lkey;
	wr->wr.rdma.remote_addr = dma->addr;
	wr->wr.rdma.rkey = region->rkey;
	send = &conn->sends[srdma_verbs_slot(conn, conn->tail)];
	send->cookie = dma->cookie;
	send->dma = 1;
	srdma_verbs_data_queue(conn, flags);
	conn->dma_end = conn->tail;
	return 0;
}

int srdma_verbs_leg_read(const struct srdma_dma *dma)
{
	struct srdma_verbs_conn *conn =
		(struct srdma_verbs_conn *)dma->region->leg;
	int err = leg_dma(dma, IBV_WR_RDMA_READ, 0);

	if (!err)
		conn->read_end = conn->tail;
	return err;
}

int srdma_verbs_leg_write(const struct srdma_dma *dma)
{
	struct srdma_verbs_conn *conn =
		(struct srdma_verbs_conn *)dma->region->leg;
	/* Without the fence a WRITE may overtake the data of a READ. */
	int fence = (int32_t)(conn->read_end - conn->done) > 0;

	return leg_dma(dma, IBV_WR_RDMA_WRITE, fence ? IBV_SEND_FENCE : 0);
}

/*
 * No fence: a record that tells of a READ is written after the READ was
 * reported, and it must not wait for those of others.
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
	err = leg_next(conn, &wr);
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
