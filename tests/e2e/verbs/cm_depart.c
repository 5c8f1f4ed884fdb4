/*
 * An end that a peer calls, and that leaves the connection first or second (docs/run.md
 * 5). tests/e2e/test_run_cm.py is the peer, and says what it likes.
 *     cm_depart PORT first|second
 */
#include "cm_ends.h"

#include <stdlib.h>

static uint16_t port;
static int first;

static void test_departure(void **state)
{
	struct rdma_conn_param p = { .qp_num = 1 }; /* of no QP */
	struct sockaddr_in at = address("0.0.0.0", port);
	struct rdma_event_channel *c = rdma_create_event_channel();
	struct rdma_cm_id *listener, *id;
	struct rdma_cm_event *e;

	(void)state;
	assert_int_equal(rdma_create_id(c, &listener, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(listener, any(&at)), 0);
	assert_int_equal(rdma_listen(listener, 0), 0);
	e = next(c, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	id = e->id;
	rdma_ack_cm_event(e);
	assert_int_equal(rdma_accept(id, &p), 0);
	expect(c, RDMA_CM_EVENT_ESTABLISHED, 0);
	if (first)
		assert_int_equal(rdma_disconnect(id), 0);
	await_event_for(c, 2 * WAIT_MS);
	expect(c, RDMA_CM_EVENT_DISCONNECTED, 0);
	if (!first)
		assert_int_equal(rdma_disconnect(id), 0);
	assert_int_equal(rdma_destroy_id(id), 0);
	expect_none(c);
	assert_int_equal(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(c);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_departure) };

	if (argc != 3)
		return 2;
	port = (uint16_t)atoi(argv[1]);
	first = !strcmp(argv[2], "first");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
