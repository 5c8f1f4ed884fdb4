/*
 * SRQs of ids of RDMA-CM (docs/run.md 5), and the inline functions of rdma_verbs.h that
 * use them. tests/e2e/test_run_cm.py starts it by `srdma run` on the host with the GID
 * 127.0.0.1.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>

#include "cm_ends.h"

enum { LENGTH = 64, MANY = 20 /* messages, more than receives */ };

/* The library calls this function. If `slow` is set, the call returns after
 * sem_post(&go). */
static sem_t called, go;
static int slow;

int ibv_destroy_srq(struct ibv_srq *srq)
{
	int (*real)(struct ibv_srq *);
	int r;

	*(void **)&real = dlsym(RTLD_NEXT, "ibv_destroy_srq");
	r = real(srq);
	if (slow) {
		slow = 0;
		sem_post(&called);
		sem_wait(&go);
	}
	return r;
}

static struct ibv_srq_init_attr srq_attr(void)
{
	return (struct ibv_srq_init_attr){ .attr = { .max_wr = DEPTH,
						     .max_sge = 1 } };
}

/* The accepted id gets a SRQ, then a QP, then a connection. */
static void open_with_srq(struct ends *e)
{
	struct ibv_srq_init_attr attr = srq_attr();
	struct rdma_cm_event *event;

	open_called(e);
	assert_int_equal(rdma_create_srq(e->accepted, NULL, &attr), 0);
	assert_non_null(e->accepted->srq);
	make_qp(e->accepted);
	assert_ptr_equal(e->accepted->qp->srq, e->accepted->srq);
	assert_int_equal(rdma_accept(e->accepted, NULL), 0);
	event = next(e->client, RDMA_CM_EVENT_ESTABLISHED, 0);
	assert_int_equal(event->param.conn.srq, 1);
	rdma_ack_cm_event(event);
	expect(e->server, RDMA_CM_EVENT_ESTABLISHED, 0);
}

static void send_one(struct ends *e, char *out, struct ibv_mr *mr)
{
	struct ibv_wc wc;

	assert_int_equal(rdma_post_send(e->caller, NULL, out, LENGTH, mr,
					IBV_SEND_SIGNALED),
			 0);
	assert_int_equal(rdma_get_send_comp(e->caller, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(rdma_get_recv_comp(e->accepted, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, LENGTH);
	assert_int_equal(wc.wr_id, (uintptr_t)e);
}

static void test_messages_to_the_srq_of_an_id(void **state)
{
	char in[LENGTH], out[LENGTH];
	struct ibv_mr *mr_in, *mr_out;
	struct ends e;

	(void)state;
	open_with_srq(&e);
	mr_in = rdma_reg_msgs(e.accepted, in, LENGTH);
	mr_out = rdma_reg_msgs(e.caller, out, LENGTH);
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(
			rdma_post_recv(e.accepted, &e, in, LENGTH, mr_in), 0);
		memset(out, 'a' + i, LENGTH);
		send_one(&e, out, mr_out);
		assert_memory_equal(in, out, LENGTH);
	}
	for (int i = 0; i < DEPTH; i++)
		assert_int_equal(
			rdma_post_recv(e.accepted, &e, in, LENGTH, mr_in), 0);
	assert_int_equal(rdma_post_recv(e.accepted, &e, in, LENGTH, mr_in), -1);
	assert_int_equal(errno, ENOMEM);
	rdma_dereg_mr(mr_in);
	rdma_dereg_mr(mr_out);
	rdma_destroy_srq(e.accepted); /* the QP uses it */
	assert_non_null(e.accepted->srq);
	rdma_destroy_qp(e.accepted);
	rdma_destroy_srq(e.accepted);
	assert_null(e.accepted->srq);
	close_ends(&e);
}

static void *destroy(void *id)
{
	rdma_destroy_srq(id);
	return NULL;
}

/* A QP uses the SRQ, so that it stays. Another thread asks for one before the id has
 * it again. */
static void test_create_while_a_thread_destroys(void **state)
{
	struct ibv_srq_init_attr attr = srq_attr();
	struct ibv_srq *srq;
	pthread_t thread;
	struct ends e;

	(void)state;
	open_with_srq(&e);
	srq = e.accepted->srq;
	assert_int_equal(sem_init(&called, 0, 0) | sem_init(&go, 0, 0), 0);
	slow = 1;
	assert_int_equal(pthread_create(&thread, NULL, destroy, e.accepted), 0);
	sem_wait(&called);
	errno = 0;
	assert_int_equal(rdma_create_srq(e.accepted, NULL, &attr), -1);
	assert_int_equal(errno, EBUSY);
	rdma_destroy_srq(e.accepted); /* without effect */
	sem_post(&go);
	pthread_join(thread, NULL);
	assert_ptr_equal(e.accepted->srq, srq);
	rdma_destroy_qp(e.accepted);
	rdma_destroy_srq(e.accepted);
	assert_null(e.accepted->srq);
	assert_int_equal(rdma_create_srq(e.accepted, NULL, &attr), 0);
	rdma_destroy_srq(e.accepted);
	close_ends(&e);
}

static void refuse(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex attr,
		   int err)
{
	errno = 0;
	assert_int_equal(rdma_create_srq_ex(id, &attr), -1);
	assert_int_equal(errno, err);
}

static void test_illegal_srqs(void **state)
{
	struct ibv_srq_init_attr_ex attr = { .attr = { .max_wr = DEPTH,
						       .max_sge = 1 } };
	struct ibv_srq_init_attr large = srq_attr();
	struct ends e;

	(void)state;
	open_ends(&e);
	refuse(e.caller, attr, EINVAL); /* no type */
	attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
	attr.srq_type = IBV_SRQT_XRC;
	refuse(e.caller, attr, EOPNOTSUPP);
	attr.srq_type = IBV_SRQT_BASIC;
	refuse(e.listener, attr, EINVAL); /* of no device: bound to 0.0.0.0 */
	large.attr.max_wr = UINT32_MAX;
	assert_int_equal(rdma_create_srq(e.caller, NULL, &large), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_create_srq_ex(e.caller, &attr), 0);
	refuse(e.caller, attr, EINVAL); /* it has one */
	rdma_destroy_srq(e.caller);
	rdma_destroy_srq(e.caller); /* there is none */
	close_ends(&e);
}

/* A PD of another context of the device. */
static void test_srq_with_a_pd_of_another_context(void **state)
{
	struct ibv_srq_init_attr attr = srq_attr();
	struct ibv_context *other;
	struct ibv_pd *pd;
	struct ends e;

	(void)state;
	open_ends(&e);
	other = ibv_open_device(e.caller->verbs->device);
	assert_non_null(other);
	pd = ibv_alloc_pd(other);
	assert_non_null(pd);
	errno = 0;
	assert_int_equal(rdma_create_srq(e.caller, pd, &attr), -1);
	assert_int_equal(errno, EINVAL);
	assert_null(e.caller->srq);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(other), 0);
	close_ends(&e);
}

/* A SRQ in the attributes of both kinds of endpoints. */
struct endpoints {
	struct ibv_context **devices;
	struct ibv_pd *pd;
	struct ibv_srq *srq;
	struct ibv_qp_init_attr init;
};

static void open_endpoints(struct endpoints *p)
{
	struct ibv_srq_init_attr attr = srq_attr();

	p->devices = rdma_get_devices(NULL);
	assert_non_null(p->devices);
	p->pd = ibv_alloc_pd(p->devices[0]);
	p->srq = ibv_create_srq(p->pd, &attr);
	assert_non_null(p->srq);
	p->init = (struct ibv_qp_init_attr){
		.cap = { .max_send_wr = DEPTH, .max_send_sge = 1 },
		.srq = p->srq,
		.qp_type = IBV_QPT_RC,
	};
}

static void close_endpoints(const struct endpoints *p)
{
	assert_int_equal(ibv_destroy_srq(p->srq), 0);
	assert_int_equal(ibv_dealloc_pd(p->pd), 0);
	rdma_free_devices(p->devices);
}

static struct rdma_cm_id *endpoint(struct endpoints *p, int flags,
				   struct sockaddr_in *at)
{
	struct rdma_addrinfo info = { .ai_flags = flags,
				      .ai_qp_type = IBV_QPT_RC,
				      .ai_port_space = RDMA_PS_TCP };
	struct rdma_cm_id *id;

	*(flags & RAI_PASSIVE ? &info.ai_src_addr : &info.ai_dst_addr) =
		any(at);
	assert_int_equal(rdma_create_ep(&id, &info, p->pd, &p->init), 0);
	return id;
}

static void expect_srq(const struct endpoints *p, const struct rdma_cm_id *id)
{
	assert_ptr_equal(id->qp->srq, p->srq);
	assert_ptr_equal(id->qp->pd, p->pd);
}

static void test_endpoints_with_a_srq(void **state)
{
	struct sockaddr_in at = address("127.0.0.1", 0);
	struct rdma_cm_id *listener, *request, *caller;
	struct endpoints p;
	struct ends e;

	(void)state;
	open_ends(&e);
	open_endpoints(&p);
	listener = endpoint(&p, RAI_PASSIVE, &at);
	assert_int_equal(rdma_listen(listener, 1), 0);
	e.port = ntohs(rdma_get_src_port(listener));
	caller = caller_of(&e, "");
	assert_int_equal(rdma_get_request(listener, &request), 0);
	expect_srq(&p, request);
	rdma_destroy_ep(request);
	assert_int_equal(rdma_destroy_id(caller), 0);
	rdma_destroy_ep(listener);
	at.sin_port = htons(e.port);
	caller = endpoint(&p, 0, &at);
	expect_srq(&p, caller);
	assert_ptr_equal(p.init.send_cq, caller->send_cq);
	rdma_destroy_ep(caller);
	close_endpoints(&p);
	close_ends(&e);
}

/* rdma_destroy_ep() ends the SRQ too. */
static void test_end_of_an_endpoint(void **state)
{
	struct sockaddr_in at = address("127.0.0.1", 7000);
	struct ibv_srq_init_attr attr = srq_attr();
	struct rdma_cm_id *id;
	struct endpoints p;

	(void)state;
	open_endpoints(&p);
	id = endpoint(&p, 0, &at);
	assert_int_equal(rdma_create_srq(id, p.pd, &attr), 0);
	rdma_destroy_ep(id);
	close_endpoints(&p); /* the PD has no objects */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_messages_to_the_srq_of_an_id),
		cmocka_unit_test(test_create_while_a_thread_destroys),
		cmocka_unit_test(test_illegal_srqs),
		cmocka_unit_test(test_srq_with_a_pd_of_another_context),
		cmocka_unit_test(test_endpoints_with_a_srq),
		cmocka_unit_test(test_end_of_an_endpoint),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
