/* Heartbeats of legs over verbs (docs/local-interface.md 2.4). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/time.h"
#include "port/leg_time.h"
#include "support/verbs_port.h"
#include "wire/wire.h"

#define BEAT	(SRDMA_LEG_BEAT_MS * SRDMA_MS)
#define SILENCE (SRDMA_LEG_SILENCE_MS * SRDMA_MS)
#define START	(100 * SRDMA_SECOND)

struct stand {
	struct srdma_port *port;
	struct srdma_conn *leg;
};

static int setup(void **state)
{
	static struct stand s;

	fake_verbs_reset();
	s.port = verbs_port_open(SRDMA_PORT_VERBS_HOST, NULL);
	s.leg = verbs_port_leg(s.port);
	*state = &s;
	return 0;
}

static void connect_host(struct stand *s)
{
	const struct fake_verbs_request r =
		verbs_port_request(SRDMA_PORT_VERBS_HOST);

	fake_verbs_request(&r);
	verbs_port_next(s->port);
	fake_verbs_event(fake_verbs.id, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(verbs_port_next(s->port).kind, SRDMA_EV_UP);
}

static int setup_connected(void **state)
{
	setup(state);
	connect_host(*state);
	return 0;
}

static int teardown(void **state)
{
	struct stand *s = *state;

	s->port->ops->destroy(s->port);
	return 0;
}

static uint64_t look(struct stand *s, uint64_t now)
{
	const uint64_t next = s->port->ops->keepalive(s->port, now);

	s->port->ops->flush(s->port);
	return next;
}

/* The last send completes. */
static void acknowledge(struct stand *s)
{
	fake_verbs_complete(fake_verbs.sends - 1, IBV_WC_SUCCESS);
	assert_int_equal(verbs_port_next(s->port).kind, 0);
}

static void assert_down(struct stand *s, int status)
{
	const struct srdma_event ev = verbs_port_next(s->port);

	assert_int_equal(ev.kind, SRDMA_EV_DOWN);
	assert_int_equal(ev.status, status);
	assert_ptr_equal(ev.conn, s->leg);
}

/* Queues completion records until there is no more room. Returns their number. */
static uint32_t fill(struct stand *s, uint32_t most)
{
	static const uint8_t record[SRDMA_RECORD_LEN];
	uint32_t n = 0;

	while (n < most && !s->port->ops->complete(s->leg, n, record))
		n++;
	s->port->ops->flush(s->port);
	return n;
}

static void test_heartbeat_is_a_signaled_write_of_length_0(void **state)
{
	const struct fake_verbs_send *send = &fake_verbs.sent[0];
	struct stand *s = *state;

	assert_int_equal(look(s, START), START + BEAT);
	assert_int_equal(fake_verbs.sends, 1);
	assert_int_equal(send->wr.opcode, IBV_WR_RDMA_WRITE);
	assert_int_equal(send->wr.num_sge, 0);
	assert_true(send->wr.send_flags & IBV_SEND_SIGNALED);
	assert_int_equal(send->wr.wr.rdma.rkey, VERBS_PORT_RKEY);
	assert_true(send->wr.wr.rdma.remote_addr == VERBS_PORT_RING_ADDR);
}

static void test_leg_without_a_host_gets_no_heartbeats(void **state)
{
	struct stand *s = *state;

	assert_true(look(s, START) == SRDMA_NEVER);
	assert_int_equal(fake_verbs.sends, 0);
	connect_host(s);
	assert_true(look(s, START) == START + BEAT);
	assert_int_equal(fake_verbs.sends, 1);
}

static void test_next_heartbeat_follows_after_an_interval(void **state)
{
	struct stand *s = *state;

	look(s, START);
	acknowledge(s);
	assert_true(look(s, START + BEAT - 1) == START + BEAT);
	assert_int_equal(fake_verbs.sends, 1);
	assert_true(look(s, START + BEAT) == START + 2 * BEAT);
	assert_int_equal(fake_verbs.sends, 2);
}

static void test_one_heartbeat_is_under_way_at_most(void **state)
{
	struct stand *s = *state;
	uint64_t now;

	look(s, START);
	for (now = START + BEAT; now < START + SILENCE; now += BEAT) {
		assert_true(look(s, now) ==
			    srdma_time_earlier(now + BEAT, START + SILENCE));
		assert_int_equal(fake_verbs.sends, 1);
	}
	look(s, START + SILENCE - 1);
	acknowledge(s); /* the packet of the last retry arrived */
	look(s, START + SILENCE);
	assert_int_equal(fake_verbs.sends, 2);
	assert_int_equal(verbs_port_next(s->port).kind, 0);
}

static void test_leg_ends_without_an_ack(void **state)
{
	struct stand *s = *state;

	look(s, START);
	look(s, START + SILENCE - 1);
	assert_int_equal(verbs_port_next(s->port).kind, 0);
	assert_true(look(s, START + SILENCE) == SRDMA_NEVER);
	assert_down(s, -ETIMEDOUT);
	assert_int_equal(fake_verbs.disconnected, 1);
}

/* The worker was stopped, or its turn was long: the device has the ack. */
static void test_ack_that_waits_in_the_cq_keeps_the_leg(void **state)
{
	struct stand *s = *state;

	look(s, START);
	for (int i = 0; i < 40; i++) /* more than a burst */
		fake_verbs_receive(0);
	fake_verbs_complete(0, IBV_WC_SUCCESS);
	assert_true(look(s, START + SILENCE) == START + SILENCE + BEAT);
	assert_int_equal(fake_verbs.sends, 2);
	assert_int_equal(verbs_port_next(s->port).kind, 0);
}

static void test_failure_that_waits_in_the_cq_ends_the_leg(void **state)
{
	struct stand *s = *state;

	look(s, START);
	fake_verbs_complete(0, IBV_WC_RETRY_EXC_ERR);
	assert_true(look(s, START + SILENCE) == SRDMA_NEVER);
	assert_down(s, -EIO);
}

static void test_dma_under_way_fails_with_the_leg(void **state)
{
	struct stand *s = *state;
	struct srdma_region_params params = {
		.addr = 0x1000, .length = 64, .host_rkey = 5, .fd = -1
	};
	struct srdma_dma dma = { .len = 64, .cookie = 9 };
	struct srdma_event ev;

	dma.buf = s->port->ops->buf_get(s->port);
	dma.addr = params.addr;
	assert_int_equal(
		s->port->ops->region_open(s->leg, &params, &dma.region), 0);
	assert_int_equal(s->port->ops->write(&dma), 0);
	look(s, START);
	look(s, START + SILENCE);
	ev = verbs_port_next(s->port);
	assert_int_equal(ev.kind, SRDMA_EV_DMA_DONE);
	assert_int_equal(ev.status, -EIO);
	assert_int_equal(ev.cookie, 9);
	assert_down(s, -ETIMEDOUT);
	s->port->ops->region_close(dma.region);
	s->port->ops->buf_put(dma.buf);
}

static void test_leg_ends_when_the_device_gives_up(void **state)
{
	struct stand *s = *state;

	look(s, START);
	fake_verbs_complete(0, IBV_WC_RETRY_EXC_ERR);
	assert_down(s, -EIO);
	assert_true(look(s, START + BEAT) == SRDMA_NEVER);
}

static void test_records_without_a_completion_end_no_leg(void **state)
{
	struct stand *s = *state;
	uint64_t now = START;

	assert_int_equal(fill(s, 5), 5); /* fewer than one signaled send */
	for (int i = 0; i < 20; i++, now += BEAT) {
		look(s, now);
		acknowledge(s);
	}
	assert_int_equal(fake_verbs.sends, 5 + 20);
}

static void test_full_queue_is_its_own_heartbeat(void **state)
{
	struct stand *s = *state;

	assert_int_equal(fill(s, UINT32_MAX), VERBS_PORT_SENDS);
	look(s, START);
	assert_int_equal(fake_verbs.sends, VERBS_PORT_SENDS);
	look(s, START + SILENCE - 1);
	fake_verbs_complete(VERBS_PORT_SENDS - 1, IBV_WC_SUCCESS);
	assert_int_equal(verbs_port_next(s->port).kind, 0);
	look(s, START + SILENCE);
	assert_int_equal(fake_verbs.sends, VERBS_PORT_SENDS + 1);
	assert_int_equal(verbs_port_next(s->port).kind, 0);
}

static void test_full_queue_without_an_ack_ends_the_leg(void **state)
{
	struct stand *s = *state;

	fill(s, UINT32_MAX);
	look(s, START);
	look(s, START + SILENCE);
	assert_down(s, -ETIMEDOUT);
}

static void test_heartbeats_of_the_host_are_dropped(void **state)
{
	struct stand *s = *state;
	const uint32_t receives = fake_verbs.receives;
	struct srdma_event ev;

	for (int i = 0; i < 800; i++) {
		fake_verbs_receive(0);
		assert_int_equal(verbs_port_next(s->port).kind, 0);
		assert_true(fake_verbs.receives > VERBS_PORT_RING);
	}
	assert_int_equal(fake_verbs.receives, receives);
	fake_verbs_receive(SRDMA_DESC_LEN);
	ev = verbs_port_next(s->port);
	assert_int_equal(ev.kind, SRDMA_EV_RECV);
	assert_int_equal(ev.buf->len, SRDMA_DESC_LEN);
	s->port->ops->buf_put(ev.buf);
}

static void test_wire_has_no_heartbeats_of_its_own(void **state)
{
	struct srdma_port *wire;

	(void)state;
	fake_verbs_reset();
	wire = verbs_port_open(SRDMA_PORT_VERBS_WIRE, "10.0.0.1:0");
	assert_null(wire->ops->keepalive);
	wire->ops->destroy(wire);
}

#define CONNECTED(test)                                                        \
	cmocka_unit_test_setup_teardown(test, setup_connected, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CONNECTED(test_heartbeat_is_a_signaled_write_of_length_0),
		cmocka_unit_test_setup_teardown(
			test_leg_without_a_host_gets_no_heartbeats, setup,
			teardown),
		CONNECTED(test_next_heartbeat_follows_after_an_interval),
		CONNECTED(test_one_heartbeat_is_under_way_at_most),
		CONNECTED(test_leg_ends_without_an_ack),
		CONNECTED(test_ack_that_waits_in_the_cq_keeps_the_leg),
		CONNECTED(test_failure_that_waits_in_the_cq_ends_the_leg),
		CONNECTED(test_dma_under_way_fails_with_the_leg),
		CONNECTED(test_leg_ends_when_the_device_gives_up),
		CONNECTED(test_records_without_a_completion_end_no_leg),
		CONNECTED(test_full_queue_is_its_own_heartbeat),
		CONNECTED(test_full_queue_without_an_ack_ends_the_leg),
		CONNECTED(test_heartbeats_of_the_host_are_dropped),
		cmocka_unit_test(test_wire_has_no_heartbeats_of_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
