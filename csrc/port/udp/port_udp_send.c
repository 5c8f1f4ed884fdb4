#include "port/udp/port_udp_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

enum { PAUSE = SRDMA_UDP_TRAIN, MOST_PAUSE = 65536 };

void srdma_udp_send_init(struct srdma_udp_port *port)
{
	struct srdma_udp_tx *tx = &port->tx;

	tx->pause = PAUSE;
	for (uint32_t i = 0; i < SRDMA_UDP_SLOTS; i++)
		tx->iov[i].iov_base = tx->bytes + (size_t)i * SRDMA_UDP_STRIDE;
}

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

static int is_six(const struct srdma_udp_port *port)
{
	return port->own.any.sa_family == AF_INET6;
}

/*
 * The slot behind the datagrams from `first` on that leave in one call: up to
 * the end of the ring, either all bare or none.
 */
static uint32_t end_of_call(const struct srdma_udp_tx *tx, uint32_t first)
{
	const uint32_t n = tx->tail - tx->head;
	const uint32_t end =
		n > SRDMA_UDP_SLOTS - first ? SRDMA_UDP_SLOTS : first + n;
	uint32_t at = first + 1;

	while (at < end && tx->bare[at] == tx->bare[first])
		at++;
	return at;
}

/* The slot in [first, end] from which on datagrams may leave in trains. */
static uint32_t first_of_trains(const struct srdma_udp_port *port,
				uint32_t first, uint32_t end)
{
	const struct srdma_udp_tx *tx = &port->tx;

	if (!is_six(port) && !tx->bare[first])
		return end;
	return tx->alone < end - first ? first + tx->alone : end;
}

/*
 * Over IPv4 bare datagrams leave with a UDP checksum, and others without. Where
 * the kernel refuses a change, it refuses trains, or the checksum is ignored.
 */
static void set_checksums(struct srdma_udp_port *port, uint8_t on)
{
	const int off = !on;

	if (is_six(port) || port->tx.checksums == on)
		return;
	if (!setsockopt(port->sock, SOL_SOCKET, SO_NO_CHECK, &off, sizeof(off)))
		port->tx.checksums = on;
}

/* Makes messages of the first datagrams of the ring. Returns their number. */
static uint32_t gather(struct srdma_udp_port *port)
{
	struct srdma_udp_tx *tx = &port->tx;
	const uint32_t first = slot_of(tx->head), end = end_of_call(tx, first);
	const uint32_t trains = first_of_trains(port, first, end);
	uint32_t at = first, count = 0;

	set_checksums(port, tx->bare[first]);
	while (at < end) {
		const uint32_t k =
			at < trains ? 1 : srdma_udp_train_length(tx, at, end);
		struct msghdr *m = &tx->msg[count++].msg_hdr;

		*m = (struct msghdr){ .msg_name = &tx->to[at],
				      .msg_namelen = port->addr_len,
				      .msg_iov = &tx->iov[at],
				      .msg_iovlen = k };
		if (k > 1)
			srdma_udp_train_mark(m, &tx->control[at]);
		at += k;
	}
	return count;
}

/* The first n messages left. */
static void left(struct srdma_udp_port *port, uint32_t n)
{
	struct srdma_udp_tx *tx = &port->tx;

	for (uint32_t i = 0; i < n; i++) {
		const uint32_t k = (uint32_t)tx->msg[i].msg_hdr.msg_iovlen;

		if (k > 1)
			tx->pause = PAUSE;
		else if (tx->alone)
			tx->alone--;
		tx->head += k;
		port->stats.sent += k;
	}
}

/* The first datagram cannot be sent: drop it; the protocol recovers losses. */
/* RFC 5042 R2.1-1 */
static void lose(struct srdma_udp_port *port, int err)
{
	struct srdma_udp_tx *tx = &port->tx;

	if (err == EMSGSIZE)
		port->stats.counts.wire_too_long++;
	else
		port->stats.counts.wire_unsent++;
	if (tx->alone)
		tx->alone--;
	tx->head++;
}

/* The kernel refuses the first message: a train is sent one by one. */
static void refused(struct srdma_udp_port *port, int err)
{
	struct srdma_udp_tx *tx = &port->tx;

	if (tx->msg[0].msg_hdr.msg_iovlen == 1) {
		lose(port, err);
		return;
	}
	tx->alone = tx->pause;
	if (tx->pause < MOST_PAUSE)
		tx->pause *= 2;
}

void srdma_udp_send_flush(struct srdma_port *base)
{
	struct srdma_udp_port *port = srdma_udp_port_of(base);
	struct srdma_udp_tx *tx = &port->tx;

	while (tx->head != tx->tail) {
		int sent = sendmmsg(port->sock, tx->msg, gather(port),
				    MSG_DONTWAIT);

		if (sent > 0)
			left(port, (uint32_t)sent);
		else if (sent == 0 || errno == EAGAIN || errno == EINTR)
			break;
		else
			refused(port, errno);
	}
	set_blocked(port, tx->head != tx->tail);
}

uint8_t *srdma_udp_send_reserve(struct srdma_conn *conn)
{
	struct srdma_udp_port *port = srdma_udp_port_of(conn->port);
	struct srdma_udp_tx *tx = &port->tx;

	if (tx->tail - tx->head == SRDMA_UDP_SLOTS)
		srdma_udp_send_flush(&port->base);
	if (tx->tail - tx->head == SRDMA_UDP_SLOTS)
		return NULL;
	/* The first slots are in a cache; the ring as a whole is not. */
	if (tx->head == tx->tail)
		tx->head = tx->tail = 0;
	return tx->iov[slot_of(tx->tail)].iov_base;
}

static int commit(struct srdma_conn *conn, uint32_t len, uint8_t bare)
{
	struct srdma_udp_port *port = srdma_udp_port_of(conn->port);
	struct srdma_udp_conn *c = srdma_udp_conn_of(conn);
	struct srdma_udp_tx *tx = &port->tx;
	uint32_t at = slot_of(tx->tail);
	uint8_t *data = tx->iov[at].iov_base;

	if (len < SRDMA_BTH_LEN || len > SRDMA_MAX_PACKET)
		return -EMSGSIZE;
	if (tx->tail - tx->head == SRDMA_UDP_SLOTS)
		return -EAGAIN;
	if (bare)
		memset(data + len, 0, SRDMA_ICRC_LEN);
	else
		srdma_icrc_compute(srdma_udp_conn_out(c), data, len,
				   data + len);
	tx->bare[at] = bare;
	tx->iov[at].iov_len = len + SRDMA_ICRC_LEN;
	tx->to[at] = c->peer;
	tx->tail++;
	return 0;
}

int srdma_udp_send_commit(struct srdma_conn *conn, uint32_t len)
{
	return commit(conn, len, 0);
}

int srdma_udp_send_commit_bare(struct srdma_conn *conn, uint32_t len)
{
	return commit(conn, len, 1);
}

int srdma_udp_send_waiting(const struct srdma_udp_port *port)
{
	return port->tx.head != port->tx.tail && !port->tx.blocked;
}
