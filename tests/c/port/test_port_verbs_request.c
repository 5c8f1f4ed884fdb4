/*
 * The listeners of the verbs port: their addresses, and the connection requests
 * that they accept and refuse (docs/local-interface.md 2.4).
 */
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "port/leg_time.h"
#include "support/verbs_port.h"

#define LEG  SRDMA_PORT_VERBS_HOST
#define WIRE SRDMA_PORT_VERBS_WIRE

enum { ILLEGAL = 1, NO_LEG = 2 }; /* reasons of a REJ */

static int setup(void **state)
{
	(void)state;
	fake_verbs_reset();
	return 0;
}

static void assert_refused(struct srdma_port *port,
			   const struct fake_verbs_request *r, uint8_t reason)
{
	const uint8_t text[] = { 's', 'r', 'd', 'm', 'a', 1, reason };
	const uint32_t accepted = fake_verbs.accepted;

	fake_verbs_request(r);
	assert_int_equal(verbs_port_next(port).kind, 0);
	assert_memory_equal(fake_verbs.refused, text, sizeof(text));
	assert_int_equal(fake_verbs.accepted, accepted);
}

static struct srdma_event assert_accepted(struct srdma_port *port,
					  const struct fake_verbs_request *r)
{
	fake_verbs_request(r);
	assert_int_equal(verbs_port_next(port).kind, 0);
	assert_int_equal(fake_verbs.refused[0], 0);
	fake_verbs_event(fake_verbs.id, RDMA_CM_EVENT_ESTABLISHED);
	return verbs_port_next(port);
}

/* --- requests ----------------------------------------------------------- */

static void test_leg_listener_accepts_its_host(void **state)
{
	struct srdma_port *port = verbs_port_open(LEG, NULL);
	struct srdma_conn *leg = verbs_port_leg(port);
	const struct fake_verbs_request r = verbs_port_request(LEG);
	struct srdma_event ev = assert_accepted(port, &r);

	(void)state;
	assert_int_equal(ev.kind, SRDMA_EV_UP);
	assert_ptr_equal(ev.conn, leg);
	assert_refused(port, &r, NO_LEG); /* a token is valid once */
	port->ops->destroy(port);
}

static void test_wire_listener_accepts_a_worker(void **state)
{
	struct srdma_port *port = verbs_port_open(WIRE, "10.0.0.1:0");
	const struct fake_verbs_request r = verbs_port_request(WIRE);

	(void)state;
	assert_int_equal(assert_accepted(port, &r).kind, SRDMA_EV_ACCEPT);
	port->ops->destroy(port);
}

/* Requests that their peers do not confirm: each makes a QP. A look at the CM accepts two;
 * of more than 64, the oldest is closed, so that a peer that confirms in time
 * gets its connection. */
static void test_requests_without_confirmation_are_few(void **state)
{
	enum { AT_ONCE = 2, HALF = 64, MANY = 100 };
	struct srdma_port *port = verbs_port_open(WIRE, "10.0.0.1:0");
	const struct fake_verbs_request r = verbs_port_request(WIRE);

	(void)state;
	for (int i = 0; i < 2 * AT_ONCE; i++)
		fake_verbs_request(&r);
	verbs_port_next(port);
	assert_int_equal(fake_verbs.accepted, AT_ONCE);
	verbs_port_next(port);
	assert_int_equal(fake_verbs.accepted, 2 * AT_ONCE);
	assert_int_equal(fake_verbs.disconnected, 0);
	for (int i = 2 * AT_ONCE; i < MANY; i++) {
		fake_verbs_request(&r);
		assert_int_equal(verbs_port_next(port).kind, 0);
	}
	assert_int_equal(fake_verbs.accepted, MANY);
	assert_int_equal(fake_verbs.disconnected, MANY - HALF);
	assert_int_equal(assert_accepted(port, &r).kind, SRDMA_EV_ACCEPT);
	assert_int_equal(fake_verbs.disconnected, MANY - HALF + 1);
	/* the one that was confirmed is not counted any more */
	fake_verbs_request(&r);
	verbs_port_next(port);
	assert_int_equal(fake_verbs.disconnected, MANY - HALF + 1);
	port->ops->destroy(port);
}

/* One change of a legal request: a byte of its private data, or a field. */
struct change {
	int at; /* -1: none */
	uint8_t byte;
	int device;
	const char *address;
	int length, reads; /* -1: as in the legal one */
	uint8_t reason;
};

static struct fake_verbs_request changed(enum srdma_port_verbs_kind kind,
					 const struct change *c)
{
	struct fake_verbs_request r = verbs_port_request(kind);

	if (c->at >= 0)
		r.hello[c->at] = c->byte;
	r.device = c->device;
	if (c->address)
		r.address = c->address;
	if (c->length >= 0)
		r.hello_len = (uint8_t)c->length;
	if (c->reads >= 0)
		r.reads = (uint8_t)c->reads;
	return r;
}

static void test_leg_listener_refuses_other_requests(void **state)
{
	static const struct change changes[] = {
		{ 6, WIRE, 0, NULL, -1, -1, ILLEGAL }, /* kind of a wire */
		{ 6, 3, 0, NULL, -1, -1, ILLEGAL },
		{ -1, 0, 1, NULL, -1, -1, ILLEGAL }, /* another device */
		{ -1, 0, 0, "10.0.0.9:7", -1, -1, ILLEGAL },
		{ -1, 0, 0, "[2001:db8::1]:7", -1, -1, ILLEGAL },
		{ 0, 'x', 0, NULL, -1, -1, ILLEGAL }, /* magic */
		{ 5, 2, 0, NULL, -1, -1, ILLEGAL },   /* version */
		{ 7, 1, 0, NULL, -1, -1, ILLEGAL },   /* zero byte */
		{ -1, 0, 0, NULL, 55, -1, ILLEGAL },
		{ -1, 0, 0, NULL, -1, 0, ILLEGAL },  /* no READ allowed */
		{ 8, 9, 0, NULL, -1, -1, NO_LEG },   /* token */
		{ 39, 65, 0, NULL, -1, -1, NO_LEG }, /* size of the ring */
	};
	struct srdma_port *port = verbs_port_open(LEG, NULL);
	struct fake_verbs_request r;

	(void)state;
	verbs_port_leg(port);
	for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
		r = changed(LEG, &changes[i]);
		assert_refused(port, &r, changes[i].reason);
	}
	r = verbs_port_request(LEG); /* the leg has kept its token */
	assert_int_equal(assert_accepted(port, &r).kind, SRDMA_EV_UP);
	port->ops->destroy(port);
}

static void test_wire_listener_refuses_other_requests(void **state)
{
	static const struct change changes[] = {
		{ 6, LEG, 0, NULL, -1, -1, ILLEGAL }, /* kind of a leg */
		{ -1, 0, 1, NULL, -1, -1, ILLEGAL },
		{ -1, 0, 0, "10.0.0.9:7", -1, -1, ILLEGAL },
		{ -1, 0, 0, NULL, 55, -1, ILLEGAL },
	};
	struct srdma_port *port = verbs_port_open(WIRE, "10.0.0.1:0");
	struct fake_verbs_request r;

	(void)state;
	for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
		r = changed(WIRE, &changes[i]);
		assert_refused(port, &r, changes[i].reason);
	}
	r = verbs_port_request(LEG);
	assert_refused(port, &r, ILLEGAL);
	port->ops->destroy(port);
}

static void test_request_over_ipv6(void **state)
{
	struct srdma_port *port = verbs_port_open(LEG, "[2001:db8::1]");
	struct fake_verbs_request r = verbs_port_request(LEG);

	(void)state;
	verbs_port_leg(port);
	assert_refused(port, &r, ILLEGAL); /* to the IPv4 address */
	r.address = "[2001:db8::9]:7";
	assert_refused(port, &r, ILLEGAL);
	r.address = "[2001:db8::1]:7";
	assert_int_equal(assert_accepted(port, &r).kind, SRDMA_EV_UP);
	port->ops->destroy(port);
}

/* Many requests do not hold the worker: each poll takes some. */
static void test_flood_of_requests_takes_several_polls(void **state)
{
	struct srdma_port *port = verbs_port_open(LEG, NULL);
	const struct fake_verbs_request r = verbs_port_request(WIRE);
	struct srdma_event ev;

	(void)state;
	for (int i = 0; i < 80; i++)
		fake_verbs_request(&r);
	assert_int_equal(verbs_port_next(port).kind, 0);
	assert_int_equal(fake_verbs.refusals, 32);
	for (int i = 0; i < 2; i++)
		assert_int_equal(port->ops->poll(port, &ev, 1), 0);
	assert_int_equal(fake_verbs.refusals, 80);
	port->ops->destroy(port);
}

/* --- addresses ---------------------------------------------------------- */

static void assert_listens(enum srdma_port_verbs_kind kind, const char *listen,
			   const char *wanted)
{
	struct srdma_port *port = verbs_port_open(kind, listen);

	assert_string_equal(port->address, wanted);
	port->ops->destroy(port);
}

static void test_default_address_is_the_first_ipv4_else_ipv6(void **state)
{
	static const enum srdma_port_verbs_kind kinds[] = { LEG, WIRE };

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		fake_verbs_reset();
		assert_listens(kinds[i], NULL, "10.0.0.1:0");
		fake_verbs.gids[0][0] = "2001:db8::5";
		assert_listens(kinds[i], NULL, "10.0.0.1:0");
		fake_verbs.gids[0][1] = "fe80::9";
		assert_listens(kinds[i], NULL, "[2001:db8::5]:0");
	}
}

static void test_device_without_a_usable_address_is_refused(void **state)
{
	static const struct {
		enum srdma_port_verbs_kind kind;
		const char *option;
	} cases[] = { { LEG, "--host-listen" }, { WIRE, "--wire-listen" } };
	static const char *const gids[] = { "fe80::1", "ff02::1", "::" };
	char why[SRDMA_PORT_VERBS_WHY_LEN];

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		for (size_t g = 0; g < sizeof(gids) / sizeof(*gids); g++) {
			fake_verbs_reset();
			fake_verbs.gids[0][0] = gids[g];
			fake_verbs.gids[0][1] = NULL;
			assert_int_equal(
				verbs_port_refused(cases[i].kind, NULL, why),
				-EADDRNOTAVAIL);
			assert_non_null(strstr(why, "no IPv4 or global IPv6"));
			assert_non_null(strstr(why, cases[i].option));
		}
		fake_verbs_reset();
		fake_verbs.gid_type = IBV_GID_TYPE_ROCE_V1;
		assert_int_equal(verbs_port_refused(cases[i].kind, NULL, why),
				 -EADDRNOTAVAIL);
	}
}

static void test_named_addresses(void **state)
{
	(void)state;
	assert_listens(LEG, "10.0.0.1", "10.0.0.1:0");
	assert_listens(LEG, "10.0.0.1:77", "10.0.0.1:77");
	assert_listens(LEG, "[2001:db8::1]", "[2001:db8::1]:0");
	assert_listens(LEG, "[2001:db8::1]:77", "[2001:db8::1]:77");
	assert_listens(WIRE, "[2001:db8::1]:77", "[2001:db8::1]:77");
}

static void test_wrong_addresses_are_refused(void **state)
{
	static const struct {
		enum srdma_port_verbs_kind kind;
		const char *listen;
		int err;
		const char *text;
	} cases[] = {
		{ LEG, "10.0.0.2", -EADDRNOTAVAIL, "not an address of fake0" },
		{ LEG, "0.0.0.0", -EADDRNOTAVAIL, "not an address of fake0" },
		{ LEG, "[::]:7", -EADDRNOTAVAIL, "not an address of fake0" },
		{ LEG, "[fe80::2]", -EADDRNOTAVAIL, "not an address of fake0" },
		{ LEG, "10.0.0.9", -ENODEV, "listening on 10.0.0.9:0" },
		{ LEG, "here", -EINVAL, "is not IP, IP:PORT, [IPv6] or" },
		{ WIRE, "0.0.0.0:7", -EADDRNOTAVAIL, "not an address of" },
		{ WIRE, "10.0.0.1", -EINVAL, "is not IP:PORT" },
	};
	char why[SRDMA_PORT_VERBS_WHY_LEN];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_int_equal(
			verbs_port_refused(cases[i].kind, cases[i].listen, why),
			cases[i].err);
		assert_non_null(strstr(why, cases[i].text));
	}
}

static uint32_t scope_of(const struct sockaddr_storage *addr)
{
	return ((const struct sockaddr_in6 *)addr)->sin6_scope_id;
}

static void test_link_local_addresses_get_the_interface(void **state)
{
	struct srdma_port *port = verbs_port_open(WIRE, "[fe80::1]:7");
	struct srdma_conn *conn;

	(void)state;
	assert_int_equal(scope_of(&fake_verbs.bound), 7);
	assert_int_equal(port->ops->connect(port, "[fe80::2]:7", &conn), 0);
	assert_int_equal(scope_of(&fake_verbs.resolved), 7);
	assert_int_equal(port->ops->connect(port, "[2001:db8::2]:7", &conn), 0);
	assert_int_equal(scope_of(&fake_verbs.resolved), 0);
	port->ops->destroy(port);
}

/* --- time limits -------------------------------------------------------- */

/* Time from the first transmission to transmission n, n from 0, ns. */
static uint64_t sent_at(const struct ibv_qp_attr *attr, unsigned n)
{
	return n * (UINT64_C(4096) << attr->timeout);
}

static void test_leg_survives_8_s_and_a_wire_ends_sooner(void **state)
{
	struct srdma_port *legs = verbs_port_open(LEG, NULL);
	struct srdma_port *wires = verbs_port_open(WIRE, "10.0.0.1:0");
	struct fake_verbs_request r = verbs_port_request(LEG);
	const struct ibv_qp_attr *rts = &fake_verbs.rts;
	const uint64_t second = 1000000000;

	(void)state;
	verbs_port_leg(legs);
	assert_accepted(legs, &r);
	assert_true(sent_at(rts, rts->retry_cnt) > 8 * second);
	assert_true(sent_at(rts, rts->retry_cnt + 1U) +
			    SRDMA_LEG_BEAT_MS * UINT64_C(1000000) <
		    15 * second);
	assert_true(rts->retry_cnt < 7 && rts->rnr_retry < 7);
	r = verbs_port_request(WIRE);
	assert_accepted(wires, &r);
	assert_true(sent_at(rts, rts->retry_cnt + 1U) < 2 * second);
	assert_true(rts->retry_cnt < 7 && rts->rnr_retry < 7);
	legs->ops->destroy(legs);
	wires->ops->destroy(wires);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_leg_listener_accepts_its_host,
				       setup),
		cmocka_unit_test_setup(test_wire_listener_accepts_a_worker,
				       setup),
		cmocka_unit_test_setup(
			test_requests_without_confirmation_are_few, setup),
		cmocka_unit_test_setup(test_leg_listener_refuses_other_requests,
				       setup),
		cmocka_unit_test_setup(
			test_wire_listener_refuses_other_requests, setup),
		cmocka_unit_test_setup(test_request_over_ipv6, setup),
		cmocka_unit_test_setup(
			test_flood_of_requests_takes_several_polls, setup),
		cmocka_unit_test_setup(
			test_default_address_is_the_first_ipv4_else_ipv6,
			setup),
		cmocka_unit_test_setup(
			test_device_without_a_usable_address_is_refused, setup),
		cmocka_unit_test_setup(test_named_addresses, setup),
		cmocka_unit_test_setup(test_wrong_addresses_are_refused, setup),
		cmocka_unit_test_setup(
			test_link_local_addresses_get_the_interface, setup),
		cmocka_unit_test_setup(
			test_leg_survives_8_s_and_a_wire_ends_sooner, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
