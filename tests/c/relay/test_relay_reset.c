/* QPs that keep their QPN: RESET and REINIT of the control socket
 * (docs/local-interface.md 3.6). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "path/path.h"
#include "relay/relay_impl.h"
#include "support/relay_pair.h"

enum { SIZE = 1000 };

static struct pair p;
static int late; /* 1: the next datagram of side 0 does not arrive now */
static uint8_t packet[SRDMA_MAX_PACKET];
static uint32_t packet_len;

static enum srdma_mem_fate fate(void *ctx, struct srdma_mem_datagram *d)
{
	(void)ctx;
	if (!late || d->side)
		return SRDMA_MEM_PASS;
	late = 0;
	memcpy(packet, d->data, d->len);
	packet_len = d->len;
	return SRDMA_MEM_DROP;
}

static void open_pair(void)
{
	late = 0;
	pair_defaults(&p);
	p.wire.fate = fate;
	pair_open(&p);
	pair_connect(&p, 0);
}

static uint32_t qpn_of(int side)
{
	return p.side[side].qp[0].qpn;
}

static int reset(int side, uint32_t posted)
{
	return srdma_relay_qp_reset(p.side[side].relay, p.side[side].leg,
				    qpn_of(side), posted);
}

static int reinit(int side, uint32_t sq)
{
	const struct srdma_qp_params params = { .sq = sq, .rq = 64 };
	uint32_t records;

	return srdma_relay_qp_reinit(p.side[side].relay, p.side[side].leg,
				     qpn_of(side), &params, &p.side[side].qp[0],
				     &records);
}

/* Both ends are reset, and connected again under their QPNs. */
static void renew(void)
{
	uint32_t qpns[2] = { qpn_of(0), qpn_of(1) };

	for (int side = 0; side < 2; side++)
		while (reset(side, 0))
			pair_run(&p, 1);
	for (int side = 0; side < 2; side++) {
		assert_int_equal(reinit(side, 64), 0);
		assert_int_equal(qpn_of(side), qpns[side]);
		assert_int_equal(pair_state(&p, side, 0, NULL), SRDMA_QP_INIT);
	}
	p.life++; /* as the transcript of another key exchange */
	pair_meet(&p, 0);
}

static void write_from_0(uint64_t id, uint8_t byte)
{
	const struct srdma_desc d = {
		.opcode = SRDMA_DESC_WRITE,
		.id = id,
		.length = SIZE,
		.local_addr = (uintptr_t)p.side[0].memory,
		.remote_addr = (uintptr_t)p.side[1].memory,
	};

	memset(p.side[0].memory, byte, SIZE);
	pair_post(&p, 0, d, NULL);
}

static void expect_bytes(uint8_t byte)
{
	for (int i = 0; i < SIZE; i++)
		assert_int_equal(p.side[1].memory[i], byte);
}

static void test_same_qpns_again_and_again(void **state)
{
	(void)state;
	open_pair();
	for (uint8_t i = 1; i < 5; i++) {
		write_from_0(i, i);
		pair_settle(&p);
		pair_expect(&p, 0, i, SRDMA_REASON_NONE);
		expect_bytes(i);
		renew();
	}
	pair_expect_none(&p, 0);
	pair_close(&p);
}

/* A WRITE of the former QP that arrives late does not verify. */
static void test_late_packet_of_the_former_qp(void **state)
{
	uint64_t tags;

	(void)state;
	open_pair();
	write_from_0(1, 1);
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
	late = 1;
	write_from_0(2, 2);
	pair_run(&p, 4);
	assert_true(packet_len > SIZE);
	expect_bytes(1);
	renew();
	tags = pair_refused(&p, 1, SRDMA_REFUSED_TAG);
	assert_int_equal(
		srdma_port_mem_inject(srdma_path_conn(srdma_relay_qp(
					      p.side[1].relay, qpn_of(1))),
				      packet, packet_len),
		0);
	pair_settle(&p);
	assert_int_equal(pair_refused(&p, 1, SRDMA_REFUSED_TAG), tags + 1);
	expect_bytes(1);
	write_from_0(3, 3);
	pair_settle(&p);
	pair_expect(&p, 0, 3, SRDMA_REASON_NONE);
	expect_bytes(3);
	pair_close(&p);
}

/* RESET waits for the descriptors that the host posted before. */
static void test_descriptors_of_before_are_taken_first(void **state)
{
	(void)state;
	open_pair();
	write_from_0(1, 1);
	for (int i = 0; i < 2000; i++) {
		assert_int_equal(reset(0, 2), -EINPROGRESS);
		pair_wait_ms(&p, 1);
	}
	write_from_0(2, 2);
	pair_settle(&p);
	assert_int_equal(reset(0, 2), 0);
	assert_int_equal(reset(0, 0), 0); /* it may be repeated */
	pair_expect_none(&p, 0);
	assert_int_equal(reinit(0, 64), 0);
	pair_settle(&p);
	pair_expect_none(&p, 0);
	assert_int_equal(p.side[1].memory[0], 0);
	pair_close(&p);
}

static void test_the_qpn_is_not_free(void **state)
{
	uint32_t reason;

	(void)state;
	open_pair();
	while (reset(0, 0))
		pair_run(&p, 1);
	pair_wait_ms(&p, 60000);
	assert_int_equal(pair_state(&p, 0, 0, &reason), SRDMA_QP_ERR);
	assert_int_equal(reason, SRDMA_REASON_PEER_CLOSED);
	assert_int_equal(srdma_relay_qp_destroy(p.side[0].relay, p.side[0].leg,
						qpn_of(0)),
			 0);
	assert_int_equal(reset(0, 0), -ENOENT);
	assert_int_equal(reinit(0, 64), -ENOENT);
	pair_close(&p);
}

static void test_refusals(void **state)
{
	(void)state;
	open_pair();
	assert_int_equal(reinit(0, 64), -EINVAL);
	assert_non_null(
		strstr(srdma_relay_why(p.side[0].relay), "was not reset"));
	assert_int_equal(reset(0, 2 * SRDMA_MAX_RING + 1), -EINVAL);
	assert_non_null(strstr(srdma_relay_why(p.side[0].relay),
			       "at most 131072 more"));
	assert_int_equal(pair_state(&p, 0, 0, NULL), SRDMA_QP_RTS);
	assert_int_equal(reset(0, 2 * SRDMA_MAX_RING), -EINPROGRESS);
	assert_int_equal(reset(0, 1), -EINPROGRESS);
	assert_int_equal(reinit(0, 64), -EINVAL);
	while (reset(0, 0))
		pair_run(&p, 1);
	/* A QP that cannot be made leaves none. */
	assert_int_equal(reinit(0, 4097), -EINVAL);
	assert_int_equal(reset(0, 0), -ENOENT);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_qpns_again_and_again),
		cmocka_unit_test(test_late_packet_of_the_former_qp),
		cmocka_unit_test(test_descriptors_of_before_are_taken_first),
		cmocka_unit_test(test_the_qpn_is_not_free),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
