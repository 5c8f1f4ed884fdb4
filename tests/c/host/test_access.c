/* Restricted connections of libsrdma (docs/agent.md 9): an agent that passes a
 * connection to the worker, refuses, breaks the rules or ends. */
#include "srdma/srdma.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/access.h"
#include "host/objects.h"
#include "support/descriptors.h"
#include "support/fake_agent.h"
#include "support/fake_proxy.h"
#include "support/fake_worker.h"
#include "support/says.h"

struct fixture {
	struct fake_worker worker;
	struct fake_agent agent;
	char nowhere[SRDMA_SOCKET_PATH];
};

/* --- the agent ----------------------------------------------------------- */

/* Reports an event with n descriptors, the first a connection to the worker. */
static void report_passing(int fd, const char *event, const char *code,
			   unsigned n)
{
	int passed = fake_proxy_connect();

	fake_agent_report(
		fd, event, code,
		&(struct srdma_socket_fds){ .fd = { passed }, .n = n });
	close(passed);
}

static void pass(int fd)
{
	report_passing(fd, "opened", "", 1);
}

static void pass_several(int fd)
{
	report_passing(fd, "opened", "", 3);
}

static void pass_nothing(int fd)
{
	fake_agent_report(fd, "opened", "", NULL);
}

static void pass_with_an_error(int fd)
{
	report_passing(fd, "error", "worker", 1);
}

static void pass_with_another_event(int fd)
{
	report_passing(fd, "ready", "", 1);
}

static void refuse_by_policy(int fd)
{
	fake_agent_report(fd, "error", "policy", NULL);
}

static void refuse_by_quota(int fd)
{
	fake_agent_report(fd, "error", "quota", NULL);
}

static void end(int fd)
{
	(void)fd;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	fake_worker_start(&f->worker);
	fake_proxy_worker = f->worker.path;
	snprintf(f->nowhere, sizeof(f->nowhere), "%s/none", f->worker.folder);
	f->agent.act = pass;
	fake_agent_start(&f->agent, f->worker.folder);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	fake_agent_stop(&f->agent);
	fake_worker_stop(&f->worker);
	free(f);
	return 0;
}

/* --- tests --------------------------------------------------------------- */

/* The connections of the device and of each PD come from the agent. */
static void test_connections_from_the_agent(void **state)
{
	struct fixture *f = *state;
	struct srdma_device *d;
	struct srdma_pd *pd;
	struct srdma_mr *mr;

	assert_int_equal(srdma_open_device(&d, f->nowhere, f->agent.path), 0);
	assert_true(d->restricted);
	assert_non_null(strstr(f->agent.first, "open"));
	assert_non_null(strstr(f->agent.first, f->nowhere));
	assert_int_equal(fcntl(srdma_lasting_control_fd(d->control), F_GETFD),
			 FD_CLOEXEC);
	memset(f->agent.first, 0, sizeof(f->agent.first));
	assert_int_equal(srdma_alloc_pd(&pd, d, NULL), 0);
	assert_non_null(strstr(f->agent.first, f->nowhere));
	assert_int_equal(
		srdma_alloc_mr(&mr, pd,
			       &(struct srdma_mr_attr){ .length = 64 }),
		0);
	assert_int_equal(srdma_dereg_mr(mr), 0);
	f->agent.act = refuse_by_quota;
	{
		struct srdma_pd *other;

		assert_int_equal(srdma_alloc_pd(&other, d, NULL), -EDQUOT);
		assert_null(other);
	}
	assert_int_equal(srdma_dealloc_pd(pd), 0);
	assert_int_equal(srdma_close_device(d), 0);
}

/* A worker that takes this process is used directly. */
static void test_direct_connections_come_first(void **state)
{
	struct fixture *f = *state;
	struct srdma_device *d;

	assert_int_equal(srdma_open_device(&d, f->worker.path, f->agent.path),
			 0);
	assert_false(d->restricted);
	assert_string_equal(f->agent.first, "");
	assert_int_equal(srdma_close_device(d), 0);
}

static enum fake_action close_first(struct fake_worker *w,
				    struct srdma_ctl_msg *m,
				    struct srdma_socket_fds *fds)
{
	(void)m;
	(void)fds;
	return w->calls++ ? FAKE_ANSWER : FAKE_CLOSE;
}

/* A worker with --agent-uid closes a connection after it was made. */
static void test_worker_that_closes_the_connection(void **state)
{
	struct fixture *f = *state;
	struct srdma_device *d;

	f->worker.hook = close_first;
	assert_int_equal(srdma_open_device(&d, f->worker.path, f->agent.path),
			 0);
	assert_true(d->restricted);
	assert_int_equal(srdma_close_device(d), 0);
}

static void test_refusals(void **state)
{
	static const struct {
		void (*act)(int fd);
		int rc;
		const char *says;
	} rows[] = {
		{ refuse_by_policy, -EPERM, "policy: because" },
		{ refuse_by_quota, -EDQUOT, "quota: because" },
		{ pass_with_an_error, -EIO, "worker: because" },
		{ pass_with_another_event, -EPROTO, "illegal message" },
		{ pass_nothing, -EPROTO, "illegal message" },
		{ end, -ECONNRESET, "the agent ended" },
	};
	struct fixture *f = *state;
	struct srdma_agent_place agent = { .user = 0 };
	struct srdma_control *c;
	const int before = count_descriptors();
	enum srdma_access_kind kind;

	strcpy(agent.path, f->agent.path);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct srdma_device *d;

		f->agent.act = rows[i].act;
		assert_int_equal(
			srdma_access_connect(&c, &agent, f->nowhere, &kind),
			rows[i].rc);
		assert_null(c);
		says(rows[i].says);
		/* the worker's own refusal is told too */
		assert_int_equal(
			srdma_open_device(&d, f->nowhere, f->agent.path),
			-ENOENT);
		assert_null(d);
		says("no worker at");
		says(rows[i].says);
	}
	f->agent.act = pass;
	assert_int_equal(srdma_access_connect(&c, &agent, f->nowhere, &kind),
			 0);
	assert_int_equal(kind, SRDMA_ACCESS_HERE);
	srdma_control_close(c);
	until_descriptors(before);
}

/* This worker has legs over shared memory only. */
static void test_worker_of_another_computer(void **state)
{
	struct fixture *f = *state;
	struct srdma_agent_place agent = { .user = 0 };
	struct srdma_control *c;
	struct srdma_device *d;
	enum srdma_access_kind kind;

	strcpy(agent.path, f->agent.path);
	f->agent.act = fake_proxy_pass;
	assert_int_equal(srdma_access_connect(&c, &agent, f->nowhere, &kind),
			 0);
	assert_int_equal(kind, SRDMA_ACCESS_REMOTE);
	srdma_control_close(c);
	assert_int_equal(srdma_open_device(&d, f->nowhere, f->agent.path),
			 -ENOENT);
	says("is on another computer");
	says("start it with --host-dev DEVICE");
}

static void test_several_descriptors(void **state)
{
	struct fixture *f = *state;
	struct srdma_agent_place agent = { .user = 0 };
	struct srdma_control *c;
	enum srdma_access_kind kind;
	const int before = count_descriptors();

	strcpy(agent.path, f->agent.path);
	f->agent.act = pass_several;
	/* the last one is no control connection, but is owned and closed */
	assert_int_equal(srdma_access_connect(&c, &agent, f->nowhere, &kind),
			 0);
	until_descriptors(before + 1);
	srdma_control_close(c);
	until_descriptors(before);
}

static void test_user_of_the_agent(void **state)
{
	struct fixture *f = *state;
	struct srdma_device *d;

	setenv("SRDMA_AGENT_USER", "no-such-user", 1);
	assert_int_equal(srdma_open_device(&d, f->worker.path, f->agent.path),
			 -EINVAL);
	says("no user no-such-user");
	setenv("SRDMA_AGENT_USER", "4294967295", 1);
	assert_int_equal(srdma_open_device(&d, f->worker.path, f->agent.path),
			 -EINVAL);
	setenv("SRDMA_AGENT_USER", "990", 1);
	assert_int_equal(srdma_open_device(&d, f->worker.path, f->agent.path),
			 0);
	assert_int_equal(d->agent.user, 990);
	assert_int_equal(srdma_close_device(d), 0);
	setenv("SRDMA_AGENT_USER", "root", 1);
	assert_int_equal(srdma_open_device(&d, f->worker.path, f->agent.path),
			 0);
	assert_int_equal(d->agent.user, 0);
	assert_int_equal(srdma_close_device(d), 0);
	unsetenv("SRDMA_AGENT_USER");
}

/* Becomes another user, in a child. Returns the result of the call. */
static int as_another_user(const struct fixture *f, uid_t trusted)
{
	struct srdma_agent_place agent = { .user = trusted };
	const char *want = trusted == 0 ? "is of user 1234" : "";
	struct srdma_message w = { 0 };
	struct srdma_channel *c;
	pid_t pid;
	int status;

	strcpy(agent.path, f->agent.path);
	pid = fork();
	if (pid == 0) {
		int r;

		srdma_message_uint(&w, 1);
		srdma_message_finish(&w);
		if (setresuid(1235, 1235, 1235))
			_exit(99);
		r = srdma_channel_open(&c, &agent, &w, NULL, 10000);
		if (r && !strstr(srdma_error_text(), want))
			_exit(98);
		_exit(-r);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* An agent of a third user serves programs that name this user. */
static void test_agent_of_a_third_user(void **state)
{
	struct fixture *f = *state;
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	char path[SRDMA_SOCKET_PATH];
	int fd;

	if (geteuid()) {
		print_message("only root can become other users\n");
		skip();
	}
	/* SO_PEERCRED of a listener is the user that called listen() */
	strcpy(path, f->agent.path);
	snprintf(f->agent.path, sizeof(f->agent.path), "%s/third",
		 f->worker.folder);
	strcpy(name.sun_path, f->agent.path);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
	assert_int_equal(chmod(f->agent.path, 0666), 0);
	assert_int_equal(chmod(f->worker.folder, 0711), 0);
	assert_int_equal(seteuid(1234), 0);
	assert_int_equal(listen(fd, 4), 0);
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(as_another_user(f, 1234), 0);
	assert_int_equal(as_another_user(f, 0), EPERM);
	assert_int_equal(as_another_user(f, 1236), EPERM);
	close(fd);
	unlink(f->agent.path);
	strcpy(f->agent.path, path);
}

#define AGENT(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		AGENT(test_connections_from_the_agent),
		AGENT(test_direct_connections_come_first),
		AGENT(test_worker_that_closes_the_connection),
		AGENT(test_refusals),
		AGENT(test_worker_of_another_computer),
		AGENT(test_several_descriptors),
		AGENT(test_user_of_the_agent),
		AGENT(test_agent_of_a_third_user),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
