/*
 * Each call of the verbs port to libibverbs, librdmacm and the allocator fails
 * once, on a simulated machine: when the port is created, when it accepts a leg or
 * a worker, and when it connects. The peer is refused or the connection ends; the
 * next one is accepted.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "faults/faults.h"
#include "support/descriptors.h"
#include "support/verbs_port.h"

#define LEG  SRDMA_PORT_VERBS_HOST
#define WIRE SRDMA_PORT_VERBS_WIRE

/* --- creation ---------------------------------------------------------------- */

static void create(void *ctx, unsigned long n)
{
	const enum srdma_port_verbs_kind kind =
		*(enum srdma_port_verbs_kind *)ctx;
	char why[SRDMA_PORT_VERBS_WHY_LEN] = "";
	const struct srdma_port_verbs_params params = {
		.device = "fake0",
		.listen = kind == WIRE ? "10.0.0.1:0" : NULL,
		.kind = kind,
		.buffers = VERBS_PORT_BUFFERS,
		.receives = VERBS_PORT_SENDS,
		.sends = VERBS_PORT_SENDS,
		.why = why,
	};
	const int before = count_descriptors();
	struct srdma_port *port;
	const char *name;
	int r;

	fake_verbs_reset();
	faults_arm(n);
	r = srdma_port_verbs_create(&port, &params);
	name = faults_disarm();
	if (r && !name)
		fail_msg("no fault, and the result is %d: %s", r, why);
	/* without memory for the port there is none for a text */
	if (r)
		assert_true(r == -ENOMEM || (r < 0 && *why));
	else
		port->ops->destroy(port);
	assert_int_equal(count_descriptors(), before);
}

static void test_port_is_created_or_not(void **state)
{
	enum srdma_port_verbs_kind kind;

	(void)state;
	for (kind = LEG; kind <= WIRE; kind++)
		assert_true(faults_each(create, &kind) > 10);
}

/* --- connections -------------------------------------------------------------- */

/* The last event of the port that is not 0, of a few looks at the CM. */
static int event_of(struct srdma_port *port)
{
	int kind = 0;

	for (int i = 0; i < 4; i++) {
		struct srdma_event ev = verbs_port_next(port);

		if (ev.kind == SRDMA_EV_RECV)
			port->ops->buf_put(ev.buf);
		if (ev.kind)
			kind = (int)ev.kind;
	}
	return kind;
}

/* A peer connects, and its connection is established if the port accepted it. */
static int meet(struct srdma_port *port, enum srdma_port_verbs_kind kind,
		unsigned long n)
{
	const struct fake_verbs_request r = verbs_port_request(kind);
	const uint32_t accepted = fake_verbs.accepted;
	int event;

	fake_verbs_request(&r);
	faults_arm(n);
	event = event_of(port);
	if (fake_verbs.accepted > accepted) {
		fake_verbs_event(fake_verbs.id, RDMA_CM_EVENT_ESTABLISHED);
		event = event_of(port);
	}
	faults_disarm();
	return event;
}

static void accept_worker(void *ctx, unsigned long n)
{
	const int before = count_descriptors();
	struct srdma_port *port;

	(void)ctx;
	fake_verbs_reset();
	port = verbs_port_open(WIRE, "10.0.0.1:0");
	meet(port, WIRE, n);
	assert_int_equal(meet(port, WIRE, 0), SRDMA_EV_ACCEPT);
	port->ops->destroy(port);
	assert_int_equal(count_descriptors(), before);
}

static void accept_leg(void *ctx, unsigned long n)
{
	const int before = count_descriptors();
	struct srdma_port *port;
	int event;

	(void)ctx;
	fake_verbs_reset();
	port = verbs_port_open(LEG, NULL);
	verbs_port_leg(port);
	event = meet(port, LEG, n);
	assert_true(event == 0 || event == SRDMA_EV_UP ||
		    event == SRDMA_EV_DOWN);
	port->ops->destroy(port);
	assert_int_equal(count_descriptors(), before);
}

static void test_failed_calls_of_a_listener(void **state)
{
	(void)state;
	assert_true(faults_each(accept_worker, NULL) > 8);
	assert_true(faults_each(accept_leg, NULL) > 4);
}

/* The answers of the CM to a connection that the port opens. */
static const enum rdma_cm_event_type answers[] = {
	RDMA_CM_EVENT_ADDR_RESOLVED,
	RDMA_CM_EVENT_ROUTE_RESOLVED,
	RDMA_CM_EVENT_CONNECT_RESPONSE,
};

static int call_peer(struct srdma_port *port, unsigned long n)
{
	struct srdma_conn *conn;
	int event = 0;

	faults_arm(n);
	if (port->ops->connect(port, "10.0.0.2:7", &conn)) {
		faults_disarm();
		return SRDMA_EV_DOWN;
	}
	for (unsigned i = 0; i < 3 && event != SRDMA_EV_DOWN; i++) {
		fake_verbs_event(fake_verbs.id, answers[i]);
		event = event_of(port);
	}
	faults_disarm();
	port->ops->close(conn);
	return event;
}

static void connect_worker(void *ctx, unsigned long n)
{
	const int before = count_descriptors();
	struct srdma_port *port;
	int event;

	(void)ctx;
	fake_verbs_reset();
	port = verbs_port_open(WIRE, "10.0.0.1:0");
	event = call_peer(port, n);
	assert_true(event == SRDMA_EV_UP || event == SRDMA_EV_DOWN || n);
	assert_int_equal(call_peer(port, 0), SRDMA_EV_UP);
	port->ops->destroy(port);
	assert_int_equal(count_descriptors(), before);
}

static void test_failed_calls_of_a_client(void **state)
{
	(void)state;
	assert_true(faults_each(connect_worker, NULL) > 8);
}

static void test_every_function_failed(void **state)
{
	static const char *const names[] = {
		"ibv_get_device_list",
		"ibv_open_device",
		"ibv_query_device",
		"_ibv_query_gid_table",
		"ibv_create_comp_channel",
		"ibv_alloc_pd",
		"ibv_reg_mr",
		"ibv_create_cq",
		"ibv_create_qp",
		"ibv_modify_qp",
		"ibv_get_cq_event",
		"rdma_create_event_channel",
		"rdma_create_id",
		"rdma_bind_addr",
		"rdma_listen",
		"rdma_get_cm_event",
		"rdma_accept",
		"rdma_connect",
		"rdma_establish",
		"rdma_init_qp_attr",
		"rdma_resolve_addr",
		"rdma_resolve_route",
		NULL,
	};

	(void)state;
	faults_all(names);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_port_is_created_or_not),
		cmocka_unit_test(test_failed_calls_of_a_listener),
		cmocka_unit_test(test_failed_calls_of_a_client),
		cmocka_unit_test(test_every_function_failed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
