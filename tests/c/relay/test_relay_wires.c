/* Ownership of wire connections when a QP moves from one to another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "relay/leg.h"
#include "support/inside.h"
#include "support/relay_pair.h"

/* QP 0 is connected by side 0, QP 1 by side 1: two connections. */
static void open_both_ways(struct pair *p)
{
	struct srdma_qp_keys k;

	pair_defaults(p);
	pair_open(p);
	pair_connect(p, 0);
	pair_init_qp(p, 1);
	for (int side = 0; side < 2; side++) {
		pair_keys(p, side, 1, &k);
		k.role = (uint8_t)!side;
		assert_int_equal(srdma_relay_qp_keys(p->side[side].relay,
						     p->side[side].leg, &k),
				 0);
	}
	pair_settle(p);
	assert_int_equal(pair_state(p, 0, 1, NULL), SRDMA_QP_RTS);
}

static struct srdma_qp *qp_at(struct pair *p, int side, int i)
{
	return srdma_relay_qp(p->side[side].relay, p->side[side].qp[i].qpn);
}

/* Injects a packet of side 1's QP i at side 0 on that connection. */
static void say_on(struct pair *p, int i, struct srdma_conn *wire)
{
	struct srdma_qp *from = qp_at(p, 1, i);
	struct srdma_packet ping = {
		.opcode = SRDMA_OP_ACKNOWLEDGE,
		.ack = { .kind = SRDMA_ACK_PING },
	};
	uint8_t out[SRDMA_MAX_PACKET];
	int len = srdma_session_seal(srdma_qp_session(from), &ping, NULL, out,
				     sizeof(out));

	assert_true(len > 0);
	assert_int_equal(srdma_port_mem_inject(wire, out, (uint32_t)len), 0);
	pair_settle(p);
}

static void write_something(struct pair *p, uint64_t id)
{
	struct srdma_desc d = { .opcode = SRDMA_DESC_WRITE,
				.id = id,
				.length = 8 };

	d.local_addr = (uintptr_t)p->side[0].memory;
	d.remote_addr = (uintptr_t)p->side[1].memory;
	pair_post(p, 0, d, NULL);
	pair_settle(p);
	pair_expect(p, 0, id, SRDMA_REASON_NONE);
}

static void destroy(struct pair *p, int side, int i)
{
	while (srdma_relay_qp_destroy(p->side[side].relay, p->side[side].leg,
				      p->side[side].qp[i].qpn))
		pair_wait_ms(p, 1);
}

/*
 * A QP that moves to a connection made for another QP does not own it:
 * destroying the QP leaves the connection open.
 */
static void test_moved_qp_does_not_close_connection(void **state)
{
	struct pair p;

	(void)state;
	open_both_ways(&p);
	say_on(&p, 1, srdma_path_conn(qp_at(&p, 0, 0)));
	assert_ptr_equal(srdma_path_conn(qp_at(&p, 0, 1)),
			 srdma_path_conn(qp_at(&p, 0, 0)));
	destroy(&p, 0, 1);
	write_something(&p, 7);
	pair_close(&p);
}

/*
 * A QP that moved returns to its own connection with the next packet that
 * arrives there.
 */
static void test_moved_qp_returns_to_own_connection(void **state)
{
	struct srdma_conn *home;
	struct pair p;

	(void)state;
	open_both_ways(&p);
	home = srdma_path_conn(qp_at(&p, 0, 1));
	say_on(&p, 1, srdma_path_conn(qp_at(&p, 0, 0)));
	say_on(&p, 1, home);
	assert_ptr_equal(srdma_path_conn(qp_at(&p, 0, 1)), home);
	write_something(&p, 7);
	pair_close(&p);
}

/*
 * If the QP that made a connection is destroyed, the connection closes. A QP
 * that only moved there returns to the path that it remembers.
 */
static void test_moved_qp_returns_from_closed_connection(void **state)
{
	struct srdma_conn *former;
	struct pair p;

	(void)state;
	open_both_ways(&p);
	former = srdma_path_conn(qp_at(&p, 0, 1));
	say_on(&p, 1, srdma_path_conn(qp_at(&p, 0, 0)));
	destroy(&p, 0, 0);
	assert_ptr_equal(srdma_path_conn(qp_at(&p, 0, 1)), former);
	assert_int_equal(pair_state(&p, 0, 1, NULL), SRDMA_QP_RTS);
	destroy(&p, 0, 1);
	pair_close(&p);
}

/*
 * A QP that remembers no other path waits for the next packet of its peer, on any
 * connection.
 */
static void test_moved_qp_survives_close_of_connection(void **state)
{
	struct pair p;

	(void)state;
	open_both_ways(&p);
	say_on(&p, 1, srdma_path_conn(qp_at(&p, 0, 0)));
	srdma_path_remember(srdma_qp_path(qp_at(&p, 0, 1)), NULL);
	destroy(&p, 0, 0);
	assert_null(srdma_path_conn(qp_at(&p, 0, 1)));
	assert_int_equal(pair_state(&p, 0, 1, NULL), SRDMA_QP_RTS);
	say_on(&p, 1, p.side[0].relay->env.paths->paths->conn);
	assert_non_null(srdma_path_conn(qp_at(&p, 0, 1)));
	assert_int_equal(pair_state(&p, 0, 1, NULL), SRDMA_QP_RTS);
	destroy(&p, 0, 1);
	pair_close(&p);
}

/* A QP that made a connection and moved away keeps it, and returns to it. */
static void test_moved_qp_keeps_own_connection(void **state)
{
	struct srdma_conn *home, *other;
	struct srdma_record event;
	struct pair p;

	(void)state;
	open_both_ways(&p);
	home = srdma_path_conn(qp_at(&p, 0, 0));
	other = srdma_path_conn(qp_at(&p, 0, 1));
	assert_ptr_not_equal(home, other);
	say_on(&p, 0, other);
	assert_ptr_equal(srdma_path_conn(qp_at(&p, 0, 0)), other);
	assert_int_equal(pair_state(&p, 1, 0, NULL), SRDMA_QP_RTS);
	destroy(&p, 1, 1); /* the QP that made the other connection */
	pair_settle(&p);
	assert_ptr_equal(srdma_path_conn(qp_at(&p, 0, 0)), home);
	assert_int_equal(pair_state(&p, 0, 0, NULL), SRDMA_QP_RTS);
	assert_int_equal(pair_record(&p, 0, &event), 1); /* event of QP 1 */
	write_something(&p, 7);
	destroy(&p, 0, 0);
	pair_settle(&p);
	assert_null(p.side[0].relay->env.paths->paths);
	pair_close(&p);
}

/* A packet that a newer one overtook does not move the QP. */
static void test_late_packet_does_not_move_qp(void **state)
{
	struct srdma_packet ping = {
		.opcode = SRDMA_OP_ACKNOWLEDGE,
		.ack = { .kind = SRDMA_ACK_PING },
	};
	uint8_t late[SRDMA_MAX_PACKET];
	struct srdma_conn *home, *other;
	struct pair p;
	int len;

	(void)state;
	open_both_ways(&p);
	home = srdma_path_conn(qp_at(&p, 0, 0));
	other = srdma_path_conn(qp_at(&p, 0, 1));
	len = srdma_session_seal(srdma_qp_session(qp_at(&p, 1, 0)), &ping, NULL,
				 late, sizeof(late));
	assert_true(len > 0);
	say_on(&p, 0, home);
	assert_int_equal(srdma_port_mem_inject(other, late, (uint32_t)len), 0);
	pair_settle(&p);
	assert_int_equal(pair_refused(&p, 0, SRDMA_REFUSED_REPLAY), 0);
	assert_ptr_equal(srdma_path_conn(qp_at(&p, 0, 0)), home);
	pair_close(&p);
}

/*
 * No QP sends any more on the connection that the QP left: it is unbound, and
 * is closed after half of the silence limit. The peer reconnects and the QP
 * follows. A third party that diverts a QP by one packet therefore interrupts
 * it for some seconds only.
 */
static void test_diverted_qp_follows_reconnect(void **state)
{
	struct srdma_conn *theirs;
	struct srdma_qp *qp;
	struct pair p;

	(void)state;
	open_both_ways(&p);
	qp = qp_at(&p, 0, 1); /* connected by side 1 */
	theirs = srdma_path_conn(qp_at(&p, 0, 0));
	say_on(&p, 1, theirs);
	assert_ptr_equal(srdma_path_conn(qp), theirs);
	pair_wait_ms(&p, 7400);
	assert_ptr_equal(srdma_path_conn(qp), theirs);
	pair_wait_ms(&p, 200);
	assert_ptr_not_equal(srdma_path_conn(qp), theirs);
	assert_int_equal(pair_state(&p, 0, 1, NULL), SRDMA_QP_RTS);
	assert_int_equal(srdma_relay_stats(p.side[1].relay)->wires_dialed, 1);
	assert_null(p.side[0].relay->env.paths->paths->next->next);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_moved_qp_does_not_close_connection),
		cmocka_unit_test(test_moved_qp_returns_to_own_connection),
		cmocka_unit_test(test_moved_qp_returns_from_closed_connection),
		cmocka_unit_test(test_moved_qp_survives_close_of_connection),
		cmocka_unit_test(test_moved_qp_keeps_own_connection),
		cmocka_unit_test(test_late_packet_does_not_move_qp),
		cmocka_unit_test(test_diverted_qp_follows_reconnect),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
