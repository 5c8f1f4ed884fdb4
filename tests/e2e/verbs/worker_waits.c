/*
 * Threads that wait for events when the worker ends, and poll no CQ (docs/run.md 4).
 * tests/e2e/test_run.py starts it by `srdma run`, waits for its line and ends the
 * worker.
 *
 *     worker_waits [pd]     pd: each context has a PD
 */
#include "open.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>

enum { CHANNELS = 3 };

/* The CQ of channel 0 has no QP. The QP of channel 1 has no request. The one of channel 2
 * has a receive, which the end of the worker completes. */
static struct waiting {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	pthread_t thread;
} waiting[CHANNELS];

static int each_has_a_pd;

static void make_cq(struct waiting *w)
{
	w->channel = ibv_create_comp_channel(ctx);
	assert_non_null(w->channel);
	w->cq = ibv_create_cq(ctx, DEPTH, w, w->channel, 0);
	assert_non_null(w->cq);
	assert_int_equal(ibv_req_notify_cq(w->cq, 0), 0);
}

static void make_qp(struct waiting *w)
{
	struct ibv_qp_init_attr attr = { .send_cq = w->cq,
					 .recv_cq = w->cq,
					 .cap = { 1, 1, 1, 1, 0 },
					 .qp_type = IBV_QPT_RC };

	w->qp = ibv_create_qp(pd, &attr);
	assert_non_null(w->qp);
	assert_int_equal(to_init(w->qp), 0);
}

static void post_recv(struct waiting *w)
{
	struct ibv_recv_wr *bad, wr = { .wr_id = 7 };

	assert_int_equal(ibv_post_recv(w->qp, &wr, &bad), 0);
}

/* Takes events of a channel until there are no more. Returns their number. */
static void *take_events(void *arg)
{
	struct waiting *w = arg;
	uintptr_t events = 0;
	struct ibv_cq *cq;
	void *context;

	while (!ibv_get_cq_event(w->channel, &cq, &context)) {
		assert_ptr_equal(cq, w->cq);
		assert_ptr_equal(context, w);
		ibv_ack_cq_events(cq, 1);
		events++;
	}
	assert_int_equal(errno, EIO);
	return (void *)events;
}

static void *take_async_event(void *unused)
{
	(void)unused;
	expect_event(IBV_EVENT_DEVICE_FATAL, NULL);
	return NULL;
}

static void expect_no_event(struct ibv_context *context)
{
	struct pollfd p = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_async_event e;

	assert_int_equal(fcntl(context->async_fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(ibv_get_async_event(context, &e), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(poll(&p, 1, 0), 0);
}

/* A program with a loop of its own. */
static void poll_for_the_end(struct ibv_context *context)
{
	struct pollfd p = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_async_event e;

	assert_int_equal(poll(&p, 1, -1), 1);
	assert_int_equal(ibv_get_async_event(context, &e), 0);
	assert_int_equal(e.event_type, IBV_EVENT_DEVICE_FATAL);
	ibv_ack_async_event(&e);
	expect_no_event(context);
}

static void expect_ended(struct waiting *w, uintptr_t events)
{
	struct ibv_wc wc;
	void *found;

	assert_int_equal(pthread_join(w->thread, &found), 0);
	assert_int_equal((uintptr_t)found, events);
	assert_int_equal(ibv_poll_cq(w->cq, 1, &wc), (int)events);
	if (events) {
		assert_int_equal(wc.wr_id, 7);
		assert_int_equal(wc.status, IBV_WC_FATAL_ERR);
	}
	if (w->qp)
		assert_int_equal(ibv_destroy_qp(w->qp), 0);
	assert_int_equal(ibv_destroy_cq(w->cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(w->channel), 0);
}

static void test_end_of_the_worker(void **state)
{
	struct ibv_context *other = ibv_open_device(ctx->device);
	struct ibv_pd *its_pd = NULL;
	pthread_t thread;

	(void)state;
	assert_non_null(other);
	if (each_has_a_pd) {
		its_pd = ibv_alloc_pd(other);
		assert_non_null(its_pd);
	}
	for (int i = 0; i < CHANNELS; i++)
		make_cq(&waiting[i]);
	make_qp(&waiting[1]);
	make_qp(&waiting[2]);
	post_recv(&waiting[2]);
	expect_no_event(other);
	assert_int_equal(pthread_create(&thread, NULL, take_async_event, NULL),
			 0);
	for (int i = 0; i < CHANNELS; i++)
		assert_int_equal(pthread_create(&waiting[i].thread, NULL,
						take_events, &waiting[i]),
				 0);
	puts("ready");
	fflush(stdout);
	poll_for_the_end(other);
	assert_int_equal(pthread_join(thread, NULL), 0);
	for (int i = 0; i < CHANNELS; i++)
		expect_ended(&waiting[i], i == 2);
	expect_no_event(ctx);
	if (its_pd)
		assert_int_equal(ibv_dealloc_pd(its_pd), 0);
	assert_int_equal(ibv_close_device(other), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_end_of_the_worker),
	};

	each_has_a_pd = argc > 1 && !strcmp(argv[1], "pd");
	return cmocka_run_group_tests(tests, setup, teardown);
}
