/*
 * Validation of UDP paths (docs/protocol.md 7.3): reflection to a victim, an
 * attacker that races each packet, changes of address, limits. Side 1 is the
 * worker under test.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>

#include <cmocka.h>

#include "path/probe.h"
#include "port/udp/port_udp_impl.h"
#include "relay/leg.h"
#include "support/inside.h"
#include "support/relay_pair.h"
#include "support/stranger.h"

enum { SIZE = 100000, ROOM = SRDMA_MAX_PACKET + SRDMA_ICRC_LEN };

static struct {
	struct stranger *racer; /* sends each datagram of side 0 before it does;
				   NULL: none */
	int mute;		/* side whose datagrams are lost, or -1 */
	int lost_pings;		/* PINGs of side 1 to lose */
	uint16_t port[2];	/* of the two workers */
	uint64_t raced, sent[2]; /* datagrams */
	uint64_t opens;		 /* bytes that side 0 sent */
} net;

static uint16_t port_of(const struct srdma_port *port)
{
	struct sockaddr_storage a;

	assert_int_equal(
		srdma_addr_parse(&a, port->address, SRDMA_ADDR_NO_PORT), 0);
	return srdma_addr_port((struct sockaddr *)&a);
}

/* The side whose socket it is. */
static int side_of(int fd)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);

	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	return srdma_addr_port((struct sockaddr *)&a) == net.port[1];
}

/* 1: a PING under a suite with tags of 16 bytes. */
static int is_ping(const struct msghdr *m)
{
	const uint8_t *data = m->msg_iov->iov_base;
	const uint32_t body =
		SRDMA_BTH_LEN + SRDMA_AETH_LEN + SRDMA_STH_LEN + 16;

	return data[0] == SRDMA_OP_ACKNOWLEDGE && data[body] == SRDMA_ACK_PING;
}

static int is_lost(const struct msghdr *m, int side)
{
	if (side == 1 && net.lost_pings && is_ping(m)) {
		net.lost_pings--;
		return 1;
	}
	return side == net.mute;
}

/* The network between the two workers. */
int sendmmsg(int fd, struct mmsghdr *msg, unsigned int n, int flags)
{
	const int side = side_of(fd);

	for (unsigned int i = 0; i < n; i++) {
		const struct iovec *v = msg[i].msg_hdr.msg_iov;
		uint8_t copy[ROOM];

		net.sent[side]++;
		if (!side)
			net.opens += v->iov_len;
		if (is_lost(&msg[i].msg_hdr, side))
			continue;
		if (!side && net.racer) {
			memcpy(copy, v->iov_base, v->iov_len);
			say(net.racer, copy,
			    (uint32_t)v->iov_len - SRDMA_ICRC_LEN);
			net.raced++;
		}
		assert_int_equal(syscall(SYS_sendmmsg, fd, &msg[i], 1, flags),
				 1);
	}
	return (int)n;
}

static struct srdma_port *create(const char *address)
{
	char why[SRDMA_PORT_UDP_WHY_LEN];
	struct srdma_port *port;

	assert_int_equal(srdma_port_udp_create(&port, address, why), 0);
	return port;
}

static void open_pair(struct pair *p)
{
	struct srdma_port *a = create("127.0.0.1:0");
	struct srdma_port *b = create("127.0.0.1:0");

	memset(&net, 0, sizeof(net));
	net.mute = -1;
	net.port[0] = port_of(a);
	net.port[1] = port_of(b);
	pair_defaults(p);
	p->window = 32; /* so that no socket buffer overflows */
	p->ring = 4096;
	pair_open_on(p, a, b);
}

static struct srdma_qp *qp_at(struct pair *p, int side, int i)
{
	return srdma_relay_qp(p->side[side].relay, p->side[side].qp[i].qpn);
}

static struct srdma_session *session_at(struct pair *p, int side, int i)
{
	return srdma_qp_session(qp_at(p, side, i));
}

static const struct srdma_stats *stats_of(struct pair *p, int side)
{
	return srdma_relay_stats(p->side[side].relay);
}

static void request(struct pair *p, int side, uint8_t opcode, uint64_t id)
{
	struct srdma_desc d = { .opcode = opcode, .id = id, .length = SIZE };

	d.local_addr = (uintptr_t)p->side[side].memory;
	d.remote_addr = (uintptr_t)p->side[!side].memory + SIZE;
	pair_post(p, side, d, NULL);
}

/* The next record of the side, at most ms later. */
static void expect_within(struct pair *p, int side, uint64_t id, int ms)
{
	struct srdma_record r = { 0 };

	for (int i = 0; i < 100 * ms && !pair_record(p, side, &r); i++)
		pair_run(p, 10);
	assert_int_equal(r.id, id);
	assert_int_equal(r.vendor_err, SRDMA_REASON_NONE);
}

/* A WRITE and a READ of that side complete. */
static void work(struct pair *p, int side, uint64_t id)
{
	request(p, side, SRDMA_DESC_WRITE, id);
	expect_within(p, side, id, 500);
	request(p, side, SRDMA_DESC_READ, id + 1);
	expect_within(p, side, id + 1, 500);
}

/* --- a peer in the hands of the test ------------------------------------------ */

/* Gives QP i of both sides its keys; side 0 sends nothing by itself. home: the
 * address that it names; NULL: its own. */
static void half_connect(struct pair *p, int i, const struct stranger *home)
{
	struct srdma_qp_keys k;

	net.mute = 0;
	pair_init_qp(p, i);
	for (int side = 1; side >= 0; side--) {
		pair_keys(p, side, i, &k);
		if (side && home)
			srdma_addr_format(k.peer_wire,
					  (const struct sockaddr *)&home->at);
		assert_int_equal(srdma_relay_qp_keys(p->side[side].relay,
						     p->side[side].leg, &k),
				 0);
	}
}

/* Only side 1 runs. */
static void run_server(struct pair *p, int turns)
{
	while (turns--) {
		p->now += 1000;
		srdma_relay_run(p->side[1].relay, p->now, 64);
	}
}

/* Seals a packet of side 0's QP i and sends it from the third party's address.
 */
static void say_as_peer(struct pair *p, int i, struct stranger *s,
			struct srdma_packet packet)
{
	uint8_t out[ROOM];
	int len = srdma_session_seal(session_at(p, 0, i), &packet, NULL, out,
				     sizeof(out));

	assert_true(len > 0);
	say(s, out, (uint32_t)len);
}

static void control(struct pair *p, int i, struct stranger *s, uint8_t kind,
		    uint32_t path)
{
	const struct srdma_session *session = session_at(p, 0, i);
	const struct srdma_packet packet = {
		.opcode = SRDMA_OP_ACKNOWLEDGE,
		.flags = SRDMA_STH_ACK_NOW,
		.ack = { .kind = kind,
			 .path = path,
			 .highest_pn =
				 (uint32_t)srdma_session_highest(session) },
	};

	say_as_peer(p, i, s, packet);
}

/* A READ_REQUEST of side 0's QP i for a chunk of the other side's memory. */
static void ask_to_read(struct pair *p, int i, struct stranger *s, uint64_t id)
{
	const struct srdma_packet packet = {
		.opcode = SRDMA_OP_READ_REQUEST,
		.request_id = id,
		.va = (uintptr_t)p->side[1].memory,
		.rkey = p->side[1].key,
		.dma_len = 65536,
	};

	say_as_peer(p, i, s, packet);
}

/* Opens what arrived at the third party. Returns the token of the last PING; 0: none
 * came. */
static uint32_t take_all(struct pair *p, int i, struct stranger *s)
{
	uint8_t in[ROOM], plain[SRDMA_MAX_PACKET];
	uint32_t len, token = 0;

	while ((len = listen_at(s, in, sizeof(in)))) {
		struct srdma_packet packet;

		assert_int_equal(srdma_session_open(session_at(p, 0, i),
						    &packet, in, len, plain),
				 0);
		if (packet.opcode == SRDMA_OP_ACKNOWLEDGE &&
		    packet.ack.kind == SRDMA_ACK_PING)
			token = packet.ack.path & SRDMA_PATH_TOKEN;
	}
	return token;
}

/* --- reflection ------------------------------------------------------------------ */

/*
 * A peer sends a first packet and READ_REQUESTs from the address of a victim. The
 * victim gets at most three times their bytes, and no response, whatever number
 * the peer's acks name, and also when several QPs do the same.
 */
static void
test_victim_of_first_packets_gets_three_times_their_bytes(void **state)
{
	enum { QPS = 3, REQUESTS = 60 };
	struct stranger victim;
	struct pair p;

	(void)state;
	open_pair(&p);
	victim = new_stranger_at(p.side[1].wire, "127.0.0.2");
	for (int i = 0; i < QPS; i++)
		half_connect(&p, i, NULL);
	for (int n = 0; n < REQUESTS; n++) {
		for (int i = 0; i < QPS; i++) {
			if (!n)
				control(&p, i, &victim, SRDMA_ACK_OPEN, 1);
			ask_to_read(&p, i, &victim, (uint64_t)n);
			control(&p, i, &victim, SRDMA_ACK_ACK, 77);
		}
		run_server(&p, 20);
	}
	p.now += 20 * UINT64_C(1000000);
	run_server(&p, 2000);
	while (listen_at(&victim, (uint8_t[ROOM]){ 0 }, ROOM))
		;
	print_message("victim: %llu bytes for %llu\n",
		      (unsigned long long)victim.received,
		      (unsigned long long)victim.sent);
	assert_true(victim.received > 0);
	assert_true(victim.received <= 3 * victim.sent);
	assert_int_equal(stats_of(&p, 1)->dma_read_bytes, 0);
	for (int i = 0; i < QPS; i++)
		assert_false(srdma_connect_validated(qp_at(&p, 1, i)));
	pair_close(&p);
	close(victim.sock);
}

/* The limit: with one packet paid, later PINGs are held; they leave when the peer
 * sends again. The QP neither fails nor runs while it waits. */
static void test_limit_holds_and_bytes_lift_it(void **state)
{
	struct stranger peer;
	uint64_t held, looks, before;
	struct pair p;

	(void)state;
	open_pair(&p);
	half_connect(&p, 0, NULL);
	peer = new_stranger(p.side[1].wire);
	control(&p, 0, &peer, SRDMA_ACK_OPEN, 9);
	for (int i = 0; i < 5000; i++) {
		p.now += 1000000;
		run_server(&p, 1);
	}
	take_all(&p, 0, &peer);
	held = stats_of(&p, 1)->path_packets_held;
	assert_true(held > 0);
	/* The rest went to the home. */
	assert_int_equal(peer.received, 2 * peer.sent);
	assert_int_equal(srdma_qp_state(qp_at(&p, 1, 0)), SRDMA_QP_RTS);
	assert_ptr_equal(p.side[1].relay->env.active_head, NULL);
	looks = stats_of(&p, 1)->timer_looks;
	run_server(&p, 1000);
	assert_true(stats_of(&p, 1)->timer_looks - looks < 10);
	before = peer.received;
	control(&p, 0, &peer, SRDMA_ACK_OPEN, 9);
	run_server(&p, 5);
	assert_int_not_equal(take_all(&p, 0, &peer), 0);
	assert_true(peer.received > before);
	pair_close(&p);
	close(peer.sock);
}

/* The answer to the challenge lifts the limit: responses leave. A wrong token, the
 * token 0, and a correct one in a PING do not. */
static void test_answer_lifts_the_limit(void **state)
{
	struct stranger peer;
	uint32_t token;
	struct pair p;

	(void)state;
	open_pair(&p);
	half_connect(&p, 0, NULL);
	peer = new_stranger(p.side[1].wire);
	control(&p, 0, &peer, SRDMA_ACK_OPEN, 9);
	run_server(&p, 5);
	token = take_all(&p, 0, &peer);
	assert_int_not_equal(token, 0);
	ask_to_read(&p, 0, &peer, 0);
	control(&p, 0, &peer, SRDMA_ACK_ACK, token ^ 1);
	control(&p, 0, &peer, SRDMA_ACK_ACK, 0);
	control(&p, 0, &peer, SRDMA_ACK_PING, token);
	run_server(&p, 20);
	take_all(&p, 0, &peer);
	assert_int_equal(stats_of(&p, 1)->dma_read_bytes, 0);
	control(&p, 0, &peer, SRDMA_ACK_ACK, token);
	run_server(&p, 100);
	assert_int_equal(stats_of(&p, 1)->dma_read_bytes, 65536);
	take_all(&p, 0, &peer);
	assert_true(peer.received > 65536);
	pair_close(&p);
	close(peer.sock);
}

/*
 * A connected peer sends READ_REQUESTs from a victim's address: the responses go
 * to the peer's own address. The victim gets PINGs, at most three times what came
 * from there.
 */
static void
test_victim_of_later_packets_gets_three_times_their_bytes(void **state)
{
	struct stranger victim;
	struct pair p;

	(void)state;
	open_pair(&p);
	pair_connect(&p, 0);
	work(&p, 0, 1);
	victim = new_stranger_at(p.side[1].wire, "127.0.0.2");
	for (uint64_t n = 2; n < 60; n++) {
		ask_to_read(&p, 0, &victim, n);
		run_server(&p, 300);
	}
	while (listen_at(&victim, (uint8_t[ROOM]){ 0 }, ROOM))
		;
	print_message("victim: %llu bytes for %llu\n",
		      (unsigned long long)victim.received,
		      (unsigned long long)victim.sent);
	assert_true(victim.received > 0);
	assert_true(victim.received <= 3 * victim.sent);
	assert_int_equal(stats_of(&p, 1)->path_changes, 0);
	pair_close(&p);
	close(victim.sock);
}

/*
 * A peer names the address of a victim, and stays silent at its own address while
 * the server wants to write: the victim is challenged at each time-out, for at
 * most three times the bytes that the peer sent from anywhere.
 */
/* RFC 5042 X9 */
static void test_named_victim_gets_three_times_the_bytes(void **state)
{
	struct stranger victim, peer;
	uint32_t token;
	struct pair p;

	(void)state;
	open_pair(&p);
	victim = new_stranger_at(p.side[1].wire, "127.0.0.2");
	peer = new_stranger_at(p.side[1].wire, "127.0.0.4");
	half_connect(&p, 0, &victim);
	control(&p, 0, &peer, SRDMA_ACK_OPEN, 9);
	run_server(&p, 3);
	token = take_all(&p, 0, &peer);
	control(&p, 0, &peer, SRDMA_ACK_ACK, token);
	run_server(&p, 3);
	assert_true(srdma_connect_validated(qp_at(&p, 1, 0)));
	request(&p, 1, SRDMA_DESC_READ, 1);
	for (int i = 0; i < 12000; i++) {
		p.now += 1000000;
		run_server(&p, 1);
	}
	while (listen_at(&victim, (uint8_t[ROOM]){ 0 }, ROOM))
		;
	assert_true(stats_of(&p, 1)->timeouts > 5);
	assert_true(victim.received > 0);
	assert_true(victim.received <= 3 * peer.sent);
	pair_close(&p);
	close(victim.sock);
	close(peer.sock);
}

/* All that arrived at a third party. */
static void drain(struct stranger *s)
{
	while (listen_at(s, (uint8_t[ROOM]){ 0 }, ROOM))
		;
}

/*
 * A peer names the address of one victim, and sends from that of another one: both
 * together get three times the bytes, because a byte pays once (RFC 9000 8.1).
 */
/* RFC 5042 X9 */
static void test_two_victims_together_get_three_times_the_bytes(void **state)
{
	struct stranger named, source;
	struct pair p;

	(void)state;
	open_pair(&p);
	named = new_stranger_at(p.side[1].wire, "127.0.0.2");
	source = new_stranger_at(p.side[1].wire, "127.0.0.4");
	half_connect(&p, 0, &named);
	for (int n = 0; n < 100; n++) {
		control(&p, 0, &source, SRDMA_ACK_OPEN, 9);
		for (int i = 0; i < 200; i++) {
			p.now += 1000000;
			run_server(&p, 1);
		}
		drain(&named);
		drain(&source);
		assert_true(named.received + source.received <=
			    3 * source.sent);
	}
	print_message("victims: %llu and %llu bytes for %llu\n",
		      (unsigned long long)named.received,
		      (unsigned long long)source.received,
		      (unsigned long long)source.sent);
	/* The home is challenged again and again, so that a racer at the source
	 * address diverts nothing for long. */
	assert_true(named.received >= 5 * 72);
	assert_true(source.received > source.sent);
	pair_close(&p);
	close(named.sock);
	close(source.sock);
}

/* A server names the address of a victim: all QPs together send it 16 OPENs at
 * once and one each 20 ms then, and nothing else; the QPs end. */
/* RFC 5042 X9 */
static void test_opens_to_a_silent_address_are_limited(void **state)
{
	enum { QPS = 20, MS = 16000 };
	struct stranger victim;
	struct srdma_qp_keys k;
	uint64_t at_once;
	struct pair p;

	(void)state;
	open_pair(&p);
	victim = new_stranger_at(p.side[1].wire, "127.0.0.2");
	for (int i = 0; i < QPS; i++) {
		pair_init_qp(&p, i);
		pair_keys(&p, 0, i, &k);
		srdma_addr_format(k.peer_wire,
				  (const struct sockaddr *)&victim.at);
		assert_int_equal(
			srdma_relay_qp_keys(p.side[0].relay, p.side[0].leg, &k),
			0);
		request(&p, 0, SRDMA_DESC_WRITE, 1);
	}
	for (int i = 0; i < 100; i++) {
		p.now += 100000;
		srdma_relay_run(p.side[0].relay, p.now, 64);
	}
	at_once = net.sent[0];
	assert_true(at_once >= 16 && at_once <= 17);
	for (int i = 0; i < MS; i++) {
		p.now += 1000000;
		srdma_relay_run(p.side[0].relay, p.now, 64);
		while (listen_at(&victim, (uint8_t[ROOM]){ 0 }, ROOM))
			;
	}
	print_message("victim: %llu OPENs of %d QPs in 16 s\n",
		      (unsigned long long)net.sent[0], QPS);
	assert_true(net.sent[0] <= 16 + MS / 20);
	assert_int_equal(net.opens, net.sent[0] * 72);
	for (int i = 0; i < QPS; i++)
		assert_int_equal(srdma_qp_reason(qp_at(&p, 0, i)),
				 SRDMA_REASON_WIRE_LOST);
	pair_close(&p);
	close(victim.sock);
}

/* --- the race ------------------------------------------------------------------- */

/* A copy of each packet of the client arrives from elsewhere before it. Requests
 * and responses of both ends pass, and no path changes. */
/* RFC 5042 A5.1.2 */
static void test_racer_diverts_nothing(void **state)
{
	struct stranger racer;
	struct pair p;

	(void)state;
	open_pair(&p);
	pair_connect(&p, 0);
	racer = new_stranger_at(p.side[1].wire, "127.0.0.3");
	net.racer = &racer;
	for (uint64_t i = 0; i < 10; i++) {
		work(&p, 0, 10 * i);
		work(&p, 1, 10 * i);
	}
	while (listen_at(&racer, (uint8_t[ROOM]){ 0 }, ROOM))
		;
	assert_true(net.raced > 200);
	assert_true(racer.received > 0);
	assert_true(racer.received <= 3 * racer.sent);
	assert_int_equal(stats_of(&p, 1)->path_changes, 0);
	assert_true(stats_of(&p, 1)->path_changes_refused > 0);
	pair_close(&p);
	close(racer.sock);
}

/* The same from the first packet on. */
/* RFC 5042 A5.1.2 */
static void test_racer_of_the_first_packet_diverts_nothing(void **state)
{
	struct stranger racer;
	struct pair p;

	(void)state;
	open_pair(&p);
	racer = new_stranger_at(p.side[1].wire, "127.0.0.3");
	net.racer = &racer;
	pair_connect(&p, 0);
	for (uint64_t i = 0; i < 10; i++) {
		work(&p, 0, 10 * i);
		work(&p, 1, 10 * i);
	}
	assert_true(net.raced > 200);
	while (listen_at(&racer, (uint8_t[ROOM]){ 0 }, ROOM))
		;
	assert_true(racer.received <= 3 * racer.sent);
	pair_close(&p);
	close(racer.sock);
}

/* The racer also forwards to the client what it gets, from its own address, so
 * that its address answers challenges. */
static void test_racer_that_forwards_diverts_nothing(void **state)
{
	struct stranger racer, mouth;
	struct srdma_record r;
	struct pair p;

	(void)state;
	open_pair(&p);
	pair_connect(&p, 0);
	racer = new_stranger_at(p.side[1].wire, "127.0.0.3");
	mouth = new_stranger_at(p.side[0].wire, "127.0.0.3");
	net.racer = &racer;
	for (uint64_t i = 0; i < 30; i++) {
		request(&p, 0, SRDMA_DESC_READ, i);
		for (int n = 0; n < 5000 && !pair_record(&p, 0, &r); n++) {
			uint8_t in[ROOM];
			uint32_t len;

			while ((len = listen_at(&racer, in, sizeof(in))))
				say(&mouth, in, len);
			pair_run(&p, 10);
		}
		assert_int_equal(r.id, i);
		assert_int_equal(r.vendor_err, SRDMA_REASON_NONE);
	}
	assert_true(mouth.sent > 0);
	assert_int_equal(stats_of(&p, 1)->path_changes, 0);
	pair_close(&p);
	close(racer.sock);
	close(mouth.sock);
}

/* --- changes of address ------------------------------------------------------------ */

/* 1: the server's QP sends to that address. */
static int sends_to(struct pair *p, const struct stranger *s)
{
	const struct srdma_udp_conn *c =
		(const struct srdma_udp_conn *)srdma_path_conn(qp_at(p, 1, 0));

	return c && !memcmp(&c->peer, &s->at,
			    offsetof(struct sockaddr_in, sin_zero));
}

/* The peer answers the challenges that reach its addresses, for that many steps
 * of 100 us, or until the server sends to `until`. b may be NULL. Returns the
 * number of steps. */
static int answer_at(struct pair *p, struct stranger *a, struct stranger *b,
		     int steps, const struct stranger *until)
{
	struct stranger *both[2] = { a, b };
	int i;

	for (i = 0; i < steps && !(until && sends_to(p, until)); i++) {
		for (int n = 0; n < 2; n++) {
			uint32_t token = both[n] ? take_all(p, 0, both[n]) : 0;

			if (token)
				control(p, 0, both[n], SRDMA_ACK_ACK, token);
		}
		p->now += 100000;
		run_server(p, 3);
	}
	return i;
}

/* Connects QP 0; side 0 belongs to the test then, at address a. named: 1 if this
 * is the address that it named. */
static void open_peer(struct pair *p, struct stranger *a, int named)
{
	open_pair(p);
	*a = new_stranger_at(p->side[1].wire, "127.0.0.4");
	half_connect(p, 0, named ? a : NULL);
	control(p, 0, a, SRDMA_ACK_OPEN, 9);
	run_server(p, 3);
	answer_at(p, a, NULL, 5, NULL);
	assert_true(sends_to(p, a));
	assert_true(srdma_connect_validated(qp_at(p, 1, 0)));
	answer_at(p, a, NULL, 8000, NULL); /* the named address is silent */
}

/* The peer's address changes, and the former one is silent: the server changes to
 * the new one after a few round trips, and a READ is answered there. */
/* review A37 */
static void test_change_of_address_is_followed(void **state)
{
	(void)state;
	for (int named = 0; named < 2; named++) {
		struct stranger a, b;
		struct pair p;
		int steps;

		open_peer(&p, &a, named);
		b = new_stranger_at(p.side[1].wire, "127.0.0.5");
		control(&p, 0, &b, SRDMA_ACK_PING, 0);
		run_server(&p, 3);
		steps = answer_at(&p, &b, NULL, 100, &b);
		print_message("changed after %d steps of 0.1 ms\n", steps);
		assert_true(steps <= 20);
		assert_int_equal(stats_of(&p, 1)->path_changes, 1);
		assert_true(srdma_connect_validated(qp_at(&p, 1, 0)));
		ask_to_read(&p, 0, &b, 0);
		run_server(&p, 100);
		take_all(&p, 0, &b);
		assert_true(b.received > 65536);
		pair_close(&p);
		close(a.sock);
		close(b.sock);
	}
}

/* Both addresses answer, or neither: the server stays at the former one. */
static void test_former_address_is_kept(void **state)
{
	(void)state;
	for (int answers = 0; answers < 2; answers++) {
		struct stranger a, b;
		struct pair p;

		open_peer(&p, &a, 1);
		b = new_stranger_at(p.side[1].wire, "127.0.0.5");
		control(&p, 0, &b, SRDMA_ACK_PING, 0);
		run_server(&p, 3);
		if (answers)
			answer_at(&p, &b, &a, 100, NULL);
		else
			run_server(&p, 100000);
		assert_true(sends_to(&p, &a));
		assert_int_equal(stats_of(&p, 1)->path_changes, 0);
		assert_int_equal(stats_of(&p, 1)->path_changes_refused, 1);
		assert_true(srdma_connect_validated(qp_at(&p, 1, 0)));
		pair_close(&p);
		close(a.sock);
		close(b.sock);
	}
}

/* The newest packet comes from the former address while both are challenged: the
 * new one is given up at once. */
static void test_packet_from_former_address_decides(void **state)
{
	struct stranger a, b;
	struct pair p;

	(void)state;
	open_peer(&p, &a, 1);
	b = new_stranger_at(p.side[1].wire, "127.0.0.5");
	control(&p, 0, &b, SRDMA_ACK_PING, 0);
	run_server(&p, 1);
	assert_int_equal(stats_of(&p, 1)->path_changes_refused, 0);
	control(&p, 0, &a, SRDMA_ACK_PING, 0);
	run_server(&p, 1);
	assert_int_equal(stats_of(&p, 1)->path_changes_refused, 1);
	assert_true(sends_to(&p, &a));
	pair_close(&p);
	close(a.sock);
	close(b.sock);
}

/* The server changed its path while the named address was silent. It returns when
 * that address answers. */
static void test_named_address_that_answers_again_is_used(void **state)
{
	struct stranger a, b;
	struct pair p;

	(void)state;
	open_peer(&p, &a, 1);
	b = new_stranger_at(p.side[1].wire, "127.0.0.5");
	control(&p, 0, &b, SRDMA_ACK_PING, 0);
	run_server(&p, 3);
	answer_at(&p, &b, NULL, 100, &b);
	assert_true(sends_to(&p, &b));
	answer_at(&p, &a, &b, 100, &a);
	assert_true(sends_to(&p, &a));
	assert_int_equal(stats_of(&p, 1)->path_returns, 1);
	pair_close(&p);
	close(a.sock);
	close(b.sock);
}

/* The first packet is raced; the named address answers, and is used. */
static void test_named_address_wins_the_first_contact(void **state)
{
	struct stranger a, b;
	struct pair p;

	(void)state;
	open_pair(&p);
	a = new_stranger_at(p.side[1].wire, "127.0.0.4");
	b = new_stranger_at(p.side[1].wire, "127.0.0.5");
	half_connect(&p, 0, &a);
	control(&p, 0, &b, SRDMA_ACK_OPEN, 9);
	run_server(&p, 3);
	answer_at(&p, &a, NULL, 20, &a);
	assert_true(sends_to(&p, &a));
	assert_true(srdma_connect_validated(qp_at(&p, 1, 0)));
	pair_close(&p);
	close(a.sock);
	close(b.sock);
}

/* A packet with a lower number than the newest one makes no address a candidate. */
static void test_late_packet_makes_no_candidate(void **state)
{
	struct stranger a, b;
	uint8_t late[ROOM];
	struct pair p;
	int len;

	(void)state;
	open_peer(&p, &a, 1);
	b = new_stranger_at(p.side[1].wire, "127.0.0.5");
	len = srdma_session_seal(
		session_at(&p, 0, 0),
		&(struct srdma_packet){ .opcode = SRDMA_OP_ACKNOWLEDGE,
					.ack = { .kind = SRDMA_ACK_PING } },
		NULL, late, sizeof(late));
	control(&p, 0, &a, SRDMA_ACK_PING, 0);
	say(&b, late, (uint32_t)len);
	run_server(&p, 10);
	take_all(&p, 0, &b);
	assert_int_equal(b.received, 0);
	pair_close(&p);
	close(a.sock);
	close(b.sock);
}

/* --- no room, no random numbers ------------------------------------------------------ */

/* Without room for an address a first packet makes no path, and a new address no
 * candidate. Both do when there is room again. */
static void test_no_room_for_an_address(void **state)
{
	struct srdma_udp_port *port;
	struct stranger a, b;
	struct pair p;
	uint32_t kept;

	(void)state;
	open_pair(&p);
	a = new_stranger_at(p.side[1].wire, "127.0.0.4");
	b = new_stranger_at(p.side[1].wire, "127.0.0.5");
	half_connect(&p, 0, &a);
	port = srdma_udp_port_of(p.side[1].wire);
	port->kept_count += SRDMA_UDP_CONNS;
	control(&p, 0, &a, SRDMA_ACK_OPEN, 9);
	run_server(&p, 3);
	assert_null(srdma_path_conn(qp_at(&p, 1, 0)));
	port->kept_count -= SRDMA_UDP_CONNS;
	control(&p, 0, &a, SRDMA_ACK_OPEN, 9);
	run_server(&p, 3);
	answer_at(&p, &a, NULL, 5, NULL);
	assert_true(srdma_connect_validated(qp_at(&p, 1, 0)));
	kept = port->kept_count;
	port->kept_count = SRDMA_UDP_CONNS;
	control(&p, 0, &b, SRDMA_ACK_PING, 0);
	run_server(&p, 3);
	take_all(&p, 0, &b);
	assert_int_equal(b.received, 0);
	assert_true(port->stats.counts.wire_full > 0);
	port->kept_count = kept;
	p.now += SRDMA_SECOND; /* attempts that failed wait for a round trip */
	control(&p, 0, &b, SRDMA_ACK_PING, 0);
	run_server(&p, 3);
	take_all(&p, 0, &b);
	assert_true(b.received > 0);
	pair_close(&p);
	close(a.sock);
	close(b.sock);
}

/* Another identity has all homes; returns its account. */
static struct srdma_account *take_homes(struct pair *p)
{
	struct srdma_ledger *l = srdma_relay_ledger(p->side[1].relay);
	struct srdma_account *taker;
	struct srdma_quota q;

	memset(&q, 0xff, sizeof(q)); /* SRDMA_QUOTA_DEFAULT */
	q.of[SRDMA_RES_HOMES].minimum = 0;
	assert_int_equal(srdma_quota_set(l, SRDMA_ACCOUNT_IDENTITY, "", &q, 1),
			 0);
	assert_int_equal(srdma_account_open(l, SRDMA_ACCOUNT_IDENTITY, "taker",
					    NULL, &taker),
			 0);
	assert_int_equal(
		srdma_account_take(taker, SRDMA_RES_HOMES, SRDMA_MAX_HOMES), 0);
	return taker;
}

/* The worker connects no home beyond its limit; the QP works without one. */
static void test_no_room_for_a_home(void **state)
{
	struct srdma_account *taker;
	struct stranger a;
	struct pair p;

	(void)state;
	open_pair(&p);
	a = new_stranger_at(p.side[1].wire, "127.0.0.4");
	half_connect(&p, 0, NULL);
	taker = take_homes(&p);
	control(&p, 0, &a, SRDMA_ACK_OPEN, 9);
	run_server(&p, 3);
	answer_at(&p, &a, NULL, 5, NULL);
	assert_true(srdma_connect_validated(qp_at(&p, 1, 0)));
	assert_false(srdma_path_has_own(qp_at(&p, 1, 0)));
	srdma_account_give(taker, SRDMA_RES_HOMES, SRDMA_MAX_HOMES);
	srdma_account_close(taker);
	pair_close(&p);
	close(a.sock);
}

static int no_random(void *ctx, uint8_t *out, size_t len)
{
	(void)ctx;
	(void)out;
	(void)len;
	return -EIO;
}

/* Without random numbers a PING has no token, so that no answer validates. The
 * first one that is drawn later is the challenge. */
static void test_no_random_numbers(void **state)
{
	int (*random)(void *, uint8_t *, size_t);
	struct srdma_env *env;
	struct stranger a;
	struct pair p;

	(void)state;
	open_pair(&p);
	a = new_stranger_at(p.side[1].wire, "127.0.0.4");
	half_connect(&p, 0, &a);
	env = &p.side[1].relay->env;
	random = env->random;
	env->random = no_random;
	control(&p, 0, &a, SRDMA_ACK_OPEN, 9);
	run_server(&p, 3);
	assert_int_equal(take_all(&p, 0, &a), 0);
	assert_true(a.received > 0);
	control(&p, 0, &a, SRDMA_ACK_ACK, 0);
	run_server(&p, 3);
	assert_false(srdma_connect_validated(qp_at(&p, 1, 0)));
	env->random = random;
	p.now += UINT64_C(1000000000);
	run_server(&p, 3);
	answer_at(&p, &a, NULL, 5, NULL);
	assert_true(srdma_connect_validated(qp_at(&p, 1, 0)));
	pair_close(&p);
	close(a.sock);
}

/* --- no deadlock ------------------------------------------------------------------ */

/*
 * The server's challenges are lost until its limit is used up, and the client has
 * nothing to send. It sends PINGs, because the server's ack says that its path is
 * not validated; then the server's WRITE passes.
 */
static void test_client_feeds_a_server_that_is_held(void **state)
{
	struct pair p;

	(void)state;
	open_pair(&p);
	net.lost_pings = 5;
	pair_connect(&p, 0);
	assert_false(srdma_connect_validated(qp_at(&p, 1, 0)));
	request(&p, 1, SRDMA_DESC_WRITE, 5);
	expect_within(&p, 1, 5, 3000);
	assert_int_equal(net.lost_pings, 0);
	pair_close(&p);
}

/*
 * A client lost its path, and the OPEN of the next one is lost. An ACK that waits
 * for bytes of the peer does not hold the OPEN: it leaves again after its time-out,
 * long before the attempt ends (2 s).
 */
static void test_held_ack_does_not_hold_open(void **state)
{
	const struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV, .id = 7 };
	struct srdma_qp *qp;
	uint64_t sent;
	struct pair p;

	(void)state;
	open_pair(&p);
	pair_connect(&p, 0);
	work(&p, 0, 1);
	qp = qp_at(&p, 0, 0);
	net.mute = 0;
	srdma_path_down(&p.side[0].relay->env, srdma_path_conn(qp));
	sent = net.sent[0];
	for (int i = 0; i < 1000 && net.sent[0] == sent; i++)
		pair_run(&p, 10);
	assert_int_equal(net.sent[0], sent + 1); /* the OPEN that is lost */
	pair_post(&p, 0, recv, NULL);
	pair_run(&p, 10);
	assert_true(stats_of(&p, 0)->path_packets_held > 0);
	net.mute = -1;
	for (int i = 0; i < 600 && !srdma_connect_validated(qp); i++)
		pair_wait_ms(&p, 1);
	assert_true(srdma_connect_validated(qp));
	pair_close(&p);
}

/* The peer's challenge to a QP that failed is answered by its CLOSE alone: an ACK
 * that it never may send would keep it scheduled. */
static void test_challenge_to_a_failed_qp(void **state)
{
	struct stranger a;
	struct srdma_qp *qp;
	struct pair p;

	(void)state;
	open_pair(&p);
	a = new_stranger_at(p.side[1].wire, "127.0.0.4");
	half_connect(&p, 0, &a);
	control(&p, 0, &a, SRDMA_ACK_OPEN, 9);
	run_server(&p, 3);
	answer_at(&p, &a, NULL, 5, NULL);
	qp = qp_at(&p, 1, 0);
	assert_true(srdma_connect_validated(qp));
	srdma_qp_fail(qp, SRDMA_REASON_KEY_LIMIT, SRDMA_OLDEST, 1);
	srdma_qp_activate(qp);
	run_server(&p, 3);
	assert_int_equal(srdma_qp_scheduled(qp), 0);
	p.now += SRDMA_SECOND; /* after that it repeats its last packet */
	control(&p, 0, &a, SRDMA_ACK_PING, 11);
	run_server(&p, 3);
	assert_int_equal(srdma_qp_scheduled(qp), 0);
	pair_close(&p);
	close(a.sock);
}

/* Two challenges of the server arrive together: both are answered, so that one
 * which an attacker forwards cannot displace the other. */
static void test_all_challenges_are_answered(void **state)
{
	struct srdma_qp_path *x;
	struct pair p;
	uint64_t acks;

	(void)state;
	open_pair(&p);
	pair_connect(&p, 0);
	work(&p, 0, 1);
	x = srdma_qp_path(qp_at(&p, 0, 0));
	for (uint32_t token = 1; token <= 6; token++) {
		struct srdma_packet ping = {
			.opcode = SRDMA_OP_ACKNOWLEDGE,
			.flags = SRDMA_STH_ACK_NOW,
			.ack = { .kind = SRDMA_ACK_PING, .path = token },
		};

		srdma_probe_follow(qp_at(&p, 0, 0), &ping, x->conn);
		srdma_probe_follow(qp_at(&p, 0, 0), &ping, x->conn);
	}
	assert_int_equal(x->answer_count, SRDMA_PATH_ANSWERS);
	srdma_qp_schedule(qp_at(&p, 0, 0), SRDMA_SAY_ACK);
	srdma_qp_activate(qp_at(&p, 0, 0));
	acks = stats_of(&p, 0)->acks_sent;
	for (uint32_t i = 0; i < SRDMA_PATH_ANSWERS; i++) {
		assert_int_equal(x->answers[SRDMA_PATH_ANSWERS - 1], 4);
		srdma_relay_run(p.side[0].relay, p.now, 64);
	}
	assert_int_equal(stats_of(&p, 0)->acks_sent, acks + SRDMA_PATH_ANSWERS);
	assert_int_equal(x->answer_count, 0);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_victim_of_first_packets_gets_three_times_their_bytes),
		cmocka_unit_test(test_limit_holds_and_bytes_lift_it),
		cmocka_unit_test(test_answer_lifts_the_limit),
		cmocka_unit_test(
			test_victim_of_later_packets_gets_three_times_their_bytes),
		cmocka_unit_test(test_named_victim_gets_three_times_the_bytes),
		cmocka_unit_test(
			test_two_victims_together_get_three_times_the_bytes),
		cmocka_unit_test(test_opens_to_a_silent_address_are_limited),
		cmocka_unit_test(test_racer_diverts_nothing),
		cmocka_unit_test(
			test_racer_of_the_first_packet_diverts_nothing),
		cmocka_unit_test(test_racer_that_forwards_diverts_nothing),
		cmocka_unit_test(test_change_of_address_is_followed),
		cmocka_unit_test(test_former_address_is_kept),
		cmocka_unit_test(test_packet_from_former_address_decides),
		cmocka_unit_test(test_named_address_that_answers_again_is_used),
		cmocka_unit_test(test_named_address_wins_the_first_contact),
		cmocka_unit_test(test_late_packet_makes_no_candidate),
		cmocka_unit_test(test_no_room_for_an_address),
		cmocka_unit_test(test_no_room_for_a_home),
		cmocka_unit_test(test_no_random_numbers),
		cmocka_unit_test(test_client_feeds_a_server_that_is_held),
		cmocka_unit_test(test_held_ack_does_not_hold_open),
		cmocka_unit_test(test_challenge_to_a_failed_qp),
		cmocka_unit_test(test_all_challenges_are_answered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
