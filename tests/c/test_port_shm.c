#include "port_shm.h"

#include "port.h"
#include "port_shm_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATIENCE = 100000 }; /* polls until something must have happened */

struct pair {
	char dir[64];
	struct srdma_port *a, *b;
	struct srdma_conn *conn, *far;
	struct srdma_event ev[64];
};

static void make_dir(char dir[64])
{
	strcpy(dir, "/tmp/srdma-test-XXXXXX");
	assert_non_null(mkdtemp(dir));
}

static struct srdma_port *wire(const char *dir, const char *name,
			       uint32_t slots)
{
	struct srdma_port *port;

	assert_int_equal(srdma_port_shm_create_wire(&port, dir, name, slots),
			 0);
	return port;
}

static int poll_port(struct srdma_port *port, struct srdma_event *ev, int n)
{
	return port->ops->poll(port, ev, n);
}

/* The next event of a port, which must be of this kind. */
static struct srdma_event expect(struct srdma_port *port,
				 enum srdma_event_kind kind)
{
	struct srdma_event ev;

	for (int i = 0; i < PATIENCE; i++) {
		if (!poll_port(port, &ev, 1))
			continue;
		assert_int_equal(ev.kind, kind);
		return ev;
	}
	fail_msg("no event of kind %d", kind);
	return ev;
}

static void expect_nothing(struct srdma_port *port)
{
	struct srdma_event ev;

	for (int i = 0; i < 600; i++) /* two looks at the sockets */
		assert_int_equal(poll_port(port, &ev, 1), 0);
}

/* Poll both, since a connection takes the two. */
static void join(struct pair *p)
{
	struct srdma_event ev;

	p->far = NULL;
	assert_int_equal(p->a->ops->connect(p->a, p->b->address, &p->conn), 0);
	for (int i = 0; i < PATIENCE && !p->far; i++)
		if (poll_port(p->b, &ev, 1)) {
			assert_int_equal(ev.kind, SRDMA_EV_ACCEPT);
			p->far = ev.conn;
		}
	assert_non_null(p->far);
	assert_ptr_equal(expect(p->a, SRDMA_EV_UP).conn, p->conn);
}

static int setup(void **state)
{
	static struct pair p;

	memset(&p, 0, sizeof(p));
	make_dir(p.dir);
	p.a = wire(p.dir, "a", 16);
	p.b = wire(p.dir, "b", 0);
	join(&p);
	*state = &p;
	return 0;
}

static int teardown(void **state)
{
	struct pair *p = *state;

	if (p->a)
		p->a->ops->destroy(p->a);
	if (p->b)
		p->b->ops->destroy(p->b);
	assert_int_equal(rmdir(p->dir), 0); /* nothing is left */
	return 0;
}

static int send_one(struct srdma_conn *conn, const void *data, uint32_t len)
{
	uint8_t *out = conn->port->ops->reserve(conn);

	if (!out)
		return -EAGAIN;
	memcpy(out, data, len);
	return conn->port->ops->commit(conn, len);
}

static int send_number(struct srdma_conn *conn, uint32_t number)
{
	return send_one(conn, &number, sizeof(number));
}

static void expect_number(struct srdma_port *port, struct srdma_conn *conn,
			  uint32_t number)
{
	struct srdma_event ev = expect(port, SRDMA_EV_RECV);

	assert_ptr_equal(ev.conn, conn);
	assert_int_equal(ev.buf->len, sizeof(number));
	assert_memory_equal(ev.buf->data, &number, sizeof(number));
	port->ops->buf_put(ev.buf);
}

/* --- two workers ------------------------------------------------------ */

static void test_datagrams_both_ways(void **state)
{
	struct pair *p = *state;
	uint8_t big[SRDMA_SHM_WIRE_SIZE];
	struct srdma_event ev;

	memset(big, 0xa5, sizeof(big));
	assert_int_equal(send_number(p->conn, 1), 0);
	expect_nothing(p->b);
	p->a->ops->flush(p->a);
	expect_number(p->b, p->far, 1);
	/* 4,311 bytes are the longest packet; a pool buffer holds it */
	assert_int_equal(send_one(p->far, big, 4311), 0);
	p->b->ops->flush(p->b);
	ev = expect(p->a, SRDMA_EV_RECV);
	assert_int_equal(ev.buf->len, 4311);
	assert_memory_equal(ev.buf->data, big, 4311);
	p->a->ops->buf_put(ev.buf);
	assert_int_equal(p->a->window, 64);
	assert_string_equal(p->a->address, "a");
}

static void test_full_ring_and_order(void **state)
{
	struct pair *p = *state;
	uint32_t sent = 0, got = 0;

	while (!send_number(p->conn, sent))
		sent++;
	assert_int_equal(sent, 16);
	p->a->ops->flush(p->a);
	assert_int_equal(p->a->ops->arm(p->a), 0);
	p->a->ops->disarm(p->a);
	for (; got < 4; got++)
		expect_number(p->b, p->far, got);
	assert_int_equal(p->a->ops->arm(p->a), 1); /* there is room */
	for (; got < 200; got++) {
		while (!send_number(p->conn, sent))
			sent++;
		p->a->ops->flush(p->a);
		expect_number(p->b, p->far, got);
	}
}

static void test_reserve_may_be_given_up(void **state)
{
	struct pair *p = *state;
	uint8_t *out = p->a->ops->reserve(p->conn);

	assert_non_null(out);
	memset(out, 0xff, SRDMA_SHM_WIRE_SIZE);
	assert_int_equal(p->a->ops->commit(p->conn, 0), -EMSGSIZE);
	assert_int_equal(p->a->ops->commit(p->conn, SRDMA_SHM_WIRE_SIZE + 1),
			 -EMSGSIZE);
	assert_int_equal(send_number(p->conn, 3), 0);
	p->a->ops->flush(p->a);
	expect_number(p->b, p->far, 3);
}

static void test_pool_is_bounded(void **state)
{
	struct pair *p = *state;
	static struct srdma_buf *held[SRDMA_SHM_BUFS + 1];
	int n = 0;

	while ((held[n] = p->b->ops->buf_get(p->b)))
		assert_true(++n <= SRDMA_SHM_BUFS);
	assert_int_equal(n, SRDMA_SHM_BUFS);
	assert_int_equal(p->b->ops->buf_free(p->b), 0);
	send_number(p->conn, 5);
	p->a->ops->flush(p->a);
	expect_nothing(p->b);
	p->a->ops->destroy(p->a);
	p->a = NULL;
	expect_nothing(p->b); /* not DOWN either: a packet stands before it */
	p->b->ops->buf_put(held[0]);
	expect_number(p->b, p->far, 5);
	expect(p->b, SRDMA_EV_DOWN);
	while (--n)
		p->b->ops->buf_put(held[n]);
}

static void test_connection_is_shared(void **state)
{
	struct pair *p = *state;
	struct srdma_conn *again, *third;

	assert_int_equal(p->a->ops->connect(p->a, "b", &again), 0);
	assert_ptr_equal(again, p->conn);
	assert_ptr_equal(expect(p->a, SRDMA_EV_UP).conn, again);
	/* what a peer made in our direction is not taken for that peer */
	assert_int_equal(p->b->ops->connect(p->b, "a", &third), 0);
	assert_ptr_not_equal(third, p->far);
	expect(p->a, SRDMA_EV_ACCEPT);
	expect(p->b, SRDMA_EV_UP);
	p->a->ops->close(again);
	send_number(p->conn, 9);
	p->a->ops->flush(p->a);
	expect_number(p->b, p->far, 9);
	p->a->ops->close(p->conn);
	assert_ptr_equal(expect(p->b, SRDMA_EV_DOWN).conn, p->far);
	p->b->ops->close(p->far);
}

static void test_connecting_to_oneself(void **state)
{
	struct pair *p = *state;
	struct srdma_conn *self, *other = NULL;
	int ups = 0;

	assert_int_equal(p->a->ops->connect(p->a, "a", &self), 0);
	for (int i = 0; i < PATIENCE && !(ups && other); i++) {
		struct srdma_event ev;

		if (!poll_port(p->a, &ev, 1))
			continue;
		if (ev.kind == SRDMA_EV_UP)
			ups += ev.conn == self;
		else
			other = ev.conn;
	}
	assert_int_equal(ups, 1);
	send_number(self, 6);
	p->a->ops->flush(p->a);
	expect_number(p->a, other, 6);
	send_number(other, 7);
	p->a->ops->flush(p->a);
	expect_number(p->a, self, 7);
}

static void test_last_words_arrive(void **state)
{
	struct pair *p = *state;

	send_number(p->conn, 1);
	send_number(p->conn, 2);
	p->a->ops->destroy(p->a); /* flushes */
	p->a = NULL;
	for (int i = 0; i < 600; i++) {
		struct srdma_event ev;

		if (!poll_port(p->b, &ev, 1))
			continue;
		assert_int_equal(ev.kind, SRDMA_EV_RECV);
		p->b->ops->buf_put(ev.buf);
		break;
	}
	expect_number(p->b, p->far, 2);
	assert_ptr_equal(expect(p->b, SRDMA_EV_DOWN).conn, p->far);
	expect_nothing(p->b);
	assert_null(p->b->ops->reserve(p->far));
	assert_int_equal(p->b->ops->commit(p->far, 4), -ENOTCONN);
	p->b->ops->close(p->far);
}

static void test_a_new_connection_after_the_end(void **state)
{
	struct pair *p = *state;

	p->b->ops->destroy(p->b);
	expect(p->a, SRDMA_EV_DOWN);
	p->b = wire(p->dir, "b", 0);
	p->a->ops->close(p->conn);
	join(p);
	send_number(p->conn, 4);
	p->a->ops->flush(p->a);
	expect_number(p->b, p->far, 4);
}

/* --- liars ------------------------------------------------------------ */

static struct srdma_ring *ring_of(struct srdma_conn *conn, bool tx)
{
	struct srdma_shm_conn *c = srdma_shm_conn_of(conn);

	return tx ? &c->tx : &c->rx;
}

static void write_word(struct srdma_ring *ring, uint32_t at, uint32_t value)
{
	memcpy(ring->base + at, &value, sizeof(value));
}

static void test_impossible_tail_ends_it(void **state)
{
	struct pair *p = *state;

	write_word(ring_of(p->conn, true), SRDMA_RING_TAIL, 17);
	assert_int_equal(expect(p->b, SRDMA_EV_DOWN).status, -EPROTO);
	p->b->ops->close(p->far);
	expect(p->a, SRDMA_EV_DOWN);
}

static void test_impossible_length_ends_it(void **state)
{
	struct pair *p = *state;

	write_word(ring_of(p->conn, true), SRDMA_RING_SLOTS, 4609);
	write_word(ring_of(p->conn, true), SRDMA_RING_TAIL, 1);
	assert_int_equal(expect(p->b, SRDMA_EV_DOWN).status, -EPROTO);
	assert_int_equal(p->b->ops->buf_free(p->b), SRDMA_SHM_BUFS);
}

static void test_impossible_head_ends_it(void **state)
{
	struct pair *p = *state;

	write_word(ring_of(p->conn, false), SRDMA_RING_HEAD, 17);
	for (uint32_t i = 0; i < 16; i++)
		send_number(p->far, i);
	assert_null(p->b->ops->reserve(p->far));
	assert_int_equal(p->b->ops->arm(p->b), 1);
	assert_int_equal(expect(p->b, SRDMA_EV_DOWN).status, -EPROTO);
}

static void test_a_word_after_the_hello_ends_it(void **state)
{
	struct pair *p = *state;
	struct srdma_event ev;
	int socks = 0;

	/* a's sockets to b: its links' descriptors are the only ones */
	for (int fd = 3; fd < 200; fd++) {
		struct sockaddr_un sa;
		socklen_t len = sizeof(sa);

		if (getpeername(fd, (struct sockaddr *)&sa, &len) ||
		    len <= sizeof(sa.sun_family) ||
		    !strstr(sa.sun_path, "/b.sock"))
			continue;
		assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), 1);
		socks++;
	}
	assert_int_equal(socks, 1);
	ev = expect(p->b, SRDMA_EV_DOWN);
	assert_int_equal(ev.status, -EPROTO);
}

#define PAIR(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		PAIR(test_datagrams_both_ways),
		PAIR(test_full_ring_and_order),
		PAIR(test_reserve_may_be_given_up),
		PAIR(test_pool_is_bounded),
		PAIR(test_connection_is_shared),
		PAIR(test_connecting_to_oneself),
		PAIR(test_last_words_arrive),
		PAIR(test_a_new_connection_after_the_end),
		PAIR(test_impossible_tail_ends_it),
		PAIR(test_impossible_length_ends_it),
		PAIR(test_impossible_head_ends_it),
		PAIR(test_a_word_after_the_hello_ends_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
