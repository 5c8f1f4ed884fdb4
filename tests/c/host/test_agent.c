/* Connections and listeners of libsrdma at an agent that refuses, breaks the
 * rules or ends (agent.md 2). tests/e2e/library has the tests with keys. */
#include "srdma/srdma.h"

#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/channel.h"
#include "host/message.h"
#include "host/connecting.h"
#include "host/objects.h"
#include "support/fake_agent.h"
#include "support/fake_worker.h"
#include "support/says.h"
#include "support/shifted_clock.h"

enum { FEW_MS = 100, LONG_MS = 20000 };

struct fixture {
	struct fake_worker worker;
	struct fake_agent agent;
	struct srdma_device *device;
	struct srdma_pd *pd;
	struct srdma_qp *qp;
};

static struct fake_agent *agent;  /* that of the fixture */
static void (*restarted)(int fd); /* what it does after its restart */
static unsigned last_wish;	  /* number of the last request for renewal */
static int send_error;		  /* errno of the next sendmsg(), or 0 */
static unsigned waits;		  /* calls of poll() with a time limit */

/* In place of that of libc. */
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	if (!send_error)
		return syscall(SYS_sendmsg, fd, message, flags);
	errno = send_error;
	send_error = 0;
	return -1;
}

int poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	struct timespec limit = { .tv_sec = timeout_ms / 1000,
				  .tv_nsec = timeout_ms % 1000 * 1000000 };

	waits += timeout_ms > 0;
	return (int)syscall(SYS_ppoll, fds, n, timeout_ms < 0 ? NULL : &limit,
			    NULL, 0);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	fake_worker_start(&f->worker);
	agent = &f->agent;
	fake_agent_start(&f->agent, f->worker.folder);
	assert_int_equal(
		srdma_open_device(&f->device, f->worker.path, f->agent.path),
		0);
	assert_int_equal(srdma_alloc_pd(&f->pd, f->device, NULL), 0);
	assert_int_equal(srdma_create_qp(&f->qp, f->pd, NULL), 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(srdma_destroy_qp(f->qp), 0);
	assert_int_equal(srdma_dealloc_pd(f->pd), 0);
	assert_int_equal(srdma_close_device(f->device), 0);
	fake_agent_stop(&f->agent);
	shift_clock(0);
	fake_worker_stop(&f->worker);
	free(f);
	return 0;
}

/* --- events -------------------------------------------------------------- */

static void report(int fd, const char *event, const char *code)
{
	fake_agent_report(fd, event, code, NULL);
}

/* Reads until the program closes the channel. */
static void wait_end(int fd)
{
	char waste[256];

	while (recv(fd, waste, sizeof(waste), 0) > 0)
		;
}

/* The event `peer`, at level none. */
static void introduce(int fd)
{
	static const char peer[] = "\0\0\0\x17\xa2\x65"
				   "event\x64"
				   "peer\x68"
				   "identity\x61"
				   "x";

	send(fd, peer, sizeof(peer) - 1, MSG_NOSIGNAL);
}

/* The event `peer`, with keys of AES-128-GCM. */
static void introduce_with_keys(int fd)
{
	static const char peer[] = "\0\0\0\x21\xa3\x65"
				   "event\x64"
				   "peer\x68"
				   "identity\x61"
				   "x\x65"
				   "suite\x83\1\3\x10";

	send(fd, peer, sizeof(peer) - 1, MSG_NOSIGNAL);
}

static void end_after_ready(int fd)
{
	introduce(fd);
	report(fd, "ready", "");
}

static void be_ready(int fd)
{
	end_after_ready(fd);
	wait_end(fd);
}

/* As be_ready(), with keys. */
static void be_protected(int fd)
{
	introduce_with_keys(fd);
	report(fd, "ready", "");
	wait_end(fd);
}

static void end(int fd)
{
	(void)fd;
}

static void send_zero_length(int fd)
{
	send(fd, "\0\0\0\0", 4, MSG_NOSIGNAL);
	wait_end(fd);
}

static void send_too_long(int fd)
{
	send(fd, "\0\x10\0\1", 4, MSG_NOSIGNAL);
	wait_end(fd);
}

static void send_no_map(int fd)
{
	send(fd, "\0\0\0\1\1", 5, MSG_NOSIGNAL);
	wait_end(fd);
}

static void be_ready_without_peer(int fd)
{
	report(fd, "ready", "");
	wait_end(fd);
}

static void send_nameless_peer(int fd)
{
	report(fd, "peer", "");
	wait_end(fd);
}

static void close_early(int fd)
{
	report(fd, "closed", "");
}

static void fail_after_ready(int fd)
{
	end_after_ready(fd);
	report(fd, "error", "timeout");
	wait_end(fd);
}

/* A message in single bytes, with an unknown event in front. */
static void trickle(int fd)
{
	static const char ready[] = "\0\0\0\x0d\xa1\x65"
				    "event\x65"
				    "ready";

	report(fd, "news", "");
	introduce(fd);
	for (size_t i = 0; i < sizeof(ready) - 1; i++) {
		send(fd, ready + i, 1, MSG_NOSIGNAL);
		usleep(1000);
	}
	wait_end(fd);
}

/* --- connections --------------------------------------------------------- */

static struct srdma_connection_attr attr_of(struct fixture *f)
{
	return (struct srdma_connection_attr){
		.identity = "me", .qps = &f->qp, .n_qps = 1, .timeout = 1
	};
}

static void replace_qp(struct fixture *f)
{
	assert_int_equal(srdma_destroy_qp(f->qp), 0);
	assert_int_equal(srdma_create_qp(&f->qp, f->pd, NULL), 0);
}

/* Connects a new QP, at an agent that acts so. */
static struct srdma_connection *connect_at(struct fixture *f,
					   void (*act)(int fd))
{
	struct srdma_connection_attr attr;
	struct srdma_connection *c;

	replace_qp(f);
	attr = attr_of(f);
	f->agent.act = act;
	assert_int_equal(srdma_connect(&c, f->pd, "host", 7, &attr), 0);
	return c;
}

/* Connects the QP of the fixture, which is replaced if it was used. */
static int try(struct fixture *f, const struct srdma_connection_attr *attr)
{
	struct srdma_qp_query query;
	struct srdma_connection *c;
	int rc;

	srdma_query_qp(f->qp, &query);
	if (query.status != SRDMA_QP_STATUS_INIT)
		replace_qp(f);
	rc = srdma_connect(&c, f->pd, "host", 7, attr);
	if (rc)
		assert_null(c);
	else
		srdma_disconnect(c);
	return rc;
}

static void test_no_agent(void **state)
{
	struct fixture *f = *state;
	struct srdma_connection_attr attr = attr_of(f);
	struct srdma_device *d;
	struct srdma_pd *pd;
	struct srdma_qp *qp;
	struct srdma_connection *c;

	unsetenv("SRDMA_AGENT");
	assert_int_equal(srdma_open_device(&d, f->worker.path, NULL), 0);
	assert_int_equal(srdma_alloc_pd(&pd, d, NULL), 0);
	assert_int_equal(srdma_create_qp(&qp, pd, NULL), 0);
	attr.qps = &qp;
	assert_int_equal(srdma_connect(&c, pd, "host", 7, &attr), -ENXIO);
	says("SRDMA_AGENT");
	assert_int_equal(srdma_destroy_qp(qp), 0);
	assert_int_equal(srdma_dealloc_pd(pd), 0);
	assert_int_equal(srdma_close_device(d), 0);

	attr.qps = &f->qp;
	unlink(f->agent.path);
	assert_int_equal(try(f, &attr), -ENOENT);
	says("no agent at");
}

static void test_agent_that_breaks_off(void **state)
{
	static const struct {
		void (*act)(int fd);
		int rc;
		const char *says;
	} want[] = {
		{ end, -ECONNRESET, "the agent ended" },
		{ send_zero_length, -EPROTO, "illegal message" },
		{ send_too_long, -EPROTO, "illegal message" },
		{ send_no_map, -EPROTO, "illegal message" },
		{ be_ready_without_peer, -EPROTO, "illegal message" },
		{ send_nameless_peer, -EPROTO, "illegal message" },
		{ close_early, -ECONNABORTED, "the peer closed" },
		{ wait_end, -ETIMEDOUT, "did not connect the QPs in 1 s" },
	};
	struct fixture *f = *state;
	const struct srdma_connection_attr attr = attr_of(f);

	for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
		f->agent.act = want[i].act;
		assert_int_equal(try(f, &attr), want[i].rc);
		says(want[i].says);
	}
}

static void test_qps_of_a_failed_connection(void **state)
{
	struct fixture *f = *state;
	struct srdma_connection_attr attr = attr_of(f);
	struct srdma_qp *twice[] = { f->qp, f->qp };
	struct srdma_connection *c;
	struct srdma_qp_query query;

	attr.qps = twice;
	attr.n_qps = 2;
	f->agent.act = end;
	assert_int_equal(srdma_connect(&c, f->pd, "host", 7, &attr), -EINVAL);
	says("twice");
	attr = attr_of(f);
	assert_int_equal(srdma_connect(&c, f->pd, "host", 7, &attr),
			 -ECONNRESET);
	srdma_query_qp(f->qp, &query);
	assert_int_equal(query.status, SRDMA_QP_STATUS_ERROR);
	assert_int_equal(srdma_connect(&c, f->pd, "host", 7, &attr), -EINVAL);
	says("was connected before");
}

/* Sends events that mean nothing until the program ends the channel; a short
 * while longer, as a hostile agent does. */
static void chatter(int fd)
{
	introduce(fd);
	for (int i = 0; i < 20000; i++) {
		static const char news[] = "\0\0\0\x0c\xa1\x65"
					   "event\x64"
					   "news";

		if (send(fd, news, sizeof(news) - 1, MSG_NOSIGNAL) < 0)
			return;
		if (i % 100 == 0)
			usleep(20000); /* 4 s in all */
	}
}

static void chatter_when_ready(int fd)
{
	end_after_ready(fd);
	chatter(fd);
}

static void test_agent_that_never_stops(void **state)
{
	struct fixture *f = *state;
	const struct srdma_connection_attr attr = attr_of(f);
	struct srdma_connection *c;

	f->agent.act = chatter;
	assert_int_equal(try(f, &attr), -ETIMEDOUT);
	says("did not connect the QPs in 1 s");
	c = connect_at(f, chatter_when_ready);
	/* a call that reads to the end of the events finds the end of the
	 * agent */
	assert_int_equal(srdma_check_connection(c), 0);
	srdma_disconnect(c);
}

static const char *next_code;

static void fail_with_code(int fd)
{
	report(fd, "error", next_code);
	wait_end(fd);
}

/* Begins a connection and advances it until it fails. */
static int advance(struct fixture *f, const struct srdma_connection_attr *attr)
{
	static const uint8_t gid[SRDMA_GID_LEN] = { 1 };
	const struct srdma_settings_peer to = {
		.role = SRDMA_SETTINGS_RENDEZVOUS, .gid = gid, .qp_num = 7
	};
	struct srdma_connection *c;
	struct pollfd p = { .events = POLLIN };
	int r;

	assert_int_equal(srdma_connection_begin(&c, f->pd, &to, attr), 0);
	p.fd = srdma_connection_fd(c);
	do {
		assert_int_equal(poll(&p, 1, LONG_MS), 1);
		r = srdma_connection_advance(c);
	} while (!r);
	srdma_disconnect(c);
	return r;
}

/* Codes of the event `error`, and what calls return then. */
static const struct {
	const char *code;
	int rc;
} codes[] = {
	{ "config", -EINVAL },	    { "credentials", -EINVAL },
	{ "tls", -EACCES },	    { "identity", -EACCES },
	{ "hash", -EACCES },	    { "worker", -EIO },
	{ "name", -EINVAL },	    { "policy", -EPERM },
	{ "clock", -EPERM },	    { "unreachable", -EHOSTUNREACH },
	{ "gone", -EIO },	    { "timeout", -ETIMEDOUT },
	{ "suite", -ECONNABORTED }, { "", -ECONNABORTED },
};

static void test_codes_of_errors(void **state)
{
	struct fixture *f = *state;
	const struct srdma_connection_attr attr = attr_of(f);

	f->agent.act = fail_with_code;
	for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++) {
		next_code = codes[i].code;
		assert_int_equal(try(f, &attr), codes[i].rc);
		says(": because");
	}
}

static void test_codes_of_errors_without_waiting(void **state)
{
	struct fixture *f = *state;
	const struct srdma_connection_attr attr = attr_of(f);

	f->agent.act = fail_with_code;
	for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++) {
		next_code = codes[i].code;
		assert_int_equal(advance(f, &attr), codes[i].rc);
		says(": because");
	}
}

static void test_events_in_pieces(void **state)
{
	struct fixture *f = *state;
	const struct srdma_connection_attr attr = attr_of(f);

	f->agent.act = trickle;
	assert_int_equal(try(f, &attr), 0);
	assert_non_null(strstr(f->agent.first, "connect"));
	assert_non_null(strstr(f->agent.first, f->worker.path));
	assert_non_null(strstr(f->agent.first, "random"));
}

static void expect_illegal(struct fixture *f, struct srdma_connection_attr attr,
			   int rc)
{
	f->agent.act = wait_end; /* not reached */
	assert_int_equal(try(f, &attr), rc);
}

static void test_illegal_attributes(void **state)
{
	static const char *const no_text[] = { "\xc0" }, *const null[] = { 0 };
	static const struct srdma_protection missing = { .suite = 99,
							 .level = 3 };
	static const struct srdma_protection none = { 0 };
	static const uint8_t gid[SRDMA_GID_LEN] = { 1 };
	struct fixture *f = *state;
	struct srdma_connection_attr a = attr_of(f);
	struct srdma_connection *c;

	a.identity = NULL;
	expect_illegal(f, a, -EINVAL);
	a.identity = "";
	expect_illegal(f, a, -EINVAL);
	a = attr_of(f);
	a.peers = no_text;
	a.n_peers = 1;
	expect_illegal(f, a, -EINVAL);
	a.peers = null;
	expect_illegal(f, a, -EINVAL);
	a = attr_of(f);
	assert_int_equal(srdma_connect(&c, f->pd, NULL, 7, &a), -EINVAL);
	assert_int_equal(srdma_connect(&c, f->pd, "host", 0, &a), -EINVAL);
	a.n_qps = 0;
	expect_illegal(f, a, -EINVAL);
	a.n_qps = SRDMA_QPS_MAX + 1;
	expect_illegal(f, a, -EINVAL);
	assert_int_equal(srdma_connect_qp(&c, f->pd, gid, 7, &a), -EINVAL);
	a = attr_of(f);
	assert_int_equal(srdma_connect_qp(&c, f->pd, gid, 0, &a), -EINVAL);
	assert_int_equal(srdma_connect_qp(&c, f->pd, gid, 1 << 24, &a),
			 -EINVAL);
	says("it must be 1 to 0xffffff");
	a = attr_of(f);
	a.data_len = SRDMA_DATA_MAX + 1;
	expect_illegal(f, a, -EINVAL);
	a = attr_of(f);
	a.protections = &missing;
	a.n_protections = 1;
	expect_illegal(f, a, -ENOTSUP);
	a.protections = &none; /* without --allow-unprotected */
	expect_illegal(f, a, -ENOTSUP);
}

static int connect_and_check(struct fixture *f, void (*act)(int fd))
{
	struct srdma_connection *c = connect_at(f, act);
	int rc;

	assert_int_equal(srdma_dealloc_pd(f->pd), -EBUSY);
	for (int ms = 0; !(rc = srdma_check_connection(c)) && ms < 2000; ms++)
		usleep(1000);
	assert_int_equal(srdma_check_connection(c), rc);
	assert_int_equal(srdma_renew(c, FEW_MS), rc);
	srdma_disconnect(c);
	return rc;
}

static void test_end_of_a_connection(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(connect_and_check(f, fail_after_ready), -ETIMEDOUT);
	says("timeout: because");
}

static void test_renewal_that_does_not_come(void **state)
{
	struct fixture *f = *state;
	struct srdma_connection *c = connect_at(f, be_ready);

	/* the peer event had no suite: level none has nothing to renew */
	assert_int_equal(srdma_renew(c, FEW_MS), -EINVAL);
	srdma_disconnect(c);
	c = connect_at(f, be_protected);
	assert_int_equal(srdma_renew(c, FEW_MS), -ETIMEDOUT);
	says("no new secrets in 100 ms");
	assert_int_equal(srdma_check_connection(c), 0);
	srdma_disconnect(c);
}

/* A renewal that was not requested. */
static void renew_unasked(int fd)
{
	static const char renewed[] = "\0\0\0\x15\xa2\x65"
				      "event\x67"
				      "renewed\x64"
				      "wish\x01";

	end_after_ready(fd);
	send(fd, renewed, sizeof(renewed) - 1, MSG_NOSIGNAL);
	wait_end(fd);
}

static void test_renewal_without_a_request(void **state)
{
	assert_int_equal(connect_and_check(*state, renew_unasked), -EPROTO);
}

/* Becomes ready, and then reads nothing for a while. */
static void be_deaf(int fd)
{
	introduce_with_keys(fd);
	report(fd, "ready", "");
	sleep(2);
}

static void test_agent_that_does_not_read(void **state)
{
	struct fixture *f = *state;
	struct srdma_connection *c = connect_at(f, be_deaf);

	/* a call that waits for longer finds the end of the agent */
	do
		assert_int_equal(srdma_renew(c, 0), -ETIMEDOUT);
	while (strstr(srdma_error_text(), "no new secrets in 0 ms"));
	says("did not read a message in time");
	assert_int_equal(srdma_check_connection(c), 0);
	srdma_disconnect(c);
}

static void test_message_sent_in_part(void **state)
{
	static const uint8_t data[SRDMA_AGENT_MAX - 64];
	struct fixture *f = *state;
	struct srdma_agent_place place = { .user = 0 };
	struct srdma_message first = { 0 }, big = { 0 };
	struct srdma_agent_event e;
	struct srdma_channel *c;

	f->agent.act = be_deaf;
	srdma_message_uint(&first, 1);
	assert_int_equal(srdma_message_finish(&first), 0);
	srdma_message_bytes(&big, data, sizeof(data));
	assert_int_equal(srdma_message_finish(&big), 0);
	strcpy(place.path, f->agent.path);
	assert_int_equal(srdma_channel_open(&c, &place, &first, NULL, LONG_MS),
			 0);
	assert_int_equal(srdma_channel_send(c, &big, NULL,
					    srdma_socket_deadline(FEW_MS)),
			 -ETIMEDOUT);
	assert_int_equal(srdma_channel_send(c, &first, NULL, INT64_MAX),
			 -ECONNRESET);
	says("did not get a whole message");
	assert_int_equal(srdma_channel_next(c, &e, INT64_MAX), -ECONNRESET);
	srdma_channel_close(c);
	srdma_message_free(&first);
	srdma_message_free(&big);
}

/* The socket of an agent that does nothing. */
static int open_deaf(const struct fixture *f, struct srdma_agent_place *place)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	const int deaf = (int)syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0);

	place->user = 0;
	snprintf(place->path, sizeof(place->path), "%s/deaf", f->worker.folder);
	strcpy(name.sun_path, place->path);
	assert_int_equal(bind(deaf, (struct sockaddr *)&name, sizeof(name)), 0);
	assert_int_equal(listen(deaf, 4), 0);
	return deaf;
}

/* It does not wait for the end of the agent: a program that polls its CQ may
 * open the channel. */
static void test_open_without_time(void **state)
{
	static const uint8_t data[SRDMA_AGENT_MAX - 64];
	struct srdma_agent_place place;
	const int deaf = open_deaf(*state, &place);
	struct srdma_message big = { 0 };
	struct srdma_channel *c;

	srdma_message_bytes(&big, data, sizeof(data));
	assert_int_equal(srdma_message_finish(&big), 0);
	waits = 0;
	assert_int_equal(srdma_channel_open(&c, &place, &big, NULL, 0),
			 -ETIMEDOUT);
	assert_int_equal(waits, 0);
	assert_null(c);
	srdma_message_free(&big);
	close(deaf);
	unlink(place.path);
}

/* A child of fork() has a copy of the descriptor: the agent sees the end. */
static void test_drop_of_a_channel_with_a_copy(void **state)
{
	struct srdma_agent_place place;
	const int deaf = open_deaf(*state, &place);
	struct srdma_message first = { 0 };
	struct srdma_channel *c;
	char byte;
	int copy, fd;

	srdma_message_uint(&first, 1);
	assert_int_equal(srdma_message_finish(&first), 0);
	assert_int_equal(srdma_channel_open(&c, &place, &first, NULL, LONG_MS),
			 0);
	fd = accept(deaf, NULL, NULL);
	copy = dup(srdma_channel_fd(c));
	srdma_channel_drop(c);
	while (recv(fd, &byte, 1, MSG_DONTWAIT) == 1)
		; /* the first message */
	assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 0);
	close(copy);
	close(fd);
	close(deaf);
	srdma_message_free(&first);
	unlink(place.path);
}

/* --- a restarted agent --------------------------------------------------- */

static void end_and_restart(int fd)
{
	introduce_with_keys(fd);
	report(fd, "ready", "");
	agent->act = restarted;
}

/* Reports that every request for renewal is complete. */
static void renew(int fd)
{
	uint8_t message[256];
	ssize_t n;

	while ((n = recv(fd, message, sizeof(message), 0)) > 0) {
		struct srdma_message w = { 0 };

		srdma_message_map(&w, 2);
		srdma_message_text(&w, "event");
		srdma_message_text(&w, "renewed");
		srdma_message_text(&w, "wish");
		last_wish = message[n - 1];
		srdma_message_uint(&w, last_wish);
		assert_int_equal(srdma_message_finish(&w), 0);
		srdma_socket_send(fd, w.data, w.len, NULL, INT64_MAX);
		srdma_message_free(&w);
	}
}

static void be_renewable(int fd)
{
	introduce_with_keys(fd);
	report(fd, "ready", "");
	renew(fd);
}

/* A request that was not sent has no number. */
static void test_renewal_that_cannot_be_requested(void **state)
{
	struct fixture *f = *state;
	struct srdma_connection *c = connect_at(f, be_renewable);
	int refused;

	send_error = ENOBUFS;
	refused = srdma_renew(c, LONG_MS);
	assert_int_equal(srdma_renew(c, LONG_MS), 0);
	srdma_disconnect(c);
	assert_int_equal(refused, -ENOBUFS);
	assert_int_equal(last_wish, 1);
}

static void take_over(int fd)
{
	report(fd, "ready", "");
	renew(fd);
}

static void take_over_late(int fd)
{
	(void)fd;
	usleep(1000 * FEW_MS);
	agent->act = take_over;
}

/* Reports `ready` and ends once more. */
static void take_over_and_end(int fd)
{
	report(fd, "ready", "");
	agent->act = take_over;
}

/* The connection goes on, and a renewal that was requested meanwhile is requested
 * again. */
static void test_restarted_agent(void **state)
{
	static void (*const ways[])(int fd) = { take_over, take_over_late,
						take_over_and_end };
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		struct srdma_connection *c;
		struct srdma_connection_info info;
		struct srdma_qp_query query;

		restarted = ways[i];
		c = connect_at(f, end_and_restart);
		assert_int_equal(srdma_check_connection(c), 0);
		assert_int_equal(srdma_renew(c, LONG_MS), 0);
		assert_non_null(strstr(f->agent.first, "rejoin"));
		assert_non_null(strstr(f->agent.first, "qpns"));
		assert_non_null(strstr(f->agent.first, "identity"));
		assert_non_null(strstr(f->agent.first, f->worker.path));
		assert_int_equal(srdma_renew(c, LONG_MS), 0);
		assert_int_equal(srdma_check_connection(c), 0);
		srdma_query_connection(c, &info);
		assert_string_equal(info.identity, "x");
		srdma_query_qp(f->qp, &query);
		assert_int_equal(query.status, SRDMA_QP_STATUS_CONNECTED);
		srdma_disconnect(c);
	}
}

/* An event loop that calls srdma_check_connection() whenever the descriptor is
 * readable: the connection goes on, and the loop does not spin. */
static void test_descriptor_of_a_connection(void **state)
{
	struct fixture *f = *state;
	struct srdma_connection *c;
	struct pollfd p = { .events = POLLIN };
	int calls = 0;

	restarted = take_over_late;
	c = connect_at(f, end_and_restart);
	p.fd = srdma_connection_fd(c);
	while (poll(&p, 1, f->agent.channels < 3 ? LONG_MS : FEW_MS)) {
		assert_int_equal(srdma_check_connection(c), 0);
		assert_true(++calls < 20);
	}
	assert_int_equal(f->agent.channels, 3);
	assert_int_equal(srdma_renew(c, LONG_MS), 0);
	srdma_disconnect(c);
}

static void test_agent_that_is_not_restarted(void **state)
{
	struct fixture *f = *state;
	struct srdma_connection_attr attr;
	struct srdma_connection *c, *other;
	struct srdma_qp_query query;
	struct srdma_qp *qp;
	int rc;

	restarted = end;
	c = connect_at(f, end_and_restart);
	assert_int_equal(srdma_renew(c, FEW_MS), -EAGAIN);
	says("is away: start it again");
	fake_agent_stop(&f->agent);
	assert_int_equal(srdma_check_connection(c), 0);
	srdma_query_qp(f->qp, &query);
	assert_int_equal(query.status, SRDMA_QP_STATUS_CONNECTED);
	assert_int_equal(srdma_create_qp(&qp, f->pd, NULL), 0);
	attr = attr_of(f);
	attr.qps = &qp;
	assert_int_equal(srdma_connect(&other, f->pd, "host", 7, &attr),
			 -ENOENT);
	says("no agent at");
	srdma_query_qp(qp, &query);
	assert_int_equal(query.status, SRDMA_QP_STATUS_INIT); /* try again */
	assert_int_equal(srdma_destroy_qp(qp), 0);
	shift_clock(60);
	for (int ms = 0; !(rc = srdma_check_connection(c)) && ms < 5000; ms++)
		usleep(1000);
	assert_int_equal(rc, -ECONNRESET);
	says("no other for 60 s");
	assert_int_equal(srdma_renew(c, FEW_MS), -ECONNRESET);
	srdma_disconnect(c);
	fake_agent_start(&f->agent, f->worker.folder);
}

static void test_restarted_agent_that_refuses(void **state)
{
	static const struct {
		const char *code;
		int rc;
	} rows[] = { { "closed", -ECONNABORTED },
		     { "policy", -EPERM },
		     { "gone", -EIO } };
	struct fixture *f = *state;

	restarted = fail_with_code;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		next_code = rows[i].code;
		assert_int_equal(connect_and_check(f, end_and_restart),
				 rows[i].rc);
		says(": because");
	}
	restarted = send_no_map;
	assert_int_equal(connect_and_check(f, end_and_restart), -EPROTO);
	restarted = close_early;
	assert_int_equal(connect_and_check(f, end_and_restart), -ESHUTDOWN);
}

/* --- listeners ----------------------------------------------------------- */

static void be_listening(int fd)
{
	report(fd, "listening", "");
	wait_end(fd);
}

static void refuse_listener(int fd)
{
	report(fd, "error", "credentials");
	wait_end(fd);
}

static void arrive_without_number(int fd)
{
	static const char arrived[] = "\0\0\0\x1a\xa2\x65"
				      "event\x67"
				      "arrived\x68"
				      "identity\x61"
				      "x";

	report(fd, "listening", "");
	send(fd, arrived, sizeof(arrived) - 1, MSG_NOSIGNAL);
	wait_end(fd);
}

static void report_refused(int fd)
{
	struct srdma_message w = { 0 };

	srdma_message_map(&w, 4);
	srdma_message_text(&w, "event");
	srdma_message_text(&w, "refused");
	srdma_message_text(&w, "address");
	srdma_message_text(&w, "192.0.2.1");
	srdma_message_text(&w, "code");
	srdma_message_text(&w, "tls");
	srdma_message_text(&w, "text");
	srdma_message_text(&w, "no TLS");
	assert_int_equal(srdma_message_finish(&w), 0);
	srdma_socket_send(fd, w.data, w.len, NULL, INT64_MAX);
	srdma_message_free(&w);
}

static void listen_and_end(int fd)
{
	report(fd, "listening", "");
	agent->act = restarted;
}

static void listen_and_report(int fd)
{
	struct srdma_message w = { 0 };

	report(fd, "listening", "");
	report_refused(fd);
	srdma_message_map(&w, 3);
	srdma_message_text(&w, "event");
	srdma_message_text(&w, "arrived");
	srdma_message_text(&w, "identity");
	srdma_message_text(&w, "x");
	srdma_message_text(&w, "arrival");
	srdma_message_uint(&w, 7);
	assert_int_equal(srdma_message_finish(&w), 0);
	srdma_socket_send(fd, w.data, w.len, NULL, INT64_MAX);
	srdma_message_free(&w);
	wait_end(fd);
}

static void listen_and_fail(int fd)
{
	report(fd, "listening", "");
	report(fd, "error", "timeout");
}

/* It asks no other agent, which could only refuse as well. */
static void test_listener_that_failed(void **state)
{
	const struct srdma_listener_attr attr = { .identity = "me" };
	struct fixture *f = *state;
	struct srdma_listener *l;
	struct srdma_request request;

	f->agent.act = listen_and_fail;
	assert_int_equal(srdma_listen(&l, f->device, "127.0.0.1", 0, &attr), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(srdma_get_request(l, &request, LONG_MS),
				 -ETIMEDOUT);
		says("timeout: because");
	}
	srdma_close_listener(l);
	assert_int_equal(f->agent.channels, 1);
}

static void test_listeners(void **state)
{
	const struct srdma_listener_attr attr = { .identity = "me" };
	const struct srdma_listener_attr no_name = { .identity = NULL };
	struct fixture *f = *state;
	struct srdma_listener *l;
	struct srdma_request request;

	f->agent.act = refuse_listener;
	assert_int_equal(srdma_listen(&l, f->device, "127.0.0.1", 0, &attr),
			 -EINVAL);
	says("credentials: because");
	f->agent.act = arrive_without_number;
	assert_int_equal(srdma_listen(&l, f->device, "127.0.0.1", 0, &attr), 0);
	assert_int_equal(srdma_get_request(l, &request, LONG_MS), -EPROTO);
	srdma_close_listener(l);
	f->agent.act = end;
	assert_int_equal(srdma_listen(&l, f->device, "127.0.0.1", 0, &attr),
			 -ECONNRESET);
	assert_int_equal(srdma_listen(&l, f->device, "127.0.0.1", 0, &no_name),
			 -EINVAL);
	assert_null(l);
	f->agent.act = be_listening;
	assert_int_equal(srdma_listen(&l, f->device, "::1", 0, &attr), 0);
	assert_int_not_equal(srdma_listener_port(l), 0);
	assert_int_equal(srdma_close_device(f->device), -EBUSY);
	assert_int_equal(srdma_get_request(l, &request, FEW_MS), -ETIMEDOUT);
	says("no peer came in 100 ms");
	srdma_close_listener(l);
}

/* Listens at an agent that ends, and acts so after its restart. */
static struct srdma_listener *listen_until(struct fixture *f,
					   void (*act)(int fd))
{
	const struct srdma_listener_attr attr = { .identity = "me" };
	struct srdma_listener *l;

	restarted = act;
	f->agent.act = listen_and_end;
	assert_int_equal(srdma_listen(&l, f->device, NULL, 0, &attr), 0);
	return l;
}

/* The restarted agent gets the listening socket again. */
static void test_listener_at_a_restarted_agent(void **state)
{
	const struct srdma_listener_attr attr = { .identity = "me" };
	struct fixture *f = *state;
	struct srdma_listener *l;
	struct srdma_request request;
	uint16_t port;

	l = listen_until(f, listen_and_report);
	port = srdma_listener_port(l);
	f->agent.passed = 0;
	assert_int_equal(srdma_get_request(l, &request, LONG_MS), 0);
	assert_int_equal(request.arrival, 7);
	assert_int_equal(f->agent.passed, 1);
	srdma_close_listener(l);
	f->agent.act = be_listening;
	/* the socket was closed */
	assert_int_equal(srdma_listen(&l, f->device, NULL, port, &attr), 0);
	srdma_close_listener(l);

	l = listen_until(f, refuse_listener);
	assert_int_equal(srdma_get_request(l, &request, LONG_MS), -EINVAL);
	says("credentials: because");
	srdma_close_listener(l);

	l = listen_until(f, end);
	assert_int_equal(srdma_get_request(l, &request, FEW_MS), -EAGAIN);
	says("is away: start it again");
	shift_clock(60);
	assert_int_equal(srdma_get_request(l, &request, LONG_MS), -ECONNRESET);
	says("no other for 60 s");
	srdma_close_listener(l);
}

/* --- listening at an agent on another computer --------------------------- */

enum { NIC_PORT = 7001 };

static void send_listening(int fd, unsigned port)
{
	struct srdma_message w = { 0 };

	srdma_message_map(&w, 2);
	srdma_message_text(&w, "event");
	srdma_message_text(&w, "listening");
	srdma_message_text(&w, "address");
	srdma_message_array(&w, 2);
	srdma_message_text(&w, "10.0.0.1");
	srdma_message_uint(&w, port);
	assert_int_equal(srdma_message_finish(&w), 0);
	srdma_socket_send(fd, w.data, w.len, NULL, INT64_MAX);
	srdma_message_free(&w);
}

static void listen_there(int fd)
{
	send_listening(fd, NIC_PORT);
	wait_end(fd);
}

static void listen_there_and_end(int fd)
{
	send_listening(fd, NIC_PORT);
	agent->act = listen_there;
}

/* The agent gets an address instead of a socket. Another agent gets the port
 * that the first one chose. */
static void test_listener_of_another_computer(void **state)
{
	static const char any[] = "address\x82\x60.",	/* "", 0 */
		same[] = "address\x82\x60\x19\x1b\x59", /* "", 7001 */
		named[] = "address\x82\x68"
			  "10.0.0.1\x19\x1b\x59";
	const struct srdma_listener_attr attr = { .identity = "me" };
	struct fixture *f = *state;
	struct srdma_listener *l;
	struct srdma_request request;

	f->device->remote = 1;
	f->agent.act = listen_there_and_end;
	assert_int_equal(srdma_listen(&l, f->device, NULL, 0, &attr), 0);
	assert_int_equal(srdma_listener_port(l), NIC_PORT);
	assert_int_equal(f->agent.passed, 0);
	assert_non_null(strstr(f->agent.first, any));
	assert_int_equal(srdma_get_request(l, &request, FEW_MS), -ETIMEDOUT);
	assert_non_null(strstr(f->agent.first, same));
	srdma_close_listener(l);
	assert_int_equal(
		srdma_listen(&l, f->device, "10.0.0.1", NIC_PORT, &attr), 0);
	assert_non_null(strstr(f->agent.first, named));
	srdma_close_listener(l);
	f->agent.act = be_listening; /* without an address */
	assert_int_equal(srdma_listen(&l, f->device, NULL, 0, &attr), -EPROTO);
	f->agent.act = refuse_listener;
	assert_int_equal(srdma_listen(&l, f->device, NULL, 0, &attr), -EINVAL);
	f->device->remote = 0;
}

/* --- listening at every address ------------------------------------------ */

static int no_ipv6;   /* 1: as a kernel without IPv6 */
static int next_name; /* error of getaddrinfo(); 0: the usual result */

/* In place of those of libc. */
int socket(int family, int type, int protocol)
{
	if (no_ipv6 && family == AF_INET6) {
		errno = EAFNOSUPPORT;
		return -1;
	}
	return (int)syscall(SYS_socket, family, type, protocol);
}

int getaddrinfo(const char *name, const char *service,
		const struct addrinfo *hints, struct addrinfo **found)
{
	int (*usual)(const char *, const char *, const struct addrinfo *,
		     struct addrinfo **);

	if (next_name) {
		errno = EMFILE; /* read with EAI_SYSTEM */
		return next_name;
	}
	*(void **)&usual = dlsym(RTLD_NEXT, "getaddrinfo");
	return usual(name, service, hints, found);
}

/* 1 if a TCP connection to the loopback address of the family succeeds. */
static int reaches(int family, uint16_t port)
{
	const struct sockaddr_in v4 = { .sin_family = AF_INET,
					.sin_port = htons(port),
					.sin_addr.s_addr =
						htonl(INADDR_LOOPBACK) };
	const struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
					 .sin6_port = htons(port),
					 .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	const void *address =
		family == AF_INET ? (const void *)&v4 : (const void *)&v6;
	const socklen_t len = family == AF_INET ? sizeof(v4) : sizeof(v6);
	int fd = (int)syscall(SYS_socket, family, SOCK_STREAM, 0);
	int r = connect(fd, address, len);

	close(fd);
	return !r;
}

static int has_ipv6(void)
{
	const struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
					 .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int fd = socket(AF_INET6, SOCK_STREAM, 0);
	int r = bind(fd, (const struct sockaddr *)&v6, sizeof(v6));

	close(fd);
	return !r;
}

static void test_listening_at_every_address(void **state)
{
	const struct srdma_listener_attr attr = { .identity = "me" };
	struct fixture *f = *state;
	struct srdma_listener *l, *other;
	uint16_t port;

	f->agent.act = be_listening;
	for (no_ipv6 = 0; no_ipv6 < 2; no_ipv6++) {
		assert_int_equal(srdma_listen(&l, f->device, NULL, 0, &attr),
				 0);
		port = srdma_listener_port(l);
		assert_int_not_equal(port, 0);
		assert_true(reaches(AF_INET, port));
		assert_int_equal(reaches(AF_INET6, port),
				 !no_ipv6 && has_ipv6());
		assert_int_equal(
			srdma_listen(&other, f->device, NULL, port, &attr),
			-EADDRINUSE);
		says("cannot listen at port ");
		srdma_close_listener(l);
	}
	no_ipv6 = 0;
}

static void test_names_of_a_listener(void **state)
{
	static const struct {
		int error, rc;
	} want[] = {
		{ EAI_NONAME, -EINVAL },  { EAI_AGAIN, -EAGAIN },
		{ EAI_MEMORY, -ENOMEM },  { EAI_SYSTEM, -EMFILE },
		{ EAI_SERVICE, -EINVAL },
	};
	const struct srdma_listener_attr attr = { .identity = "me" };
	struct fixture *f = *state;
	struct srdma_listener *l;

	for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
		next_name = want[i].error;
		assert_int_equal(srdma_listen(&l, f->device, "name", 0, &attr),
				 want[i].rc);
		says("name: ");
	}
	next_name = 0;
}

#define each(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		each(test_no_agent),
		each(test_agent_that_breaks_off),
		each(test_qps_of_a_failed_connection),
		each(test_agent_that_never_stops),
		each(test_codes_of_errors),
		each(test_codes_of_errors_without_waiting),
		each(test_events_in_pieces),
		each(test_illegal_attributes),
		each(test_end_of_a_connection),
		each(test_renewal_that_does_not_come),
		each(test_renewal_without_a_request),
		each(test_agent_that_does_not_read),
		each(test_message_sent_in_part),
		each(test_open_without_time),
		each(test_drop_of_a_channel_with_a_copy),
		each(test_renewal_that_cannot_be_requested),
		each(test_restarted_agent),
		each(test_descriptor_of_a_connection),
		each(test_agent_that_is_not_restarted),
		each(test_restarted_agent_that_refuses),
		each(test_listeners),
		each(test_listener_that_failed),
		each(test_listener_at_a_restarted_agent),
		each(test_listener_of_another_computer),
		each(test_listening_at_every_address),
		each(test_names_of_a_listener),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
