/*
 * Functions of librdmacm as a program sees them (docs/run.md 5): calls of this
 * process to itself, and what is refused. tests/e2e/test_run_cm.py starts it by
 * `srdma run` on the host with the GID 127.0.0.1.
 */
#include "cm_ends.h"

#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "support/descriptors.h"

/* --- connections ------------------------------------------------------------------ */

static void test_connection(void **state)
{
	struct ends e;

	(void)state;
	open_ends(&e);
	make_qp(e.caller);
	call(&e, "who is there?", 0);
	establish(&e, "it is me");
	assert_int_equal(rdma_disconnect(e.caller), 0);
	assert_int_equal(rdma_disconnect(e.caller), -1);
	assert_int_equal(errno, EINVAL);
	expect(e.server, RDMA_CM_EVENT_DISCONNECTED, 0);
	expect_none(e.client);
	assert_int_equal(rdma_disconnect(e.accepted), 0);
	assert_int_equal(rdma_disconnect(e.accepted), -1);
	assert_int_equal(errno, EINVAL);
	expect(e.client, RDMA_CM_EVENT_DISCONNECTED, 0);
	expect_none(e.server);
	close_ends(&e);
}

static void test_ends_that_disconnect_at_once(void **state)
{
	struct ends e;

	(void)state;
	open_called(&e);
	establish(&e, "");
	assert_int_equal(rdma_disconnect(e.caller), 0);
	assert_int_equal(rdma_disconnect(e.accepted), 0);
	expect(e.client, RDMA_CM_EVENT_DISCONNECTED, 0);
	expect(e.server, RDMA_CM_EVENT_DISCONNECTED, 0);
	close_ends(&e);
}

static void test_end_of_an_id_ends_a_departure(void **state)
{
	struct ends e;

	(void)state;
	open_called(&e);
	establish(&e, "");
	assert_int_equal(rdma_disconnect(e.accepted), 0);
	expect(e.client, RDMA_CM_EVENT_DISCONNECTED, 0);
	end_caller(&e);
	expect(e.server, RDMA_CM_EVENT_DISCONNECTED, 0);
	close_ends(&e);
}

static void test_caller_that_disconnects_at_once(void **state)
{
	struct ends e;

	(void)state;
	open_called(&e);
	make_qp(e.accepted);
	assert_int_equal(rdma_accept(e.accepted, NULL), 0);
	expect(e.client, RDMA_CM_EVENT_ESTABLISHED, 0);
	assert_int_equal(rdma_disconnect(e.caller), 0);
	expect(e.server, RDMA_CM_EVENT_ESTABLISHED, 0);
	expect(e.server, RDMA_CM_EVENT_DISCONNECTED, 0);
	close_ends(&e);
}

static void test_end_of_an_id_disconnects_the_peer(void **state)
{
	struct ends e;

	(void)state;
	open_called(&e);
	establish(&e, "");
	end_caller(&e);
	expect(e.server, RDMA_CM_EVENT_DISCONNECTED, 0);
	close_ends(&e);
}

static void test_rejection(void **state)
{
	struct rdma_cm_event *event;
	struct ends e;

	(void)state;
	open_ends(&e);
	make_qp(e.caller);
	call(&e, "please", 0);
	assert_int_equal(rdma_reject(e.accepted, "no", 2), 0);
	event = next(e.client, RDMA_CM_EVENT_REJECTED, 28);
	assert_int_equal(event->param.conn.private_data_len, 2);
	assert_memory_equal(event->param.conn.private_data, "no", 2);
	rdma_ack_cm_event(event);
	assert_int_equal(rdma_accept(e.accepted, NULL), -1);
	assert_int_equal(errno, EINVAL);
	close_ends(&e);
}

static void test_request_whose_id_ends_is_rejected(void **state)
{
	struct ends e;

	(void)state;
	open_called(&e);
	end_accepted(&e);
	expect(e.client, RDMA_CM_EVENT_REJECTED, 28);
	close_ends(&e);
}

static void test_listener_may_end_before_the_answer(void **state)
{
	struct ends e;

	(void)state;
	open_called(&e);
	stop_listening(&e);
	establish(&e, "");
	close_ends(&e);
}

static void test_caller_that_leaves(void **state)
{
	struct ends e;

	(void)state;
	open_called(&e);
	make_qp(e.accepted);
	end_caller(&e);
	/* It is noticed by the answer, or after it. */
	if (rdma_accept(e.accepted, NULL))
		assert_int_equal(errno, ECONNRESET);
	else
		expect(e.server, RDMA_CM_EVENT_CONNECT_ERROR, -ECONNRESET);
	close_ends(&e);
}

/* A program that makes and connects its QP by itself. */
static struct ibv_qp *own_qp(struct rdma_cm_id *id, struct ibv_cq **cq)
{
	struct ibv_qp_init_attr init = { .cap = { .max_send_wr = DEPTH,
						  .max_recv_wr = DEPTH,
						  .max_send_sge = 1,
						  .max_recv_sge = 1 },
					 .qp_type = IBV_QPT_RC };

	*cq = ibv_create_cq(id->verbs, DEPTH, NULL, NULL, 0);
	init.send_cq = init.recv_cq = *cq;
	return ibv_create_qp(id->pd, &init);
}

static void test_qps_of_the_program(void **state)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR };
	struct rdma_conn_param p = { .responder_resources = 1 };
	struct rdma_cm_event *event;
	struct ibv_qp *qp[2];
	struct ibv_cq *cq[2];
	struct ends e;
	int mask;

	(void)state;
	open_ends(&e);
	assert_int_equal(rdma_connect(e.caller, NULL), -1); /* no QP */
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_connect(e.caller, &p), -1); /* no QPN */
	assert_int_equal(errno, EINVAL);
	qp[0] = own_qp(e.caller, &cq[0]);
	assert_int_equal(rdma_init_qp_attr(e.caller, &a, &mask), -1);
	move(e.caller, qp[0], IBV_QPS_INIT);
	call(&e, "", qp[0]->qp_num);
	qp[1] = own_qp(e.accepted, &cq[1]);
	for (int to = IBV_QPS_INIT; to <= IBV_QPS_RTS; to++)
		move(e.accepted, qp[1], (enum ibv_qp_state)to);
	p.qp_num = qp[1]->qp_num;
	assert_int_equal(rdma_establish(e.caller), -1); /* no answer */
	assert_int_equal(rdma_accept(e.accepted, &p), 0);
	event = next(e.client, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	assert_int_equal(event->param.conn.qp_num, qp[1]->qp_num);
	rdma_ack_cm_event(event);
	move(e.caller, qp[0], IBV_QPS_RTR);
	move(e.caller, qp[0], IBV_QPS_RTS);
	assert_int_equal(rdma_establish(e.caller), 0);
	expect(e.server, RDMA_CM_EVENT_ESTABLISHED, 0);
	assert_int_equal(rdma_disconnect(e.accepted), 0);
	expect(e.client, RDMA_CM_EVENT_DISCONNECTED, 0);
	assert_int_equal(rdma_disconnect(e.caller), 0);
	expect(e.server, RDMA_CM_EVENT_DISCONNECTED, 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ibv_destroy_qp(qp[i]), 0);
		assert_int_equal(ibv_destroy_cq(cq[i]), 0);
	}
	close_ends(&e);
}

/* A connection between QPNs of the program. */
static void establish_qpns(struct ends *e, uint32_t caller, uint32_t accepted)
{
	struct rdma_conn_param p = { .qp_num = accepted };

	open_ends(e);
	call(e, "", caller);
	assert_int_equal(rdma_accept(e->accepted, &p), 0);
	expect(e->client, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	assert_int_equal(rdma_establish(e->caller), 0);
	expect(e->server, RDMA_CM_EVENT_ESTABLISHED, 0);
}

/* A program may connect its QPs by the private data, and name a QP that is never
 * connected, as UCX does with a UD QP, or none. */
static void test_qpns_without_a_connection(void **state)
{
	struct ibv_qp_init_attr init = { .cap = { 1, 1, 1, 1, 0 },
					 .qp_type = IBV_QPT_UD };
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ends e;

	(void)state;
	establish_qpns(&e, 1, 1);
	cq = ibv_create_cq(e.caller->verbs, 2, NULL, NULL, 0);
	init.send_cq = init.recv_cq = cq;
	qp = ibv_create_qp(e.caller->pd, &init);
	assert_non_null(qp);
	assert_int_equal(rdma_disconnect(e.accepted), 0);
	expect(e.client, RDMA_CM_EVENT_DISCONNECTED, 0);
	assert_int_equal(rdma_disconnect(e.caller), 0);
	expect(e.server, RDMA_CM_EVENT_DISCONNECTED, 0);
	close_ends(&e);
	establish_qpns(&e, qp->qp_num, qp->qp_num);
	end_caller(&e);
	expect(e.server, RDMA_CM_EVENT_DISCONNECTED, 0);
	close_ends(&e);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void test_migration(void **state)
{
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct pollfd p = { .events = POLLIN };
	struct ends e;

	(void)state;
	open_called(&e);
	assert_int_equal(rdma_reject(e.accepted, NULL, 0), 0);
	/* The event moves too. */
	await_event(e.client);
	p.fd = e.client->fd;
	assert_int_equal(rdma_migrate_id(e.caller, other), 0);
	assert_int_equal(poll(&p, 1, 0), 0);
	assert_ptr_equal(e.caller->channel, other);
	expect(other, RDMA_CM_EVENT_REJECTED, 28);
	end_caller(&e);
	close_ends(&e);
	rdma_destroy_event_channel(other);
}

/* A thread that waits for events has read the count of one and has not taken it yet,
 * as this test does. */
static void test_events_that_stay_are_not_counted_again(void **state)
{
	struct rdma_event_channel *from = rdma_create_event_channel();
	struct rdma_event_channel *to = rdma_create_event_channel();
	struct sockaddr_in at = address("127.0.0.1", 7000);
	struct pollfd p = { .fd = from->fd, .events = POLLIN };
	struct rdma_cm_id *ids[2];
	uint64_t n;

	(void)state;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(
			rdma_create_id(from, &ids[i], NULL, RDMA_PS_TCP), 0);
		assert_int_equal(
			rdma_resolve_addr(ids[i], NULL, any(&at), RESOLVE_MS),
			0);
	}
	assert_int_equal(read(from->fd, &n, sizeof(n)), sizeof(n));
	assert_int_equal(rdma_migrate_id(ids[0], to), 0);
	assert_int_equal(poll(&p, 1, 0), 0);
	assert_int_equal(write(from->fd, &n, sizeof(n)), sizeof(n));
	expect(from, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	expect(to, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(rdma_destroy_id(ids[i]), 0);
	rdma_destroy_event_channel(from);
	rdma_destroy_event_channel(to);
}

/* More retries than there can be are as many as there can be. */
static void test_retries(void **state)
{
	struct rdma_conn_param p = { .retry_count = 8, .rnr_retry_count = 255 };
	struct rdma_cm_event *event;
	struct ends e;

	(void)state;
	open_ends(&e);
	make_qp(e.caller);
	assert_int_equal(rdma_connect(e.caller, &p), 0);
	event = next(e.server, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	assert_int_equal(event->param.conn.retry_count, 7);
	assert_int_equal(event->param.conn.rnr_retry_count, 7);
	e.accepted = event->id;
	rdma_ack_cm_event(event);
	close_ends(&e);
}

static void test_migration_of_a_listener(void **state)
{
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct ends e;

	(void)state;
	open_ends(&e);
	make_qp(e.caller);
	assert_int_equal(rdma_connect(e.caller, NULL), 0);
	await_event(e.server);
	assert_int_equal(rdma_migrate_id(e.listener, other), 0);
	rdma_destroy_event_channel(e.server);
	e.server = other;
	event = next(other, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	e.accepted = event->id;
	assert_ptr_equal(e.accepted->channel, other);
	rdma_ack_cm_event(event);
	establish(&e, "");
	close_ends(&e);
}

/* --- calls that wait -------------------------------------------------------------- */

enum { ROUNDS = 8 };

static void test_backlog(void **state)
{
	struct rdma_cm_id *first, *second;
	struct rdma_cm_event *event;
	struct ends e;

	(void)state;
	open_ends_of(&e, 1);
	first = caller_of(&e, "");
	await_event(e.server);
	second = caller_of(&e, "");
	expect(e.client, RDMA_CM_EVENT_REJECTED, 28);
	assert_int_equal(rdma_destroy_id(second), 0);
	event = next(e.server, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	e.accepted = event->id;
	rdma_ack_cm_event(event);
	second = caller_of(&e, "");
	await_event(e.server);
	assert_int_equal(rdma_destroy_id(second), 0);
	assert_int_equal(rdma_destroy_id(first), 0);
	close_ends(&e);
}

/* The program takes no event while callers call and leave: at most one of these
 * events stays. Each end of a talk has a descriptor. */
static void test_callers_that_leave_a_queue(void **state)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	int left = -1, here;
	struct ends e;

	(void)state;
	open_ends(&e);
	here = count_descriptors();
	for (int i = 0; i < ROUNDS; i++) {
		id = caller_of(&e, "");
		await_event(e.server);
		until_descriptors(here + 2);
		assert_int_equal(rdma_destroy_id(id), 0);
		until_descriptors(here);
	}
	id = caller_of(&e, "here");
	until_descriptors(here + 2);
	do {
		if (e.accepted)
			assert_int_equal(rdma_destroy_id(e.accepted), 0);
		event = next(e.server, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
		e.accepted = event->id;
		here = event->param.conn.private_data_len;
		rdma_ack_cm_event(event);
		left++;
	} while (!here);
	assert_in_range(left, 0, 1);
	assert_int_equal(rdma_destroy_id(id), 0);
	close_ends(&e);
}

/* --- refusals ------------------------------------------------------------------------- */

static void test_nobody_listens(void **state)
{
	struct ends e;

	(void)state;
	open_ends(&e);
	make_qp(e.caller);
	stop_listening(&e);
	assert_int_equal(rdma_connect(e.caller, NULL), 0);
	expect(e.client, RDMA_CM_EVENT_REJECTED, 8);
	close_ends(&e);
}

static void test_nobody_listens_to_a_call_that_waits(void **state)
{
	struct ends e;

	(void)state;
	open_ends(&e);
	stop_listening(&e);
	nobody_listens_to_a_call_that_waits(&e, 8);
	close_ends(&e);
}

static void test_port_in_use(void **state)
{
	struct rdma_cm_id *second;
	struct sockaddr_in at;
	struct ends e;

	(void)state;
	open_ends(&e);
	at = address("127.0.0.1", e.port);
	assert_int_equal(rdma_create_id(e.server, &second, NULL, RDMA_PS_TCP),
			 0);
	assert_int_equal(rdma_bind_addr(second, any(&at)), 0);
	assert_non_null(second->verbs);
	assert_int_equal(rdma_listen(second, 1), -1);
	assert_int_equal(errno, EADDRINUSE);
	assert_int_equal(rdma_destroy_id(second), 0);
	close_ends(&e);
}

/* The agent chooses a port that is free, whatever the library told before. */
static void test_any_port_of_an_address(void **state)
{
	struct rdma_event_channel *c = rdma_create_event_channel();
	struct sockaddr_in at = address("127.0.0.1", 0);
	struct rdma_cm_id *ids[2];

	(void)state;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(rdma_create_id(c, &ids[i], NULL, RDMA_PS_TCP),
				 0);
		assert_int_equal(rdma_bind_addr(ids[i], any(&at)), 0);
		at.sin_port = rdma_get_src_port(ids[0]);
	}
	assert_int_equal(rdma_listen(ids[1], 1), 0);
	assert_int_equal(rdma_listen(ids[0], 1), 0);
	assert_int_equal(rdma_get_src_port(ids[1]), at.sin_port);
	assert_int_not_equal(rdma_get_src_port(ids[0]), 0);
	assert_int_not_equal(rdma_get_src_port(ids[0]), at.sin_port);
	for (int i = 0; i < 2; i++)
		assert_int_equal(rdma_destroy_id(ids[i]), 0);
	rdma_destroy_event_channel(c);
}

static void refused_address(const char *ip, int status)
{
	struct rdma_event_channel *c = rdma_create_event_channel();
	struct sockaddr_in to = address(ip, 7000);
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(c, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, any(&to), RESOLVE_MS), 0);
	expect(c, RDMA_CM_EVENT_ADDR_ERROR, status);
	assert_int_equal(rdma_resolve_route(id, RESOLVE_MS), -1);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(c);
}

static void test_addresses(void **state)
{
	struct rdma_event_channel *c = rdma_create_event_channel();
	struct sockaddr_in other = address("127.0.0.9", 0);
	struct sockaddr_in own = address("127.0.0.1", 0);
	struct sockaddr wrong = { .sa_family = AF_UNIX };
	struct rdma_cm_id *id;

	(void)state;
	refused_address("10.1.1.1", -EACCES); /* run.toml has it not */
	assert_int_equal(rdma_create_id(c, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(id, any(&other)), -1);
	assert_int_equal(errno, ENODEV);
	assert_int_equal(rdma_bind_addr(id, &wrong), -1);
	assert_int_equal(errno, EAFNOSUPPORT);
	assert_int_equal(rdma_bind_addr(id, any(&own)), 0);
	assert_int_equal(rdma_bind_addr(id, any(&own)), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(c);
}

static void test_no_address(void **state)
{
	struct rdma_event_channel *c = rdma_create_event_channel();
	struct rdma_addrinfo nowhere = { .ai_qp_type = IBV_QPT_RC,
					 .ai_port_space = RDMA_PS_TCP };
	struct rdma_cm_id *id, *ep;

	(void)state;
	assert_int_equal(rdma_create_id(c, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(id, NULL), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_resolve_addr(id, NULL, NULL, RESOLVE_MS), -1);
	assert_int_equal(errno, EINVAL);
	for (int flags = 0; flags <= RAI_PASSIVE; flags += RAI_PASSIVE) {
		nowhere.ai_flags = flags;
		errno = 0;
		assert_int_equal(rdma_create_ep(&ep, &nowhere, NULL, NULL), -1);
		assert_int_equal(errno, EINVAL);
	}
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(c);
}

/* Programs that look for the device of this host bind to it. */
static void test_localhost_is_the_own_gid(void **state)
{
	struct rdma_event_channel *c = rdma_create_event_channel();
	struct sockaddr_in6 in = { .sin6_family = AF_INET6,
				   .sin6_addr = in6addr_loopback,
				   .sin6_port = htons(7001) };
	const struct sockaddr_in own = address("127.0.0.1", 7001);
	const struct sockaddr_in *found;
	struct rdma_cm_id *id;

	(void)state;
	assert_int_equal(rdma_create_id(c, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&in), 0);
	found = (const struct sockaddr_in *)rdma_get_local_addr(id);
	assert_int_equal(found->sin_family, AF_INET);
	assert_int_equal(found->sin_addr.s_addr, own.sin_addr.s_addr);
	assert_int_equal(found->sin_port, own.sin_port);
	assert_non_null(id->verbs);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(c);
}

static void test_peer_without_agent(void **state)
{
	(void)state;
	call_of_a_peer_without_agent(RDMA_PS_TCP);
}

static void test_parameters(void **state)
{
	static const char data[256];
	struct rdma_conn_param p = { .private_data = data,
				     .private_data_len = 57 };
	struct ends e;

	(void)state;
	open_ends(&e);
	make_qp(e.caller);
	assert_int_equal(rdma_connect(e.caller, &p), -1);
	assert_int_equal(errno, EINVAL);
	p.private_data_len = 0;
	p.responder_resources = 17;
	assert_int_equal(rdma_connect(e.caller, &p), -1);
	p.responder_resources = 0;
	p.initiator_depth = 17;
	assert_int_equal(rdma_connect(e.caller, &p), -1);
	call(&e, "", 0);
	assert_int_equal(rdma_reject(e.accepted, data, 149), -1);
	assert_int_equal(errno, EINVAL);
	p = (struct rdma_conn_param){ .private_data = data,
				      .private_data_len = 197 };
	make_qp(e.accepted);
	assert_int_equal(rdma_accept(e.accepted, &p), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_accept(e.caller, NULL), -1);
	assert_int_equal(rdma_connect(e.listener, NULL), -1);
	assert_int_equal(rdma_listen(e.caller, 1), -1);
	assert_int_equal(rdma_disconnect(e.listener), -1);
	close_ends(&e);
}

static void test_channel_that_does_not_wait(void **state)
{
	struct rdma_event_channel *c = rdma_create_event_channel();
	struct rdma_cm_event *event;

	(void)state;
	assert_int_equal(fcntl(c->fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(rdma_get_cm_event(c, &event), -1);
	assert_int_equal(errno, EAGAIN);
	rdma_destroy_event_channel(c);
}

/* The library cannot take an event back from what a program has put in place of
 * the descriptor. */
static void test_descriptor_that_is_not_readable(void **state)
{
	const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	struct rdma_event_channel *c = rdma_create_event_channel();
	struct sockaddr_in to = address("127.0.0.1", 7000);
	struct rdma_cm_id *id;

	(void)state;
	assert_int_equal(rdma_create_id(c, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, any(&to), RESOLVE_MS), 0);
	assert_true(null >= 0);
	assert_int_equal(dup2(null, c->fd), c->fd);
	close(null);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(c);
}

static void test_options(void **state)
{
	struct rdma_event_channel *c = rdma_create_event_channel();
	uint8_t tos = 0;
	int one = 1;
	struct rdma_cm_id *id;

	(void)state;
	assert_int_equal(rdma_create_id(c, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS,
					 &tos, 1),
			 0);
	assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID,
					 RDMA_OPTION_ID_REUSEADDR, &one,
					 sizeof(one)),
			 0);
	assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID,
					 RDMA_OPTION_ID_REUSEADDR, &one, 1),
			 -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_set_option(id, RDMA_OPTION_IB,
					 RDMA_OPTION_IB_PATH, &one, 1),
			 -1);
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(c);
}

static int set_timeout(struct rdma_cm_id *id, uint8_t timeout)
{
	return rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
			       &timeout, sizeof(timeout));
}

static void has_timeout(struct ibv_qp *qp, int timeout)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_TIMEOUT, &init), 0);
	assert_int_equal(attr.timeout, timeout);
}

static void test_timeout(void **state)
{
	struct rdma_cm_id *ud;
	struct ends e;

	(void)state;
	open_called(&e);
	assert_int_equal(set_timeout(e.accepted, 32), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(set_timeout(e.accepted, 31), 0);
	establish(&e, "");
	has_timeout(e.accepted->qp, 31);
	has_timeout(e.caller->qp, 18);
	assert_int_equal(rdma_create_id(e.server, &ud, NULL, RDMA_PS_UDP), 0);
	assert_int_equal(set_timeout(ud, 18), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_destroy_id(ud), 0);
	close_ends(&e);
}

static void test_what_is_not_there(void **state)
{
	struct rdma_event_channel *c = rdma_create_event_channel();
	static const struct {
		int type, space;
	} wrong[] = { { IBV_QPT_RC, RDMA_PS_UDP },
		      { IBV_QPT_UD, RDMA_PS_TCP },
		      { IBV_QPT_UD, RDMA_PS_IPOIB },
		      { IBV_QPT_XRC_SEND, RDMA_PS_IB } };
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST }, *found;
	struct rdma_cm_id *id;

	(void)state;
	assert_int_equal(rdma_create_id(c, &id, NULL, RDMA_PS_IPOIB), -1);
	assert_int_equal(errno, EOPNOTSUPP);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		hints.ai_qp_type = wrong[i].type;
		hints.ai_port_space = wrong[i].space;
		errno = 0;
		assert_int_equal(
			rdma_getaddrinfo("127.0.0.1", "7000", &hints, &found),
			-1);
		assert_int_equal(errno, EOPNOTSUPP);
		errno = 0;
		assert_int_equal(rdma_create_ep(&id, &hints, NULL, NULL), -1);
		assert_int_equal(errno, EOPNOTSUPP);
	}
	assert_int_equal(rdma_set_local_ece(NULL, NULL), -1);
	assert_int_equal(errno, EOPNOTSUPP);
	rdma_destroy_event_channel(c);
}

/* The next descriptors of this process cannot be made. */
static struct rlimit without_descriptors(void)
{
	const int lowest = dup(STDIN_FILENO);
	struct rlimit before, none;

	assert_true(lowest >= 0);
	close(lowest);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = (rlim_t)lowest;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	return before;
}

/* The request is refused, and its listener can end. */
static void test_request_without_a_channel(void **state)
{
	struct rdma_addrinfo here = { .ai_flags = RAI_PASSIVE,
				      .ai_qp_type = IBV_QPT_RC,
				      .ai_port_space = RDMA_PS_TCP };
	struct rdma_cm_id *listener, *request;
	struct sockaddr_in at = address("127.0.0.1", 0);
	struct rlimit before;
	struct ends e;

	(void)state;
	open_ends(&e);
	here.ai_src_addr = any(&at);
	assert_int_equal(rdma_create_ep(&listener, &here, NULL, NULL), 0);
	assert_int_equal(rdma_listen(listener, 1), 0);
	e.port = ntohs(rdma_get_src_port(listener));
	request = caller_of(&e, "");
	await_event(listener->channel);
	before = without_descriptors();
	assert_int_equal(rdma_get_request(listener, &e.accepted), -1);
	assert_int_equal(errno, EMFILE);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	expect(e.client, RDMA_CM_EVENT_REJECTED, 28);
	assert_int_equal(rdma_destroy_id(request), 0);
	rdma_destroy_ep(listener);
	close_ends(&e);
}

static void test_names(void **state)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE }, *found;
	struct sockaddr_in at = address("127.0.0.1", 7000);
	struct ibv_context **list;
	int n;

	(void)state;
	assert_int_equal(rdma_getaddrinfo(NULL, NULL, NULL, &found), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_getaddrinfo(NULL, "7000", &hints, &found), 0);
	assert_non_null(found->ai_src_addr);
	assert_int_equal(found->ai_qp_type, IBV_QPT_RC);
	assert_int_equal(found->ai_port_space, RDMA_PS_TCP);
	rdma_freeaddrinfo(found);
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "7000", NULL, &found),
			 0);
	assert_non_null(found->ai_dst_addr);
	rdma_freeaddrinfo(found);
	hints.ai_family = AF_INET; /* of an address that the program has */
	hints.ai_src_addr = any(&at);
	hints.ai_src_len = sizeof(at);
	assert_int_equal(rdma_getaddrinfo(NULL, NULL, &hints, &found), 0);
	assert_int_equal(found->ai_family, AF_INET);
	assert_non_null(found->ai_src_addr);
	rdma_freeaddrinfo(found);
	hints.ai_flags = RAI_NUMERICHOST;
	assert_int_equal(rdma_getaddrinfo("no number", "7000", &hints, &found),
			 EAI_NONAME);
	assert_int_equal(
		rdma_getaddrinfo("127.0.0.1", "no service", NULL, &found),
		EAI_SERVICE);
	list = rdma_get_devices(&n);
	assert_int_equal(n, 1);
	assert_null(list[1]);
	rdma_free_devices(list);
	assert_string_equal(rdma_event_str((enum rdma_cm_event_type)99),
			    "UNKNOWN EVENT");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_connection),
		cmocka_unit_test(test_ends_that_disconnect_at_once),
		cmocka_unit_test(test_end_of_an_id_ends_a_departure),
		cmocka_unit_test(test_caller_that_disconnects_at_once),
		cmocka_unit_test(test_end_of_an_id_disconnects_the_peer),
		cmocka_unit_test(test_rejection),
		cmocka_unit_test(test_request_whose_id_ends_is_rejected),
		cmocka_unit_test(test_listener_may_end_before_the_answer),
		cmocka_unit_test(test_caller_that_leaves),
		cmocka_unit_test(test_qps_of_the_program),
		cmocka_unit_test(test_qpns_without_a_connection),
		cmocka_unit_test(test_migration),
		cmocka_unit_test(test_migration_of_a_listener),
		cmocka_unit_test(test_events_that_stay_are_not_counted_again),
		cmocka_unit_test(test_retries),
		cmocka_unit_test(test_backlog),
		cmocka_unit_test(test_callers_that_leave_a_queue),
		cmocka_unit_test(test_nobody_listens),
		cmocka_unit_test(test_nobody_listens_to_a_call_that_waits),
		cmocka_unit_test(test_port_in_use),
		cmocka_unit_test(test_any_port_of_an_address),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_localhost_is_the_own_gid),
		cmocka_unit_test(test_no_address),
		cmocka_unit_test(test_peer_without_agent),
		cmocka_unit_test(test_parameters),
		cmocka_unit_test(test_channel_that_does_not_wait),
		cmocka_unit_test(test_descriptor_that_is_not_readable),
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_timeout),
		cmocka_unit_test(test_what_is_not_there),
		cmocka_unit_test(test_request_without_a_channel),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
