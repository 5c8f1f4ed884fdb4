#include "port/verbs/port_verbs_impl.h"

#include <errno.h>

/* --- completions ---------------------------------------------------- */

static void received(struct srdma_verbs_conn *conn, const struct ibv_wc *wc)
{
	struct srdma_buf *buf;

	/* A receive completion may arrive before the CM's ESTABLISHED event. */
	if (conn->state == SRDMA_VERBS_CONNECTING)
		srdma_verbs_conn_up(conn);
	buf = &conn->slab->bufs[wc->wr_id & 0x7fffffff].base;
	++conn->slab->lent;
	/* A SEND of length 0 on a leg is a heartbeat of the host. */
	if (conn->ring && !wc->byte_len) {
		srdma_verbs_buf_put(buf);
		return;
	}
	buf->len = wc->byte_len;
	buf->next = NULL;
	*conn->rx_tail = buf;
	conn->rx_tail = &buf->next;
	srdma_verbs_conn_ready(conn);
}

/* RC: the completion of a send implies that all earlier sends succeeded. */
static void sent(struct srdma_verbs_conn *conn, uint32_t number, int ok)
{
	uint32_t n = ((number - conn->done) & 0x7fffffff) + (ok ? 1 : 0);

	if (n > conn->posted - conn->done)
		return;
	conn->done += n;
	if (conn->ring)
		srdma_verbs_conn_ready(conn);
	else
		conn->told = conn->done;
}

void srdma_verbs_data_completion(struct srdma_verbs_conn *conn,
				 const struct ibv_wc *wc)
{
	uint32_t number = (uint32_t)wc->wr_id;
	int ok = wc->status == IBV_WC_SUCCESS;

	if (conn->state == SRDMA_VERBS_ENDED && !ok)
		return;
	if (!(number >> 31))
		sent(conn, number, ok);
	else if (ok)
		received(conn, wc);
	if (!ok)
		srdma_verbs_conn_end(conn, -EIO);
}

/* --- events --------------------------------------------------------- */

static int tell_sends(struct srdma_verbs_conn *conn, struct srdma_event *ev,
		      int n)
{
	const struct srdma_verbs_send *send;
	int told = 0;

	while (told < n && conn->told != conn->done) {
		send = &conn->sends[srdma_verbs_slot(conn, conn->told)];
		if (send->dma)
			ev[told++] = (struct srdma_event){
				.kind = SRDMA_EV_DMA_DONE,
				.conn = &conn->base,
				.cookie = send->cookie,
				.status =
					conn->state == SRDMA_VERBS_FINISHED &&
							(int32_t)(conn->told -
								  conn->failed) >=
								0
						? -EIO
						: 0,
			};
		++conn->told;
	}
	return told;
}

static int tell_received(struct srdma_verbs_conn *conn, struct srdma_event *ev,
			 int n)
{
	struct srdma_buf *buf;
	int told = 0;

	while (told < n && (buf = conn->rx_head)) {
		conn->rx_head = buf->next;
		if (!conn->rx_head)
			conn->rx_tail = &conn->rx_head;
		buf->next = NULL;
		ev[told++] = (struct srdma_event){ .kind = SRDMA_EV_RECV,
						   .conn = &conn->base,
						   .buf = buf };
	}
	return told;
}

/*
 * Report up to n > 0 events of a connection. It stays on the ready list if
 * there may be more.
 */
static int tell(struct srdma_verbs_conn *conn, struct srdma_event *ev, int n)
{
	int told = 0;

	if (conn->up_due) {
		conn->up_due = 0;
		ev[told++] = (struct srdma_event){
			.kind = conn->accepted ? SRDMA_EV_ACCEPT : SRDMA_EV_UP,
			.conn = &conn->base,
		};
	}
	told += tell_sends(conn, ev + told, n - told);
	told += tell_received(conn, ev + told, n - told);
	if (told == n)
		return told;
	if (conn->down_due) {
		conn->down_due = 0;
		ev[told++] = (struct srdma_event){ .kind = SRDMA_EV_DOWN,
						   .conn = &conn->base,
						   .status = conn->status };
	}
	TAILQ_REMOVE(&conn->port->ready, conn, ready);
	conn->is_ready = 0;
	return told;
}

static void finish_ended(struct srdma_verbs_port *port)
{
	struct srdma_verbs_conn *conn;

	while ((conn = TAILQ_FIRST(&port->ending)))
		srdma_verbs_conn_finish(conn);
}

int srdma_verbs_data_poll(struct srdma_port *base, struct srdma_event *ev,
			  int n)
{
	struct srdma_verbs_port *port = (struct srdma_verbs_port *)base;
	struct srdma_verbs_conn *conn;
	int told = 0;

	srdma_verbs_data_flush(base);
	if (port->cm_turn-- == 0) {
		port->cm_turn = SRDMA_VERBS_CM_TURN;
		srdma_verbs_cm_poll(port);
	}
	do {
		if (TAILQ_EMPTY(&port->ready) &&
		    srdma_verbs_cq_collect(port, n))
			finish_ended(port);
		if (TAILQ_EMPTY(&port->ready))
			break;
		while (told < n && (conn = TAILQ_FIRST(&port->ready)))
			told += tell(conn, ev + told, n - told);
	} while (!told);
	return told;
}

/* --- sending -------------------------------------------------------- */

uint8_t *srdma_verbs_data_reserve(struct srdma_conn *base)
{
	struct srdma_verbs_conn *conn = (struct srdma_verbs_conn *)base;

	if (conn->state != SRDMA_VERBS_UP ||
	    conn->tail - conn->told == conn->depth)
		return NULL;
	return conn->send_mem +
	       (size_t)srdma_verbs_slot(conn, conn->tail) * SRDMA_VERBS_STRIDE;
}

int srdma_verbs_data_commit(struct srdma_conn *base, uint32_t len)
{
	struct srdma_verbs_conn *conn = (struct srdma_verbs_conn *)base;
	uint32_t slot = srdma_verbs_slot(conn, conn->tail);

	if (conn->state != SRDMA_VERBS_UP)
		return -EPIPE;
	if (!len || len > SRDMA_MAX_PACKET)
		return -EMSGSIZE;
	if (conn->tail - conn->told == conn->depth)
		return -EAGAIN;
	conn->sges[slot].length = len;
	srdma_verbs_data_queue(conn,
			       len <= conn->inline_max ? IBV_SEND_INLINE : 0);
	return 0;
}

void srdma_verbs_data_queue(struct srdma_verbs_conn *conn, unsigned int flags)
{
	struct ibv_send_wr *wr = &conn->wrs[srdma_verbs_slot(conn, conn->tail)];

	wr->wr_id = srdma_verbs_wr_id(conn, 0, conn->tail);
	if (++conn->tail % SRDMA_VERBS_SIGNAL == 0)
		flags |= IBV_SEND_SIGNALED;
	wr->send_flags = flags;
	if (conn->is_dirty)
		return;
	conn->is_dirty = 1;
	TAILQ_INSERT_TAIL(&conn->port->dirty, conn, dirty);
}

static void post(struct srdma_verbs_conn *conn)
{
	struct ibv_send_wr *first, *last, *next, *bad;
	int err;

	first = &conn->wrs[srdma_verbs_slot(conn, conn->posted)];
	last = &conn->wrs[srdma_verbs_slot(conn, conn->tail - 1)];
	/* A burst with a DMA signals its last send, so that the DMA is reported
	 * soon. For packets the periodic signal suffices. */
	if ((int32_t)(conn->dma_end - conn->posted) > 0)
		last->send_flags |= IBV_SEND_SIGNALED;
	next = last->next;
	last->next = NULL;
	err = ibv_post_send(conn->qp, first, &bad);
	last->next = next;
	conn->posted = conn->tail;
	if (err)
		srdma_verbs_conn_end(conn, -err);
}

void srdma_verbs_data_flush(struct srdma_port *base)
{
	struct srdma_verbs_port *port = (struct srdma_verbs_port *)base;
	struct srdma_verbs_conn *conn;

	while ((conn = TAILQ_FIRST(&port->dirty))) {
		TAILQ_REMOVE(&port->dirty, conn, dirty);
		conn->is_dirty = 0;
		if (conn->state == SRDMA_VERBS_UP)
			post(conn);
	}
}
