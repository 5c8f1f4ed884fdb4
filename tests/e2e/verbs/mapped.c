/*
 * Memory of regions that the worker maps (docs/run.md 4.2).
 * tests/e2e/test_run.py starts it by `srdma run`, with map_memory = true.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "open.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { SIZE = 1 << 20, WRITES = 2000 };

/* Mappings of memfds of regions in this process. */
static int count(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	char line[512];
	int n = 0;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		n += strstr(line, "/memfd:srdma-region") != NULL;
	fclose(file);
	return n;
}

static void test_region(void **state)
{
	char *at = aligned_alloc(4096, SIZE);
	struct ibv_mr *mr[3];

	(void)state;
	assert_non_null(at);
	memset(at, 7, SIZE);
	for (int i = 0; i < 2; i++)
		mr[i] = ibv_reg_mr(pd, at, SIZE, IBV_ACCESS_LOCAL_WRITE);
	mr[2] = ibv_reg_mr(pd, at + 1, 10, IBV_ACCESS_REMOTE_READ);
	assert_int_equal(count(), 1);
	for (int i = 0; i < 3; i++) {
		assert_non_null(mr[i]);
		assert_int_equal(count(), 1);
		assert_int_equal(ibv_dereg_mr(mr[i]), 0);
	}
	assert_int_equal(count(), 0);
	for (int i = 0; i < SIZE; i++)
		assert_int_equal(at[i], 7);
	free(at);
}

/* A region that the worker refuses leaves the memory as it was. */
static void test_refused_region(void **state)
{
	char *at = aligned_alloc(4096, SIZE);

	(void)state;
	assert_non_null(at);
	memset(at, 7, SIZE);
	assert_null(ibv_reg_mr_iova(pd, at, SIZE, UINT64_MAX - 8,
				    IBV_ACCESS_LOCAL_WRITE));
	assert_int_equal(count(), 0);
	assert_int_equal(at[SIZE - 1], 7);
	free(at);
}

/* --- 8 bytes at a time ------------------------------------------------------------- */

struct watched {
	_Atomic uint64_t *at;
	atomic_int stop;
	int torn; /* values that no request wrote */
};

static void *watch(void *arg)
{
	struct watched *w = arg;

	while (!atomic_load(&w->stop)) {
		const uint64_t value = atomic_load(w->at);

		w->torn += value != 0 && value != UINT64_MAX;
	}
	return NULL;
}

static struct ibv_qp *make_qp(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = { .send_cq = cq,
					 .recv_cq = cq,
					 .cap = { DEPTH, DEPTH, 1, 1, 0 },
					 .qp_type = IBV_QPT_RC,
					 .sq_sig_all = 1 };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	assert_non_null(qp);
	assert_int_equal(to_init(qp), 0);
	return qp;
}

/* Writes 8 bytes that are all alike, and waits until they are there. */
static void write_all(struct ibv_qp *qp, const struct ibv_mr *mr,
		      unsigned char byte)
{
	struct ibv_sge sge = { (uintptr_t)memory, 8, 0 };
	struct ibv_send_wr *bad,
		wr = { .sg_list = &sge,
		       .num_sge = 1,
		       .opcode = IBV_WR_ATOMIC_WRITE,
		       .send_flags = IBV_SEND_INLINE,
		       .wr.rdma = { (uintptr_t)mr->addr, mr->rkey } };
	struct ibv_wc wc;
	int n;

	memset(memory, byte, 8);
	assert_int_equal(ibv_post_send(qp, &wr, &bad), 0);
	while (!(n = ibv_poll_cq(qp->send_cq, 1, &wc)))
		sched_yield();
	assert_int_equal(n, 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

/* A CPU sees all 8 bytes of an ATOMIC_WRITE or none. */
static void test_atomic_writes(void **state)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 4 * DEPTH, NULL, NULL, 0);
	struct ibv_qp *qp[2] = { make_qp(cq), make_qp(cq) };
	struct watched w = { .at = aligned_alloc(4096, SIZE) };
	struct ibv_mr *mr;
	pthread_t thread;

	(void)state;
	assert_non_null(w.at);
	memset((void *)(uintptr_t)w.at, 0, SIZE);
	mr = ibv_reg_mr(pd, (void *)(uintptr_t)w.at, SIZE,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	assert_non_null(mr);
	assert_int_equal(count(), 1);
	for (int i = 0; i < 2; i++)
		connect_to(qp[i], qp[!i]->qp_num);
	assert_int_equal(pthread_create(&thread, NULL, watch, &w), 0);
	for (int i = 0; i < WRITES; i++)
		write_all(qp[0], mr, i % 2 ? 0 : UINT8_MAX);
	atomic_store(&w.stop, 1);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(w.torn, 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(ibv_destroy_qp(qp[i]), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	free((void *)(uintptr_t)w.at);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_region),
		cmocka_unit_test(test_refused_region),
		cmocka_unit_test(test_atomic_writes),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
