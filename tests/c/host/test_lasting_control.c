/* Control connections of libsrdma that outlive the link to another computer
 * (docs/control-link.md 2.5). */
#include "host/lasting_control.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/access.h"
#include "support/descriptors.h"
#include "support/fake_agent.h"
#include "support/fake_proxy.h"
#include "support/fake_worker.h"
#include "support/says.h"
#include "support/shifted_clock.h"

enum { LONG_MS = 20000, KINDS = 64, QUICK = 100 };

static struct fixture {
	struct fake_worker worker;
	struct fake_agent agent;
	struct srdma_agent_place place;
	int before;	       /* descriptors */
	uint16_t kinds[KINDS]; /* of the requests that the worker got */
	unsigned asked;
} f;
static int no_descriptors; /* 1: there is no timer; 2: nothing is watched */
static int quick;	   /* 1: alarms come after 1/100 of their time */
static int no_access;	   /* so many calls of connect() fail with EACCES */

/* In place of those of libc. */
int timerfd_create(clockid_t clock, int flags)
{
	if (no_descriptors != 1)
		return (int)syscall(SYS_timerfd_create, clock, flags);
	errno = EMFILE;
	return -1;
}

int connect(int fd, const struct sockaddr *address, socklen_t len)
{
	if (!no_access)
		return (int)syscall(SYS_connect, fd, address, len);
	no_access--;
	errno = EACCES;
	return -1;
}

int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	if (no_descriptors != 2)
		return (int)syscall(SYS_epoll_ctl, epfd, op, fd, event);
	errno = ENOSPC;
	return -1;
}

int timerfd_settime(int fd, int flags, const struct itimerspec *new,
		    struct itimerspec *old)
{
	struct itimerspec when = *new;

	if (quick) {
		when.it_value.tv_nsec +=
			when.it_value.tv_sec % QUICK * (1000000000 / QUICK);
		when.it_value.tv_sec /= QUICK;
	}
	return (int)syscall(SYS_timerfd_settime, fd, flags, &when, old);
}

/* --- agent and worker ---------------------------------------------------- */

static void wait_end(int fd)
{
	char waste[256];

	while (recv(fd, waste, sizeof(waste), 0) > 0)
		;
}

/* The first time. */
static void say_nothing(int fd)
{
	f.agent.act = fake_proxy_pass;
	wait_end(fd);
}

static void end(int fd)
{
	(void)fd;
	f.agent.act = fake_proxy_pass;
}

static void refuse_for_now(int fd)
{
	fake_agent_report(fd, "error", "worker", NULL);
	f.agent.act = fake_proxy_pass;
}

static void refuse_by_policy(int fd)
{
	fake_agent_report(fd, "error", "policy", NULL);
}

static enum fake_action record(struct fake_worker *w, struct srdma_ctl_msg *m,
			       struct srdma_socket_fds *fds)
{
	(void)w;
	(void)fds;
	f.kinds[f.asked++ % KINDS] = m->kind;
	return FAKE_ANSWER;
}

/* Each request but ATTACH ends the connection the first time. */
static enum fake_action close_once(struct fake_worker *w,
				   struct srdma_ctl_msg *m,
				   struct srdma_socket_fds *fds)
{
	const enum fake_action a = record(w, m, fds);

	return m->kind == SRDMA_CTL_ATTACH || w->calls++ ? a : FAKE_CLOSE;
}

/* The same; the second one finds that the first was done. */
static enum fake_action close_when_done(struct fake_worker *w,
					struct srdma_ctl_msg *m,
					struct srdma_socket_fds *fds)
{
	const enum fake_action a = close_once(w, m, fds);

	return a == FAKE_CLOSE || m->kind == SRDMA_CTL_ATTACH
		       ? a
		       : fake_refuse(m, ENOENT, "no such object");
}

static enum fake_action no_attach(struct fake_worker *w,
				  struct srdma_ctl_msg *m, uint32_t status)
{
	return m->kind == SRDMA_CTL_ATTACH && !w->calls++
		       ? fake_refuse(m, status, "as the test wants")
		       : FAKE_ANSWER;
}

static enum fake_action leg_has_ended(struct fake_worker *w,
				      struct srdma_ctl_msg *m,
				      struct srdma_socket_fds *fds)
{
	(void)fds;
	return no_attach(w, m, EPERM);
}

static enum fake_action busy_once(struct fake_worker *w,
				  struct srdma_ctl_msg *m,
				  struct srdma_socket_fds *fds)
{
	(void)fds;
	return no_attach(w, m, EBUSY);
}

static enum fake_action silent_attach(struct fake_worker *w,
				      struct srdma_ctl_msg *m,
				      struct srdma_socket_fds *fds)
{
	(void)fds;
	return m->kind == SRDMA_CTL_ATTACH && !w->calls++ ? FAKE_SILENCE
							  : FAKE_ANSWER;
}

static enum fake_action not_connected(struct fake_worker *w,
				      struct srdma_ctl_msg *m,
				      struct srdma_socket_fds *fds)
{
	(void)w;
	(void)fds;
	return fake_refuse(m, ENOTCONN, "the leg has ended");
}

static int setup(void **state)
{
	(void)state;
	memset(&f, 0, sizeof(f));
	fake_worker_start(&f.worker);
	f.worker.hook = record;
	fake_proxy_worker = f.worker.path;
	f.agent.act = fake_proxy_pass;
	fake_agent_start(&f.agent, f.worker.folder);
	strcpy(f.place.path, f.agent.path);
	f.before = count_descriptors();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	no_descriptors = quick = no_access = 0;
	shift_clock(0);
	fake_agent_stop(&f.agent);
	fake_worker_stop(&f.worker);
	return 0;
}

/* --- the program --------------------------------------------------------- */

static int try_to_make(struct srdma_lasting_control **l, int has_leg)
{
	struct srdma_lasting_control_params p = { .agent = &f.place,
						  .path = "/far/away",
						  .has_leg = has_leg,
						  .token = "token" };
	enum srdma_access_kind kind;
	struct srdma_control *c;

	assert_int_equal(srdma_access_connect(&c, &f.place, p.path, &kind), 0);
	return srdma_lasting_control_create(l, c, &p);
}

static int call(struct srdma_lasting_control *l, uint16_t kind)
{
	struct srdma_ctl_msg m = { .kind = kind };

	return srdma_lasting_control_call(l, &m, NULL, NULL);
}

static struct srdma_lasting_control *make(int has_leg)
{
	struct srdma_lasting_control *l;

	f.worker.hook = record;
	assert_int_equal(try_to_make(&l, has_leg), 0);
	/* The worker has accepted it now. */
	assert_int_equal(call(l, SRDMA_CTL_HELLO), 0);
	f.asked = 0;
	return l;
}

/* The connection ends, and the agent does this next. */
static struct srdma_lasting_control *make_and_cut(int has_leg,
						  void (*act)(int fd))
{
	struct srdma_lasting_control *l;

	f.agent.act = fake_proxy_pass;
	l = make(has_leg);
	f.agent.act = act;
	fake_worker_cut(&f.worker);
	return l;
}

static int call_now(struct srdma_lasting_control *l, uint16_t kind)
{
	struct srdma_ctl_msg m = { .kind = kind };

	return srdma_lasting_control_call_until(l, &m, NULL, NULL, 0);
}

static int is_readable(const struct srdma_lasting_control *l, int ms)
{
	struct pollfd p = { .fd = srdma_lasting_control_fd(l),
			    .events = POLLIN };

	return poll(&p, 1, ms);
}

/* As an event loop. Returns 1 when the worker got a request, ATTACH, over
 * another connection, and there is nothing to do now. 0: there is none. */
static int comes_back(struct srdma_lasting_control *l)
{
	const unsigned asked = f.asked;

	while (is_readable(l, LONG_MS))
		if (!srdma_lasting_control_alive(l))
			return 0;
		else if (f.asked > asked && !is_readable(l, 0))
			return 1;
	fail_msg("no other connection");
	return 0;
}

static void gone(struct srdma_lasting_control *l, const char *why)
{
	assert_false(srdma_lasting_control_alive(l));
	for (int i = 0; i < 2; i++) {
		assert_int_equal(call(l, SRDMA_CTL_STATS), -ENOTCONN);
		says("no other connection to the worker at /far/away");
		says(why);
		says("connect again");
	}
	srdma_lasting_control_close(l);
}

/* --- tests --------------------------------------------------------------- */

static void test_request_after_the_end(void **state)
{
	static const uint16_t wanted[] = { SRDMA_CTL_REG_MR, SRDMA_CTL_ATTACH,
					   SRDMA_CTL_REG_MR };
	struct srdma_lasting_control *l = make(1);

	(void)state;
	assert_int_equal(call(l, SRDMA_CTL_REG_MR), 0);
	fake_worker_cut(&f.worker);
	assert_int_equal(call(l, SRDMA_CTL_REG_MR), 0);
	assert_memory_equal(f.kinds, wanted, sizeof(wanted));
	assert_non_null(strstr(f.agent.first, "/far/away"));
	assert_int_equal(is_readable(l, 0), 0);
	srdma_lasting_control_close(l);
	until_descriptors(f.before);
}

/* The descriptor stays the same, and no call waits. */
static void test_event_loop(void **state)
{
	struct srdma_lasting_control *l = make(1);
	const int fd = srdma_lasting_control_fd(l);

	(void)state;
	for (unsigned i = 1; i <= 2; i++) {
		fake_worker_cut(&f.worker);
		assert_true(comes_back(l));
		assert_int_equal(f.asked, i);
		assert_int_equal(f.kinds[i - 1], SRDMA_CTL_ATTACH);
	}
	assert_memory_equal(f.worker.request.token, "token", 6);
	assert_int_equal(srdma_lasting_control_fd(l), fd);
	srdma_lasting_control_close(l);
	until_descriptors(f.before);
}

static void test_requests_under_way(void **state)
{
	static const struct {
		uint16_t kind;
		int rc;
	} rows[] = {
		{ SRDMA_CTL_REG_MR, -ETIMEDOUT },
		{ SRDMA_CTL_INIT, -ETIMEDOUT },
		{ SRDMA_CTL_OPEN, -ETIMEDOUT },
		{ SRDMA_CTL_SHARE, -ETIMEDOUT },
		{ SRDMA_CTL_RESET, -ETIMEDOUT },
		{ SRDMA_CTL_REINIT, -ETIMEDOUT },
		{ SRDMA_CTL_REPLACE, -ETIMEDOUT },
		{ SRDMA_CTL_MODIFY, 0 },
		{ SRDMA_CTL_HELLO, 0 },
		{ SRDMA_CTL_STATS, 0 },
		{ SRDMA_CTL_REVOKE, 0 },
		{ SRDMA_CTL_WITHDRAW, 0 },
		{ SRDMA_CTL_DEREG_MR, 0 },
		{ SRDMA_CTL_DESTROY, 0 },
		{ SRDMA_CTL_UNINSTALL, 0 },
	};
	struct srdma_lasting_control *l = make(1);

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		f.worker.calls = 0;
		f.worker.hook = close_once;
		assert_int_equal(call(l, rows[i].kind), rows[i].rc);
		if (rows[i].rc)
			says("ended during");
		assert_int_equal(call(l, SRDMA_CTL_REG_MR), 0);
	}
	srdma_lasting_control_close(l);
}

static void test_requests_that_were_done(void **state)
{
	static const struct {
		uint16_t kind;
		int rc;
	} rows[] = {
		{ SRDMA_CTL_DEREG_MR, 0 },	 { SRDMA_CTL_DESTROY, 0 },
		{ SRDMA_CTL_UNINSTALL, 0 },	 { SRDMA_CTL_REVOKE, -ENOENT },
		{ SRDMA_CTL_WITHDRAW, -ENOENT },
	};
	struct srdma_lasting_control *l = make(1);

	(void)state;
	f.worker.hook = close_when_done;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		f.worker.calls = 0;
		assert_int_equal(call(l, rows[i].kind), rows[i].rc);
		/* the request was not repeated: there is no such object */
		assert_int_equal(call(l, rows[i].kind), -ENOENT);
	}
	srdma_lasting_control_close(l);
}

/* It is not taken for the end of the connection. */
static void test_refusal_that_looks_like_an_end(void **state)
{
	struct srdma_lasting_control *l = make(1);

	(void)state;
	f.worker.hook = not_connected;
	assert_int_equal(call(l, SRDMA_CTL_DEREG_MR), -ENOTCONN);
	says("refused DEREG_MR: the leg has ended");
	assert_true(srdma_lasting_control_alive(l));
	assert_int_equal(f.agent.channels, 1);
	srdma_lasting_control_close(l);
}

/* Attempts that fail are repeated. */
static void test_attempts_that_fail(void **state)
{
	static void (*const acts[])(int) = { end, refuse_for_now, say_nothing };

	(void)state;
	quick = 1;
	for (size_t i = 0; i < sizeof(acts) / sizeof(*acts); i++) {
		struct srdma_lasting_control *l = make_and_cut(1, acts[i]);
		const unsigned channels = f.agent.channels;

		assert_int_equal(call(l, SRDMA_CTL_REG_MR), 0);
		assert_true(f.agent.channels >= channels + 2);
		srdma_lasting_control_close(l);
	}
	until_descriptors(f.before);
}

/* Another proxy has made its socket, and not yet given it to its group. */
static void test_socket_of_a_proxy_that_starts(void **state)
{
	struct srdma_lasting_control *l = make_and_cut(1, fake_proxy_pass);

	(void)state;
	no_access = 2;
	assert_int_equal(call(l, SRDMA_CTL_REG_MR), 0);
	assert_int_equal(no_access, 0);
	srdma_lasting_control_close(l);
}

/* That would end its leg, which the next connection needs. */
static void test_lasting_connection_is_not_ended(void **state)
{
	struct srdma_lasting_control *l = make(1);

	(void)state;
	srdma_lasting_control_end(l);
	assert_int_equal(call(l, SRDMA_CTL_REG_MR), 0);
	fake_agent_stop(&f.agent);
	fake_worker_cut(&f.worker);
	assert_int_equal(call_now(l, SRDMA_CTL_REG_MR), -ETIMEDOUT);
	srdma_lasting_control_end(l);
	fake_agent_start(&f.agent, f.worker.folder);
	assert_int_equal(call(l, SRDMA_CTL_REG_MR), 0);
	srdma_lasting_control_close(l);
}

static void test_attach_that_fails(void **state)
{
	static enum fake_action (*const hooks[])(
		struct fake_worker *, struct srdma_ctl_msg *,
		struct srdma_socket_fds *) = { busy_once, silent_attach };

	(void)state;
	quick = 1;
	for (size_t i = 0; i < sizeof(hooks) / sizeof(*hooks); i++) {
		struct srdma_lasting_control *l =
			make_and_cut(1, fake_proxy_pass);
		const unsigned channels = f.agent.channels;

		f.worker.calls = 0;
		f.worker.hook = hooks[i];
		assert_int_equal(call(l, SRDMA_CTL_REG_MR), 0);
		assert_true(f.agent.channels >= channels + 2);
		srdma_lasting_control_close(l);
	}
	until_descriptors(f.before);
}

static void test_agent_away_for_a_while(void **state)
{
	struct srdma_lasting_control *l = make_and_cut(1, fake_proxy_pass);

	(void)state;
	fake_agent_stop(&f.agent);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(call_now(l, SRDMA_CTL_DEREG_MR), -ETIMEDOUT);
		says("no link to the NIC in time for DEREG_MR: see its proxy");
		assert_int_equal(is_readable(l, LONG_MS), 1);
		assert_true(srdma_lasting_control_alive(l));
	}
	shift_clock(SRDMA_CTL_KEEP_LEGS - 10);
	assert_int_equal(is_readable(l, LONG_MS), 1);
	assert_true(srdma_lasting_control_alive(l));
	fake_agent_start(&f.agent, f.worker.folder);
	assert_int_equal(call(l, SRDMA_CTL_DEREG_MR), 0);
	srdma_lasting_control_close(l);
}

static void test_no_other_agent(void **state)
{
	struct srdma_lasting_control *l = make_and_cut(1, fake_proxy_pass);

	(void)state;
	fake_agent_stop(&f.agent);
	assert_true(srdma_lasting_control_alive(l));
	shift_clock(SRDMA_CTL_KEEP_LEGS);
	assert_false(comes_back(l));
	assert_int_equal(is_readable(l, 0), 1);
	fake_agent_start(&f.agent, f.worker.folder);
	gone(l, "no agent at ");
}

/* A program that calls rarely has at least one attempt. Without a leg nothing
 * is lost. */
static void test_rare_calls(void **state)
{
	(void)state;
	for (int has_leg = 0; has_leg < 2; has_leg++) {
		struct srdma_lasting_control *l =
			make_and_cut(has_leg, fake_proxy_pass);

		fake_agent_stop(&f.agent);
		assert_true(srdma_lasting_control_alive(l));
		for (int i = 0; i < 3 && !has_leg; i++) {
			shift_clock((i + 1) * 10 * SRDMA_CTL_KEEP_LEGS);
			assert_int_equal(is_readable(l, LONG_MS), 1);
			assert_true(srdma_lasting_control_alive(l));
		}
		shift_clock(100 * (has_leg + 1) * SRDMA_CTL_KEEP_LEGS);
		fake_agent_start(&f.agent, f.worker.folder);
		f.asked = 0;
		assert_int_equal(call(l, SRDMA_CTL_STATS), 0);
		assert_int_equal(f.kinds[0],
				 has_leg ? SRDMA_CTL_ATTACH : SRDMA_CTL_STATS);
		srdma_lasting_control_close(l);
	}
}

static void test_refusal_of_the_agent(void **state)
{
	struct srdma_lasting_control *l = make_and_cut(0, refuse_by_policy);

	(void)state;
	assert_int_equal(call(l, SRDMA_CTL_STATS), -ENOTCONN);
	gone(l, "policy: because");
}

static void test_end_of_the_leg(void **state)
{
	struct srdma_lasting_control *l = make_and_cut(1, fake_proxy_pass);

	(void)state;
	f.worker.hook = leg_has_ended;
	assert_int_equal(call(l, SRDMA_CTL_REG_MR), -ENOTCONN);
	gone(l, "refused ATTACH: as the test wants");
}

static void test_no_descriptors(void **state)
{
	struct srdma_lasting_control *l = make_and_cut(1, fake_proxy_pass);

	(void)state;
	no_descriptors = 1;
	assert_int_equal(call(l, SRDMA_CTL_REG_MR), -ENOTCONN);
	gone(l, "no descriptor to wait");
	no_descriptors = 2;
	assert_int_equal(try_to_make(&l, 1), -ENOSPC);
	assert_null(l);
	until_descriptors(f.before);
}

/* A program may end its objects whenever it wants. */
static void test_close_before_another_connection(void **state)
{
	struct srdma_lasting_control *l;

	(void)state;
	for (int steps = 0; steps < 3; steps++) {
		l = make_and_cut(1, steps < 2 ? say_nothing : fake_proxy_pass);
		f.worker.calls = 0;
		f.worker.hook = silent_attach;
		for (int i = 0; i <= steps; i++) {
			assert_int_equal(is_readable(l, LONG_MS), 1);
			assert_true(srdma_lasting_control_alive(l));
		}
		srdma_lasting_control_close(l);
	}
	srdma_lasting_control_close(NULL);
	until_descriptors(f.before);
}

#define each(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		each(test_request_after_the_end),
		each(test_event_loop),
		each(test_requests_under_way),
		each(test_requests_that_were_done),
		each(test_refusal_that_looks_like_an_end),
		each(test_attempts_that_fail),
		each(test_socket_of_a_proxy_that_starts),
		each(test_lasting_connection_is_not_ended),
		each(test_attach_that_fails),
		each(test_agent_away_for_a_while),
		each(test_no_other_agent),
		each(test_rare_calls),
		each(test_refusal_of_the_agent),
		each(test_end_of_the_leg),
		each(test_no_descriptors),
		each(test_close_before_another_connection),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
