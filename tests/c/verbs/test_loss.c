/* Receives of a QP whose peer is gone (verbs/loss.c). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "verbs/objects.h"
#include "wire/reason.h"

enum { RQ = 4, MOST = 16 };

static struct ibv_wc found[MOST];
static int count;

/* The CQ of the test. */
void verbs_cq_put(struct verbs_cq *cq, const struct ibv_wc *wc)
{
	(void)cq;
	assert_true(count < MOST);
	found[count++] = *wc;
}

static int srq_done, events;

void verbs_srq_done(struct verbs_srq *srq)
{
	(void)srq;
	srq_done++;
}

void verbs_event_put(struct verbs_root *root, struct verbs_event *e,
		     enum ibv_event_type type)
{
	(void)root;
	(void)e;
	assert_int_equal(type, IBV_EVENT_QP_LAST_WQE_REACHED);
	events++;
}

struct subject {
	struct verbs_qp qp;
	uint64_t flushed[RQ];
};

static void begin(struct subject *s)
{
	memset(s, 0, sizeof(*s));
	s->qp.flushed = s->flushed;
	s->qp.rq = s->qp.recvs = RQ;
	s->qp.ibv.state = IBV_QPS_RTS;
	count = srq_done = events = 0;
}

static void completes(struct subject *s, enum ibv_wc_opcode opcode,
		      enum ibv_wc_status status, uint64_t id)
{
	struct ibv_wc wc = { .opcode = opcode, .status = status, .wr_id = id };

	verbs_loss_sort(&s->qp, &wc);
}

/* The worker flushed two receives, and says that the peer closed. */
static void lose(struct subject *s)
{
	completes(s, IBV_WC_RECV, IBV_WC_WR_FLUSH_ERR, 1);
	completes(s, IBV_WC_RECV, IBV_WC_WR_FLUSH_ERR, 2);
	verbs_loss_event(&s->qp, SRDMA_REASON_PEER_CLOSED);
	assert_int_equal(count, 0);
	assert_int_equal(s->qp.ibv.state, IBV_QPS_RTS);
}

/* Of a QP with an SRQ the worker may flush as many receives as the SRQ has. */
static void test_more_flushed_receives_than_places(void **state)
{
	struct subject s;

	(void)state;
	begin(&s);
	for (uint64_t id = 1; id <= RQ + 2; id++)
		completes(&s, IBV_WC_RECV, IBV_WC_WR_FLUSH_ERR, id);
	assert_int_equal(count, RQ + 2);
	for (int i = 0; i < count; i++)
		assert_int_equal(found[i].wr_id, i + 1);
	assert_int_equal(s.qp.ibv.state, IBV_QPS_ERR);
}

static void expect_flushed(const struct subject *s, int from)
{
	assert_int_equal(count, from + 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(found[from + i].status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(found[from + i].opcode, IBV_WC_RECV);
		assert_int_equal(found[from + i].wr_id, 1 + i);
	}
	assert_int_equal(s->qp.recvs, RQ - 2);
	assert_int_equal(s->qp.ibv.state, IBV_QPS_ERR);
}

static void test_receives_wait_for_a_request(void **state)
{
	struct subject s;

	(void)state;
	begin(&s);
	lose(&s);
	completes(&s, IBV_WC_SEND, IBV_WC_WR_FLUSH_ERR, 9);
	assert_int_equal(found[0].status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(found[0].wr_id, 9);
	expect_flushed(&s, 1);
	completes(&s, IBV_WC_SEND, IBV_WC_WR_FLUSH_ERR, 10);
	assert_int_equal(found[3].status, IBV_WC_WR_FLUSH_ERR);
}

static void test_receives_wait_for_the_program(void **state)
{
	struct subject s;

	(void)state;
	begin(&s);
	lose(&s);
	verbs_loss_known(&s.qp); /* ibv_modify_qp() to ERR */
	expect_flushed(&s, 0);
}

static void test_other_errors_flush_at_once(void **state)
{
	struct subject s;

	(void)state;
	begin(&s);
	completes(&s, IBV_WC_RECV, IBV_WC_WR_FLUSH_ERR, 1);
	completes(&s, IBV_WC_RECV, IBV_WC_WR_FLUSH_ERR, 2);
	assert_int_equal(count, 0);
	verbs_loss_event(&s.qp, SRDMA_REASON_BAD_DESCRIPTOR);
	expect_flushed(&s, 0);

	begin(&s);
	completes(&s, IBV_WC_RECV, IBV_WC_LOC_LEN_ERR, 1);
	completes(&s, IBV_WC_RECV, IBV_WC_WR_FLUSH_ERR, 2);
	assert_int_equal(count, 2);
	assert_int_equal(found[0].status, IBV_WC_LOC_LEN_ERR);
}

static void test_failed_request_is_first(void **state)
{
	struct subject s;

	(void)state;
	begin(&s);
	completes(&s, IBV_WC_SEND, IBV_WC_RETRY_EXC_ERR, 9);
	completes(&s, IBV_WC_RECV, IBV_WC_WR_FLUSH_ERR, 1);
	completes(&s, IBV_WC_RECV, IBV_WC_WR_FLUSH_ERR, 2);
	expect_flushed(&s, 1);
	verbs_loss_event(&s.qp, SRDMA_REASON_WIRE_LOST);
	assert_int_equal(count, 3);
}

static void test_success_passes(void **state)
{
	struct subject s;

	(void)state;
	begin(&s);
	completes(&s, IBV_WC_RECV, IBV_WC_SUCCESS, 1);
	completes(&s, IBV_WC_SEND, IBV_WC_SUCCESS, 2);
	assert_int_equal(count, 2);
	assert_int_equal(s.qp.recvs, RQ - 1);
	assert_int_equal(s.qp.ibv.state, IBV_QPS_RTS);
}

static void test_receives_of_an_srq(void **state)
{
	struct verbs_srq srq = { 0 };
	struct verbs_root root = { 0 };
	struct subject s;

	(void)state;
	begin(&s);
	s.qp.ibv.srq = &srq.ibv;
	s.qp.ibv.context = &root.ctx.context;
	completes(&s, IBV_WC_RECV, IBV_WC_SUCCESS, 1);
	assert_int_equal(srq_done, 1);
	assert_int_equal(events, 0);
	completes(&s, IBV_WC_RECV, IBV_WC_WR_FLUSH_ERR, 2);
	assert_int_equal(srq_done, 1);
	verbs_loss_known(&s.qp);
	verbs_loss_known(&s.qp);
	assert_int_equal(srq_done, 2);
	assert_int_equal(events, 1);
	assert_int_equal(s.qp.recvs, RQ); /* of its own queue */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_receives_wait_for_a_request),
		cmocka_unit_test(test_receives_wait_for_the_program),
		cmocka_unit_test(test_other_errors_flush_at_once),
		cmocka_unit_test(test_failed_request_is_first),
		cmocka_unit_test(test_success_passes),
		cmocka_unit_test(test_receives_of_an_srq),
		cmocka_unit_test(test_more_flushed_receives_than_places),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
