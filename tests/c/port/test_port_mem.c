#include "port/sim/port_mem.h"

#include "wire/wire.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct pair {
	struct srdma_mem_wire_params params;
	struct srdma_port *a, *b;
	struct srdma_conn *conn, *far;
	enum srdma_mem_fate fate[8]; /* fates of a's datagrams, by number */
	int full;
	enum srdma_mem_call call;
	struct srdma_event ev[32];
};

static enum srdma_mem_fate fate(void *ctx, struct srdma_mem_datagram *d)
{
	struct pair *p = ctx;

	if (d->side || d->number >= 8)
		return SRDMA_MEM_PASS;
	if (d->data[0] == 'F')
		d->data[0] ^= 1;
	return p->fate[d->number];
}

static int full(void *ctx, int side)
{
	struct pair *p = ctx;

	return p->full && side == 0;
}

static enum srdma_mem_call call(void *ctx, int side)
{
	struct pair *p = ctx;

	(void)side;
	return p->call;
}

static int poll_port(struct pair *p, struct srdma_port *port)
{
	return port->ops->poll(port, p->ev, 32);
}

static int setup(void **state)
{
	static struct pair p;

	memset(&p, 0, sizeof(p));
	p.params.ctx = &p;
	p.params.fate = fate;
	p.params.full = full;
	p.params.call = call;
	assert_int_equal(srdma_port_mem_wire_pair(&p.a, &p.b, &p.params), 0);
	assert_int_equal(p.a->ops->connect(p.a, "b", &p.conn), 0);
	assert_int_equal(poll_port(&p, p.a), 1);
	assert_int_equal(p.ev[0].kind, SRDMA_EV_UP);
	assert_ptr_equal(p.ev[0].conn, p.conn);
	assert_int_equal(poll_port(&p, p.b), 1);
	assert_int_equal(p.ev[0].kind, SRDMA_EV_ACCEPT);
	p.far = p.ev[0].conn;
	*state = &p;
	return 0;
}

static int teardown(void **state)
{
	struct pair *p = *state;

	p->a->ops->destroy(p->a);
	p->b->ops->destroy(p->b);
	return 0;
}

static void send_byte(struct srdma_conn *conn, char c)
{
	uint8_t *out = conn->port->ops->reserve(conn);

	assert_non_null(out);
	*out = (uint8_t)c;
	assert_int_equal(conn->port->ops->commit(conn, 1), 0);
}

static void send_text(struct pair *p, const char *text)
{
	while (*text)
		send_byte(p->conn, *text++);
	p->a->ops->flush(p->a);
}

/* Expects that b receives exactly these one-byte datagrams. */
static void expect_text(struct pair *p, const char *text)
{
	int n = poll_port(p, p->b);

	assert_int_equal(n, strlen(text));
	for (int i = 0; i < n; i++) {
		assert_int_equal(p->ev[i].kind, SRDMA_EV_RECV);
		assert_ptr_equal(p->ev[i].conn, p->far);
		assert_int_equal(p->ev[i].buf->len, 1);
		assert_int_equal(p->ev[i].buf->data[0], text[i]);
		p->b->ops->buf_put(p->ev[i].buf);
	}
}

static void test_datagrams_move_at_flush(void **state)
{
	struct pair *p = *state;

	send_byte(p->conn, 'x');
	expect_text(p, "");
	assert_int_equal(p->b->ops->arm(p->b), 0);
	p->a->ops->flush(p->a);
	assert_int_equal(p->b->ops->arm(p->b), 1);
	expect_text(p, "x");
}

static void test_fates(void **state)
{
	struct pair *p = *state;

	p->fate[1] = SRDMA_MEM_DROP;
	p->fate[2] = SRDMA_MEM_TWICE;
	p->fate[3] = SRDMA_MEM_SWAP;
	p->fate[6] = SRDMA_MEM_HOLD;
	send_text(p, "0123456F");
	expect_text(p, "022435G");
	srdma_port_mem_release(p->a);
	expect_text(p, "6");
}

static void test_latency_and_rate(void **state)
{
	struct pair *p = *state;
	uint64_t now = 1000;

	p->params.now = &now;
	p->params.rate = 100;
	p->params.latency = 500;
	assert_true(srdma_port_mem_due(p->b) == UINT64_MAX);
	send_text(p, "abc");
	expect_text(p, "");
	assert_int_equal(p->b->ops->arm(p->b), 0);
	assert_int_equal(srdma_port_mem_due(p->b), 1510);
	now = 1520;
	assert_int_equal(p->b->ops->arm(p->b), 1);
	expect_text(p, "ab");
	srdma_port_mem_cut(p->conn);
	expect_text(p, "");
	assert_int_equal(srdma_port_mem_due(p->b), 1530);
	now = 1530;
	assert_int_equal(poll_port(p, p->b), 2);
	p->b->ops->buf_put(p->ev[0].buf);
	assert_int_equal(p->ev[1].kind, SRDMA_EV_DOWN);
}

static void test_full_wire_has_no_room(void **state)
{
	struct pair *p = *state;

	p->params.slots = 2;
	send_text(p, "ab");
	assert_null(p->a->ops->reserve(p->conn));
	expect_text(p, "ab");
	assert_non_null(p->a->ops->reserve(p->conn));
	p->full = 1;
	assert_null(p->a->ops->reserve(p->conn));
	assert_int_equal(p->a->ops->commit(p->conn, 0), -EMSGSIZE);
	assert_int_equal(p->a->ops->commit(p->conn, SRDMA_MAX_PACKET + 1),
			 -EMSGSIZE);
}

static void test_empty_pool_stops_receiving(void **state)
{
	struct pair *p = *state;
	struct srdma_buf *held[256];

	for (int i = 0; i < 256; i++) {
		held[i] = p->b->ops->buf_get(p->b);
		assert_non_null(held[i]);
	}
	assert_null(p->b->ops->buf_get(p->b));
	assert_int_equal(p->b->ops->buf_free(p->b), 0);
	send_text(p, "x");
	expect_text(p, "");
	for (int i = 0; i < 256; i++)
		p->b->ops->buf_put(held[i]);
	expect_text(p, "x");
}

static void test_sharing_and_close(void **state)
{
	struct pair *p = *state;
	struct srdma_conn *again;

	assert_int_equal(p->a->ops->connect(p->a, "b", &again), 0);
	assert_ptr_equal(again, p->conn);
	assert_int_equal(poll_port(p, p->a), 1);
	assert_int_equal(p->ev[0].kind, SRDMA_EV_UP);
	send_text(p, "z");
	p->a->ops->close(again);
	expect_text(p, "z");
	p->a->ops->close(p->conn);
	assert_int_equal(poll_port(p, p->b), 1);
	assert_int_equal(p->ev[0].kind, SRDMA_EV_DOWN);
	assert_ptr_equal(p->ev[0].conn, p->far);
	assert_null(p->b->ops->reserve(p->far));
	p->b->ops->close(p->far);
	assert_int_equal(p->a->ops->connect(p->a, "c", &again), -ECONNREFUSED);
	assert_non_null(p->a->why);
}

static void test_down_follows_last_datagram(void **state)
{
	struct pair *p = *state;

	send_text(p, "q");
	srdma_port_mem_cut(p->conn);
	assert_int_equal(poll_port(p, p->a), 1);
	assert_int_equal(p->ev[0].kind, SRDMA_EV_DOWN);
	assert_int_equal(poll_port(p, p->b), 2);
	assert_int_equal(p->ev[0].kind, SRDMA_EV_RECV);
	p->b->ops->buf_put(p->ev[0].buf);
	assert_int_equal(p->ev[1].kind, SRDMA_EV_DOWN);
	assert_int_equal(srdma_port_mem_inject(p->far, (const uint8_t *)"x", 1),
			 -ENOTCONN);
}

static void test_self_connection(void **state)
{
	struct pair *p = *state;
	struct srdma_conn *self;

	assert_int_equal(p->a->ops->connect(p->a, "a", &self), 0);
	assert_int_equal(poll_port(p, p->a), 2);
	send_byte(self, 's');
	p->a->ops->flush(p->a);
	assert_int_equal(poll_port(p, p->a), 1);
	assert_int_equal(p->ev[0].buf->data[0], 's');
	assert_ptr_not_equal(p->ev[0].conn, self);
}

/* A connection to a port that was destroyed is not one to its successor. */
static void test_successor_gets_a_new_connection(void **state)
{
	struct pair *p = *state;
	struct srdma_conn *silent, *joined, *conn;

	p->a->ops->close(p->conn);
	p->call = SRDMA_MEM_SILENT;
	assert_int_equal(p->a->ops->connect(p->a, "b", &silent), 0);
	assert_int_equal(p->a->ops->connect(p->a, "b", &joined), 0);
	assert_ptr_equal(joined, silent);
	p->b->ops->destroy(p->b);
	assert_int_equal(srdma_port_mem_wire_again(p->a, &p->b), 0);
	p->call = SRDMA_MEM_ANSWERED;
	assert_int_equal(p->a->ops->connect(p->a, "b", &conn), 0);
	assert_ptr_not_equal(conn, silent);
	assert_int_equal(poll_port(p, p->b), 1);
	assert_int_equal(p->ev[0].kind, SRDMA_EV_ACCEPT);
}

static void test_inject(void **state)
{
	struct pair *p = *state;

	assert_int_equal(srdma_port_mem_inject(p->far, (const uint8_t *)"i", 1),
			 0);
	expect_text(p, "i");
}

/* --- host ----------------------------------------------------------------- */

struct bench {
	struct srdma_mem_host_params params;
	struct srdma_port *port;
	struct srdma_conn *leg;
	struct srdma_region *region;
	uint8_t memory[64];
	int verdict;
	struct srdma_event ev[8];
};

static int dma_hook(void *ctx, const struct srdma_dma *dma, int is_write)
{
	struct bench *b = ctx;

	(void)dma;
	(void)is_write;
	return b->verdict;
}

static int poll_host(struct bench *b)
{
	return b->port->ops->poll(b->port, b->ev, 8);
}

static int setup_host(void **state)
{
	static struct bench b;
	struct srdma_leg_params leg = { .ring = 64, .fds = { -1, -1, -1 } };
	struct srdma_leg_answer answer;
	struct srdma_region_params region = { .fd = -1 };

	memset(&b, 0, sizeof(b));
	b.params.ctx = &b;
	b.params.dma = dma_hook;
	assert_int_equal(srdma_port_mem_host(&b.port, &b.params), 0);
	leg.ring = 63;
	assert_int_equal(b.port->ops->leg_open(b.port, &leg, &b.leg, &answer),
			 -EINVAL);
	leg.ring = 64;
	assert_int_equal(b.port->ops->leg_open(b.port, &leg, &b.leg, &answer),
			 0);
	assert_int_equal(poll_host(&b), 1);
	assert_int_equal(b.ev[0].kind, SRDMA_EV_UP);
	region.addr = (uintptr_t)b.memory;
	region.length = sizeof(b.memory);
	assert_int_equal(b.port->ops->region_open(b.leg, &region, &b.region),
			 0);
	*state = &b;
	return 0;
}

static int teardown_host(void **state)
{
	struct bench *b = *state;

	b->port->ops->region_close(b->region);
	b->port->ops->destroy(b->port);
	return 0;
}

static struct srdma_dma dma_of(struct bench *b, uint64_t cookie, uint8_t fill)
{
	struct srdma_dma dma = {
		.region = b->region,
		.addr = (uintptr_t)b->memory + 8,
		.len = 4,
		.buf = b->port->ops->buf_get(b->port),
		.buf_at = 16,
		.cookie = cookie,
	};

	memset(dma.buf->data, fill, dma.buf->cap);
	return dma;
}

static void test_descriptors(void **state)
{
	struct bench *b = *state;
	uint8_t desc[SRDMA_DESC_SLOT + 1] = { 7 };

	assert_int_equal(srdma_port_mem_post(b->leg, desc, 64), 0);
	assert_int_equal(srdma_port_mem_post(b->leg, desc, sizeof(desc)),
			 -EMSGSIZE);
	assert_int_equal(poll_host(b), 1);
	assert_int_equal(b->ev[0].kind, SRDMA_EV_RECV);
	assert_int_equal(b->ev[0].buf->len, 64);
	assert_int_equal(b->ev[0].buf->data[0], 7);
	for (int i = 0; i < 64; i++)
		assert_int_equal(srdma_port_mem_post(b->leg, desc, 64), 0);
	assert_int_equal(srdma_port_mem_post(b->leg, desc, 64), -EAGAIN);
}

static void test_synchronous_dma(void **state)
{
	struct bench *b = *state;
	struct srdma_dma dma = dma_of(b, 1, 5);

	assert_int_equal(b->port->ops->write(&dma), 1);
	assert_int_equal(b->memory[7], 0);
	assert_int_equal(b->memory[8], 5);
	assert_int_equal(b->memory[12], 0);
	b->memory[9] = 9;
	assert_int_equal(b->port->ops->read(&dma), 1);
	assert_int_equal(dma.buf->data[17], 9);
	b->verdict = -EIO;
	assert_int_equal(b->port->ops->write(&dma), -EIO);
	b->verdict = -EAGAIN;
	assert_int_equal(b->port->ops->write(&dma), -EAGAIN);
}

/* An atomic executes in order with other DMA; a failed one changes nothing. */
static void test_atomics(void **state)
{
	static const struct srdma_atomic add = { SRDMA_ATOMIC_FETCH_ADD, 3, 0 };
	struct bench *b = *state;
	struct srdma_dma dma = dma_of(b, 1, 5), write = dma_of(b, 2, 1);
	uint64_t value;

	dma.len = write.len = sizeof(value);
	assert_int_equal(b->port->ops->atomic(&dma, &add), 1);
	assert_int_equal(b->memory[8], 3);
	assert_int_equal(dma.buf->data[15], 5);
	memcpy(&value, dma.buf->data + 16, sizeof(value));
	assert_int_equal(value, 0);
	b->verdict = -EIO;
	assert_int_equal(b->port->ops->atomic(&dma, &add), -EIO);
	assert_int_equal(b->memory[8], 3);
	b->verdict = 0;
	b->params.dma_polls = 1;
	assert_int_equal(b->port->ops->write(&write), 0);
	assert_int_equal(b->port->ops->atomic(&dma, &add), 0);
	assert_int_equal(b->memory[8], 3);
	assert_int_equal(poll_host(b), 2);
	assert_int_equal(b->ev[1].cookie, 1);
	memcpy(&value, dma.buf->data + 16, sizeof(value));
	assert_true(value == UINT64_C(0x0101010101010101));
	memcpy(&value, b->memory + 8, sizeof(value));
	assert_true(value == UINT64_C(0x0101010101010104));
}

static void test_asynchronous_dma_is_ordered(void **state)
{
	struct bench *b = *state;
	struct srdma_dma dma = dma_of(b, 1, 5), back = dma_of(b, 2, 0);
	uint8_t record[SRDMA_RECORD_LEN] = { 3 };

	b->params.dma_polls = 2;
	assert_int_equal(b->port->ops->write(&dma), 0);
	assert_int_equal(b->port->ops->complete(b->leg, 2, record), 0);
	b->params.dma_polls = 0;
	b->verdict = -EIO; /* reported after the earlier DMA has completed */
	assert_int_equal(b->port->ops->read(&back), 0);
	assert_int_equal(b->port->ops->arm(b->port), 1);
	assert_int_equal(poll_host(b), 0);
	assert_int_equal(b->memory[8], 0);
	assert_int_equal(srdma_port_mem_ring(b->leg)[64], 0);
	assert_int_equal(poll_host(b), 2);
	assert_int_equal(b->ev[0].kind, SRDMA_EV_DMA_DONE);
	assert_int_equal(b->ev[0].cookie, 1);
	assert_int_equal(b->ev[0].status, 0);
	assert_int_equal(b->ev[1].cookie, 2);
	assert_int_equal(b->ev[1].status, -EIO);
	assert_int_equal(b->memory[8], 5);
	assert_int_equal(srdma_port_mem_ring(b->leg)[64], 3);
}

static void test_dead_host_fails_dma(void **state)
{
	struct bench *b = *state;
	struct srdma_dma dma = dma_of(b, 1, 5);
	uint8_t record[SRDMA_RECORD_LEN] = { 3 };

	b->params.dma_polls = 9;
	assert_int_equal(b->port->ops->write(&dma), 0);
	srdma_port_mem_kill(b->leg);
	assert_int_equal(poll_host(b), 2);
	assert_int_equal(b->ev[0].kind, SRDMA_EV_DMA_DONE);
	assert_int_equal(b->ev[0].status, -ECONNRESET);
	assert_int_equal(b->ev[1].kind, SRDMA_EV_DOWN);
	assert_int_equal(b->port->ops->write(&dma), -ECONNRESET);
	assert_int_equal(b->port->ops->complete(b->leg, 0, record),
			 -ECONNRESET);
}

static void test_close_cancels_dma(void **state)
{
	struct bench *b = *state;
	struct srdma_dma dma = dma_of(b, 4, 5);

	b->params.dma_polls = 9;
	assert_int_equal(b->port->ops->write(&dma), 0);
	b->port->ops->close(b->leg);
	assert_int_equal(poll_host(b), 1);
	assert_int_equal(b->ev[0].cookie, 4);
	assert_int_equal(b->ev[0].status, -ECANCELED);
	assert_null(b->ev[0].conn);
	assert_int_equal(b->memory[8], 0);
}

#define WIRE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define HOST(f) cmocka_unit_test_setup_teardown(f, setup_host, teardown_host)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WIRE(test_datagrams_move_at_flush),
		WIRE(test_fates),
		WIRE(test_latency_and_rate),
		WIRE(test_full_wire_has_no_room),
		WIRE(test_empty_pool_stops_receiving),
		WIRE(test_sharing_and_close),
		WIRE(test_down_follows_last_datagram),
		WIRE(test_self_connection),
		WIRE(test_successor_gets_a_new_connection),
		WIRE(test_inject),
		HOST(test_descriptors),
		HOST(test_synchronous_dma),
		HOST(test_atomics),
		HOST(test_asynchronous_dma_is_ordered),
		HOST(test_dead_host_fails_dma),
		HOST(test_close_cancels_dma),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
