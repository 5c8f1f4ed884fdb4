#include "port/udp/port_udp_impl.h"

#include <assert.h>
#include <string.h>

enum { REFILLS = 4 }; /* recvmmsg calls per poll */

void srdma_udp_receive_init(struct srdma_udp_port *port)
{
	struct srdma_udp_rx *rx = &port->rx;

	rx->most = 1;
	for (uint32_t i = 0; i < SRDMA_UDP_BURST; i++) {
		rx->iov[i] = (struct iovec){
			.iov_base = rx->bytes + (size_t)i * SRDMA_UDP_ROOM,
			.iov_len = SRDMA_UDP_ROOM,
		};
		rx->msg[i].msg_hdr =
			(struct msghdr){ .msg_name = &rx->from[i],
					 .msg_iov = &rx->iov[i],
					 .msg_iovlen = 1,
					 .msg_control = &rx->control[i] };
	}
	for (uint32_t i = 0; i < SRDMA_UDP_BUFS; i++) {
		rx->buf[i].port = &port->base;
		rx->buf[i].next = rx->free;
		rx->free = &rx->buf[i];
	}
}

/* Returns the packet of a datagram, which stays where it is. */
static struct srdma_buf *hand_up(struct srdma_udp_rx *rx, uint8_t *data,
				 uint32_t len)
{
	struct srdma_buf *buf = rx->free;

	rx->free = buf->next;
	rx->held++;
	buf->next = NULL;
	buf->data = data;
	buf->len = buf->cap = len;
	return buf;
}

void srdma_udp_receive_put(struct srdma_buf *buf)
{
	struct srdma_udp_rx *rx = &srdma_udp_port_of(buf->port)->rx;

	assert(rx->held);
	buf->next = rx->free;
	rx->free = buf;
	rx->held--;
}

/* A datagram within a received message. */
struct piece {
	uint8_t *data;
	uint32_t len;
};

static uint32_t bytes_left(const struct srdma_udp_rx *rx)
{
	return rx->msg[rx->at].msg_len - rx->taken;
}

/* The number of datagrams in the rest of the present message, at least 1. */
static uint32_t datagrams_left(const struct srdma_udp_rx *rx)
{
	return rx->size ? (bytes_left(rx) + rx->size - 1) / rx->size : 1;
}

static struct piece present(const struct srdma_udp_rx *rx)
{
	const uint32_t left = bytes_left(rx);

	return (struct piece){
		.data = rx->bytes + (size_t)rx->at * SRDMA_UDP_ROOM + rx->taken,
		.len = left < rx->size ? left : rx->size,
	};
}

static void begin_message(struct srdma_udp_rx *rx)
{
	uint32_t n;

	rx->taken = 0;
	rx->size = srdma_udp_train_size(&rx->msg[rx->at]);
	n = datagrams_left(rx);
	if (n > SRDMA_UDP_BURST)
		n = SRDMA_UDP_BURST;
	if (n > rx->most)
		rx->most = n;
}

/* Continue behind the next len bytes of the present message. */
static void advance(struct srdma_udp_rx *rx, uint32_t len)
{
	rx->taken += len;
	if (rx->taken < rx->msg[rx->at].msg_len)
		return;
	if (++rx->at != rx->got)
		begin_message(rx);
}

/*
 * Returns 1 if there are datagrams to process. The number of messages follows
 * the length of the trains before, so that few datagrams wait here. A call that
 * got fewer messages than it asked for emptied the socket, or met an error of it:
 * the next one is left out, unless it is of another turn.
 */
static int refill(struct srdma_udp_port *port)
{
	struct srdma_udp_rx *rx = &port->rx;
	const uint32_t n = SRDMA_UDP_BURST / rx->most;
	int got;

	if (rx->held || rx->dry) {
		rx->dry = 0;
		return 0;
	}
	for (uint32_t i = 0; i < n; i++) {
		rx->msg[i].msg_hdr.msg_namelen = sizeof(rx->from[i]);
		rx->msg[i].msg_hdr.msg_controllen = sizeof(rx->control[i]);
	}
	got = recvmmsg(port->sock, rx->msg, n, MSG_DONTWAIT, NULL);
	rx->at = 0;
	rx->got = got > 0 ? (uint32_t)got : 0;
	rx->dry = rx->got && rx->got < n;
	rx->most = 1;
	if (rx->got)
		begin_message(rx);
	return rx->got > 0;
}

/* The headers of the datagrams from an address. */
static struct srdma_icrc *icrc_of(struct srdma_udp_port *port,
				  const union srdma_udp_addr *from)
{
	struct srdma_udp_rx *rx = &port->rx;

	if (!srdma_udp_addr_same(&rx->icrc_from, from)) {
		srdma_icrc_init(&rx->icrc, &from->any, &port->own.any);
		rx->icrc_from = *from;
	}
	return &rx->icrc;
}

/* A bare datagram has zero in place of its ICRC (docs/protocol.md 11a). */
static int icrc_ok(struct srdma_udp_port *port,
		   const union srdma_udp_addr *from, uint8_t *data,
		   uint32_t len)
{
	static const uint8_t none[SRDMA_ICRC_LEN];
	uint8_t icrc[SRDMA_ICRC_LEN];

	if (port->base.bare && !memcmp(none, data + len, sizeof(none)))
		return 1;
	srdma_icrc_compute(icrc_of(port, from), data, len, icrc);
	return !memcmp(icrc, data + len, sizeof(icrc));
}

/*
 * The counter of the reason to drop a datagram of the present message, or NULL
 * if it is acceptable.
 */
static uint64_t *judge(struct srdma_udp_port *port, struct piece d)
{
	const struct msghdr *hdr = &port->rx.msg[port->rx.at].msg_hdr;
	const union srdma_udp_addr *from = &port->rx.from[port->rx.at];
	struct srdma_wire_counts *counts = &port->stats.counts;

	if (hdr->msg_flags & MSG_TRUNC || d.len > SRDMA_UDP_LONGEST)
		return &counts->wire_long;
	if (d.len < SRDMA_UDP_SHORTEST)
		return &counts->wire_short;
	if (hdr->msg_namelen != port->addr_len ||
	    from->any.sa_family != port->own.any.sa_family ||
	    !srdma_udp_conn_sendable(from))
		return &counts->wire_source;
	if (!icrc_ok(port, from, d.data, d.len - SRDMA_ICRC_LEN))
		return &counts->wire_icrc;
	return NULL;
}

/*
 * Drops a datagram, and the rest of its message if no datagram in there can be
 * long enough.
 */
static void drop(struct srdma_udp_rx *rx, uint64_t *counter, uint32_t len)
{
	if (rx->size < SRDMA_UDP_SHORTEST) {
		*counter += datagrams_left(rx);
		advance(rx, bytes_left(rx));
	} else {
		++*counter;
		advance(rx, len);
	}
}

/*
 * Process one datagram. A buf must be free. Returns 1: an event; 0: dropped;
 * -1: no free conn.
 */
static int take(struct srdma_udp_port *port, struct srdma_event *ev)
{
	struct srdma_udp_rx *rx = &port->rx;
	const struct piece d = present(rx);
	uint64_t *why = judge(port, d);
	struct srdma_udp_conn *c;

	if (why) {
		drop(rx, why, d.len);
		return 0;
	}
	c = srdma_udp_conn_passing(port, &rx->from[rx->at]);
	if (!c)
		return -1;
	*ev = (struct srdma_event){
		.kind = SRDMA_EV_RECV,
		.conn = &c->base,
		.buf = hand_up(rx, d.data, d.len - SRDMA_ICRC_LEN),
	};
	advance(rx, d.len);
	port->stats.received++;
	return 1;
}

/* 1: the one conn of senders is that of the next datagram too. */
static int sender_goes_on(const struct srdma_udp_port *port)
{
	const struct srdma_udp_rx *rx = &port->rx;

	return port->passing_count == 1 && rx->at != rx->got &&
	       srdma_udp_addr_same(&port->passing[0]->peer, &rx->from[rx->at]);
}

int srdma_udp_receive_poll(struct srdma_port *base, struct srdma_event *ev,
			   int n)
{
	struct srdma_udp_port *port = srdma_udp_port_of(base);
	int told = 0, refills = REFILLS, looks = SRDMA_UDP_LOOKS, r = 0;

	if (!sender_goes_on(port))
		srdma_udp_conn_forget(port);
	while (told < n && port->ups_due)
		ev[told++] = (struct srdma_event){
			.kind = SRDMA_EV_UP,
			.conn = &srdma_udp_conn_take_up(port)->base,
		};
	while (told < n && r >= 0 && looks-- && port->rx.free) {
		if (port->rx.at == port->rx.got &&
		    (!refills-- || !refill(port)))
			break;
		r = take(port, &ev[told]);
		told += r > 0;
	}
	return told;
}

void srdma_udp_receive_end_turn(struct srdma_udp_port *port)
{
	port->rx.dry = 0;
}

int srdma_udp_receive_waiting(const struct srdma_udp_port *port)
{
	return port->ups_due || port->rx.at != port->rx.got;
}
