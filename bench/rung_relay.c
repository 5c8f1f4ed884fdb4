/*
 * Relays: a WRITE from its descriptor to its completion through both workers
 * including acks, over a wire in memory, in one thread: all CPU time of a
 * message except that of devices.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "port/udp/port_udp.h"
#include "support/inside.h"
#include "support/relay_pair.h"
#include "rung.h"
#include "tally.h"

struct transfer {
	struct pair pair;
	uint32_t payload;
	struct srdma_conn *victim; /* wire connection of side 1 on which
				      forgeries arrive */
	uint32_t forge_at;	   /* offset of the byte that is changed */
	enum srdma_refusal why;	   /* expected reason of refusal */
	uint64_t forgeries;	   /* number of forgeries */
};

/* A transfer whose relays are not open yet. */
static struct transfer *prepare(const struct shape *s,
				const struct srdma_suite *suite, uint8_t level)
{
	struct transfer *t = calloc(1, sizeof(*t));

	if (!t)
		wrong("relay", "out of memory");
	pair_defaults(&t->pair);
	t->pair.suite = suite ? suite->id : 0;
	t->pair.tag_len = suite ? suite->tag_len : 0;
	t->pair.level = level;
	t->pair.depth = 2 * RUNG_BATCH;
	t->pair.allow_unprotected = !suite;
	t->pair.provider = s->provider;
	t->payload = s->payload;
	return t;
}

static void *join(struct transfer *t)
{
	pair_connect(&t->pair, 0);
	memset(t->pair.side[0].memory, 0x5a, t->payload);
	return t;
}

static void *open_relays(const struct shape *s, const struct srdma_suite *suite,
			 uint8_t level)
{
	struct transfer *t = prepare(s, suite, level);

	pair_open(&t->pair);
	return join(t);
}

static void udp_address(char text[SRDMA_NAME_LEN + 4], const struct end *end,
			int six)
{
	snprintf(text, SRDMA_NAME_LEN + 4, six ? "[%s]:0" : "%s:0",
		 six ? end->six : end->four);
}

enum { BARE = 1, SIX = 2 };

/*
 * Over UDP, with the AEAD if there is a suite. how: BARE to take bare datagrams,
 * SIX over IPv6.
 */
static void *open_udp(const struct shape *s, const struct srdma_suite *suite,
		      int how)
{
	char address[SRDMA_NAME_LEN + 4];
	struct transfer *t =
		prepare(s, suite, suite ? SRDMA_LEVEL_AEAD : SRDMA_LEVEL_NONE);
	char why[SRDMA_PORT_UDP_WHY_LEN];
	struct srdma_port *end[2];

	for (int i = 0; i < 2; i++) {
		udp_address(address, &s->end[i], how & SIX);
		end_enter(&s->end[i]);
		if (srdma_port_udp_create(&end[i], address, why))
			wrong("udp", why);
		end_leave(&s->end[i]);
		if (how & BARE)
			srdma_port_udp_take_bare(end[i]);
	}
	t->pair.window = 32; /* prevents an overflow of the socket buffer */
	pair_open_on(&t->pair, end[0], end[1]);
	return join(t);
}

static void *open_udp_none(const struct shape *s)
{
	return open_udp(s, NULL, 0);
}

static void *open_udp_aead(const struct shape *s)
{
	return open_udp(s, s->suite, 0);
}

static void *open_bare_aead(const struct shape *s)
{
	return open_udp(s, s->suite, BARE);
}

static void *open_udp6_none(const struct shape *s)
{
	return open_udp(s, NULL, SIX);
}

static void *open_udp6_aead(const struct shape *s)
{
	return open_udp(s, s->suite, SIX);
}

/*
 * Inject a forgery before each packet of side 0: a copy with one byte changed.
 */
static enum srdma_mem_fate forge(void *ctx, struct srdma_mem_datagram *d)
{
	struct transfer *t = ctx;
	uint8_t forged[SRDMA_MAX_PACKET];

	if (d->side == 1 || !t->victim)
		return SRDMA_MEM_PASS;
	memcpy(forged, d->data, d->len);
	forged[t->forge_at] ^= 1;
	if (srdma_port_mem_inject(t->victim, forged, d->len))
		wrong("forged 1:1", "out of memory");
	t->forgeries++;
	return SRDMA_MEM_PASS;
}

static void *open_attacked(const struct shape *s, uint32_t forge_at,
			   enum srdma_refusal why)
{
	struct transfer *t = prepare(s, s->suite, SRDMA_LEVEL_AEAD);

	t->pair.wire.fate = forge;
	t->pair.wire.ctx = t;
	t->forge_at = forge_at;
	t->why = why;
	pair_open(&t->pair);
	join(t);
	t->victim = srdma_path_conn(srdma_relay_qp(t->pair.side[1].relay,
						   t->pair.side[1].qp[0].qpn));
	return t;
}

/*
 * The destination QPN is unknown, so only the cost of receiving the packet is
 * measured.
 */
static void *open_junk(const struct shape *s)
{
	return open_attacked(s, SRDMA_BTH_LEN / 2, SRDMA_REFUSED_UNKNOWN_QP);
}

/* The tag is wrong. */
static void *open_forged(const struct shape *s)
{
	return open_attacked(s, SRDMA_BTH_LEN + SRDMA_RETH_LEN + SRDMA_STH_LEN,
			     SRDMA_REFUSED_TAG);
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

static uint64_t write_some(struct transfer *t, unsigned n)
{
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

/* Send n messages, at_once at a time. */
static uint64_t run(struct transfer *t, unsigned n, unsigned at_once)
{
	const uint64_t forgeries = t->forgeries;
	struct tally tally;
	uint64_t sum = 0;

	tally_begin(&tally, &t->pair);
	for (unsigned i = 0; i < n; i += at_once)
		sum += write_some(t, at_once);
	tally_check(&tally, &t->pair, "relay", n);
	if (t->victim && t->forgeries - forgeries < n)
		wrong("relay", "a packet without a forgery before it");
	tally_check_refused(&tally, &t->pair, "relay", t->why,
			    t->forgeries - forgeries);
	return sum;
}

static uint64_t run_write(void *state, unsigned n)
{
	return run(state, n, n);
}

static uint64_t run_alone(void *state, unsigned n)
{
	return run(state, n, 1);
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
	{ "junk 1:1", "relay aead", "before each packet one for an unknown QP",
	  open_junk, run_write, close_relays },
	{ "forged 1:1", "junk 1:1", "before each packet a forged copy",
	  open_forged, run_write, close_relays },
	{ "udp none", NULL, "over UDP, by default on loopback", open_udp_none,
	  run_write, close_relays },
	{ "udp aead", "udp none", "with the AEAD", open_udp_aead, run_write,
	  close_relays },
	{ "udp bare aead", "udp aead", "without ICRC, in trains",
	  open_bare_aead, run_write, close_relays },
	{ "udp6 none", NULL, "over IPv6, whose datagrams leave in trains",
	  open_udp6_none, run_write, close_relays },
	{ "udp6 aead", "udp6 none", "with the AEAD", open_udp6_aead, run_write,
	  close_relays },
	{ 0 },
};
