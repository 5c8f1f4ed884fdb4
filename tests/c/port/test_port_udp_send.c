/*
 * Trains that the UDP port makes of its datagrams, over IPv6 loopback, and of
 * bare datagrams over IPv4.
 */
#include <errno.h>
#include <netinet/udp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/udp_world.h"

enum { CALLS = 4096, ALL = SRDMA_UDP_SLOTS };

/* Messages that the kernel took, and how it refuses others. */
static struct {
	uint32_t count;
	uint32_t train[CALLS]; /* datagrams of each message */
	int refuse_trains;     /* errno, 0: none */
	int refuse_all;
	uint32_t full_at;  /* messages that fill the socket; 0: any number */
	uint32_t path_mtu; /* longer datagrams: EMSGSIZE; 0: no limit */
	uint32_t refused;  /* messages */
	unsigned most;	   /* messages that a call takes; 0: all */
	int no_checksums;  /* 1: SO_NO_CHECK cannot be changed */
} kernel;

/* Bytes in which a message is cut; 0: it has no such ancillary data. */
static uint32_t segment_of(const struct msghdr *m)
{
	const struct cmsghdr *c = CMSG_FIRSTHDR(m);
	uint16_t size;

	if (!c)
		return 0;
	assert_int_equal(c->cmsg_level, SOL_UDP);
	assert_int_equal(c->cmsg_type, UDP_SEGMENT);
	assert_int_equal(c->cmsg_len, CMSG_LEN(sizeof(size)));
	memcpy(&size, CMSG_DATA(c), sizeof(size));
	return size;
}

static int error_of(const struct msghdr *m)
{
	if (kernel.refuse_all)
		return kernel.refuse_all;
	if (kernel.full_at && kernel.count >= kernel.full_at)
		return EAGAIN;
	if (kernel.path_mtu && m->msg_iov->iov_len > kernel.path_mtu)
		return EMSGSIZE;
	return m->msg_iovlen > 1 ? kernel.refuse_trains : 0;
}

static void check(const struct msghdr *m)
{
	size_t all = 0;

	if (m->msg_iovlen > 1)
		assert_int_equal(segment_of(m), m->msg_iov->iov_len);
	else
		assert_int_equal(segment_of(m), 0);
	assert_true(m->msg_iovlen <= SRDMA_UDP_TRAIN);
	for (size_t i = 0; i < m->msg_iovlen; i++) {
		all += m->msg_iov[i].iov_len;
		if (i + 1 < m->msg_iovlen)
			assert_int_equal(m->msg_iov[i].iov_len,
					 m->msg_iov->iov_len);
		assert_true(m->msg_iov[i].iov_len <= m->msg_iov->iov_len);
	}
	assert_true(all <= 65507);
}

int sendmmsg(int fd, struct mmsghdr *msg, unsigned int n, int flags)
{
	unsigned int i = 0;
	int err = 0;

	if (kernel.most && n > kernel.most)
		n = kernel.most;
	for (; i < n && !(err = error_of(&msg[i].msg_hdr)); i++) {
		check(&msg[i].msg_hdr);
		assert_int_equal(syscall(SYS_sendmmsg, fd, &msg[i], 1, flags),
				 1);
		assert_true(kernel.count < CALLS);
		kernel.train[kernel.count++] =
			(uint32_t)msg[i].msg_hdr.msg_iovlen;
	}
	if (i)
		return (int)i;
	kernel.refused++;
	errno = err;
	return -1;
}

int setsockopt(int fd, int level, int option, const void *value, socklen_t len)
{
	if (kernel.no_checksums && level == SOL_SOCKET &&
	    option == SO_NO_CHECK) {
		errno = EPERM;
		return -1;
	}
	return (int)syscall(SYS_setsockopt, fd, level, option, value, len);
}

static int setup(void **state, const char *host)
{
	memset(&kernel, 0, sizeof(kernel));
	return world_setup(state, host);
}

WORLD_FIXTURES

static const struct srdma_udp_stats *stats(const struct udp_world *w)
{
	return srdma_port_udp_stats(w->a);
}

/* Sends packets of len with the numbers from i to n - 1. */
static void send_from(struct udp_world *w, uint32_t i, uint32_t n, uint32_t len)
{
	for (; i < n; i++)
		world_send(w->conn, i, len);
	w->a->ops->flush(w->a);
}

static void send_equal(struct udp_world *w, uint32_t n, uint32_t len)
{
	send_from(w, 0, n, len);
}

/* Receives packets 0 to n - 1 of len. */
static void expect_equal(struct udp_world *w, uint32_t n, uint32_t len)
{
	uint32_t got = 0;
	int k;

	while ((k = world_poll(w, w->b)) > 0)
		for (int i = 0; i < k; i++) {
			world_expect(&w->ev[i], got++, len);
			w->b->ops->buf_put(w->ev[i].buf);
		}
	assert_int_equal(got, n);
}

/* The trains since the last call had these numbers of datagrams. */
static void expect_trains(const uint32_t *train, uint32_t n)
{
	assert_int_equal(kernel.count, n);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(kernel.train[i], train[i]);
	kernel.count = 0;
}

#define EXPECT_TRAINS(...)                                                     \
	expect_trains((const uint32_t[]){ __VA_ARGS__ },                       \
		      sizeof((const uint32_t[]){ __VA_ARGS__ }) /              \
			      sizeof(uint32_t))

/* --- which datagrams a train has ------------------------------------------ */

static void test_lengths_decide_where_trains_end(void **state)
{
	static const struct {
		uint32_t n, len[6], trains, train[6];
	} cases[] = {
		{ 1, { 100 }, 1, { 1 } },
		{ 2, { 100, 100 }, 1, { 2 } },
		{ 3, { 100, 100, 99 }, 1, { 3 } },
		{ 3, { 100, 99, 100 }, 2, { 2, 1 } },
		{ 2, { 99, 100 }, 2, { 1, 1 } },
		{ 3, { 100, 100, 101 }, 2, { 2, 1 } },
		{ 4, { 100, 99, 99, 99 }, 2, { 2, 2 } },
		{ 6, { 50, 100, 100, 50, 50, 100 }, 4, { 1, 3, 1, 1 } },
	};
	struct udp_world *w = *state;

	for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
		for (uint32_t i = 0; i < cases[c].n; i++)
			world_send(w->conn, i, cases[c].len[i]);
		w->a->ops->flush(w->a);
		assert_int_equal(world_poll(w, w->b), cases[c].n);
		for (uint32_t i = 0; i < cases[c].n; i++) {
			world_expect(&w->ev[i], i, cases[c].len[i]);
			w->b->ops->buf_put(w->ev[i].buf);
		}
		expect_trains(cases[c].train, cases[c].trains);
	}
}

static void test_trains_are_limited(void **state)
{
	struct udp_world *w = *state;

	send_equal(w, 2 * SRDMA_UDP_TRAIN + 1, WORLD_LEN);
	EXPECT_TRAINS(SRDMA_UDP_TRAIN, SRDMA_UDP_TRAIN, 1);
	expect_equal(w, 2 * SRDMA_UDP_TRAIN + 1, WORLD_LEN);
	assert_int_equal(stats(w)->sent, 2 * SRDMA_UDP_TRAIN + 1);
	send_equal(w, 17, SRDMA_MAX_PACKET); /* 15 datagrams of 4,228 bytes */
	EXPECT_TRAINS(15, 2);
	expect_equal(w, 17, SRDMA_MAX_PACKET);
}

/* Datagrams leave in order of commit, so a train has one destination. */
static void test_train_has_one_destination(void **state)
{
	static const int to[] = { 0, 0, 1, 1, 1, 0, 1, 0 };
	struct udp_world *w = *state;
	struct srdma_port *other = world_port(w->host);
	struct srdma_conn *conn[2] = { w->conn };

	assert_non_null(other);
	assert_int_equal(w->a->ops->connect(w->a, other->address, &conn[1]), 0);
	for (uint32_t i = 0; i < 8; i++)
		world_send(conn[to[i]], i, WORLD_LEN);
	w->a->ops->flush(w->a);
	EXPECT_TRAINS(2, 3, 1, 1, 1);
	assert_int_equal(world_drain(w, w->b), 4);
	assert_int_equal(world_drain(w, other), 4);
	other->ops->destroy(other);
}

/* The ring of datagrams wraps within what would be a train. */
static void test_train_ends_at_the_end_of_the_ring(void **state)
{
	enum { LONGER = WORLD_LEN + 4, WAIT = ALL - 40, MORE = WAIT + 30 };
	struct udp_world *w = *state;

	kernel.full_at = 1;
	for (uint32_t i = 0; i < 30; i++)
		world_send(w->conn, i, WORLD_LEN);
	send_from(w, 0, WAIT, LONGER);
	EXPECT_TRAINS(30);
	expect_equal(w, 30, WORLD_LEN);
	kernel.full_at = 0;
	send_from(w, WAIT, MORE, LONGER);
	EXPECT_TRAINS(64, 64, 64, 34, 20);
	expect_equal(w, MORE, LONGER);
}

static void test_no_trains_over_ipv4(void **state)
{
	struct udp_world *w = *state;

	send_equal(w, 100, WORLD_LEN);
	assert_int_equal(kernel.count, 100);
	expect_equal(w, 100, WORLD_LEN);
}

/* --- kernels that refuse --------------------------------------------------- */

/* Datagrams of a train that is refused are sent one by one: none is lost. */
static void test_refused_train_is_sent_one_by_one(void **state)
{
	static const int errors[] = { EIO, EINVAL, EMSGSIZE, ENOBUFS, EPERM };
	struct udp_world *w = *state;

	for (int i = 0; i < 5; i++) {
		kernel.refuse_trains = errors[i];
		kernel.refused = kernel.count = 0;
		send_equal(w, 10, WORLD_LEN);
		assert_int_equal(kernel.refused, 1);
		EXPECT_TRAINS(1, 1, 1, 1, 1, 1, 1, 1, 1, 1);
		expect_equal(w, 10, WORLD_LEN);
		/* 64 alone, then a train again */
		kernel.refuse_trains = 0;
		send_equal(w, SRDMA_UDP_TRAIN - 10, WORLD_LEN);
		assert_int_equal(kernel.count, SRDMA_UDP_TRAIN - 10);
		expect_equal(w, SRDMA_UDP_TRAIN - 10, WORLD_LEN);
		kernel.count = 0;
		send_equal(w, 10, WORLD_LEN);
		EXPECT_TRAINS(10);
		expect_equal(w, 10, WORLD_LEN);
	}
	assert_int_equal(stats(w)->counts.wire_too_long, 0);
	assert_int_equal(stats(w)->counts.wire_unsent, 0);
}

/* A kernel that refuses all trains is asked ever less often. */
static void test_refusals_in_a_row_lengthen_the_pause(void **state)
{
	enum { TURNS = 2000, EACH = 64 };
	struct udp_world *w = *state;

	kernel.refuse_trains = EINVAL;
	for (int i = 0; i < TURNS; i++) {
		send_equal(w, EACH, WORLD_LEN);
		assert_int_equal(kernel.count, EACH);
		kernel.count = 0;
		assert_int_equal(world_drain(w, w->b), EACH);
	}
	/* 64, 128 .. 32768 alone are 65472, then 65536 */
	assert_int_equal(kernel.refused, 11);
}

/* A path MTU below the datagrams: each is lost and counted, others pass. */
static void test_train_of_too_long_datagrams_is_lost(void **state)
{
	struct udp_world *w = *state;

	kernel.path_mtu = WORLD_LEN + SRDMA_ICRC_LEN;
	for (uint32_t i = 0; i < 10; i++)
		world_send(w->conn, i, WORLD_LEN + 1);
	for (uint32_t i = 0; i < 10; i++)
		world_send(w->conn, i, WORLD_LEN);
	w->a->ops->flush(w->a);
	expect_equal(w, 10, WORLD_LEN);
	assert_int_equal(stats(w)->counts.wire_too_long, 10);
	assert_int_equal(stats(w)->sent, 10);
}

static void test_datagrams_refused_alone_are_lost(void **state)
{
	struct udp_world *w = *state;

	kernel.refuse_all = ENOBUFS;
	send_equal(w, 10, WORLD_LEN);
	assert_int_equal(kernel.refused, 1 + 10);
	assert_int_equal(stats(w)->counts.wire_unsent, 10);
	assert_int_equal(stats(w)->sent, 0);
	assert_int_equal(w->a->ops->arm(w->a), 0);
	assert_int_equal(world_poll(w, w->b), 0);
}

/* A socket buffer without room keeps a train, and takes a part of a turn. */
static void test_full_socket_keeps_trains(void **state)
{
	struct udp_world *w = *state;

	kernel.refuse_all = EAGAIN;
	send_equal(w, 200, WORLD_LEN);
	assert_int_equal(kernel.refused, 1);
	assert_int_equal(w->a->ops->arm(w->a), 0); /* EPOLLOUT wakes it */
	assert_int_equal(stats(w)->sent, 0);
	kernel.refuse_all = 0;
	kernel.most = 1;
	w->a->ops->flush(w->a);
	EXPECT_TRAINS(64, 64, 64, 8);
	expect_equal(w, 200, WORLD_LEN);
	assert_int_equal(stats(w)->counts.wire_unsent, 0);
}

/* The ring begins again when it is empty, and no earlier. */
static void test_empty_ring_begins_again(void **state)
{
	struct udp_world *w = *state;
	const uint8_t *const first = w->a->ops->reserve(w->conn);

	for (uint32_t i = 0; i < 3; i++)
		world_send(w->conn, i, WORLD_LEN);
	assert_ptr_not_equal(w->a->ops->reserve(w->conn), first);
	w->a->ops->flush(w->a);
	assert_ptr_equal(w->a->ops->reserve(w->conn), first);
	kernel.refuse_all = EAGAIN;
	world_send(w->conn, 3, WORLD_LEN);
	w->a->ops->flush(w->a);
	world_send(w->conn, 4, WORLD_LEN);
	kernel.refuse_all = 0;
	w->a->ops->flush(w->a);
	assert_ptr_equal(w->a->ops->reserve(w->conn), first);
	expect_equal(w, 5, WORLD_LEN);
}

/* --- bare datagrams (11a) -------------------------------------------------- */

static void send_bare(struct udp_world *w, uint32_t number)
{
	uint8_t *out = w->a->ops->reserve(w->conn);

	assert_non_null(out);
	world_fill(out, WORLD_LEN, number);
	assert_int_equal(w->a->ops->commit_bare(w->conn, WORLD_LEN), 0);
	for (int i = 0; i < SRDMA_ICRC_LEN; i++)
		assert_int_equal(out[WORLD_LEN + i], 0);
}

static void test_bare_datagrams_leave_in_trains_over_ipv4(void **state)
{
	struct udp_world *w = *state;

	srdma_port_udp_take_bare(w->b);
	assert_int_equal(w->b->bare, 1);
	for (uint32_t i = 0; i < 100; i++)
		send_bare(w, i);
	w->a->ops->flush(w->a);
	EXPECT_TRAINS(64, 36);
	expect_equal(w, 100, WORLD_LEN);
	assert_int_equal(srdma_port_udp_stats(w->b)->counts.wire_icrc, 0);
}

/* Datagrams with an ICRC leave between bare ones, alone and in order. */
static void test_bare_datagrams_join_no_others(void **state)
{
	static const int bare[] = { 1, 1, 0, 0, 1, 1, 1, 0 };
	struct udp_world *w = *state;

	srdma_port_udp_take_bare(w->b);
	for (int turn = 0; turn < 2; turn++) {
		for (uint32_t i = 0; i < 8; i++)
			if (bare[i])
				send_bare(w, i);
			else
				world_send(w->conn, i, WORLD_LEN);
		w->a->ops->flush(w->a);
		EXPECT_TRAINS(2, 1, 1, 3, 1);
		expect_equal(w, 8, WORLD_LEN);
	}
}

static void test_bare_datagram_is_dropped_where_none_are_taken(void **state)
{
	struct udp_world *w = *state;

	for (uint32_t i = 0; i < 10; i++)
		send_bare(w, i);
	w->a->ops->flush(w->a);
	assert_int_equal(world_drain(w, w->b), 0);
	assert_int_equal(srdma_port_udp_stats(w->b)->counts.wire_icrc, 10);
}

/* The kernel refuses trains without checksums: bare datagrams leave alone. */
static void test_bare_datagrams_without_checksums_leave_alone(void **state)
{
	struct udp_world *w = *state;

	srdma_port_udp_take_bare(w->b);
	kernel.no_checksums = 1;
	kernel.refuse_trains = EINVAL; /* as the kernel does */
	for (uint32_t i = 0; i < 10; i++)
		send_bare(w, i);
	w->a->ops->flush(w->a);
	assert_int_equal(kernel.count, 10);
	expect_equal(w, 10, WORLD_LEN);
}

static void test_bare_datagrams_have_legal_lengths(void **state)
{
	struct udp_world *w = *state;

	assert_non_null(w->a->ops->reserve(w->conn));
	assert_int_equal(w->a->ops->commit_bare(w->conn, SRDMA_BTH_LEN - 1),
			 -EMSGSIZE);
	assert_int_equal(w->a->ops->commit_bare(w->conn, SRDMA_MAX_PACKET + 1),
			 -EMSGSIZE);
	kernel.refuse_all = EAGAIN;
	for (uint32_t i = 0; i < SRDMA_UDP_SLOTS; i++)
		send_bare(w, i);
	assert_int_equal(w->a->ops->commit_bare(w->conn, WORLD_LEN), -EAGAIN);
}

/* Over IPv6 every datagram has its ICRC. */
static void test_no_bare_datagrams_over_ipv6(void **state)
{
	struct udp_world *w = *state;

	srdma_port_udp_take_bare(w->b);
	assert_int_equal(w->b->bare, 0);
	send_bare(w, 0);
	w->a->ops->flush(w->a);
	assert_int_equal(world_drain(w, w->b), 0);
	assert_int_equal(srdma_port_udp_stats(w->b)->counts.wire_icrc, 1);
}

int main(void)
{
	const struct CMUnitTest over4[] = {
		OVER_IPV4(test_no_trains_over_ipv4),
		OVER_IPV4(test_empty_ring_begins_again),
		OVER_IPV4(test_bare_datagrams_leave_in_trains_over_ipv4),
		OVER_IPV4(test_bare_datagrams_join_no_others),
		OVER_IPV4(test_bare_datagram_is_dropped_where_none_are_taken),
		OVER_IPV4(test_bare_datagrams_without_checksums_leave_alone),
		OVER_IPV4(test_bare_datagrams_have_legal_lengths),
	};
	const struct CMUnitTest over6[] = {
		OVER_IPV6(test_lengths_decide_where_trains_end),
		OVER_IPV6(test_trains_are_limited),
		OVER_IPV6(test_train_has_one_destination),
		OVER_IPV6(test_train_ends_at_the_end_of_the_ring),
		OVER_IPV6(test_refused_train_is_sent_one_by_one),
		OVER_IPV6(test_refusals_in_a_row_lengthen_the_pause),
		OVER_IPV6(test_train_of_too_long_datagrams_is_lost),
		OVER_IPV6(test_datagrams_refused_alone_are_lost),
		OVER_IPV6(test_full_socket_keeps_trains),
		OVER_IPV6(test_no_bare_datagrams_over_ipv6),
	};
	int failed = cmocka_run_group_tests(over4, NULL, NULL);

	if (world_has_ipv6())
		failed += cmocka_run_group_tests(over6, NULL, NULL);
	return failed;
}
