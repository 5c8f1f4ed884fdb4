/* Handshakes of the shared-memory wire: every malformed one is refused. */
#include "port/shm/doorbell.h"
#include "port/shm/port_shm.h"
#include "port/shm/port_shm_wire.h"
#include "port/shm/ring.h"
#include "port/shm/shm.h"
#include "support/descriptors.h"
#include "support/shm_leg.h"
#include "support/shm_pair.h"
#include "support/shm_raw.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

enum { HELLO = 8 + 64 + 4 };

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

/* --- hello messages ------------------------------------------------------- */

enum { MEMFD, WAKE, BELL, FDS };

/* A valid hello, for tests to change. */
struct hello {
	uint8_t bytes[HELLO + 4];
	size_t len;
	int fds[FDS + 1];
	int wake; /* this side's end of its wake-up socket */
	size_t nfds;
};

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
	int ends[2];

	assert_int_equal(srdma_doorbell_socket(ends), 0);
	memset(h, 0, sizeof(*h));
	memcpy(h->bytes, "srdma-2", 8);
	strcpy((char *)h->bytes + 8, "peer");
	slots_in(h, 16);
	h->len = HELLO;
	h->nfds = FDS;
	h->fds[MEMFD] = shm_memfd(wire_size(16), F_SEAL_SHRINK);
	h->fds[WAKE] = ends[SRDMA_DOORBELL_RINGER];
	h->wake = ends[SRDMA_DOORBELL_SLEEPER];
	h->fds[BELL] = shm_memfd(4096, F_SEAL_SHRINK);
	h->fds[FDS] = srdma_doorbell_eventfd();
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
	close(h->wake);
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

/* Descriptors that could block a writer, in place of a wake-up socket. */
static int pipe_end(void)
{
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	close(ends[0]);
	return ends[1];
}

static int datagrams(void)
{
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
	close(ends[0]);
	return ends[1];
}

static int unsealed_wire(void)
{
	return shm_memfd(wire_size(16), 0);
}

static int short_wire(void)
{
	return shm_memfd(wire_size(16) - 1, F_SEAL_SHRINK);
}

static int large_wire(void)
{
	return shm_memfd(wire_size(8192), F_SEAL_SHRINK);
}

static int read_only_wire(void)
{
	return shm_memfd(wire_size(16), F_SEAL_SHRINK | F_SEAL_WRITE);
}

static int unsealed_page(void)
{
	return shm_memfd(4096, 0);
}

static int short_page(void)
{
	return shm_memfd(4095, F_SEAL_SHRINK);
}

static int device(void)
{
	return open("/dev/zero", O_RDWR | O_CLOEXEC);
}

enum { NO_FDS = -1, NO_SLOTS = -1 }; /* the table uses 0 for "unchanged" */

static const struct spoil {
	const char *what;
	const char *magic, *name;
	size_t len;
	int slots, nfds;
	int which; /* index of the descriptor that fd replaces */
	int (*fd)(void);
} spoils[] = {
	{ .what = "a byte short", .len = HELLO - 1 },
	{ .what = "a byte long", .len = HELLO + 1 },
	{ .what = "one byte", .len = 1 },
	{ .what = "another version", .magic = "srdma-1" },
	{ .what = "name without an end",
	  .name = "0123456789abcdef0123456789abcdef"
		  "0123456789abcdef0123456789abcdef" },
	{ .what = "no name", .name = "\0\0\0" },
	{ .what = "name with a slash", .name = "p/er" },
	{ .what = "no slots", .slots = NO_SLOTS },
	{ .what = "few slots", .slots = 8 },
	{ .what = "17 slots", .slots = 17 },
	{ .what = "many slots",
	  .slots = 8192,
	  .which = MEMFD,
	  .fd = large_wire },
	{ .what = "more slots than memory", .slots = 32 },
	{ .what = "no descriptors", .nfds = NO_FDS },
	{ .what = "two descriptors", .nfds = 2 },
	{ .what = "four descriptors", .nfds = 4 },
	{ .what = "unsealed wire", .which = MEMFD, .fd = unsealed_wire },
	{ .what = "short wire", .which = MEMFD, .fd = short_wire },
	{ .what = "read-only wire", .which = MEMFD, .fd = read_only_wire },
	{ .what = "pipe instead of socket", .which = WAKE, .fd = pipe_end },
	{ .what = "socket for datagrams", .which = WAKE, .fd = datagrams },
	{ .what = "eventfd instead of socket",
	  .which = WAKE,
	  .fd = srdma_doorbell_eventfd },
	{ .what = "memfd instead of socket",
	  .which = WAKE,
	  .fd = unsealed_page },
	{ .what = "unsealed doorbell page",
	  .which = BELL,
	  .fd = unsealed_page },
	{ .what = "short doorbell page", .which = BELL, .fd = short_page },
	{ .what = "device as doorbell page", .which = BELL, .fd = device },
};

static void spoil(struct hello *h, const struct spoil *s)
{
	if (s->len)
		h->len = s->len;
	if (s->magic)
		memcpy(h->bytes, s->magic, 8);
	if (s->name)
		memcpy(h->bytes + 8, s->name, *s->name ? strlen(s->name) : 4);
	if (s->slots)
		slots_in(h, s->slots == NO_SLOTS ? 0 : (uint32_t)s->slots);
	if (s->nfds)
		h->nfds = s->nfds == NO_FDS ? 0 : (size_t)s->nfds;
	if (s->fd)
		replace(h, s->which, s->fd());
}

static void expect_closed(int sock)
{
	char byte;

	assert_int_equal(recv(sock, &byte, 1, MSG_DONTWAIT), 0);
	close(sock);
}

static void test_malformed_hello_is_refused(void **state)
{
	struct srdma_port *port = shm_wire(dir, "a", 0);

	(void)state;
	for (size_t i = 0; i < sizeof(spoils) / sizeof(*spoils); i++) {
		int fds = count_descriptors(), sock = shm_dial(dir, "a");
		struct hello h;

		print_message("%s\n", spoils[i].what);
		good_hello(&h);
		spoil(&h, &spoils[i]);
		send_hello(sock, &h);
		close_hello(&h);
		shm_expect_nothing(port);
		expect_closed(sock);
		assert_int_equal(count_descriptors(), fds);
	}
	port->ops->destroy(port);
}

static void close_at_once(int fd)
{
	close(fd);
}

/* The kernel would close the files here: they stay in the socket instead. */
static void test_hello_without_free_descriptors_stays(void **state)
{
	struct srdma_shm_hello hello;
	struct rlimit limit;
	struct hello h;
	int ends[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	good_hello(&h);
	send_hello(ends[0], &h);
	limit = permit_descriptors(FDS - 1);
	assert_int_equal(
		srdma_shm_hello_receive(ends[1], &hello, close_at_once),
		-EMFILE);
	restore_descriptors(limit);
	assert_int_equal(
		srdma_shm_hello_receive(ends[1], &hello, close_at_once), 0);
	assert_int_equal(hello.nfds, FDS);
	srdma_shm_hello_close(&hello, close_at_once);
	assert_int_equal(
		srdma_shm_hello_receive(ends[1], &hello, close_at_once),
		-EAGAIN);
	close_hello(&h);
	close(ends[0]);
	close(ends[1]);
}

static void test_valid_hello_is_accepted(void **state)
{
	struct srdma_port *port = shm_wire(dir, "a", 0);
	int fds = count_descriptors(), sock = shm_dial(dir, "a");
	uint8_t answer[HELLO + 1];
	struct srdma_event ev;
	struct hello h;

	(void)state;
	good_hello(&h);
	send_hello(sock, &h);
	ev = shm_expect(port, SRDMA_EV_ACCEPT);
	assert_int_equal(recv(sock, answer, sizeof(answer), 0), HELLO);
	assert_memory_equal(answer, "srdma-2\0a\0", 10);
	assert_int_equal(answer[HELLO - 1], 16);
	assert_non_null(port->ops->reserve(ev.conn));
	close_hello(&h);
	close(sock);
	shm_expect(port, SRDMA_EV_DOWN);
	port->ops->close(ev.conn);
	assert_int_equal(count_descriptors(), fds);
	port->ops->destroy(port);
}

static void test_close_during_handshake(void **state)
{
	struct srdma_port *port = shm_wire(dir, "a", 0);
	int fds = count_descriptors(), sock;
	struct hello h;

	(void)state;
	close(shm_dial(dir, "a"));
	shm_expect_nothing(port);
	good_hello(&h);
	sock = shm_dial(dir, "a");
	send_hello(sock, &h);
	close(sock);
	close_hello(&h);
	shm_expect_nothing(port); /* the response could not be sent */
	assert_int_equal(count_descriptors(), fds);
	port->ops->destroy(port);
}

static void test_silent_connections_are_limited(void **state)
{
	struct srdma_port *port = shm_wire(dir, "a", 0);
	int sock[SRDMA_SHM_MAX_PENDING + 1];
	char byte;

	(void)state;
	for (int i = 0; i <= SRDMA_SHM_MAX_PENDING; i++) {
		sock[i] = shm_dial(dir, "a");
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

/* --- responses ------------------------------------------------------------ */

static int bad_answer(struct hello *h, int how)
{
	h->fds[MEMFD] = h->fds[WAKE];
	h->fds[WAKE] = h->fds[BELL];
	h->nfds = 2;
	switch (how) {
	case 0:
		break; /* a name that was not requested */
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
		h->fds[WAKE] = h->fds[MEMFD]; /* not a doorbell page */
		break;
	default: /* no response */
		return 0;
	}
	return 1;
}

static void test_malformed_response_is_refused(void **state)
{
	struct srdma_port *port = shm_wire(dir, "a", 16);
	int listener = shm_listen(dir, "b");
	struct sockaddr_un sa;

	(void)state;
	for (int how = 0; how < 6; how++) {
		int fds = count_descriptors(), sock, keep[FDS + 1];
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
		else
			shutdown(sock, SHUT_RDWR);
		assert_ptr_equal(shm_expect(port, SRDMA_EV_DOWN).conn, conn);
		port->ops->close(conn);
		close(sock);
		memcpy(h.fds, keep, sizeof(keep));
		close_hello(&h);
		assert_int_equal(count_descriptors(), fds);
	}
	close(listener);
	sa = shm_path(dir, "b");
	unlink(sa.sun_path);
	port->ops->destroy(port);
}

#define IN_DIR(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_DIR(test_malformed_hello_is_refused),
		IN_DIR(test_hello_without_free_descriptors_stays),
		IN_DIR(test_valid_hello_is_accepted),
		IN_DIR(test_close_during_handshake),
		IN_DIR(test_silent_connections_are_limited),
		IN_DIR(test_malformed_response_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
