#include "crowd.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "bench_leg.h"
#include "meeting.h"
#include "crypto/provider.h"
#include "support/inside.h"
#include "support/relay_pair.h"

enum {
	REGION = 65536, /* bytes of a leg's region */
	GROUP = 500,	/* QPs that connect concurrently */
	BUDGET = 32,
};

struct ends {
	uint32_t qpn[2];
	uint16_t legs;
	uint16_t under_way;
};

struct crowd {
	struct crowd_params params;
	struct crowd_costs costs;
	struct pair pair;
	struct meeting meeting;
	uint32_t depth;	 /* of an SQ and of an RQ */
	uint32_t of_leg; /* QPs per leg */
	uint32_t leg_count;
	struct bench_leg (*legs)[2]; /* one leg on each side; their QPs are
					connected to each other */
	struct ends *qps;
	uint32_t next;
	uint64_t random;
};

static void must(int failed, const char *what)
{
	if (!failed)
		return;
	fprintf(stderr, "many: %s\n", what);
	exit(1);
}

/* why NULL: success. */
static void check(const char *why)
{
	must(why != NULL, why);
}

/*
 * CPU time of this thread, ns. The thread never blocks; time that other threads
 * take on its core does not count.
 */
static uint64_t worked(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* Resident memory of this process, bytes. */
static uint64_t resident(void)
{
	unsigned long all, pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	must(!f || fscanf(f, "%lu %lu", &all, &pages) != 2,
	     "cannot read /proc/self/statm");
	fclose(f);
	return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void turn(struct crowd *c)
{
	for (int i = 0; i < 2; i++)
		srdma_relay_run(c->pair.side[i].relay, clock_now(), BUDGET);
}

/* --- relays and legs ------------------------------------------------------ */

/* Touch the pages of a leg, as in a leg that has been in use for long. */
static void make_pages(const struct bench_leg *l)
{
	const int fd = srdma_leg_shm_fds(l->shm)[0];
	struct stat leg;

	must(fstat(fd, &leg) || posix_fallocate(fd, 0, leg.st_size),
	     "out of memory for a leg");
}

/* Completion records that a QP may need; one leg serves as many QPs as fit. */
static uint32_t records(const struct crowd *c)
{
	return 2 * c->depth + 1;
}

static void open_legs(struct crowd *c)
{
	const uint32_t count = c->params.qps;
	uint32_t ring = 64;

	c->of_leg = SRDMA_MAX_RING / records(c);
	c->leg_count = (count + c->of_leg - 1) / c->of_leg;
	while (ring < SRDMA_MAX_RING && ring < count * records(c))
		ring *= 2;
	c->legs = calloc(c->leg_count, sizeof(*c->legs));
	must(!c->legs, "no memory");
	for (uint32_t l = 0; l < c->leg_count; l++)
		for (int i = 0; i < 2; i++) {
			check(bench_leg_open(&c->legs[l][i],
					     c->pair.side[i].relay, ring,
					     REGION));
			make_pages(&c->legs[l][i]);
		}
	turn(c);
}

static void open_relays(struct crowd *c)
{
	pair_defaults(&c->pair);
	c->pair.mode = c->params.mode;
	c->pair.key_cache = c->params.key_cache;
	c->pair.depth = c->depth;
	c->pair.qps = CROWD_MOST;
	must(srdma_provider_create(&c->pair.provider, NULL),
	     "cannot create a crypto provider");
	check(meeting_open(&c->meeting, &c->pair));
}

/* --- QPs -------------------------------------------------------------------- */

/* INIT and KEYS for both ends of one connection. */
static void open_qp(struct crowd *c, struct ends *q)
{
	struct pair *p = &c->pair;
	struct srdma_qp_keys k;

	for (int i = 0; i < 2; i++)
		p->side[i].leg = c->legs[q->legs][i].leg;
	pair_init_qp(p, 0);
	for (int i = 1; i >= 0; i--) {
		struct srdma_relay *r = p->side[i].relay;

		pair_keys(p, i, 0, &k);
		must(srdma_relay_qp_keys(r, p->side[i].leg, &k),
		     srdma_relay_why(r));
		q->qpn[i] = p->side[i].qp[0].qpn;
	}
}

static struct srdma_qp *sender(const struct crowd *c, uint32_t i)
{
	return srdma_relay_qp(c->pair.side[0].relay, c->qps[i].qpn[0]);
}

static void open_qps(struct crowd *c)
{
	const uint32_t count = c->params.qps;

	for (uint32_t i = 0, done = 0; i < count; i++) {
		c->qps[i].legs = (uint16_t)(i / c->of_leg);
		open_qp(c, &c->qps[i]);
		if (i + 1 < count && i + 1 - done < GROUP)
			continue;
		for (; done <= i; done++) {
			while (srdma_qp_state(sender(c, done)) < SRDMA_QP_RTS)
				turn(c);
			must(srdma_qp_state(sender(c, done)) != SRDMA_QP_RTS ||
				     srdma_qp_keyed(sender(c, done))->level !=
					     SRDMA_LEVEL_AEAD ||
				     srdma_qp_keyed(sender(c, done))->mode !=
					     c->params.mode,
			     "a QP is not connected, or at another level or mode");
		}
	}
}

/*
 * Add the QPs to the hosts. Done after measuring, because host memory is not
 * worker memory.
 */
static void tell_hosts(struct crowd *c)
{
	for (uint32_t i = 0; i < c->params.qps; i++)
		for (int s = 0; s < 2; s++)
			must(srdma_host_qp_add(c->legs[c->qps[i].legs][s].host,
					       c->qps[i].qpn[s], c->depth,
					       c->depth),
			     "cannot add a QP to a host");
}

struct crowd *crowd_open(const struct crowd_params *params)
{
	struct crowd *c = calloc(1, sizeof(*c));
	uint64_t before, start;

	must(!c, "no memory");
	c->params = *params;
	/*
	 * Deep enough that choose() always finds a QP with room for another
	 * burst.
	 */
	c->depth =
		params->burst + (CROWD_UNDER_WAY - params->burst) / params->qps;
	c->random = 88172645463325252;
	c->qps = calloc(params->qps, sizeof(*c->qps));
	must(!c->qps, "no memory");
	open_relays(c);
	open_legs(c);
	before = resident();
	start = worked();
	open_qps(c);
	c->costs.set_ups = params->qps / ((double)(worked() - start) / 1e9);
	c->costs.resident = (double)(resident() - before) / 2 / params->qps;
	check(meeting_end(&c->meeting));
	tell_hosts(c);
	return c;
}

void crowd_close(struct crowd *c)
{
	for (int i = 0; i < 2; i++) {
		srdma_relay_destroy(c->pair.side[i].relay);
		for (uint32_t l = 0; l < c->leg_count; l++)
			bench_leg_close(&c->legs[l][i]);
	}
	srdma_provider_destroy(c->pair.provider);
	free(c->legs);
	free(c->qps);
	free(c);
}

void crowd_cost(const struct crowd *c, struct crowd_costs *costs)
{
	*costs = c->costs;
	costs->tables =
		(double)c->pair.side[0].relay->env.tables.used / c->params.qps;
}

/* --- work ------------------------------------------------------------------- */

static uint32_t number_of(struct crowd *c, int at_random)
{
	if (!at_random)
		return c->next++ % c->params.qps;
	c->random ^= c->random << 13;
	c->random ^= c->random >> 7;
	c->random ^= c->random << 17;
	return (uint32_t)(c->random % c->params.qps);
}

/*
 * A QP with room for a burst: the drawn one, or the next one with room. Drawing
 * again would take long when most QPs are full.
 */
static uint32_t choose(struct crowd *c, int at_random)
{
	uint32_t i = number_of(c, at_random);

	while (c->qps[i].under_way + c->params.burst > c->depth)
		i = i + 1 < c->params.qps ? i + 1 : 0;
	return i;
}

static void post(struct crowd *c, uint32_t i, uint32_t payload)
{
	struct bench_leg *l = c->legs[c->qps[i].legs];
	const struct srdma_desc d = {
		.opcode = SRDMA_DESC_WRITE,
		.flags = SRDMA_DESC_SIGNALED,
		.id = i,
		.qpn = c->qps[i].qpn[0],
		.length = payload,
		.local_addr = (uintptr_t)l[0].memory,
		.local_key = l[0].key,
		.remote_addr = (uintptr_t)l[1].memory,
		.rkey = l[1].key,
	};

	check(bench_leg_post(&l[0], &d));
	c->qps[i].under_way++;
}

static uint32_t take(struct crowd *c)
{
	struct srdma_record r[CROWD_UNDER_WAY];
	uint32_t done = 0;

	for (uint32_t l = 0; l < c->leg_count; l++) {
		int n = srdma_host_poll(c->legs[l][0].host, r, CROWD_UNDER_WAY);

		for (int i = 0; i < n; i++) {
			must(r[i].status, "a WRITE failed");
			c->qps[r[i].id].under_way--;
		}
		done += (uint32_t)n;
	}
	return done;
}

static void move(struct crowd *c, uint32_t messages, uint32_t payload,
		 int at_random)
{
	const uint32_t burst = c->params.burst;
	uint32_t posted = 0, done = 0;

	while (done < messages) {
		while (posted < messages &&
		       posted + burst - done <= CROWD_UNDER_WAY) {
			const uint32_t i = choose(c, at_random);

			for (uint32_t n = 0; n < burst; n++)
				post(c, i, payload);
			posted += burst;
		}
		for (uint32_t l = 0; l < c->leg_count; l++)
			srdma_leg_shm_flush(c->legs[l][0].shm);
		turn(c);
		done += take(c);
	}
}

double crowd_work(struct crowd *c, uint32_t messages, uint32_t payload,
		  int at_random)
{
	const struct srdma_stats *from = &c->pair.side[0].relay->env.stats;
	const struct srdma_stats *to = &c->pair.side[1].relay->env.stats;
	const uint32_t all = (messages + c->params.burst - 1) /
			     c->params.burst * c->params.burst;
	const uint64_t sealed = from->packets_sealed + all;
	const uint64_t verified = to->packets_verified + all;
	const uint64_t start = worked();

	move(c, all, payload, at_random);
	must(from->packets_sealed < sealed || to->packets_verified < verified ||
		     from->packets_unprotected_sent,
	     "messages were sent without protection");
	return (double)(worked() - start) / all;
}
