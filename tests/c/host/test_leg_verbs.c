/* A host's leg over verbs, at a fake device (docs/local-interface.md 2.4). */
#include "host/leg_verbs.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "host/error.h"
#include "host/leg_verbs_impl.h"
#include "host/socket.h"
#include "port/leg_time.h"
#include "srdma/device.h"
#include "srdma/types.h"
#include "support/fake_rdma.h"
#include "support/says.h"

enum {
	RING = 64,
	SPARE = 80, /* receives beyond the ring */
	SLOTS = SRDMA_VERBS_QUEUE_SLOTS,
	WAIT_MS = 5000
};

int srdma_rdma_load(const struct srdma_rdma **out)
{
	return fake_rdma_load(out);
}

static const struct srdma_leg_verbs_params params = {
	.address = "127.0.0.1:4791",
	.token = "the token of leg",
	.ring = RING,
};

static int try(struct srdma_host_leg **leg)
{
	return srdma_leg_verbs_create(leg, &params,
				      srdma_socket_deadline(WAIT_MS));
}

static struct srdma_host_leg *make(void)
{
	struct srdma_host_leg *leg;

	if (try(&leg))
		fail_msg("no leg: %s", srdma_error_text());
	return leg;
}

static int readable(const struct srdma_host_leg *leg, int ms)
{
	struct pollfd p = { .fd = leg->ops->fd(leg), .events = POLLIN };

	return poll(&p, 1, ms);
}

static void refuse(int rc, const char *text)
{
	struct srdma_host_leg *leg;

	srdma_error_set(0, "no text");
	assert_int_equal(try(&leg), rc);
	assert_null(leg);
	says(text);
	assert_int_equal(fake_rdma.objects, 0);
}

/* --- connecting ---------------------------------------------------------- */

static void test_request_has_token_and_ring(void **state)
{
	struct srdma_host_leg *leg = make();
	const uint8_t *hello = fake_rdma.hello;

	(void)state;
	assert_memory_equal(hello, "srdma\1\1\0the token of leg", 24);
	assert_int_equal(srdma_load64(hello + 24),
			 (uintptr_t)leg->ops->ring(leg));
	assert_int_equal(srdma_load32(hello + 32), FAKE_RKEY);
	assert_int_equal(srdma_load32(hello + 36), RING);
	for (int i = 40; i < FAKE_HELLO; i++)
		assert_int_equal(hello[i], 0);
	assert_int_equal(fake_rdma.param.qp_num, 77);
	assert_int_equal(fake_rdma.param.responder_resources, 16);
	assert_int_equal(fake_rdma.receives, RING + SPARE);
	for (int i = 0; i < RING * SRDMA_RECORD_LEN; i++)
		assert_int_equal(leg->ops->ring(leg)[i], 0);
	assert_null(leg->ops->ended(leg));
	assert_int_equal(fake_rdma.disconnected, 0);
	leg->ops->destroy(leg);
	assert_int_equal(fake_rdma.disconnected, 1);
}

/* A stall of 8 s is survived: packets are repeated for longer. */
static void test_limits_of_the_connection(void **state)
{
	const struct ibv_qp_attr *rts = &fake_rdma.attr[IBV_QPS_RTS];
	struct srdma_host_leg *leg;

	(void)state;
	fake_rdma.reads = 4;
	leg = make();
	assert_true(rts->retry_cnt * 4.096e-6 * (1U << rts->timeout) > 8);
	assert_in_range(rts->retry_cnt, 1, 6); /* 7 is no limit for rxe */
	assert_int_equal(rts->rnr_retry, 7);
	assert_int_equal(fake_rdma.param.retry_count, rts->retry_cnt);
	assert_int_equal(fake_rdma.param.rnr_retry_count, 7);
	assert_int_equal(fake_rdma.param.responder_resources, 4);
	assert_int_equal(fake_rdma.attr[IBV_QPS_RTR].min_rnr_timer, 20);
	leg->ops->destroy(leg);
}

static void test_rights_of_the_qp_follow_the_device(void **state)
{
	static const struct {
		enum ibv_atomic_cap cap;
		unsigned access;
	} cases[] = {
		{ IBV_ATOMIC_NONE,
		  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE },
		{ IBV_ATOMIC_HCA, IBV_ACCESS_REMOTE_READ |
					  IBV_ACCESS_REMOTE_WRITE |
					  IBV_ACCESS_REMOTE_ATOMIC },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct srdma_host_leg *leg;

		fake_rdma.atomics = cases[i].cap;
		leg = make();
		assert_int_equal(fake_rdma.attr[IBV_QPS_INIT].qp_access_flags,
				 cases[i].access);
		leg->ops->destroy(leg);
	}
}

static void test_device_without_much_inline_data(void **state)
{
	static const uint32_t most[] = { 512, 128, 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(most) / sizeof(*most); i++) {
		struct srdma_host_leg *leg;

		fake_rdma.inline_max = most[i];
		fake_rdma.sends = 0;
		leg = make();
		assert_non_null(leg->ops->slot(leg));
		assert_int_equal(leg->ops->post(leg, SRDMA_DESC_LEN), 0);
		assert_int_equal(leg->ops->post(leg, SRDMA_DESC_SLOT), 0);
		leg->ops->flush(leg);
		assert_int_equal(fake_rdma.sent[0].flags & IBV_SEND_INLINE,
				 most[i] ? IBV_SEND_INLINE : 0);
		assert_int_equal(fake_rdma.sent[1].flags & IBV_SEND_INLINE,
				 most[i] == 512 ? IBV_SEND_INLINE : 0);
		leg->ops->destroy(leg);
	}
}

static void test_every_failure_of_the_device(void **state)
{
	static const struct {
		const char *name;
		int after, error, rc;
		const char *text;
	} cases[] = {
		{ "load", 0, 0, -ENOTSUP, "no text" },
		{ "create_event_channel", 0, ENODEV, -ENODEV, "rdma_ucm" },
		{ "create_id", 0, ENOMEM, -ENOMEM, "rdma_create_id" },
		{ "resolve_addr", 0, ENODEV, -ENODEV, "rdma link" },
		{ "resolve_addr", 0, EIO, -EIO, "rdma_resolve_addr" },
		{ "get_cm_event", 0, EIO, -EIO, "rdma_get_cm_event" },
		{ "query_device", 0, EIO, -EIO, "querying the device" },
		{ "alloc_pd", 0, EIO, -EIO, "allocating a PD on fake0" },
		{ "create_comp_channel", 0, EMFILE, -EMFILE, "channel" },
		{ "create_cq", 0, EINVAL, -EINVAL, "creating a CQ" },
		{ "reg_mr", 0, ENOMEM, -ENOMEM, "ulimit -l" },
		{ "reg_mr", 1, EIO, -EIO, "the rings of a leg" },
		{ "create_qp", 0, ENOSPC, -ENOSPC, "creating a QP" },
		{ "resolve_route", 0, EIO, -EIO, "rdma_resolve_route" },
		{ "init_qp_attr", 0, EIO, -EIO, "rdma_init_qp_attr" },
		{ "modify_qp", 0, EIO, -EIO, "ibv_modify_qp" },
		{ "modify_qp", 1, EIO, -EIO, "ibv_modify_qp" },
		{ "modify_qp", 2, EIO, -EIO, "ibv_modify_qp" },
		{ "post_recv", 0, EINVAL, -EINVAL, "ibv_post_recv" },
		{ "connect", 0, EIO, -EIO, "rdma_connect" },
		{ "establish", 0, EIO, -EIO, "rdma_establish" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		fake_rdma_setup(state);
		fake_rdma.fails = cases[i].name;
		fake_rdma.after = cases[i].after;
		/* a QP is tried with less inline data */
		if (!strcmp(cases[i].name, "create_qp"))
			fake_rdma.inline_max = 0;
		fake_rdma.error = cases[i].error;
		refuse(cases[i].rc, cases[i].text);
	}
}

static void test_refusals_of_the_worker(void **state)
{
	static const struct {
		const char *data;
		uint8_t len;
		int rc;
		const char *text;
	} cases[] = {
		{ "", 0, -ECONNREFUSED, "no worker accepts legs at 127.0.0.1" },
		{ "srdma\1", 6, -ECONNREFUSED, "no worker" }, /* too short */
		{ "srdmb\1\1", 7, -ECONNREFUSED, "no worker" },
		{ "srdma\2\1", 7, -ECONNREFUSED, "no worker" },
		{ "srdma\1\1", 7, -EPROTO, "address is not for legs" },
		{ "srdma\1\2", 7, -EACCES, "no leg with this token and ring" },
		{ "srdma\1\3", 7, -EDQUOT, "limit of connections" },
		{ "srdma\1\4", 8, -EPROTO, "reason 4" },
	};

	(void)state;
	fake_rdma.connect_event = RDMA_CM_EVENT_REJECTED;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		memcpy(fake_rdma.reject, cases[i].data, cases[i].len);
		fake_rdma.reject_len = cases[i].len;
		refuse(cases[i].rc, cases[i].text);
	}
}

/* --- addresses ----------------------------------------------------------- */

static void test_address_without_a_route(void **state)
{
	static const char *const bad[] = { "", "leg", "127.0.0.1", "[::1]" };
	struct srdma_leg_verbs_params p = params;
	struct srdma_host_leg *leg;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		p.address = bad[i];
		assert_int_equal(srdma_leg_verbs_create(&leg, &p, 0), -EPROTO);
		says("is no address of a leg");
	}
	p.address = "255.255.255.255:4791";
	assert_true(srdma_leg_verbs_create(&leg, &p, 0) < 0);
	assert_null(leg);
	says("no route to the worker");
}

static void test_device_of_the_environment(void **state)
{
	(void)state;
	setenv("SRDMA_HOST_DEVICE", "no-such-device", 1);
	refuse(-ENODEV, "no-such-device is no RDMA device");
	unsetenv("SRDMA_HOST_DEVICE");
}

static void test_route_over_no_rdma_device(void **state)
{
	(void)state;
	fake_rdma.no_device = 1;
	refuse(-ENODEV, "begins at 127.0.0.1:0");
}

static void test_late_address_is_resolved_again(void **state)
{
	struct srdma_host_leg *leg;

	(void)state;
	fake_rdma.status = -ETIMEDOUT;
	fake_rdma.addr_events[0] = RDMA_CM_EVENT_ADDR_ERROR;
	fake_rdma.addr_events[1] = RDMA_CM_EVENT_ADDR_ERROR;
	fake_rdma.addr_events[2] = RDMA_CM_EVENT_ADDR_RESOLVED;
	leg = make();
	assert_int_equal(fake_rdma.resolved, 3);
	leg->ops->destroy(leg);
}

static void test_address_and_route_errors(void **state)
{
	(void)state;
	fake_rdma.status = -EHOSTUNREACH;
	fake_rdma.addr_events[0] = RDMA_CM_EVENT_ADDR_ERROR;
	refuse(-EHOSTUNREACH, "No route to host");
	fake_rdma.resolved = 0;
	fake_rdma.addr_events[0] = RDMA_CM_EVENT_ADDR_RESOLVED;
	fake_rdma.route_event = RDMA_CM_EVENT_ROUTE_ERROR;
	refuse(-EHOSTUNREACH, "connecting a leg to 127.0.0.1:4791");
	fake_rdma.resolved = 0;
	fake_rdma.route_event = RDMA_CM_EVENT_ROUTE_RESOLVED;
	fake_rdma.connect_event = RDMA_CM_EVENT_UNREACHABLE;
	refuse(-EHOSTUNREACH, "RDMA_CM_EVENT_UNREACHABLE");
}

static void test_silence_ends_at_the_deadline(void **state)
{
	struct srdma_host_leg *leg;

	(void)state;
	fake_rdma.connect_event = FAKE_SILENCE_;
	assert_int_equal(srdma_leg_verbs_create(&leg, &params,
						srdma_socket_deadline(50)),
			 -ETIMEDOUT);
	says("no answer in time");
	fake_rdma.resolved = 0;
	fake_rdma.addr_events[0] = FAKE_SILENCE_;
	assert_int_equal(srdma_leg_verbs_create(&leg, &params,
						srdma_socket_deadline(50)),
			 -ETIMEDOUT);
}

/* --- descriptors --------------------------------------------------------- */

static void post(struct srdma_host_leg *leg, uint8_t opcode, uint32_t len)
{
	uint8_t *slot = leg->ops->slot(leg);

	assert_non_null(slot);
	memset(slot, 0, SRDMA_DESC_SLOT);
	*slot = opcode;
	assert_int_equal(leg->ops->post(leg, len), 0);
}

static void test_descriptors_are_sends_in_order(void **state)
{
	struct srdma_host_leg *leg = make();

	(void)state;
	assert_int_equal(leg->ops->post(leg, 0), -EMSGSIZE);
	assert_int_equal(leg->ops->post(leg, SRDMA_DESC_SLOT + 1), -EMSGSIZE);
	for (uint32_t i = 0; i < 40; i++) {
		post(leg, (uint8_t)i, SRDMA_DESC_LEN + i);
		if (i % 3 == 0)
			leg->ops->flush(leg);
	}
	assert_int_equal(fake_rdma.sends, 40);
	leg->ops->flush(leg); /* nothing is posted twice */
	assert_int_equal(fake_rdma.sends, 40);
	for (uint32_t i = 0; i < 40; i++) {
		assert_int_equal(fake_rdma.sent[i].first, i);
		assert_int_equal(fake_rdma.sent[i].length, SRDMA_DESC_LEN + i);
		assert_int_equal(
			!!(fake_rdma.sent[i].flags & IBV_SEND_SIGNALED),
			i % 16 == 15);
	}
	leg->ops->destroy(leg);
}

static void test_full_leg_has_room_after_a_completion(void **state)
{
	struct srdma_host_leg *leg = make();
	uint32_t posted = 0;

	(void)state;
	for (; leg->ops->slot(leg); posted++)
		post(leg, (uint8_t)posted, SRDMA_DESC_LEN);
	assert_int_equal(posted, SLOTS);
	assert_int_equal(fake_rdma.sends, SLOTS); /* slot() flushed */
	fake_rdma_complete(IBV_WC_SEND, fake_rdma.sent[31].wr_id, 0);
	for (; leg->ops->slot(leg); posted++)
		post(leg, (uint8_t)posted, SRDMA_DESC_LEN);
	assert_int_equal(posted, SLOTS + 32);
	for (uint32_t i = 0; i < posted; i++)
		assert_int_equal(fake_rdma.sent[i].first, (uint8_t)i);
	leg->ops->destroy(leg);
}

static void test_receives_are_posted_again(void **state)
{
	struct srdma_host_leg *leg = make();

	(void)state;
	for (int i = 1; i <= 100; i++) {
		fake_rdma_complete(IBV_WC_RECV_RDMA_WITH_IMM, 0, 0);
		leg->ops->poll(leg);
		assert_in_range(fake_rdma.receives - (uint32_t)i,
				RING + SPARE - 15, RING + SPARE);
	}
	for (int i = 0; i < 80; i++) /* more than a poll takes at once */
		fake_rdma_complete(IBV_WC_RECV_RDMA_WITH_IMM, 0, 0);
	leg->ops->poll(leg);
	assert_int_equal(fake_rdma.receives, RING + SPARE + 176);
	leg->ops->destroy(leg);
}

/* --- sleeping ------------------------------------------------------------ */

static void test_completion_wakes_a_sleeper(void **state)
{
	struct srdma_host_leg *leg = make();

	(void)state;
	post(leg, 1, SRDMA_DESC_LEN);
	leg->ops->arm(leg);
	assert_int_equal(fake_rdma.sends, 1);
	assert_int_equal(readable(leg, 0), 0);
	fake_rdma_complete(IBV_WC_RECV_RDMA_WITH_IMM, 0, 0);
	assert_int_equal(readable(leg, 0), 1);
	assert_null(leg->ops->ended(leg)); /* does not consume the event */
	assert_int_equal(readable(leg, 0), 1);
	leg->ops->disarm(leg);
	assert_int_equal(readable(leg, 0), 0);
	fake_rdma_complete(IBV_WC_RECV_RDMA_WITH_IMM, 0, 0);
	assert_int_equal(readable(leg, 0), 0); /* not armed */
	leg->ops->destroy(leg);
}

/* --- the end ------------------------------------------------------------- */

static void expect_end(struct srdma_host_leg *leg, const char *why)
{
	assert_non_null(leg->ops->ended(leg));
	assert_non_null(strstr(leg->ops->ended(leg), why));
	assert_int_equal(fake_rdma.state, IBV_QPS_ERR);
	assert_null(leg->ops->slot(leg));
	/* for good */
	leg->ops->disarm(leg);
	leg->ops->arm(leg);
	assert_int_equal(readable(leg, 0), 1);
	leg->ops->poll(leg);
	leg->ops->destroy(leg);
}

/* --- heartbeats ---------------------------------------------------------- */

enum { BEAT = SRDMA_LEG_BEAT_MS, SILENCE = SRDMA_LEG_SILENCE_MS };

static const uint64_t BEAT_ID = 1ULL << 32;

static void beat_answered(struct srdma_host_leg *leg)
{
	fake_rdma_complete(IBV_WC_SEND, BEAT_ID, 0);
	leg->ops->poll(leg);
}

static void test_one_heartbeat_every_two_seconds(void **state)
{
	struct srdma_host_leg *leg = make();

	(void)state;
	leg->ops->keepalive(leg, 10000);
	assert_int_equal(fake_rdma.beats, 1);
	leg->ops->keepalive(leg, 10000 + BEAT); /* it is under way */
	assert_int_equal(fake_rdma.beats, 1);
	beat_answered(leg);
	leg->ops->keepalive(leg, 10000 + BEAT - 1);
	assert_int_equal(fake_rdma.beats, 1);
	leg->ops->keepalive(leg, 10000 + BEAT);
	assert_int_equal(fake_rdma.beats, 2);
	/* a heartbeat does not complete a descriptor */
	while (leg->ops->slot(leg))
		post(leg, 1, SRDMA_DESC_LEN);
	beat_answered(leg);
	assert_null(leg->ops->slot(leg));
	/* a full leg has a place for it */
	leg->ops->keepalive(leg, 10000 + 2 * BEAT);
	assert_int_equal(fake_rdma.beats, 3);
	assert_null(leg->ops->ended(leg));
	leg->ops->destroy(leg);
}

static void test_silence_ends_a_leg(void **state)
{
	struct srdma_host_leg *leg = make();

	(void)state;
	leg->ops->keepalive(leg, 10000);
	leg->ops->keepalive(leg, 10000 + SILENCE - 1);
	assert_null(leg->ops->ended(leg));
	leg->ops->keepalive(leg, 10000 + SILENCE);
	leg->ops->keepalive(leg, 10000 + 2 * SILENCE);
	assert_int_equal(fake_rdma.beats, 1);
	expect_end(leg, "did not answer for 11 s");
}

/* The program did not look at the leg for a while: the device has the ack. */
static void test_ack_that_waits_in_the_cq_keeps_a_leg(void **state)
{
	struct srdma_host_leg *leg = make();

	(void)state;
	leg->ops->keepalive(leg, 10000);
	fake_rdma_complete(IBV_WC_SEND, BEAT_ID, 0);
	leg->ops->keepalive(leg, 10000 + SILENCE);
	assert_null(leg->ops->ended(leg));
	assert_int_equal(fake_rdma.beats, 2);
	leg->ops->destroy(leg);
}

static void test_failure_that_waits_in_the_cq_ends_a_leg(void **state)
{
	struct srdma_host_leg *leg = make();

	(void)state;
	leg->ops->keepalive(leg, 10000);
	fake_rdma_complete(IBV_WC_SEND, BEAT_ID, IBV_WC_RETRY_EXC_ERR);
	leg->ops->keepalive(leg, 10000 + SILENCE);
	assert_int_equal(fake_rdma.beats, 1);
	expect_end(leg, "a failed completion");
}

/* A sleeper wakes when a heartbeat is due, and every second while it waits for
 * its acknowledgement. */
static void test_sleeper_wakes_for_heartbeats(void **state)
{
	struct srdma_host_leg *leg = make();

	(void)state;
	leg->ops->keepalive(leg, 10000);
	leg->ops->arm(leg);
	assert_int_equal(readable(leg, 0), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(readable(leg, WAIT_MS), 1);
		leg->ops->disarm(leg);
		assert_int_equal(readable(leg, 0), 0);
	}
	leg->ops->destroy(leg);
}

static void test_heartbeat_that_cannot_be_posted(void **state)
{
	struct srdma_host_leg *leg = make();

	(void)state;
	fake_rdma.fails = "post_send";
	leg->ops->keepalive(leg, 10000);
	expect_end(leg, "posting a heartbeat");
}

/* --- failures ------------------------------------------------------------ */

static void test_events_that_end_a_leg(void **state)
{
	static const struct {
		enum rdma_cm_event_type type;
		const char *why;
	} ends[] = {
		{ RDMA_CM_EVENT_DISCONNECTED, "RDMA_CM_EVENT_DISCONNECTED" },
		{ RDMA_CM_EVENT_DEVICE_REMOVAL, "another event" },
		{ RDMA_CM_EVENT_UNREACHABLE, "RDMA_CM_EVENT_UNREACHABLE" },
		{ RDMA_CM_EVENT_CONNECT_ERROR, "another event" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		struct srdma_host_leg *leg = make();

		fake_rdma.resolved = 0;
		fake_rdma_event(RDMA_CM_EVENT_TIMEWAIT_EXIT);
		assert_null(leg->ops->ended(leg));
		leg->ops->arm(leg);
		fake_rdma_event(ends[i].type);
		assert_int_equal(readable(leg, 0), 1);
		expect_end(leg, ends[i].why);
	}
}

static void test_failed_completion_ends_a_leg(void **state)
{
	struct srdma_host_leg *leg = make();

	(void)state;
	post(leg, 1, SRDMA_DESC_LEN);
	leg->ops->flush(leg);
	fake_rdma_complete(IBV_WC_SEND, 0, IBV_WC_RETRY_EXC_ERR);
	fake_rdma_complete(IBV_WC_RECV, 0, IBV_WC_WR_FLUSH_ERR);
	leg->ops->poll(leg);
	expect_end(leg, "a failed completion");
}

static void test_failures_of_the_queues_end_a_leg(void **state)
{
	static const struct {
		const char *name, *why;
	} cases[] = {
		{ "post_send", "posting descriptors: Input/output error" },
		{ "post_recv", "posting receives" },
		{ "poll_cq", "polling the CQ" },
		{ "req_notify_cq", "requesting an event" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct srdma_host_leg *leg;

		fake_rdma_setup(state);
		leg = make();
		fake_rdma.fails = cases[i].name;
		for (int n = 0; n < 16; n++)
			fake_rdma_complete(IBV_WC_RECV, 0, 0);
		post(leg, 1, SRDMA_DESC_LEN);
		leg->ops->arm(leg);
		expect_end(leg, cases[i].why);
	}
}

static void test_stopped_leg_allows_no_dma(void **state)
{
	struct srdma_host_leg *leg = make();

	(void)state;
	leg->ops->stop(leg);
	leg->ops->stop(leg);
	expect_end(leg, "the worker ended");
	assert_int_equal(fake_rdma.disconnected, 1); /* once */
}

/* --- regions ------------------------------------------------------------- */

static void test_rights_of_a_region(void **state)
{
	enum {
		L = IBV_ACCESS_LOCAL_WRITE,
		R = IBV_ACCESS_REMOTE_READ,
		W = IBV_ACCESS_REMOTE_WRITE,
		A = IBV_ACCESS_REMOTE_ATOMIC,
	};
	static const struct {
		uint32_t access;
		int flags;
	} cases[] = {
		{ 0, R },
		{ SRDMA_ACCESS_REMOTE_READ | SRDMA_ACCESS_PROOF, R },
		{ SRDMA_ACCESS_LOCAL_WRITE, R | L | W },
		{ SRDMA_ACCESS_LOCAL_WRITE | SRDMA_ACCESS_REMOTE_WRITE,
		  R | L | W },
		{ SRDMA_ACCESS_ALL, R | L | W | A },
	};
	struct srdma_host_leg *leg = make();

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct srdma_host_leg_region m = { .length = 5000,
						   .access = cases[i].access };

		assert_int_equal(leg->ops->alloc(&m), 0);
		assert_int_equal(m.fd, -1);
		assert_int_equal(((uint8_t *)m.addr)[4999], 0);
		assert_int_equal(leg->ops->reg(leg, &m), 0);
		assert_int_equal(fake_rdma.mr_access, cases[i].flags);
		assert_int_equal(fake_rdma.mr_length, 5000);
		assert_int_equal(m.rkey, FAKE_RKEY + 2 + i);
		leg->ops->dereg(leg, &m);
		leg->ops->free(&m);
	}
	leg->ops->destroy(leg);
}

static void test_regions_that_the_device_refuses(void **state)
{
	struct srdma_host_leg_region m = { .length = 4096,
					   .access = SRDMA_ACCESS_ALL };
	struct srdma_host_leg *leg;
	int r;

	(void)state;
	fake_rdma.atomics = IBV_ATOMIC_NONE;
	leg = make();
	assert_int_equal(leg->ops->alloc(&m), 0);
	assert_int_equal(leg->ops->reg(leg, &m), -ENOTSUP);
	says("fake0 has no atomics");
	m.access = 0;
	fake_rdma.fails = "reg_mr";
	fake_rdma.error = ENOMEM;
	assert_int_equal(leg->ops->reg(leg, &m), -ENOMEM);
	says("ulimit -l");
	fake_rdma.error = EFAULT;
	assert_int_equal(leg->ops->reg(leg, &m), -EFAULT);
	leg->ops->free(&m);
	m.length = SIZE_MAX - 4096;
	r = leg->ops->alloc(&m);
	assert_true(r == -ENOMEM || r == -EINVAL); /* EINVAL: valgrind 3.19 */
	leg->ops->destroy(leg);
}

#define each(test)                                                             \
	cmocka_unit_test_setup_teardown(test, fake_rdma_setup,                 \
					fake_rdma_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		each(test_request_has_token_and_ring),
		each(test_limits_of_the_connection),
		each(test_rights_of_the_qp_follow_the_device),
		each(test_device_without_much_inline_data),
		each(test_every_failure_of_the_device),
		each(test_refusals_of_the_worker),
		each(test_address_without_a_route),
		each(test_device_of_the_environment),
		each(test_route_over_no_rdma_device),
		each(test_late_address_is_resolved_again),
		each(test_address_and_route_errors),
		each(test_silence_ends_at_the_deadline),
		each(test_descriptors_are_sends_in_order),
		each(test_full_leg_has_room_after_a_completion),
		each(test_receives_are_posted_again),
		each(test_completion_wakes_a_sleeper),
		each(test_one_heartbeat_every_two_seconds),
		each(test_silence_ends_a_leg),
		each(test_ack_that_waits_in_the_cq_keeps_a_leg),
		each(test_failure_that_waits_in_the_cq_ends_a_leg),
		each(test_sleeper_wakes_for_heartbeats),
		each(test_heartbeat_that_cannot_be_posted),
		each(test_events_that_end_a_leg),
		each(test_failed_completion_ends_a_leg),
		each(test_failures_of_the_queues_end_a_leg),
		each(test_stopped_leg_allows_no_dma),
		each(test_rights_of_a_region),
		each(test_regions_that_the_device_refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
