/*
 * The leg of end a passes over a link that the test cuts
 * (tests/rxe/inside/test_c_library.py). Each line of the standard input names a
 * step; the same line is the answer when it is done.
 */
#include "tests.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "pair.h"

enum { IDLE_MS = 5000 }; /* two heartbeats */

static void write_once(struct pair *p)
{
	struct srdma_send_wr wr = pair_request(p, SRDMA_WR_RDMA_WRITE, SIZE);

	memset(p->a.memory.addr, 'x', SIZE);
	memset(p->b.memory.addr, 0, SIZE);
	pair_run(p, &wr, SRDMA_WC_RDMA_WRITE);
	assert_memory_equal(p->a.memory.addr, p->b.memory.addr, SIZE);
}

/* Nothing is under way: both ends notice it by their heartbeats. */
static void lose(struct pair *p)
{
	const struct srdma_mr_attr attr = { .length = 100 };
	struct srdma_wc wc = pair_next(&p->a);
	struct srdma_mr *mr;

	assert_int_equal(wc.opcode, SRDMA_WC_QP_EVENT);
	assert_int_equal(wc.vendor_err, SRDMA_REASON_WORKER_GONE);
	assert_int_equal(srdma_alloc_mr(&mr, p->a.pd, &attr), -ENOTCONN);
	wc = pair_next(&p->b);
	assert_int_equal(wc.opcode, SRDMA_WC_QP_EVENT);
	assert_int_equal(wc.vendor_err, SRDMA_REASON_PEER_HOST_GONE);
}

static void open_again(struct pair *p)
{
	struct srdma_pd *pd;

	ok(srdma_alloc_pd(&pd, p->a.device, NULL));
	ok(srdma_dealloc_pd(pd));
}

void test_cut_link(void **state)
{
	struct pair *p = *state;
	char line[16] = "ready\n";
	struct srdma_wc wc;

	do {
		printf("%s", line);
		fflush(stdout);
		if (!fgets(line, sizeof(line), stdin))
			break;
		if (!strcmp(line, "write\n"))
			write_once(p);
		if (!strcmp(line, "idle\n"))
			assert_int_equal(
				srdma_wait_cq(p->a.pd, 1, &wc, IDLE_MS), 0);
		if (!strcmp(line, "lose\n"))
			lose(p);
		if (!strcmp(line, "open\n"))
			open_again(p);
	} while (strcmp(line, "end\n") != 0);
}
