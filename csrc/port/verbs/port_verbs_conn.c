#include "port/verbs/port_verbs_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "port/leg_time.h"

/*
 * Retry limits of the QP of a wire: (6 + 1) * 4.096 us * 2^16 = 1.9 s without an
 * ack. They are shorter than those of a leg (leg_time.h), because the relay
 * connects a wire again and loses no request by its end. Both kinds end after 6
 * * 10 ms of RNR NAKs. An rnr_retry of 7 would mean unlimited.
 */
enum {
	WIRE_ACK_TIMEOUT = 16,
	WIRE_RETRIES = 6,
	RNR_RETRIES = 6,
};

/* --- life ----------------------------------------------------------- */

static void fill_sends(struct srdma_verbs_conn *conn, uint32_t lkey)
{
	struct ibv_send_wr *wr;
	uint32_t i;

	for (i = 0; i < conn->depth; ++i) {
		wr = &conn->wrs[i];
		wr->next = &conn->wrs[srdma_verbs_slot(conn, i + 1)];
		wr->sg_list = &conn->sges[i];
		wr->num_sge = 1;
		wr->opcode = IBV_WR_SEND;
		conn->sges[i].lkey = lkey;
		if (!conn->ring)
			conn->sges[i].addr = (uintptr_t)conn->send_mem +
					     (size_t)i * SRDMA_VERBS_STRIDE;
	}
}

static int conn_memory(struct srdma_verbs_conn *conn)
{
	uint32_t slot = conn->ring ? SRDMA_DESC_SLOT : SRDMA_VERBS_STRIDE;
	uint32_t send = conn->ring ? SRDMA_RECORD_LEN : SRDMA_VERBS_STRIDE;
	int err;

	conn->wrs = calloc(conn->depth, sizeof(*conn->wrs));
	conn->sges = calloc(conn->depth, sizeof(*conn->sges));
	conn->sends = calloc(conn->depth, sizeof(*conn->sends));
	if (!conn->wrs || !conn->sges || !conn->sends)
		return -ENOMEM;
	err = srdma_verbs_slab_create(&conn->slab, conn->port, conn->receives,
				      slot, (size_t)conn->depth * send);
	if (err)
		return err;
	conn->slab->conn = conn;
	conn->send_mem = conn->slab->mem + (size_t)conn->receives * slot;
	fill_sends(conn, conn->slab->mr->lkey);
	return 0;
}

static int conn_qp(struct srdma_verbs_conn *conn)
{
	struct srdma_verbs_port *port = conn->port;
	struct ibv_qp_init_attr attr = {
		.qp_context = conn,
		.send_cq = conn->cq->cq,
		.recv_cq = conn->cq->cq,
		.cap = { .max_send_wr = conn->depth,
			 .max_recv_wr = conn->receives,
			 .max_send_sge = 1,
			 .max_recv_sge = 1,
			 .max_inline_data = SRDMA_VERBS_INLINE },
		.qp_type = IBV_QPT_RC,
	};

	conn->qp = ibv_create_qp(port->pd, &attr);
	if (!conn->qp) {
		attr.cap.max_inline_data = 0;
		conn->qp = ibv_create_qp(port->pd, &attr);
	}
	if (!conn->qp)
		return srdma_verbs_refuse(port, -errno,
					  "creating a QP (%u sends, %u "
					  "receives): %s",
					  conn->depth, conn->receives,
					  strerror(errno));
	conn->inline_max = attr.cap.max_inline_data;
	return 0;
}

/*
 * Enter the table. The name differs from the names in wr_ids of earlier
 * connections.
 */
static int conn_enter(struct srdma_verbs_conn *conn)
{
	struct srdma_verbs_port *port = conn->port;
	uint32_t i;

	for (i = 0; i < port->conn_max; ++i)
		if (!port->conns[i])
			break;
	if (i == port->conn_max)
		return srdma_verbs_refuse(port, -ENOSPC,
					  "%u connections are open, the limit: "
					  "close some",
					  port->conn_max);
	port->conns[i] = conn;
	++port->conn_count;
	conn->name = i | (uint32_t)++port->generation << 16;
	return 0;
}

int srdma_verbs_conn_create(struct srdma_verbs_conn **out,
			    struct srdma_verbs_port *port, uint32_t ring)
{
	struct srdma_verbs_conn *conn = calloc(1, sizeof(*conn));
	int err;

	if (!conn)
		return -ENOMEM;
	conn->base.port = &port->base;
	conn->port = port;
	conn->ring = ring;
	conn->receives = ring ? ring + SRDMA_VERBS_SPARE : port->receives;
	conn->depth = port->sends;
	conn->rx_tail = &conn->rx_head;
	err = conn_enter(conn);
	if (err) {
		free(conn);
		return err;
	}
	err = srdma_verbs_cq_take(port, conn->receives + conn->depth,
				  &conn->cq);
	if (!err)
		err = conn_memory(conn);
	if (!err)
		err = conn_qp(conn);
	if (err) {
		srdma_verbs_conn_close(&conn->base);
		return err;
	}
	*out = conn;
	return 0;
}

struct srdma_verbs_conn *srdma_verbs_conn_find(struct srdma_verbs_port *port,
					       uint64_t wr_id)
{
	uint32_t name = (uint32_t)(wr_id >> 32), i = name & 0xffff;
	struct srdma_verbs_conn *conn;

	conn = i < port->conn_max ? port->conns[i] : NULL;
	if (!conn || conn->name != name || conn->state == SRDMA_VERBS_FINISHED)
		return NULL;
	return conn;
}

/* --- states of the QP ----------------------------------------------- */

static int to_state(struct srdma_verbs_conn *conn, enum ibv_qp_state state,
		    uint8_t reads)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask, err, leg = conn->ring > 0;

	if (rdma_init_qp_attr(conn->id, &attr, &mask))
		return -errno;
	attr.qp_access_flags = 0;
	attr.min_rnr_timer = SRDMA_LEG_RNR_TIMER;
	attr.timeout = leg ? SRDMA_LEG_ACK_TIMEOUT : WIRE_ACK_TIMEOUT;
	attr.retry_cnt = leg ? SRDMA_LEG_RETRIES : WIRE_RETRIES;
	attr.rnr_retry = RNR_RETRIES;
	attr.max_rd_atomic = reads;
	attr.max_dest_rd_atomic = 1;
	err = ibv_modify_qp(conn->qp, &attr, mask);
	return err ? -err : 0;
}

static int post_receives(struct srdma_verbs_conn *conn)
{
	struct srdma_verbs_buf *bufs = conn->slab->bufs;
	struct ibv_recv_wr *bad;
	uint32_t i;
	int err;

	for (i = 0; i < conn->receives; ++i) {
		bufs[i].wr.wr_id = srdma_verbs_wr_id(conn, 1, i);
		bufs[i].wr.next =
			i + 1 < conn->receives ? &bufs[i + 1].wr : NULL;
	}
	err = ibv_post_recv(conn->qp, &bufs[0].wr, &bad);
	return err ? -err : 0;
}

int srdma_verbs_conn_init(struct srdma_verbs_conn *conn)
{
	int err = to_state(conn, IBV_QPS_INIT, 0);

	return err ? err : post_receives(conn);
}

int srdma_verbs_conn_start(struct srdma_verbs_conn *conn, uint8_t reads)
{
	int err = to_state(conn, IBV_QPS_RTR, reads);

	return err ? err : to_state(conn, IBV_QPS_RTS, reads);
}

/* --- beginning and end ---------------------------------------------- */

void srdma_verbs_conn_ready(struct srdma_verbs_conn *conn)
{
	if (conn->is_ready)
		return;
	conn->is_ready = 1;
	TAILQ_INSERT_TAIL(&conn->port->ready, conn, ready);
}

static void leave_half(struct srdma_verbs_conn *conn)
{
	if (!conn->is_half)
		return;
	conn->is_half = 0;
	TAILQ_REMOVE(&conn->port->half, conn, half);
	conn->port->half_count--;
}

/* The newest may come from a peer that reconnects, so the oldest one goes. */
void srdma_verbs_conn_half(struct srdma_verbs_conn *conn)
{
	struct srdma_verbs_port *port = conn->port;

	if (port->half_count == SRDMA_VERBS_HALF)
		srdma_verbs_conn_close(&TAILQ_FIRST(&port->half)->base);
	conn->is_half = 1;
	TAILQ_INSERT_TAIL(&port->half, conn, half);
	port->half_count++;
}

void srdma_verbs_conn_up(struct srdma_verbs_conn *conn)
{
	leave_half(conn);
	conn->state = SRDMA_VERBS_UP;
	conn->up_due = 1;
	srdma_verbs_conn_ready(conn);
}

void srdma_verbs_conn_end(struct srdma_verbs_conn *conn, int status)
{
	if (conn->state >= SRDMA_VERBS_ENDED)
		return;
	leave_half(conn);
	conn->state = SRDMA_VERBS_ENDED;
	conn->status = status;
	TAILQ_INSERT_TAIL(&conn->port->ending, conn, ending);
}

/* Without QP and id the device no longer accesses its buffers. */
static void let_go(struct srdma_verbs_conn *conn)
{
	if (conn->state == SRDMA_VERBS_ENDED)
		TAILQ_REMOVE(&conn->port->ending, conn, ending);
	if (conn->is_dirty)
		TAILQ_REMOVE(&conn->port->dirty, conn, dirty);
	conn->is_dirty = 0;
	conn->state = SRDMA_VERBS_FINISHED;
	if (conn->id && conn->id->verbs)
		rdma_disconnect(conn->id);
	if (conn->qp)
		ibv_destroy_qp(conn->qp);
	conn->qp = NULL;
	if (conn->id)
		rdma_destroy_id(conn->id);
	conn->id = NULL;
	if (conn->cq)
		srdma_verbs_cq_leave(conn->cq, conn->receives + conn->depth);
	conn->cq = NULL;
}

void srdma_verbs_conn_finish(struct srdma_verbs_conn *conn)
{
	let_go(conn);
	conn->failed = conn->done;
	conn->done = conn->tail;
	conn->down_due = 1;
	srdma_verbs_conn_ready(conn);
}

void srdma_verbs_conn_close(struct srdma_conn *base)
{
	struct srdma_verbs_conn *conn = (struct srdma_verbs_conn *)base;
	struct srdma_verbs_port *port = conn->port;
	struct srdma_buf *buf;

	leave_half(conn);
	if (conn->state != SRDMA_VERBS_FINISHED)
		let_go(conn);
	if (conn->is_ready)
		TAILQ_REMOVE(&port->ready, conn, ready);
	while ((buf = conn->rx_head)) {
		conn->rx_head = buf->next;
		srdma_verbs_buf_put(buf);
	}
	port->conns[conn->name & 0xffff] = NULL;
	--port->conn_count;
	srdma_verbs_slab_orphan(conn);
	srdma_wipe(conn->token, sizeof(conn->token));
	free(conn->wrs);
	free(conn->sges);
	free(conn->sends);
	free(conn);
}
