/*
 * Relays over the UDP wire: data, ownership of wire connections, and datagrams
 * of third parties.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "relay/leg.h"
#include "port/udp/port_udp.h"
#include "support/inside.h"
#include "support/relay_pair.h"
#include "support/stranger.h"

enum { SIZE = 300000, KEPT = 64 };

/* Path MTU: longer datagrams fail with EMSGSIZE. 0: no limit. */
static uint32_t path_mtu;

#define MS UINT64_C(1000000)

/* The datagrams sent most recently, for replay from other addresses. */
static struct {
	uint32_t count, longest;
	uint32_t len[KEPT];
	uint8_t data[KEPT][SRDMA_MAX_PACKET + SRDMA_ICRC_LEN];
} tap;

static int fits(const struct mmsghdr *msg)
{
	return !path_mtu || msg->msg_hdr.msg_iov->iov_len <= path_mtu;
}

int sendmmsg(int fd, struct mmsghdr *msg, unsigned int n, int flags)
{
	unsigned int fit = 0;

	while (fit < n && fits(&msg[fit]))
		fit++;
	if (n && !fit) {
		errno = EMSGSIZE;
		return -1;
	}
	n = fit;
	for (unsigned int i = 0; i < n; i++) {
		const struct iovec *v = msg[i].msg_hdr.msg_iov;
		uint32_t at = tap.count++ % KEPT;

		tap.len[at] = (uint32_t)v->iov_len;
		memcpy(tap.data[at], v->iov_base, v->iov_len);
		if (v->iov_len > tap.longest)
			tap.longest = (uint32_t)v->iov_len;
	}
	return (int)syscall(SYS_sendmmsg, fd, msg, n, flags);
}

static struct srdma_port *create(const char *address)
{
	char why[SRDMA_PORT_UDP_WHY_LEN];
	struct srdma_port *port;

	assert_int_equal(srdma_port_udp_create(&port, address, why), 0);
	return port;
}

/* Opens both ends with this wire MTU; 0: that of the loopback interface. */
static void open_pair(struct pair *p, uint32_t mtu)
{
	struct srdma_port *a = create("127.0.0.1:0");
	struct srdma_port *b = create("127.0.0.1:0");

	memset(&tap, 0, sizeof(tap));
	if (mtu)
		a->mtu = mtu; /* MTU of one interface limits both directions */
	pair_defaults(p);
	p->window = 32; /* so that no socket buffer overflows */
	pair_open_on(p, a, b);
}

static struct srdma_qp *qp_at(struct pair *p, int side, int i)
{
	return srdma_relay_qp(p->side[side].relay, p->side[side].qp[i].qpn);
}

static void fill(uint8_t *at, uint32_t seed)
{
	for (uint32_t i = 0; i < SIZE; i++) {
		seed = seed * 1103515245 + 12345;
		at[i] = (uint8_t)(seed >> 16);
	}
}

static void request(struct pair *p, int side, uint8_t opcode, uint64_t id)
{
	struct srdma_desc d = { .opcode = opcode, .id = id, .length = SIZE };

	d.local_addr = (uintptr_t)p->side[side].memory;
	d.remote_addr = (uintptr_t)p->side[!side].memory + SIZE;
	pair_post(p, side, d, NULL);
}

/* A WRITE and a READ of QP 0 transfer the correct bytes. */
static void write_and_read(struct pair *p, int side, uint32_t seed)
{
	uint8_t *mine = p->side[side].memory;
	const uint8_t *theirs = p->side[!side].memory + SIZE;

	fill(mine, seed);
	request(p, side, SRDMA_DESC_WRITE, seed);
	pair_settle(p);
	pair_expect(p, side, seed, SRDMA_REASON_NONE);
	assert_memory_equal(mine, theirs, SIZE);
	memset(mine, 0, SIZE);
	request(p, side, SRDMA_DESC_READ, seed + 1);
	pair_settle(p);
	pair_expect(p, side, seed + 1, SRDMA_REASON_NONE);
	assert_memory_equal(mine, theirs, SIZE);
}

static void test_write_and_read_in_both_directions(void **state)
{
	struct pair p;

	(void)state;
	open_pair(&p, 0);
	pair_connect(&p, 0);
	write_and_read(&p, 0, 1);
	write_and_read(&p, 1, 7);
	assert_true(tap.longest > 4096);
	pair_close(&p);
}

/* The smaller interface MTU limits both directions. */
static void test_interface_mtu_limits_packets(void **state)
{
	struct pair p;

	(void)state;
	open_pair(&p, 1024);
	pair_connect(&p, 0);
	assert_int_equal(p.side[0].qp[0].mtu, 1024);
	assert_int_equal(p.side[1].qp[0].mtu, 4096);
	write_and_read(&p, 0, 3);
	write_and_read(&p, 1, 9);
	assert_true(tap.longest > 1024 && tap.longest <= 1024 + 180 - 28);
	pair_close(&p);
}

static uint64_t refused(struct pair *p, int side)
{
	return srdma_port_udp_stats(p->side[side].wire)->counts.wire_too_long;
}

/*
 * The path MTU falls below the packet size of the QP, for a WRITE or for the
 * responses of a READ. Small packets still pass, so that the path stays alive.
 * The request fails at its deadline. Until then the packets of the WRITE, or
 * the responses to the read chunk (64 KiB), are sent again at intervals that
 * double.
 */
static void test_too_small_path_mtu_ends_at_deadline(void **state)
{
	static const uint8_t ops[] = { SRDMA_DESC_WRITE, SRDMA_DESC_READ };

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct srdma_record r;
		struct pair p;
		uint64_t posted, lost;

		open_pair(&p, 0);
		p.timeout_ms = 500;
		pair_connect(&p, 0);
		write_and_read(&p, 0, 3);
		path_mtu = 1000;
		posted = p.now;
		request(&p, 0, ops[i], 77);
		while (!pair_record(&p, 0, &r) && p.now < posted + 1000 * MS)
			pair_wait_ms(&p, 1);
		assert_int_equal(r.id, 77);
		assert_int_equal(r.vendor_err, SRDMA_REASON_DEADLINE);
		lost = refused(&p, 0) + refused(&p, 1);
		print_message("%s: %llu datagrams did not fit\n",
			      i ? "READ" : "WRITE", (unsigned long long)lost);
		assert_true(lost > 0 && lost <= 16 * 16);
		path_mtu = 0;
		pair_close(&p);
	}
}

/* --- wire connections ----------------------------------------------------- */

static uint32_t links(const struct srdma_relay *r)
{
	uint32_t n = 0;

	for (const struct srdma_path *l = r->env.paths->paths; l; l = l->next)
		n++;
	return n;
}

static void destroy(struct pair *p, int side, int i)
{
	while (srdma_relay_qp_destroy(p->side[side].relay, p->side[side].leg,
				      p->side[side].qp[i].qpn))
		pair_wait_ms(p, 1);
}

/*
 * Two QPs, one connected by each end, use the same two addresses. Neither
 * depends on the connection of the other.
 */
static void test_qps_connected_by_each_end(void **state)
{
	struct srdma_qp_keys k;
	struct pair p;

	(void)state;
	open_pair(&p, 0);
	pair_connect(&p, 1);
	pair_init_qp(&p, 0);
	for (int side = 0; side < 2; side++) {
		pair_keys(&p, side, 0, &k);
		k.role = (uint8_t)!side;
		assert_int_equal(srdma_relay_qp_keys(p.side[side].relay,
						     p.side[side].leg, &k),
				 0);
	}
	pair_settle(&p);
	assert_int_equal(pair_state(&p, 0, 0, NULL), SRDMA_QP_RTS);
	destroy(&p, 0, 1);
	pair_settle(&p);
	destroy(&p, 1, 1);
	while (p.side[1].consumed < 1) { /* the event of QP 1 */
		struct srdma_record r;

		assert_int_equal(pair_record(&p, 1, &r), 1);
	}
	write_and_read(&p, 0, 5);
	write_and_read(&p, 1, 5);
	destroy(&p, 0, 0);
	destroy(&p, 1, 0);
	pair_wait_ms(&p, 10001);
	assert_int_equal(links(p.side[0].relay), 0);
	assert_int_equal(links(p.side[1].relay), 0);
	pair_close(&p);
}

/*
 * Over UDP, responses do not arrive on the connection that this end made. That
 * connection still counts as alive, and is not made again.
 */
static void test_responses_on_other_connection_cause_no_reconnect(void **state)
{
	struct pair p;

	(void)state;
	open_pair(&p, 0);
	pair_connect(&p, 0);
	for (uint32_t i = 0; i < 6; i++) {
		write_and_read(&p, 0, 10 * i);
		pair_wait_ms(&p, 1000);
	}
	for (int side = 0; side < 2; side++) {
		const struct srdma_stats *stats =
			srdma_relay_stats(p.side[side].relay);

		assert_int_equal(stats->wires_lost, 0);
		assert_int_equal(stats->wires_dialed, 0);
	}
	pair_close(&p);
}

/* --- third parties -------------------------------------------------------- */

/*
 * Replays all packets from other addresses with a valid ICRC. Nothing is
 * executed, no connection is kept, and the QP stays on its path.
 */
/* RFC 5042 A5.1.2 */
static void test_replay_from_other_addresses_is_ignored(void **state)
{
	struct srdma_conn *wire;
	struct stranger s;
	uint64_t verified;
	struct pair p;

	(void)state;
	open_pair(&p, 0);
	pair_connect(&p, 0);
	write_and_read(&p, 0, 1);
	wire = srdma_path_conn(qp_at(&p, 1, 0));
	verified = srdma_relay_stats(p.side[1].relay)->packets_verified;
	for (uint32_t i = 0; i < KEPT; i++) {
		s = new_stranger(p.side[1].wire);
		say(&s, tap.data[i], tap.len[i] - SRDMA_ICRC_LEN);
		close(s.sock);
		pair_run(&p, 2);
	}
	assert_int_equal(srdma_relay_stats(p.side[1].relay)->packets_verified,
			 verified);
	assert_int_equal(pair_refused(&p, 1, SRDMA_REFUSED_REPLAY) +
				 pair_refused(&p, 1, SRDMA_REFUSED_UNKNOWN_QP),
			 KEPT);
	assert_ptr_equal(srdma_path_conn(qp_at(&p, 1, 0)), wire);
	assert_int_equal(links(p.side[1].relay), 1);
	write_and_read(&p, 0, 21);
	pair_close(&p);
}

/* RFC 5042 A5.1.1a; review A24, A45 */
static void test_forged_packets_are_ignored(void **state)
{
	uint8_t packet[128 + SRDMA_ICRC_LEN];
	struct stranger s;
	struct pair p;

	(void)state;
	open_pair(&p, 0);
	pair_connect(&p, 0);
	s = new_stranger(p.side[1].wire);
	for (uint32_t i = 0; i < 2000; i++) {
		memset(packet, 0, sizeof(packet));
		packet[0] = SRDMA_OP_SEND_ONLY;
		srdma_store16(packet + 2, 0xffff);
		srdma_store24(packet + 5, p.side[1].qp[0].qpn);
		packet[8] = 0x20;
		srdma_store24(packet + 9, (uint32_t)p.side[0].qp[0].pn + i / 4);
		say(&s, packet, 128);
		pair_run(&p, 1);
	}
	assert_int_equal(links(p.side[1].relay), 1);
	assert_true(pair_refused(&p, 1, SRDMA_REFUSED_TAG) > 1500);
	write_and_read(&p, 0, 11);
	close(s.sock);
	pair_close(&p);
}

static struct srdma_packet ping = {
	.opcode = SRDMA_OP_ACKNOWLEDGE,
	.ack = { .kind = SRDMA_ACK_PING },
};

/*
 * An attacker delays a packet and sends it from another address, after newer
 * ones: it is verified, but the QP stays on its path.
 */
static void test_overtaken_packet_moves_no_path(void **state)
{
	uint8_t packet[SRDMA_MAX_PACKET + SRDMA_ICRC_LEN];
	struct srdma_conn *wire;
	struct stranger s;
	uint64_t verified;
	struct pair p;
	int len;

	(void)state;
	open_pair(&p, 0);
	pair_connect(&p, 0);
	len = srdma_session_seal(srdma_qp_session(qp_at(&p, 0, 0)), &ping, NULL,
				 packet, sizeof(packet));
	assert_true(len > 0);
	write_and_read(&p, 0, 1);
	wire = srdma_path_conn(qp_at(&p, 1, 0));
	verified = srdma_relay_stats(p.side[1].relay)->packets_verified;
	s = new_stranger(p.side[1].wire);
	say(&s, packet, (uint32_t)len);
	pair_run(&p, 2);
	close(s.sock);
	assert_int_equal(srdma_relay_stats(p.side[1].relay)->packets_verified,
			 verified + 1);
	assert_ptr_equal(srdma_path_conn(qp_at(&p, 1, 0)), wire);
	assert_int_equal(links(p.side[1].relay), 1);
	write_and_read(&p, 0, 21);
	pair_close(&p);
}

/*
 * Newest packets from ever new addresses, while the peer's address answers: the QP
 * stays there, and few connections are kept, for a while.
 */
static void test_many_candidates_are_forgotten(void **state)
{
	uint8_t packet[SRDMA_MAX_PACKET + SRDMA_ICRC_LEN];
	struct srdma_session *session;
	struct srdma_conn *wire;
	struct stranger s;
	struct pair p;
	int len;

	(void)state;
	open_pair(&p, 0);
	pair_connect(&p, 0);
	wire = srdma_path_conn(qp_at(&p, 1, 0));
	session = srdma_qp_session(qp_at(&p, 0, 0));
	for (int i = 0; i < 2 * SRDMA_MAX_UNBOUND; i++) {
		s = new_stranger(p.side[1].wire);
		len = srdma_session_seal(session, &ping, NULL, packet,
					 sizeof(packet));
		assert_true(len > 0);
		say(&s, packet, (uint32_t)len);
		pair_wait_ms(&p, 10);
		assert_true(recv(s.sock, packet, sizeof(packet), MSG_DONTWAIT) >
			    SRDMA_BTH_LEN); /* a challenge */
		close(s.sock);
		assert_ptr_equal(srdma_path_conn(qp_at(&p, 1, 0)), wire);
		assert_true(links(p.side[1].relay) <= SRDMA_MAX_UNBOUND + 2);
	}
	assert_int_equal(
		srdma_relay_stats(p.side[1].relay)->path_changes_refused,
		2 * SRDMA_MAX_UNBOUND);
	write_and_read(&p, 0, 2);
	pair_wait_ms(&p, 10001);
	assert_int_equal(links(p.side[1].relay), 1);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write_and_read_in_both_directions),
		cmocka_unit_test(test_interface_mtu_limits_packets),
		cmocka_unit_test(test_too_small_path_mtu_ends_at_deadline),
		cmocka_unit_test(test_qps_connected_by_each_end),
		cmocka_unit_test(
			test_responses_on_other_connection_cause_no_reconnect),
		cmocka_unit_test(test_replay_from_other_addresses_is_ignored),
		cmocka_unit_test(test_forged_packets_are_ignored),
		cmocka_unit_test(test_overtaken_packet_moves_no_path),
		cmocka_unit_test(test_many_candidates_are_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
