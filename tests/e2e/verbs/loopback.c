/*
 * Two QPs of one program, which are connected to each other over the wire of the
 * worker (docs/run.md 4). tests/e2e/test_run.py starts it by `srdma run`.
 */
#include "connect.h"
#include "device.h"

#include <stdlib.h>

enum { DEPTH = 16, MEMORY = 1 << 20, PARTS = 28 };

static const int all_rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

static union ibv_gid gid;
static struct end ends[2];

static int open_device(void **state)
{
	return setup(state) ? -1 : ibv_query_gid(ctx, 1, 0, &gid);
}

/* --- two ends that are connected ---------------------------------------------- */

static void open_end(struct end *e)
{
	struct ibv_qp_init_attr init = {
		.cap = { DEPTH, DEPTH, PARTS, PARTS, 0 },
		.qp_type = IBV_QPT_RC,
	};

	e->memory = aligned_alloc(4096, MEMORY);
	assert_non_null(e->memory);
	memset(e->memory, 0, MEMORY);
	e->mr = ibv_reg_mr(pd, e->memory, MEMORY, all_rights);
	assert_non_null(e->mr);
	e->cq = ibv_create_cq(ctx, 2 * DEPTH, NULL, NULL, 0);
	assert_non_null(e->cq);
	init.send_cq = init.recv_cq = e->cq;
	e->qp = ibv_create_qp(pd, &init);
	assert_non_null(e->qp);
}

static void close_end(struct end *e)
{
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	assert_int_equal(ibv_destroy_cq(e->cq), 0);
	assert_int_equal(ibv_dereg_mr(e->mr), 0);
	free(e->memory);
}

static void to_init(struct end *e, unsigned rights)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = rights };

	assert_int_equal(ibv_modify_qp(e->qp, &attr,
				       IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					       IBV_QP_PORT |
					       IBV_QP_ACCESS_FLAGS),
			 0);
}

/* rights: of the peer at ends[1]. */
static void connect_ends(unsigned rights)
{
	to_init(&ends[0], (unsigned)all_rights);
	to_init(&ends[1], rights);
	for (int i = 0; i < 2; i++)
		assert_int_equal(
			qp_to_rts(ends[i].qp, &gid, ends[1 - i].qp->qp_num), 0);
}

static int open_ends(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++)
		open_end(&ends[i]);
	return 0;
}

static int close_ends(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++)
		close_end(&ends[i]);
	return 0;
}

/* The next completion of an end. */
static struct ibv_wc next_of(struct end *e)
{
	struct ibv_wc wc;
	int n = 0;

	while (!n)
		n = ibv_poll_cq(e->cq, 1, &wc);
	assert_int_equal(n, 1);
	return wc;
}

static void expect(struct end *e, uint64_t id, enum ibv_wc_status status)
{
	const struct ibv_wc wc = next_of(e);

	assert_int_equal(wc.wr_id, id);
	assert_int_equal(wc.status, status);
}

static int post(struct end *e, struct ibv_send_wr wr)
{
	struct ibv_send_wr *bad;

	wr.send_flags |= IBV_SEND_SIGNALED;
	return ibv_post_send(e->qp, &wr, &bad);
}

static int post_recv(struct end *e, struct ibv_recv_wr wr)
{
	struct ibv_recv_wr *bad;

	return ibv_post_recv(e->qp, &wr, &bad);
}

/* A request of ends[0] for the beginning of the memory of ends[1]. */
static struct ibv_send_wr request(enum ibv_wr_opcode opcode,
				  struct ibv_sge *list, int n)
{
	return (struct ibv_send_wr){
		.wr_id = 1,
		.opcode = opcode,
		.sg_list = list,
		.num_sge = n,
		.wr.rdma = { .remote_addr = (uintptr_t)ends[1].memory,
			     .rkey = ends[1].mr->rkey },
	};
}

/* --- several SGEs ---------------------------------------------------------------- */

/* Cuts len bytes into n parts, apart in the memory of the end. */
static void cut(const struct end *e, struct ibv_sge *list, int n, uint32_t len)
{
	const uint32_t each = len / (uint32_t)n;

	for (int i = 0; i < n; i++) {
		list[i] = (struct ibv_sge){
			.addr = (uintptr_t)e->memory +
				(uint32_t)i * (each + 64 + PARTS),
			.length = i + 1 < n ? each : len - (uint32_t)i * each,
			.lkey = e->mr->lkey,
		};
	}
}

static void fill(const struct ibv_sge *list, int n)
{
	unsigned char value = 1;

	for (int i = 0; i < n; i++)
		for (uint32_t k = 0; k < list[i].length; k++, value += 7)
			((unsigned char *)(uintptr_t)list[i].addr)[k] = value;
}

static void check(const struct ibv_sge *list, int n)
{
	unsigned char value = 1;

	for (int i = 0; i < n; i++)
		for (uint32_t k = 0; k < list[i].length; k++, value += 7)
			assert_int_equal(
				((unsigned char *)(uintptr_t)list[i].addr)[k],
				value);
}

static void test_lists(void **state)
{
	static const uint32_t sizes[] = { 28, 1000, 4096, 100000 };
	struct ibv_sge from[PARTS], to[PARTS], whole;

	(void)state;
	connect_ends((unsigned)all_rights);
	for (unsigned i = 0; i < 4; i++)
		for (int n = 1; n <= PARTS; n += 9) {
			cut(&ends[0], from, n, sizes[i]);
			cut(&ends[1], &whole, 1, sizes[i]);
			memset(ends[1].memory, 0, MEMORY);
			fill(from, n);
			assert_int_equal(
				post(&ends[0],
				     request(IBV_WR_RDMA_WRITE, from, n)),
				0);
			expect(&ends[0], 1, IBV_WC_SUCCESS);
			check(&whole, 1);
			memset(ends[0].memory, 0, MEMORY);
			assert_int_equal(
				post(&ends[0],
				     request(IBV_WR_RDMA_READ, from, n)),
				0);
			expect(&ends[0], 1, IBV_WC_SUCCESS);
			check(from, n);
			cut(&ends[1], to, PARTS + 1 - n, sizes[i]);
			assert_int_equal(
				post_recv(&ends[1],
					  (struct ibv_recv_wr){
						  .wr_id = 2,
						  .sg_list = to,
						  .num_sge = PARTS + 1 - n }),
				0);
			assert_int_equal(
				post(&ends[0], request(IBV_WR_SEND, from, n)),
				0);
			expect(&ends[0], 1, IBV_WC_SUCCESS);
			expect(&ends[1], 2, IBV_WC_SUCCESS);
			check(to, PARTS + 1 - n);
		}
}

/* Inline data of several parts. */
static void test_inline_list(void **state)
{
	struct ibv_sge from[PARTS], whole;
	struct ibv_send_wr wr;

	(void)state;
	connect_ends((unsigned)all_rights);
	cut(&ends[0], from, 5, 448);
	cut(&ends[1], &whole, 1, 448);
	fill(from, 5);
	wr = request(IBV_WR_RDMA_WRITE, from, 5);
	wr.send_flags = IBV_SEND_INLINE;
	for (int i = 0; i < 5; i++)
		from[i].lkey = 0;
	assert_int_equal(post(&ends[0], wr), 0);
	expect(&ends[0], 1, IBV_WC_SUCCESS);
	check(&whole, 1);
	from[4].length++;
	assert_int_equal(post(&ends[0], wr), EMSGSIZE);
}

static void test_refused_lists(void **state)
{
	struct ibv_sge from[PARTS + 1];
	struct ibv_send_wr wr;

	(void)state;
	connect_ends((unsigned)all_rights);
	cut(&ends[0], from, PARTS, 1000);
	from[PARTS] = from[0];
	wr = request(IBV_WR_SEND, from, PARTS + 1);
	assert_int_equal(post(&ends[0], wr), EINVAL);
	wr.num_sge = -1;
	assert_int_equal(post(&ends[0], wr), EINVAL);
	from[0].length = from[1].length = 1u << 30;
	wr.num_sge = 2;
	assert_int_equal(post(&ends[0], wr), EMSGSIZE);
	from[0].length = from[1].length = 4;
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	assert_int_equal(post(&ends[0], wr), EINVAL);
}

/* One SGE of a list names memory that is in no region. */
static void test_list_with_a_wrong_key(void **state)
{
	struct ibv_sge from[3];

	(void)state;
	connect_ends((unsigned)all_rights);
	cut(&ends[0], from, 3, 3000);
	from[2].lkey++;
	assert_int_equal(post(&ends[0], request(IBV_WR_RDMA_WRITE, from, 3)),
			 0);
	expect(&ends[0], 1, IBV_WC_LOC_PROT_ERR);
}

/* --- a region with addresses of its own -------------------------------------------- */

static void test_iova(void **state)
{
	static const uint64_t iovas[] = { 0, 0x7000, 1ull << 63,
					  UINT64_MAX - MEMORY - 7 };
	struct ibv_sge one;
	struct ibv_send_wr wr;
	struct ibv_mr *mr;

	(void)state;
	connect_ends((unsigned)all_rights);
	for (unsigned i = 0; i < 4; i++) {
		mr = ibv_reg_mr_iova(pd, ends[1].memory, MEMORY, iovas[i],
				     all_rights);
		assert_non_null(mr);
		assert_ptr_equal(mr->addr, ends[1].memory);
		cut(&ends[0], &one, 1, 5000);
		fill(&one, 1);
		memset(ends[1].memory, 0, MEMORY);
		wr = request(IBV_WR_RDMA_WRITE, &one, 1);
		wr.wr.rdma.rkey = mr->rkey;
		wr.wr.rdma.remote_addr = iovas[i] + MEMORY - 5000;
		assert_int_equal(post(&ends[0], wr), 0);
		expect(&ends[0], 1, IBV_WC_SUCCESS);
		assert_memory_equal(ends[1].memory + MEMORY - 5000,
				    ends[0].memory, 5000);
		/* The key names the same addresses in own requests. */
		one = (struct ibv_sge){ iovas[i] + MEMORY - 5000, 5000,
					mr->lkey };
		wr = request(IBV_WR_RDMA_READ, &one, 1);
		wr.wr.rdma.rkey = ends[0].mr->rkey;
		wr.wr.rdma.remote_addr = (uintptr_t)ends[0].memory;
		memset(ends[1].memory, 0, MEMORY);
		assert_int_equal(post(&ends[1], wr), 0);
		expect(&ends[1], 1, IBV_WC_SUCCESS);
		assert_memory_equal(ends[1].memory + MEMORY - 5000,
				    ends[0].memory, 5000);
		assert_int_equal(ibv_dereg_mr(mr), 0);
	}
	mr = ibv_reg_mr_iova(pd, ends[1].memory, MEMORY, 0x7000, all_rights);
	wr = request(IBV_WR_RDMA_WRITE, &one, 1);
	cut(&ends[0], &one, 1, 8);
	wr.wr.rdma.rkey = mr->rkey; /* with the address in the process */
	assert_int_equal(post(&ends[0], wr), 0);
	expect(&ends[0], 1, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

/* --- what the peer may do ------------------------------------------------------------ */

static const struct {
	unsigned rights; /* of the QP of ends[1] */
	enum ibv_wr_opcode opcode;
	enum ibv_wc_status status;
} row_of[] = {
	{ 0, IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR },
	{ 0, IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR },
	{ 0, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_REM_ACCESS_ERR },
	{ 0, IBV_WR_SEND, IBV_WC_SUCCESS },
	{ IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR },
	{ IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_READ, IBV_WC_SUCCESS },
	{ IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_WRITE, IBV_WC_SUCCESS },
	{ IBV_ACCESS_REMOTE_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD,
	  IBV_WC_REM_ACCESS_ERR },
	{ IBV_ACCESS_REMOTE_WRITE, IBV_WR_ATOMIC_WRITE, IBV_WC_SUCCESS },
	{ IBV_ACCESS_REMOTE_ATOMIC, IBV_WR_ATOMIC_WRITE,
	  IBV_WC_REM_ACCESS_ERR },
	{ IBV_ACCESS_REMOTE_ATOMIC, IBV_WR_ATOMIC_FETCH_AND_ADD,
	  IBV_WC_SUCCESS },
};

/* All rights of the region do not help where the QP lacks one. */
static void test_rights_of_a_qp(void **state)
{
	(void)state;
	for (unsigned i = 0; i < sizeof(row_of) / sizeof(*row_of); i++) {
		struct ibv_sge one;
		struct ibv_send_wr wr = request(row_of[i].opcode, &one, 1);

		open_ends(NULL);
		cut(&ends[0], &one, 1, 8);
		wr.wr.rdma.remote_addr = (uintptr_t)ends[1].memory;
		wr.wr.rdma.rkey = ends[1].mr->rkey;
		if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			wr.wr.atomic.remote_addr = (uintptr_t)ends[1].memory;
			wr.wr.atomic.rkey = ends[1].mr->rkey;
		}
		connect_ends(row_of[i].rights);
		one.lkey = ends[0].mr->lkey;
		assert_int_equal(
			post_recv(&ends[1], (struct ibv_recv_wr){ .wr_id = 2 }),
			0);
		if (wr.opcode == IBV_WR_SEND)
			wr.num_sge = 0;
		assert_int_equal(post(&ends[0], wr), 0);
		expect(&ends[0], 1, row_of[i].status);
		close_ends(NULL);
	}
}

/* The rights of a QP may change while it works. */
static void test_rights_change(void **state)
{
	struct ibv_qp_attr attr = { .qp_access_flags =
					    IBV_ACCESS_REMOTE_WRITE };
	struct ibv_sge one;

	(void)state;
	connect_ends(0);
	cut(&ends[0], &one, 1, 8);
	assert_int_equal(ibv_modify_qp(ends[1].qp, &attr, IBV_QP_ACCESS_FLAGS),
			 0);
	assert_int_equal(post(&ends[0], request(IBV_WR_RDMA_WRITE, &one, 1)),
			 0);
	expect(&ends[0], 1, IBV_WC_SUCCESS);
	assert_int_equal(post(&ends[0], request(IBV_WR_RDMA_READ, &one, 1)), 0);
	expect(&ends[0], 1, IBV_WC_REM_ACCESS_ERR);
}

/* --- RESET -------------------------------------------------------------------------- */

static void to_reset(struct end *e)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct ibv_qp_init_attr init;
	const uint32_t qp_num = e->qp->qp_num;

	assert_int_equal(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE), 0);
	assert_int_equal(e->qp->qp_num, qp_num);
	assert_int_equal(ibv_query_qp(e->qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RESET);
	assert_int_equal(attr.dest_qp_num, 0);
	assert_int_equal(init.cap.max_send_sge, PARTS);
}

/* A QP that was reset connects again. Earlier requests and receives are gone. */
static void test_reset(void **state)
{
	struct ibv_sge one;
	struct ibv_wc wc;

	(void)state;
	for (int i = 0; i < 3; i++) {
		connect_ends((unsigned)all_rights);
		cut(&ends[0], &one, 1, 100);
		fill(&one, 1);
		assert_int_equal(
			post(&ends[0], request(IBV_WR_RDMA_WRITE, &one, 1)), 0);
		expect(&ends[0], 1, IBV_WC_SUCCESS);
		assert_memory_equal(ends[1].memory, ends[0].memory, 100);
		memset(ends[1].memory, 0, 100);
		for (int k = 0; k < DEPTH; k++)
			assert_int_equal(
				post_recv(&ends[1],
					  (struct ibv_recv_wr){ .wr_id = 9 }),
				0);
		for (int k = 0; k < 2; k++)
			to_reset(&ends[k]);
		assert_int_equal(ibv_poll_cq(ends[0].cq, 1, &wc), 0);
		assert_int_equal(ibv_poll_cq(ends[1].cq, 1, &wc), 0);
		assert_int_equal(post_recv(&ends[1], (struct ibv_recv_wr){ 0 }),
				 EINVAL);
	}
}

/* Requests that were posted before RESET are not executed after it, and one end
 * may be reset before the other one. */
static void test_reset_while_requests_are_posted(void **state)
{
	struct ibv_sge one;
	struct ibv_wc wc;

	(void)state;
	for (int i = 0; i < 20; i++) {
		connect_ends((unsigned)all_rights);
		cut(&ends[0], &one, 1, MEMORY / 2);
		for (int k = 0; k < DEPTH; k++)
			assert_int_equal(
				post(&ends[0],
				     request(IBV_WR_RDMA_WRITE, &one, 1)),
				0);
		to_reset(&ends[i % 2]);
		to_reset(&ends[1 - i % 2]);
		memset(ends[0].memory, 1 + i, MEMORY);
		memset(ends[1].memory, 0, MEMORY);
		connect_ends((unsigned)all_rights);
		cut(&ends[0], &one, 1, 1);
		assert_int_equal(
			post(&ends[0], request(IBV_WR_RDMA_WRITE, &one, 1)), 0);
		expect(&ends[0], 1, IBV_WC_SUCCESS);
		assert_int_equal(ibv_poll_cq(ends[0].cq, 1, &wc), 0);
		assert_int_equal(ends[1].memory[0], 1 + i);
		for (int k = 1; k < MEMORY; k++)
			assert_int_equal(ends[1].memory[k], 0);
		for (int k = 0; k < 2; k++)
			to_reset(&ends[k]);
	}
}

/* A failed QP works again after RESET. */
static void test_reset_after_an_error(void **state)
{
	struct ibv_sge one;

	(void)state;
	connect_ends(0);
	cut(&ends[0], &one, 1, 100);
	assert_int_equal(post(&ends[0], request(IBV_WR_RDMA_WRITE, &one, 1)),
			 0);
	expect(&ends[0], 1, IBV_WC_REM_ACCESS_ERR);
	for (int i = 0; i < 2; i++) {
		to_reset(&ends[i]);
		to_reset(&ends[i]);
	}
	connect_ends((unsigned)all_rights);
	assert_int_equal(post(&ends[0], request(IBV_WR_RDMA_WRITE, &one, 1)),
			 0);
	expect(&ends[0], 1, IBV_WC_SUCCESS);
}

static void refuse_attr(struct ibv_qp_attr attr, int mask)
{
	assert_int_equal(ibv_modify_qp(ends[0].qp, &attr, mask), EINVAL);
}

static void test_illegal_retries(void **state)
{
	(void)state;
	connect_ends(0);
	refuse_attr((struct ibv_qp_attr){ .timeout = 32 }, IBV_QP_TIMEOUT);
	refuse_attr((struct ibv_qp_attr){ .retry_cnt = 8 }, IBV_QP_RETRY_CNT);
	refuse_attr((struct ibv_qp_attr){ .rnr_retry = 8 }, IBV_QP_RNR_RETRY);
}

/* --- regions that are registered again --------------------------------------------- */

/* Writes 100 bytes from ends[0] to ends[1] with the key and address that it has. */
static void write_expecting(uint32_t rkey, enum ibv_wc_status status)
{
	struct ibv_sge one;
	struct ibv_send_wr wr;

	cut(&ends[0], &one, 1, 100);
	wr = request(IBV_WR_RDMA_WRITE, &one, 1);
	wr.wr.rdma.rkey = rkey;
	assert_int_equal(post(&ends[0], wr), 0);
	expect(&ends[0], 1, status);
}

static void reconnect(void)
{
	for (int i = 0; i < 2; i++)
		to_reset(&ends[i]);
	connect_ends((unsigned)all_rights);
}

static void test_other_access(void **state)
{
	struct ibv_mr *mr = ends[1].mr;
	const uint32_t rkey = mr->rkey;

	(void)state;
	connect_ends((unsigned)all_rights);
	write_expecting(rkey, IBV_WC_SUCCESS);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL,
				      NULL, 0, IBV_ACCESS_LOCAL_WRITE),
			 0);
	assert_int_equal(mr->rkey, rkey);
	assert_int_equal(mr->lkey, rkey);
	write_expecting(rkey, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL,
				      NULL, 0, all_rights),
			 0);
	reconnect();
	write_expecting(rkey, IBV_WC_SUCCESS);
}

static void test_other_memory(void **state)
{
	struct ibv_mr *mr = ends[1].mr;
	const uint32_t rkey = mr->rkey;
	char *former = ends[1].memory, *other = aligned_alloc(4096, MEMORY);

	(void)state;
	assert_non_null(other);
	memset(other, 0, MEMORY);
	memset(ends[0].memory, 5, MEMORY);
	connect_ends((unsigned)all_rights);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
				      other, MEMORY / 2, 0),
			 0);
	assert_ptr_equal(mr->addr, other);
	assert_int_equal(mr->length, MEMORY / 2);
	/* The key names the other memory now, and no byte of the former. */
	write_expecting(rkey, IBV_WC_REM_ACCESS_ERR);
	reconnect();
	ends[1].memory = other;
	write_expecting(rkey, IBV_WC_SUCCESS);
	assert_int_equal(other[99], 5);
	assert_int_equal(former[0], 0);
	free(former);
}

static void test_other_pd(void **state)
{
	struct ibv_mr *mr = ends[1].mr;
	struct ibv_pd *other = ibv_alloc_pd(ctx);

	(void)state;
	assert_non_null(other);
	connect_ends((unsigned)all_rights);
	assert_int_equal(
		ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0), 0);
	assert_ptr_equal(mr->pd, other);
	assert_int_equal(ibv_dealloc_pd(other), EBUSY);
	write_expecting(mr->rkey, IBV_WC_REM_ACCESS_ERR);
	reconnect();
	assert_int_equal(
		ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0), 0);
	write_expecting(mr->rkey, IBV_WC_SUCCESS);
	assert_int_equal(ibv_dealloc_pd(other), 0);
}

static void test_illegal_changes(void **state)
{
	static const struct {
		int flags, has_pd, has_addr, access, err;
	} rows[] = {
		{ 0, 0, 0, 0, EINVAL },
		{ 8, 0, 0, 0, EINVAL },
		{ IBV_REREG_MR_CHANGE_PD, 0, 0, 0, EINVAL },
		{ IBV_REREG_MR_CHANGE_TRANSLATION, 0, 0, 0, EINVAL },
		{ IBV_REREG_MR_CHANGE_ACCESS, 0, 0, IBV_ACCESS_REMOTE_WRITE,
		  EINVAL },
		{ IBV_REREG_MR_CHANGE_ACCESS, 0, 0, IBV_ACCESS_ON_DEMAND,
		  EOPNOTSUPP },
		/* no memory is there */
		{ IBV_REREG_MR_CHANGE_TRANSLATION, 0, 1, 0, EFAULT },
	};
	const uint32_t rkey = ends[1].mr->rkey;

	(void)state;
	connect_ends((unsigned)all_rights);
	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		errno = 0;
		assert_int_equal(
			ibv_rereg_mr(ends[1].mr, rows[i].flags, NULL,
				     rows[i].has_addr ? (void *)4096 : NULL,
				     100, rows[i].access),
			IBV_REREG_MR_ERR_INPUT);
		assert_int_equal(errno, rows[i].err);
	}
	assert_int_equal(ends[1].mr->length, MEMORY);
	write_expecting(rkey, IBV_WC_SUCCESS); /* the region lives on */
}

#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, open_ends, close_ends)

/* An argument is a pattern for the names of the tests to run. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_lists),
		TEST(test_inline_list),
		TEST(test_refused_lists),
		TEST(test_list_with_a_wrong_key),
		TEST(test_iova),
		cmocka_unit_test(test_rights_of_a_qp),
		TEST(test_rights_change),
		TEST(test_other_access),
		TEST(test_other_memory),
		TEST(test_other_pd),
		TEST(test_illegal_changes),
		TEST(test_reset),
		TEST(test_reset_while_requests_are_posted),
		TEST(test_reset_after_an_error),
		TEST(test_illegal_retries),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, open_device, teardown);
}
