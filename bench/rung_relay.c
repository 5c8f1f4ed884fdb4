/*
 * Relays: a WRITE from its descriptor to its completion through both workers,
 * acks included, on a wire in memory and in one thread: all the CPU time of a
 * message but the devices'.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "relay_pair.h"
#include "rung.h"

struct transfer {
	struct pair pair;
	uint32_t payload;
};

static void *open_relays(const struct shape *s, const struct srdma_suite *suite,
			 uint8_t level)
{
	struct transfer *t = calloc(1, sizeof(*t));

	if (!t)
		wrong("relay", "no memory");
	pair_defaults(&t->pair);
	t->pair.suite = suite ? suite->id : 0;
	t->pair.tag_len = suite ? suite->tag_len : 0;
	t->pair.level = level;
	t->pair.depth = 2 * RUNG_BATCH;
	t->pair.allow_unprotected = !suite;
	t->pair.provider = s->provider;
	t->payload = s->payload;
	pair_open(&t->pair);
	pair_connect(&t->pair, 0);
	memset(t->pair.side[0].memory, 0x5a, s->payload);
	return t;
}

static void *open_none(const struct shape *s)
{
	return open_relays(s, NULL, SRDMA_LEVEL_NONE);
}

static void *open_header(const struct shape *s)
{
	return open_relays(s, srdma_suite_by_name("aes-128-gmac"),
			   SRDMA_LEVEL_HEADER);
}

static void *open_packet(const struct shape *s)
{
	return open_relays(s, srdma_suite_by_name("aes-128-gmac"),
			   SRDMA_LEVEL_PACKET);
}

static void *open_aead(const struct shape *s)
{
	return open_relays(s, s->suite, SRDMA_LEVEL_AEAD);
}

static void close_relays(void *state)
{
	struct transfer *t = state;

	pair_close(&t->pair);
	free(t);
}

static uint64_t run_write(void *state, unsigned n)
{
	struct transfer *t = state;
	struct pair *p = &t->pair;
	const uint64_t start = ticks();
	struct srdma_record r;

	for (unsigned i = 0; i < n; i++)
		pair_post(p, 0,
			  (struct srdma_desc){
				  .opcode = SRDMA_DESC_WRITE,
				  .id = i,
				  .length = t->payload,
				  .local_addr = (uintptr_t)p->side[0].memory,
				  .remote_addr = (uintptr_t)p->side[1].memory,
			  },
			  NULL);
	for (unsigned done = 0; done < n;) {
		pair_run(p, 1);
		while (pair_record(p, 0, &r)) {
			if (r.status || r.id != done++)
				wrong("relay", "a WRITE failed");
		}
	}
	return ticks() - start;
}

/* One at a time. */
static uint64_t run_alone(void *state, unsigned n)
{
	uint64_t sum = 0;

	while (n--)
		sum += run_write(state, 1);
	return sum;
}

const struct rung rungs_relay[] = {
	{ "relay none", NULL, "descriptor to completion, both workers, acks",
	  open_none, run_write, close_relays },
	{ "relay header", "relay none", "the same, aes-128-gmac over headers",
	  open_header, run_write, close_relays },
	{ "relay packet", "relay none", "over headers and payload", open_packet,
	  run_write, close_relays },
	{ "relay aead", "relay none", "with the AEAD", open_aead, run_write,
	  close_relays },
	{ "alone none", NULL, "one message at a time", open_none, run_alone,
	  close_relays },
	{ "alone header", "alone none", "the same, aes-128-gmac over headers",
	  open_header, run_alone, close_relays },
	{ "alone aead", "alone none", "with the AEAD", open_aead, run_alone,
	  close_relays },
	{ 0 },
};
