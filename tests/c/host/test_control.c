/* The client of a worker's control socket (local-interface.md 3): answers and
 * every refusal. */
#include "host/control.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "srdma/device.h"
#include "support/fake_worker.h"
#include "support/says.h"

enum { SHORT_MS = 100, LONG_MS = 20000, SECOND = 0x5ec04d };

static struct srdma_control *connect_to(const struct fake_worker *w, int ms)
{
	struct srdma_control *c;

	assert_int_equal(srdma_control_connect(&c, w->path, ms), 0);
	return c;
}

static int call(struct srdma_control *c, uint16_t kind)
{
	struct srdma_ctl_msg m = { .kind = kind };

	if (kind == SRDMA_CTL_HELLO)
		m.version = SRDMA_CTL_VERSION;
	return srdma_control_call(c, &m, NULL, NULL);
}

/* --- path ---------------------------------------------------------------- */

static void test_path(void **state)
{
	char path[SRDMA_SOCKET_PATH], longer[200];

	(void)state;
	unsetenv("SRDMA_WORKER");
	unsetenv("XDG_RUNTIME_DIR");
	assert_int_equal(srdma_control_path(path, NULL, 0), -ENXIO);
	says("SRDMA_WORKER");
	assert_int_equal(srdma_control_path(path, "name", 0), -ENXIO);
	says("XDG_RUNTIME_DIR");
	setenv("XDG_RUNTIME_DIR", "/run/user/1", 1);
	assert_int_equal(srdma_control_path(path, "name", 0), 0);
	assert_string_equal(path, "/run/user/1/srdma/name.sock");
	setenv("SRDMA_WORKER", "./a", 1);
	assert_int_equal(srdma_control_path(path, NULL, 12), 0);
	assert_string_equal(path, "./a.12");
	memset(longer, '/', sizeof(longer));
	longer[SRDMA_SOCKET_PATH] = '\0';
	assert_int_equal(srdma_control_path(path, longer, 0), -ENAMETOOLONG);
	longer[SRDMA_SOCKET_PATH - 1] = '\0';
	assert_int_equal(srdma_control_path(path, longer, 0), 0);
	assert_int_equal(srdma_control_path(path, longer, 1), -ENAMETOOLONG);
}

/* --- connecting ---------------------------------------------------------- */

static int listen_at(const char *path, int type, int backlog)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, type, 0);

	strcpy(name.sun_path, path);
	assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
	if (backlog >= 0)
		assert_int_equal(listen(fd, backlog), 0);
	return fd;
}

static void expect_connect(const char *path, int rc, const char *part)
{
	struct srdma_control *c;

	assert_int_equal(srdma_control_connect(&c, path, SHORT_MS), rc);
	assert_null(c);
	says(part);
}

static void test_no_worker(void **state)
{
	struct fake_worker *w = *state;
	char path[SRDMA_SOCKET_PATH], longer[200];
	int fd;

	memset(longer, '/', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	expect_connect(longer, -ENAMETOOLONG, "bytes");
	strcpy(path, w->folder);
	strcat(path, "/other");
	expect_connect(path, -ENOENT, "start one");
	fd = listen_at(path, SOCK_SEQPACKET, -1);
	expect_connect(path, -ECONNREFUSED, "has ended");
	close(fd);
	unlink(path);
	fd = listen_at(path, SOCK_STREAM, 1);
	expect_connect(path, -EPROTOTYPE, "not the socket of a worker");
	close(fd);
	unlink(path);
}

static void test_full_backlog(void **state)
{
	struct fake_worker *w = *state;
	struct srdma_control *c[8];
	char path[SRDMA_SOCKET_PATH];
	int fd, rc = 0, n = 0;

	strcpy(path, w->folder);
	strcat(path, "/full");
	fd = listen_at(path, SOCK_SEQPACKET, 1);
	while (!rc && n < 8)
		rc = srdma_control_connect(&c[n++], path, SHORT_MS);
	assert_int_equal(rc, -ETIMEDOUT);
	says("accepts no connection");
	while (n-- > 0)
		srdma_control_close(c[n]);
	close(fd);
	unlink(path);
}

static void test_worker_of_another_user(void **state)
{
	struct fake_worker *w = *state;
	char path[SRDMA_SOCKET_PATH];
	struct srdma_control *c;
	int fd;

	if (geteuid())
		skip(); /* only root can take another user's place */
	strcpy(path, w->folder);
	strcat(path, "/other");
	assert_int_equal(chmod(w->folder, 0777), 0);
	assert_int_equal(seteuid(1), 0);
	fd = listen_at(path, SOCK_SEQPACKET, 8); /* SO_PEERCRED: user 1 */
	assert_int_equal(chmod(path, 0777), 0);
	assert_int_equal(srdma_control_connect(&c, path, SHORT_MS), 0);
	srdma_control_close(c);
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(seteuid(2), 0);
	expect_connect(path, -EPERM, "the worker is of user 1");
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(seteuid(2), 0);
	expect_connect(path, -EACCES, "another user");
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(srdma_control_connect(&c, path, SHORT_MS), 0);
	srdma_control_close(c); /* root may use any worker */
	close(fd);
	unlink(path);
}

/* --- calls --------------------------------------------------------------- */

static enum fake_action refuse(struct fake_worker *w, struct srdma_ctl_msg *m,
			       struct srdma_socket_fds *fds)
{
	(void)fds;
	return fake_refuse(m, EDQUOT, w->calls++ ? "" : "no more legs");
}

static void test_refusal(void **state)
{
	struct fake_worker *w = *state;
	struct srdma_control *c = connect_to(w, LONG_MS);
	struct srdma_socket_fds in = { .n = 1 };
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_OPEN };

	w->hook = refuse; /* with the descriptors of OPEN, which are closed */
	assert_int_equal(srdma_control_call(c, &m, NULL, &in), -EDQUOT);
	assert_int_equal(in.n, 0);
	assert_string_equal(srdma_error_text(),
			    "the worker refused OPEN: no more legs");
	assert_int_equal(call(c, SRDMA_CTL_STATS), -EDQUOT);
	assert_string_equal(srdma_error_text(),
			    "the worker refused STATS: Disk quota exceeded");
	srdma_control_close(c);
}

static enum fake_action refuse_connection(struct fake_worker *w,
					  struct srdma_ctl_msg *m,
					  struct srdma_socket_fds *fds)
{
	(void)w;
	(void)fds;
	m->kind = SRDMA_CTL_HELLO;
	m->tag = 0;
	return fake_refuse(m, EDQUOT, "too many connections");
}

/* Of the connection, not of a request (local-interface.md 3.10). */
static void test_refusal_of_the_connection(void **state)
{
	struct fake_worker *w = *state;
	struct srdma_control *c = connect_to(w, LONG_MS);

	w->hook = refuse_connection;
	assert_int_equal(call(c, SRDMA_CTL_STATS), -EDQUOT);
	assert_string_equal(srdma_error_text(),
			    "the worker refused STATS: too many connections");
	srdma_control_close(c);
}

static enum fake_action strange_errno(struct fake_worker *w,
				      struct srdma_ctl_msg *m,
				      struct srdma_socket_fds *fds)
{
	(void)w;
	(void)fds;
	return fake_refuse(m, 0x80000000, "x");
}

static void test_status_that_is_no_errno(void **state)
{
	struct fake_worker *w = *state;
	struct srdma_control *c = connect_to(w, LONG_MS);

	w->hook = strange_errno;
	assert_int_equal(call(c, SRDMA_CTL_HELLO), -EPROTO);
	srdma_control_close(c);
}

static void test_descriptors(void **state)
{
	struct fake_worker *w = *state;
	struct srdma_control *c = connect_to(w, LONG_MS);
	struct srdma_socket_fds in;
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_OPEN };

	assert_int_equal(srdma_control_call(c, &m, NULL, &in), 0);
	assert_int_equal(in.n, 2);
	assert_int_equal(m.opened.leg, 1);
	srdma_socket_close_fds(&in);
	m = (struct srdma_ctl_msg){ .kind = SRDMA_CTL_OPEN };
	assert_int_equal(srdma_control_call(c, &m, NULL, NULL), 0);
	srdma_control_close(c);
}

static enum fake_action longer(struct fake_worker *w, struct srdma_ctl_msg *m,
			       struct srdma_socket_fds *fds)
{
	(void)fds;
	w->raw_len = (size_t)srdma_ctl_encode(w->raw, SRDMA_CTL_ANSWER, m) + 1;
	return FAKE_RAW;
}

static enum fake_action headless(struct fake_worker *w, struct srdma_ctl_msg *m,
				 struct srdma_socket_fds *fds)
{
	(void)m;
	(void)fds;
	w->raw_len = 5;
	return FAKE_RAW;
}

static void test_illegal_answers(void **state)
{
	struct fake_worker *w = *state;
	struct srdma_control *c = connect_to(w, LONG_MS);

	w->hook = longer;
	assert_int_equal(call(c, SRDMA_CTL_HELLO), -EPROTO);
	says("no legal answer");
	w->hook = headless;
	assert_int_equal(call(c, SRDMA_CTL_HELLO), -EPROTO);
	srdma_control_close(c);
}

static void test_value_that_does_not_fit(void **state)
{
	struct fake_worker *w = *state;
	struct srdma_control *c = connect_to(w, LONG_MS);

	assert_int_equal(call(c, SRDMA_CTL_INSTALL), -EINVAL); /* no token */
	says("INSTALL");
	srdma_control_close(c);
}

static enum fake_action first_silent(struct fake_worker *w,
				     struct srdma_ctl_msg *m,
				     struct srdma_socket_fds *fds)
{
	uint32_t tag = m->tag;

	if (!w->calls++) { /* keep the answer */
		w->raw_len =
			(size_t)srdma_ctl_encode(w->raw, SRDMA_CTL_ANSWER, m);
		return FAKE_SILENCE;
	}
	for (unsigned i = 0; i < w->clients; i++)
		srdma_socket_send(w->client[i], w->raw, w->raw_len, fds,
				  INT64_MAX);
	m->tag = tag;
	m->hello.pid = SECOND;
	return FAKE_ANSWER;
}

static void test_late_answer(void **state)
{
	struct fake_worker *w = *state;
	struct srdma_control *c = connect_to(w, SHORT_MS);
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_HELLO,
				   .version = SRDMA_CTL_VERSION };

	w->hook = first_silent;
	assert_int_equal(call(c, SRDMA_CTL_HELLO), -ETIMEDOUT);
	says("did not answer HELLO in 100 ms");
	/* the late answer comes in front of the second one */
	assert_int_equal(srdma_control_call(c, &m, NULL, NULL), 0);
	assert_int_equal(m.hello.pid, SECOND);
	assert_int_equal(srdma_control_alive(c), 1);
	srdma_control_close(c);
}

static enum fake_action hang_up(struct fake_worker *w, struct srdma_ctl_msg *m,
				struct srdma_socket_fds *fds)
{
	(void)w;
	(void)m;
	(void)fds;
	return FAKE_CLOSE;
}

static void test_end_of_the_worker(void **state)
{
	struct fake_worker *w = *state;
	struct srdma_control *c = connect_to(w, LONG_MS);
	struct pollfd end = { .fd = srdma_control_fd(c), .events = POLLIN };

	assert_int_equal(srdma_control_alive(c), 1);
	w->hook = hang_up;
	assert_int_equal(call(c, SRDMA_CTL_HELLO), -ENOTCONN);
	says("ended (end of file)");
	assert_int_equal(poll(&end, 1, LONG_MS), 1);
	assert_int_equal(srdma_control_alive(c), 0);
	assert_int_equal(call(c, SRDMA_CTL_HELLO), -ENOTCONN);
	says("ended (end of file)");
	srdma_control_close(c);
	srdma_control_close(NULL);
}

static void test_process_of_the_worker(void **state)
{
	struct fake_worker *w = *state;
	struct srdma_control *c = connect_to(w, LONG_MS);

	assert_int_equal(srdma_control_pid(c), getpid());
	srdma_control_close(c);
}

static void test_error_of_the_socket(void **state)
{
	struct fake_worker *w = *state;
	struct srdma_control *c = connect_to(w, LONG_MS);
	int other = open("/dev/null", O_RDWR | O_CLOEXEC);

	/* Every call on the socket fails now, but the worker has not ended. */
	assert_int_equal(dup2(other, srdma_control_fd(c)), srdma_control_fd(c));
	assert_int_equal(call(c, SRDMA_CTL_HELLO), -ENOTSOCK);
	says("try again");
	assert_int_equal(srdma_control_alive(c), 1);
	srdma_control_close(c);
	close(other);
}

#define each(test)                                                             \
	cmocka_unit_test_setup_teardown(test, fake_worker_setup,               \
					fake_worker_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_path),
		each(test_no_worker),
		each(test_full_backlog),
		each(test_worker_of_another_user),
		each(test_refusal),
		each(test_refusal_of_the_connection),
		each(test_status_that_is_no_errno),
		each(test_descriptors),
		each(test_illegal_answers),
		each(test_value_that_does_not_fit),
		each(test_late_answer),
		each(test_end_of_the_worker),
		each(test_process_of_the_worker),
		each(test_error_of_the_socket),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
