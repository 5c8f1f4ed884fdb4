#include "port/verbs/port_verbs_impl.h"

#include <errno.h>

#include "base/time.h"
#include "port/leg_time.h"

static const uint64_t BEAT = SRDMA_LEG_BEAT_MS * SRDMA_MS;
static const uint64_t SILENCE = SRDMA_LEG_SILENCE_MS * SRDMA_MS;

static int is_under_way(const struct srdma_verbs_conn *conn)
{
	return (int32_t)(conn->beat_end - conn->done) > 0;
}

/*
 * A heartbeat is a WRITE of length 0. It takes no receive of the host, does not
 * wake it, and needs no access (IBTA C9-88).
 */
static void beat(struct srdma_verbs_conn *conn, uint64_t now)
{
	struct ibv_send_wr *wr;

	conn->beat_at = now;
	if (srdma_verbs_leg_next(conn, &wr)) {
		/* The queue is full. Its last signaled send is the heartbeat. */
		conn->beat_end = conn->tail - conn->tail % SRDMA_VERBS_SIGNAL;
		return;
	}
	wr->opcode = IBV_WR_RDMA_WRITE;
	wr->num_sge = 0;
	wr->wr.rdma.remote_addr = conn->ring_addr;
	wr->wr.rdma.rkey = conn->ring_rkey;
	conn->sends[srdma_verbs_slot(conn, conn->tail)].dma = 0;
	srdma_verbs_data_queue(conn, IBV_SEND_SIGNALED);
	conn->beat_end = conn->tail;
}

/* Returns the time of the next look at the leg, which is UP. */
static uint64_t look(struct srdma_verbs_conn *conn, uint64_t now)
{
	if (!is_under_way(conn)) {
		if (!conn->beat_at || now - conn->beat_at >= BEAT)
			beat(conn, now);
		return conn->beat_at + BEAT;
	}
	if (now - conn->beat_at < SILENCE)
		return srdma_time_earlier(now + BEAT, conn->beat_at + SILENCE);
	/* After a long turn, or a stop of the process, the ack may be in the
	 * CQ. */
	srdma_verbs_cq_empty(conn);
	if (is_under_way(conn))
		srdma_verbs_conn_end(conn, -ETIMEDOUT);
	if (conn->state != SRDMA_VERBS_UP)
		return SRDMA_NEVER;
	beat(conn, now);
	return conn->beat_at + BEAT;
}

uint64_t srdma_verbs_beat_keepalive(struct srdma_port *base, uint64_t now)
{
	struct srdma_verbs_port *port = (struct srdma_verbs_port *)base;
	uint64_t next = SRDMA_NEVER;
	uint32_t i;

	for (i = 0; i < port->conn_max; ++i)
		if (port->conns[i] && port->conns[i]->state == SRDMA_VERBS_UP)
			next = srdma_time_earlier(next,
						  look(port->conns[i], now));
	return next;
}
