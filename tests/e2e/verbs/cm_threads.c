/*
 * A thread that waits for the agent does not stop other threads, which use other ids
 * (docs/run.md 5). tests/e2e/test_run_cm.py starts it by `srdma run`, stops and continues
 * the agent as its lines say, and answers each line.
 */
#include "cm_ends.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static void ask(const char *what)
{
	puts(what);
	fflush(stdout);
	assert_int_equal(getchar(), '\n');
}

/* --- the thread that waits ----------------------------------------------------- */

struct waiter {
	struct rdma_cm_id *id;
	int (*run)(struct rdma_cm_id *id);
	pthread_t thread;
	atomic_int tid, returned;
	int result;
};

static int start_listening(struct rdma_cm_id *id)
{
	return rdma_listen(id, 1);
}

static void *run(void *waiter)
{
	struct waiter *w = waiter;

	w->tid = gettid();
	w->result = w->run(w->id);
	w->returned = 1;
	return NULL;
}

/* The state of a thread, as proc(5) has it. */
static char state_of(int tid)
{
	char path[64], state = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	f = fopen(path, "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%*d (%*[^)]) %c", &state), 1);
	fclose(f);
	return state;
}

static void begin(struct waiter *w, int (*what)(struct rdma_cm_id *id))
{
	w->run = what;
	w->tid = w->returned = 0;
	assert_int_equal(pthread_create(&w->thread, NULL, run, w), 0);
	while (!w->tid || state_of(w->tid) != 'S')
		sched_yield();
}

static void end(struct waiter *w)
{
	assert_int_equal(pthread_join(w->thread, NULL), 0);
	assert_int_equal(w->result, 0);
}

/* --- the other thread ------------------------------------------------------------ */

/* Calls with ids of two channels, and events of both. None of these calls needs the
 * agent. */
static void use_ids(struct ends *e, struct rdma_event_channel *c)
{
	struct rdma_event_channel *const channels[] = { c, e->client };
	struct rdma_cm_id *id;

	for (int i = 0; i < 2; i++) {
		assert_int_equal(
			rdma_create_id(channels[i], &id, NULL, RDMA_PS_TCP), 0);
		route(id, channels[i], "127.0.0.1", e->port);
		make_qp(id);
		rdma_destroy_qp(id);
		assert_int_equal(rdma_destroy_id(id), 0);
	}
	assert_int_equal(rdma_disconnect(e->caller), 0);
}

static void while_it_waits(struct waiter *w, int (*what)(struct rdma_cm_id *id))
{
	struct rdma_event_channel *c = rdma_create_event_channel();
	struct ends e;

	open_called(&e);
	establish(&e, "");
	ask("stop");
	begin(w, what);
	use_ids(&e, c);
	assert_false(w->returned);
	ask("continue");
	end(w);
	expect(e.server, RDMA_CM_EVENT_DISCONNECTED, 0);
	close_ends(&e);
	rdma_destroy_event_channel(c);
}

static void test_threads_do_not_wait_for_each_other(void **state)
{
	struct rdma_event_channel *c = rdma_create_event_channel();
	struct sockaddr_in at = address("127.0.0.1", 0);
	struct waiter w = { 0 };

	(void)state;
	assert_int_equal(rdma_create_id(c, &w.id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(w.id, any(&at)), 0);
	while_it_waits(&w, start_listening);
	while_it_waits(&w, rdma_destroy_id);
	rdma_destroy_event_channel(c);
}

/* --- events that are not acknowledged ---------------------------------------------- */

static int destroy_qp(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	return 0;
}

/* The event of a receive that the error state of the QP flushes. */
static struct ibv_cq *flushed(struct rdma_cm_id *id)
{
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_recv_wr wr = { 0 }, *bad;
	struct ibv_cq *cq;
	void *context;

	assert_int_equal(ibv_req_notify_cq(id->recv_cq, 0), 0);
	assert_int_equal(ibv_post_recv(id->qp, &wr, &bad), 0);
	assert_int_equal(ibv_modify_qp(id->qp, &error, IBV_QP_STATE), 0);
	assert_int_equal(ibv_get_cq_event(id->recv_cq_channel, &cq, &context),
			 0);
	return cq;
}

static void test_calls_before_an_acknowledgement(void **state)
{
	struct waiter w = { 0 };
	struct ibv_cq *cq;
	struct ends e;

	(void)state;
	open_called(&e);
	establish(&e, "");
	w.id = e.caller;
	cq = flushed(w.id);
	begin(&w, destroy_qp);
	assert_int_equal(rdma_disconnect(w.id), 0);
	assert_false(w.returned);
	ibv_ack_cq_events(cq, 1);
	end(&w);
	close_ends(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads_do_not_wait_for_each_other),
		cmocka_unit_test(test_calls_before_an_acknowledgement),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
