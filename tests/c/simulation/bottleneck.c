#include "simulation/bottleneck.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum {
	STEP_NS = 1000,
	BEGIN_NS = 1000000000,
	MTU = 1024, /* as over Ethernet */
	LEN = 16384,
	DEPTH = 56, /* outstanding requests, more than the largest window */
	SLOTS = 4096,
	HOST_BUFS = 1024, /* as port_shm has */
	WINDOW = 1024,
	JITTER_NS = 200000,
};

static uint32_t random_below(struct bottleneck *b, uint32_t n)
{
	uint64_t z = (b->random += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z ^= z >> 27;
	return (uint32_t)((z >> 32) * n >> 32);
}

static enum srdma_mem_fate fate(void *ctx, struct srdma_mem_datagram *d)
{
	struct bottleneck *b = ctx;

	(void)d;
	return b->one_in && !random_below(b, b->one_in) ? SRDMA_MEM_DROP
							: SRDMA_MEM_PASS;
}

static void open_flow(struct bottleneck *b, uint32_t i)
{
	struct bottleneck_flow *f = &b->flow[i];
	struct pair *p = &f->p;

	f->start = BEGIN_NS + i * b->spread + random_below(b, JITTER_NS);
	pair_defaults(p);
	p->mtu = MTU;
	p->memory = LEN;
	p->wire = (struct srdma_mem_wire_params){ .slots = SLOTS,
						  .bufs = SLOTS,
						  .window = WINDOW };
	for (int side = 0; side < 2; side++)
		p->host[side].bufs = HOST_BUFS;
	p->now = BEGIN_NS / 2;
	pair_open(p);
	pair_connect(p, 0);
	assert_true(p->now < BEGIN_NS);
	p->wire.now = &b->now;
	p->wire.latency = b->latency;
	p->wire.way = b->way;
	p->wire.fate = fate;
	p->wire.ctx = b;
}

static void post(struct bottleneck *b, struct bottleneck_flow *f)
{
	struct srdma_record r;

	while (pair_record(&f->p, 0, &r)) {
		assert_int_equal(r.vendor_err, SRDMA_REASON_NONE);
		f->ended++;
	}
	while (b->now >= f->start && f->posted - f->ended < DEPTH)
		pair_post(
			&f->p, 0,
			(struct srdma_desc){
				.opcode = b->op,
				.id = f->posted++,
				.length = LEN,
				.local_addr = (uintptr_t)f->p.side[0].memory,
				.remote_addr = (uintptr_t)f->p.side[1].memory },
			NULL);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/*
 * Runs every relay once. If all are idle, the clock advances to the next due
 * time, at most to `until`.
 */
static void turn(struct bottleneck *b, uint64_t until)
{
	uint64_t next = until;
	int did = 0;

	b->now += STEP_NS;
	for (uint32_t i = 0; i < b->flows; i++) {
		struct pair *p = &b->flow[i].p;

		post(b, &b->flow[i]);
		p->now = b->now;
		if (b->flow[i].start > b->now)
			next = earlier(next, b->flow[i].start);
		for (int s = 0; s < 2; s++) {
			did += srdma_relay_run(p->side[s].relay, b->now, 64);
			next = earlier(next,
				       srdma_relay_timer(p->side[s].relay));
			next = earlier(next,
				       srdma_port_mem_due(p->side[s].wire));
		}
	}
	if (!did && next > b->now)
		b->now = next;
}

static void run_until(struct bottleneck *b, uint64_t until)
{
	while (b->now < until)
		turn(b, until);
}

static void count(struct bottleneck *b, uint64_t ns)
{
	/* direction of the payload */
	const struct srdma_mem_way *way = &b->way[b->op == SRDMA_DESC_READ];
	double sum = 0, squares = 0;

	for (uint32_t i = 0; i < b->flows; i++) {
		double n = (double)(b->flow[i].ended - b->flow[i].before);

		sum += n;
		squares += n * n;
	}
	b->jain = squares > 0 ? sum * sum / (b->flows * squares) : 0;
	b->used = sum * LEN * 1000 / ((double)b->rate * (double)ns);
	b->dropped = (double)way->dropped / (double)(way->taken + way->dropped);
}

void bottleneck_run(struct bottleneck *b)
{
	uint64_t from;

	for (uint32_t i = 0; i < b->flows; i++)
		open_flow(b, i);
	for (int i = 0; i < 2; i++)
		b->way[i] = (struct srdma_mem_way){ .rate = b->rate,
						    .queue = b->queue };
	b->now = BEGIN_NS;
	run_until(b,
		  BEGIN_NS + (b->flows - 1) * b->spread + JITTER_NS + b->warm);
	for (uint32_t i = 0; i < b->flows; i++)
		b->flow[i].before = b->flow[i].ended;
	for (int i = 0; i < 2; i++)
		b->way[i].taken = b->way[i].dropped = 0;
	from = b->now;
	run_until(b, from + b->ns);
	count(b, b->now - from);
	for (uint32_t i = 0; i < b->flows; i++)
		pair_close(&b->flow[i].p);
}
