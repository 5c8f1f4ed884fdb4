/*
 * Source addresses and homes over UDP, by two identities (docs/local-interface.md 3.10;
 * A41): each QP of side 0 sends from an address of its own.
 */
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/addr.h"
#include "ledger/ledger.h"
#include "port/udp/port_udp.h"
#include "support/inside.h"
#include "support/relay_pair.h"
#include "wire/icrc.h"

enum { QPS = 5, OTHER = 4 /* the QP of the other identity */ };

static struct pair p;
static struct srdma_account *greedy, *other;

/* The address from which QP i of side 0 sends, and one that it may name
 * (protocol.md 7.3), which does not answer. */
static struct source {
	int sock;
	struct sockaddr_storage at, to;
} source[QPS], home[QPS];

static void open_source(struct source *s, const struct srdma_port *to)
{
	socklen_t len = sizeof(s->at);

	srdma_addr_parse(&s->to, to->address, SRDMA_ADDR_NO_PORT);
	s->sock = socket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(connect(s->sock, (struct sockaddr *)&s->to,
				 sizeof(struct sockaddr_in)),
			 0);
	assert_int_equal(getsockname(s->sock, (struct sockaddr *)&s->at, &len),
			 0);
}

static void send_from(const struct source *s, const uint8_t *data, size_t len)
{
	uint8_t copy[SRDMA_MAX_PACKET + SRDMA_ICRC_LEN];
	struct srdma_icrc c;

	memcpy(copy, data, len);
	srdma_icrc_init(&c, (const struct sockaddr *)&s->at,
			(const struct sockaddr *)&s->to);
	srdma_icrc_compute(&c, copy, (uint32_t)len - SRDMA_ICRC_LEN,
			   copy + len - SRDMA_ICRC_LEN);
	assert_int_equal(send(s->sock, copy, len, 0), len);
}

/* Datagrams to QPs of side 1 leave from their own addresses. */
int sendmmsg(int fd, struct mmsghdr *msg, unsigned int n, int flags)
{
	for (unsigned int m = 0; m < n; m++) {
		const struct iovec *v = msg[m].msg_hdr.msg_iov;
		const int32_t qpn = srdma_wire_qpn(v->iov_base, v->iov_len);
		int i = 0;

		while (i < QPS && qpn != (int32_t)p.side[1].qp[i].qpn)
			i++;
		if (i < QPS && source[i].sock > 0)
			send_from(&source[i], v->iov_base, v->iov_len);
		else
			(void)syscall(SYS_sendmmsg, fd, &msg[m], 1, flags);
	}
	return (int)n;
}

static struct srdma_port *create(void)
{
	char why[SRDMA_PORT_UDP_WHY_LEN];
	struct srdma_port *port;

	assert_int_equal(srdma_port_udp_create(&port, "127.0.0.1:0", why), 0);
	return port;
}

static struct srdma_account *identity(const char *name)
{
	struct srdma_account *a;

	assert_int_equal(srdma_account_open(srdma_relay_ledger(p.side[1].relay),
					    SRDMA_ACCOUNT_IDENTITY, name, NULL,
					    &a),
			 0);
	return a;
}

static void begin(void)
{
	pair_defaults(&p);
	pair_open_on(&p, create(), create());
	for (int i = 0; i < QPS; i++)
		open_source(&source[i], p.side[1].wire);
	for (int i = 0; i < QPS; i++)
		open_source(&home[i], p.side[1].wire);
	greedy = identity("spiffe://x/greedy");
	other = identity("spiffe://x/other");
}

static void end(void)
{
	srdma_account_close(greedy);
	srdma_account_close(other);
	for (int i = 0; i < QPS; i++)
		close(source[i].sock);
	for (int i = 0; i < QPS; i++)
		close(home[i].sock);
	memset(source, 0, sizeof(source));
	pair_close(&p);
}

static void connect_qp_of(int i, const struct source *named)
{
	struct srdma_qp_keys k;

	pair_init_qp(&p, i);
	for (int side = 1; side >= 0; side--) {
		pair_keys(&p, side, i, &k);
		k.peer_identity =
			i == OTHER ? "spiffe://x/other" : "spiffe://x/greedy";
		if (side == 1) /* else the QP returns to the peer's port */
			srdma_addr_format(k.peer_wire,
					  (const struct sockaddr *)&named->at);
		assert_int_equal(srdma_relay_qp_keys(p.side[side].relay,
						     p.side[side].leg, &k),
				 0);
	}
	pair_run(&p, 20);
}

static void connect_qp(int i)
{
	connect_qp_of(i, &source[i]);
}

static void set_limit(enum srdma_resource resource, uint64_t limit)
{
	struct srdma_quota q;

	memset(&q, 0xff, sizeof(q));
	q.idle = 0;
	q.of[resource].minimum = 0;
	q.of[resource].limit = limit;
	assert_int_equal(srdma_quota_set(srdma_relay_ledger(p.side[1].relay),
					 SRDMA_ACCOUNT_IDENTITY,
					 "spiffe://x/greedy", &q, 1),
			 0);
}

static uint64_t used(const struct srdma_account *a)
{
	struct srdma_usage u;

	srdma_account_usage(a, SRDMA_RES_ADDRESSES, &u);
	return u.used;
}

/* 1: side 1 has a path to QP i. */
static int has_path(int i)
{
	const struct srdma_qp *qp =
		srdma_relay_qp(p.side[1].relay, p.side[1].qp[i].qpn);

	return srdma_path_conn(qp) != NULL;
}

/* RFC 5042 A6.4.1 */
static void test_an_identity_keeps_addresses_up_to_its_limit(void **state)
{
	(void)state;
	begin();
	set_limit(SRDMA_RES_ADDRESSES, 2);
	for (int i = 0; i < QPS; i++)
		connect_qp(i);
	assert_int_equal(used(greedy), 2);
	assert_int_equal(used(other), 1);
	assert_true(has_path(0) && has_path(1));
	assert_false(has_path(2));
	assert_false(has_path(3));
	assert_true(has_path(OTHER));
	end();
}

/* An address without a QP is kept for some time, unless its identity needs the
 * place. */
static void test_an_address_without_a_qp_gives_way(void **state)
{
	(void)state;
	begin();
	set_limit(SRDMA_RES_ADDRESSES, 2);
	for (int i = 0; i < 3; i++)
		connect_qp(i);
	assert_false(has_path(2));
	while (srdma_relay_qp_destroy(p.side[1].relay, p.side[1].leg,
				      p.side[1].qp[0].qpn))
		pair_run(&p, 1);
	assert_int_equal(used(greedy), 2);
	for (int n = 0; n < 20 && !has_path(2); n++)
		pair_wait_ms(&p, 200); /* OPEN of QP 2 is sent again */
	assert_true(has_path(2));
	assert_true(has_path(1));
	assert_int_equal(used(greedy), 2);
	end();
}

static uint64_t homes(const struct srdma_account *a)
{
	return srdma_account_used(a, SRDMA_RES_HOMES);
}

/* A QP without a home works too. RFC 5042 A6.4.1 */
static void test_an_identity_has_homes_up_to_its_limit(void **state)
{
	struct srdma_usage u;

	(void)state;
	begin();
	set_limit(SRDMA_RES_HOMES, 2);
	for (int i = 0; i < QPS; i++)
		connect_qp_of(i, &home[i]);
	assert_int_equal(homes(greedy), 2);
	assert_int_equal(homes(other), 1);
	srdma_account_usage(greedy, SRDMA_RES_HOMES, &u);
	assert_true(u.refused >= QPS - 1 - 2);
	srdma_account_usage(other, SRDMA_RES_HOMES, &u);
	assert_int_equal(u.refused, 0);
	for (int i = 0; i < QPS; i++)
		assert_true(has_path(i));
	srdma_relay_leg_close(p.side[1].leg);
	pair_wait_ms(&p, 2000);
	assert_int_equal(homes(greedy) + homes(other), 0);
	end();
}

static void test_addresses_are_given_back(void **state)
{
	(void)state;
	begin();
	for (int i = 0; i < 3; i++)
		connect_qp(i);
	assert_int_equal(used(greedy), 3);
	assert_int_equal(homes(greedy), 0); /* they are where they send from */
	srdma_relay_leg_close(p.side[1].leg);
	pair_wait_ms(&p, 2000);
	pair_wait_ms(&p, 15000);
	assert_int_equal(used(greedy), 0);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_an_identity_keeps_addresses_up_to_its_limit),
		cmocka_unit_test(test_an_address_without_a_qp_gives_way),
		cmocka_unit_test(test_an_identity_has_homes_up_to_its_limit),
		cmocka_unit_test(test_addresses_are_given_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
