#include "tests.h"

#include <errno.h>
#include <string.h>

#include "pair.h"

/* --- operations ---------------------------------------------------------- */

void test_write_and_read(void **state)
{
	struct pair *p = *state;
	struct srdma_send_wr wr = pair_request(p, SRDMA_WR_RDMA_WRITE, SIZE);

	memset(p->a.memory.addr, 'w', SIZE);
	pair_run(p, &wr, SRDMA_WC_RDMA_WRITE);
	assert_memory_equal(p->a.memory.addr, p->b.memory.addr, SIZE);

	memset(p->b.memory.addr, 'r', SIZE);
	wr.opcode = SRDMA_WR_RDMA_READ;
	pair_run(p, &wr, SRDMA_WC_RDMA_READ);
	assert_memory_equal(p->a.memory.addr, p->b.memory.addr, SIZE);
}

void test_inline_write_and_fenced_read(void **state)
{
	struct pair *p = *state;
	char data[SRDMA_INLINE_MAX];
	struct srdma_send_wr read =
		pair_request(p, SRDMA_WR_RDMA_READ, sizeof(data));
	struct srdma_send_wr write =
		pair_request(p, SRDMA_WR_RDMA_WRITE, sizeof(data));

	memset(data, 'i', sizeof(data));
	write.addr = data;
	write.lkey = 0;
	write.flags = SRDMA_SEND_INLINE;
	write.next = &read;
	read.flags = SRDMA_SEND_SIGNALED | SRDMA_SEND_FENCE;
	ok(srdma_post_send(p->a.qp, &write, NULL));
	memset(data, 'x', sizeof(data)); /* it was copied */
	pair_next_ok(&p->a, SRDMA_WC_RDMA_READ);
	memset(data, 'i', sizeof(data));
	assert_memory_equal(p->a.memory.addr, data, sizeof(data));
}

/* Parts of the first `half` bytes of an end's memory, in the reverse order. */
static void cut(const struct end *e, struct srdma_sge *list, uint32_t n,
		uint32_t half)
{
	for (uint32_t i = 0; i < n; i++)
		list[i] = (struct srdma_sge){
			.addr = (uintptr_t)e->memory.addr + (n - 1 - i) * half,
			.length = half,
			.lkey = e->memory.key,
		};
}

void test_lists(void **state)
{
	struct pair *p = *state;
	struct srdma_sge from[SRDMA_SGE_MAX], to[2];
	struct srdma_send_wr wr = pair_request(p, SRDMA_WR_SEND, 6);
	struct srdma_recv_wr receive = { .sg_list = to, .num_sge = 2 };

	cut(&p->a, from, 3, 2);
	cut(&p->b, to, 2, 3);
	wr.addr = NULL;
	wr.sg_list = from;
	wr.num_sge = 3;
	memcpy(p->a.memory.addr, "efcdab", 6);
	ok(srdma_post_recv(p->b.qp, &receive, NULL));
	pair_run(p, &wr, SRDMA_WC_SEND);
	pair_next_ok(&p->b, SRDMA_WC_RECV);
	assert_memory_equal(p->b.memory.addr, "defabc", 6);

	wr.flags |= SRDMA_SEND_INLINE;
	wr.opcode = SRDMA_WR_RDMA_WRITE;
	pair_run(p, &wr, SRDMA_WC_RDMA_WRITE);
	assert_memory_equal(p->b.memory.addr, "abcdef", 6);

	wr.flags = SRDMA_SEND_SIGNALED;
	wr.opcode = SRDMA_WR_RDMA_READ;
	cut(&p->a, from, SRDMA_SGE_MAX, 3);
	from[2].length = 0;
	wr.num_sge = SRDMA_SGE_MAX;
	wr.length = (SRDMA_SGE_MAX - 1) * 3;
	pair_run(p, &wr, SRDMA_WC_RDMA_READ);
	assert_memory_equal((void *)(uintptr_t)from[0].addr, "abc", 3);
	assert_memory_equal((void *)(uintptr_t)from[1].addr, "def", 3);
}

void test_messages(void **state)
{
	struct pair *p = *state;
	struct srdma_send_wr wr = pair_request(p, SRDMA_WR_SEND, 5);
	struct srdma_wc wc;

	pair_post_receive(&p->b, 1, 100);
	memcpy(p->a.memory.addr, "hello", 5);
	pair_run(p, &wr, SRDMA_WC_SEND);
	wc = pair_next_ok(&p->b, SRDMA_WC_RECV);
	assert_int_equal(wc.wr_id, 1);
	assert_int_equal(wc.byte_len, 5);
	assert_int_equal(wc.wc_flags, 0);
	assert_memory_equal(p->b.memory.addr, "hello", 5);

	pair_post_receive(&p->b, 2, 100);
	wr.opcode = SRDMA_WR_SEND_WITH_IMM;
	wr.imm_data = 0x01020304;
	wr.length = 0;
	wr.addr = NULL;
	wr.flags |= SRDMA_SEND_INLINE;
	pair_run(p, &wr, SRDMA_WC_SEND);
	wc = pair_next_ok(&p->b, SRDMA_WC_RECV);
	assert_int_equal(wc.wc_flags, SRDMA_WC_WITH_IMM);
	assert_int_equal(wc.imm_data, 0x01020304);
	assert_int_equal(wc.byte_len, 0);
}

void test_write_with_immediate_data(void **state)
{
	struct pair *p = *state;
	struct srdma_send_wr wr =
		pair_request(p, SRDMA_WR_RDMA_WRITE_WITH_IMM, 10);
	struct srdma_wc wc;

	pair_post_receive(&p->b, 3, 0);
	wr.imm_data = 9;
	pair_run(p, &wr, SRDMA_WC_RDMA_WRITE);
	wc = pair_next_ok(&p->b, SRDMA_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.imm_data, 9);
	assert_int_equal(wc.byte_len, 10);
}

void test_atomics(void **state)
{
	struct pair *p = *state;
	struct srdma_send_wr wr =
		pair_request(p, SRDMA_WR_ATOMIC_FETCH_AND_ADD, 8);
	uint64_t *number = p->b.memory.addr, *old = p->a.memory.addr;

	*number = 40;
	wr.compare_add = 2;
	pair_run(p, &wr, SRDMA_WC_FETCH_ADD);
	assert_int_equal(*old, 40);
	assert_int_equal(*number, 42);

	wr.opcode = SRDMA_WR_ATOMIC_CMP_AND_SWP;
	wr.compare_add = 42;
	wr.swap = 1000;
	pair_run(p, &wr, SRDMA_WC_COMP_SWAP);
	assert_int_equal(*old, 42);
	assert_int_equal(*number, 1000);
	pair_run(p, &wr,
		 SRDMA_WC_COMP_SWAP); /* it does not compare equal now */
	assert_int_equal(*old, 1000);
	assert_int_equal(*number, 1000);
}

/* Where the bytes come from does not matter: a region, or a copy. */
void test_atomic_writes(void **state)
{
	struct pair *p = *state;
	struct srdma_send_wr wr = pair_request(p, SRDMA_WR_ATOMIC_WRITE, 8);
	uint64_t *from = p->a.memory.addr, *number = p->b.memory.addr;

	*from = 0x0102030405060708;
	pair_run(p, &wr, SRDMA_WC_ATOMIC_WRITE);
	assert_true(*number == *from);
	*from = 9;
	wr.flags |= SRDMA_SEND_INLINE;
	wr.remote_addr += 8;
	pair_run(p, &wr, SRDMA_WC_ATOMIC_WRITE);
	assert_int_equal(number[1], 9);
	wr.remote_addr += 4;
	assert_int_equal(srdma_post_send(p->a.qp, &wr, NULL), -EINVAL);
}

void test_existing_memory(void **state)
{
	struct pair *p = *state;
	char data[100] = "of this process";
	const struct srdma_mr_attr attr = { .addr = data,
					    .length = sizeof(data) };
	struct srdma_send_wr wr =
		pair_request(p, SRDMA_WR_RDMA_WRITE, sizeof(data));
	struct srdma_mr_info info;
	struct srdma_mr *mr;

	ok(srdma_reg_mr(&mr, p->a.pd, &attr));
	srdma_query_mr(mr, &info);
	assert_ptr_equal(info.addr, data);
	wr.addr = data;
	wr.lkey = info.key;
	pair_run(p, &wr, SRDMA_WC_RDMA_WRITE);
	assert_string_equal(p->b.memory.addr, data);
	ok(srdma_dereg_mr(mr));
}

/* Memory of b that held other bytes before is freed; what b allocates then has
 * zeros only, for a too. */
/* RFC 5042 R6.3.2-1, RA-2, A6.3.2 */
void test_fresh_memory(void **state)
{
	static const char zeros[SIZE];
	struct pair *p = *state;
	const struct srdma_mr_attr attr = {
		.length = SIZE,
		.access = SRDMA_ACCESS_REMOTE_READ,
		.whole_pd = 1,
	};
	struct srdma_send_wr wr = pair_request(p, SRDMA_WR_RDMA_READ, SIZE);
	struct srdma_mr_info info;
	struct srdma_mr *mr;

	for (int i = 0; i < pair_count(8); i++) {
		ok(srdma_alloc_mr(&mr, p->b.pd, &attr));
		srdma_query_mr(mr, &info);
		memset(p->a.memory.addr, 0xaa, SIZE);
		wr.remote_addr = (uintptr_t)info.addr;
		wr.rkey = info.key;
		pair_run(p, &wr, SRDMA_WC_RDMA_READ);
		assert_memory_equal(p->a.memory.addr, zeros, SIZE);
		memset(info.addr, 0x55, SIZE);
		ok(srdma_dereg_mr(mr));
	}
}

/* More requests than places in the ring of the leg and in the queue. */
void test_many_requests(void **state)
{
	struct pair *p = *state;
	struct srdma_send_wr wr = pair_request(p, SRDMA_WR_RDMA_WRITE, 8);
	struct srdma_wc wcs[DEPTH];
	const uint64_t count = (uint64_t)pair_count(20000);
	uint64_t posted = 0, done = 0;

	while (done < count) {
		int rc = 0, n;

		while (posted < count && !rc) {
			wr.wr_id = posted;
			rc = srdma_post_send(p->a.qp, &wr, NULL);
			posted += !rc;
		}
		assert_true(!rc || rc == -EAGAIN);
		n = srdma_wait_cq(p->a.pd, DEPTH, wcs, WAIT_MS);
		assert_true(n > 0);
		for (int i = 0; i < n; i++) {
			assert_int_equal(wcs[i].status, SRDMA_WC_SUCCESS);
			assert_int_equal(wcs[i].wr_id, done++);
		}
	}
}

/* --- waiting ------------------------------------------------------------- */

void test_notification(void **state)
{
	struct pair *p = *state;
	const int fd = srdma_cq_fd(p->b.pd);
	struct srdma_send_wr wr = pair_request(p, SRDMA_WR_SEND, 1);
	struct srdma_wc wc;

	assert_int_equal(srdma_poll_cq(p->b.pd, 1, &wc), 0);
	srdma_req_notify_cq(p->b.pd);
	assert_int_equal(srdma_poll_cq(p->b.pd, 1, &wc), 0);
	assert_int_equal(pair_readable(fd, 0), 0);
	pair_post_receive(&p->b, 1, 1);
	pair_run(p, &wr, SRDMA_WC_SEND);
	assert_int_equal(pair_readable(fd, WAIT_MS), 1);
	pair_next_ok(&p->b, SRDMA_WC_RECV);
	assert_int_equal(pair_readable(fd, 0), 0);
}

void test_time_limit_of_a_wait(void **state)
{
	struct pair *p = *state;
	struct srdma_wc wc;

	assert_int_equal(srdma_wait_cq(p->a.pd, 1, &wc, 10), 0);
	assert_int_equal(srdma_poll_cq(p->a.pd, -1, &wc), -EINVAL);
	assert_int_equal(srdma_poll_cq(p->a.pd, 0, &wc), 0);
}
