#include "pair.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Chooses the RDMA device of the next leg. */
static void use_device(const char *name)
{
	const char *device = getenv(name);

	setenv("SRDMA_HOST_DEVICE", device ? device : "", 1);
}

static const char *identity_of(const char *name, const char *usual)
{
	const char *identity = getenv(name);

	return identity ? identity : usual;
}

static void open_end(struct end *e, const char *worker, const char *agent,
		     uint32_t access)
{
	const struct srdma_mr_attr attr = { .length = SIZE,
					    .access = access,
					    .whole_pd = access != 0 };
	const struct srdma_qp_attr qp = { .sq = DEPTH, .rq = DEPTH };

	ok(srdma_open_device(&e->device, getenv(worker), getenv(agent)));
	ok(srdma_alloc_pd(&e->pd, e->device, NULL));
	ok(srdma_alloc_mr(&e->mr, e->pd, &attr));
	srdma_query_mr(e->mr, &e->memory);
	assert_int_equal(e->memory.length, SIZE);
	ok(srdma_create_qp(&e->qp, e->pd, &qp));
}

static void close_end(struct end *e)
{
	ok(srdma_destroy_qp(e->qp));
	srdma_disconnect(e->connection);
	ok(srdma_dereg_mr(e->mr));
	srdma_close_listener(e->listener);
	ok(srdma_dealloc_pd(e->pd));
	ok(srdma_close_device(e->device));
}

static struct srdma_connection_attr
attributes(const struct end *e, const char *identity, const char *data)
{
	static const struct srdma_protection none = {
		.level = SRDMA_LEVEL_NONE
	};

	return (struct srdma_connection_attr){
		.identity = identity,
		.qps = &e->qp,
		.n_qps = 1,
		.protections = &none,
		.n_protections = getenv("SRDMA_UNPROTECTED") ? 1 : 0,
		.data = data,
		.data_len = strlen(data),
	};
}

static void *accepting(void *arg)
{
	struct end *b = arg;
	const struct srdma_connection_attr how =
		attributes(b, identity_of("SRDMA_IDENTITY_B", "b"), "of b");
	struct srdma_request request;

	b->rc = srdma_get_request(b->listener, &request, WAIT_MS);
	if (!b->rc)
		b->rc = srdma_accept(&b->connection, b->pd, &request, &how);
	strcpy(b->text, srdma_error_text());
	return NULL;
}

void pair_join(struct pair *p)
{
	const struct srdma_connection_attr how =
		attributes(&p->a, identity_of("SRDMA_IDENTITY_A", "a"), "of a");
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, accepting, &p->b), 0);
	ok(srdma_connect(&p->a.connection, p->a.pd, "127.0.0.1",
			 srdma_listener_port(p->b.listener), &how));
	pthread_join(thread, NULL);
	if (p->b.rc)
		fail_msg("accept: %d: %s", p->b.rc, p->b.text);
}

int pair_setup(void **state)
{
	const struct srdma_listener_attr attr = {
		.identity = identity_of("SRDMA_IDENTITY_B", "b")
	};
	struct pair *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	use_device("SRDMA_DEVICE_B");
	open_end(&p->b, "SRDMA_B", "SRDMA_AGENT_B", SRDMA_ACCESS_ALL);
	use_device("SRDMA_DEVICE_A");
	open_end(&p->a, "SRDMA_A", "SRDMA_AGENT_A", SRDMA_ACCESS_LOCAL_WRITE);
	ok(srdma_listen(&p->b.listener, p->b.device, "127.0.0.1", 0, &attr));
	pair_join(p);
	*state = p;
	return 0;
}

int pair_teardown(void **state)
{
	struct pair *p = *state;

	close_end(&p->a);
	close_end(&p->b);
	free(p);
	return 0;
}

struct srdma_wc pair_next(struct end *e)
{
	struct srdma_wc wc;
	int n = srdma_wait_cq(e->pd, 1, &wc, WAIT_MS);

	if (n != 1)
		fail_msg("no completion: %d: %s", n, srdma_error_text());
	return wc;
}

/* Why the PD of an end has ended, if it has. */
static const char *end_of(const struct end *e)
{
	const struct srdma_mr_attr attr = { .length = 1 };
	struct srdma_mr *mr;

	return srdma_alloc_mr(&mr, e->pd, &attr) ? srdma_error_text() : "";
}

struct srdma_wc pair_next_ok(struct end *e, enum srdma_wc_opcode opcode)
{
	struct srdma_wc wc = pair_next(e);

	if (wc.status)
		fail_msg("%s: %s; %s", srdma_reason_name(wc.vendor_err),
			 srdma_reason_text(wc.vendor_err), end_of(e));
	assert_int_equal(wc.opcode, opcode);
	assert_int_equal(wc.vendor_err, SRDMA_REASON_NONE);
	return wc;
}

struct srdma_send_wr pair_request(const struct pair *p,
				  enum srdma_wr_opcode opcode, uint32_t length)
{
	return (struct srdma_send_wr){
		.wr_id = 7,
		.opcode = opcode,
		.flags = SRDMA_SEND_SIGNALED,
		.addr = p->a.memory.addr,
		.length = length,
		.lkey = p->a.memory.key,
		.rkey = p->b.memory.key,
		.remote_addr = (uintptr_t)p->b.memory.addr,
	};
}

void pair_run(struct pair *p, struct srdma_send_wr *wr,
	      enum srdma_wc_opcode opcode)
{
	struct srdma_wc wc;

	ok(srdma_post_send(p->a.qp, wr, NULL));
	wc = pair_next_ok(&p->a, opcode);
	assert_int_equal(wc.wr_id, wr->wr_id);
	assert_int_equal(wc.byte_len, wr->length);
}

void pair_post_receive(struct end *e, uint64_t wr_id, uint32_t length)
{
	struct srdma_recv_wr wr = { .wr_id = wr_id,
				    .addr = e->memory.addr,
				    .length = length,
				    .lkey = e->memory.key };

	ok(srdma_post_recv(e->qp, &wr, NULL));
}

int pair_count(int normal)
{
	const char *shorter = getenv("SRDMA_SHORTER");

	return shorter ? normal / atoi(shorter) : normal;
}

int pair_readable(int fd, int ms)
{
	struct pollfd f = { .fd = fd, .events = POLLIN };

	return poll(&f, 1, ms);
}
