/* The UDP wire port over loopback, with IPv4 and IPv6. */
#include "port/udp/port_udp_impl.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/udp_world.h"

/* --- faults injected into the kernel's calls ------------------------------ */

static struct {
	int send_error;	    /* error of each sendmmsg; 0: none */
	int send_errors;    /* calls that fail; 0: all */
	unsigned send_most; /* datagrams accepted per call; 0: all */
	int source_port_0;
	uint32_t receives; /* calls of recvmmsg */
} kernel;

int sendmmsg(int fd, struct mmsghdr *msg, unsigned int n, int flags)
{
	if (kernel.send_error) {
		errno = kernel.send_error;
		if (kernel.send_errors && !--kernel.send_errors)
			kernel.send_error = 0;
		return -1;
	}
	if (kernel.send_most && n > kernel.send_most)
		n = kernel.send_most;
	return (int)syscall(SYS_sendmmsg, fd, msg, n, flags);
}

int recvmmsg(int fd, struct mmsghdr *msg, unsigned int n, int flags,
	     struct timespec *timeout)
{
	int got = (int)syscall(SYS_recvmmsg, fd, msg, n, flags, timeout);

	kernel.receives++;
	for (int i = 0; i < got && kernel.source_port_0; i++)
		((struct sockaddr_in *)msg[i].msg_hdr.msg_name)->sin_port = 0;
	return got;
}

/* --- fixture -------------------------------------------------------------- */

static int setup(void **state, const char *host)
{
	memset(&kernel, 0, sizeof(kernel));
	return world_setup(state, host);
}

WORLD_FIXTURES

static const struct srdma_udp_stats *stats(const struct srdma_port *port)
{
	return srdma_port_udp_stats(port);
}

static void flush(struct srdma_port *port)
{
	port->ops->flush(port);
}

/* Sends a valid datagram of a third party. */
static void stranger_says(struct udp_world *w, int sock,
			  const struct sockaddr_storage *at, uint32_t number)
{
	uint8_t out[WORLD_LEN + SRDMA_ICRC_LEN];

	world_datagram(w, at, out, number, WORLD_LEN);
	assert_int_equal(send(sock, out, sizeof(out), 0), sizeof(out));
}

/* Returns 1 if the port's fd is readable. */
static int rings(struct srdma_port *port)
{
	struct pollfd p = { .fd = port->ops->fd(port), .events = POLLIN };

	return poll(&p, 1, 0);
}

/* --- data ----------------------------------------------------------------- */

static void test_datagrams_in_both_directions(void **state)
{
	struct udp_world *w = *state;
	struct srdma_conn *back, *passing;

	world_send(w->conn, 1, WORLD_LEN);
	assert_int_equal(world_poll(w, w->b), 0);
	flush(w->a);
	assert_int_equal(world_poll(w, w->b), 1);
	world_expect(&w->ev[0], 1, WORLD_LEN);
	w->b->ops->buf_put(w->ev[0].buf);
	back = w->ev[0].conn;
	assert_null(back->user);
	assert_int_equal(w->b->ops->keep(back), 0);
	back->user = w;
	world_send(back, 2, SRDMA_MAX_PACKET);
	flush(w->b);
	assert_int_equal(world_poll(w, w->a), 1);
	world_expect(&w->ev[0], 2, SRDMA_MAX_PACKET);
	w->a->ops->buf_put(w->ev[0].buf);
	passing = w->ev[0].conn;
	assert_ptr_not_equal(passing, w->conn); /* conn only sends */
	world_send(w->conn, 3, SRDMA_UDP_SHORTEST - SRDMA_ICRC_LEN);
	flush(w->a);
	assert_int_equal(world_poll(w, w->b), 1);
	assert_ptr_equal(w->ev[0].conn, back);
	w->b->ops->buf_put(w->ev[0].buf);
	w->b->ops->close(back);
	w->a->ops->close(w->conn);
}

static void test_bursts_keep_order(void **state)
{
	struct udp_world *w = *state;
	uint32_t next = 0, sent = 0;
	int n;

	for (int turn = 0; turn < 10; turn++) {
		for (int i = 0; i < 100; i++, sent++)
			world_send(w->conn, sent, 20 + sent % 3000);
		flush(w->a);
		while ((n = world_poll(w, w->b)) > 0)
			for (int i = 0; i < n; i++, next++) {
				world_expect(&w->ev[i], next, 20 + next % 3000);
				w->b->ops->buf_put(w->ev[i].buf);
			}
	}
	assert_int_equal(next, 1000);
	assert_int_equal(stats(w->a)->sent, 1000);
	assert_int_equal(stats(w->b)->received, 1000);
}

static void test_packet_and_buffer_sizes(void **state)
{
	struct udp_world *w = *state;
	struct srdma_port *a = w->a;

	assert_non_null(a->ops->reserve(w->conn));
	assert_int_equal(a->ops->commit(w->conn, SRDMA_BTH_LEN - 1), -EMSGSIZE);
	assert_int_equal(a->ops->commit(w->conn, SRDMA_MAX_PACKET + 1),
			 -EMSGSIZE);
	assert_int_equal(a->window, 1024);
	assert_int_equal(a->mtu, 4096); /* loopback */
	assert_true(stats(a)->receive_buffer > 100000);
	assert_true(stats(a)->send_buffer > 100000);
}

/* --- dropped datagrams ---------------------------------------------------- */

static void test_wrong_icrc_is_dropped(void **state)
{
	struct udp_world *w = *state;
	uint8_t packet[WORLD_LEN + SRDMA_ICRC_LEN];

	memset(packet, 7, sizeof(packet));
	for (int i = 0; i < 100; i++)
		assert_int_equal(send(w->stranger, packet, sizeof(packet), 0),
				 sizeof(packet));
	stranger_says(w, w->stranger, &w->stranger_at, 9);
	assert_int_equal(world_poll(w, w->b), 1);
	world_expect(&w->ev[0], 9, WORLD_LEN);
	w->b->ops->buf_put(w->ev[0].buf);
	assert_int_equal(stats(w->b)->counts.wire_icrc, 100);
	assert_int_equal(stats(w->b)->received, 1);
}

static void test_each_bit_of_icrc_counts(void **state)
{
	struct udp_world *w = *state;
	uint8_t out[WORLD_LEN + SRDMA_ICRC_LEN];

	world_datagram(w, &w->stranger_at, out, 9, WORLD_LEN);
	for (int bit = 0; bit < 8 * SRDMA_ICRC_LEN; bit++) {
		out[WORLD_LEN + bit / 8] ^= (uint8_t)(1U << bit % 8);
		assert_int_equal(send(w->stranger, out, sizeof(out), 0),
				 sizeof(out));
		out[WORLD_LEN + bit / 8] ^= (uint8_t)(1U << bit % 8);
	}
	assert_int_equal(world_poll(w, w->b), 0);
	assert_int_equal(stats(w->b)->counts.wire_icrc, 8 * SRDMA_ICRC_LEN);
}

static void test_illegal_lengths_are_dropped(void **state)
{
	static const uint8_t bytes[60000];
	struct udp_world *w = *state;

	for (int len = 0; len < SRDMA_UDP_SHORTEST; len++)
		assert_int_equal(send(w->stranger, bytes, (size_t)len, 0), len);
	assert_int_equal(send(w->stranger, bytes, SRDMA_UDP_LONGEST + 1, 0),
			 SRDMA_UDP_LONGEST + 1);
	assert_int_equal(send(w->stranger, bytes, sizeof(bytes), 0),
			 sizeof(bytes));
	assert_int_equal(world_drain(w, w->b), 0);
	assert_int_equal(stats(w->b)->counts.wire_short, SRDMA_UDP_SHORTEST);
	assert_int_equal(stats(w->b)->counts.wire_long, 2);
}

static void test_source_port_0_is_dropped(void **state)
{
	struct udp_world *w = *state;

	kernel.source_port_0 = 1;
	stranger_says(w, w->stranger, &w->stranger_at, 1);
	assert_int_equal(world_drain(w, w->b), 0);
	assert_int_equal(stats(w->b)->counts.wire_source, 1);
}

/* Random datagrams do not disturb a known peer. */
static void test_random_datagrams_are_dropped(void **state)
{
	struct udp_world *w = *state;
	uint8_t noise[2000];
	uint32_t seed = 1;
	int got = 0;

	for (int i = 0; i < 2000; i++) {
		size_t len;

		seed = seed * 1103515245 + 12345;
		len = seed >> 8 & 1023;
		memset(noise, (int)seed >> 16, len);
		send(w->stranger, noise, len, 0);
		if (i % 50)
			continue;
		world_send(w->conn, (uint32_t)i, WORLD_LEN);
		flush(w->a);
		while (rings(w->b))
			got += world_drain(w, w->b);
	}
	while (rings(w->b))
		got += world_drain(w, w->b);
	assert_int_equal(got, 40);
	assert_int_equal(stats(w->b)->counts.wire_short +
				 stats(w->b)->counts.wire_icrc,
			 2000);
}

/* --- known peers ---------------------------------------------------------- */

static uint32_t places_left(const struct srdma_port *port)
{
	const struct srdma_udp_port *p = (const void *)port;
	uint32_t n = 0;

	for (const struct srdma_udp_conn *c = p->free; c; c = c->next)
		n++;
	return n;
}

/*
 * More senders than fit into one burst, none of which is bound to a QP: all are
 * received, and none keeps a table entry.
 */
static void test_third_parties_are_forgotten(void **state)
{
	enum { STRANGERS = 100 };
	struct udp_world *w = *state;
	uint32_t places = places_left(w->b);
	int sock[STRANGERS], n, all = 0;

	for (int i = 0; i < STRANGERS; i++) {
		struct sockaddr_storage at;

		sock[i] = world_stranger(w, &at);
		stranger_says(w, sock[i], &at, (uint32_t)i);
	}
	for (int i = 0; i < STRANGERS; i++)
		close(sock[i]);
	while ((n = world_poll(w, w->b)) > 0) {
		assert_true(n <= SRDMA_UDP_BURST);
		for (int i = 0; i < n; i++) {
			world_expect(&w->ev[i], (uint32_t)(all + i), WORLD_LEN);
			w->b->ops->buf_put(w->ev[i].buf);
		}
		all += n;
	}
	assert_int_equal(all, STRANGERS);
	assert_int_equal(places_left(w->b), places);
}

/* All datagrams of one sender in a burst share a connection. */
static void test_one_sender_is_one_connection(void **state)
{
	struct udp_world *w = *state;

	for (uint32_t i = 0; i < 10; i++)
		stranger_says(w, w->stranger, &w->stranger_at, i);
	assert_int_equal(world_poll(w, w->b), 10);
	for (int i = 0; i < 10; i++) {
		assert_ptr_equal(w->ev[i].conn, w->ev[0].conn);
		w->b->ops->buf_put(w->ev[i].buf);
	}
}

/* Takes the next datagram, which has this number. */
static struct srdma_udp_conn *take_one(struct udp_world *w, uint32_t number)
{
	assert_int_equal(w->b->ops->poll(w->b, w->ev, 1), 1);
	world_expect(&w->ev[0], number, WORLD_LEN);
	w->b->ops->buf_put(w->ev[0].buf);
	return srdma_udp_conn_of(w->ev[0].conn);
}

static void expect_sender(const struct srdma_udp_conn *c,
			  const struct sockaddr_storage *at)
{
	union srdma_udp_addr a;

	memcpy(&a, at, sizeof(a));
	assert_int_equal(c->kind, SRDMA_UDP_PASSING);
	assert_true(srdma_udp_addr_same(&c->peer, &a));
}

/*
 * One poll for each datagram: a sender keeps its connection while its datagrams
 * follow each other, and no longer.
 */
static void test_senders_in_turn_have_their_connections(void **state)
{
	struct udp_world *w = *state;
	struct sockaddr_storage other;
	const uint32_t places = places_left(w->b);
	const int sock = world_stranger(w, &other);
	struct srdma_udp_conn *first;

	stranger_says(w, w->stranger, &w->stranger_at, 0);
	stranger_says(w, w->stranger, &w->stranger_at, 1);
	stranger_says(w, sock, &other, 2);
	stranger_says(w, w->stranger, &w->stranger_at, 3);
	close(sock);
	first = take_one(w, 0);
	expect_sender(first, &w->stranger_at);
	first->base.user = w; /* a connection that is made anew has none */
	assert_ptr_equal(take_one(w, 1), first);
	assert_ptr_equal(first->base.user, w);
	expect_sender(take_one(w, 2), &other);
	expect_sender(take_one(w, 3), &w->stranger_at);
	assert_int_equal(places_left(w->b), places - 1);
	assert_int_equal(world_poll(w, w->b), 0);
	assert_int_equal(places_left(w->b), places);
}

/* A connection that was kept and closed is not that of the sender's next datagram,
 * also if it was made for another peer meanwhile. */
static void test_closed_connection_of_a_sender_that_goes_on(void **state)
{
	struct udp_world *w = *state;
	const uint32_t places = places_left(w->b);

	for (int connects = 0; connects < 2; connects++) {
		struct srdma_conn *closed, *other = NULL;

		for (uint32_t i = 0; i < 3; i++)
			stranger_says(w, w->stranger, &w->stranger_at, i);
		closed = &take_one(w, 0)->base;
		assert_int_equal(w->b->ops->keep(closed), 0);
		w->b->ops->close(closed);
		if (connects) {
			assert_int_equal(
				w->b->ops->connect(w->b, "127.0.0.1:9", &other),
				0);
			assert_ptr_equal(other, closed);
			assert_int_equal(w->b->ops->poll(w->b, w->ev, 1), 1);
			assert_int_equal(w->ev[0].kind, SRDMA_EV_UP);
		}
		for (uint32_t i = 1; i < 3; i++)
			expect_sender(take_one(w, i), &w->stranger_at);
		if (other)
			w->b->ops->close(other);
		assert_int_equal(world_poll(w, w->b), 0);
		assert_int_equal(places_left(w->b), places);
	}
}

static struct srdma_conn *meet(struct udp_world *w, uint32_t number)
{
	struct sockaddr_storage at;
	int sock = world_stranger(w, &at);

	stranger_says(w, sock, &at, number);
	close(sock);
	assert_int_equal(world_poll(w, w->b), 1);
	w->b->ops->buf_put(w->ev[0].buf);
	return w->ev[0].conn;
}

static void test_accepted_connections_are_limited(void **state)
{
	static struct srdma_conn *kept[SRDMA_UDP_CONNS];
	struct udp_world *w = *state;
	struct srdma_conn *extra;

	for (uint32_t i = 0; i < SRDMA_UDP_CONNS; i++) {
		kept[i] = meet(w, i);
		if (kept[i]->user) { /* the same port number again */
			i--;
			continue;
		}
		assert_int_equal(w->b->ops->keep(kept[i]), 0);
		kept[i]->user = w;
	}
	do
		extra = meet(w, 0);
	while (extra->user);
	assert_int_equal(w->b->ops->keep(extra), -ENOSPC);
	assert_int_equal(stats(w->b)->counts.wire_full, 1);
	w->b->ops->close(kept[77]);
	assert_int_equal(w->b->ops->keep(extra), 0);
	for (uint32_t i = 0; i < SRDMA_UDP_CONNS; i++)
		if (i != 77)
			w->b->ops->close(kept[i]);
	w->b->ops->close(extra);
	assert_int_equal(world_poll(w, w->b), 0);
	assert_int_equal(places_left(w->b),
			 2 * SRDMA_UDP_CONNS + SRDMA_UDP_BURST);
}

static void test_connects_are_limited(void **state)
{
	struct udp_world *w = *state;
	struct srdma_conn *c[SRDMA_UDP_CONNS], *again;
	char text[SRDMA_NAME_LEN];

	c[0] = w->conn;
	for (int i = 1; i < SRDMA_UDP_CONNS; i++) {
		snprintf(text, sizeof(text), "%s:%d", w->host, i);
		assert_int_equal(w->a->ops->connect(w->a, text, &c[i]), 0);
	}
	snprintf(text, sizeof(text), "%s:%d", w->host, SRDMA_UDP_CONNS);
	assert_int_equal(w->a->ops->connect(w->a, text, &again), -ENOSPC);
	assert_non_null(w->a->why);
	/* An existing connection is shared and reported as up again. */
	assert_int_equal(w->a->ops->connect(w->a, w->b->address, &again), 0);
	assert_ptr_equal(again, w->conn);
	for (int i = 0; i < SRDMA_UDP_CONNS; i++)
		w->a->ops->close(c[i]);
	assert_int_equal(world_poll(w, w->a), 1);
	assert_int_equal(w->ev[0].kind, SRDMA_EV_UP);
	assert_ptr_equal(w->ev[0].conn, again);
	w->a->ops->close(again);
	assert_int_equal(places_left(w->a),
			 2 * SRDMA_UDP_CONNS + SRDMA_UDP_BURST);
}

/* --- kernel without room -------------------------------------------------- */

static void test_full_socket_keeps_datagrams(void **state)
{
	struct udp_world *w = *state;
	int got = 0;

	kernel.send_error = EAGAIN;
	for (uint32_t i = 0; i < SRDMA_UDP_SLOTS; i++)
		world_send(w->conn, i, WORLD_LEN);
	assert_null(w->a->ops->reserve(w->conn));
	assert_int_equal(w->a->ops->commit(w->conn, WORLD_LEN), -EAGAIN);
	assert_int_equal(w->a->ops->arm(w->a), 0);
	assert_int_equal(rings(w->a), 1); /* the real socket has room */
	kernel.send_error = 0;
	kernel.send_most = 7;
	assert_non_null(w->a->ops->reserve(w->conn));
	flush(w->a);
	assert_int_equal(rings(w->a), 0);
	for (int n; (n = world_poll(w, w->b)) > 0; got += n)
		for (int i = 0; i < n; i++) {
			world_expect(&w->ev[i], (uint32_t)(got + i), WORLD_LEN);
			w->b->ops->buf_put(w->ev[i].buf);
		}
	assert_int_equal(got, SRDMA_UDP_SLOTS);
}

/* A datagram that the kernel refuses is lost, without effect on others. */
static void test_datagram_refused_by_kernel_is_lost(void **state)
{
	static const int errors[] = { EMSGSIZE, ENETUNREACH, EPERM, ENOBUFS };
	struct udp_world *w = *state;

	for (uint32_t i = 0; i < 4; i++) {
		kernel.send_error = errors[i];
		kernel.send_errors = 1;
		world_send(w->conn, 2 * i, WORLD_LEN);
		world_send(w->conn, 2 * i + 1, WORLD_LEN);
		flush(w->a);
		assert_int_equal(world_poll(w, w->b), 1);
		world_expect(&w->ev[0], 2 * i + 1, WORLD_LEN);
		w->b->ops->buf_put(w->ev[0].buf);
	}
	assert_int_equal(stats(w->a)->counts.wire_too_long, 1);
	assert_int_equal(stats(w->a)->counts.wire_unsent, 3);
	assert_int_equal(stats(w->a)->sent, 4);
}

/* ICMP errors of a port that is not open do not disturb other connections. */
/* RFC 5042 R2.1-1 */
static void test_icmp_errors_are_ignored(void **state)
{
	struct udp_world *w = *state;
	struct srdma_port *gone = world_port(w->host);
	struct srdma_conn *conn;

	assert_int_equal(w->a->ops->connect(w->a, gone->address, &conn), 0);
	gone->ops->destroy(gone);
	assert_int_equal(world_poll(w, w->a), 1);
	for (uint32_t i = 0; i < 100; i++) {
		world_send(conn, i, WORLD_LEN);
		flush(w->a);
		assert_int_equal(world_poll(w, w->a), 0);
		world_send(w->conn, i, WORLD_LEN);
		flush(w->a);
	}
	assert_int_equal(world_drain(w, w->b), 100);
	assert_int_equal(stats(w->a)->sent, 200);
}

/* While a datagram was not put back, others stay in the socket. */
static void test_held_datagram_keeps_others_back(void **state)
{
	struct udp_world *w = *state;
	struct srdma_event held;

	stranger_says(w, w->stranger, &w->stranger_at, 5);
	assert_int_equal(world_poll(w, w->b), 1);
	held = w->ev[0];
	stranger_says(w, w->stranger, &w->stranger_at, 6);
	assert_int_equal(world_poll(w, w->b), 0);
	assert_int_equal(rings(w->b), 1);
	world_expect(&held, 5, WORLD_LEN);
	w->b->ops->buf_put(held.buf);
	assert_int_equal(world_poll(w, w->b), 1);
	world_expect(&w->ev[0], 6, WORLD_LEN);
	w->b->ops->buf_put(w->ev[0].buf);
}

/* A call that got less than it asked for is the last one of a burst. */
static void test_socket_is_read_once_per_burst(void **state)
{
	struct udp_world *w = *state;

	kernel.receives = 0;
	for (uint32_t burst = 1; burst <= 3; burst++) {
		stranger_says(w, w->stranger, &w->stranger_at, 1);
		stranger_says(w, w->stranger, &w->stranger_at, 2);
		take_one(w, 1);
		take_one(w, 2);
		assert_int_equal(w->b->ops->poll(w->b, w->ev, 1), 0);
		assert_int_equal(kernel.receives, burst);
	}
	assert_int_equal(w->b->ops->poll(w->b, w->ev, 1), 0);
	assert_int_equal(kernel.receives, 4);
}

/* Datagrams of the next turn are not missed, although this turn's poll had no
 * room left to find the socket empty. */
static void test_next_turn_reads_the_socket_again(void **state)
{
	struct udp_world *w = *state;

	for (uint32_t turn = 0; turn < 3; turn++) {
		stranger_says(w, w->stranger, &w->stranger_at, turn);
		take_one(w, turn);
		flush(w->b);
	}
}

/* A sender's conn ends in its turn while the next datagram waits: the datagram
 * gets another conn, and no place in the table is lost. */
static void test_conn_closed_before_the_next_datagram(void **state)
{
	struct udp_world *w = *state;
	const uint32_t places = places_left(w->b);

	for (uint32_t i = 0; i < 4; i++)
		stranger_says(w, w->stranger, &w->stranger_at, i);
	for (uint32_t i = 0; i < 4; i++) {
		struct srdma_udp_conn *c = take_one(w, i);

		expect_sender(c, &w->stranger_at);
		if (i == 3)
			break;
		assert_int_equal(w->b->ops->keep(&c->base), 0);
		w->b->ops->close(&c->base);
		assert_int_equal(places_left(w->b), places);
	}
	assert_int_equal(places_left(w->b), places - 1);
	assert_int_equal(world_poll(w, w->b), 0);
	assert_int_equal(places_left(w->b), places);
}

static void test_sleep_and_wake(void **state)
{
	struct udp_world *w = *state;

	assert_int_equal(w->b->ops->arm(w->b), 0);
	assert_int_equal(rings(w->b), 0);
	world_send(w->conn, 1, WORLD_LEN);
	assert_int_equal(w->a->ops->arm(w->a), 1); /* not flushed */
	flush(w->a);
	assert_int_equal(w->a->ops->arm(w->a), 0);
	assert_int_equal(rings(w->b), 1);
	w->b->ops->disarm(w->b);
	/*
	 * Two datagrams are pending and poll returns one. The other one is
	 * already read from the socket, so that the fd does not signal it and
	 * arm has to report it.
	 */
	world_send(w->conn, 2, WORLD_LEN);
	flush(w->a);
	assert_int_equal(w->b->ops->poll(w->b, w->ev, 1), 1);
	w->b->ops->buf_put(w->ev[0].buf);
	assert_int_equal(rings(w->b), 0);
	assert_int_equal(w->b->ops->arm(w->b), 1);
	assert_int_equal(world_poll(w, w->b), 1);
	w->b->ops->buf_put(w->ev[0].buf);
	assert_int_equal(w->b->ops->arm(w->b), 0);
}

/* Committed datagrams are sent although their connection is closed. */
static void test_closed_connection_sends_committed(void **state)
{
	struct udp_world *w = *state;

	world_send(w->conn, 4, WORLD_LEN);
	w->a->ops->close(w->conn);
	w->a->ops->destroy(w->a);
	w->a = world_port(w->host);
	assert_int_equal(world_poll(w, w->b), 1);
	world_expect(&w->ev[0], 4, WORLD_LEN);
	w->b->ops->buf_put(w->ev[0].buf);
}

static void test_connection_to_itself(void **state)
{
	struct udp_world *w = *state;
	struct srdma_conn *self;

	assert_int_equal(w->a->ops->connect(w->a, w->a->address, &self), 0);
	assert_int_equal(world_poll(w, w->a), 1);
	world_send(self, 3, WORLD_LEN);
	flush(w->a);
	assert_int_equal(world_poll(w, w->a), 1);
	world_expect(&w->ev[0], 3, WORLD_LEN);
	assert_ptr_not_equal(w->ev[0].conn, self);
	w->a->ops->buf_put(w->ev[0].buf);
}

/* --- set-up --------------------------------------------------------------- */

static void test_illegal_addresses_are_refused(void **state)
{
	static const char *const create_wrong[] = {
		"",
		"rxe0",
		"0.0.0.0",
		"0.0.0.0:4791",
		"[::]:4791",
		"[fe80::1]",
		"224.0.0.1",
		"[ff02::1]:4791",
		"10.0.0.1:",
		"255.255.255.255:1",
		"[::ffff:127.0.0.1]:4791",
	};
	static const char *const connect_wrong[] = {
		"",
		"127.0.0.1",
		"127.0.0.1:0",
		"0.0.0.0:1",
		"224.0.0.1:1",
		"[::1]:1",
		"127.0.0.1:70000",
	};
	char why[SRDMA_PORT_UDP_WHY_LEN];
	struct udp_world *w = *state;
	struct srdma_port *port;
	struct srdma_conn *conn;

	for (size_t i = 0; i < sizeof(create_wrong) / sizeof(*create_wrong);
	     i++) {
		*why = '\0';
		assert_int_equal(
			srdma_port_udp_create(&port, create_wrong[i], why),
			-EINVAL);
		assert_true(*why);
	}
	for (size_t i = 0; i < sizeof(connect_wrong) / sizeof(*connect_wrong);
	     i++) {
		w->a->why = NULL;
		assert_int_equal(
			w->a->ops->connect(w->a, connect_wrong[i], &conn),
			-EINVAL);
		assert_non_null(w->a->why);
	}
	assert_int_equal(srdma_port_udp_create(&port, w->a->address, why),
			 -EADDRINUSE);
	assert_non_null(strstr(why, "in use"));
	assert_int_equal(srdma_port_udp_create(&port, "192.0.2.1:0", why),
			 -EADDRNOTAVAIL);
	assert_non_null(strstr(why, "192.0.2.1"));
}

#define EVERYWHERE(X)                                                          \
	X(test_datagrams_in_both_directions), X(test_bursts_keep_order),       \
		X(test_packet_and_buffer_sizes),                               \
		X(test_wrong_icrc_is_dropped),                                 \
		X(test_each_bit_of_icrc_counts),                               \
		X(test_illegal_lengths_are_dropped),                           \
		X(test_random_datagrams_are_dropped),                          \
		X(test_third_parties_are_forgotten),                           \
		X(test_accepted_connections_are_limited),                      \
		X(test_connects_are_limited), X(test_icmp_errors_are_ignored), \
		X(test_closed_connection_sends_committed),                     \
		X(test_connection_to_itself)

int main(void)
{
	const struct CMUnitTest over4[] = {
		EVERYWHERE(OVER_IPV4),
		OVER_IPV4(test_source_port_0_is_dropped),
		OVER_IPV4(test_one_sender_is_one_connection),
		OVER_IPV4(test_senders_in_turn_have_their_connections),
		OVER_IPV4(test_closed_connection_of_a_sender_that_goes_on),
		OVER_IPV4(test_full_socket_keeps_datagrams),
		OVER_IPV4(test_datagram_refused_by_kernel_is_lost),
		OVER_IPV4(test_held_datagram_keeps_others_back),
		OVER_IPV4(test_socket_is_read_once_per_burst),
		OVER_IPV4(test_next_turn_reads_the_socket_again),
		OVER_IPV4(test_conn_closed_before_the_next_datagram),
		OVER_IPV4(test_sleep_and_wake),
		OVER_IPV4(test_illegal_addresses_are_refused),
	};
	const struct CMUnitTest over6[] = { EVERYWHERE(OVER_IPV6) };
	int failed = cmocka_run_group_tests(over4, NULL, NULL);

	if (world_has_ipv6())
		failed += cmocka_run_group_tests(over6, NULL, NULL);
	return failed;
}
