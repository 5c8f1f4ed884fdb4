/*
 * Bare datagrams over IPv4 (docs/protocol.md 11a): two workers that both take
 * them agree on it; with others, and where they do not arrive, every packet has
 * its ICRC.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "path/bare.h"
#include "path/path_impl.h"
#include "port/udp/port_udp_impl.h"
#include "support/inside.h"
#include "support/relay_pair.h"

enum { SIZE = 200000, PATIENCE = 20000, FLAGS_OF_ACK = 19, KIND_OF_ACK = 40 };

static struct pair p;

/* The packets that left each side. */
static struct {
	struct {
		uint32_t bare, sealed; /* packets that are not ACKNOWLEDGE */
		uint32_t questions, consents; /* ACKs with flags A and B; B */
	} side[2];
	int drops_bare; /* the network does: bit i, those of side i */
	int drops_acks_with_b;
	int drops_acks;	    /* bit i: those of side i */
	int keeps_consents; /* the last one of side 0, for later */
	struct {
		uint8_t data[SRDMA_UDP_LONGEST];
		struct sockaddr_in to;
		size_t len;
		int fd;
	} kept;
} net;

static int side_of(int fd)
{
	const struct srdma_udp_port *b = (const void *)p.side[1].wire;

	return b && b->sock == fd;
}

static int is_bare(const struct iovec *v)
{
	static const uint8_t none[SRDMA_ICRC_LEN];
	const uint8_t *data = v->iov_base;

	return !memcmp(data + v->iov_len - sizeof(none), none, sizeof(none));
}

/* Counts a datagram. Returns 1 if the network loses it. */
static int loses(int side, const struct iovec *v)
{
	const uint8_t *data = v->iov_base;
	const uint8_t flags = data[FLAGS_OF_ACK];
	const int bare = is_bare(v);

	if (data[0] != SRDMA_OP_ACKNOWLEDGE) {
		net.side[side].bare += (uint32_t)bare;
		net.side[side].sealed += (uint32_t)!bare;
		return bare && (net.drops_bare >> side & 1);
	}
	if (net.drops_acks >> side & 1)
		return 1;
	if (!(flags & SRDMA_STH_BARE)) {
		assert_false(bare);
		return 0;
	}
	assert_int_equal(bare, (flags & SRDMA_STH_ACK_NOW) != 0);
	assert_int_equal(data[KIND_OF_ACK], SRDMA_ACK_ACK);
	net.side[side].questions += (uint32_t)bare;
	net.side[side].consents += (uint32_t)!bare;
	return (bare && (net.drops_bare >> side & 1)) || net.drops_acks_with_b;
}

/* The network keeps a consent of side 0, which arrives by release(). */
static int keeps(int fd, const struct msghdr *m)
{
	const struct iovec *v = m->msg_iov;
	const uint8_t *data = v->iov_base;

	if (!net.keeps_consents || side_of(fd) ||
	    data[0] != SRDMA_OP_ACKNOWLEDGE || is_bare(v) ||
	    !(data[FLAGS_OF_ACK] & SRDMA_STH_BARE))
		return 0;
	memcpy(net.kept.data, data, v->iov_len);
	memcpy(&net.kept.to, m->msg_name, sizeof(net.kept.to));
	net.kept.len = v->iov_len;
	net.kept.fd = fd;
	return 1;
}

static void release(void)
{
	assert_int_equal(sendto(net.kept.fd, net.kept.data, net.kept.len, 0,
				(struct sockaddr *)&net.kept.to,
				sizeof(net.kept.to)),
			 net.kept.len);
}

int sendmmsg(int fd, struct mmsghdr *msg, unsigned int n, int flags)
{
	for (unsigned int i = 0; i < n; i++) {
		const struct msghdr *m = &msg[i].msg_hdr;
		int lost = keeps(fd, m);

		for (size_t k = 0; k < m->msg_iovlen; k++)
			lost |= loses(side_of(fd), &m->msg_iov[k]);
		if (!lost)
			assert_int_equal(
				syscall(SYS_sendmmsg, fd, &msg[i], 1, flags),
				1);
	}
	return (int)n;
}

/* --- fixture -------------------------------------------------------------- */

/* a, b: 1 if that side takes bare datagrams. */
static void open_pair(int a, int b, uint8_t level)
{
	const int takes[2] = { a, b };
	char why[SRDMA_PORT_UDP_WHY_LEN];
	struct srdma_port *end[2];

	memset(&net, 0, sizeof(net));
	memset(&p, 0, sizeof(p));
	for (int i = 0; i < 2; i++) {
		assert_int_equal(
			srdma_port_udp_create(&end[i], "127.0.0.1:0", why), 0);
		if (takes[i])
			srdma_port_udp_take_bare(end[i]);
	}
	pair_defaults(&p);
	p.window = 32;
	p.level = level;
	if (level != SRDMA_LEVEL_AEAD) {
		p.suite = 0x30; /* aes-128-gmac */
		p.tag_len = 16;
	}
	pair_open_on(&p, end[0], end[1]);
}

static void finish(uint64_t id)
{
	struct srdma_record r;
	int waits = PATIENCE;

	while (!pair_record(&p, 0, &r) && waits--)
		pair_wait_ms(&p, 1);
	assert_true(waits > 0);
	assert_int_equal(r.id, id);
	assert_int_equal(r.vendor_err, SRDMA_REASON_NONE);
}

static void transfer(uint8_t opcode, uint64_t id)
{
	struct srdma_desc d = { .opcode = opcode, .id = id, .length = SIZE };
	uint8_t *from = p.side[opcode == SRDMA_DESC_READ].memory;

	for (uint32_t i = 0; i < SIZE; i++)
		from[i] = (uint8_t)(id * 77 + i + (i >> 8));
	d.local_addr = (uintptr_t)p.side[0].memory;
	d.remote_addr = (uintptr_t)p.side[1].memory;
	pair_post(&p, 0, d, NULL);
	finish(id);
	assert_memory_equal(p.side[0].memory, p.side[1].memory, SIZE);
}

static void write_and_read(uint64_t id)
{
	transfer(SRDMA_DESC_WRITE, id);
	transfer(SRDMA_DESC_READ, id + 1);
}

static uint64_t dropped(int side)
{
	return srdma_port_udp_stats(p.side[side].wire)->counts.wire_icrc;
}

static struct srdma_qp_path *path_at(int side)
{
	return srdma_qp_path(
		srdma_relay_qp(p.side[side].relay, p.side[side].qp[0].qpn));
}

/* Both sides take bare datagrams, and have the other one's consent. */
static void open_agreed(void)
{
	open_pair(1, 1, SRDMA_LEVEL_AEAD);
	pair_connect(&p, 0);
	write_and_read(1);
	for (int side = 0; side < 2; side++)
		assert_int_equal(path_at(side)->consent, 1);
}

/* Both sides take bare datagrams, and no answer to a question arrives. */
static void open_without_consent(void)
{
	open_pair(1, 1, SRDMA_LEVEL_AEAD);
	net.drops_acks_with_b = 1;
	pair_connect(&p, 0);
}

/* --- tests ---------------------------------------------------------------- */

static void test_both_take_them(void **state)
{
	(void)state;
	open_agreed();
	memset(&net, 0, sizeof(net));
	write_and_read(3);
	for (int side = 0; side < 2; side++) {
		assert_true(net.side[side].bare > 0);
		assert_int_equal(net.side[side].sealed, 0);
		assert_int_equal(net.side[side].questions, 0);
		assert_int_equal(dropped(side), 0);
		assert_int_equal(pair_refused(&p, side, SRDMA_REFUSED_OPCODE),
				 0);
	}
	pair_close(&p);
}

/* Nothing changes for a worker that does not take them, but a few drops. */
static void test_one_takes_them(void **state)
{
	(void)state;
	for (int one = 0; one < 2; one++) {
		open_pair(one == 0, one == 1, SRDMA_LEVEL_AEAD);
		pair_connect(&p, 0);
		for (uint64_t id = 1; id < 20; id += 2)
			write_and_read(id);
		assert_int_equal(net.side[0].bare + net.side[1].bare, 0);
		assert_int_equal(net.side[!one].questions, 0);
		assert_true(net.side[one].questions > 0);
		assert_true(net.side[one].questions <= 16);
		assert_int_equal(net.side[0].consents + net.side[1].consents,
				 0);
		assert_int_equal(dropped(!one), net.side[one].questions);
		pair_close(&p);
	}
}

/* A tag of level header does not protect payload: the ICRC remains. */
static void test_level_header_keeps_its_icrc(void **state)
{
	(void)state;
	open_pair(1, 1, SRDMA_LEVEL_HEADER);
	pair_connect(&p, 0);
	write_and_read(1);
	for (int side = 0; side < 2; side++) {
		assert_int_equal(net.side[side].bare, 0);
		assert_true(net.side[side].sealed > 0);
		assert_int_equal(net.side[side].questions, 0);
	}
	pair_close(&p);
}

static void test_level_packet_has_none(void **state)
{
	(void)state;
	open_pair(1, 1, SRDMA_LEVEL_PACKET);
	pair_connect(&p, 0);
	write_and_read(1);
	assert_true(net.side[0].bare > 0 && net.side[1].bare > 0);
	pair_close(&p);
}

/* A device on the way drops bare datagrams: no question arrives. */
static void test_network_without_bare_datagrams(void **state)
{
	(void)state;
	open_pair(1, 1, SRDMA_LEVEL_AEAD);
	net.drops_bare = 3;
	pair_connect(&p, 0);
	for (uint64_t id = 1; id < 20; id += 2)
		write_and_read(id);
	for (int side = 0; side < 2; side++) {
		assert_int_equal(net.side[side].bare, 0);
		assert_true(net.side[side].questions > 0);
		assert_int_equal(net.side[side].consents, 0);
	}
	pair_close(&p);
}

/* Bare datagrams pass in one direction: only these are used. */
static void test_direction_without_bare_datagrams(void **state)
{
	(void)state;
	for (int mute = 0; mute < 2; mute++) {
		open_pair(1, 1, SRDMA_LEVEL_AEAD);
		net.drops_bare = 1 << mute;
		pair_connect(&p, 0);
		for (uint64_t id = 1; id < 20; id += 2)
			write_and_read(id);
		assert_int_equal(net.side[mute].bare, 0);
		assert_true(net.side[!mute].bare > 0);
		assert_int_equal(path_at(mute)->consent, 0);
		assert_int_equal(path_at(!mute)->consent, 1);
		pair_close(&p);
	}
}

/* Questions and consents are lost at first: later ones make up for them. */
static void test_lost_consent_comes_later(void **state)
{
	(void)state;
	open_without_consent();
	write_and_read(1);
	assert_int_equal(net.side[0].bare + net.side[1].bare, 0);
	net.drops_acks_with_b = 0;
	for (uint64_t id = 3; id < 40; id += 2)
		write_and_read(id);
	assert_true(net.side[0].bare > 0);
	assert_int_equal(path_at(0)->consent, 1);
	pair_close(&p);
}

/*
 * The network begins to drop bare datagrams. After two time-outs the packets of
 * requests have their ICRC again, and arrive.
 */
static void test_consent_ends_by_timeouts(void **state)
{
	(void)state;
	open_agreed();
	net.drops_bare = 3;
	transfer(SRDMA_DESC_WRITE, 3);
	assert_int_equal(path_at(0)->consent, 0);
	assert_true(srdma_relay_stats(p.side[0].relay)->timeouts >= 2);
	memset(&net.side, 0, sizeof(net.side));
	transfer(SRDMA_DESC_WRITE, 4);
	assert_int_equal(net.side[0].bare, 0);
	assert_true(net.side[0].sealed > 0);
	pair_close(&p);
}

/* A target of READs has no timer: it ends the consent when the same READs are asked
 * for again and again. */
static void test_consent_ends_by_repeated_reads(void **state)
{
	(void)state;
	open_agreed();
	net.drops_bare = 3;
	transfer(SRDMA_DESC_READ, 3);
	assert_int_equal(path_at(1)->consent, 0);
	pair_close(&p);
}

/* Another path may have a device that drops them. */
static void test_consent_ends_with_the_path(void **state)
{
	struct srdma_qp_path *x;

	(void)state;
	open_agreed();
	x = path_at(1);
	srdma_path_move(x, x->conn);
	assert_int_equal(x->consent, 0);
	pair_close(&p);
}

static void test_question_is_no_consent(void **state)
{
	struct srdma_packet ack = { .opcode = SRDMA_OP_ACKNOWLEDGE,
				    .flags = SRDMA_STH_BARE |
					     SRDMA_STH_ACK_NOW };
	struct srdma_qp_path *x;

	(void)state;
	open_without_consent();
	x = path_at(0);
	assert_true(x->question_pn > 0);
	ack.ack.highest_pn = (uint32_t)x->question_pn;
	srdma_bare_note(x, &ack);
	assert_int_equal(x->asked, 1);
	assert_int_equal(x->consent, 0);
	ack.flags = SRDMA_STH_BARE;
	srdma_bare_note(x, &ack);
	assert_int_equal(x->consent, 1);
	pair_close(&p);
}

/* The question of a target whose peer sends nothing more. Its responses leave after
 * the control packets of a run. */
static void test_question_behind_a_response_leaves_at_once(void **state)
{
	enum { LENGTH = 32, TOLD = 1 << 20 };
	struct srdma_qp_path *x;

	(void)state;
	open_without_consent();
	x = path_at(1);
	memset(&net.side, 0, sizeof(net.side));
	net.drops_acks = 1;
	x->told = TOLD - 2; /* the ack of the request leaves first */
	x->asking = 0;
	pair_post(&p, 0,
		  (struct srdma_desc){
			  .opcode = SRDMA_DESC_READ,
			  .id = 1,
			  .length = LENGTH,
			  .local_addr = (uintptr_t)p.side[0].memory,
			  .remote_addr = (uintptr_t)p.side[1].memory },
		  NULL);
	pair_settle(&p);
	assert_int_equal(net.side[1].sealed, 1);
	assert_int_equal(x->told, TOLD + 1);
	assert_int_equal(net.side[1].questions, 1);
	pair_close(&p);
}

/* The limit of 7.3 does not count ACKs with flag B: none leaves before. */
static void test_unvalidated_path_gets_none(void **state)
{
	const struct srdma_packet ack = { .opcode = SRDMA_OP_ACKNOWLEDGE,
					  .ack = { .kind = SRDMA_ACK_ACK } };
	struct srdma_qp_path *x;

	(void)state;
	open_without_consent();
	x = path_at(0);
	for (int asked = 0; asked < 2; asked++) {
		x->asked = (uint8_t)asked;
		x->asking = 1;
		x->current.valid = 0;
		assert_int_equal(srdma_bare_next(x, &ack), 0);
		x->current.valid = 1;
		assert_int_not_equal(srdma_bare_next(x, &ack), 0);
	}
	pair_close(&p);
}

/* It answers a question on the former path, and tells nothing about this one. */
static void test_consent_that_is_late_is_none(void **state)
{
	struct srdma_qp_path *x;
	uint64_t verified;

	(void)state;
	open_pair(1, 1, SRDMA_LEVEL_AEAD);
	net.keeps_consents = 1;
	pair_connect(&p, 0);
	transfer(SRDMA_DESC_READ, 1);
	x = path_at(1);
	assert_true(net.kept.len > 0);
	assert_int_equal(x->consent, 0);
	srdma_path_move(x, x->conn);
	verified = srdma_relay_stats(p.side[1].relay)->packets_verified;
	release();
	pair_settle(&p);
	assert_true(srdma_relay_stats(p.side[1].relay)->packets_verified >
		    verified);
	assert_int_equal(x->consent, 0);
	pair_close(&p);
}

/* Flag A, which 5.1 demands, makes a question of a consent: another one follows. */
static void test_consent_with_flag_a_is_repeated(void **state)
{
	enum { LEAD = 1 << 20 };
	struct srdma_qp_path *x;

	(void)state;
	open_agreed();
	x = path_at(1);
	memset(&net, 0, sizeof(net));
	x->acked_pn -= LEAD;
	x->asked = 1;
	srdma_qp_schedule(x->qp, SRDMA_SAY_ACK);
	srdma_qp_activate(x->qp);
	pair_settle(&p);
	assert_int_equal(net.side[1].questions, 1);
	srdma_qp_schedule(x->qp, SRDMA_SAY_ACK);
	srdma_qp_activate(x->qp);
	pair_settle(&p);
	assert_int_equal(net.side[1].questions, 1);
	assert_int_equal(net.side[1].consents, 1);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_both_take_them),
		cmocka_unit_test(test_one_takes_them),
		cmocka_unit_test(test_level_header_keeps_its_icrc),
		cmocka_unit_test(test_level_packet_has_none),
		cmocka_unit_test(test_network_without_bare_datagrams),
		cmocka_unit_test(test_direction_without_bare_datagrams),
		cmocka_unit_test(test_lost_consent_comes_later),
		cmocka_unit_test(test_consent_ends_by_timeouts),
		cmocka_unit_test(test_consent_ends_by_repeated_reads),
		cmocka_unit_test(test_consent_ends_with_the_path),
		cmocka_unit_test(test_question_is_no_consent),
		cmocka_unit_test(
			test_question_behind_a_response_leaves_at_once),
		cmocka_unit_test(test_unvalidated_path_gets_none),
		cmocka_unit_test(test_consent_that_is_late_is_none),
		cmocka_unit_test(test_consent_with_flag_a_is_repeated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
