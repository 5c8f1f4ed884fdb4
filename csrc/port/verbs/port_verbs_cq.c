#include "port/verbs/port_verbs_impl.h"

#include <errno.h>
#include <string.h>

enum { BURST = 32 };

static int cq_create(struct srdma_verbs_port *port, uint32_t need)
{
	struct srdma_verbs_cq *cq = &port->cqs[port->cq_count];
	uint32_t most = (uint32_t)port->limits.max_cqe;
	uint32_t size = SRDMA_VERBS_CQE;

	if (port->cq_count == SRDMA_VERBS_CQS)
		return srdma_verbs_refuse(port, -ENOSPC,
					  "all %d completion queues are full",
					  SRDMA_VERBS_CQS);
	if (need > most)
		return srdma_verbs_refuse(
			port, -E2BIG,
			"%u completions are needed, but the "
			"device's CQs hold %u: use smaller queues",
			need, most);
	if (size < need)
		size = need;
	if (size > most)
		size = most;
	cq->cq = ibv_create_cq(port->context, (int)size, cq, port->channel, 0);
	if (!cq->cq)
		return srdma_verbs_refuse(port, -errno,
					  "ibv_create_cq of %u entries: %s",
					  size, strerror(errno));
	cq->size = size;
	cq->used = 0;
	cq->leaving = 0;
	++port->cq_count;
	return 0;
}

int srdma_verbs_cq_take(struct srdma_verbs_port *port, uint32_t need,
			struct srdma_verbs_cq **out)
{
	uint32_t i;
	int err;

	for (i = 0; i < port->cq_count; ++i)
		if (port->cqs[i].size - port->cqs[i].used >= need)
			break;
	if (i == port->cq_count) {
		err = cq_create(port, need);
		if (err)
			return err;
	}
	port->cqs[i].used += need;
	*out = &port->cqs[i];
	return 0;
}

void srdma_verbs_cq_leave(struct srdma_verbs_cq *cq, uint32_t need)
{
	cq->leaving += need;
}

static int cq_take_burst(struct srdma_verbs_port *port,
			 struct srdma_verbs_cq *cq)
{
	struct srdma_verbs_conn *conn;
	struct ibv_wc wc[BURST];
	int i, n = ibv_poll_cq(cq->cq, BURST, wc);

	for (i = 0; i < n; ++i) {
		conn = srdma_verbs_conn_find(port, wc[i].wr_id);
		if (conn)
			srdma_verbs_data_completion(conn, &wc[i]);
	}
	if (n < BURST) {
		cq->used -= cq->leaving;
		cq->leaving = 0;
	}
	return n;
}

/*
 * Returns the number of completions taken. *empty: 1 if all CQs were empty at
 * the end.
 */
static int collect(struct srdma_verbs_port *port, int n, int *empty)
{
	uint32_t i;
	int got, taken = 0;

	*empty = 1;
	for (i = 0; i < port->cq_count; ++i) {
		do {
			got = cq_take_burst(port, &port->cqs[i]);
			taken += got > 0 ? got : 0;
		} while (got == BURST && taken < n);
		if (got == BURST)
			*empty = 0;
	}
	return taken;
}

int srdma_verbs_cq_collect(struct srdma_verbs_port *port, int n)
{
	int empty;

	collect(port, n, &empty);
	return empty;
}

/* The peer may add completions meanwhile. */
void srdma_verbs_cq_empty(struct srdma_verbs_conn *conn)
{
	struct srdma_verbs_cq *cq = conn->cq;
	uint32_t taken = 0;

	while (cq_take_burst(conn->port, cq) == BURST && taken < cq->size)
		taken += BURST;
}

int srdma_verbs_cq_arm(struct srdma_port *base)
{
	struct srdma_verbs_port *port = (struct srdma_verbs_port *)base;
	uint32_t i;
	int err, empty;

	srdma_verbs_data_flush(base);
	for (i = 0; i < port->cq_count; ++i) {
		err = ibv_req_notify_cq(port->cqs[i].cq, 0);
		if (err)
			return -err;
	}
	/* A completed send makes room, which is work without an event. */
	if (!collect(port, BURST, &empty) && TAILQ_EMPTY(&port->ready) &&
	    TAILQ_EMPTY(&port->ending))
		return 0;
	srdma_verbs_cq_disarm(base);
	return 1;
}

void srdma_verbs_cq_disarm(struct srdma_port *base)
{
	struct srdma_verbs_port *port = (struct srdma_verbs_port *)base;
	struct ibv_cq *cq;
	void *context;

	while (!ibv_get_cq_event(port->channel, &cq, &context))
		ibv_ack_cq_events(cq, 1);
	port->cm_turn = 0;
}

void srdma_verbs_cq_destroy(struct srdma_verbs_port *port)
{
	while (port->cq_count)
		ibv_destroy_cq(port->cqs[--port->cq_count].cq);
}
