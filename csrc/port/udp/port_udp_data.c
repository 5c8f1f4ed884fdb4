#include "port/udp/port_udp_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

enum { REFILLS = 4 }; /* recvmmsg calls per poll */

void srdma_udp_data_init(struct srdma_udp_port *port)
{
	struct srdma_udp_rx *rx = &port->rx;
	struct srdma_udp_tx *tx = &port->tx;

	for (uint32_t i = 0; i < SRDMA_UDP_BURST; i++)
		rx->msg[i].msg_hdr = (struct msghdr){ .msg_name = &rx->from[i],
						      .msg_iov = &rx->iov[i],
						      .msg_iovlen = 1 };
	for (uint32_t i = 0; i < SRDMA_UDP_SLOTS; i++) {
		tx->iov[i].iov_base = tx->bytes + (size_t)i * SRDMA_UDP_STRIDE;
		tx->msg[i].msg_hdr =
			(struct msghdr){ .msg_name = &tx->to[i],
					 .msg_namelen = port->addr_len,
					 .msg_iov = &tx->iov[i],
					 .msg_iovlen = 1 };
	}
}

/* --- sending ---------------------------------------------------------- */

static uint32_t slot_of(uint32_t count)
{
	return count & (SRDMA_UDP_SLOTS - 1);
}

/* While the socket buffer is full, EPOLLOUT wakes the port. */
static void set_blocked(struct srdma_udp_port *port, int blocked)
{
	struct epoll_event ev = { .events = blocked ? EPOLLIN | EPOLLOUT
						    : EPOLLIN };

	if (port->tx.blocked == blocked)
		return;
	port->tx.blocked = (uint8_t)blocked;
	epoll_ctl(port->epoll, EPOLL_CTL_MOD, port->sock, &ev);
}

/* The first datagram cannot be sent: drop it; the protocol recovers losses. */
/* RFC 5042 R2.1-1 */
static void lose(struct srdma_udp_port *port, int err)
{
	if (err == EMSGSIZE)
		port->stats.counts.wire_too_long++;
	else
		port->stats.counts.wire_unsent++;
	port->tx.head++;
}

void srdma_udp_data_flush(struct srdma_port *base)
{
	struct srdma_udp_port *port = srdma_udp_port_of(base);
	struct srdma_udp_tx *tx = &port->tx;

	while (tx->head != tx->tail) {
		uint32_t at = slot_of(tx->head), n = tx->tail - tx->head;
		int sent;

		if (n > SRDMA_UDP_SLOTS - at)
			n = SRDMA_UDP_SLOTS - at;
		sent = sendmmsg(port->sock, &tx->msg[at], n, MSG_DONTWAIT);
		if (sent > 0) {
			tx->head += (uint32_t)sent;
			port->stats.sent += (uint32_t)sent;
		} else if (sent == 0 || errno == EAGAIN || errno == EINTR) {
			break;
		} else {
			lose(port, errno);
		}
	}
	set_blocked(port, tx->head != tx->tail);
}

uint8_t *srdma_udp_data_reserve(struct srdma_conn *conn)
{
	struct srdma_udp_port *port = srdma_udp_port_of(conn->port);
	struct srdma_udp_tx *tx = &port->tx;

	if (tx->tail - tx->head == SRDMA_UDP_SLOTS)
		srdma_udp_data_flush(&port->base);
	if (tx->tail - tx->head == SRDMA_UDP_SLOTS)
		return NULL;
	return tx->iov[slot_of(tx->tail)].iov_base;
}

int srdma_udp_data_commit(struct srdma_conn *conn, uint32_t len)
{
	struct srdma_udp_port *port = srdma_udp_port_of(conn->port);
	const struct srdma_udp_conn *c = srdma_udp_conn_of(conn);
	struct srdma_udp_tx *tx = &port->tx;
	uint32_t at = slot_of(tx->tail);
	uint8_t *data = tx->iov[at].iov_base;

	if (len < SRDMA_BTH_LEN || len > SRDMA_MAX_PACKET)
		return -EMSGSIZE;
	if (tx->tail - tx->head == SRDMA_UDP_SLOTS)
		return -EAGAIN;
	srdma_icrc_compute(&c->out, data, len, data + len);
	tx->iov[at].iov_len = len + SRDMA_ICRC_LEN;
	tx->to[at] = c->peer;
	tx->tail++;
	return 0;
}

/* --- receiving -------------------------------------------------------- */

/* Replace the buffers that were handed up, as far as the pool allows. */
static void load(struct srdma_udp_port *port)
{
	struct srdma_udp_rx *rx = &port->rx;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < rx->loaded; i++)
		if (rx->buf[i])
			rx->buf[kept++] = rx->buf[i];
	while (kept < SRDMA_UDP_BURST &&
	       (rx->buf[kept] = srdma_pool_get(port->pool)))
		kept++;
	rx->loaded = kept;
	for (uint32_t i = 0; i < kept; i++) {
		rx->iov[i].iov_base = rx->buf[i]->data;
		rx->iov[i].iov_len = SRDMA_UDP_LONGEST;
		rx->msg[i].msg_hdr.msg_namelen = sizeof(rx->from[i]);
	}
}

/* Returns 1 if there are datagrams to process. */
static int refill(struct srdma_udp_port *port)
{
	struct srdma_udp_rx *rx = &port->rx;
	int got;

	load(port);
	if (!rx->loaded)
		return 0;
	got = recvmmsg(port->sock, rx->msg, rx->loaded, MSG_DONTWAIT, NULL);
	rx->at = 0;
	rx->got = got > 0 ? (uint32_t)got : 0;
	return rx->got > 0;
}

static int icrc_ok(const struct srdma_udp_port *port,
		   const union srdma_udp_addr *from, const uint8_t *data,
		   uint32_t len)
{
	uint8_t icrc[SRDMA_ICRC_LEN];
	struct srdma_icrc c;

	srdma_icrc_init(&c, &from->any, &port->own.any);
	srdma_icrc_compute(&c, data, len, icrc);
	return !memcmp(icrc, data + len, sizeof(icrc));
}

/* The counter of the reason to drop datagram i, or NULL if it is acceptable. */
static uint64_t *judge(struct srdma_udp_port *port, uint32_t i)
{
	const struct mmsghdr *msg = &port->rx.msg[i];
	const union srdma_udp_addr *from = &port->rx.from[i];
	struct srdma_wire_counts *counts = &port->stats.counts;

	if (msg->msg_hdr.msg_flags & MSG_TRUNC ||
	    msg->msg_len > SRDMA_UDP_LONGEST)
		return &counts->wire_long;
	if (msg->msg_len < SRDMA_UDP_SHORTEST)
		return &counts->wire_short;
	if (msg->msg_hdr.msg_namelen != port->addr_len ||
	    from->any.sa_family != port->own.any.sa_family ||
	    !srdma_udp_conn_sendable(from))
		return &counts->wire_source;
	if (!icrc_ok(port, from, port->rx.buf[i]->data,
		     msg->msg_len - SRDMA_ICRC_LEN))
		return &counts->wire_icrc;
	return NULL;
}

/* Process one datagram. Returns 1: an event; 0: dropped; -1: no free conn. */
static int take(struct srdma_udp_port *port, struct srdma_event *ev)
{
	struct srdma_udp_rx *rx = &port->rx;
	uint32_t i = rx->at;
	uint64_t *drop = judge(port, i);
	struct srdma_udp_conn *c;

	if (drop) {
		++*drop;
		rx->at++;
		return 0;
	}
	c = srdma_udp_conn_passing(port, &rx->from[i]);
	if (!c)
		return -1;
	rx->at++;
	*ev = (struct srdma_event){ .kind = SRDMA_EV_RECV,
				    .conn = &c->base,
				    .buf = rx->buf[i] };
	ev->buf->len = rx->msg[i].msg_len - SRDMA_ICRC_LEN;
	rx->buf[i] = NULL;
	port->stats.received++;
	return 1;
}

int srdma_udp_data_poll(struct srdma_port *base, struct srdma_event *ev, int n)
{
	struct srdma_udp_port *port = srdma_udp_port_of(base);
	int told = 0, refills = REFILLS, r = 0;

	srdma_udp_conn_forget(port);
	while (told < n && port->ups_due)
		ev[told++] = (struct srdma_event){
			.kind = SRDMA_EV_UP,
			.conn = &srdma_udp_conn_take_up(port)->base,
		};
	while (told < n && r >= 0) {
		if (port->rx.at == port->rx.got &&
		    (!refills-- || !refill(port)))
			break;
		r = take(port, &ev[told]);
		told += r > 0;
	}
	return told;
}

int srdma_udp_data_waiting(const struct srdma_udp_port *port)
{
	return port->ups_due || port->rx.at != port->rx.got ||
	       (port->tx.head != port->tx.tail && !port->tx.blocked);
}
