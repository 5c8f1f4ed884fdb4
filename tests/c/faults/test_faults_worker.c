/*
 * Each call of a worker process fails once: at its start, when a client connects,
 * and in each request of the control socket (docs/local-interface.md 3). A worker
 * starts or reports why not. A request is answered, or its connection ends; the
 * next client is served.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "control.h"
#include "faults/faults.h"
#include "host/leg_shm.h"
#include "host/socket.h"
#include "listener.h"
#include "log.h"
#include "support/descriptors.h"
#include "support/shm_leg.h"
#include "support/shm_pair.h"
#include "worker_process.h"

enum { TURNS = 3, REGION = 4096, GONE = -1 };

struct worker_scene {
	char dir[64], path[96], wire[80];
	struct shared shared;
	struct worker_process process;
	uint64_t now;
	int fd; /* the client's socket */
	struct srdma_leg_shm *host;
	struct srdma_ctl_msg answer;
	uint32_t leg, key, qpn;
};

static void name(struct worker_scene *s)
{
	memset(s, 0, sizeof(*s));
	shm_make_dir(s->dir);
	snprintf(s->path, sizeof(s->path), "%s/control", s->dir);
	snprintf(s->wire, sizeof(s->wire), "shm:%s", s->dir);
	s->now = 1;
	s->fd = -1;
}

/* Parses the options of a worker with the name "a". */
static void parse(struct worker_scene *s)
{
	static char words[][16] = { "srdma-offload", "--name",	    "a",
				    "--host-dev",    "shm",	    "--control",
				    "--wire-dev",    "--key-cache", "4" };
	char *argv[] = { words[0], words[1], words[2], words[3],
			 words[4], words[5], s->path,  words[6],
			 s->wire,  words[7], words[8], NULL };

	assert_int_equal(options_parse(&s->process.o,
				       (int)(sizeof(argv) / sizeof(*argv)) - 1,
				       argv),
			 OPTIONS_RUN);
}

/* 0 or -errno; on an error nothing is left. */
static int start(struct worker_scene *s)
{
	int r;

	s->shared = (struct shared){ .signals = -1, .ended = -1 };
	r = broadcast_open(&s->shared.words, 1);
	if (r < 0)
		return r;
	s->process.shared = &s->shared;
	s->process.listener = listener_open(s->path, 0600);
	if (s->process.listener < 0) {
		broadcast_close(&s->shared.words);
		return s->process.listener;
	}
	r = worker_process_open(&s->process);
	if (r < 0) {
		listener_close(s->process.listener, s->path);
		broadcast_close(&s->shared.words);
	}
	return r;
}

static void stop(struct worker_scene *s)
{
	worker_process_close(&s->process);
	listener_close(s->process.listener, s->path);
	broadcast_close(&s->shared.words);
}

static void starting(void *ctx, unsigned long n)
{
	const int before = count_descriptors();
	struct worker_scene s;
	int r;

	(void)ctx;
	name(&s);
	parse(&s);
	faults_arm(n);
	r = start(&s);
	if (!faults_disarm())
		assert_int_equal(r, 0);
	assert_true(r <= 0);
	if (!r)
		stop(&s);
	assert_int_equal(count_descriptors(), before);
	assert_int_equal(start(&s), 0); /* also after a failure */
	stop(&s);
	assert_int_equal(rmdir(s.dir), 0);
}

static void test_worker_starts_or_not(void **state)
{
	(void)state;
	log_set_level(LEVEL_ERROR);
	assert_true(faults_each(starting, NULL) > 30);
}

/* --- requests ---------------------------------------------------------------- */

static void turns(struct worker_scene *s)
{
	const struct worker_params *p = &s->process.params;

	for (int i = 0; i < TURNS; i++) {
		s->now += 1000;
		control_run(p->control);
		srdma_relay_run(p->relay, s->now, 64);
		control_poll(p->control);
	}
}

static void call_worker(struct worker_scene *s)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };

	if (s->fd >= 0)
		close(s->fd);
	s->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	snprintf(at.sun_path, sizeof(at.sun_path), "%.90s", s->path);
	assert_int_equal(connect(s->fd, (struct sockaddr *)&at, sizeof(at)), 0);
}

static void send_request(struct worker_scene *s, const struct srdma_ctl_msg *m,
			 const struct srdma_socket_fds *fds)
{
	uint8_t data[SRDMA_CTL_MAX];
	int len = srdma_ctl_encode(data, SRDMA_CTL_REQUEST, m);

	assert_true(len > 0);
	assert_int_equal(
		srdma_socket_send(s->fd, data, (size_t)len, fds, INT64_MAX),
		len);
}

/* The status of the answer, with its descriptors; GONE: the connection ended, or
 * there is no answer. */
static int take_answer(struct worker_scene *s, struct srdma_socket_fds *fds)
{
	uint8_t data[SRDMA_CTL_MAX];
	int len;

	fds->n = 0;
	if (!shm_readable(s->fd))
		return GONE;
	len = srdma_socket_receive(s->fd, data, sizeof(data), fds, 0);
	if (len <= 0)
		return GONE;
	assert_int_equal(srdma_ctl_decode(&s->answer, SRDMA_CTL_ANSWER, data,
					  (size_t)len),
			 0);
	if (s->answer.status)
		assert_true(*s->answer.text);
	return (int)s->answer.status;
}

/* Sends a request, of which the n-th call fails; n 0: none. */
static int ask(struct worker_scene *s, struct srdma_ctl_msg m,
	       const struct srdma_socket_fds *fds, unsigned long n)
{
	struct srdma_socket_fds came;
	int status;

	send_request(s, &m, fds);
	faults_arm(n);
	turns(s);
	faults_disarm();
	status = take_answer(s, &came);
	if (status == 0 && m.kind == SRDMA_CTL_OPEN)
		assert_int_equal(srdma_leg_shm_attach(s->host, came.fd), 0);
	srdma_socket_close_fds(&came);
	return status;
}

static int hello(struct worker_scene *s, unsigned long n)
{
	return ask(s,
		   (struct srdma_ctl_msg){ .kind = SRDMA_CTL_HELLO,
					   .version = SRDMA_CTL_VERSION },
		   NULL, n);
}

/* The connection of the client is accepted in the turns of its request. */
static int greet(struct worker_scene *s, unsigned long n)
{
	call_worker(s);
	return hello(s, n);
}

static int open_leg(struct worker_scene *s, unsigned long n)
{
	struct srdma_socket_fds fds = { .n = SRDMA_LEG_SHM_OPEN_FDS };
	int status;

	srdma_leg_shm_destroy(s->host);
	assert_int_equal(srdma_leg_shm_create(&s->host, SHM_RING), 0);
	memcpy(fds.fd, srdma_leg_shm_fds(s->host),
	       SRDMA_LEG_SHM_OPEN_FDS * sizeof(int));
	status = ask(s,
		     (struct srdma_ctl_msg){ .kind = SRDMA_CTL_OPEN,
					     .open.ring = SHM_RING },
		     &fds, n);
	if (status == 0)
		s->leg = s->answer.opened.leg;
	return status;
}

static int register_region(struct worker_scene *s, unsigned long n)
{
	struct srdma_socket_fds fds = { .n = 1 };
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_REG_MR };
	int status;

	fds.fd[0] = shm_memfd(REGION, F_SEAL_SHRINK);
	m.reg_mr.leg = s->leg;
	m.reg_mr.mr.region.addr = 0x10000;
	m.reg_mr.mr.region.length = REGION;
	m.reg_mr.mr.region.access = SRDMA_ACCESS_ALL | SRDMA_ACCESS_PROOF;
	m.reg_mr.mr.log2_block = 12;
	m.reg_mr.mr.depth = 48;
	status = ask(s, m, &fds, n);
	close(fds.fd[0]);
	if (status == 0)
		s->key = s->answer.key;
	return status;
}

static int init_qp(struct worker_scene *s, unsigned long n)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_INIT };
	int status;

	m.init.leg = s->leg;
	m.init.qp.sq = 4;
	m.init.qp.rq = 4;
	status = ask(s, m, NULL, n);
	if (status == 0)
		s->qpn = s->answer.qp.qp.qpn;
	return status;
}

/* The peer is at the worker's own address, and never answers. */
static int give_keys(struct worker_scene *s, unsigned long n)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_KEYS };
	struct srdma_qp_keys *k = &m.keys.qp;

	*k = (struct srdma_qp_keys){ .qpn = s->qpn,
				     .suite = 1,
				     .level = SRDMA_LEVEL_AEAD,
				     .tag_len = 16,
				     .secret_len = 16,
				     .peer_qpn = 77,
				     .peer_pn = 1 << 23,
				     .peer_mtu = 1024,
				     .peer_window = 64,
				     .peer_reads = 4 };
	memset(k->tx_secret, 1, 16);
	memset(k->rx_secret, 2, 16);
	snprintf(k->peer_wire, sizeof(k->peer_wire), "%s",
		 s->process.params.wire->address);
	snprintf(m.keys.identity, sizeof(m.keys.identity), "spiffe://a/b");
	return ask(s, m, NULL, n);
}

static int make_capability(struct worker_scene *s, unsigned long n)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_CAP };

	m.cap.leg = s->leg;
	m.cap.cap = (struct srdma_cap_params){ .key = s->key,
					       .length = REGION,
					       .rights = SRDMA_MEMKEY_READ };
	return ask(s, m, NULL, n);
}

static int revoke_region(struct worker_scene *s, unsigned long n)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_REVOKE };

	m.revoke.leg = s->leg;
	m.revoke.range.key = s->key;
	return ask(s, m, NULL, n);
}

static int stats(struct worker_scene *s, unsigned long n)
{
	return ask(s, (struct srdma_ctl_msg){ .kind = SRDMA_CTL_STATS }, NULL,
		   n);
}

static int become_agent(struct worker_scene *s, unsigned long n)
{
	return ask(s, (struct srdma_ctl_msg){ .kind = SRDMA_CTL_AGENT }, NULL,
		   n);
}

static int usage(struct worker_scene *s, unsigned long n)
{
	return ask(s, (struct srdma_ctl_msg){ .kind = SRDMA_CTL_USAGE }, NULL,
		   n);
}

/* A request whose answer waits for the peer: none comes, and none is due. */
static int wait_qp(struct worker_scene *s, unsigned long n)
{
	int status = ask(
		s,
		(struct srdma_ctl_msg){ .kind = SRDMA_CTL_WAIT, .qpn = s->qpn },
		NULL, n);

	return status == GONE ? 0 : status;
}

/* In the order in which a client sends them. */
static int (*const requests[])(struct worker_scene *s, unsigned long n) = {
	greet,	      open_leg,	       register_region, init_qp,
	give_keys,    make_capability, revoke_region,	stats,
	become_agent, usage,	       wait_qp,
};

enum { REQUESTS = sizeof(requests) / sizeof(*requests) };

/* The requests before number *ctx succeed, in that one a call fails. Afterwards
 * another client is served. */
static void request(void *ctx, unsigned long n)
{
	const int before = count_descriptors();
	const int number = *(int *)ctx;
	struct worker_scene s;
	int i, status;

	name(&s);
	parse(&s);
	assert_int_equal(start(&s), 0);
	for (i = 0; i < number; i++)
		if (requests[i](&s, 0) != 0)
			fail_msg("request %d: %s", i, s.answer.text);
	status = requests[number](&s, n);
	assert_in_range(status + 1, 0, 4096);
	assert_int_equal(greet(&s, 0), 0);
	close(s.fd);
	srdma_leg_shm_destroy(s.host);
	stop(&s);
	until_descriptors(before);
	assert_int_equal(rmdir(s.dir), 0);
}

static void test_request_is_answered_or_ends(void **state)
{
	(void)state;
	log_set_level(LEVEL_ERROR);
	for (int i = 0; i < REQUESTS; i++)
		assert_true(faults_each(request, &i) > 0);
}

static void test_every_function_failed(void **state)
{
	static const char *const names[] = {
		"socket",     "bind",	   "listen",	    "accept4",
		"getsockopt", "flock",	   "epoll_create1", "epoll_ctl",
		"epoll_wait", "eventfd",   "sendmsg",	    "recvmsg",
		"open",	      "getrandom", "calloc",	    NULL,
	};

	(void)state;
	faults_all(names);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_worker_starts_or_not),
		cmocka_unit_test(test_request_is_answered_or_ends),
		cmocka_unit_test(test_every_function_failed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
