/*
 * Detecting whether the process that listens on a Unix socket still lives, on
 * kernels with and without SO_PEERPIDFD, and the start of a worker whose
 * control socket another process already has.
 */
#include "peer.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "listener.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

static int refusal; /* error of SO_PEERPIDFD; 0: the kernel's result */

/* replaces the C library's function */
int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	if (refusal && level == SOL_SOCKET && name == SO_PEERPIDFD) {
		errno = refusal;
		return -1;
	}
	return (int)syscall(SYS_getsockopt, fd, level, name, value, len);
}

/* A process that listens at the path until its pipe is closed. */
struct maker {
	pid_t pid;
	int life;
	int sock; /* also open in this process: worker processes share theirs */
};

static struct maker make(const struct sockaddr_un *at)
{
	struct maker m = { .sock = socket(AF_UNIX, SOCK_SEQPACKET, 0) };
	int life[2], ready[2];
	char c;

	assert_int_equal(pipe(life), 0);
	assert_int_equal(pipe(ready), 0);
	assert_int_equal(bind(m.sock, (const struct sockaddr *)at, sizeof(*at)),
			 0);
	m.pid = fork();
	if (m.pid == 0) {
		close(life[1]);
		if (listen(m.sock, 100) || write(ready[1], "r", 1) != 1)
			_exit(1);
		_exit(read(life[0], &c, 1) != 0);
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
	close(ready[1]);
	close(life[0]);
	m.life = life[1];
	return m;
}

static void end(struct maker *m)
{
	int status;

	close(m->life);
	close(m->sock);
	assert_int_equal(waitpid(m->pid, &status, 0), m->pid);
	assert_int_equal(status, 0);
}

static char dir[] = "/tmp/srdma-peer-XXXXXX";
static struct sockaddr_un at = { .sun_family = AF_UNIX };

static int setup(void **state)
{
	(void)state;
	refusal = 0;
	snprintf(at.sun_path, sizeof(at.sun_path), "%s/a.ctl", dir);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(at.sun_path);
	return 0;
}

static int dial(void)
{
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

static int ended(int fd)
{
	const int pidfd = peer_pidfd(fd);
	int r;

	assert_true(pidfd >= 0);
	r = peer_ended(pidfd);
	close(pidfd);
	return r;
}

/*
 * The end of the listening process is detected. how: error of SO_PEERPIDFD;
 * with ENOPROTOOPT the PID is used.
 */
static void lives_and_ends(int how)
{
	struct maker m = make(&at);
	const int fd = dial();
	int pidfd;

	refusal = how;
	assert_false(ended(fd));
	pidfd = peer_pidfd(fd);
	end(&m);
	assert_true(peer_ended(pidfd));
	close(pidfd);
	close(fd);
}

static void test_end_of_peer_is_detected(void **state)
{
	(void)state;
	lives_and_ends(0);
}

static void test_end_of_peer_is_detected_without_peerpidfd(void **state)
{
	(void)state;
	lives_and_ends(ENOPROTOOPT);
}

static void test_ended_peer_gives_esrch(void **state)
{
	struct maker m = make(&at);
	const int fd = dial();

	(void)state;
	end(&m);
	for (const int *how = (const int[]){ EINVAL, ESRCH, ENOPROTOOPT, 0 };
	     *how; how++) {
		refusal = *how;
		assert_int_equal(peer_pidfd(fd), -1);
		assert_int_equal(errno, ESRCH);
	}
	close(fd);
}

static void test_error_of_kernel_is_returned(void **state)
{
	struct maker m = make(&at);
	const int fd = dial();

	(void)state;
	refusal = EMFILE;
	assert_int_equal(peer_pidfd(fd), -1);
	assert_int_equal(errno, EMFILE);
	end(&m);
	close(fd);
}

/* If the listening process cannot be identified, it is assumed to be alive. */
static void test_undetermined_listener_counts_as_alive(void **state)
{
	static const struct {
		int refusal, want;
	} rows[] = {
		{ 0, -EADDRINUSE },	 { EPERM, -EADDRINUSE },
		{ ENOSYS, -EADDRINUSE }, { EMFILE, -EMFILE },
		{ ENFILE, -ENFILE },
	};
	struct maker m = make(&at);

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		refusal = rows[i].refusal;
		assert_int_equal(listener_open(at.sun_path, 0600),
				 rows[i].want);
	}
	end(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_end_of_peer_is_detected,
						setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_end_of_peer_is_detected_without_peerpidfd, setup,
			teardown),
		cmocka_unit_test_setup_teardown(test_ended_peer_gives_esrch,
						setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_error_of_kernel_is_returned, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_undetermined_listener_counts_as_alive, setup,
			teardown),
	};
	int r;

	if (!mkdtemp(dir))
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(dir);
	return r;
}
