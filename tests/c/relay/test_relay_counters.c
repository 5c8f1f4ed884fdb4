/*
 * Counters under attack: QPs of one relay add to the same few counters of the
 * other, over a wire on which 1 packet in 10 is lost, changed, duplicated,
 * swapped or replaced by an older one. Each addition is executed once, and its
 * original value is returned once: 0, 1, 2, ... (docs/protocol.md 5).
 * SRDMA_ADDS=N sets the number of additions.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/relay_pair.h"

enum {
	ADDS = 100000,
	COUNTERS = 3,
	UNDER_WAY = 48, /* outstanding adds of a QP */
	ONE_IN = 10,
	CAUGHT = 16,
	SPAN = SRDMA_ATOMIC_LEN,
	STEP_NS = 1000,
	LATENCY_NS = 5000,
};

struct attack {
	struct pair p;
	uint64_t random;
	uint64_t sent, hit;
	struct {
		uint32_t len;
		uint8_t data[SRDMA_MAX_PACKET];
	} caught[2][CAUGHT];
	uint64_t adds, posted, ended;
	uint64_t under_way[PAIR_QPS];
	uint8_t *told[COUNTERS]; /* per original value: times returned */
	uint64_t made[COUNTERS];
};

static uint32_t random_below(struct attack *a, uint32_t n)
{
	uint64_t z = (a->random += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z ^= z >> 27;
	return (uint32_t)((z >> 32) * n >> 32);
}

static enum srdma_mem_fate replace(struct attack *a,
				   struct srdma_mem_datagram *d)
{
	const uint32_t i = random_below(a, CAUGHT);

	if (!a->caught[d->side][i].len)
		return SRDMA_MEM_DROP;
	d->len = a->caught[d->side][i].len;
	memcpy(d->data, a->caught[d->side][i].data, d->len);
	return SRDMA_MEM_PASS;
}

static enum srdma_mem_fate strike(void *ctx, struct srdma_mem_datagram *d)
{
	struct attack *a = ctx;
	const uint32_t i = random_below(a, CAUGHT);

	a->sent++;
	if (random_below(a, ONE_IN)) {
		a->caught[d->side][i].len = d->len;
		memcpy(a->caught[d->side][i].data, d->data, d->len);
		return SRDMA_MEM_PASS;
	}
	a->hit++;
	switch (random_below(a, 5)) {
	case 0:
		d->data[random_below(a, d->len)] ^= 1;
		return SRDMA_MEM_PASS;
	case 1:
		return SRDMA_MEM_DROP;
	case 2:
		return SRDMA_MEM_TWICE;
	case 3:
		return replace(a, d);
	default:
		return SRDMA_MEM_SWAP;
	}
}

/* The id holds the QP, the counter and the result slot. */
static void post(struct attack *a, uint32_t qp)
{
	const uint64_t counter = random_below(a, COUNTERS);
	const uint64_t slot = qp * UNDER_WAY + a->under_way[qp] % UNDER_WAY;
	const uint64_t id = slot << 8 | counter << 4 | qp;

	a->under_way[qp]++;
	a->posted++;
	a->made[counter]++;
	pair_post(&a->p, 0,
		  (struct srdma_desc){
			  .opcode = SRDMA_DESC_FETCH_ADD,
			  .qpn = a->p.side[0].qp[qp].qpn,
			  .id = id,
			  .length = SPAN,
			  .local_addr =
				  (uintptr_t)a->p.side[0].memory + slot * SPAN,
			  .remote_addr = (uintptr_t)a->p.side[1].memory +
					 counter * SPAN,
			  .swap_add = 1 },
		  NULL);
}

static void look(struct attack *a, uint64_t ended[PAIR_QPS])
{
	struct srdma_record r;
	uint64_t found;

	while (pair_record(&a->p, 0, &r)) {
		assert_int_equal(r.vendor_err, SRDMA_REASON_NONE);
		memcpy(&found, a->p.side[0].memory + (r.id >> 8) * SPAN,
		       sizeof(found));
		assert_true(found < a->adds);
		assert_int_equal(a->told[r.id >> 4 & 0xf][found]++, 0);
		ended[r.id & 0xf]++;
		a->ended++;
	}
}

/* Runs both relays. If both are idle, the clock jumps to the next due time. */
static void turn(struct attack *a)
{
	uint64_t next = UINT64_MAX;
	int did = 0;

	a->p.now += STEP_NS;
	for (int i = 0; i < 2; i++) {
		const struct side *s = &a->p.side[i];
		uint64_t timer, due;

		did += srdma_relay_run(s->relay, a->p.now, 64);
		timer = srdma_relay_timer(s->relay);
		due = srdma_port_mem_due(s->wire);
		next = timer < next ? timer : next;
		next = due < next ? due : next;
	}
	if (!did && next > a->p.now && next < UINT64_MAX)
		a->p.now = next;
}

static void begin(struct attack *a, int window)
{
	const char *text = getenv("SRDMA_ADDS");

	memset(a, 0, sizeof(*a));
	a->adds = text ? strtoull(text, NULL, 0) : ADDS;
	a->random = (uint64_t)window;
	pair_defaults(&a->p);
	a->p.now = 1000000000;
	a->p.wire.window = window;
	a->p.wire.slots = a->p.wire.bufs = 1024;
	a->p.host[0].bufs = a->p.host[1].bufs = 1024;
	pair_open(&a->p);
	for (int i = 0; i < PAIR_QPS; i++)
		pair_connect(&a->p, i);
	for (int c = 0; c < COUNTERS; c++) {
		a->told[c] = calloc(a->adds, 1);
		assert_non_null(a->told[c]);
	}
	a->p.wire.now = &a->p.now;
	a->p.wire.latency = LATENCY_NS;
	a->p.wire.ctx = a;
	a->p.wire.fate = strike;
}

static void finish(struct attack *a)
{
	const struct srdma_stats *target =
		srdma_relay_stats(a->p.side[1].relay);

	for (int c = 0; c < COUNTERS; c++) {
		uint64_t value;

		memcpy(&value, a->p.side[1].memory + c * SPAN, sizeof(value));
		assert_int_equal(value, a->made[c]);
		for (uint64_t n = 0; n < a->adds; n++)
			assert_int_equal(a->told[c][n], n < value);
		free(a->told[c]);
	}
	assert_int_equal(target->atomics_executed, a->adds);
	assert_true(target->atomics_repeated > 0);
	print_message("%llu adds, %llu packets, %llu hit, %llu answered again, "
		      "%.1f ms\n",
		      (unsigned long long)a->adds, (unsigned long long)a->sent,
		      (unsigned long long)a->hit,
		      (unsigned long long)target->atomics_repeated,
		      (double)(a->p.now - 1000000000) / 1e6);
	pair_close(&a->p);
}

static void count(int window)
{
	static struct attack a;
	uint64_t ended[PAIR_QPS] = { 0 };

	begin(&a, window);
	while (a.ended < a.adds) {
		for (uint32_t qp = 0; qp < PAIR_QPS; qp++)
			while (a.posted < a.adds &&
			       a.under_way[qp] - ended[qp] < UNDER_WAY)
				post(&a, qp);
		turn(&a);
		look(&a, ended);
	}
	finish(&a);
}

static void test_each_add_once_on_ordered_wire(void **state)
{
	(void)state;
	count(64);
}

/* review A15 */
static void test_each_add_once_on_reordering_wire(void **state)
{
	(void)state;
	count(1024);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_add_once_on_ordered_wire),
		cmocka_unit_test(test_each_add_once_on_reordering_wire),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
