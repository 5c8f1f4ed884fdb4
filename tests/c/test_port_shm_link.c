/* Names and handshakes of the shared-memory wire: who gets in, who does not. */
#include "bell.h"
#include "port_shm.h"
#include "ring.h"
#include "shm.h"
#include "shm_pair.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { HELLO = 8 + 64 + 4, NOBODY = 65534 };

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

static void sockaddr_of(struct sockaddr_un *sa, const char *name)
{
	memset(sa, 0, sizeof(*sa));
	sa->sun_family = AF_UNIX;
	snprintf(sa->sun_path, sizeof(sa->sun_path), "%s/%s.sock", dir, name);
}

static int new_socket(void)
{
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	assert_true(sock >= 0);
	return sock;
}

static int listen_as(const char *name)
{
	struct sockaddr_un sa;
	int sock = new_socket();

	sockaddr_of(&sa, name);
	assert_int_equal(bind(sock, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(listen(sock, 8), 0);
	return sock;
}

static int dial(const char *name)
{
	struct sockaddr_un sa;
	int sock = new_socket();

	sockaddr_of(&sa, name);
	assert_int_equal(connect(sock, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return sock;
}

static int refused(const char *name, uint32_t slots)
{
	struct srdma_port *port;
	int r = srdma_port_shm_create_wire(&port, dir, name, slots);

	assert_true(r < 0);
	assert_true(strlen(srdma_port_shm_why(r)) > 10);
	return r;
}

/* --- names ------------------------------------------------------------ */

static void test_names_refused(void **state)
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

static void test_directories_refused(void **state)
{
	struct srdma_port *port;

	(void)state;
	assert_int_equal(
		srdma_port_shm_create_wire(&port, "/nonexistent", "a", 0),
		-ENOENT);
	assert_int_equal(srdma_port_shm_create_wire(&port, "/dev/null", "a", 0),
			 -ENOTDIR);
}

static void test_socket_is_private_and_goes(void **state)
{
	struct srdma_port *port = shm_wire(dir, "a", 0);
	struct sockaddr_un sa;
	struct stat st;

	(void)state;
	sockaddr_of(&sa, "a");
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
	shm_expect_nothing(port); /* the probe was no connection */
	port->ops->destroy(port);
}

static void test_stale_name_is_replaced(void **state)
{
	struct srdma_port *port;

	(void)state;
	close(listen_as("a")); /* as kill -9 leaves it */
	port = shm_wire(dir, "a", 0);
	close(dial("a"));
	port->ops->destroy(port);
}

static void test_no_socket_is_left_alone(void **state)
{
	struct sockaddr_un sa;
	int fd;

	(void)state;
	sockaddr_of(&sa, "a");
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
	sockaddr_of(&sa, "a");
	unlink(sa.sun_path);
	sock = listen_as("a");
	port->ops->destroy(port);
	assert_int_equal(unlink(sa.sun_path), 0);
	close(sock);
}

static void test_nobody_to_connect_to(void **state)
{
	struct srdma_port *port = shm_wire(dir, "a", 0);
	struct srdma_conn *conn;
	struct sockaddr_un sa;

	(void)state;
	assert_int_equal(port->ops->connect(port, "b", &conn), -ENOENT);
	assert_non_null(port->why);
	close(listen_as("b"));
	assert_int_equal(port->ops->connect(port, "b", &conn), -ECONNREFUSED);
	assert_int_equal(port->ops->connect(port, "", &conn), -EINVAL);
	assert_int_equal(port->ops->connect(port, "../b", &conn), -EINVAL);
	assert_int_equal(port->ops->connect(port, "10.0.0.1:4791/x", &conn),
			 -EINVAL);
	sockaddr_of(&sa, "b");
	unlink(sa.sun_path);
	port->ops->destroy(port);
}

/* --- hellos ----------------------------------------------------------- */

enum { MEMFD, EVENTFD, BELL, FDS };

/* A hello that is right, for tests to spoil. */
struct hello {
	uint8_t bytes[HELLO + 4];
	size_t len;
	int fds[FDS + 1];
	size_t nfds;
};

static int memfd(size_t len, unsigned int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	if (seals)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static size_t wire_size(uint32_t slots)
{
	size_t ring = srdma_ring_bytes(slots, SRDMA_SHM_WIRE_SIZE);

	return srdma_shm_round(ring) + ring;
}

static void slots_in(struct hello *h, uint32_t slots)
{
	h->bytes[HELLO - 4] = 0;
	h->bytes[HELLO - 3] = 0;
	h->bytes[HELLO - 2] = (uint8_t)(slots >> 8);
	h->bytes[HELLO - 1] = (uint8_t)slots;
}

static void good_hello(struct hello *h)
{
	memset(h, 0, sizeof(*h));
	memcpy(h->bytes, "srdma-1", 8);
	strcpy((char *)h->bytes + 8, "peer");
	slots_in(h, 16);
	h->len = HELLO;
	h->nfds = FDS;
	h->fds[MEMFD] = memfd(wire_size(16), F_SEAL_SHRINK);
	h->fds[EVENTFD] = srdma_bell_eventfd();
	h->fds[BELL] = memfd(4096, F_SEAL_SHRINK);
	h->fds[FDS] = srdma_bell_eventfd();
}

static void replace(struct hello *h, int which, int fd)
{
	assert_true(fd >= 0);
	close(h->fds[which]);
	h->fds[which] = fd;
}

static void close_hello(struct hello *h)
{
	for (int i = 0; i <= FDS; i++)
		close(h->fds[i]);
}

static void send_hello(int sock, const struct hello *h)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE((FDS + 1) * sizeof(int))];
	} control = { 0 };
	struct iovec iov = { (void *)(uintptr_t)h->bytes, h->len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;

	if (h->nfds) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(h->nfds * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(h->nfds * sizeof(int));
		memcpy(CMSG_DATA(c), h->fds, h->nfds * sizeof(int));
	}
	assert_int_equal(sendmsg(sock, &msg, MSG_NOSIGNAL), h->len);
}

/* A non-blocking eventfd's place taken by what would let a writer wait. */
static int pipe_end(void)
{
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	close(ends[0]);
	return ends[1];
}

static void spoil(struct hello *h, int how)
{
	switch (how) {
	case 0:
		h->len = HELLO - 1;
		break;
	case 1:
		h->len = HELLO + 1;
		break;
	case 2:
		h->len = 1;
		break;
	case 3:
		h->bytes[6] = '2';
		break;
	case 4:
		memset(h->bytes + 8, 'n', 64);
		break;
	case 5:
		h->bytes[8] = 0;
		break;
	case 6:
		h->bytes[9] = '/';
		break;
	case 7:
		slots_in(h, 0);
		break;
	case 8:
		slots_in(h, 8);
		break;
	case 9:
		slots_in(h, 17);
		break;
	case 10:
		slots_in(h, 8192);
		break;
	case 11:
		slots_in(h, 32); /* more than the memory holds */
		break;
	case 12:
		h->nfds = 0;
		break;
	case 13:
		h->nfds = 2;
		break;
	case 14:
		h->nfds = 4;
		break;
	case 15:
		replace(h, MEMFD, memfd(wire_size(16), 0));
		break;
	case 16:
		replace(h, MEMFD, memfd(wire_size(16) - 1, F_SEAL_SHRINK));
		break;
	case 17:
		replace(h, MEMFD,
			memfd(wire_size(16), F_SEAL_SHRINK | F_SEAL_WRITE));
		break;
	case 18:
		replace(h, EVENTFD, pipe_end());
		break;
	case 19:
		replace(h, EVENTFD, eventfd(0, EFD_CLOEXEC));
		break;
	case 20:
		replace(h, EVENTFD, memfd(8, F_SEAL_SHRINK));
		break;
	case 21:
		replace(h, BELL, memfd(4096, 0));
		break;
	case 22:
		replace(h, BELL, memfd(4095, F_SEAL_SHRINK));
		break;
	default:
		replace(h, BELL, open("/dev/zero", O_RDWR | O_CLOEXEC));
		break;
	}
}

enum { SPOILS = 24 };

static void expect_closed(int sock)
{
	char byte;

	assert_int_equal(recv(sock, &byte, 1, MSG_DONTWAIT), 0);
	close(sock);
}

static void test_bad_hellos(void **state)
{
	struct srdma_port *port = shm_wire(dir, "a", 0);

	(void)state;
	for (int how = 0; how < SPOILS; how++) {
		int fds = shm_count_fds(), sock = dial("a");
		struct hello h;

		good_hello(&h);
		spoil(&h, how);
		send_hello(sock, &h);
		close_hello(&h);
		shm_expect_nothing(port);
		expect_closed(sock);
		assert_int_equal(shm_count_fds(), fds);
	}
	port->ops->destroy(port);
}

static void test_good_hello(void **state)
{
	struct srdma_port *port = shm_wire(dir, "a", 0);
	int fds = shm_count_fds(), sock = dial("a");
	uint8_t answer[HELLO + 1];
	struct srdma_event ev;
	struct hello h;

	(void)state;
	good_hello(&h);
	send_hello(sock, &h);
	ev = shm_expect(port, SRDMA_EV_ACCEPT);
	assert_int_equal(recv(sock, answer, sizeof(answer), 0), HELLO);
	assert_memory_equal(answer, "srdma-1\0a\0", 10);
	assert_int_equal(answer[HELLO - 1], 16);
	assert_non_null(port->ops->reserve(ev.conn));
	close_hello(&h);
	close(sock);
	shm_expect(port, SRDMA_EV_DOWN);
	port->ops->close(ev.conn);
	assert_int_equal(shm_count_fds(), fds);
	port->ops->destroy(port);
}

static void test_end_before_or_with_the_hello(void **state)
{
	struct srdma_port *port = shm_wire(dir, "a", 0);
	int fds = shm_count_fds(), sock;
	struct hello h;

	(void)state;
	close(dial("a"));
	shm_expect_nothing(port);
	good_hello(&h);
	sock = dial("a");
	send_hello(sock, &h);
	close(sock);
	close_hello(&h);
	shm_expect_nothing(port); /* the answer could not be sent */
	assert_int_equal(shm_count_fds(), fds);
	port->ops->destroy(port);
}

static void test_silent_ones_are_bounded(void **state)
{
	struct srdma_port *port = shm_wire(dir, "a", 0);
	int sock[SRDMA_SHM_MAX_PENDING + 1];
	char byte;

	(void)state;
	for (int i = 0; i <= SRDMA_SHM_MAX_PENDING; i++) {
		sock[i] = dial("a");
		shm_expect_nothing(port);
	}
	expect_closed(sock[0]);
	for (int i = 1; i <= SRDMA_SHM_MAX_PENDING; i++) {
		assert_int_equal(recv(sock[i], &byte, 1, MSG_DONTWAIT), -1);
		close(sock[i]);
	}
	shm_expect_nothing(port);
	port->ops->destroy(port);
}

/* --- answers ---------------------------------------------------------- */

static int bad_answer(struct hello *h, int how)
{
	h->fds[MEMFD] = h->fds[EVENTFD];
	h->fds[EVENTFD] = h->fds[BELL];
	h->nfds = 2;
	switch (how) {
	case 0:
		break; /* a name that was not asked for */
	case 1:
		memcpy(h->bytes + 8, "b\0\0\0", 4);
		slots_in(h, 32);
		break;
	case 2:
		memcpy(h->bytes + 8, "b\0\0\0", 4);
		h->nfds = 3;
		break;
	case 3:
		memcpy(h->bytes + 8, "b\0\0\0", 4);
		h->nfds = 0;
		break;
	case 4:
		memcpy(h->bytes + 8, "b\0\0\0", 4);
		h->fds[EVENTFD] = h->fds[MEMFD]; /* no bell */
		break;
	default: /* none at all */
		return 0;
	}
	return 1;
}

static void test_bad_answers(void **state)
{
	struct srdma_port *port = shm_wire(dir, "a", 16);
	int listener = listen_as("b");
	struct sockaddr_un sa;

	(void)state;
	for (int how = 0; how < 6; how++) {
		int fds = shm_count_fds(), sock, keep[FDS + 1];
		struct srdma_conn *conn;
		struct hello h;

		assert_int_equal(port->ops->connect(port, "b", &conn), 0);
		assert_null(port->ops->reserve(conn));
		shm_expect_nothing(port);
		sock = accept(listener, NULL, NULL);
		good_hello(&h);
		memcpy(keep, h.fds, sizeof(keep));
		if (bad_answer(&h, how))
			send_hello(sock, &h);
		close(sock);
		assert_ptr_equal(shm_expect(port, SRDMA_EV_DOWN).conn, conn);
		port->ops->close(conn);
		memcpy(h.fds, keep, sizeof(keep));
		close_hello(&h);
		assert_int_equal(shm_count_fds(), fds);
	}
	close(listener);
	sockaddr_of(&sa, "b");
	unlink(sa.sun_path);
	port->ops->destroy(port);
}

/* --- other users ------------------------------------------------------ */

/* Run body in a child of another user. */
static pid_t as_nobody(int (*body)(void))
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid)
		_exit(setuid(NOBODY) ? 99 : body());
	return pid;
}

/* 0: connected, then shown the door. */
static int dial_and_wait(void)
{
	char byte;

	return (int)recv(dial("a"), &byte, 1, 0);
}

static void test_another_user_is_refused(void **state)
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
	sockaddr_of(&sa, "a");
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
	listen_as("n");
	if (write(ready[1], "", 1) == 1)
		pause();
	return 1;
}

static void test_another_users_worker_is_not_joined(void **state)
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
	sockaddr_of(&sa, "n");
	unlink(sa.sun_path);
	port->ops->destroy(port);
}

#define IN_DIR(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_DIR(test_names_refused),
		IN_DIR(test_directories_refused),
		IN_DIR(test_socket_is_private_and_goes),
		IN_DIR(test_live_name_is_refused),
		IN_DIR(test_stale_name_is_replaced),
		IN_DIR(test_no_socket_is_left_alone),
		IN_DIR(test_replaced_socket_is_not_unlinked),
		IN_DIR(test_nobody_to_connect_to),
		IN_DIR(test_bad_hellos),
		IN_DIR(test_good_hello),
		IN_DIR(test_end_before_or_with_the_hello),
		IN_DIR(test_silent_ones_are_bounded),
		IN_DIR(test_bad_answers),
		IN_DIR(test_another_user_is_refused),
		IN_DIR(test_another_users_worker_is_not_joined),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
