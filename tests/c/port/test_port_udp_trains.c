/*
 * Trains of datagrams that the kernel hands over as one message, as real ones
 * over loopback and with hostile ancillary data.
 */
#include <errno.h>
#include <limits.h>
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

enum { MOST = 64, DATAGRAM = WORLD_LEN + SRDMA_ICRC_LEN };

/* A message that recvmmsg makes up. */
struct message {
	uint32_t len, valid; /* bytes of it, and of each valid datagram in it */
	int size;	     /* ancillary data: length of a datagram */
	int type;
	size_t cmsg_len;
	int flags;
};

static struct {
	unsigned asked, least; /* messages of the last call; least of all */
	const struct message *made;
	struct udp_world *w;
} kernel;

static void make_bytes(uint8_t *out, uint32_t len, uint32_t valid)
{
	memset(out, 0, len);
	if (valid < SRDMA_UDP_SHORTEST)
		return;
	for (uint32_t at = 0, i = 0; at + valid <= len; at += valid, i++)
		world_datagram(kernel.w, &kernel.w->stranger_at, out + at, i,
			       valid - SRDMA_ICRC_LEN);
}

static int make(struct mmsghdr *msg, const struct message *m)
{
	struct msghdr *hdr = &msg->msg_hdr;
	struct cmsghdr *c = CMSG_FIRSTHDR(hdr);

	assert_true(hdr->msg_iov->iov_len >= m->len);
	make_bytes(hdr->msg_iov->iov_base, m->len, m->valid);
	msg->msg_len = m->len;
	hdr->msg_namelen = sizeof(struct sockaddr_in);
	memcpy(hdr->msg_name, &kernel.w->stranger_at, hdr->msg_namelen);
	hdr->msg_flags = m->flags;
	hdr->msg_controllen = m->cmsg_len;
	if (m->cmsg_len) {
		c->cmsg_len = m->cmsg_len;
		c->cmsg_level = SOL_UDP;
		c->cmsg_type = m->type;
		memcpy(CMSG_DATA(c), &m->size, sizeof(m->size));
	}
	kernel.made = NULL;
	return 1;
}

int recvmmsg(int fd, struct mmsghdr *msg, unsigned int n, int flags,
	     struct timespec *timeout)
{
	kernel.asked = n;
	if (n < kernel.least)
		kernel.least = n;
	return kernel.made
		       ? make(msg, kernel.made)
		       : (int)syscall(SYS_recvmmsg, fd, msg, n, flags, timeout);
}

static int setup(void **state, const char *host)
{
	memset(&kernel, 0, sizeof(kernel));
	world_setup(state, host);
	kernel.w = *state;
	return 0;
}

WORLD_FIXTURES

static const struct srdma_wire_counts *counts(const struct udp_world *w)
{
	return &srdma_port_udp_stats(w->b)->counts;
}

/* Makes the third party's kernel cut what it sends into datagrams of len. */
static void segment(const struct udp_world *w, int len)
{
	if (setsockopt(w->stranger, SOL_UDP, UDP_SEGMENT, &len, sizeof(len)))
		skip(); /* a kernel before 4.18 */
}

/* Sends datagrams 0 to n - 1 with packets of len, the last one of last bytes. */
static void send_train(struct udp_world *w, uint32_t n, uint32_t len,
		       uint32_t last)
{
	static uint8_t out[65536];
	const uint32_t each = len + SRDMA_ICRC_LEN;
	const size_t all = (n - 1) * each + last + SRDMA_ICRC_LEN;

	for (uint32_t i = 0; i < n; i++)
		world_datagram(w, &w->stranger_at, out + (size_t)i * each, i,
			       i < n - 1 ? len : last);
	segment(w, (int)each);
	assert_int_equal(send(w->stranger, out, all, 0), all);
}

/* --- trains over loopback ------------------------------------------------- */

static void expect_train(struct udp_world *w, uint32_t n, uint32_t len,
			 uint32_t last)
{
	assert_int_equal(world_poll(w, w->b), n);
	for (uint32_t i = 0; i < n; i++) {
		assert_ptr_equal(w->ev[i].conn, w->ev[0].conn);
		world_expect(&w->ev[i], i, i < n - 1 ? len : last);
		w->b->ops->buf_put(w->ev[i].buf);
	}
}

static void test_train_is_split(void **state)
{
	static const uint32_t lengths[] = { SRDMA_UDP_SHORTEST, 100, 1001 };
	static const uint32_t numbers[] = { 1, 2, 63, MOST };
	struct udp_world *w = *state;

	for (int i = 0; i < 3; i++)
		for (int k = 0; k < 4; k++) {
			const uint32_t len = lengths[i], n = numbers[k];

			send_train(w, n, len, len);
			expect_train(w, n, len, len);
			send_train(w, n, len, len - SRDMA_ICRC_LEN);
			expect_train(w, n, len, len - SRDMA_ICRC_LEN);
		}
	send_train(w, 15, SRDMA_MAX_PACKET, SRDMA_MAX_PACKET);
	expect_train(w, 15, SRDMA_MAX_PACKET, SRDMA_MAX_PACKET);
	assert_int_equal(world_poll(w, w->b), 0);
	assert_int_equal(w->b->ops->arm(w->b), 0);
}

/* The descriptor does not signal the rest of a train, so arm reports it. */
static void test_train_is_taken_in_parts(void **state)
{
	struct udp_world *w = *state;

	send_train(w, 10, WORLD_LEN, WORLD_LEN);
	for (uint32_t i = 0; i < 10; i++) {
		assert_int_equal(w->b->ops->poll(w->b, w->ev, 1), 1);
		world_expect(&w->ev[0], i, WORLD_LEN);
		w->b->ops->buf_put(w->ev[0].buf);
		assert_int_equal(w->b->ops->arm(w->b), i < 9);
	}
}

/* A broken datagram takes nothing else of its train along. */
static void test_broken_datagram_is_dropped_alone(void **state)
{
	uint8_t out[3 * DATAGRAM];
	struct udp_world *w = *state;

	segment(w, DATAGRAM);
	for (uint32_t broken = 0; broken < 3; broken++) {
		for (uint32_t i = 0; i < 3; i++)
			world_datagram(w, &w->stranger_at, out + i * DATAGRAM,
				       i, WORLD_LEN);
		out[broken * DATAGRAM + 40] ^= 1;
		assert_int_equal(send(w->stranger, out, sizeof(out), 0),
				 sizeof(out));
		assert_int_equal(world_poll(w, w->b), 2);
		world_expect(&w->ev[0], broken == 0, WORLD_LEN);
		world_expect(&w->ev[1], 1 + (broken != 2), WORLD_LEN);
		w->b->ops->buf_put(w->ev[0].buf);
		w->b->ops->buf_put(w->ev[1].buf);
		assert_int_equal(counts(w)->wire_icrc, broken + 1);
	}
}

/* The datagrams that are not put back stay as they are, and the rest waits. */
static void test_train_is_handed_up_in_parts(void **state)
{
	enum { ALL = SRDMA_UDP_BUFS + 6 };
	static const struct message long_train = {
		.len = ALL * DATAGRAM,
		.valid = DATAGRAM,
		.size = DATAGRAM,
		.type = UDP_GRO,
		.cmsg_len = CMSG_LEN(sizeof(int)),
	};
	struct udp_world *w = *state;

	kernel.made = &long_train;
	assert_int_equal(world_poll(w, w->b), SRDMA_UDP_BUFS);
	assert_int_equal(w->b->ops->poll(w->b, &(struct srdma_event){ 0 }, 1),
			 0);
	assert_int_equal(w->b->ops->arm(w->b), 1);
	for (uint32_t i = 0; i < SRDMA_UDP_BUFS; i++) {
		world_expect(&w->ev[i], i, WORLD_LEN);
		w->b->ops->buf_put(w->ev[i].buf);
	}
	assert_int_equal(world_poll(w, w->b), ALL - SRDMA_UDP_BUFS);
	for (uint32_t i = 0; i < ALL - SRDMA_UDP_BUFS; i++) {
		world_expect(&w->ev[i], SRDMA_UDP_BUFS + i, WORLD_LEN);
		w->b->ops->buf_put(w->ev[i].buf);
	}
	assert_int_equal(w->b->ops->arm(w->b), 0);
}

/* Few datagrams wait in the port: a call takes fewer messages after trains. */
static void test_messages_of_a_call_follow_the_trains(void **state)
{
	static const struct {
		uint32_t train;
		unsigned next;
	} cases[] = { { MOST, 1 }, { 10, 3 }, { 2, 16 }, { 1, 32 } };
	struct udp_world *w = *state;

	for (int i = 0; i < 4; i++) {
		kernel.least = UINT_MAX;
		send_train(w, cases[i].train, WORLD_LEN, WORLD_LEN);
		assert_int_equal(world_drain(w, w->b), cases[i].train);
		world_poll(w, w->b);
		assert_int_equal(kernel.least, cases[i].next);
		world_poll(w, w->b);
		assert_int_equal(kernel.asked, SRDMA_UDP_BURST);
	}
}

static void test_datagrams_examined_by_a_poll_are_limited(void **state)
{
	enum { TRAINS = 8 };
	uint8_t out[MOST * DATAGRAM];
	struct udp_world *w = *state;
	uint64_t dropped;
	int n;

	memset(out, 7, sizeof(out));
	segment(w, DATAGRAM);
	for (int i = 0; i < TRAINS; i++)
		assert_int_equal(send(w->stranger, out, sizeof(out), 0),
				 sizeof(out));
	send_train(w, 1, WORLD_LEN, WORLD_LEN);
	do {
		dropped = counts(w)->wire_icrc;
		n = world_poll(w, w->b);
		assert_true(counts(w)->wire_icrc - dropped <= SRDMA_UDP_LOOKS);
		assert_int_equal(w->b->ops->arm(w->b), !n);
	} while (!n && counts(w)->wire_icrc > dropped);
	assert_int_equal(n, 1);
	world_expect(&w->ev[0], 0, WORLD_LEN);
	w->b->ops->buf_put(w->ev[0].buf);
	assert_int_equal(counts(w)->wire_icrc, TRAINS * MOST);
}

/* --- hostile ancillary data ----------------------------------------------- */

struct expected {
	uint64_t received, too_short, too_long, wrong;
};

#define TRAIN(len_, valid_, size_)                                             \
	{                                                                      \
		.len = (len_), .valid = (valid_), .size = (size_),             \
		.type = UDP_GRO, .cmsg_len = CMSG_LEN(sizeof(int))             \
	}

static const struct {
	struct message message;
	struct expected expected;
} hostile[] = {
	/* a length that can be that of no train: the message is a datagram */
	{ TRAIN(1000, 1000, 0), { 1, 0, 0, 0 } },
	{ TRAIN(1000, 1000, -1), { 1, 0, 0, 0 } },
	{ TRAIN(1000, 1000, INT_MIN), { 1, 0, 0, 0 } },
	{ TRAIN(1000, 1000, 1000), { 1, 0, 0, 0 } },
	{ TRAIN(1000, 1000, 1001), { 1, 0, 0, 0 } },
	{ TRAIN(1000, 1000, INT_MAX), { 1, 0, 0, 0 } },
	{ TRAIN(0, 0, 0), { 0, 1, 0, 0 } },
	{ TRAIN(0, 0, 1), { 0, 1, 0, 0 } },
	/* datagrams that are too short */
	{ TRAIN(1000, 1000, 1), { 0, 1000, 0, 0 } },
	{ TRAIN(65535, 0, 1), { 0, 65535, 0, 0 } },
	{ TRAIN(1000, 1000, SRDMA_UDP_SHORTEST - 1), { 0, 44, 0, 0 } },
	{ TRAIN(3 * SRDMA_UDP_SHORTEST + 5, SRDMA_UDP_SHORTEST,
		SRDMA_UDP_SHORTEST),
	  { 3, 1, 0, 0 } },
	{ TRAIN(65507, SRDMA_UDP_SHORTEST, SRDMA_UDP_SHORTEST),
	  { 65507 / SRDMA_UDP_SHORTEST, 1, 0, 0 } },
	/* too long */
	{ TRAIN(3 * (SRDMA_UDP_LONGEST + 1), 0, SRDMA_UDP_LONGEST + 1),
	  { 0, 0, 3, 0 } },
	{ TRAIN(2 * (SRDMA_UDP_LONGEST + 1) + 100, 0, SRDMA_UDP_LONGEST + 1),
	  { 0, 0, 2, 1 } },
	/* a length that is no boundary of the datagrams */
	{ TRAIN(2 * DATAGRAM, DATAGRAM, DATAGRAM - 1), { 0, 1, 0, 2 } },
	/* ancillary data that says nothing of a train */
	{ { 2 * DATAGRAM, DATAGRAM, DATAGRAM, UDP_GRO, CMSG_LEN(2), 0 },
	  { 0, 0, 0, 1 } },
	{ { 2 * DATAGRAM, DATAGRAM, DATAGRAM, UDP_GRO, CMSG_LEN(0), 0 },
	  { 0, 0, 0, 1 } },
	{ { 2 * DATAGRAM, DATAGRAM, DATAGRAM, UDP_SEGMENT,
	    CMSG_LEN(sizeof(int)), 0 },
	  { 0, 0, 0, 1 } },
	{ { DATAGRAM, DATAGRAM, 0, 0, 0, 0 }, { 1, 0, 0, 0 } },
	/* cut off by the kernel */
	{ { 2 * DATAGRAM, DATAGRAM, DATAGRAM, UDP_GRO, CMSG_LEN(sizeof(int)),
	    MSG_CTRUNC },
	  { 0, 0, 0, 1 } },
	{ { 2 * DATAGRAM, DATAGRAM, DATAGRAM, UDP_GRO, CMSG_LEN(sizeof(int)),
	    MSG_TRUNC },
	  { 0, 0, 1, 0 } },
	/* the same message as it should be */
	{ TRAIN(2 * DATAGRAM, DATAGRAM, DATAGRAM), { 2, 0, 0, 0 } },
};

static void test_hostile_messages_are_bounded(void **state)
{
	struct udp_world *w = *state;

	for (size_t i = 0; i < sizeof(hostile) / sizeof(*hostile); i++) {
		const struct expected *e = &hostile[i].expected;
		const struct srdma_wire_counts before = *counts(w);
		uint64_t got = 0;

		kernel.made = &hostile[i].message;
		do
			got += (uint64_t)world_drain(w, w->b);
		while (w->b->ops->arm(w->b));
		assert_int_equal(got, e->received);
		assert_int_equal(counts(w)->wire_short - before.wire_short,
				 e->too_short);
		assert_int_equal(counts(w)->wire_long - before.wire_long,
				 e->too_long);
		assert_int_equal(counts(w)->wire_icrc - before.wire_icrc,
				 e->wrong);
		assert_int_equal(srdma_udp_port_of(w->b)->rx.held, 0);
	}
}

#define EVERYWHERE(X)                                                          \
	X(test_train_is_split), X(test_train_is_taken_in_parts),               \
		X(test_broken_datagram_is_dropped_alone),                      \
		X(test_messages_of_a_call_follow_the_trains),                  \
		X(test_datagrams_examined_by_a_poll_are_limited)

int main(void)
{
	const struct CMUnitTest over4[] = {
		EVERYWHERE(OVER_IPV4),
		OVER_IPV4(test_train_is_handed_up_in_parts),
		OVER_IPV4(test_hostile_messages_are_bounded),
	};
	const struct CMUnitTest over6[] = { EVERYWHERE(OVER_IPV6) };
	int failed = cmocka_run_group_tests(over4, NULL, NULL);

	if (world_has_ipv6())
		failed += cmocka_run_group_tests(over6, NULL, NULL);
	return failed;
}
