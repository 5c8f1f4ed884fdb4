/*
 * The extended functions of libibverbs: ibv_create_qp_ex(), ibv_wr_*(),
 * ibv_create_cq_ex() and its polling, and those that srdma does not have
 * (docs/run.md 4). tests/e2e/test_run.py starts it by `srdma run`. Both QPs of a
 * test are of the same worker.
 */
#include "open.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { REMOTE = 2048, IMM = 0x1234, LONG = 449 };

#define NS_PER_S 1000000000ull
#define HOUR_NS	 (3600 * NS_PER_S)

struct pair {
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp[2];
	struct ibv_mr *mr;
	uint64_t before; /* device clock, before the CQ was polled */
};

static struct ibv_cq_init_attr_ex cq_attr(void)
{
	return (struct ibv_cq_init_attr_ex){ .cqe = 4 * DEPTH,
					     .wc_flags =
						     IBV_WC_STANDARD_FLAGS };
}

static struct ibv_qp_init_attr_ex qp_attr(const struct pair *p)
{
	return (struct ibv_qp_init_attr_ex){
		.send_cq = ibv_cq_ex_to_cq(p->cq),
		.recv_cq = ibv_cq_ex_to_cq(p->cq),
		.cap = { DEPTH, DEPTH, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags =
			IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_ATOMIC_WRITE,
	};
}

static void open_pair(struct pair *p)
{
	struct ibv_cq_init_attr_ex cq = cq_attr();
	struct ibv_qp_init_attr_ex init;

	p->cq = ibv_create_cq_ex(ctx, &cq);
	assert_non_null(p->cq);
	init = qp_attr(p);
	for (int i = 0; i < 2; i++) {
		p->qp[i] = ibv_create_qp_ex(ctx, &init);
		assert_non_null(p->qp[i]);
		assert_int_equal(to_init(p->qp[i]), 0);
	}
	assert_true(init.cap.max_inline_data >= LONG - 1);
	p->mr = ibv_reg_mr(pd, memory, LENGTH,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC);
	assert_non_null(p->mr);
	memset(memory, 0, LENGTH);
}

static void close_pair(struct pair *p)
{
	assert_int_equal(ibv_destroy_qp(p->qp[0]), 0);
	assert_int_equal(ibv_destroy_qp(p->qp[1]), 0);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(p->cq)), 0);
	assert_int_equal(ibv_dereg_mr(p->mr), 0);
}

static void connect_pair(const struct pair *p)
{
	for (int i = 0; i < 2; i++)
		connect_to(p->qp[i], p->qp[!i]->qp_num);
}

/* Waits for the next completion, which is current then. */
static void poll_next(const struct pair *p, uint64_t wr_id)
{
	struct ibv_poll_cq_attr attr = { 0 };

	while (ibv_start_poll(p->cq, &attr) == ENOENT)
		sched_yield();
	assert_int_equal(p->cq->status, IBV_WC_SUCCESS);
	assert_int_equal(p->cq->wr_id, wr_id);
}

static void expect(const struct pair *p, uint64_t wr_id,
		   enum ibv_wc_opcode opcode)
{
	poll_next(p, wr_id);
	assert_int_equal(ibv_wc_read_opcode(p->cq), opcode);
	ibv_end_poll(p->cq);
}

/* --- the device -------------------------------------------------------------------- */

static void test_device(void **state)
{
	const struct ibv_query_device_ex_input later = { .comp_mask = 1 };
	struct ibv_values_ex before = { .comp_mask =
						IBV_VALUES_MASK_RAW_CLOCK | 8 };
	struct ibv_values_ex after = before;
	struct ibv_device_attr_ex attr;

	(void)state;
	assert_int_equal(ibv_query_device_ex(ctx, NULL, &attr), 0);
	assert_int_equal(attr.phys_port_cnt_ex, 1);
	assert_int_equal(attr.orig_attr.phys_port_cnt, 1);
	assert_int_not_equal(attr.orig_attr.vendor_id, 0);
	assert_int_equal(attr.orig_attr.node_guid,
			 ibv_get_device_guid(ctx->device));
	assert_int_equal(attr.odp_caps.general_caps, 0);
	assert_int_equal(attr.max_dm_size, 0);
	assert_int_equal(attr.hca_core_clock, 1000000); /* kHz */
	assert_true(attr.completion_timestamp_mask == UINT64_MAX);
	assert_int_equal(ibv_query_device_ex(ctx, &later, &attr), EINVAL);
	assert_int_equal(ibv_query_rt_values_ex(ctx, &before), 0);
	assert_int_equal(ibv_query_rt_values_ex(ctx, &after), 0);
	assert_int_equal(after.comp_mask, IBV_VALUES_MASK_RAW_CLOCK);
	assert_true(after.raw_clock.tv_nsec >= before.raw_clock.tv_nsec);
}

#define REFUSED(CALL, ERR)                                                     \
	do {                                                                   \
		errno = 0;                                                     \
		assert_null(CALL);                                             \
		assert_int_equal(errno, ERR);                                  \
	} while (0)

static void test_absent_objects(void **state)
{
	struct ibv_alloc_dm_attr dm = { .length = 8 };
	struct ibv_xrcd_init_attr xrcd = { 0 };
	struct ibv_wq_init_attr wq = { .pd = pd };
	struct ibv_rwq_ind_table_init_attr table = { 0 };
	struct ibv_counters_init_attr counters = { 0 };
	struct ibv_qp_open_attr open = { 0 };

	(void)state;
	REFUSED(ibv_alloc_dm(ctx, &dm), EOPNOTSUPP);
	REFUSED(ibv_alloc_mw(pd, IBV_MW_TYPE_1), EOPNOTSUPP);
	REFUSED(ibv_alloc_null_mr(pd), EOPNOTSUPP);
	REFUSED(ibv_open_xrcd(ctx, &xrcd), EOPNOTSUPP);
	REFUSED(ibv_open_qp(ctx, &open), EOPNOTSUPP);
	REFUSED(ibv_create_wq(ctx, &wq), EOPNOTSUPP);
	REFUSED(ibv_create_rwq_ind_table(ctx, &table), EOPNOTSUPP);
	REFUSED(ibv_create_counters(ctx, &counters), EOPNOTSUPP);
	REFUSED(ibv_reg_dmabuf_mr(pd, 0, 8, 0, 0, 0), EOPNOTSUPP);
	REFUSED(ibv_import_dm(ctx, 0), EOPNOTSUPP);
}

static void test_absent_functions(void **state)
{
	struct ibv_sge sge = { 0 };
	struct ibv_modify_cq_attr moderation = { 0 };
	struct ibv_flow_attr flow = { 0 };
	struct ibv_qp_rate_limit_attr limit = { 0 };
	struct ibv_ece ece = { 0 };
	struct pair p;

	(void)state;
	open_pair(&p);
	assert_int_equal(
		ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1),
		EOPNOTSUPP);
	assert_int_equal(ibv_modify_cq(ibv_cq_ex_to_cq(p.cq), &moderation),
			 EOPNOTSUPP);
	assert_int_equal(ibv_modify_qp_rate_limit(p.qp[0], &limit), EOPNOTSUPP);
	assert_int_equal(ibv_query_ece(p.qp[0], &ece), EOPNOTSUPP);
	assert_int_equal(ibv_set_ece(p.qp[0], &ece), EOPNOTSUPP);
	assert_int_equal(ibv_query_qp_data_in_order(p.qp[0], IBV_WR_SEND, 0),
			 0);
	REFUSED(ibv_create_flow(p.qp[0], &flow), EOPNOTSUPP);
	close_pair(&p);
}

/* --- importing -------------------------------------------------------------------- */

static void test_imports(void **state)
{
	const int other = open("/dev/null", O_RDWR);
	struct ibv_context *context;
	struct ibv_pd *domain;
	struct ibv_mr *region, *mr = ibv_reg_mr(pd, memory, LENGTH, 0);

	(void)state;
	assert_non_null(mr);
	assert_int_not_equal(other, -1);
	REFUSED(ibv_import_device(-1), EBADF);
	REFUSED(ibv_import_device(other), EOPNOTSUPP);
	assert_int_equal(close(other), 0); /* it was left alone */
	context = ibv_import_device(dup(ctx->cmd_fd));
	assert_non_null(context);
	assert_int_not_equal(fcntl(ctx->cmd_fd, F_GETFD), -1);
	REFUSED(ibv_import_pd(context, mr->handle), EINVAL);
	domain = ibv_import_pd(context, pd->handle);
	assert_non_null(domain);
	REFUSED(ibv_import_mr(domain, pd->handle), EINVAL);
	region = ibv_import_mr(domain, mr->handle);
	assert_non_null(region);
	assert_int_equal(region->rkey, mr->rkey);
	assert_int_equal(ibv_dereg_mr(mr), EBUSY);
	ibv_unimport_mr(region);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	ibv_unimport_pd(domain);
	assert_int_equal(ibv_close_device(context), 0);
	errno = 0;
	assert_int_equal(ibv_close_device(ctx), -1); /* its PD lives */
	assert_int_equal(errno, EBUSY);
}

/* --- creation ---------------------------------------------------------------------- */

static void test_illegal_cqs(void **state)
{
	struct ibv_cq_init_attr_ex attr;

	(void)state;
#define REFUSE_CQ(ERR, ...)                                                    \
	do {                                                                   \
		attr = cq_attr();                                              \
		__VA_ARGS__;                                                   \
		REFUSED(ibv_create_cq_ex(ctx, &attr), ERR);                    \
	} while (0)
	REFUSE_CQ(EINVAL, attr.cqe = 0);
	REFUSE_CQ(EINVAL, attr.cqe = (1 << 20) + 1);
	REFUSE_CQ(EINVAL, attr.comp_vector = 1);
	REFUSE_CQ(EOPNOTSUPP, attr.wc_flags |= IBV_WC_EX_WITH_TM_INFO);
	REFUSE_CQ(EOPNOTSUPP, attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD << 1);
	REFUSE_CQ(EINVAL, attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD);
	REFUSE_CQ(EINVAL, attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
		  attr.parent_domain = pd);
	REFUSE_CQ(EOPNOTSUPP, attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
		  attr.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN);
}

static void test_illegal_qps(void **state)
{
	struct pair p;
	struct ibv_qp_init_attr_ex attr;

	(void)state;
	open_pair(&p);
#define REFUSE_QP(ERR, ...)                                                    \
	do {                                                                   \
		attr = qp_attr(&p);                                            \
		__VA_ARGS__;                                                   \
		REFUSED(ibv_create_qp_ex(ctx, &attr), ERR);                    \
	} while (0)
	REFUSE_QP(EINVAL, attr.comp_mask = 0);
	REFUSE_QP(EINVAL, attr.pd = NULL);
	REFUSE_QP(EINVAL, attr.cap.max_send_wr = 4097);
	REFUSE_QP(EOPNOTSUPP, attr.qp_type = IBV_QPT_RAW_PACKET);
	REFUSE_QP(EOPNOTSUPP, attr.comp_mask |= IBV_QP_INIT_ATTR_XRCD);
	REFUSE_QP(EOPNOTSUPP, attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
		  attr.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB);
	REFUSE_QP(EOPNOTSUPP, attr.send_ops_flags |= IBV_QP_EX_WITH_BIND_MW);
	close_pair(&p);
}

static void test_qp_without_operations(void **state)
{
	struct pair p;
	struct ibv_qp_init_attr_ex attr;
	struct ibv_qp *qp;

	(void)state;
	open_pair(&p);
	attr = qp_attr(&p);
	attr.comp_mask = IBV_QP_INIT_ATTR_PD;
	qp = ibv_create_qp_ex(ctx, &attr);
	assert_non_null(qp);
	REFUSED(ibv_qp_to_qp_ex(qp), EOPNOTSUPP);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	close_pair(&p);
}

static void refuse_domain(struct ibv_parent_domain_init_attr attr, int err)
{
	REFUSED(ibv_alloc_parent_domain(ctx, &attr), err);
}

static void test_parent_domains(void **state)
{
	struct ibv_td_init_attr init = { 0 }, later = { .comp_mask = 1 };
	struct ibv_td *td = ibv_alloc_td(ctx, &init);
	struct ibv_parent_domain_init_attr attr = { .pd = pd, .td = td };
	struct ibv_cq_init_attr_ex cq = cq_attr();
	struct ibv_pd *domain = ibv_alloc_parent_domain(ctx, &attr);
	struct ibv_pd *bare = pd;
	struct ibv_cq_ex *made;
	struct pair p;

	(void)state;
	assert_non_null(td);
	assert_non_null(domain);
	REFUSED(ibv_alloc_td(ctx, &later), EOPNOTSUPP);
	refuse_domain((struct ibv_parent_domain_init_attr){ 0 }, EINVAL);
	refuse_domain((struct ibv_parent_domain_init_attr){ .pd = domain },
		      EINVAL);
	refuse_domain(
		(struct ibv_parent_domain_init_attr){
			.pd = pd,
			.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS },
		EINVAL); /* there are none */
	refuse_domain((struct ibv_parent_domain_init_attr){ .pd = pd,
							    .comp_mask = 4 },
		      EOPNOTSUPP);
	cq.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
	cq.parent_domain = domain;
	made = ibv_create_cq_ex(ctx, &cq);
	assert_non_null(made);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(made)), 0);
	pd = domain; /* it stands for its PD */
	open_pair(&p);
	connect_pair(&p);
	ibv_wr_abort(ibv_qp_to_qp_ex(p.qp[0]));
	assert_int_equal(ibv_dealloc_pd(domain), EBUSY);
	close_pair(&p);
	pd = bare;
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_dealloc_td(td), EBUSY);
	assert_int_equal(ibv_dealloc_pd(domain), 0);
	assert_int_equal(ibv_dealloc_td(td), 0);
}

/* An allocator of a parent domain: its answer, and the memory that it has given. */
struct heap {
	enum { OWN, DEFAULT, NONE } answer;
	int live; /* buffers */
};

static void *give(struct ibv_pd *domain, void *context, size_t size,
		  size_t alignment, uint64_t resource_type)
{
	struct heap *h = context;
	void *bytes;

	assert_ptr_not_equal(domain, pd);
	assert_int_equal(resource_type >> 32, 0); /* RDMA_DRIVER_UNKNOWN */
	if (h->answer != OWN)
		return h->answer == DEFAULT ? IBV_ALLOCATOR_USE_DEFAULT : NULL;
	assert_int_equal(posix_memalign(&bytes, alignment, size), 0);
	memset(bytes, 0, size);
	h->live++;
	return bytes;
}

static void take_back(struct ibv_pd *domain, void *context, void *bytes,
		      uint64_t resource_type)
{
	struct heap *h = context;

	assert_ptr_not_equal(domain, pd);
	assert_int_equal(resource_type >> 32, 0);
	h->live--;
	free(bytes);
}

static void test_allocators(void **state)
{
	struct heap heap = { .answer = NONE };
	struct ibv_parent_domain_init_attr attr = {
		.pd = pd,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			     IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
		.alloc = give,
		.free = take_back,
		.pd_context = &heap,
	};
	struct ibv_pd *domain = ibv_alloc_parent_domain(ctx, &attr);
	struct ibv_qp_init_attr_ex init;
	struct ibv_qp *qp;
	struct pair p;

	(void)state;
	assert_non_null(domain);
	open_pair(&p);
	init = qp_attr(&p);
	init.pd = domain;
	REFUSED(ibv_create_qp_ex(ctx, &init), ENOMEM);
	heap.answer = OWN;
	qp = ibv_create_qp_ex(ctx, &init);
	assert_non_null(qp);
	assert_true(heap.live > 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(heap.live, 0);
	heap.answer = DEFAULT;
	qp = ibv_create_qp_ex(ctx, &init);
	assert_non_null(qp);
	assert_int_equal(heap.live, 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(heap.live, 0);
	assert_int_equal(ibv_dealloc_pd(domain), 0);
	close_pair(&p);
}

/* --- batches. In the state ERR requests are accepted and flushed ----------------------- */

static int none_completed(const struct pair *p)
{
	struct ibv_wc wc;

	return ibv_poll_cq(ibv_cq_ex_to_cq(p->cq), 1, &wc) == 0;
}

#define REFUSE_BATCH(ERR, ...)                                                 \
	do {                                                                   \
		ibv_wr_start(ex);                                              \
		ibv_wr_send(ex);                                               \
		__VA_ARGS__;                                                   \
		assert_int_equal(ibv_wr_complete(ex), ERR);                    \
		assert_true(none_completed(&p));                               \
	} while (0)

static void test_batches_that_fail(void **state)
{
	const struct ibv_sge sges[2] = { { 0 } };
	struct ibv_qp_ex *ex;
	struct pair p;

	(void)state;
	open_pair(&p);
	ex = ibv_qp_to_qp_ex(p.qp[0]);
	REFUSE_BATCH(EINVAL, (void)0); /* INIT */
	assert_int_equal(to(p.qp[0], IBV_QPS_ERR), 0);
	REFUSE_BATCH(EINVAL, ibv_wr_start(ex));
	REFUSE_BATCH(EINVAL, ibv_wr_set_sge_list(ex, 2, sges));
	REFUSE_BATCH(EINVAL, ibv_wr_set_inline_data(ex, memory, LONG));
	REFUSE_BATCH(EMSGSIZE, ibv_wr_set_sge(ex, 0, 0, (1U << 30) + 1));
	REFUSE_BATCH(EINVAL, ibv_wr_atomic_fetch_add(ex, 0, 0, 1));
	REFUSE_BATCH(EINVAL, ibv_wr_atomic_fetch_add(ex, 0, 0, 1);
		     ibv_wr_set_sge(ex, 0, 0, 4));
	REFUSE_BATCH(EINVAL, ibv_wr_rdma_read(ex, 0, 0);
		     ibv_wr_set_inline_data(ex, memory, 8));
	REFUSE_BATCH(EOPNOTSUPP, ibv_wr_local_inv(ex, 1));
	REFUSE_BATCH(EOPNOTSUPP, ibv_wr_send_inv(ex, 1));
	REFUSE_BATCH(EOPNOTSUPP, ibv_wr_bind_mw(ex, NULL, 1, NULL));
	REFUSE_BATCH(EOPNOTSUPP, ibv_wr_send_tso(ex, memory, 8, 8));
	REFUSE_BATCH(EOPNOTSUPP, ibv_wr_set_ud_addr(ex, NULL, 1, 1));
	REFUSE_BATCH(EOPNOTSUPP, ibv_wr_set_xrc_srqn(ex, 1));
	REFUSE_BATCH(EINVAL, ibv_wr_atomic_write(ex, 1, 4, memory));
	REFUSE_BATCH(EINVAL, ibv_wr_atomic_write(ex, 1, 8, memory);
		     ibv_wr_set_inline_data(ex, memory, 7));
	/* The first error counts. */
	REFUSE_BATCH(EOPNOTSUPP, ibv_wr_local_inv(ex, 1);
		     ibv_wr_set_inline_data(ex, memory, LONG));
	close_pair(&p);
}

static void test_batch_without_beginning(void **state)
{
	struct ibv_qp_ex *ex;
	struct pair p;

	(void)state;
	open_pair(&p);
	ex = ibv_qp_to_qp_ex(p.qp[0]);
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
	ibv_wr_abort(ex);
	ibv_wr_start(ex);
	ibv_wr_set_sge(ex, 0, 0, 8); /* of no request */
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
	ibv_wr_start(ex);
	ibv_wr_set_inline_data(ex, memory, 8);
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
	ibv_wr_start(ex);
	assert_int_equal(ibv_wr_complete(ex), 0); /* no requests */
	close_pair(&p);
}

static void build(struct ibv_qp_ex *ex, uint64_t n)
{
	ibv_wr_start(ex);
	for (uint64_t i = 1; i <= n; i++) {
		ex->wr_id = i;
		ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_send(ex);
	}
}

static void test_batch_is_posted_as_a_whole(void **state)
{
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_qp_ex *ex;
	struct pair p;

	(void)state;
	open_pair(&p);
	ex = ibv_qp_to_qp_ex(p.qp[0]);
	assert_int_equal(to(p.qp[0], IBV_QPS_ERR), 0);
	build(ex, DEPTH);
	ibv_wr_abort(ex);
	build(ex, DEPTH + 1);
	assert_int_equal(ibv_wr_complete(ex), ENOMEM);
	build(ex, 1);
	assert_int_equal(ibv_wr_complete(ex), 0);
	build(ex, DEPTH); /* there is room for one less */
	assert_int_equal(ibv_wr_complete(ex), ENOMEM);
	assert_int_equal(ibv_start_poll(p.cq, &attr), 0);
	assert_int_equal(p.cq->status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(ibv_next_poll(p.cq), ENOENT);
	ibv_end_poll(p.cq);
	build(ex, DEPTH);
	assert_int_equal(ibv_wr_complete(ex), 0);
	for (uint64_t i = 1; i <= DEPTH; i++) {
		assert_int_equal(i == 1 ? ibv_start_poll(p.cq, &attr)
					: ibv_next_poll(p.cq),
				 0);
		assert_int_equal(p.cq->wr_id, i);
	}
	ibv_end_poll(p.cq);
	close_pair(&p);
}

static void test_long_batch(void **state)
{
	enum { MANY = 100 };
	struct pair p;
	struct ibv_qp_init_attr_ex attr;
	struct ibv_wc wc[MANY];
	struct ibv_qp *qp;

	(void)state;
	open_pair(&p);
	attr = qp_attr(&p);
	attr.cap.max_send_wr = MANY;
	qp = ibv_create_qp_ex(ctx, &attr);
	assert_non_null(qp);
	assert_int_equal(to(qp, IBV_QPS_ERR), 0);
	build(ibv_qp_to_qp_ex(qp), MANY);
	assert_int_equal(ibv_wr_complete(ibv_qp_to_qp_ex(qp)), 0);
	assert_int_equal(ibv_poll_cq(ibv_cq_ex_to_cq(p.cq), MANY, wc), MANY);
	for (int i = 0; i < MANY; i++)
		assert_int_equal(wc[i].wr_id, i + 1);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	close_pair(&p);
}

/* --- the CQ --------------------------------------------------------------------------- */

static void test_polling(void **state)
{
	struct ibv_poll_cq_attr attr = { 0 }, later = { .comp_mask = 1 };
	struct ibv_cq *cq;
	struct pair p;

	(void)state;
	open_pair(&p);
	cq = ibv_cq_ex_to_cq(p.cq);
	assert_int_equal(ibv_start_poll(p.cq, &later), EINVAL);
	assert_int_equal(ibv_start_poll(p.cq, &attr), ENOENT);
	ibv_end_poll(p.cq); /* of nothing */
	assert_int_equal(to(p.qp[0], IBV_QPS_ERR), 0);
	build(ibv_qp_to_qp_ex(p.qp[0]), DEPTH);
	assert_int_equal(ibv_wr_complete(ibv_qp_to_qp_ex(p.qp[0])), 0);
	assert_int_equal(ibv_start_poll(p.cq, &attr), 0);
	assert_int_equal(ibv_start_poll(p.cq, &attr), EINVAL);
	assert_int_equal(p.cq->wr_id, 1);
	assert_int_equal(ibv_wc_read_qp_num(p.cq), p.qp[0]->qp_num);
	ibv_end_poll(p.cq);
	/* 3 completions are left. */
	assert_int_equal(ibv_resize_cq(cq, DEPTH - 2), EINVAL);
	assert_int_equal(ibv_resize_cq(cq, 0), EINVAL);
	assert_int_equal(ibv_resize_cq(cq, (1 << 20) + 1), EINVAL);
	assert_int_equal(ibv_resize_cq(cq, DEPTH - 1), 0);
	assert_int_equal(cq->cqe, DEPTH - 1);
	close_pair(&p);
}

static uint64_t device_clock(void)
{
	struct ibv_values_ex now = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };

	assert_int_equal(ibv_query_rt_values_ex(ctx, &now), 0);
	return (uint64_t)now.raw_clock.tv_nsec;
}

/* A CQ with these fields gets DEPTH completions, one of which is current then. */
static void fill(struct pair *p, uint64_t fields)
{
	struct ibv_cq_init_attr_ex attr = cq_attr();
	struct ibv_qp_init_attr_ex init;
	struct ibv_poll_cq_attr poll = { 0 };
	struct ibv_cq *other;
	struct ibv_wc wc;

	attr.wc_flags |= fields;
	p->cq = ibv_create_cq_ex(ctx, &attr);
	assert_non_null(p->cq);
	other = ibv_create_cq(ctx, 1, NULL, NULL, 0);
	assert_non_null(other);
	init = qp_attr(p);
	p->qp[0] = ibv_create_qp_ex(ctx, &init);
	assert_non_null(p->qp[0]);
	assert_int_equal(to_init(p->qp[0]), 0);
	assert_int_equal(to(p->qp[0], IBV_QPS_ERR), 0);
	build(ibv_qp_to_qp_ex(p->qp[0]), DEPTH);
	assert_int_equal(ibv_wr_complete(ibv_qp_to_qp_ex(p->qp[0])), 0);
	/* The poll of any CQ takes them from the leg. */
	assert_int_equal(ibv_poll_cq(other, 1, &wc), 0);
	assert_int_equal(ibv_destroy_cq(other), 0);
	p->before = device_clock();
	assert_int_equal(ibv_start_poll(p->cq, &poll), 0);
}

static void empty(struct pair *p)
{
	ibv_end_poll(p->cq);
	assert_int_equal(ibv_destroy_qp(p->qp[0]), 0);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(p->cq)), 0);
}

static void test_time_stamps(void **state)
{
	const uint64_t begin = device_clock();
	const uint64_t wall = (uint64_t)time(NULL) * NS_PER_S;
	uint64_t last = begin;
	struct pair p;

	(void)state;
	fill(&p, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			 IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
	for (int i = 0; i < DEPTH; i++) {
		const uint64_t stamp = ibv_wc_read_completion_ts(p.cq);
		const uint64_t at = ibv_wc_read_completion_wallclock_ns(p.cq);

		assert_true(stamp >= last);
		assert_true(stamp <= p.before); /* not of this poll */
		assert_true(at - wall < HOUR_NS);
		last = stamp;
		assert_int_equal(ibv_next_poll(p.cq),
				 i < DEPTH - 1 ? 0 : ENOENT);
	}
	empty(&p);
	fill(&p, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
	assert_true(ibv_wc_read_completion_wallclock_ns(p.cq) - wall < HOUR_NS);
	empty(&p);
	fill(&p, 0);
	assert_int_equal(ibv_wc_read_completion_ts(p.cq), 0);
	assert_int_equal(ibv_wc_read_completion_wallclock_ns(p.cq), 0);
	empty(&p);
}

/* Fills the send CQ of a QP in ERR, whose completions are taken by polls of the
 * other CQ. */
static void flush_into(struct ibv_qp *qp, int rounds)
{
	struct ibv_wc wc;

	for (int i = 0; i < rounds; i++) {
		build(ibv_qp_to_qp_ex(qp), DEPTH);
		assert_int_equal(ibv_wr_complete(ibv_qp_to_qp_ex(qp)), 0);
		assert_int_equal(ibv_poll_cq(qp->recv_cq, 1, &wc), 0);
	}
}

static void test_overrun(void **state)
{
	enum { ROUNDS = 3, CQE = ROUNDS * DEPTH };
	struct ibv_cq_init_attr_ex small = { .cqe = CQE };
	struct ibv_qp_init_attr_ex attr;
	struct ibv_async_event event;
	struct ibv_wc wc[CQE + 1];
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct pair p;

	(void)state;
	open_pair(&p);
	cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(ctx, &small));
	attr = qp_attr(&p);
	attr.send_cq = cq;
	qp = ibv_create_qp_ex(ctx, &attr);
	assert_non_null(qp);
	assert_int_equal(to(qp, IBV_QPS_ERR), 0);
	/* A CQ has room for all that the program asked for, and for no more. */
	flush_into(qp, ROUNDS);
	assert_int_equal(ibv_poll_cq(cq, CQE + 1, wc), CQE);
	for (int i = 0; i < CQE; i++)
		assert_int_equal(wc[i].wr_id, 1 + i % DEPTH);
	flush_into(qp, ROUNDS + 1);
	assert_int_equal(ibv_get_async_event(ctx, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_CQ_ERR);
	assert_ptr_equal(event.element.cq, cq);
	ibv_ack_async_event(&event);
	assert_int_equal(ibv_poll_cq(cq, CQE + 1, wc), CQE);
	assert_int_equal(ibv_resize_cq(cq, CQE + DEPTH), 0);
	flush_into(qp, ROUNDS + 1);
	assert_int_equal(ibv_poll_cq(cq, CQE + 1, wc), CQE + 1);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	close_pair(&p);
}

static void *poll_once(void *cq)
{
	struct ibv_poll_cq_attr attr = { 0 };

	if (ibv_start_poll(cq, &attr))
		return NULL;
	ibv_end_poll(cq);
	return cq;
}

static void test_polling_locks_the_cq(void **state)
{
	struct ibv_poll_cq_attr attr = { 0 };
	struct pair p;
	pthread_t thread;
	void *result;

	(void)state;
	open_pair(&p);
	assert_int_equal(to(p.qp[0], IBV_QPS_ERR), 0);
	build(ibv_qp_to_qp_ex(p.qp[0]), DEPTH);
	assert_int_equal(ibv_wr_complete(ibv_qp_to_qp_ex(p.qp[0])), 0);
	assert_int_equal(ibv_start_poll(p.cq, &attr), 0);
	assert_int_equal(pthread_create(&thread, NULL, poll_once, p.cq), 0);
	for (uint64_t i = 1; i < DEPTH; i++) {
		assert_int_equal(p.cq->wr_id, i); /* not the thread's */
		sched_yield();
		assert_int_equal(ibv_next_poll(p.cq), 0);
	}
	ibv_end_poll(p.cq);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_null(result); /* the CQ was empty when its turn came */
	close_pair(&p);
}

/* --- traffic -------------------------------------------------------------------------- */

static void post_recv(const struct pair *p, uint64_t id)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory + REMOTE,
			       .length = LENGTH - REMOTE,
			       .lkey = p->mr->lkey };
	struct ibv_recv_wr *bad,
		wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };

	assert_int_equal(ibv_post_recv(p->qp[1], &wr, &bad), 0);
}

static struct ibv_qp_ex *begin(const struct pair *p, uint64_t id)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(p->qp[0]);

	ibv_wr_start(ex);
	ex->wr_id = id;
	ex->wr_flags = IBV_SEND_SIGNALED;
	return ex;
}

static void finish(const struct pair *p, uint64_t id, enum ibv_wc_opcode opcode)
{
	assert_int_equal(ibv_wr_complete(ibv_qp_to_qp_ex(p->qp[0])), 0);
	expect(p, id, opcode);
}

static void test_sends(void **state)
{
	char first[] = "in", second[] = "line";
	const struct ibv_data_buf list[] = { { first, 2 },
					     { NULL, 0 },
					     { second, sizeof(second) } };
	struct ibv_qp_ex *ex;
	struct pair p;

	(void)state;
	open_pair(&p);
	connect_pair(&p);
	post_recv(&p, 1);
	ex = begin(&p, 2);
	ibv_wr_send_imm(ex, htonl(IMM));
	ibv_wr_set_inline_data_list(ex, 3, list);
	memset(first, 0, sizeof(first)); /* it was copied */
	assert_int_equal(ibv_wr_complete(ex), 0);
	poll_next(&p, 1);
	assert_int_equal(ibv_wc_read_opcode(p.cq), IBV_WC_RECV);
	assert_int_equal(ibv_wc_read_byte_len(p.cq), 2 + sizeof(second));
	assert_int_equal(ibv_wc_read_wc_flags(p.cq), IBV_WC_WITH_IMM);
	assert_int_equal(ntohl(ibv_wc_read_imm_data(p.cq)), IMM);
	assert_int_equal(ibv_wc_read_qp_num(p.cq), p.qp[1]->qp_num);
	assert_int_equal(ibv_wc_read_vendor_err(p.cq), 0);
	assert_int_equal(ibv_wc_read_src_qp(p.cq), 0);
	assert_int_equal(ibv_wc_read_slid(p.cq), 0);
	assert_int_equal(ibv_wc_read_sl(p.cq), 0);
	assert_int_equal(ibv_wc_read_dlid_path_bits(p.cq), 0);
	ibv_end_poll(p.cq);
	expect(&p, 2, IBV_WC_SEND);
	assert_string_equal(memory + REMOTE, "inline");
	close_pair(&p);
}

static void test_remote_memory(void **state)
{
	const uint64_t there = (uintptr_t)memory + REMOTE;
	uint64_t *here = (void *)memory, *remote = (void *)(memory + REMOTE);
	uint32_t key;
	struct ibv_qp_ex *ex;
	struct pair p;

	(void)state;
	open_pair(&p);
	connect_pair(&p);
	key = p.mr->lkey;
	here[0] = 5;
	ex = begin(&p, 1);
	ibv_wr_rdma_write(ex, key, there);
	ibv_wr_set_sge(ex, key, (uintptr_t)&here[0], 8);
	finish(&p, 1, IBV_WC_RDMA_WRITE);
	assert_int_equal(remote[0], 5);
	ex = begin(&p, 2);
	ibv_wr_atomic_fetch_add(ex, key, there, 2);
	ibv_wr_set_sge(ex, key, (uintptr_t)&here[1], 8);
	finish(&p, 2, IBV_WC_FETCH_ADD);
	assert_int_equal(here[1], 5);
	ex = begin(&p, 3);
	ibv_wr_atomic_cmp_swp(ex, key, there, 7, 9);
	ibv_wr_set_sge(ex, key, (uintptr_t)&here[2], 8);
	finish(&p, 3, IBV_WC_COMP_SWAP);
	assert_int_equal(here[2], 7);
	ex = begin(&p, 4);
	ibv_wr_rdma_read(ex, key, there);
	ibv_wr_set_sge(ex, key, (uintptr_t)&here[3], 8);
	finish(&p, 4, IBV_WC_RDMA_READ);
	assert_int_equal(here[3], 9);
	post_recv(&p, 6);
	ex = begin(&p, 5);
	ex->wr_flags = 0; /* unsignaled */
	ibv_wr_rdma_write_imm(ex, key, there, htonl(IMM));
	assert_int_equal(ibv_wr_complete(ex), 0);
	expect(&p, 6, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_true(none_completed(&p));
	close_pair(&p);
}

static void test_atomic_writes(void **state)
{
	const uint64_t there = (uintptr_t)memory + REMOTE;
	uint64_t *remote = (void *)(memory + REMOTE), value = 5;
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = 8 };
	struct ibv_send_wr *bad, wr = { .wr_id = 2,
					.sg_list = &sge,
					.num_sge = 1,
					.opcode = IBV_WR_ATOMIC_WRITE,
					.send_flags = IBV_SEND_SIGNALED };
	struct ibv_qp_ex *ex;
	struct pair p;

	(void)state;
	open_pair(&p);
	connect_pair(&p);
	ex = begin(&p, 1);
	ibv_wr_atomic_write(ex, p.mr->rkey, there, &value);
	value = 0; /* it was copied */
	finish(&p, 1, IBV_WC_ATOMIC_WRITE);
	assert_int_equal(*remote, 5);
	memory[0] = 6;
	sge.lkey = p.mr->lkey;
	wr.wr.rdma.rkey = p.mr->rkey;
	wr.wr.rdma.remote_addr = there;
	assert_int_equal(ibv_post_send(p.qp[0], &wr, &bad), 0);
	expect(&p, 2, IBV_WC_ATOMIC_WRITE);
	assert_int_equal(*remote, 6);
	wr.wr.rdma.remote_addr++;
	assert_int_equal(ibv_post_send(p.qp[0], &wr, &bad), EINVAL);
	wr.wr.rdma.remote_addr--;
	sge.length = 16;
	assert_int_equal(ibv_post_send(p.qp[0], &wr, &bad), EINVAL);
	close_pair(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_device),
		cmocka_unit_test(test_absent_objects),
		cmocka_unit_test(test_absent_functions),
		cmocka_unit_test(test_imports),
		cmocka_unit_test(test_illegal_cqs),
		cmocka_unit_test(test_illegal_qps),
		cmocka_unit_test(test_qp_without_operations),
		cmocka_unit_test(test_parent_domains),
		cmocka_unit_test(test_allocators),
		cmocka_unit_test(test_batches_that_fail),
		cmocka_unit_test(test_batch_without_beginning),
		cmocka_unit_test(test_batch_is_posted_as_a_whole),
		cmocka_unit_test(test_long_batch),
		cmocka_unit_test(test_polling),
		cmocka_unit_test(test_time_stamps),
		cmocka_unit_test(test_overrun),
		cmocka_unit_test(test_polling_locks_the_cq),
		cmocka_unit_test(test_sends),
		cmocka_unit_test(test_remote_memory),
		cmocka_unit_test(test_atomic_writes),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
