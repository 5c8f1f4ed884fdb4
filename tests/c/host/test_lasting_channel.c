/* A channel of libsrdma that outlives its agent (docs/agent.md 8). */
#include "host/lasting_channel.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "srdma/device.h"
#include "support/descriptors.h"
#include "support/fake_agent.h"
#include "support/says.h"
#include "support/shifted_clock.h"

enum { FEW_MS = 300, LONG_MS = 20000, FULL = 64 };

struct fixture {
	char folder[32];
	struct fake_agent agent;
	struct srdma_agent_place place;
};

static struct fixture f;
static void (*then)(int fd); /* what the agent does at the next channel */
static int no_descriptors;   /* 1: there is no timer; 2: no epoll instance */
static int send_error;	     /* errno of the next sendmsg(), or 0 */

/* In place of those of libc. */
int timerfd_create(clockid_t clock, int flags)
{
	if (no_descriptors != 1)
		return (int)syscall(SYS_timerfd_create, clock, flags);
	errno = EMFILE;
	return -1;
}

int epoll_create1(int flags)
{
	if (no_descriptors != 2)
		return (int)syscall(SYS_epoll_create1, flags);
	errno = EMFILE;
	return -1;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	if (!send_error)
		return syscall(SYS_sendmsg, fd, message, flags);
	errno = send_error;
	send_error = 0;
	return -1;
}

/* --- the agent ----------------------------------------------------------- */

static void wait_end(int fd)
{
	char waste[256];

	while (recv(fd, waste, sizeof(waste), 0) > 0)
		;
}

static void end(int fd)
{
	(void)fd;
}

static void confirm(int fd)
{
	fake_agent_report(fd, "ready", "", NULL);
	wait_end(fd);
}

static void confirm_and_end(int fd)
{
	fake_agent_report(fd, "ready", "", NULL);
	f.agent.act = then;
}

/* Leaves a message unread: recv() of the program fails. */
static void end_with_a_message(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	fake_agent_report(fd, "ready", "", NULL);
	poll(&p, 1, LONG_MS);
	f.agent.act = then;
}

static void confirm_and_report_closed(int fd)
{
	fake_agent_report(fd, "ready", "", NULL);
	fake_agent_report(fd, "closed", "", NULL);
}

static void confirm_and_fail(int fd)
{
	fake_agent_report(fd, "ready", "", NULL);
	fake_agent_report(fd, "error", "timeout", NULL);
}

static void refuse(int fd)
{
	fake_agent_report(fd, "error", "closed", NULL);
	wait_end(fd);
}

/* As a proxy does while it has no link. */
static void refuse_without_a_link(int fd)
{
	fake_agent_report(fd, "error", "worker", NULL);
	f.agent.act = f.agent.channels < 4 ? refuse_without_a_link : confirm;
}

static void refuse_always_without_a_link(int fd)
{
	fake_agent_report(fd, "error", "worker", NULL);
}

static void do_not_read(int fd)
{
	fake_agent_report(fd, "ready", "", NULL);
	usleep(1000 * FEW_MS);
	wait_end(fd);
}

static int setup(void **state)
{
	(void)state;
	memset(&f, 0, sizeof(f));
	strcpy(f.folder, "/tmp/srdma-XXXXXX");
	assert_non_null(mkdtemp(f.folder));
	f.agent.act = confirm_and_end;
	then = confirm;
	fake_agent_start(&f.agent, f.folder);
	strcpy(f.place.path, f.agent.path);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fake_agent_stop(&f.agent);
	rmdir(f.folder);
	no_descriptors = 0;
	shift_clock(0);
	return 0;
}

/* --- the program --------------------------------------------------------- */

static struct srdma_message message_of(const char *text)
{
	struct srdma_message w = { 0 };

	srdma_message_text(&w, text);
	assert_int_equal(srdma_message_finish(&w), 0);
	return w;
}

static int try_to_open(struct srdma_lasting_channel **l, int fd)
{
	struct srdma_message first = message_of("the first"),
			     again = message_of("once more");
	const struct srdma_lasting_params params = {
		.agent = &f.place,
		.confirms = "ready",
		.first = &first,
		.again = &again,
		.fd = fd,
	};
	int r = srdma_lasting_open(l, &params);

	assert_null(again.data);
	srdma_message_free(&first);
	return r;
}

/* Opens a channel, and takes the confirmation of the agent. */
static struct srdma_lasting_channel *open_with(int fd)
{
	struct srdma_lasting_channel *l;
	struct srdma_agent_event e;

	assert_int_equal(try_to_open(&l, fd), 0);
	assert_int_equal(
		srdma_lasting_next(l, &e, srdma_socket_deadline(LONG_MS)), 0);
	assert_string_equal(e.event, "ready");
	assert_non_null(strstr(f.agent.first, "the first"));
	return l;
}

static int next_is(struct srdma_lasting_channel *l, const char *event, int ms)
{
	struct srdma_agent_event e;
	int r = srdma_lasting_next(l, &e, srdma_socket_deadline(ms));

	if (!r)
		assert_string_equal(e.event, event);
	return r;
}

static int next(struct srdma_lasting_channel *l, int ms)
{
	return next_is(l, "ready", ms);
}

static int is_readable(const struct srdma_lasting_channel *l, int ms)
{
	struct pollfd p = { .fd = srdma_lasting_fd(l), .events = POLLIN };

	return poll(&p, 1, ms);
}

/* --- tests --------------------------------------------------------------- */

static void test_another_agent_confirms(void **state)
{
	struct srdma_lasting_channel *l = open_with(-1);
	const int fd = srdma_lasting_fd(l);

	(void)state;
	assert_int_equal(is_readable(l, LONG_MS), 1);
	assert_int_equal(next(l, LONG_MS), 0);
	assert_non_null(strstr(f.agent.first, "once more"));
	assert_int_equal(srdma_lasting_fd(l), fd);
	assert_int_equal(next(l, 0), -ETIMEDOUT);
	assert_int_equal(is_readable(l, 0), 0);
	srdma_lasting_close(l);
	assert_int_equal(f.agent.channels, 2);
}

/* Time limits of calls end no channel, and the end of the second agent begins a
 * new period. */
static void test_agent_away_for_a_while(void **state)
{
	struct srdma_lasting_channel *l = open_with(-1);

	(void)state;
	fake_agent_stop(&f.agent);
	for (int i = 0; i < 2; i++) {
		for (int k = 0; k < 3; k++) {
			assert_int_equal(next(l, 10), -EAGAIN);
			says("is away");
		}
		shift_clock(50 * (i + 1));
		f.agent.act = confirm_and_end;
		fake_agent_start(&f.agent, f.folder);
		assert_int_equal(next(l, LONG_MS), 0);
		fake_agent_stop(&f.agent);
	}
	f.agent.act = confirm;
	fake_agent_start(&f.agent, f.folder);
	assert_int_equal(next(l, LONG_MS), 0);
	srdma_lasting_close(l);
}

static void test_no_other_agent(void **state)
{
	struct srdma_lasting_channel *l = open_with(-1);
	struct srdma_message w = message_of("x");

	(void)state;
	fake_agent_stop(&f.agent);
	assert_int_equal(next(l, 0), -EAGAIN);
	shift_clock(SRDMA_AWAY_MAX_S - 10);
	assert_int_equal(next(l, 100), -EAGAIN);
	shift_clock(SRDMA_AWAY_MAX_S);
	assert_int_equal(next(l, LONG_MS), -ECONNRESET);
	says("no other for 60 s: no agent at ");
	fake_agent_start(&f.agent, f.folder);
	assert_int_equal(next(l, LONG_MS), -ECONNRESET);
	says("no other for 60 s");
	assert_int_equal(srdma_lasting_send(l, &w, 0), -ECONNRESET);
	assert_int_equal(is_readable(l, 0), 1);
	srdma_lasting_close(l);
	srdma_message_free(&w);
	assert_int_equal(f.agent.channels, 1);
}

/* A program that calls rarely has at least one attempt. */
static void test_rare_calls(void **state)
{
	struct srdma_lasting_channel *l = open_with(-1);

	(void)state;
	fake_agent_stop(&f.agent);
	assert_int_equal(next(l, 0), -EAGAIN);
	shift_clock(10 * SRDMA_AWAY_MAX_S);
	f.agent.act = confirm;
	fake_agent_start(&f.agent, f.folder);
	assert_int_equal(next(l, LONG_MS), 0);
	srdma_lasting_close(l);
}

static void test_proxy_without_a_link(void **state)
{
	struct srdma_lasting_channel *l;

	(void)state;
	then = refuse_without_a_link;
	l = open_with(-1);
	assert_int_equal(next(l, LONG_MS), 0);
	assert_int_equal(f.agent.channels, 5);
	srdma_lasting_close(l);
}

static void test_proxy_that_gets_no_link(void **state)
{
	struct srdma_lasting_channel *l;

	(void)state;
	then = refuse_always_without_a_link;
	l = open_with(-1);
	assert_int_equal(next(l, FEW_MS), -EAGAIN);
	shift_clock(SRDMA_AWAY_MAX_S);
	assert_int_equal(next(l, LONG_MS), -ECONNRESET);
	says("no other for 60 s: worker: because");
	srdma_lasting_close(l);
}

/* A first channel is not opened again. */
static void test_proxy_that_has_no_link_at_once(void **state)
{
	struct srdma_lasting_channel *l;

	(void)state;
	f.agent.act = refuse_always_without_a_link;
	assert_int_equal(try_to_open(&l, -1), 0);
	assert_int_equal(next_is(l, "error", LONG_MS), 0);
	assert_int_equal(next(l, LONG_MS), -EIO);
	srdma_lasting_close(l);
	assert_int_equal(f.agent.channels, 1);
}

static void test_end_before_the_confirmation(void **state)
{
	struct srdma_lasting_channel *l;

	(void)state;
	f.agent.act = end;
	assert_int_equal(try_to_open(&l, -1), 0);
	assert_int_equal(next(l, LONG_MS), -ECONNRESET);
	says("the agent ended");
	assert_int_equal(next(l, LONG_MS), -ECONNRESET);
	says("the agent ended");
	srdma_lasting_close(l);
	assert_int_equal(f.agent.channels, 1);
}

/* A child of fork() keeps the file of the former channel open. It ended, so it
 * would always be readable. */
static void test_child_with_the_former_channel(void **state)
{
	struct srdma_lasting_channel *l = open_with(-1);
	int confirmed, readable;
	pid_t child;

	(void)state;
	assert_int_equal(is_readable(l, LONG_MS), 1); /* the agent ended */
	child = fork();
	if (child == 0) {
		pause();
		_exit(0);
	}
	confirmed = next(l, LONG_MS);
	readable = is_readable(l, 0);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	srdma_lasting_close(l);
	assert_int_equal(confirmed, 0);
	assert_int_equal(readable, 0);
}

/* Attempts have pauses, in which the descriptor is not readable. */
static void test_agents_that_end_at_once(void **state)
{
	struct srdma_lasting_channel *l;

	(void)state;
	then = end;
	l = open_with(-1);
	assert_int_equal(next(l, 500), -EAGAIN); /* 50, 150, 350 ms */
	assert_in_range(f.agent.channels, 2, 4);
	assert_int_equal(is_readable(l, 0), 0);
	assert_int_equal(is_readable(l, LONG_MS), 1);
	shift_clock(SRDMA_AWAY_MAX_S);
	assert_int_equal(next(l, LONG_MS), -ECONNRESET);
	says("no other for 60 s: the agent ended");
	assert_int_equal(is_readable(l, LONG_MS), 1);
	srdma_lasting_close(l);
}

/* An agent that is slow to confirm is waited for. */
static void test_agent_that_is_silent(void **state)
{
	struct srdma_lasting_channel *l;
	struct srdma_message w = message_of("x");

	(void)state;
	then = wait_end;
	l = open_with(-1);
	assert_int_equal(next(l, FEW_MS), -EAGAIN);
	assert_int_equal(f.agent.channels, 2);
	assert_int_equal(is_readable(l, 0), 0);
	assert_int_equal(srdma_lasting_send(l, &w, 0), -EAGAIN);
	shift_clock(SRDMA_AWAY_MAX_S);
	assert_int_equal(next(l, FEW_MS), -EAGAIN);
	srdma_lasting_close(l);
	srdma_message_free(&w);
}

static void test_agent_that_refuses(void **state)
{
	struct srdma_lasting_channel *l;
	struct srdma_agent_event e;

	(void)state;
	then = refuse;
	l = open_with(-1);
	assert_int_equal(
		srdma_lasting_next(l, &e, srdma_socket_deadline(LONG_MS)), 0);
	assert_string_equal(e.event, "error");
	assert_string_equal(e.code, "closed");
	srdma_lasting_close(l);
}

/* It does not block, although the calls of the program do not wait. */
static void test_agent_that_accepts_nothing(void **state)
{
	struct srdma_lasting_channel *l = open_with(-1);
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int listener, full[FULL], n = 0;

	(void)state;
	fake_agent_stop(&f.agent);
	strcpy(name.sun_path, f.place.path);
	listener = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&name, sizeof(name)),
			 0);
	assert_int_equal(listen(listener, 1), 0);
	do
		full[n] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	while (!connect(full[n++], (struct sockaddr *)&name, sizeof(name)) &&
	       n < FULL);
	assert_int_equal(errno, EAGAIN);
	alarm(5); /* before the time limit of a connect */
	assert_int_equal(next(l, FEW_MS), -EAGAIN);
	alarm(0);
	while (n > 0)
		close(full[--n]);
	close(listener);
	unlink(f.place.path);
	f.agent.act = confirm;
	fake_agent_start(&f.agent, f.folder);
	assert_int_equal(next(l, LONG_MS), 0);
	srdma_lasting_close(l);
}

/* Returns 0 if this process, of another user, sends nothing to the agent. */
static int looks_as_another_user(struct srdma_lasting_channel *l)
{
	if (setresuid(1235, 1235, 1235) || next(l, FEW_MS) != -EAGAIN)
		return 1;
	shift_clock(SRDMA_AWAY_MAX_S);
	return next(l, LONG_MS) != -ECONNRESET ||
	       !strstr(srdma_error_text(), "is of user 1234");
}

static void test_restarted_agent_of_a_third_user(void **state)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	struct srdma_lasting_channel *l;
	int listener, fd, status;
	pid_t pid;

	(void)state;
	if (geteuid()) {
		print_message("only root can become other users\n");
		skip();
	}
	l = open_with(-1);
	fake_agent_stop(&f.agent);
	strcpy(name.sun_path, f.place.path);
	listener = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&name, sizeof(name)),
			 0);
	assert_int_equal(chmod(f.place.path, 0666), 0);
	assert_int_equal(chmod(f.folder, 0711), 0);
	/* SO_PEERCRED of a listener is the user that called listen() */
	assert_int_equal(seteuid(1234), 0);
	assert_int_equal(listen(listener, 8), 0);
	assert_int_equal(seteuid(0), 0);
	pid = fork();
	if (pid == 0)
		_exit(looks_as_another_user(l));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	fd = accept(listener, NULL, NULL);
	assert_int_equal(recv(fd, name.sun_path, 1, 0), 0);
	close(fd);
	close(listener);
	unlink(f.place.path);
	srdma_lasting_close(l);
	fake_agent_start(&f.agent, f.folder);
}

static void test_message_to_an_agent_that_ended(void **state)
{
	struct srdma_lasting_channel *l = open_with(-1);
	struct srdma_message w = message_of("x");

	(void)state;
	assert_int_equal(is_readable(l, LONG_MS), 1);
	assert_int_equal(srdma_lasting_send(l, &w, 0), -EAGAIN);
	says("is away");
	assert_int_equal(next(l, LONG_MS), 0);
	assert_int_equal(srdma_lasting_send(l, &w, 0), 0);
	srdma_lasting_close(l);
	srdma_message_free(&w);
}

/* A send that fails does not discard what the agent reported before its end. */
static void test_events_before_the_end_of_the_agent(void **state)
{
	struct srdma_lasting_channel *l;
	struct srdma_message w = message_of("x");
	int r;

	(void)state;
	f.agent.act = confirm_and_report_closed;
	l = open_with(-1);
	do
		r = srdma_lasting_send(l, &w, srdma_socket_deadline(LONG_MS));
	while (!r);
	assert_int_equal(r, -EAGAIN);
	says("is away");
	assert_int_equal(next_is(l, "closed", LONG_MS), 0);
	srdma_lasting_close(l);
	srdma_message_free(&w);
}

static void test_agent_that_ends_with_a_message(void **state)
{
	struct srdma_lasting_channel *l;
	struct srdma_message w = message_of("x");

	(void)state;
	f.agent.act = end_with_a_message;
	l = open_with(-1);
	assert_int_equal(srdma_lasting_send(l, &w, 0), 0);
	assert_int_equal(next(l, LONG_MS), 0);
	srdma_lasting_close(l);
	srdma_message_free(&w);
	assert_int_equal(f.agent.channels, 2);
}

/* The agent lives, and another call succeeds. */
static void test_send_without_memory(void **state)
{
	struct srdma_lasting_channel *l;
	struct srdma_message w = message_of("x");
	int refused, sent;

	(void)state;
	f.agent.act = confirm;
	l = open_with(-1);
	send_error = ENOBUFS;
	refused = srdma_lasting_send(l, &w, 0);
	sent = srdma_lasting_send(l, &w, 0);
	srdma_lasting_close(l);
	srdma_message_free(&w);
	assert_int_equal(refused, -ENOBUFS);
	says("No buffer space available");
	assert_int_equal(sent, 0);
	assert_int_equal(f.agent.channels, 1);
}

/* The agent lives: another channel would be no restart. */
static void test_message_sent_in_part(void **state)
{
	static const uint8_t data[SRDMA_AGENT_MAX - 64];
	struct srdma_lasting_channel *l;
	struct srdma_message big = { 0 };

	(void)state;
	f.agent.act = do_not_read;
	l = open_with(-1);
	srdma_message_bytes(&big, data, sizeof(data));
	assert_int_equal(srdma_message_finish(&big), 0);
	assert_int_equal(srdma_lasting_send(l, &big, 0), -ETIMEDOUT);
	assert_int_equal(srdma_lasting_send(l, &big, 0), -ECONNRESET);
	assert_int_equal(next(l, LONG_MS), -ECONNRESET);
	says("did not get a whole message");
	srdma_lasting_close(l);
	srdma_message_free(&big);
	assert_int_equal(f.agent.channels, 1);
}

/* Another agent would refuse too. */
static void test_error_after_the_confirmation(void **state)
{
	const int before = count_descriptors();
	struct srdma_lasting_channel *l;
	struct srdma_message w = message_of("x");

	(void)state;
	f.agent.act = confirm_and_fail;
	l = open_with(dup(0));
	assert_int_equal(srdma_lasting_over(l), 0);
	assert_int_equal(next_is(l, "error", LONG_MS), 0);
	assert_int_equal(srdma_lasting_over(l), -ETIMEDOUT);
	until_descriptors(before + 2); /* the channel, and its epoll */
	assert_int_equal(next(l, LONG_MS), -ETIMEDOUT);
	says("timeout: because");
	assert_int_equal(srdma_lasting_send(l, &w, 0), -ETIMEDOUT);
	says("timeout: because");
	srdma_lasting_close(l);
	srdma_message_free(&w);
	assert_int_equal(f.agent.channels, 1);
}

static void test_descriptor_beside_both_messages(void **state)
{
	const int before = count_descriptors();
	struct srdma_lasting_channel *l = open_with(dup(0));

	(void)state;
	assert_int_equal(f.agent.passed, 1);
	f.agent.passed = 0;
	assert_int_equal(next(l, LONG_MS), 0);
	assert_int_equal(f.agent.passed, 1);
	srdma_lasting_close(l);
	until_descriptors(before);
}

static void test_no_descriptors(void **state)
{
	const int before = count_descriptors();
	struct srdma_lasting_channel *l;

	(void)state;
	no_descriptors = 2;
	assert_int_equal(try_to_open(&l, dup(0)), -EMFILE);
	assert_null(l);
	says("no descriptor");
	assert_int_equal(count_descriptors(), before);
	no_descriptors = 1;
	l = open_with(-1);
	assert_int_equal(next(l, LONG_MS), -EMFILE);
	no_descriptors = 0;
	assert_int_equal(next(l, LONG_MS), -EMFILE);
	says("no descriptor");
	srdma_lasting_close(l);
}

#define each(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		each(test_another_agent_confirms),
		each(test_agent_away_for_a_while),
		each(test_no_other_agent),
		each(test_rare_calls),
		each(test_proxy_without_a_link),
		each(test_proxy_that_gets_no_link),
		each(test_proxy_that_has_no_link_at_once),
		each(test_end_before_the_confirmation),
		each(test_child_with_the_former_channel),
		each(test_agents_that_end_at_once),
		each(test_agent_that_is_silent),
		each(test_agent_that_refuses),
		each(test_agent_that_accepts_nothing),
		each(test_restarted_agent_of_a_third_user),
		each(test_message_to_an_agent_that_ended),
		each(test_events_before_the_end_of_the_agent),
		each(test_agent_that_ends_with_a_message),
		each(test_send_without_memory),
		each(test_message_sent_in_part),
		each(test_error_after_the_confirmation),
		each(test_descriptor_beside_both_messages),
		each(test_no_descriptors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
