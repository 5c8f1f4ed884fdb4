/* Two ends in one process, which call each other by RDMA-CM, for the programs of this
 * folder. */
#ifndef TESTS_E2E_VERBS_CM_ENDS_H
#define TESTS_E2E_VERBS_CM_ENDS_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

enum { WAIT_MS = 60000, DEPTH = 4, RESOLVE_MS = 1000 };

static inline struct sockaddr_in address(const char *ip, uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons(port) };

	assert_int_equal(inet_pton(AF_INET, ip, &a.sin_addr), 1);
	return a;
}

static inline struct sockaddr *any(struct sockaddr_in *a)
{
	return (struct sockaddr *)a;
}

struct ends {
	struct rdma_event_channel *server, *client;
	struct rdma_cm_id *listener, *accepted, *caller;
	uint16_t port;
};

static inline void await_event_for(const struct rdma_event_channel *c, int ms)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN };

	assert_int_equal(poll(&p, 1, ms), 1);
}

static inline void await_event(const struct rdma_event_channel *c)
{
	await_event_for(c, WAIT_MS);
}

static inline struct rdma_cm_event *
next(struct rdma_event_channel *c, enum rdma_cm_event_type type, int status)
{
	struct rdma_cm_event *e;

	await_event(c);
	assert_int_equal(rdma_get_cm_event(c, &e), 0);
	assert_string_equal(rdma_event_str(e->event), rdma_event_str(type));
	assert_int_equal(e->status, status);
	return e;
}

static inline void expect(struct rdma_event_channel *c,
			  enum rdma_cm_event_type type, int status)
{
	assert_int_equal(rdma_ack_cm_event(next(c, type, status)), 0);
}

/* The event channel is empty. */
static inline void expect_none(const struct rdma_event_channel *c)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN };

	assert_int_equal(poll(&p, 1, 0), 0);
}

static inline void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = DEPTH,
			 .max_recv_wr = DEPTH,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = id->qp_type,
	};

	assert_int_equal(rdma_create_qp(id, NULL, &init), 0);
	assert_non_null(id->qp);
	assert_non_null(id->send_cq_channel);
}

static inline void route(struct rdma_cm_id *id, struct rdma_event_channel *c,
			 const char *ip, uint16_t port)
{
	struct sockaddr_in to = address(ip, port);

	assert_int_equal(rdma_resolve_addr(id, NULL, any(&to), RESOLVE_MS), 0);
	expect(c, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	assert_non_null(id->verbs);
	assert_int_equal(rdma_resolve_route(id, RESOLVE_MS), 0);
	expect(c, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
}

static inline void open_ends_in(struct ends *e, enum rdma_port_space ps,
				int backlog)
{
	struct sockaddr_in at = address("0.0.0.0", 0);

	memset(e, 0, sizeof(*e));
	e->server = rdma_create_event_channel();
	e->client = rdma_create_event_channel();
	assert_int_equal(rdma_create_id(e->server, &e->listener, e, ps), 0);
	assert_int_equal(rdma_bind_addr(e->listener, any(&at)), 0);
	assert_int_equal(rdma_listen(e->listener, backlog), 0);
	e->port = ntohs(rdma_get_src_port(e->listener));
	assert_int_not_equal(e->port, 0);
	assert_int_equal(rdma_create_id(e->client, &e->caller, e, ps), 0);
	route(e->caller, e->client, "127.0.0.1", e->port);
	assert_int_equal(ntohs(rdma_get_dst_port(e->caller)), e->port);
}

static inline void open_ends_of(struct ends *e, int backlog)
{
	open_ends_in(e, RDMA_PS_TCP, backlog);
}

static inline void open_ends(struct ends *e)
{
	open_ends_of(e, 0);
}

static inline void close_ends(struct ends *e)
{
	struct rdma_cm_id *ids[] = { e->accepted, e->caller, e->listener };

	for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++)
		if (ids[i]) {
			rdma_destroy_qp(ids[i]);
			assert_int_equal(rdma_destroy_id(ids[i]), 0);
		}
	rdma_destroy_event_channel(e->server);
	rdma_destroy_event_channel(e->client);
}

/* The caller calls with these data; the other end sees the call. */
static inline void call(struct ends *e, const char *data, uint32_t qp_num)
{
	struct rdma_conn_param p = { .private_data = data,
				     .private_data_len = (uint8_t)strlen(data),
				     .responder_resources = 3,
				     .initiator_depth = 5,
				     .retry_count = 6,
				     .rnr_retry_count = 4,
				     .qp_num = qp_num };
	struct rdma_cm_event *event;

	assert_int_equal(rdma_connect(e->caller, &p), 0);
	event = next(e->server, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	assert_ptr_equal(event->listen_id, e->listener);
	assert_int_equal(event->param.conn.private_data_len, strlen(data));
	if (*data)
		assert_memory_equal(event->param.conn.private_data, data,
				    strlen(data));
	assert_int_equal(event->param.conn.responder_resources, 5);
	assert_int_equal(event->param.conn.initiator_depth, 3);
	assert_int_equal(event->param.conn.rnr_retry_count, 4);
	e->accepted = event->id;
	assert_ptr_equal(e->accepted->context, e);
	assert_int_equal(rdma_get_dst_port(e->accepted),
			 rdma_get_src_port(e->caller));
	assert_int_equal(rdma_ack_cm_event(event), 0);
}

static inline void establish(struct ends *e, const char *data)
{
	struct rdma_conn_param p = { .private_data = data,
				     .private_data_len =
					     (uint8_t)strlen(data) };
	struct rdma_cm_event *event;

	make_qp(e->accepted);
	assert_int_equal(rdma_accept(e->accepted, &p), 0);
	event = next(e->client, RDMA_CM_EVENT_ESTABLISHED, 0);
	assert_int_equal(event->param.conn.private_data_len, strlen(data));
	assert_memory_equal(event->param.conn.private_data, data, strlen(data));
	assert_int_equal(event->param.conn.qp_num, e->accepted->qp->qp_num);
	assert_int_equal(rdma_ack_cm_event(event), 0);
	expect(e->server, RDMA_CM_EVENT_ESTABLISHED, 0);
}

/* The attributes of the id take a QP of the program to a state. */
static inline void move(struct rdma_cm_id *id, struct ibv_qp *qp,
			enum ibv_qp_state to)
{
	struct ibv_qp_attr a = { .qp_state = to };
	int mask;

	assert_int_equal(rdma_init_qp_attr(id, &a, &mask), 0);
	assert_int_equal(ibv_modify_qp(qp, &a, mask), 0);
}

/* Two ends, of which the caller with a QP has called. */
static inline void open_called(struct ends *e)
{
	open_ends(e);
	make_qp(e->caller);
	call(e, "", 0);
}

/* The caller leaves. */
static inline void end_caller(struct ends *e)
{
	rdma_destroy_qp(e->caller);
	assert_int_equal(rdma_destroy_id(e->caller), 0);
	e->caller = NULL;
}

/* The other end leaves without an answer. */
static inline void end_accepted(struct ends *e)
{
	assert_int_equal(rdma_destroy_id(e->accepted), 0);
	e->accepted = NULL;
}

static inline void stop_listening(struct ends *e)
{
	assert_int_equal(rdma_destroy_id(e->listener), 0);
	e->listener = NULL;
}

/* A call that waits, to a port that no program serves: the status is that of the
 * event. */
static inline void nobody_listens_to_a_call_that_waits(const struct ends *e,
						       int status)
{
	struct sockaddr_in to = address("127.0.0.1", e->port);
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(NULL, &id, NULL, e->caller->ps), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, any(&to), RESOLVE_MS), 0);
	assert_int_equal(rdma_resolve_route(id, RESOLVE_MS), 0);
	make_qp(id);
	assert_int_equal(rdma_connect(id, NULL), -1);
	assert_int_equal(errno, ECONNREFUSED);
	assert_int_equal(id->event->status, status);
	rdma_destroy_qp(id);
	assert_int_equal(rdma_destroy_id(id), 0);
}

/* A call to a GID that run.toml has, and the agent's policy has not. */
static inline void call_of_a_peer_without_agent(enum rdma_port_space ps)
{
	struct rdma_event_channel *c = rdma_create_event_channel();
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(c, &id, NULL, ps), 0);
	route(id, c, "127.0.0.3", 7000);
	make_qp(id);
	assert_int_equal(rdma_connect(id, NULL), 0);
	expect(c, RDMA_CM_EVENT_CONNECT_ERROR, -EPERM);
	rdma_destroy_qp(id);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(c);
}

/* A call of an id without a QP, which the program does not answer. */
static inline struct rdma_cm_id *caller_of(struct ends *e, const char *data)
{
	struct rdma_conn_param p = { .private_data = data,
				     .private_data_len = (uint8_t)strlen(data),
				     .qp_num = 1 };
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(e->client, &id, NULL, RDMA_PS_TCP), 0);
	route(id, e->client, "127.0.0.1", e->port);
	assert_int_equal(rdma_connect(id, &p), 0);
	return id;
}

#endif
