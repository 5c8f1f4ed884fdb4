/*
 * WRITEs that go on while agents end and are restarted (docs/agent.md 8), or
 * proxies, and agents of NICs (docs/control-link.md 2.5). Lines
 * at standard input say what to do besides, each is repeated at standard output
 * with the number of WRITEs so far when it is done:
 *
 *     count      nothing
 *     rest       no more WRITEs until the next line: the program sleeps
 *     away       a call that needs the agents fails, because both are away
 *     renew      new secrets, requested by each end
 *     make       a region and a QP at each end, and both are ended
 *     connect    another connection, by the listener of b
 *     end        the end of the program
 */
#include "tests.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pair.h"

enum { LINE = 16, FEW_MS = 20 };

static uint64_t count;

static void post_next(struct pair *p)
{
	struct srdma_send_wr wr =
		pair_request(p, SRDMA_WR_RDMA_WRITE, sizeof(count));

	count++;
	memcpy(p->a.memory.addr, &count, sizeof(count));
	ok(srdma_post_send(p->a.qp, &wr, NULL));
}

static void finish(struct pair *p)
{
	pair_next_ok(&p->a, SRDMA_WC_RDMA_WRITE);
	assert_memory_equal(p->b.memory.addr, &count, sizeof(count));
}

static void write_next(struct pair *p)
{
	post_next(p);
	finish(p);
}

/* With a WRITE under way. */
static void renew(struct pair *p, struct srdma_connection *c)
{
	post_next(p);
	ok(srdma_renew(c, WAIT_MS));
	finish(p);
	write_next(p);
}

/* Passes the socket of the listener to a restarted agent of b, at which the
 * sessions are resumed. */
static void listen_again(struct pair *p)
{
	struct srdma_request request;
	int r;

	do {
		r = srdma_get_request(p->b.listener, &request, FEW_MS);
		write_next(p);
	} while (r == -EAGAIN);
	assert_int_equal(r, -ETIMEDOUT);
}

static void connect_more(const struct pair *p)
{
	struct pair more = *p;

	ok(srdma_create_qp(&more.a.qp, more.a.pd, NULL));
	ok(srdma_create_qp(&more.b.qp, more.b.pd, NULL));
	pair_join(&more);
	write_next(&more);
	ok(srdma_destroy_qp(more.a.qp));
	ok(srdma_destroy_qp(more.b.qp));
	srdma_disconnect(more.a.connection);
	srdma_disconnect(more.b.connection);
}

/* Calls during which the control link ended are repeated. */
static void make_objects(const struct end *e)
{
	const struct srdma_mr_attr attr = { .length = SIZE };
	struct srdma_mr *mr;
	struct srdma_qp *qp;
	int r;

	do
		r = srdma_alloc_mr(&mr, e->pd, &attr);
	while (r == -ETIMEDOUT);
	ok(r);
	do
		r = srdma_create_qp(&qp, e->pd, NULL);
	while (r == -ETIMEDOUT);
	ok(r);
	ok(srdma_destroy_qp(qp));
	ok(srdma_dereg_mr(mr));
}

static void be_away(const struct pair *p)
{
	struct srdma_request request;

	assert_int_equal(srdma_renew(p->a.connection, FEW_MS), -EAGAIN);
	assert_int_equal(srdma_renew(p->b.connection, FEW_MS), -EAGAIN);
	assert_int_equal(srdma_get_request(p->b.listener, &request, FEW_MS),
			 -EAGAIN);
}

/* Nothing is under way. The other threads and programs get the CPU. */
static void rest(const struct pair *p)
{
	struct srdma_wc wc;

	assert_int_equal(srdma_wait_cq(p->a.pd, 1, &wc, FEW_MS), 0);
	assert_int_equal(srdma_wait_cq(p->b.pd, 1, &wc, FEW_MS), 0);
}

/* The next line, without its end. */
static void read_line(char line[LINE])
{
	size_t n = 0;

	while (n < LINE - 1 && read(0, line + n, 1) == 1 && line[n] != '\n')
		n++;
	line[n] = 0;
}

void test_restarted_agents(void **state)
{
	struct pair *p = *state;
	char line[LINE] = "count";

	while (strcmp(line, "end") != 0) {
		printf("%s %" PRIu64 "\n", line, count);
		fflush(stdout);
		while (!pair_readable(0, 0)) {
			if (!strcmp(line, "rest"))
				rest(p);
			else
				write_next(p);
			ok(srdma_check_connection(p->a.connection));
			ok(srdma_check_connection(p->b.connection));
		}
		read_line(line);
		if (!strcmp(line, "away"))
			be_away(p);
		if (!strcmp(line, "renew")) {
			listen_again(p);
			renew(p, p->a.connection);
			renew(p, p->b.connection);
		}
		if (!strcmp(line, "make")) {
			make_objects(&p->a);
			make_objects(&p->b);
		}
		if (!strcmp(line, "connect"))
			connect_more(p);
	}
}
