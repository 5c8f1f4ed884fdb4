/*
 * Relays over the wire of the embedded NIC, when connections fail
 * (docs/protocol.md 7; local-interface.md 4).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "port/shm/port_shm_wire.h"
#include "support/descriptors.h"
#include "support/inside.h"
#include "support/relay_pair.h"
#include "support/shm_pair.h"

enum { SIZE = 200000, MESSAGE = 5000, CUTS = 100 };

struct place {
	struct pair p;
	char dir[64];
};

static void begin(struct place *s)
{
	memset(s, 0, sizeof(*s));
	shm_make_dir(s->dir);
	pair_defaults(&s->p);
	pair_open_on(&s->p, shm_wire(s->dir, "a", 0), shm_wire(s->dir, "b", 0));
}

static void end(struct place *s)
{
	pair_close(&s->p);
	assert_int_equal(rmdir(s->dir), 0);
}

static struct srdma_qp *qp_at(struct pair *p, int side, int i)
{
	return srdma_relay_qp(p->side[side].relay, p->side[side].qp[i].qpn);
}

static int socket_of(struct pair *p, int side)
{
	struct srdma_path *link = p->side[side].relay->env.paths->paths;

	return link ? srdma_shm_link_of(srdma_shm_conn_of(link->conn))->sock
		    : -1;
}

/*
 * Closes the socket that a connection depends on. Waits first until the last
 * cut is repaired.
 */
static void cut(struct pair *p, int side)
{
	while (socket_of(p, side) < 0)
		pair_run(p, 1);
	assert_int_equal(shutdown(socket_of(p, side), SHUT_RDWR), 0);
}

/*
 * The port looks at its sockets in few turns only: run enough turns for each of
 * them.
 */
static void look(struct pair *p)
{
	pair_run(p, 600);
}

static void join(struct pair *p, int i)
{
	struct srdma_qp_keys k;

	pair_init_qp(p, i);
	for (int side = 1; side >= 0; side--) {
		pair_keys(p, side, i, &k);
		assert_int_equal(srdma_relay_qp_keys(p->side[side].relay,
						     p->side[side].leg, &k),
				 0);
	}
	look(p);
	assert_int_equal(pair_state(p, 0, i, NULL), SRDMA_QP_RTS);
	assert_int_equal(pair_state(p, 1, i, NULL), SRDMA_QP_RTS);
}

static void request(struct pair *p, int side, int i, uint8_t opcode)
{
	struct srdma_desc d = { .opcode = opcode,
				.qpn = p->side[side].qp[i].qpn,
				.id = opcode,
				.length = SIZE };

	if (opcode == SRDMA_DESC_SEND || opcode == SRDMA_DESC_RECV)
		d.length = MESSAGE;
	d.local_addr = (uintptr_t)p->side[side].memory + (uint32_t)i * SIZE;
	if (opcode == SRDMA_DESC_READ || opcode == SRDMA_DESC_RECV)
		d.local_addr += PAIR_MEMORY / 2;
	d.remote_addr = (uintptr_t)p->side[!side].memory + (uint32_t)i * SIZE +
			(opcode == SRDMA_DESC_READ ? 0 : PAIR_MEMORY / 4);
	pair_post(p, side, d, NULL);
}

static void await(struct pair *p, int side, int n)
{
	struct srdma_record r;

	for (int turns = 0; n && turns < 1000; turns++) {
		pair_settle(p);
		for (; n && pair_record(p, side, &r); n--)
			assert_int_equal(r.vendor_err, SRDMA_REASON_NONE);
		p->now += 1000000;
	}
	assert_int_equal(n, 0);
	pair_expect_none(p, side);
}

/*
 * Expects the WRITE and READ bytes on both sides. The SEND bytes equal the
 * first bytes of the READ and have the same destination.
 */
static void check_data(struct pair *p, int i)
{
	for (int side = 0; side < 2; side++) {
		const uint8_t *own = p->side[side].memory + i * SIZE;
		const uint8_t *far = p->side[!side].memory + i * SIZE;

		assert_memory_equal(own, far + PAIR_MEMORY / 4, SIZE);
		assert_memory_equal(own + PAIR_MEMORY / 2, far, SIZE);
	}
}

static void fill(struct pair *p, uint32_t seed)
{
	for (int side = 0; side < 2; side++)
		for (uint32_t i = 0; i < 2 * SIZE; i++) {
			seed = seed * 1103515245 + 12345;
			p->side[side].memory[i] = (uint8_t)(seed >> 16);
		}
}

/* Two QPs share a ring pair; both continue over the next connection. */
static void test_transfers_survive_lost_connections(void **state)
{
	struct place s;
	int fds = 0;

	(void)state;
	begin(&s);
	join(&s.p, 0);
	join(&s.p, 1);
	assert_ptr_equal(srdma_path_conn(qp_at(&s.p, 0, 0)),
			 srdma_path_conn(qp_at(&s.p, 0, 1)));
	for (uint32_t n = 0; n < CUTS; n++) {
		fill(&s.p, n);
		for (int q = 0; q < 4; q++) {
			request(&s.p, q & 1, q >> 1, SRDMA_DESC_RECV);
			request(&s.p, q & 1, q >> 1, SRDMA_DESC_WRITE);
		}
		for (int q = 0; q < 4; q++) {
			request(&s.p, q & 1, q >> 1, SRDMA_DESC_SEND);
			request(&s.p, q & 1, q >> 1, SRDMA_DESC_READ);
		}
		pair_run(&s.p, 1 + (int)n % 29);
		cut(&s.p, n & 1);
		await(&s.p, 0, 8);
		await(&s.p, 1, 8);
		check_data(&s.p, 0);
		check_data(&s.p, 1);
		if (n && n < CUTS - 1)
			continue;
		s.p.now += 20 * SRDMA_MS; /* until the QPs connect again */
		look(&s.p);
		if (!n)
			fds = count_descriptors();
	}
	assert_int_equal(count_descriptors(), fds);
	assert_in_range(srdma_relay_stats(s.p.side[0].relay)->wires_lost, CUTS,
			2 * CUTS);
	assert_null(s.p.side[0].relay->env.paths->paths->next);
	assert_null(s.p.side[1].relay->env.paths->paths->next);
	end(&s);
}

/*
 * Destroys the relay without a connection, so that it sends no CLOSE, like a
 * killed process.
 */
static void kill_server(struct pair *p)
{
	while (p->side[1].relay->env.paths->paths)
		srdma_relay_run(p->side[1].relay, p->now, 64);
	srdma_relay_destroy(p->side[1].relay);
	free(p->side[1].memory);
}

/*
 * A worker that restarts under the same name is connected but does not know the
 * QP. The QP fails after the silence limit, and new QPs work.
 */
static void test_restarted_peer_fails_old_qp(void **state)
{
	struct place s;
	struct pair *p = &s.p;
	uint32_t reason;

	(void)state;
	begin(&s);
	join(p, 0);
	request(p, 0, 0, SRDMA_DESC_WRITE);
	cut(p, 1);
	kill_server(p);
	p->side[1].consumed = 0;
	pair_open_side(p, 1, shm_wire(s.dir, "b", 0));
	for (int i = 0; i < 140; i++) {
		look(p);
		pair_wait_ms(p, 99);
	}
	assert_int_equal(pair_state(p, 0, 0, NULL), SRDMA_QP_RTS);
	assert_true(pair_refused(p, 1, SRDMA_REFUSED_UNKNOWN_QP) > 0);
	for (int i = 0; i < 20; i++) {
		look(p);
		pair_wait_ms(p, 99);
	}
	pair_expect(p, 0, SRDMA_DESC_WRITE, SRDMA_REASON_WIRE_LOST);
	assert_int_equal(pair_state(p, 0, 0, &reason), SRDMA_QP_ERR);
	assert_int_equal(reason, SRDMA_REASON_WIRE_LOST);
	p->life++;
	join(p, 1);
	p->side[0].consumed++; /* skip the event of QP 0 */
	request(p, 0, 1, SRDMA_DESC_WRITE);
	await(p, 0, 1);
	end(&s);
}

/* No worker has the name: connects are repeated until the silence limit. */
static void test_absent_peer_fails_qp_after_silence(void **state)
{
	struct place s;
	struct pair *p = &s.p;
	uint64_t dialed;

	(void)state;
	begin(&s);
	join(p, 0);
	cut(p, 1);
	kill_server(p);
	for (int i = 0; i < 2000; i++) {
		p->now += 10000000;
		srdma_relay_run(p->side[0].relay, p->now, 64);
	}
	assert_int_equal(pair_state(p, 0, 0, NULL), SRDMA_QP_ERR);
	dialed = srdma_relay_stats(p->side[0].relay)->wires_dialed;
	assert_in_range(dialed, 15, 25);
	assert_null(p->side[0].relay->env.paths->paths);
	srdma_relay_destroy(p->side[0].relay);
	free(p->side[0].memory);
	assert_int_equal(rmdir(s.dir), 0);
}

/* Enough QPs that the relays prefetch: one request of each in one burst. */
static void test_many_qps_with_prefetch(void **state)
{
	enum { CROWD = 150, EACH = 100 };
	struct srdma_qp_info qp[CROWD];
	struct place s;
	struct pair *p = &s.p;

	(void)state;
	begin(&s);
	p->depth = 1;
	fill(p, 1);
	for (int i = 0; i < CROWD; i++) {
		p->life = (uint8_t)i;
		join(p, 0);
		qp[i] = p->side[0].qp[0];
	}
	for (int lap = 0; lap < 3; lap++) {
		for (uint32_t i = 0; i < CROWD; i++)
			pair_post(p, 0,
				  (struct srdma_desc){
					  .opcode = SRDMA_DESC_WRITE,
					  .qpn = qp[i].qpn,
					  .id = i,
					  .length = EACH,
					  .local_addr =
						  (uintptr_t)p->side[0].memory +
						  i * EACH,
					  .remote_addr =
						  (uintptr_t)p->side[1].memory +
						  SIZE + i * EACH,
				  },
				  NULL);
		await(p, 0, CROWD);
		assert_memory_equal(p->side[1].memory + SIZE, p->side[0].memory,
				    CROWD * EACH);
		fill(p, (uint32_t)lap);
	}
	end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_qps_with_prefetch),
		cmocka_unit_test(test_transfers_survive_lost_connections),
		cmocka_unit_test(test_restarted_peer_fails_old_qp),
		cmocka_unit_test(test_absent_peer_fails_qp_after_silence),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
