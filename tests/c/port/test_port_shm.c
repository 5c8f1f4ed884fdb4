#include "port/shm/port_shm.h"

#include "port/shm/port_shm_impl.h"
#include "support/shm_pair.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cmocka.h>

/* --- two workers ---------------------------------------------------------- */

static void test_datagrams_both_ways(void **state)
{
	struct shm_pair *p = *state;
	uint8_t big[SRDMA_SHM_WIRE_SIZE];
	struct srdma_event ev;

	memset(big, 0xa5, sizeof(big));
	assert_int_equal(shm_send_number(p->conn, 1), 0);
	shm_expect_nothing(p->b);
	p->a->ops->flush(p->a);
	shm_expect_number(p->b, p->far, 1);
	/* 4,311 bytes are the longest packet; a pool buffer holds it */
	assert_int_equal(shm_send_one(p->far, big, 4311), 0);
	p->b->ops->flush(p->b);
	ev = shm_expect(p->a, SRDMA_EV_RECV);
	assert_int_equal(ev.buf->len, 4311);
	assert_memory_equal(ev.buf->data, big, 4311);
	p->a->ops->buf_put(ev.buf);
	assert_int_equal(p->a->window, 64);
	assert_string_equal(p->a->address, "a");
}

static void test_full_ring_keeps_order(void **state)
{
	struct shm_pair *p = *state;
	uint32_t sent = 0, got = 0;

	while (!shm_send_number(p->conn, sent))
		sent++;
	assert_int_equal(sent, 16);
	p->a->ops->flush(p->a);
	assert_int_equal(p->a->ops->arm(p->a), 0);
	p->a->ops->disarm(p->a);
	for (; got < 4; got++)
		shm_expect_number(p->b, p->far, got);
	assert_int_equal(p->a->ops->arm(p->a), 1); /* there is room */
	assert_int_equal(p->a->ops->arm(p->a), 0); /* reported once only */
	p->a->ops->disarm(p->a);
	for (; got < 200; got++) {
		while (!shm_send_number(p->conn, sent))
			sent++;
		p->a->ops->flush(p->a);
		shm_expect_number(p->b, p->far, got);
	}
}

static void test_reserved_slot_may_be_dropped(void **state)
{
	struct shm_pair *p = *state;
	uint8_t *out = p->a->ops->reserve(p->conn);

	assert_non_null(out);
	memset(out, 0xff, SRDMA_SHM_WIRE_SIZE);
	assert_int_equal(p->a->ops->commit(p->conn, 0), -EMSGSIZE);
	assert_int_equal(p->a->ops->commit(p->conn, SRDMA_SHM_WIRE_SIZE + 1),
			 -EMSGSIZE);
	assert_int_equal(shm_send_number(p->conn, 3), 0);
	p->a->ops->flush(p->a);
	shm_expect_number(p->b, p->far, 3);
}

static void test_pool_is_bounded(void **state)
{
	struct shm_pair *p = *state;
	static struct srdma_buf *held[SRDMA_SHM_BUFS + 1];
	int n = 0;

	while ((held[n] = p->b->ops->buf_get(p->b)))
		assert_true(++n <= SRDMA_SHM_BUFS);
	assert_int_equal(n, SRDMA_SHM_BUFS);
	assert_int_equal(p->b->ops->buf_free(p->b), 0);
	shm_send_number(p->conn, 5);
	p->a->ops->flush(p->a);
	shm_expect_nothing(p->b);
	p->a->ops->destroy(p->a);
	p->a = NULL;
	shm_expect_nothing(
		p->b); /* the port reports DOWN after the packet before it */
	p->b->ops->buf_put(held[0]);
	shm_expect_number(p->b, p->far, 5);
	shm_expect(p->b, SRDMA_EV_DOWN);
	while (--n)
		p->b->ops->buf_put(held[n]);
}

static void test_connection_is_shared(void **state)
{
	struct shm_pair *p = *state;
	struct srdma_conn *again, *third;

	assert_int_equal(p->a->ops->connect(p->a, "b", &again), 0);
	assert_ptr_equal(again, p->conn);
	assert_ptr_equal(shm_expect(p->a, SRDMA_EV_UP).conn, again);
	/* connect() does not return the connection that the peer opened. */
	assert_int_equal(p->b->ops->connect(p->b, "a", &third), 0);
	assert_ptr_not_equal(third, p->far);
	shm_expect(p->a, SRDMA_EV_ACCEPT);
	shm_expect(p->b, SRDMA_EV_UP);
	p->a->ops->close(again);
	shm_send_number(p->conn, 9);
	p->a->ops->flush(p->a);
	shm_expect_number(p->b, p->far, 9);
	p->a->ops->close(p->conn);
	assert_ptr_equal(shm_expect(p->b, SRDMA_EV_DOWN).conn, p->far);
	p->b->ops->close(p->far);
}

/*
 * The prefetch lists the datagrams of several wires in the order in which poll
 * returns them.
 */
static void test_prefetch_lists_next_datagrams(void **state)
{
	enum { WIRES = 3, EACH = 4 };
	struct shm_pair *p = *state;
	struct srdma_conn *wire[WIRES] = { p->conn };
	const uint8_t *ahead[WIRES * EACH];
	struct srdma_port *more[WIRES] = { NULL };
	uint32_t number[WIRES * EACH], n = 0;
	struct srdma_event ev;

	for (int i = 1; i < WIRES; i++) {
		more[i] = shm_wire(p->dir, i == 1 ? "c" : "d", 16);
		more[i]->ops->connect(more[i], "b", &wire[i]);
		shm_expect(p->b, SRDMA_EV_ACCEPT);
		shm_expect(more[i], SRDMA_EV_UP);
	}
	assert_int_equal(p->b->ops->prefetch(p->b, ahead, 1), 0);
	for (uint32_t i = 0; i < EACH; i++)
		for (uint32_t w = 0; w < (i ? WIRES - 1 : WIRES); w++, n++)
			shm_send_number(wire[w], n);
	for (int i = 0; i < WIRES; i++)
		wire[i]->port->ops->flush(wire[i]->port);
	assert_int_equal(p->b->ops->prefetch(p->b, ahead, 2), 2);
	assert_int_equal(p->b->ops->prefetch(p->b, ahead, WIRES * EACH), n);
	for (uint32_t i = 0; i < n; i++)
		memcpy(&number[i], ahead[i], sizeof(number[i]));
	for (uint32_t i = 0; i < n; i++) {
		ev = shm_expect(p->b, SRDMA_EV_RECV);
		assert_memory_equal(ev.buf->data, &number[i], sizeof(*number));
		p->b->ops->buf_put(ev.buf);
	}
	for (int i = 1; i < WIRES; i++)
		more[i]->ops->destroy(more[i]);
}

static void test_connection_to_itself(void **state)
{
	struct shm_pair *p = *state;
	struct srdma_conn *self, *other = NULL;
	int ups = 0;

	assert_int_equal(p->a->ops->connect(p->a, "a", &self), 0);
	for (int i = 0; i < SHM_PATIENCE && !(ups && other); i++) {
		struct srdma_event ev;

		if (!shm_poll(p->a, &ev, 1))
			continue;
		if (ev.kind == SRDMA_EV_UP)
			ups += ev.conn == self;
		else
			other = ev.conn;
	}
	assert_int_equal(ups, 1);
	shm_send_number(self, 6);
	p->a->ops->flush(p->a);
	shm_expect_number(p->a, other, 6);
	shm_send_number(other, 7);
	p->a->ops->flush(p->a);
	shm_expect_number(p->a, self, 7);
}

static void test_datagrams_before_destroy_arrive(void **state)
{
	struct shm_pair *p = *state;

	shm_send_number(p->conn, 1);
	shm_send_number(p->conn, 2);
	p->a->ops->destroy(p->a); /* flushes */
	p->a = NULL;
	for (int i = 0; i < 600; i++) {
		struct srdma_event ev;

		if (!shm_poll(p->b, &ev, 1))
			continue;
		assert_int_equal(ev.kind, SRDMA_EV_RECV);
		p->b->ops->buf_put(ev.buf);
		break;
	}
	shm_expect_number(p->b, p->far, 2);
	assert_ptr_equal(shm_expect(p->b, SRDMA_EV_DOWN).conn, p->far);
	shm_expect_nothing(p->b);
	assert_null(p->b->ops->reserve(p->far));
	assert_int_equal(p->b->ops->commit(p->far, 4), -ENOTCONN);
	p->b->ops->close(p->far);
}

static void test_reconnect_after_end(void **state)
{
	struct shm_pair *p = *state;

	p->b->ops->destroy(p->b);
	shm_expect(p->a, SRDMA_EV_DOWN);
	p->b = shm_wire(p->dir, "b", 0);
	p->a->ops->close(p->conn);
	shm_pair_join(p);
	shm_send_number(p->conn, 4);
	p->a->ops->flush(p->a);
	shm_expect_number(p->b, p->far, 4);
}

/* --- hostile peers -------------------------------------------------------- */

static struct srdma_ring *ring_of(struct srdma_conn *conn, bool tx)
{
	struct srdma_shm_conn *c = srdma_shm_conn_of(conn);

	return tx ? &c->tx : &c->rx;
}

static void write_word(struct srdma_ring *ring, uint32_t at, uint32_t value)
{
	memcpy(ring->base + at, &value, sizeof(value));
}

static void test_invalid_tail_ends_connection(void **state)
{
	struct shm_pair *p = *state;

	write_word(ring_of(p->conn, true), SRDMA_RING_TAIL, 17);
	assert_int_equal(shm_expect(p->b, SRDMA_EV_DOWN).status, -EPROTO);
	p->b->ops->close(p->far);
	shm_expect(p->a, SRDMA_EV_DOWN);
}

static void test_invalid_length_ends_connection(void **state)
{
	struct shm_pair *p = *state;

	write_word(ring_of(p->conn, true), SRDMA_RING_SLOTS, 4609);
	write_word(ring_of(p->conn, true), SRDMA_RING_TAIL, 1);
	assert_int_equal(shm_expect(p->b, SRDMA_EV_DOWN).status, -EPROTO);
	assert_int_equal(p->b->ops->buf_free(p->b), SRDMA_SHM_BUFS);
}

static void test_invalid_head_ends_connection(void **state)
{
	struct shm_pair *p = *state;

	write_word(ring_of(p->conn, false), SRDMA_RING_HEAD, 17);
	for (uint32_t i = 0; i < 16; i++)
		shm_send_number(p->far, i);
	assert_null(p->b->ops->reserve(p->far));
	assert_int_equal(p->b->ops->arm(p->b), 1);
	assert_int_equal(shm_expect(p->b, SRDMA_EV_DOWN).status, -EPROTO);
}

static void test_data_after_hello_ends_connection(void **state)
{
	struct shm_pair *p = *state;
	struct srdma_event ev;
	int socks = 0;

	/* finds a's socket to b, the only descriptor with this peer address */
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
	ev = shm_expect(p->b, SRDMA_EV_DOWN);
	assert_int_equal(ev.status, -EPROTO);
}

#define PAIR(f)                                                                \
	cmocka_unit_test_setup_teardown(f, shm_pair_setup, shm_pair_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		PAIR(test_datagrams_both_ways),
		PAIR(test_full_ring_keeps_order),
		PAIR(test_reserved_slot_may_be_dropped),
		PAIR(test_pool_is_bounded),
		PAIR(test_connection_is_shared),
		PAIR(test_prefetch_lists_next_datagrams),
		PAIR(test_connection_to_itself),
		PAIR(test_datagrams_before_destroy_arrive),
		PAIR(test_reconnect_after_end),
		PAIR(test_invalid_tail_ends_connection),
		PAIR(test_invalid_length_ends_connection),
		PAIR(test_invalid_head_ends_connection),
		PAIR(test_data_after_hello_ends_connection),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
