/* Two more QPs of a pair, which their ends call by GID and QPN
 * (docs/agent.md 11). */
#include "tests.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "pair.h"

struct call {
	struct end *own;
	const struct end *peer;
	const char *identity;
};

static int connect_qp(struct end *own, const struct end *peer,
		      const char *identity)
{
	const struct srdma_connection_attr how = { .identity = identity,
						   .qps = &own->qp,
						   .n_qps = 1 };
	struct srdma_device_attr device;
	struct srdma_qp_query qp;

	srdma_query_device(peer->device, &device);
	srdma_query_qp(peer->qp, &qp);
	return srdma_connect_qp(&own->connection, own->pd, device.gid,
				qp.qp_num, &how);
}

static void *calling(void *arg)
{
	struct call *c = arg;

	c->own->rc = connect_qp(c->own, c->peer, c->identity);
	strcpy(c->own->text, srdma_error_text());
	return NULL;
}

void test_rendezvous(void **state)
{
	struct pair more = *(struct pair *)*state;
	struct call call = { &more.b, &more.a, "b" };
	struct srdma_connection *connection;
	struct srdma_send_wr wr;
	pthread_t thread;

	ok(srdma_create_qp(&more.a.qp, more.a.pd, NULL));
	ok(srdma_create_qp(&more.b.qp, more.b.pd, NULL));
	assert_int_equal(pthread_create(&thread, NULL, calling, &call), 0);
	ok(connect_qp(&more.a, &more.b, "a"));
	pthread_join(thread, NULL);
	if (more.b.rc)
		fail_msg("b: %d: %s", more.b.rc, more.b.text);
	wr = pair_request(&more, SRDMA_WR_RDMA_WRITE, SIZE);
	pair_run(&more, &wr, SRDMA_WC_RDMA_WRITE);
	ok(srdma_renew(more.a.connection, WAIT_MS));
	ok(srdma_renew(more.b.connection, WAIT_MS));
	pair_run(&more, &wr, SRDMA_WC_RDMA_WRITE);
	connection = more.a.connection;
	assert_int_equal(connect_qp(&more.a, &more.b, "a"), -EINVAL);
	ok(srdma_destroy_qp(more.a.qp));
	ok(srdma_destroy_qp(more.b.qp));
	srdma_disconnect(connection);
	srdma_disconnect(more.b.connection);
}
