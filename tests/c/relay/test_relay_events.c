/*
 * An event storm (RFC 5042 R2.2.7-1): records of QPs that end have room in the
 * ring, whatever the host consumes, and each QP makes one event, however often
 * its end is asked for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/inside.h"
#include "support/relay_pair.h"

enum { QPS = 16, DEPTH = 16, RING = 1024, TRIGGERS = 2000 };

static void trigger(struct pair *p, int i)
{
	struct side *s = &p->side[0];

	srdma_relay_qp_end(s->relay, s->leg, s->qp[i].qpn,
			   SRDMA_REASON_PEER_CLOSED);
	srdma_relay_qp_expire(s->relay, s->leg, s->qp[i].qpn);
}

static void test_a_storm_of_ends_makes_one_event_per_qp(void **state)
{
	unsigned events = 0, flushed = 0;
	struct srdma_record r;
	struct pair p;

	(void)state;
	pair_defaults(&p);
	p.depth = DEPTH;
	p.ring = RING;
	pair_open(&p);
	for (int i = 0; i < QPS; i++) {
		pair_connect(&p, i);
		for (int n = 0; n < DEPTH; n++)
			pair_post(
				&p, 0,
				(struct srdma_desc){ .opcode = SRDMA_DESC_RECV,
						     .qpn = p.side[0].qp[i].qpn,
						     .length = 64 },
				NULL);
	}
	/* The host consumes nothing. */
	for (int n = 0; n < TRIGGERS; n++) {
		for (int i = 0; i < QPS; i++)
			trigger(&p, i);
		pair_run(&p, 1);
	}
	assert_int_equal(p.side[0].relay->env.stats.completions,
			 QPS * (DEPTH + 1));
	while (pair_record(&p, 0, &r)) {
		events += r.opcode == SRDMA_WC_QP_EVENT;
		flushed += r.opcode == SRDMA_WC_RECV;
	}
	assert_int_equal(events, QPS);
	assert_int_equal(flushed, QPS * DEPTH);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_storm_of_ends_makes_one_event_per_qp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
