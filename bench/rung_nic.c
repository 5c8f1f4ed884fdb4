/*
 * The embedded NIC: the same WRITEs through shared-memory rings, in one thread,
 * or with side 1's worker in a second one.
 */
#include <stdlib.h>
#include <string.h>

#include "nic.h"
#include "rung.h"
#include "tally.h"

enum { RECORDS = 64 };

struct transfer {
	struct nic nic;
	uint32_t payload;
};

static void *open_nics(const struct shape *s, const struct srdma_suite *suite,
		       uint8_t level, int threads)
{
	struct transfer *t = calloc(1, sizeof(*t));
	struct pair *p = &t->nic.pair;

	if (!t)
		wrong("nic", "out of memory");
	pair_defaults(p);
	p->suite = suite ? suite->id : 0;
	p->tag_len = suite ? suite->tag_len : 0;
	p->level = level;
	p->depth = 2 * RUNG_BATCH;
	p->allow_unprotected = !suite;
	p->provider = s->provider;
	t->payload = s->payload;
	nic_open(&t->nic, threads);
	memset(p->side[0].memory, 0x5a, s->payload);
	return t;
}

static void *open_none(const struct shape *s)
{
	return open_nics(s, NULL, SRDMA_LEVEL_NONE, 1);
}

static void *open_header(const struct shape *s)
{
	return open_nics(s, srdma_suite_by_name("aes-128-gmac"),
			 SRDMA_LEVEL_HEADER, 1);
}

static void *open_aead(const struct shape *s)
{
	return open_nics(s, s->suite, SRDMA_LEVEL_AEAD, 1);
}

static void *open_none_2(const struct shape *s)
{
	return open_nics(s, NULL, SRDMA_LEVEL_NONE, 2);
}

static void *open_aead_2(const struct shape *s)
{
	return open_nics(s, s->suite, SRDMA_LEVEL_AEAD, 2);
}

static void close_nics(void *state)
{
	struct transfer *t = state;

	nic_close(&t->nic);
	free(t);
}

static void write_some(struct transfer *t, unsigned n)
{
	struct pair *p = &t->nic.pair;
	struct srdma_desc d = {
		.opcode = SRDMA_DESC_WRITE,
		.flags = SRDMA_DESC_SIGNALED,
		.qpn = p->side[0].qp[0].qpn,
		.length = t->payload,
		.local_addr = (uintptr_t)p->side[0].memory,
		.local_key = p->side[0].key,
		.remote_addr = (uintptr_t)p->side[1].memory,
		.rkey = p->side[1].key,
	};
	struct srdma_record r[RECORDS];

	for (; d.id < n; d.id++)
		nic_post(&t->nic, &d);
	for (unsigned done = 0; done < n;) {
		int got = nic_turn(&t->nic, r, RECORDS);

		for (int i = 0; i < got; i++)
			if (r[i].status || r[i].id != done++)
				wrong("nic", "a WRITE failed");
	}
}

/* Send n messages, at_once at a time. */
static uint64_t run(struct transfer *t, unsigned n, unsigned at_once)
{
	struct tally tally;
	uint64_t took;

	tally_begin(&tally, &t->nic.pair);
	nic_start(&t->nic);
	took = ticks();
	for (unsigned i = 0; i < n; i += at_once)
		write_some(t, at_once);
	took = ticks() - took;
	nic_pause(&t->nic);
	tally_check(&tally, &t->nic.pair, "nic", n);
	return took;
}

static uint64_t run_write(void *state, unsigned n)
{
	return run(state, n, n);
}

static uint64_t run_alone(void *state, unsigned n)
{
	return run(state, n, 1);
}

const struct rung rungs_nic[] = {
	{ "nic none", NULL, "the embedded NIC: both hosts and workers, rings",
	  open_none, run_write, close_nics },
	{ "nic header", "nic none", "the same, aes-128-gmac over headers",
	  open_header, run_write, close_nics },
	{ "nic aead", "nic none", "with the AEAD", open_aead, run_write,
	  close_nics },
	{ "nic alone none", NULL, "one message at a time", open_none, run_alone,
	  close_nics },
	{ "nic alone header", "nic alone none", "over headers", open_header,
	  run_alone, close_nics },
	{ "nic alone aead", "nic alone none", "with the AEAD", open_aead,
	  run_alone, close_nics },
	{ "2 threads none", NULL, "side 1's worker in a thread of its own",
	  open_none_2, run_write, close_nics },
	{ "2 threads aead", "2 threads none", "with the AEAD", open_aead_2,
	  run_write, close_nics },
	{ 0 },
};
