/* The end of the worker (verbs/worker.c), and the descriptor that tells it to a program
 * (verbs/async.c). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "port/port.h"
#include "verbs/objects.h"

enum { HOST, WORKER };

/* A connection to the worker. */
struct srdma_lasting_control {
	int end[2]; /* of HOST and of WORKER; -1: closed */
	int lasts;
};

static struct scene {
	struct verbs_root root;
	struct srdma_device device;
	struct srdma_pd leg, slow_leg;
	struct verbs_pd pd, slow_pd;
	struct srdma_lasting_control of_device, of_pd;
	int looks; /* at the PD, until its leg has ended; 0: it has not */
	int checks;
	int64_t deadline; /* of the first check */
} s;

int srdma_lasting_control_fd(const struct srdma_lasting_control *c)
{
	return c->end[HOST];
}

int srdma_lasting_control_lasts(const struct srdma_lasting_control *c)
{
	return c->lasts;
}

int srdma_lasting_control_alive(struct srdma_lasting_control *c)
{
	assert_false(c->lasts);
	return c->end[WORKER] >= 0;
}

int srdma_pd_gone(struct srdma_pd *pd)
{
	assert_int_equal(pthread_mutex_trylock(&s.root.lock), EBUSY);
	if (s.looks && !--s.looks)
		pd->gone = 1;
	if (!pd->control->lasts && !srdma_lasting_control_alive(pd->control))
		pd->gone = 1;
	return pd->gone;
}

/* The worker has closed one connection, and closes the other ones. All checks have one
 * deadline. */
void srdma_pd_check_leg(struct srdma_pd *pd, int64_t deadline)
{
	if (!s.checks++)
		s.deadline = deadline;
	assert_int_equal(deadline, s.deadline);
	if (pd == &s.slow_leg)
		while (srdma_socket_deadline(0) < deadline)
			usleep(1000);
	pd->gone = 1;
}

void verbs_collect(struct verbs_root *root)
{
	assert_ptr_equal(root, &s.root);
}

/* --- a context ----------------------------------------------------------------------- */

static void connect_to(struct srdma_lasting_control *c)
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, c->end), 0);
}

static void worker_closes(struct srdma_lasting_control *c)
{
	close(c->end[WORKER]);
	c->end[WORKER] = -1;
}

static int begin(void **state)
{
	(void)state;
	memset(&s, 0, sizeof(s));
	s.root.events_end = &s.root.events;
	s.root.device = &s.device;
	s.device.control = &s.of_device;
	s.device.hello.host_kind = SRDMA_PORT_SHM;
	s.leg.control = &s.of_pd;
	s.pd.pd = &s.leg;
	pthread_mutex_init(&s.root.lock, NULL);
	connect_to(&s.of_device);
	connect_to(&s.of_pd);
	return 0;
}

static int end(void **state)
{
	(void)state;
	verbs_async_close(&s.root);
	verbs_worker_close(&s.root);
	for (int i = HOST; i <= WORKER; i++) {
		if (s.of_device.end[i] >= 0)
			close(s.of_device.end[i]);
		if (s.of_pd.end[i] >= 0)
			close(s.of_pd.end[i]);
	}
	pthread_mutex_destroy(&s.root.lock);
	return 0;
}

static void open_context(void)
{
	assert_int_equal(verbs_worker_open(&s.root), 0);
	assert_int_equal(verbs_async_open(&s.root), 0);
}

static void open_with_pd(void)
{
	open_context();
	assert_int_equal(verbs_worker_watch(&s.root, &s.of_pd), 0);
	s.root.pds = &s.pd;
}

/* 1: a program that waits for the descriptor is woken. */
static int is_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0);
}

static int wakes(void)
{
	return is_readable(s.root.ctx.context.async_fd);
}

static void set_nonblocking(void)
{
	assert_int_equal(
		fcntl(s.root.ctx.context.async_fd, F_SETFL, O_NONBLOCK), 0);
}

static void expect_error(int err)
{
	struct ibv_async_event e;

	assert_int_equal(ibv_get_async_event(&s.root.ctx.context, &e), -1);
	assert_int_equal(errno, err);
}

/* The event comes, and none after it. */
static void expect_the_end(void)
{
	struct ibv_async_event e;

	assert_int_equal(ibv_get_async_event(&s.root.ctx.context, &e), 0);
	assert_int_equal(e.event_type, IBV_EVENT_DEVICE_FATAL);
	ibv_ack_async_event(&e);
	assert_int_equal(s.checks, s.root.pds != NULL);
	assert_int_equal(s.leg.gone, s.root.pds != NULL);
	assert_int_equal(wakes(), 0);
	set_nonblocking();
	expect_error(EAGAIN);
	pthread_mutex_lock(&s.root.lock);
	assert_int_equal(verbs_worker_look(&s.root), 1);
	pthread_mutex_unlock(&s.root.lock);
	expect_error(EAGAIN);
	assert_int_equal(wakes(), 0);
}

/* --- tests --------------------------------------------------------------------------- */

/* The answer to a request of another thread is no event. */
static void test_only_the_end_wakes(void **state)
{
	(void)state;
	open_with_pd();
	assert_int_equal(write(s.of_pd.end[WORKER], "", 1), 1);
	assert_int_equal(write(s.of_device.end[WORKER], "", 1), 1);
	assert_int_equal(wakes(), 0);
	set_nonblocking();
	expect_error(EAGAIN);
	worker_closes(&s.of_pd);
	assert_int_equal(wakes(), 1);
	expect_the_end();
}

static void end_by_the_device(void)
{
	assert_int_equal(wakes(), 0);
	worker_closes(&s.of_device);
	assert_int_equal(wakes(), 1);
	expect_the_end();
}

static void test_connection_of_the_device_ends_first(void **state)
{
	(void)state;
	open_with_pd();
	end_by_the_device();
}

static void test_context_without_a_pd(void **state)
{
	(void)state;
	open_context();
	end_by_the_device();
}

/* A worker that answers no leg delays the program by one deadline, not by one for each. */
static void test_legs_that_do_not_answer(void **state)
{
	(void)state;
	open_with_pd();
	s.slow_pd.pd = &s.slow_leg;
	s.slow_pd.next = &s.pd;
	s.root.pds = &s.slow_pd;
	pthread_mutex_lock(&s.root.lock);
	verbs_worker_gone(&s.root);
	pthread_mutex_unlock(&s.root.lock);
	assert_int_equal(s.checks, 2);
	assert_int_equal(s.leg.gone, 1);
}

static void test_pd_that_ended_before_the_worker(void **state)
{
	(void)state;
	open_with_pd();
	verbs_worker_unwatch(&s.root, &s.of_pd);
	s.root.pds = NULL;
	worker_closes(&s.of_pd);
	assert_int_equal(wakes(), 0);
}

static void *wait_for_the_end(void *unused)
{
	struct ibv_async_event e;

	(void)unused;
	assert_int_equal(ibv_get_async_event(&s.root.ctx.context, &e), 0);
	assert_int_equal(e.event_type, IBV_EVENT_DEVICE_FATAL);
	return NULL;
}

/* Another thread looks, and finds that the leg has ended. */
static void expect_an_end_that_is_found(void)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, wait_for_the_end, NULL),
			 0);
	pthread_mutex_lock(&s.root.lock);
	s.looks = 1;
	assert_int_equal(verbs_worker_look(&s.root), 1);
	pthread_mutex_unlock(&s.root.lock);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(is_readable(s.root.ends_fd), 1);
	set_nonblocking();
	expect_error(EAGAIN);
	assert_int_equal(wakes(), 0);
}

static void test_connections_that_are_made_again(void **state)
{
	(void)state;
	s.of_device.lasts = s.of_pd.lasts = 1;
	open_with_pd();
	assert_int_equal(verbs_worker_tells_end(&s.root), 0);
	worker_closes(&s.of_device);
	worker_closes(&s.of_pd);
	assert_int_equal(wakes(), 0);
	expect_an_end_that_is_found();
}

static void test_leg_of_another_kind(void **state)
{
	(void)state;
	open_with_pd();
	assert_int_equal(verbs_worker_tells_end(&s.root), 1);
	s.device.hello.host_kind = SRDMA_PORT_VERBS;
	assert_int_equal(verbs_worker_tells_end(&s.root), 0);
	expect_an_end_that_is_found();
}

static void nothing(int signal)
{
	(void)signal;
}

static void test_signal(void **state)
{
	const struct sigaction handle = { .sa_handler = nothing };
	const struct itimerval often = { { 0, 1000 }, { 0, 1000 } },
			       never = { 0 };
	struct sigaction before;

	(void)state;
	open_with_pd();
	assert_int_equal(sigaction(SIGALRM, &handle, &before), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
	expect_error(EINTR);
	assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
	assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
}

static void test_descriptor_that_the_program_closed(void **state)
{
	(void)state;
	open_with_pd();
	close(s.root.ctx.context.async_fd);
	expect_error(EBADF);
	s.root.ctx.context.async_fd = -1;
}

/* As where the kernel has no memory for it. */
static void test_connection_that_cannot_be_watched(void **state)
{
	(void)state;
	open_with_pd();
	assert_int_equal(verbs_worker_watch(&s.root, &s.of_pd), EEXIST);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_only_the_end_wakes, begin,
						end),
		cmocka_unit_test_setup_teardown(
			test_connection_of_the_device_ends_first, begin, end),
		cmocka_unit_test_setup_teardown(test_context_without_a_pd,
						begin, end),
		cmocka_unit_test_setup_teardown(test_legs_that_do_not_answer,
						begin, end),
		cmocka_unit_test_setup_teardown(
			test_pd_that_ended_before_the_worker, begin, end),
		cmocka_unit_test_setup_teardown(
			test_connections_that_are_made_again, begin, end),
		cmocka_unit_test_setup_teardown(test_leg_of_another_kind, begin,
						end),
		cmocka_unit_test_setup_teardown(test_signal, begin, end),
		cmocka_unit_test_setup_teardown(
			test_descriptor_that_the_program_closed, begin, end),
		cmocka_unit_test_setup_teardown(
			test_connection_that_cannot_be_watched, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
