/* The relay calls keepalive of its host port (port.h) in time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/time.h"
#include "support/relay_pair.h"

static struct {
	struct srdma_port_ops ops;
	uint32_t calls;
	uint64_t last;	   /* time of the last call */
	uint64_t interval; /* 0: no further call is wanted */
} port;

static uint64_t keepalive(struct srdma_port *host, uint64_t now)
{
	(void)host;
	port.calls++;
	port.last = now;
	return port.interval ? now + port.interval : SRDMA_NEVER;
}

/* Opens a pair; the host port of side 0 has keepalive. */
static void open_(struct pair *p, uint64_t interval)
{
	struct srdma_port *a, *b;

	pair_defaults(p);
	assert_int_equal(srdma_port_mem_wire_pair(&a, &b, &p->wire), 0);
	pair_open_side(p, 0, a);
	port.ops = *p->side[0].host->ops;
	port.ops.keepalive = keepalive;
	port.calls = 0;
	port.interval = interval;
	p->side[0].host->ops = &port.ops;
	pair_open_side(p, 1, b);
}

static void test_first_call_follows_the_host(void **state)
{
	struct pair p;

	(void)state;
	open_(&p, 2 * SRDMA_SECOND);
	assert_int_equal(port.calls, 0);
	pair_run(&p, 2);
	assert_true(port.calls > 0);
	pair_close(&p);
}

static void test_calls_are_repeated_at_the_wanted_time(void **state)
{
	struct pair p;
	uint64_t due;

	(void)state;
	open_(&p, 2 * SRDMA_SECOND);
	pair_run(&p, 2);
	for (int i = 0; i < 3; i++) {
		due = port.last + port.interval;
		assert_true(srdma_relay_timer(p.side[0].relay) <= due);
		pair_wait_ms(&p, 2001);
		assert_true(port.last >= due);
	}
	pair_close(&p);
}

static void test_no_call_is_made_when_none_is_wanted(void **state)
{
	struct pair p;
	uint32_t calls;

	(void)state;
	open_(&p, 0);
	pair_run(&p, 2);
	calls = port.calls;
	assert_true(srdma_relay_timer(p.side[0].relay) == SRDMA_NEVER);
	pair_wait_ms(&p, 60000);
	assert_int_equal(port.calls, calls);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_first_call_follows_the_host),
		cmocka_unit_test(test_calls_are_repeated_at_the_wanted_time),
		cmocka_unit_test(test_no_call_is_made_when_none_is_wanted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
