/*
 * Each system call of a port fails once: when the port is created, when a leg or a
 * region is opened, and in the data path of relays over UDP and over shared
 * memory. No descriptor, file or memory is left.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "faults/faults.h"
#include "faults/transfer.h"
#include "port/shm/port_shm.h"
#include "port/udp/port_udp.h"
#include "support/descriptors.h"
#include "support/shm_leg.h"
#include "support/shm_pair.h"

/* --- creation -------------------------------------------------------------- */

static void create_udp(void *ctx, unsigned long n)
{
	char why[SRDMA_PORT_UDP_WHY_LEN] = "";
	const int before = count_descriptors();
	struct srdma_port *port;
	int r;

	faults_arm(n);
	r = srdma_port_udp_create(&port, ctx, why);
	if (!faults_disarm())
		assert_int_equal(r, 0);
	if (r)
		assert_true(r < 0 && *why);
	else
		port->ops->destroy(port);
	until_descriptors(before);
}

static void test_udp_port_is_created_or_not(void **state)
{
	char name[] = "127.0.0.1:0";

	(void)state;
	assert_true(faults_each(create_udp, name) > 5);
}

static void create_shm_wire(void *ctx, unsigned long n)
{
	const int before = count_descriptors();
	struct srdma_port *port;
	char dir[64];
	int r;

	(void)ctx;
	shm_make_dir(dir);
	faults_arm(n);
	r = srdma_port_shm_create_wire(&port, dir, "a", 0, NULL);
	if (!faults_disarm())
		assert_int_equal(r, 0);
	if (r)
		assert_true(r < 0 && *srdma_port_shm_why(r));
	else
		port->ops->destroy(port);
	until_descriptors(before);
	assert_int_equal(access(dir, W_OK), 0);
	port = shm_wire(dir, "a", 0); /* what is left is replaced */
	port->ops->destroy(port);
	assert_int_equal(rmdir(dir), 0);
}

static void test_shm_wire_is_created_or_not(void **state)
{
	(void)state;
	assert_true(faults_each(create_shm_wire, NULL) > 5);
}

/* --- legs -------------------------------------------------------------------- */

static int open_region(const struct shm_leg *f, int fd)
{
	const struct srdma_region_params params = {
		.addr = 0x10000,
		.length = 4096,
		.access = SRDMA_ACCESS_ALL,
		.fd = fd,
	};
	struct srdma_region *region;
	int r = f->port->ops->region_open(f->leg, &params, &region);

	if (!r)
		f->port->ops->region_close(region);
	return r;
}

static int open_leg(struct shm_leg *f)
{
	struct srdma_leg_params params;
	int r = srdma_port_shm_create_host(&f->port, NULL);

	if (r)
		return r;
	r = srdma_leg_shm_create(&f->host, SHM_RING);
	if (r)
		return r;
	params = shm_leg_params(f->host);
	r = f->port->ops->leg_open(f->port, &params, &f->leg, &f->answer);
	return r ? r : srdma_leg_shm_attach(f->host, f->answer.fds);
}

static void leg(void *ctx, unsigned long n)
{
	const int before = count_descriptors();
	const int fd = shm_memfd(4096, F_SEAL_SHRINK);
	struct shm_leg f = { .port = NULL };
	const char *name;
	int r;

	(void)ctx;
	faults_arm(n);
	r = open_leg(&f);
	if (!r)
		r = open_region(&f, fd);
	name = faults_disarm();
	assert_true(r <= 0);
	if (!name)
		assert_int_equal(r, 0);
	srdma_leg_shm_destroy(f.host);
	if (f.port)
		f.port->ops->destroy(f.port);
	close(fd);
	until_descriptors(before);
}

static void test_leg_is_opened_or_not(void **state)
{
	/* the fixture opens a descriptor that it keeps */
	assert_int_equal(shm_leg_setup(state), 0);
	assert_int_equal(shm_leg_teardown(state), 0);
	assert_true(faults_each(leg, NULL) > 10);
}

/* --- data -------------------------------------------------------------------- */

struct wires {
	char dir[64]; /* empty: UDP */
	struct srdma_port *a, *b;
};

static struct srdma_port *udp(void)
{
	char why[SRDMA_PORT_UDP_WHY_LEN];
	struct srdma_port *port;

	assert_int_equal(srdma_port_udp_create(&port, "127.0.0.1:0", why), 0);
	return port;
}

static void open_wires(struct wires *w, int shm)
{
	*w->dir = '\0';
	if (!shm) {
		w->a = udp();
		w->b = udp();
		return;
	}
	shm_make_dir(w->dir);
	w->a = shm_wire(w->dir, "a", 0);
	w->b = shm_wire(w->dir, "b", 0);
}

/* The port of shared memory looks at its sockets in few turns only. */
enum { TURNS = 40, TURNS_TO_CONNECT = 600 };

/* Gives both ends their keys. A call of the client fails. */
static void connect_pair(struct pair *p, const struct wires *w, unsigned long n)
{
	struct srdma_qp_keys k;

	pair_init_qp(p, 0);
	for (int side = 1; side >= 0; side--) {
		pair_keys(p, side, 0, &k);
		faults_arm(side ? 0 : n);
		if (srdma_relay_qp_keys(p->side[side].relay, p->side[side].leg,
					&k))
			assert_true(n > 0);
	}
	pair_run(p, *w->dir ? TURNS_TO_CONNECT : TURNS);
	faults_disarm();
}

static int is_connected(struct pair *p)
{
	for (int i = 0; i < 100; i++) {
		if (pair_state(p, 0, 0, NULL) == SRDMA_QP_RTS &&
		    pair_state(p, 1, 0, NULL) == SRDMA_QP_RTS)
			return 1;
		p->now += 20 * UINT64_C(1000000);
		pair_run(p, TURNS_TO_CONNECT);
	}
	return 0;
}

static void open_pair(struct pair *p, struct wires *w, int shm)
{
	pair_defaults(p);
	p->memory = TRANSFER_MEMORY;
	p->ring = 128;
	p->depth = 8;
	p->window = 32;
	open_wires(w, shm);
	pair_open_on(p, w->a, w->b);
}

static void close_pair(struct pair *p, struct wires *w)
{
	pair_close(p);
	if (*w->dir)
		assert_int_equal(rmdir(w->dir), 0);
}

/* A connection attempt that fails is repeated, or ends the QP with a reason. */
static void connecting(void *ctx, unsigned long n)
{
	const int before = count_descriptors();
	uint32_t reason;
	struct wires w;
	struct pair p;

	open_pair(&p, &w, *(int *)ctx);
	connect_pair(&p, &w, n);
	if (!is_connected(&p) && pair_state(&p, 0, 0, &reason) == SRDMA_QP_ERR)
		assert_true(reason != SRDMA_REASON_NONE);
	close_pair(&p, &w);
	until_descriptors(before);
}

static void transferring(void *ctx, unsigned long n)
{
	const int before = count_descriptors();
	struct transfer t;
	const char *name;
	struct wires w;
	struct pair p;

	open_pair(&p, &w, *(int *)ctx);
	connect_pair(&p, &w, 0);
	assert_true(is_connected(&p));
	transfer_post(&t, &p);
	faults_arm(n);
	pair_run(&p, TURNS);
	name = faults_disarm();
	transfer_finish(&t, &p, !name);
	close_pair(&p, &w);
	until_descriptors(before);
}

static void test_failed_calls_of_wires(void **state)
{
	(void)state;
	for (int shm = 0; shm < 2; shm++) {
		assert_true(faults_each(connecting, &shm) > 20);
		assert_true(faults_each(transferring, &shm) > 20);
	}
}

static void test_every_function_failed(void **state)
{
	static const char *const names[] = {
		"socket",     "bind",	      "getsockname", "setsockopt",
		"getsockopt", "sendmmsg",     "recvmmsg",    "epoll_create1",
		"epoll_ctl",  "memfd_create", "ftruncate",   "mmap",
		"fstat",      "eventfd",      "listen",	     "connect",
		"accept4",    "sendmsg",      "recvmsg",     NULL,
	};

	(void)state;
	faults_all(names);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_udp_port_is_created_or_not),
		cmocka_unit_test(test_shm_wire_is_created_or_not),
		cmocka_unit_test(test_leg_is_opened_or_not),
		cmocka_unit_test(test_failed_calls_of_wires),
		cmocka_unit_test(test_every_function_failed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
