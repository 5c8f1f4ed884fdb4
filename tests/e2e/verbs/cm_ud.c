/*
 * Ids of UD as a program sees them (docs/run.md 5.1): calls of this process to itself.
 * tests/e2e/test_run_cm.py starts it by `srdma run` on the host with the GID 127.0.0.1.
 */
#include "cm_ends.h"

#include <pthread.h>

enum {
	GRH = 40,
	LENGTH = 64,
	REQUEST_PRIVATE = 180,
	REPLY_PRIVATE = 136,
	QUIET_MS = 200,
};

static const char letters[256] = {
	[0] = 'a', [1] = 'b', [135] = 'c', [179] = 'd'
};

static void open_ud(struct ends *e)
{
	open_ends_in(e, RDMA_PS_UDP, 0);
	assert_int_equal(e->caller->qp_type, IBV_QPT_UD);
	assert_int_equal(e->listener->qp_type, IBV_QPT_UD);
}

static struct rdma_conn_param with_data(uint8_t length)
{
	return (struct rdma_conn_param){ .private_data = letters,
					 .private_data_len = length };
}

/* The private data of an event are the first bytes of the letters. */
static void has_data(const struct rdma_cm_event *event, uint8_t length)
{
	assert_int_equal(event->param.ud.private_data_len, length);
	if (length)
		assert_memory_equal(event->param.ud.private_data, letters,
				    length);
	else
		assert_null(event->param.ud.private_data);
}

/* The listener gets the call of a caller. */
static void requested(struct ends *e, uint8_t length)
{
	struct rdma_cm_event *event =
		next(e->server, RDMA_CM_EVENT_CONNECT_REQUEST, 0);

	has_data(event, length);
	assert_ptr_equal(event->listen_id, e->listener);
	e->accepted = event->id;
	assert_int_equal(e->accepted->qp_type, IBV_QPT_UD);
	assert_int_equal(e->accepted->ps, RDMA_PS_UDP);
	rdma_ack_cm_event(event);
}

static void call_ud(struct ends *e, uint8_t length)
{
	struct rdma_conn_param p = with_data(length);

	assert_int_equal(rdma_connect(e->caller, &p), 0);
	requested(e, length);
}

/* Two ends, of which the caller with a QP has called. */
static void open_called_ud(struct ends *e)
{
	open_ud(e);
	make_qp(e->caller);
	call_ud(e, 0);
}

static void has_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(
		ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_QKEY, &init), 0);
	assert_int_equal(init.qp_type, IBV_QPT_UD);
	assert_int_equal(attr.qp_state, state);
	assert_int_equal(attr.qkey, RDMA_UDP_QKEY);
}

static void is_quiet(const struct rdma_event_channel *c)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN };

	assert_int_equal(poll(&p, 1, QUIET_MS), 0);
}

/* The caller learns the QP of the other end. */
static struct rdma_ud_param resolved(struct ends *e, uint8_t length)
{
	struct rdma_cm_event *event =
		next(e->client, RDMA_CM_EVENT_ESTABLISHED, 0);
	const struct rdma_ud_param ud = event->param.ud;
	union ibv_gid gid;

	has_data(event, length);
	assert_int_equal(ibv_query_gid(e->caller->verbs, 1, 0, &gid), 0);
	assert_int_equal(ud.qkey, RDMA_UDP_QKEY);
	assert_int_equal(ud.ah_attr.is_global, 1);
	assert_int_equal(ud.ah_attr.port_num, 1);
	assert_memory_equal(&ud.ah_attr.grh.dgid, &gid, sizeof(gid));
	rdma_ack_cm_event(event);
	return ud;
}

/* --- messages ---------------------------------------------------------------------- */

static void receive(struct rdma_cm_id *id, struct ibv_wc *wc)
{
	assert_int_equal(rdma_get_recv_comp(id, wc), 1);
	assert_int_equal(wc->status, IBV_WC_SUCCESS);
	assert_int_equal(wc->byte_len, GRH + LENGTH);
}

static void send_to(struct rdma_cm_id *id, char *memory, struct ibv_mr *mr,
		    struct ibv_ah *ah, uint32_t qp_num)
{
	struct ibv_wc wc;

	assert_int_equal(rdma_post_ud_send(id, NULL, memory, LENGTH, mr,
					   IBV_SEND_SIGNALED, ah, qp_num),
			 0);
	assert_int_equal(rdma_get_send_comp(id, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

/* A message of the caller, and the answer to it. */
static void exchange(struct ends *e, struct rdma_ud_param *to)
{
	struct ibv_ah *ah = ibv_create_ah(e->caller->pd, &to->ah_attr);
	char in[GRH + LENGTH], out[LENGTH] = "hello";
	struct ibv_mr *mr_in = rdma_reg_msgs(e->accepted, in, sizeof(in));
	struct ibv_mr *mr_out = rdma_reg_msgs(e->caller, out, LENGTH);
	struct ibv_ah *back;
	struct ibv_wc wc;

	assert_non_null(ah);
	assert_int_equal(
		rdma_post_recv(e->accepted, NULL, in, sizeof(in), mr_in), 0);
	send_to(e->caller, out, mr_out, ah, to->qp_num);
	receive(e->accepted, &wc);
	assert_memory_equal(in + GRH, out, LENGTH);
	assert_int_equal(wc.src_qp, e->caller->qp->qp_num);
	back = ibv_create_ah_from_wc(e->accepted->pd, &wc, (struct ibv_grh *)in,
				     1);
	assert_non_null(back);
	memset(in, 0, sizeof(in));
	assert_int_equal(rdma_post_recv(e->caller, NULL, in, sizeof(in), mr_in),
			 0);
	send_to(e->accepted, out, mr_out, back, wc.src_qp);
	receive(e->caller, &wc);
	assert_memory_equal(in + GRH, out, LENGTH);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	assert_int_equal(ibv_destroy_ah(back), 0);
	rdma_dereg_mr(mr_in);
	rdma_dereg_mr(mr_out);
}

static void test_qps_are_looked_up(void **state)
{
	struct rdma_conn_param reply = with_data(REPLY_PRIVATE);
	struct rdma_ud_param ud;
	struct ends e;

	(void)state;
	open_ud(&e);
	make_qp(e.caller);
	has_state(e.caller->qp, IBV_QPS_RTS);
	call_ud(&e, REQUEST_PRIVATE);
	make_qp(e.accepted);
	assert_int_equal(rdma_accept(e.accepted, &reply), 0);
	ud = resolved(&e, REPLY_PRIVATE);
	assert_int_equal(ud.qp_num, e.accepted->qp->qp_num);
	exchange(&e, &ud);
	assert_int_equal(rdma_accept(e.accepted, &reply), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_connect(e.caller, NULL), -1);
	assert_int_equal(errno, EINVAL);
	close_ends(&e);
}

/* Neither end is told what the other one does. */
static void test_ends_are_not_told(void **state)
{
	struct ends e;

	(void)state;
	open_called_ud(&e);
	make_qp(e.accepted);
	assert_int_equal(rdma_accept(e.accepted, NULL), 0);
	resolved(&e, 0);
	assert_int_equal(rdma_disconnect(e.caller), 0);
	has_state(e.caller->qp, IBV_QPS_ERR);
	has_state(e.accepted->qp, IBV_QPS_RTS);
	assert_int_equal(rdma_disconnect(e.caller), -1);
	assert_int_equal(errno, EINVAL);
	end_caller(&e);
	is_quiet(e.server);
	is_quiet(e.client);
	close_ends(&e);
}

static void test_qp_of_the_program(void **state)
{
	struct ibv_qp_init_attr init = { .cap = { DEPTH, DEPTH, 1, 1, 0 },
					 .qp_type = IBV_QPT_UD };
	struct rdma_conn_param p = { .qp_num = 0 };
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ends e;

	(void)state;
	open_ud(&e);
	call_ud(&e, 3); /* without a QP */
	cq = ibv_create_cq(e.accepted->verbs, 2 * DEPTH, NULL, NULL, 0);
	init.send_cq = init.recv_cq = cq;
	qp = ibv_create_qp(e.accepted->pd, &init);
	for (int to = IBV_QPS_INIT; to <= IBV_QPS_RTS; to++)
		move(e.accepted, qp, (enum ibv_qp_state)to);
	has_state(qp, IBV_QPS_RTS);
	assert_int_equal(rdma_accept(e.accepted, NULL), -1); /* no QPN */
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_accept(e.accepted, &p), -1);
	assert_int_equal(errno, EINVAL);
	p.qp_num = qp->qp_num;
	assert_int_equal(rdma_accept(e.accepted, &p), 0);
	assert_int_equal(resolved(&e, 0).qp_num, qp->qp_num);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	close_ends(&e);
}

/* --- calls that wait ---------------------------------------------------------------- */

static void *connect_and_wait(void *id)
{
	return rdma_connect(id, NULL) ? id : NULL;
}

/* An endpoint, of which one thread waits for the answer that the other one gives. */
static void endpoints(enum rdma_port_space ps)
{
	struct sockaddr_in at = address("127.0.0.1", 0);
	struct rdma_addrinfo here = { .ai_flags = RAI_PASSIVE,
				      .ai_qp_type = IBV_QPT_UD,
				      .ai_port_space = ps,
				      .ai_src_addr = any(&at) };
	struct ibv_qp_init_attr init = { .cap = { DEPTH, DEPTH, 1, 1, 0 } };
	struct rdma_addrinfo there = here;
	struct rdma_cm_id *listener, *caller, *accepted;
	pthread_t thread;
	void *failed;

	there.ai_flags = 0;
	there.ai_dst_addr = any(&at);
	there.ai_src_addr = NULL;
	assert_int_equal(rdma_create_ep(&listener, &here, NULL, &init), 0);
	assert_int_equal(rdma_listen(listener, 1), 0);
	at.sin_port = rdma_get_src_port(listener);
	assert_int_equal(rdma_create_ep(&caller, &there, NULL, &init), 0);
	has_state(caller->qp, IBV_QPS_RTS);
	assert_int_equal(
		pthread_create(&thread, NULL, connect_and_wait, caller), 0);
	assert_int_equal(rdma_get_request(listener, &accepted), 0);
	has_state(accepted->qp, IBV_QPS_RTS);
	assert_int_equal(rdma_accept(accepted, NULL), 0);
	assert_null(accepted->event);
	assert_int_equal(pthread_join(thread, &failed), 0);
	assert_null(failed);
	assert_int_equal(caller->event->event, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(caller->event->param.ud.qp_num, accepted->qp->qp_num);
	assert_int_equal(rdma_disconnect(caller), 0);
	rdma_destroy_ep(caller);
	rdma_destroy_ep(accepted);
	rdma_destroy_ep(listener);
}

static void test_endpoints(void **state)
{
	(void)state;
	endpoints(RDMA_PS_UDP);
	endpoints(RDMA_PS_IB);
}

static void test_names(void **state)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_UDP }, *found;

	(void)state;
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "7000", &hints, &found),
			 0);
	assert_int_equal(found->ai_qp_type, IBV_QPT_UD);
	rdma_freeaddrinfo(found);
	hints = (struct rdma_addrinfo){ .ai_qp_type = IBV_QPT_UD };
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "7000", &hints, &found),
			 0);
	assert_int_equal(found->ai_port_space, RDMA_PS_UDP);
	rdma_freeaddrinfo(found);
}

/* --- failures --------------------------------------------------------------------------- */

static void test_rejection(void **state)
{
	struct rdma_cm_event *event;
	struct ends e;

	(void)state;
	open_called_ud(&e);
	assert_int_equal(rdma_reject(e.accepted, letters, REPLY_PRIVATE), 0);
	event = next(e.client, RDMA_CM_EVENT_UNREACHABLE, 2);
	has_data(event, REPLY_PRIVATE);
	rdma_ack_cm_event(event);
	has_state(e.caller->qp, IBV_QPS_RTS);
	assert_int_equal(rdma_accept(e.accepted, NULL), -1);
	assert_int_equal(errno, EINVAL);
	close_ends(&e);
}

static void test_request_whose_id_ends_is_rejected(void **state)
{
	struct ends e;

	(void)state;
	open_called_ud(&e);
	end_accepted(&e);
	expect(e.client, RDMA_CM_EVENT_UNREACHABLE, 2);
	close_ends(&e);
}

static void test_caller_that_leaves(void **state)
{
	struct ends e;

	(void)state;
	open_called_ud(&e);
	make_qp(e.accepted);
	end_caller(&e);
	if (rdma_accept(e.accepted, NULL))
		assert_int_equal(errno, ECONNRESET);
	is_quiet(e.server);
	close_ends(&e);
}

static void test_nobody_listens(void **state)
{
	struct ends e;

	(void)state;
	open_ud(&e);
	make_qp(e.caller);
	stop_listening(&e);
	assert_int_equal(rdma_connect(e.caller, NULL), 0);
	expect(e.client, RDMA_CM_EVENT_UNREACHABLE, 1);
	has_state(e.caller->qp, IBV_QPS_RTS);
	nobody_listens_to_a_call_that_waits(&e, 1);
	close_ends(&e);
}

static void test_peer_without_agent(void **state)
{
	(void)state;
	call_of_a_peer_without_agent(RDMA_PS_UDP);
}

/* The program of a listener does not see calls of the other type. */
static void other_type(enum rdma_port_space listener,
		       enum rdma_port_space caller,
		       enum rdma_cm_event_type event, int status)
{
	struct rdma_cm_id *id;
	struct ends e;

	open_ends_in(&e, listener, 0);
	assert_int_equal(rdma_create_id(e.client, &id, NULL, caller), 0);
	route(id, e.client, "127.0.0.1", e.port);
	make_qp(id);
	assert_int_equal(rdma_connect(id, NULL), 0);
	expect(e.client, event, status);
	is_quiet(e.server);
	rdma_destroy_qp(id);
	assert_int_equal(rdma_destroy_id(id), 0);
	close_ends(&e);
}

static void test_calls_of_the_other_type(void **state)
{
	(void)state;
	other_type(RDMA_PS_UDP, RDMA_PS_TCP, RDMA_CM_EVENT_REJECTED, 28);
	other_type(RDMA_PS_TCP, RDMA_PS_UDP, RDMA_CM_EVENT_UNREACHABLE, 2);
}

static void test_too_much_private_data(void **state)
{
	struct rdma_conn_param p = with_data(REQUEST_PRIVATE + 1);
	struct ends e;

	(void)state;
	open_ud(&e);
	make_qp(e.caller);
	assert_int_equal(rdma_connect(e.caller, &p), -1);
	assert_int_equal(errno, EINVAL);
	call_ud(&e, REQUEST_PRIVATE);
	make_qp(e.accepted);
	p.private_data_len = REPLY_PRIVATE + 1;
	assert_int_equal(rdma_accept(e.accepted, &p), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_reject(e.accepted, letters, REPLY_PRIVATE + 1),
			 -1);
	assert_int_equal(errno, EINVAL);
	close_ends(&e);
}

static void refuse_qp(struct rdma_cm_id *id, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = { .cap = { DEPTH, DEPTH, 1, 1, 0 },
					 .qp_type = type };

	errno = 0;
	assert_int_equal(rdma_create_qp(id, NULL, &init), -1);
	assert_int_equal(errno, EINVAL);
	assert_null(id->qp);
	assert_null(id->send_cq);
}

static void test_qps_of_another_type_than_their_id(void **state)
{
	struct ends e;

	(void)state;
	open_ud(&e);
	refuse_qp(e.caller, IBV_QPT_RC);
	refuse_qp(e.caller, IBV_QPT_UC);
	close_ends(&e);
	open_ends(&e);
	refuse_qp(e.caller, IBV_QPT_UC);
	refuse_qp(e.caller, IBV_QPT_UD);
	close_ends(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_qps_are_looked_up),
		cmocka_unit_test(test_ends_are_not_told),
		cmocka_unit_test(test_qp_of_the_program),
		cmocka_unit_test(test_endpoints),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_rejection),
		cmocka_unit_test(test_request_whose_id_ends_is_rejected),
		cmocka_unit_test(test_caller_that_leaves),
		cmocka_unit_test(test_nobody_listens),
		cmocka_unit_test(test_peer_without_agent),
		cmocka_unit_test(test_calls_of_the_other_type),
		cmocka_unit_test(test_too_much_private_data),
		cmocka_unit_test(test_qps_of_another_type_than_their_id),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
