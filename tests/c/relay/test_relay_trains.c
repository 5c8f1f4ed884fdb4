/*
 * Relays whose packets leave in trains, over IPv6 and in bare datagrams over
 * IPv4, and a network that loses, repeats and reorders whole trains and parts of
 * them.
 */
#include <netinet/udp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "port/udp/port_udp_impl.h"
#include "support/relay_pair.h"
#include "support/udp_world.h"

enum { BIG = 200000, SMALL = 1000, SMALLS = 40, STORMS = 12, PATIENCE = 20000 };

enum fate {
	PASS,
	LOSE,
	LOSE_PART,
	REPEAT,
	REPEAT_PART,
	HOLD, /* until the next message of the same socket has left */
	SWAP, /* the last part first */
	FATES
};

/* Datagrams [from, to) of a message. */
struct part {
	uint32_t from, to;
};

struct train {
	uint32_t n;
	struct iovec iov[SRDMA_UDP_TRAIN];
	uint8_t bytes[SRDMA_UDP_ROOM];
	union srdma_udp_addr peer;
	socklen_t peer_len;
	int sock;
};

static struct {
	uint32_t seed;
	int calm;		  /* 1: every message passes */
	uint32_t fates[2][FATES]; /* of datagrams alone; of trains */
	uint32_t longest;	  /* datagrams of a train */
	struct train held;	  /* n 0: none */
} net;

static uint32_t random_below(uint32_t n)
{
	net.seed = net.seed * 1103515245 + 12345;
	return (net.seed >> 8) % n;
}

static void pass(int fd, const struct msghdr *m, struct part p)
{
	struct mmsghdr one = { .msg_hdr = *m };
	union srdma_udp_control control = { 0 };

	const int on = 0;
	int off;
	socklen_t len = sizeof(off);

	if (p.from == p.to)
		return;
	one.msg_hdr.msg_iov = m->msg_iov + p.from;
	one.msg_hdr.msg_iovlen = p.to - p.from;
	one.msg_hdr.msg_control = NULL;
	one.msg_hdr.msg_controllen = 0;
	if (p.to - p.from > 1)
		srdma_udp_train_mark(&one.msg_hdr, &control);
	/* the port may have changed it since a train was held */
	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_NO_CHECK, &off, &len),
			 0);
	setsockopt(fd, SOL_SOCKET, SO_NO_CHECK, &on, sizeof(on));
	assert_int_equal(syscall(SYS_sendmmsg, fd, &one, 1, MSG_DONTWAIT), 1);
	setsockopt(fd, SOL_SOCKET, SO_NO_CHECK, &off, sizeof(off));
}

static void hold(int fd, const struct msghdr *m)
{
	struct train *t = &net.held;
	uint8_t *at = t->bytes;

	t->n = (uint32_t)m->msg_iovlen;
	t->sock = fd;
	t->peer_len = m->msg_namelen;
	memcpy(&t->peer, m->msg_name, m->msg_namelen);
	for (uint32_t i = 0; i < t->n; i++) {
		t->iov[i] = (struct iovec){ at, m->msg_iov[i].iov_len };
		memcpy(at, m->msg_iov[i].iov_base, t->iov[i].iov_len);
		at += t->iov[i].iov_len;
	}
}

static void release(void)
{
	struct train *t = &net.held;
	const struct msghdr m = { .msg_name = &t->peer,
				  .msg_namelen = t->peer_len,
				  .msg_iov = t->iov };

	pass(t->sock, &m, (struct part){ 0, t->n });
	t->n = 0;
}

/* A part of n datagrams that is neither empty nor, if n > 1, all of them. */
static struct part some(uint32_t n)
{
	const uint32_t len = 1 + random_below(n > 1 ? n - 1 : 1);
	const uint32_t from = random_below(n - len + 1);

	return (struct part){ from, from + len };
}

static void suffer(int fd, const struct msghdr *m, enum fate fate)
{
	const uint32_t n = (uint32_t)m->msg_iovlen;
	const struct part all = { 0, n }, p = some(n);

	net.fates[n > 1][fate]++;
	if (fate == LOSE_PART || fate == SWAP) {
		pass(fd, m, (struct part){ p.to, n });
		if (fate == SWAP)
			pass(fd, m, p);
		pass(fd, m, (struct part){ 0, p.from });
		return;
	}
	if (fate != LOSE && fate != HOLD)
		pass(fd, m, all);
	if (fate == REPEAT || fate == REPEAT_PART)
		pass(fd, m, fate == REPEAT ? all : p);
	if (net.held.n && net.held.sock == fd)
		release();
	else if (fate == HOLD && !net.held.n)
		hold(fd, m);
	else if (fate == HOLD)
		pass(fd, m, all);
}

int sendmmsg(int fd, struct mmsghdr *msg, unsigned int n, int flags)
{
	(void)flags;
	for (unsigned int i = 0; i < n; i++) {
		const struct msghdr *m = &msg[i].msg_hdr;
		const uint32_t dice = net.calm ? 0 : random_below(24);

		if (m->msg_iovlen > net.longest)
			net.longest = (uint32_t)m->msg_iovlen;
		suffer(fd, m, dice < FATES ? (enum fate)dice : PASS);
	}
	return (int)n;
}

/* --- fixture -------------------------------------------------------------- */

/* mtu: of both ends, 0: that of loopback. */
static void open_pair(struct pair *p, uint32_t seed, uint32_t mtu,
		      const char *address)
{
	char why[SRDMA_PORT_UDP_WHY_LEN];
	struct srdma_port *end[2];

	memset(&net, 0, sizeof(net));
	net.seed = seed;
	net.calm = 1;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(srdma_port_udp_create(&end[i], address, why),
				 0);
		srdma_port_udp_take_bare(end[i]);
		if (mtu)
			end[i]->mtu = mtu;
	}
	pair_defaults(p);
	pair_open_on(p, end[0], end[1]);
	pair_connect(p, 0);
}

static void fill(uint8_t *at, uint32_t len, uint32_t seed)
{
	for (uint32_t i = 0; i < len; i++)
		at[i] = (uint8_t)(seed * 31 + i + (i >> 8) * 7);
}

/* Waits for the completion of id, which must have succeeded. */
static void await(struct pair *p, int side, uint64_t id)
{
	struct srdma_record r;
	int waits = PATIENCE;

	while (!pair_record(p, side, &r) && waits--)
		pair_wait_ms(p, 1);
	assert_true(waits > 0);
	assert_int_equal(r.id, id);
	assert_int_equal(r.vendor_err, SRDMA_REASON_NONE);
}

static void transfer(struct pair *p, uint8_t opcode, struct part bytes,
		     uint64_t id)
{
	struct srdma_desc d = { .opcode = opcode, .id = id };

	d.length = bytes.to - bytes.from;
	d.local_addr = (uintptr_t)p->side[0].memory + bytes.from;
	d.remote_addr = (uintptr_t)p->side[1].memory + bytes.from;
	pair_post(p, 0, d, NULL);
}

/* WRITEs of one packet and more, then a READ of everything. */
static void write_and_read(struct pair *p, uint32_t seed)
{
	uint8_t *here = p->side[0].memory, *there = p->side[1].memory;
	const uint32_t end = BIG + SMALLS * SMALL;
	uint64_t id = 1;

	fill(here, end, seed);
	transfer(p, SRDMA_DESC_WRITE, (struct part){ 0, BIG }, id++);
	for (uint32_t at = BIG; at < end; at += SMALL)
		transfer(p, SRDMA_DESC_WRITE, (struct part){ at, at + SMALL },
			 id++);
	for (uint64_t i = 1; i < id; i++)
		await(p, 0, i);
	assert_memory_equal(here, there, end);
	fill(there, end, seed + 1);
	transfer(p, SRDMA_DESC_READ, (struct part){ 0, end }, id);
	await(p, 0, id);
	assert_memory_equal(here, there, end);
}

/* --- tests ---------------------------------------------------------------- */

static void travel(const char *address)
{
	struct pair p;

	open_pair(&p, 1, 0, address);
	write_and_read(&p, 5);
	assert_true(net.longest >= 65507 / SRDMA_UDP_LONGEST);
	for (int side = 0; side < 2; side++)
		assert_int_equal(
			srdma_relay_stats(p.side[side].relay)->packets_resent,
			0);
	pair_close(&p);
}

static void test_packets_travel_in_trains(void **state)
{
	travel(*state);
}

static void storms(const char *address)
{
	uint32_t sum[2][FATES] = { { 0 } };

	for (uint32_t seed = 1; seed <= STORMS; seed++) {
		struct pair p;

		open_pair(&p, seed, seed % 2 ? 1024 : 0, address);
		net.calm = 0;
		write_and_read(&p, seed);
		assert_int_equal(pair_state(&p, 0, 0, NULL), SRDMA_QP_RTS);
		assert_int_equal(pair_state(&p, 1, 0, NULL), SRDMA_QP_RTS);
		assert_true(net.longest > 1);
		for (int f = 0; f < FATES; f++) {
			sum[0][f] += net.fates[0][f];
			sum[1][f] += net.fates[1][f];
		}
		net.held.n = 0;
		pair_close(&p);
	}
	for (int f = 0; f < FATES; f++) {
		assert_true(sum[0][f] > 0);
		assert_true(sum[1][f] > 0);
	}
}

/* RFC 5042 A5.1.2 */
static void test_storms_of_trains_lose_no_data(void **state)
{
	storms(*state);
}

#define OVER(address, name)                                                    \
	cmocka_unit_test_prestate(name, (void *)(uintptr_t)(address))

int main(void)
{
	static const char four[] = "127.0.0.1:0", six[] = "[::1]:0";
	const struct CMUnitTest over4[] = {
		OVER(four, test_packets_travel_in_trains),
		OVER(four, test_storms_of_trains_lose_no_data),
	};
	const struct CMUnitTest over6[] = {
		OVER(six, test_packets_travel_in_trains),
		OVER(six, test_storms_of_trains_lose_no_data),
	};
	int failed = cmocka_run_group_tests(over4, NULL, NULL);

	if (world_has_ipv6())
		failed += cmocka_run_group_tests(over6, NULL, NULL);
	return failed;
}
