/*
 * A child of fork() in a program that uses librdmacm (docs/run.md 5).
 * tests/e2e/test_run_cm.py starts it by `srdma run`. An assertion that fails in the child
 * makes its exit status.
 */
#include "cm_ends.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/descriptors.h"

/* Both talks; two descriptors of the service of the listener; two of the loop. A
 * connection of a QP may close one meanwhile. */
enum { CLOSED = 2 + 2 + 2 };

static void expect_refusal(int result)
{
	assert_int_equal(result, -1);
	assert_int_equal(errno, EINVAL);
	errno = 0;
}

/* Objects of the parent: the calls fail. */
static void refuse(const struct ends *e)
{
	struct sockaddr_in at = address("127.0.0.1", e->port);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	int mask;

	expect_refusal(rdma_get_cm_event(e->server, &event));
	expect_refusal(rdma_create_id(e->server, &id, NULL, RDMA_PS_TCP));
	expect_refusal(rdma_migrate_id(e->caller, NULL));
	expect_refusal(rdma_bind_addr(e->caller, any(&at)));
	expect_refusal(rdma_resolve_addr(e->caller, NULL, any(&at), 1));
	expect_refusal(rdma_resolve_route(e->caller, 1));
	expect_refusal(rdma_connect(e->caller, NULL));
	expect_refusal(rdma_establish(e->caller));
	expect_refusal(rdma_listen(e->listener, 1));
	expect_refusal(rdma_accept(e->accepted, NULL));
	expect_refusal(rdma_reject(e->accepted, NULL, 0));
	expect_refusal(rdma_init_qp_attr(e->caller, &attr, &mask));
	expect_refusal(rdma_disconnect(e->caller));
	rdma_destroy_qp(e->caller);
	expect_refusal(rdma_destroy_id(e->caller));
	expect_refusal(rdma_destroy_id(e->listener));
}

/* Objects of the child: it calls its parent. */
static void call_parent(const struct ends *e)
{
	struct rdma_event_channel *c = rdma_create_event_channel();
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(c, &id, NULL, RDMA_PS_TCP), 0);
	route(id, c, "127.0.0.1", e->port);
	make_qp(id);
	assert_int_equal(rdma_connect(id, NULL), 0);
	expect(c, RDMA_CM_EVENT_ESTABLISHED, 0);
	expect(c, RDMA_CM_EVENT_DISCONNECTED, 0);
	rdma_destroy_qp(id);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(c);
}

static void answer_child(const struct ends *e)
{
	struct rdma_cm_event *event =
		next(e->server, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	struct rdma_cm_id *id = event->id;

	rdma_ack_cm_event(event);
	make_qp(id);
	assert_int_equal(rdma_accept(id, NULL), 0);
	expect(e->server, RDMA_CM_EVENT_ESTABLISHED, 0);
	assert_int_equal(rdma_disconnect(id), 0);
	expect(e->server, RDMA_CM_EVENT_DISCONNECTED, 0);
	rdma_destroy_qp(id);
	assert_int_equal(rdma_destroy_id(id), 0);
}

static void expect_exit(pid_t child)
{
	int status;

	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void test_child_uses_its_own_objects(void **state)
{
	struct ends e;
	pid_t child;
	int here;

	(void)state;
	open_called(&e);
	establish(&e, "");
	here = count_descriptors();
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		assert_true(count_descriptors() <= here - CLOSED);
		refuse(&e);
		call_parent(&e);
		exit(0);
	}
	answer_child(&e);
	expect_exit(child);
	assert_int_equal(rdma_disconnect(e.caller), 0);
	expect(e.server, RDMA_CM_EVENT_DISCONNECTED, 0);
	assert_int_equal(rdma_disconnect(e.accepted), 0);
	expect(e.client, RDMA_CM_EVENT_DISCONNECTED, 0);
	close_ends(&e);
}

/* The peer of the parent notices the end, although the child lives. */
static void test_child_keeps_no_talk_alive(void **state)
{
	struct ends e;
	pid_t child;
	int end[2];
	char byte;

	(void)state;
	assert_int_equal(pipe(end), 0);
	open_called(&e);
	establish(&e, "");
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		close(end[1]);
		exit(read(end[0], &byte, 1) ? 1 : 0);
	}
	close(end[0]);
	end_caller(&e);
	expect(e.server, RDMA_CM_EVENT_DISCONNECTED, 0);
	close(end[1]);
	expect_exit(child);
	close_ends(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_child_uses_its_own_objects),
		cmocka_unit_test(test_child_keeps_no_talk_alive),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
