/*
 * Two worker processes that sleep: no wake-up is lost, and idle workers use no
 * CPU time.
 */
#include "port/shm/port_shm_impl.h"
#include "support/shm_pair.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { LOST_MS = 60000, ROUNDS = 10000, FLOOD = 50000, STOP = UINT16_MAX };

/* Sleeps until there is an event. Returns 0, or -1 after a timeout. */
static int sleep_on(struct srdma_port *port)
{
	struct pollfd p = { .fd = port->ops->fd(port), .events = POLLIN };
	int r = port->ops->arm(port);

	if (!r)
		r = poll(&p, 1, LOST_MS);
	port->ops->disarm(port);
	return r == 1 ? 0 : -1;
}

static int next(struct srdma_port *port, struct srdma_event *ev)
{
	while (!shm_poll(port, ev, 1))
		if (sleep_on(port))
			return -1;
	return ev->kind;
}

static int send_flushed(struct srdma_conn *conn, uint32_t number)
{
	struct srdma_port *port = conn->port;

	while (shm_send_number(conn, number)) {
		port->ops->flush(port);
		if (sleep_on(port))
			return -1;
	}
	return 0;
}

/* Returns the number in the next datagram, or -1 for another event. */
static int64_t next_number(struct srdma_port *port, struct srdma_conn **conn)
{
	struct srdma_event ev;
	uint32_t number;

	if (next(port, &ev) != SRDMA_EV_RECV)
		return -1;
	memcpy(&number, ev.buf->data, sizeof(number));
	port->ops->buf_put(ev.buf);
	*conn = ev.conn;
	return number;
}

/* The other process sends everything back. Returns its exit status. */
static int echo(struct srdma_port *port)
{
	struct srdma_conn *conn;
	struct srdma_event ev;
	int64_t number;

	if (next(port, &ev) != SRDMA_EV_ACCEPT)
		return 2;
	do {
		number = next_number(port, &conn);
		if (number < 0 || send_flushed(conn, (uint32_t)number))
			return 3;
		port->ops->flush(port);
	} while (number != STOP);
	return next(port, &ev) == SRDMA_EV_DOWN ? 0 : 4;
}

/* The other process receives everything, which must be in order. */
static int drain(struct srdma_port *port)
{
	struct srdma_conn *conn;
	struct srdma_event ev;

	if (next(port, &ev) != SRDMA_EV_ACCEPT)
		return 2;
	for (uint32_t i = 0; i < FLOOD; i++)
		if (next_number(port, &conn) != i)
			return 3;
	return next(port, &ev) == SRDMA_EV_DOWN ? 0 : 4;
}

struct two {
	char dir[64];
	struct srdma_port *a;
	struct srdma_conn *conn;
	pid_t pid;
};

static void start(struct two *t, int (*body)(struct srdma_port *port))
{
	struct srdma_port *b;
	struct srdma_event ev;
	int ready[2], status;
	char byte;

	shm_make_dir(t->dir);
	assert_int_equal(pipe(ready), 0);
	t->pid = fork();
	assert_true(t->pid >= 0);
	if (!t->pid) {
		b = shm_wire(t->dir, "b", 0);
		status = write(ready[1], "", 1) == 1 ? body(b) : 1;
		b->ops->destroy(b);
		_exit(status);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	t->a = shm_wire(t->dir, "a", 16);
	assert_int_equal(t->a->ops->connect(t->a, "b", &t->conn), 0);
	assert_int_equal(next(t->a, &ev), SRDMA_EV_UP);
}

static void finish(struct two *t, int signal)
{
	int status;

	t->a->ops->destroy(t->a);
	assert_int_equal(waitpid(t->pid, &status, 0), t->pid);
	if (signal)
		assert_int_equal(WTERMSIG(status), signal);
	else
		assert_int_equal(status, 0);
	rmdir(t->dir);
}

/* Both sides sleep whenever they are idle: no wake-up may be lost. */
static void test_ping_pong_loses_no_wake_up(void **state)
{
	struct srdma_conn *conn;
	struct two t;

	(void)state;
	start(&t, echo);
	for (int i = 0; i <= ROUNDS; i++) {
		uint32_t number = i == ROUNDS ? STOP : (uint32_t)i;

		assert_int_equal(send_flushed(t.conn, number), 0);
		t.a->ops->flush(t.a);
		assert_int_equal(next_number(t.a, &conn), number);
	}
	finish(&t, 0);
}

/* The sender sleeps when the ring is full, the receiver when it is empty. */
static void test_flood_loses_no_wake_up(void **state)
{
	struct two t;

	(void)state;
	start(&t, drain);
	for (uint32_t i = 0; i < FLOOD; i++)
		assert_int_equal(send_flushed(t.conn, i), 0);
	finish(&t, 0); /* destroy flushes the rest */
}

static void test_killed_peer_causes_down(void **state)
{
	struct srdma_event ev;
	struct two t;
	char path[96];

	(void)state;
	start(&t, echo);
	kill(t.pid, SIGKILL);
	assert_int_equal(next(t.a, &ev), SRDMA_EV_DOWN);
	assert_ptr_equal(ev.conn, t.conn);
	t.a->ops->close(ev.conn);
	strcpy(path, t.dir);
	strcat(path, "/b.sock");
	assert_int_equal(unlink(path), 0); /* nothing else is left */
	finish(&t, SIGKILL);
}

/* --- in one process ------------------------------------------------------- */

static int woken(struct srdma_port *port)
{
	struct pollfd p = { .fd = port->ops->fd(port), .events = POLLIN };

	return poll(&p, 1, 0);
}

static void test_idle_port_stays_asleep(void **state)
{
	struct shm_pair *p = *state;

	shm_expect_nothing(p->a);
	shm_expect_nothing(p->b);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(p->a->ops->arm(p->a), 0);
		assert_int_equal(p->b->ops->arm(p->b), 0);
		assert_int_equal(woken(p->a), 0);
		assert_int_equal(woken(p->b), 0);
		p->a->ops->disarm(p->a);
		p->b->ops->disarm(p->b);
		shm_expect_nothing(p->a);
		shm_expect_nothing(p->b);
	}
}

static void test_one_ring_wakes_once(void **state)
{
	struct shm_pair *p = *state;

	shm_expect_nothing(p->b);
	assert_int_equal(p->b->ops->arm(p->b), 0);
	shm_send_number(p->conn, 1);
	assert_int_equal(woken(p->b), 0);
	p->a->ops->flush(p->a);
	assert_int_equal(woken(p->b), 1);
	p->b->ops->disarm(p->b);
	shm_expect_number(p->b, p->far, 1);
	assert_int_equal(p->b->ops->arm(p->b), 0);
	assert_int_equal(woken(p->b), 0);
	p->b->ops->disarm(p->b);
}

/* An awake peer is not signaled, so that no system call is needed. */
static void test_awake_peer_is_not_rung(void **state)
{
	struct shm_pair *p = *state;
	uint64_t rings;

	for (uint32_t i = 0; i < 1000; i++) {
		assert_int_equal(shm_send_number(p->conn, i), 0);
		p->a->ops->flush(p->a);
		shm_expect_number(p->b, p->far, i);
	}
	assert_int_equal(
		read(srdma_shm_conn_of(p->far)->wake, &rings, sizeof(rings)),
		-1);
	assert_int_equal(errno, EAGAIN);
}

static void test_arm_reports_pending_datagram(void **state)
{
	struct shm_pair *p = *state;

	shm_expect_nothing(p->b);
	shm_send_number(p->conn, 1);
	p->a->ops->flush(p->a);
	assert_int_equal(p->b->ops->arm(p->b), 1);
	shm_expect_number(p->b, p->far, 1);
	assert_int_equal(p->b->ops->arm(p->b), 0);
	p->b->ops->disarm(p->b);
}

static void test_connect_and_close_wake(void **state)
{
	struct shm_pair *p = *state;
	struct srdma_conn *conn;

	shm_expect_nothing(p->a);
	assert_int_equal(p->a->ops->arm(p->a), 0);
	assert_int_equal(p->b->ops->connect(p->b, "a", &conn), 0);
	assert_int_equal(woken(p->a), 1);
	p->a->ops->disarm(p->a);
	shm_expect(p->a, SRDMA_EV_ACCEPT);
	shm_expect(p->b, SRDMA_EV_UP);
	shm_expect_nothing(p->a);
	assert_int_equal(p->a->ops->arm(p->a), 0);
	p->b->ops->close(conn);
	assert_int_equal(woken(p->a), 1);
	p->a->ops->disarm(p->a);
	shm_expect(p->a, SRDMA_EV_DOWN);
}

#define PAIR(f)                                                                \
	cmocka_unit_test_setup_teardown(f, shm_pair_setup, shm_pair_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ping_pong_loses_no_wake_up),
		cmocka_unit_test(test_flood_loses_no_wake_up),
		cmocka_unit_test(test_killed_peer_causes_down),
		PAIR(test_idle_port_stays_asleep),
		PAIR(test_one_ring_wakes_once),
		PAIR(test_awake_peer_is_not_rung),
		PAIR(test_arm_reports_pending_datagram),
		PAIR(test_connect_and_close_wake),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
