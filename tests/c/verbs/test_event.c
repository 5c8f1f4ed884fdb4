/* Asynchronous events (verbs/event.c). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "verbs/objects.h"

struct scene {
	struct verbs_root root;
	struct verbs_qp qp[2];
	struct verbs_srq srq;
	struct verbs_cq cq;
};

static void begin(struct scene *s)
{
	memset(s, 0, sizeof(*s));
	s->root.events_end = &s->root.events;
	pthread_mutex_init(&s->root.lock, NULL);
	s->root.events_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	for (int i = 0; i < 2; i++)
		s->qp[i].last_wqe.event.element.qp = &s->qp[i].ibv;
	s->srq.limit.event.element.srq = &s->srq.ibv;
	s->cq.overrun.event.element.cq = &s->cq.ibv;
}

static void end(struct scene *s)
{
	close(s->root.events_fd);
	pthread_mutex_destroy(&s->root.lock);
}

static void put(struct scene *s, int i)
{
	verbs_event_put(&s->root, &s->qp[i].last_wqe,
			IBV_EVENT_QP_LAST_WQE_REACHED);
}

/* 1: a program that waits for the descriptor is woken. */
static int wakes(const struct scene *s)
{
	struct pollfd p = { .fd = s->root.events_fd, .events = POLLIN };

	return poll(&p, 1, 0);
}

static void expect(struct scene *s, enum ibv_event_type type,
		   const void *object)
{
	struct ibv_async_event e;

	assert_int_equal(wakes(s), 1);
	assert_int_equal(verbs_event_take(&s->root, &e), 1);
	assert_int_equal(e.event_type, type);
	assert_ptr_equal(e.element.qp, object);
	verbs_event_ack(&e);
}

/* The descriptor is not readable: a program that waited for it would wait again in
 * ibv_get_async_event(). */
static void expect_none(struct scene *s)
{
	struct ibv_async_event e;

	assert_int_equal(wakes(s), 0);
	assert_int_equal(verbs_event_take(&s->root, &e), 0);
}

static void test_events_are_read_in_order(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	expect_none(&s);
	put(&s, 1);
	verbs_event_put(&s.root, &s.srq.limit, IBV_EVENT_SRQ_LIMIT_REACHED);
	put(&s, 0);
	put(&s, 1); /* it waits already */
	verbs_event_put(&s.root, &s.root.fatal, IBV_EVENT_DEVICE_FATAL);
	verbs_event_put(&s.root, &s.cq.overrun, IBV_EVENT_CQ_ERR);
	expect(&s, IBV_EVENT_QP_LAST_WQE_REACHED, &s.qp[1]);
	expect(&s, IBV_EVENT_SRQ_LIMIT_REACHED, &s.srq);
	put(&s, 1);
	expect(&s, IBV_EVENT_QP_LAST_WQE_REACHED, &s.qp[0]);
	expect(&s, IBV_EVENT_DEVICE_FATAL, NULL);
	expect(&s, IBV_EVENT_CQ_ERR, &s.cq);
	expect(&s, IBV_EVENT_QP_LAST_WQE_REACHED, &s.qp[1]);
	expect_none(&s);
	assert_int_equal(s.qp[1].reported, 2);
	assert_int_equal(s.qp[1].ibv.events_completed, 2);
	assert_int_equal(s.srq.ibv.events_completed, 1);
	assert_int_equal(s.cq.reported, 1);
	assert_int_equal(s.cq.ibv.async_events_completed, 1);
	end(&s);
}

static void test_event_of_an_object_that_ended(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	verbs_event_drop(&s.root, &s.qp[0].last_wqe); /* it does not wait */
	put(&s, 0);
	verbs_event_drop(&s.root, &s.qp[0].last_wqe); /* the only one */
	put(&s, 1);
	put(&s, 0);
	verbs_event_drop(&s.root, &s.qp[0].last_wqe); /* the last one */
	verbs_event_put(&s.root, &s.srq.limit, IBV_EVENT_SRQ_LIMIT_REACHED);
	verbs_event_drop(&s.root, &s.qp[1].last_wqe); /* the first one */
	expect(&s, IBV_EVENT_SRQ_LIMIT_REACHED, &s.srq);
	expect_none(&s);
	end(&s);
}

static void *acknowledge(void *srq)
{
	verbs_event_ack(&(struct ibv_async_event){
		.element.srq = srq,
		.event_type = IBV_EVENT_SRQ_LIMIT_REACHED });
	return NULL;
}

static void test_end_waits_for_acknowledgements(void **state)
{
	struct scene s;
	pthread_t thread;

	(void)state;
	begin(&s);
	pthread_mutex_init(&s.srq.ibv.mutex, NULL);
	pthread_cond_init(&s.srq.ibv.cond, NULL);
	assert_int_equal(pthread_create(&thread, NULL, acknowledge, &s.srq.ibv),
			 0);
	verbs_acks_wait(&(struct verbs_acks){ &s.srq.ibv.mutex, &s.srq.ibv.cond,
					      &s.srq.ibv.events_completed },
			1);
	assert_int_equal(s.srq.ibv.events_completed, 1);
	assert_int_equal(pthread_join(thread, NULL), 0);
	end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_events_are_read_in_order),
		cmocka_unit_test(test_event_of_an_object_that_ended),
		cmocka_unit_test(test_end_waits_for_acknowledgements),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
