/*
 * Names of the shared-memory wire: a free name is bound, a stale one is
 * replaced, one in use is refused.
 */
#include "port/shm/port_shm.h"
#include "support/shm_pair.h"
#include "support/shm_raw.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { NOBODY = 65534 };

static char dir[64];

static int setup(void **state)
{
	(void)state;
	shm_make_dir(dir);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	assert_int_equal(rmdir(dir), 0);
	return 0;
}

static int refused(const char *name, uint32_t slots)
{
	struct srdma_port *port;
	int r = srdma_port_shm_create_wire(&port, dir, name, slots, NULL);

	assert_true(r < 0);
	assert_true(strlen(srdma_port_shm_why(r)) > 10);
	return r;
}

/* --- names ---------------------------------------------------------------- */

static void test_illegal_names_are_refused(void **state)
{
	char longest[65];

	(void)state;
	memset(longest, 'n', 64);
	longest[64] = 0;
	assert_int_equal(refused("", 0), -EINVAL);
	assert_int_equal(refused("a/b", 0), -EINVAL);
	assert_int_equal(refused("../a", 0), -EINVAL);
	assert_int_equal(refused(longest, 0), -EINVAL);
	assert_int_equal(refused("a", 8), -EINVAL);
	assert_int_equal(refused("a", 24), -EINVAL);
	assert_int_equal(refused("a", 8192), -EINVAL);
}

static void test_missing_directory_is_refused(void **state)
{
	struct srdma_port *port;

	(void)state;
	assert_int_equal(
		srdma_port_shm_create_wire(&port, "/nonexistent", "a", 0, NULL),
		-ENOENT);
	assert_int_equal(
		srdma_port_shm_create_wire(&port, "/dev/null", "a", 0, NULL),
		-ENOTDIR);
}

static void test_socket_is_private_and_removed(void **state)
{
	struct srdma_port *port = shm_wire(dir, "a", 0);
	struct sockaddr_un sa;
	struct stat st;

	(void)state;
	sa = shm_path(dir, "a");
	assert_int_equal(lstat(sa.sun_path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	port->ops->destroy(port);
	assert_int_equal(lstat(sa.sun_path, &st), -1);
}

static void test_live_name_is_refused(void **state)
{
	struct srdma_port *port = shm_wire(dir, "a", 0);

	(void)state;
	assert_int_equal(refused("a", 0), -EADDRINUSE);
	shm_expect_nothing(port); /* the probe made no connection */
	port->ops->destroy(port);
}

static void test_stale_name_is_replaced(void **state)
{
	struct srdma_port *port;

	(void)state;
	close(shm_listen(dir, "a")); /* its name stays, as after kill -9 */
	port = shm_wire(dir, "a", 0);
	close(shm_dial(dir, "a"));
	port->ops->destroy(port);
}

/* Checking whether a name is stale needs a file descriptor. */
static void test_stale_name_without_descriptors(void **state)
{
	struct rlimit old, limit;
	int lowest, r = -EMFILE;

	(void)state;
	close(shm_listen(dir, "a"));
	lowest = dup(STDERR_FILENO);
	close(lowest);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	limit = old;
	for (rlim_t more = 0; r == -EMFILE; more++) {
		struct srdma_port *port;

		limit.rlim_cur = (rlim_t)lowest + more;
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
		r = srdma_port_shm_create_wire(&port, dir, "a", 0, NULL);
		if (!r)
			port->ops->destroy(port);
	}
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(r, 0);
}

static void test_other_file_is_not_replaced(void **state)
{
	struct sockaddr_un sa;
	int fd;

	(void)state;
	sa = shm_path(dir, "a");
	fd = open(sa.sun_path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	close(fd);
	assert_int_equal(refused("a", 0), -EEXIST);
	assert_int_equal(unlink(sa.sun_path), 0);
}

static void test_replaced_socket_is_not_unlinked(void **state)
{
	struct srdma_port *port = shm_wire(dir, "a", 0);
	struct sockaddr_un sa;
	int sock;

	(void)state;
	sa = shm_path(dir, "a");
	unlink(sa.sun_path);
	sock = shm_listen(dir, "a");
	port->ops->destroy(port);
	assert_int_equal(unlink(sa.sun_path), 0);
	close(sock);
}

static void test_connect_to_absent_name_fails(void **state)
{
	struct srdma_port *port = shm_wire(dir, "a", 0);
	struct srdma_conn *conn;
	struct sockaddr_un sa;

	(void)state;
	assert_int_equal(port->ops->connect(port, "b", &conn), -ENOENT);
	assert_non_null(port->why);
	close(shm_listen(dir, "b"));
	assert_int_equal(port->ops->connect(port, "b", &conn), -ECONNREFUSED);
	assert_int_equal(port->ops->connect(port, "", &conn), -EINVAL);
	assert_int_equal(port->ops->connect(port, "../b", &conn), -EINVAL);
	assert_int_equal(port->ops->connect(port, "10.0.0.1:4791/x", &conn),
			 -EINVAL);
	sa = shm_path(dir, "b");
	unlink(sa.sun_path);
	port->ops->destroy(port);
}

/* --- other users ---------------------------------------------------------- */

/* Runs body in a child with another user ID. */
static pid_t as_nobody(int (*body)(void))
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid)
		_exit(setuid(NOBODY) ? 99 : body());
	return pid;
}

/* Returns 0 if the connection was accepted and then closed. */
static int dial_and_wait(void)
{
	char byte;

	return (int)recv(shm_dial(dir, "a"), &byte, 1, 0);
}

static void test_other_user_is_refused(void **state)
{
	struct srdma_port *port;
	struct sockaddr_un sa;
	struct srdma_event ev;
	pid_t pid;
	int status;

	(void)state;
	if (geteuid()) {
		print_message("needs root to become another user\n");
		skip();
	}
	port = shm_wire(dir, "a", 0);
	chmod(dir, 0755);
	sa = shm_path(dir, "a");
	chmod(sa.sun_path, 0666); /* so that only SO_PEERCRED refuses */
	pid = as_nobody(dial_and_wait);
	while (waitpid(pid, &status, WNOHANG) == 0)
		assert_int_equal(shm_poll(port, &ev, 1), 0);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	port->ops->destroy(port);
}

static int ready[2];

static int listen_for_ever(void)
{
	shm_listen(dir, "n");
	if (write(ready[1], "", 1) == 1)
		pause();
	return 1;
}

static void test_worker_of_other_user_is_refused(void **state)
{
	struct srdma_port *port;
	struct srdma_conn *conn;
	struct sockaddr_un sa;
	pid_t pid;
	char byte;

	(void)state;
	if (geteuid()) {
		print_message("needs root to become another user\n");
		skip();
	}
	port = shm_wire(dir, "a", 0);
	chmod(dir, 0777);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = as_nobody(listen_for_ever);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(port->ops->connect(port, "n", &conn), -EACCES);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(ready[0]);
	close(ready[1]);
	sa = shm_path(dir, "n");
	unlink(sa.sun_path);
	port->ops->destroy(port);
}

#define IN_DIR(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_DIR(test_illegal_names_are_refused),
		IN_DIR(test_missing_directory_is_refused),
		IN_DIR(test_socket_is_private_and_removed),
		IN_DIR(test_live_name_is_refused),
		IN_DIR(test_stale_name_is_replaced),
		IN_DIR(test_stale_name_without_descriptors),
		IN_DIR(test_other_file_is_not_replaced),
		IN_DIR(test_replaced_socket_is_not_unlinked),
		IN_DIR(test_connect_to_absent_name_fails),
		IN_DIR(test_other_user_is_refused),
		IN_DIR(test_worker_of_other_user_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
