/* PDs with a leg over verbs: a fake device, and a worker whose control socket
 * the test serves. */
#include "srdma/srdma.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "host/objects.h"
#include "support/fake_agent.h"
#include "support/fake_proxy.h"
#include "support/fake_rdma.h"
#include "support/fake_worker.h"
#include "support/says.h"
#include "support/shifted_clock.h"
#include "wire/wire.h"

enum { WAIT_MS = 10000, RING = 4096, RECVS = 128 /* of a QP */ };

int srdma_rdma_load(const struct srdma_rdma **out)
{
	return fake_rdma_load(out);
}

struct fixture {
	struct fake_worker *worker;
	struct fake_agent agent; /* of a worker on another computer */
	struct srdma_device *device;
	struct srdma_pd *pd;
	struct srdma_qp *qp;
};

static void open_pd(struct fixture *f)
{
	assert_int_equal(srdma_alloc_pd(&f->pd, f->device, NULL), 0);
	assert_int_equal(srdma_create_qp(&f->qp, f->pd, NULL), 0);
}

static void open_objects(struct fixture *f, const char *path, const char *agent)
{
	assert_int_equal(srdma_open_device(&f->device, path, agent), 0);
	open_pd(f);
}

static struct fixture *begin(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	void *worker;

	assert_non_null(f);
	shift_clock(0);
	fake_rdma_setup(state);
	fake_worker_setup(&worker);
	f->worker = worker;
	f->worker->legs = SRDMA_PORT_VERBS;
	return f;
}

static int setup(void **state)
{
	struct fixture *f = begin(state);

	open_objects(f, f->worker->path, NULL);
	*state = f;
	return 0;
}

static void start_agent(struct fixture *f)
{
	f->agent.act = fake_proxy_pass;
	fake_agent_start(&f->agent, f->worker->folder);
}

/* Opens a device by an agent that acts so. */
static struct fixture *begin_with_agent(void **state, void (*act)(int fd))
{
	struct fixture *f = begin(state);
	char nowhere[SRDMA_SOCKET_PATH];

	fake_proxy_worker = f->worker->path;
	start_agent(f);
	f->agent.act = act;
	snprintf(nowhere, sizeof(nowhere), "%s/none", f->worker->folder);
	assert_int_equal(srdma_open_device(&f->device, nowhere, f->agent.path),
			 0);
	*state = f;
	return f;
}

/* The worker is on another computer. */
static int setup_remote(void **state)
{
	open_pd(begin_with_agent(state, fake_proxy_pass));
	return 0;
}

/* The agent was started again, with `worker_remote`, before the PD was opened.
 */
static int setup_changed(void **state)
{
	struct fixture *f = begin_with_agent(state, fake_proxy_pass_here);

	f->agent.act = fake_proxy_pass;
	open_pd(f);
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	void *worker = f->worker;

	assert_int_equal(srdma_destroy_qp(f->qp), 0);
	assert_int_equal(srdma_dealloc_pd(f->pd), 0);
	assert_int_equal(srdma_close_device(f->device), 0);
	fake_worker_teardown(&worker);
	free(f);
	return fake_rdma_teardown(state);
}

static int teardown_remote(void **state)
{
	struct fixture *f = *state;

	fake_agent_stop(&f->agent);
	return teardown(state);
}

static void post(struct fixture *f)
{
	struct srdma_send_wr wr = { .wr_id = 5,
				    .opcode = SRDMA_WR_SEND,
				    .flags = SRDMA_SEND_SIGNALED |
					     SRDMA_SEND_INLINE };

	assert_int_equal(srdma_post_send(f->qp, &wr, NULL), 0);
}

static void test_leg_has_the_token_of_open(void **state)
{
	struct fixture *f = *state;

	assert_memory_equal(fake_rdma.hello + 8, "token\0\0", 7);
	assert_int_equal(srdma_load32(fake_rdma.hello + 36), RING);
	post(f);
	assert_int_equal(fake_rdma.sends, 1);
	assert_int_equal(fake_rdma.sent[0].first, SRDMA_DESC_SEND);
}

static void put_record(uint32_t sequence)
{
	uint8_t *ring =
		(uint8_t *)(uintptr_t)srdma_load64(fake_rdma.hello + 24);
	const struct srdma_record record = {
		.id = 2 * (sequence - 1),
		.qpn = FAKE_QPN,
		.opcode = SRDMA_WC_SEND,
		.sequence = sequence,
	};

	srdma_record_encode(ring + (sequence - 1) % RING * SRDMA_RECORD_LEN,
			    &record);
	fake_rdma_complete(IBV_WC_RECV_RDMA_WITH_IMM, 0, 0);
}

/* The worker's record arrives in the ring by DMA. */
static void test_record_becomes_a_completion(void **state)
{
	struct fixture *f = *state;
	struct srdma_wc wc;

	post(f);
	srdma_req_notify_cq(f->pd);
	assert_int_equal(srdma_poll_cq(f->pd, 1, &wc), 0);
	put_record(1);
	assert_int_equal(poll(&(struct pollfd){ .fd = srdma_cq_fd(f->pd),
						.events = POLLIN },
			      1, WAIT_MS),
			 1);
	assert_int_equal(srdma_poll_cq(f->pd, 1, &wc), 1);
	assert_int_equal(wc.wr_id, 5);
	assert_int_equal(wc.status, SRDMA_WC_SUCCESS);
}

/* RECVs are posted, and their records arrive, but no completion in the CQ. */
static void fill_ring(struct fixture *f)
{
	uint8_t *ring =
		(uint8_t *)(uintptr_t)srdma_load64(fake_rdma.hello + 24);
	struct srdma_record record = { .qpn = FAKE_QPN,
				       .opcode = SRDMA_WC_RECV };

	for (uint32_t i = 0; i < RECVS; i++) {
		struct srdma_recv_wr wr = { .wr_id = i };

		assert_int_equal(srdma_post_recv(f->qp, &wr, NULL), 0);
		record.id = 2 * i + 1; /* a RECV is odd */
		record.sequence = i + 1;
		srdma_record_encode(ring + i * SRDMA_RECORD_LEN, &record);
	}
}

/* Each record that the host reports as consumed permits the worker to write
 * another one, which needs a receive. */
static void test_reported_records_have_receives(void **state)
{
	struct fixture *f = *state;
	const struct fake_sent *last;
	struct srdma_wc wc[RECVS / 2];

	fill_ring(f);
	assert_int_equal(srdma_poll_cq(f->pd, RECVS / 2, wc), RECVS / 2);
	post(f);
	last = &fake_rdma.sent[fake_rdma.sends - 1];
	assert_int_equal(last->consumed, RECVS / 2);
	assert_true(fake_rdma.receives >= RING + last->consumed);
}

/* Completions are taken between the records of a long poll. */
static void test_long_poll_takes_completions(void **state)
{
	struct fixture *f = *state;
	struct srdma_wc wc[RECVS];
	uint32_t before;

	fill_ring(f);
	before = fake_rdma.polls;
	assert_int_equal(srdma_poll_cq(f->pd, RECVS, wc), RECVS);
	assert_int_equal(fake_rdma.polls - before, 2);
}

static void test_region_is_registered_at_both(void **state)
{
	const struct srdma_mr_attr attr = { .length = 5000,
					    .access =
						    SRDMA_ACCESS_LOCAL_WRITE };
	struct fixture *f = *state;
	const struct srdma_mr_params *asked = &f->worker->request.reg_mr.mr;
	struct srdma_mr_attr existing = attr;
	struct srdma_mr_info info;
	struct srdma_mr *mr;
	uint8_t memory[5000];

	assert_int_equal(srdma_alloc_mr(&mr, f->pd, &attr), 0);
	srdma_query_mr(mr, &info);
	assert_int_equal(info.key, FAKE_KEY);
	assert_int_equal(info.length, 5000);
	assert_int_equal(asked->region.host_rkey, FAKE_RKEY + 2);
	assert_int_equal(asked->region.addr, (uintptr_t)info.addr);
	assert_int_equal(srdma_dereg_mr(mr), 0);
	existing.addr = memory;
	assert_int_equal(srdma_reg_mr(&mr, f->pd, &existing), 0);
	assert_int_equal(asked->region.host_rkey, FAKE_RKEY + 3);
	assert_int_equal(asked->region.addr, (uintptr_t)memory);
	assert_int_equal(srdma_dereg_mr(mr), 0);
}

static enum fake_action no_more(struct fake_worker *w, struct srdma_ctl_msg *m,
				struct srdma_socket_fds *fds)
{
	(void)w;
	(void)fds;
	return m->kind == SRDMA_CTL_REG_MR
		       ? fake_refuse(m, EDQUOT, "4,096 regions")
		       : FAKE_ANSWER;
}

static void test_refused_region_is_not_left_at_the_device(void **state)
{
	const struct srdma_mr_attr attr = { .length = 5000 };
	struct fixture *f = *state;
	const int before = fake_rdma.objects;
	struct srdma_mr *mr;

	f->worker->hook = no_more;
	assert_int_equal(srdma_alloc_mr(&mr, f->pd, &attr), -EDQUOT);
	assert_int_equal(fake_rdma.objects, before);
	fake_rdma.fails = "reg_mr";
	assert_int_equal(srdma_alloc_mr(&mr, f->pd, &attr), -EIO);
	says("registering a region on fake0");
}

/* --- heartbeats ---------------------------------------------------------- */

static void beat_answered(void)
{
	fake_rdma_complete(IBV_WC_SEND, 1ULL << 32, 0);
}

static void test_polled_leg_sends_heartbeats(void **state)
{
	struct fixture *f = *state;
	struct srdma_wc wc;

	for (uint32_t i = 1; i <= 3; i++) {
		shift_clock(2 * (int)i);
		assert_int_equal(srdma_poll_cq(f->pd, 1, &wc), 0);
		assert_int_equal(fake_rdma.beats, i);
		beat_answered();
	}
	/* no answer any more */
	shift_clock(8);
	assert_int_equal(srdma_poll_cq(f->pd, 1, &wc), 0);
	shift_clock(18);
	assert_int_equal(srdma_poll_cq(f->pd, 1, &wc), 0);
	shift_clock(19);
	assert_int_equal(srdma_poll_cq(f->pd, 1, &wc), 1);
	assert_int_equal(wc.opcode, SRDMA_WC_QP_EVENT);
	assert_int_equal(wc.vendor_err, SRDMA_REASON_WORKER_GONE);
}

/* It wakes by the timer, as a program does that sleeps on srdma_cq_fd(). */
static void test_waiting_leg_sends_heartbeats(void **state)
{
	struct fixture *f = *state;
	struct srdma_wc wc;

	assert_int_equal(srdma_wait_cq(f->pd, 1, &wc, 10), 0);
	assert_int_equal(fake_rdma.beats, 1);
	beat_answered();
	assert_int_equal(srdma_wait_cq(f->pd, 1, &wc, 2500), 0);
	assert_int_equal(fake_rdma.beats, 2);
}

/* --- the end ------------------------------------------------------------- */

static void expect_gone(struct fixture *f)
{
	const struct srdma_mr_attr attr = { .length = 5000 };
	struct srdma_mr *mr;
	struct srdma_wc wc[3];

	assert_int_equal(srdma_wait_cq(f->pd, 3, wc, WAIT_MS), 2);
	assert_int_equal(wc[0].opcode, SRDMA_WC_QP_EVENT);
	assert_int_equal(wc[1].wr_id, 5);
	assert_int_equal(wc[1].vendor_err, SRDMA_REASON_WORKER_GONE);
	assert_int_equal(srdma_wait_cq(f->pd, 1, wc, WAIT_MS), -ENOTCONN);
	assert_int_equal(srdma_alloc_mr(&mr, f->pd, &attr), -ENOTCONN);
	assert_int_equal(fake_rdma.state, IBV_QPS_ERR);
}

static void test_disconnected_leg_fails_the_requests(void **state)
{
	const struct srdma_mr_attr attr = { .length = 5000 };
	struct fixture *f = *state;
	struct srdma_mr *mr;

	assert_int_equal(srdma_alloc_mr(&mr, f->pd, &attr), 0);
	post(f);
	fake_rdma_event(RDMA_CM_EVENT_DISCONNECTED);
	expect_gone(f);
	says("has ended: RDMA_CM_EVENT_DISCONNECTED");
	assert_int_equal(srdma_dereg_mr(mr), 0);
}

static void test_lost_link_fails_the_requests(void **state)
{
	struct fixture *f = *state;

	post(f);
	fake_rdma_complete(IBV_WC_SEND, 0, IBV_WC_RETRY_EXC_ERR);
	expect_gone(f);
	says("a failed completion");
}

/* The worker's NIC must not write to memory that the program has back. */
static void test_end_of_the_worker_stops_dma(void **state)
{
	struct fixture *f = *state;

	post(f);
	srdma_lasting_control_end(f->pd->control);
	expect_gone(f);
}

static enum fake_action other_kind(struct fake_worker *w,
				   struct srdma_ctl_msg *m,
				   struct srdma_socket_fds *fds)
{
	(void)w;
	(void)fds;
	if (m->kind == SRDMA_CTL_OPEN)
		return fake_refuse(m, EDQUOT, "no more legs");
	return FAKE_ANSWER;
}

static void test_leg_that_cannot_be_made(void **state)
{
	struct fixture *f = *state;
	struct srdma_device *device;
	struct srdma_pd *pd;

	fake_rdma.fails = "create_event_channel";
	assert_int_equal(srdma_alloc_pd(&pd, f->device, NULL), -EIO);
	assert_null(pd);
	fake_rdma.fails = "load"; /* libibverbs was removed */
	assert_int_equal(srdma_open_device(&device, f->worker->path, NULL),
			 -ENOTSUP);
	f->worker->hook = other_kind;
	fake_rdma.fails = NULL;
	assert_int_equal(srdma_alloc_pd(&pd, f->device, NULL), -EDQUOT);
}

/* --- a worker on another computer ----------------------------------------- */

static void may_make_objects(const struct fixture *f)
{
	const struct srdma_mr_attr attr = { .length = 5000 };
	struct srdma_mr *mr;

	assert_int_equal(srdma_alloc_mr(&mr, f->pd, &attr), 0);
	assert_int_equal(srdma_dereg_mr(mr), 0);
}

static void test_program_without_a_link_goes_on(void **state)
{
	struct fixture *f = *state;
	struct srdma_wc wc;
	uint64_t value;

	post(f);
	fake_worker_cut(f->worker);
	assert_int_equal(srdma_wait_cq(f->pd, 1, &wc, 300), 0);
	post(f);
	assert_int_equal(fake_rdma.sends, 2);
	put_record(1);
	assert_int_equal(srdma_wait_cq(f->pd, 1, &wc, WAIT_MS), 1);
	assert_int_equal(wc.opcode, SRDMA_WC_SEND);
	assert_int_equal(wc.status, SRDMA_WC_SUCCESS);
	may_make_objects(f);
	/* the fake worker answers, and has no counters */
	assert_int_equal(
		srdma_query_counter(f->device, "packets_sealed", &value),
		-ENOENT);
	put_record(2);
	assert_int_equal(srdma_wait_cq(f->pd, 1, &wc, WAIT_MS), 1);
}

/* It never finds an empty queue. */
static void test_busy_program_comes_back(void **state)
{
	struct fixture *f = *state;
	const unsigned channels = f->agent.channels;
	struct srdma_wc wc;

	fake_worker_cut(f->worker);
	for (uint32_t n = 1; f->agent.channels == channels; n++) {
		usleep(1000);
		post(f);
		fake_rdma_complete(IBV_WC_SEND, n - 1, 0);
		put_record(n);
		assert_int_equal(srdma_poll_cq(f->pd, 1, &wc), 1);
		assert_int_equal(wc.opcode, SRDMA_WC_SEND);
		beat_answered();
	}
	may_make_objects(f);
}

static enum fake_action end_reg_mr(struct fake_worker *w,
				   struct srdma_ctl_msg *m,
				   struct srdma_socket_fds *fds)
{
	(void)fds;
	return m->kind == SRDMA_CTL_REG_MR && !w->calls++ ? FAKE_CLOSE
							  : FAKE_ANSWER;
}

/* It does not end the leg, although the worker may have made the object. */
static void test_link_that_ends_during_a_call(void **state)
{
	const struct srdma_mr_attr attr = { .length = 5000 };
	struct fixture *f = *state;
	const int before = fake_rdma.objects;
	struct srdma_mr *mr;

	f->worker->hook = end_reg_mr;
	assert_int_equal(srdma_alloc_mr(&mr, f->pd, &attr), -ETIMEDOUT);
	says("the link to the NIC ended during REG_MR: try again");
	assert_int_equal(fake_rdma.objects, before);
	may_make_objects(f);
}

/* The time limit is over when a message comes, which is not the answer. */
static enum fake_action late_reg_mr(struct fake_worker *w,
				    struct srdma_ctl_msg *m,
				    struct srdma_socket_fds *fds)
{
	(void)fds;
	if (m->kind == SRDMA_CTL_REG_MR && !w->calls++) {
		shift_clock(20);
		m->tag--;
	}
	return FAKE_ANSWER;
}

/* Neither does this. */
static void test_call_that_times_out(void **state)
{
	const struct srdma_mr_attr attr = { .length = 5000 };
	struct fixture *f = *state;
	const unsigned channels = f->agent.channels;
	struct srdma_mr *mr;

	f->worker->hook = late_reg_mr;
	assert_int_equal(srdma_alloc_mr(&mr, f->pd, &attr), -ETIMEDOUT);
	says("did not answer REG_MR");
	may_make_objects(f);
	assert_int_equal(f->agent.channels, channels);
}

/* The first answer is lost. */
static enum fake_action late_uninstall(struct fake_worker *w,
				       struct srdma_ctl_msg *m,
				       struct srdma_socket_fds *fds)
{
	(void)fds;
	if (m->kind != SRDMA_CTL_UNINSTALL)
		return FAKE_ANSWER;
	if (++w->calls == 2) {
		shift_clock(20);
		m->tag--;
		return FAKE_ANSWER;
	}
	return fake_refuse(m, ENOENT, "no such capability");
}

/* The request of the call that timed out was executed. */
static void test_uninstall_that_times_out(void **state)
{
	struct fixture *f = *state;

	f->worker->hook = late_uninstall;
	assert_int_equal(srdma_uninstall_cap(f->pd, 5), -ENOENT);
	assert_int_equal(srdma_uninstall_cap(f->pd, 6), -ETIMEDOUT);
	assert_int_equal(srdma_uninstall_cap(f->pd, 6), 0);
}

static void test_program_that_does_not_come_back(void **state)
{
	struct fixture *f = *state;
	struct srdma_wc wc;

	post(f);
	fake_agent_stop(&f->agent);
	fake_worker_cut(f->worker);
	assert_int_equal(srdma_poll_cq(f->pd, 1, &wc), 0);
	beat_answered();
	shift_clock(SRDMA_CTL_KEEP_LEGS);
	expect_gone(f);
	says("has ended: no other connection to the worker at");
	says("no agent at");
	start_agent(f);
}

/* No connection is awaited, because it would be of no use. */
static void test_leg_that_ends_without_a_link(void **state)
{
	struct fixture *f = *state;

	post(f);
	fake_agent_stop(&f->agent);
	fake_worker_cut(f->worker);
	fake_rdma_event(RDMA_CM_EVENT_DISCONNECTED);
	expect_gone(f);
	start_agent(f);
}

/* --- a worker behind a proxy with `forward` --------------------------------- */

/* The process of HELLO is not the one at the socket. */
static enum fake_action elsewhere(struct fake_worker *w,
				  struct srdma_ctl_msg *m,
				  struct srdma_socket_fds *fds)
{
	(void)w;
	(void)fds;
	if (m->kind == SRDMA_CTL_HELLO)
		m->hello.pid++;
	return FAKE_ANSWER;
}

static int setup_forward(void **state)
{
	struct fixture *f = begin(state);

	fake_proxy_worker = f->worker->path;
	f->worker->hook = elsewhere;
	f->agent.act = fake_proxy_pass_lasting;
	fake_agent_start(&f->agent, f->worker->folder);
	open_objects(f, f->worker->path, f->agent.path);
	*state = f;
	return 0;
}

static void test_agent_passes_connections_that_last(void **state)
{
	struct fixture *f = *state;

	assert_true(f->device->restricted);
	assert_true(srdma_lasting_control_lasts(f->device->control));
	assert_false(f->device->remote);
	fake_worker_cut(f->worker);
	may_make_objects(f);
}

static void pass_nothing(int fd)
{
	fake_agent_report(fd, "error", "policy", NULL);
}

static void test_agent_that_passes_none(void **state)
{
	static void (*const acts[])(int) = { fake_proxy_pass, pass_nothing };
	struct fixture *f = *state;
	struct srdma_device *d;
	unsigned channels = f->agent.channels;

	for (size_t i = 0; i < sizeof(acts) / sizeof(*acts); i++) {
		f->agent.act = acts[i];
		assert_int_equal(
			srdma_open_device(&d, f->worker->path, f->agent.path),
			0);
		assert_int_equal(f->agent.channels, ++channels);
		assert_false(d->restricted || d->remote);
		assert_false(srdma_lasting_control_lasts(d->control));
		assert_int_equal(srdma_close_device(d), 0);
	}
	f->worker->hook = NULL; /* the worker is at its socket */
	f->agent.act = fake_proxy_pass_lasting;
	assert_int_equal(srdma_open_device(&d, f->worker->path, f->agent.path),
			 0);
	assert_int_equal(f->agent.channels, channels);
	assert_false(srdma_lasting_control_lasts(d->control));
	assert_int_equal(srdma_close_device(d), 0);
}

#define each(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
#define forward(test)                                                          \
	cmocka_unit_test_setup_teardown(test, setup_forward, teardown_remote)
#define remote(test)                                                           \
	cmocka_unit_test_setup_teardown(test, setup_remote, teardown_remote)
#define changed(test)                                                          \
	cmocka_unit_test_setup_teardown(test, setup_changed, teardown_remote)

int main(void)
{
	const struct CMUnitTest tests[] = {
		each(test_leg_has_the_token_of_open),
		each(test_record_becomes_a_completion),
		each(test_reported_records_have_receives),
		each(test_long_poll_takes_completions),
		each(test_region_is_registered_at_both),
		each(test_refused_region_is_not_left_at_the_device),
		each(test_polled_leg_sends_heartbeats),
		each(test_waiting_leg_sends_heartbeats),
		each(test_disconnected_leg_fails_the_requests),
		each(test_lost_link_fails_the_requests),
		each(test_end_of_the_worker_stops_dma),
		each(test_leg_that_cannot_be_made),
		remote(test_program_without_a_link_goes_on),
		remote(test_busy_program_comes_back),
		remote(test_link_that_ends_during_a_call),
		remote(test_call_that_times_out),
		each(test_uninstall_that_times_out),
		remote(test_uninstall_that_times_out),
		changed(test_busy_program_comes_back),
		changed(test_call_that_times_out),
		remote(test_program_that_does_not_come_back),
		remote(test_leg_that_ends_without_a_link),
		forward(test_agent_passes_connections_that_last),
		forward(test_agent_that_passes_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
