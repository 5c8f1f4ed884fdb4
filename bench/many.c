/*
 * bench/many: a worker with many QPs against one with one. Two embedded NICs
 * in one process and thread, with one connection between them; WRITEs by QPs in
 * order and at random, 64 under way in all. Prints the memory of a QP, how fast
 * they are set up, and the time of a message over that of one QP in the same
 * round: medians, with the quartiles as spread.
 */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "host.h"
#include "leg_shm.h"
#include "port_shm.h"
#include "provider.h"
#include "relay_impl.h"
#include "relay_pair.h"

enum {
	MOST = 100000,
	UNDER_WAY = 64,
	DEPTH = 4,     /* of an SQ; of the only one: all that is under way */
	OF_LEG = 5000, /* its ring holds records for 7,281 */
	LEGS = MOST / OF_LEG,
	REGION = 65536,
	GROUP = 500, /* QPs that connect at a time */
	BUDGET = 32,
	MAX_ROUNDS = 101,
	CASES = 4, /* order, size */
};

/* A leg of each side, whose QPs are connected. */
struct legs {
	struct srdma_leg *leg[2];
	struct srdma_leg_shm *shm[2];
	struct srdma_host *host[2];
	uint8_t *memory[2];
	uint32_t key[2];
};

struct target {
	uint32_t qpn;
	uint16_t leg;
	uint16_t under_way;
};

/* Two relays with so many QPs. */
struct crowd {
	struct pair pair;
	char dir[64];
	uint32_t count, leg_count;
	struct legs legs[LEGS];
	struct target *qps;
	uint32_t next;
	uint64_t random;
	uint64_t rested; /* bytes of both ends, before any message */
	double set_up;	 /* seconds */
	double ns[CASES][MAX_ROUNDS];
};

static uint32_t messages = 20000;

static void must(int failed, const char *what)
{
	if (!failed)
		return;
	fprintf(stderr, "many: %s\n", what);
	exit(1);
}

static uint64_t time_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* What the relays go by. */
static uint64_t nanoseconds(void)
{
	return time_of(CLOCK_MONOTONIC);
}

/* Of this thread, which never waits: others on its core do not count. */
static uint64_t worked(void)
{
	return time_of(CLOCK_THREAD_CPUTIME_ID);
}

/* Of this process in main memory: bytes. */
static uint64_t resident(void)
{
	unsigned long all, pages;
	FILE *f = fopen("/proc/self/statm", "r");

	must(!f || fscanf(f, "%lu %lu", &all, &pages) != 2, "no statm");
	fclose(f);
	return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void turn(struct crowd *c)
{
	for (int i = 0; i < 2; i++)
		srdma_relay_run(c->pair.side[i].relay, nanoseconds(), BUDGET);
}

/* --- set up ---------------------------------------------------------------- */

static void open_leg(struct crowd *c, struct legs *l, int i)
{
	struct srdma_relay *r = c->pair.side[i].relay;
	struct srdma_leg_params lp = { .ring = SRDMA_MAX_RING,
				       .pid = getpid() };
	struct srdma_mr_params mp = {
		.region = { .length = REGION, .access = SRDMA_ACCESS_ALL },
	};
	struct srdma_leg_answer answer;
	void *memory;

	must(srdma_leg_shm_create(&l->shm[i], lp.ring), "no leg");
	memcpy(lp.fds, srdma_leg_shm_fds(l->shm[i]), sizeof(lp.fds));
	must(srdma_relay_leg_open(r, &lp, &l->leg[i], &answer) ||
		     srdma_leg_shm_attach(l->shm[i], answer.fds) ||
		     srdma_host_create(&l->host[i],
				       srdma_leg_shm_ring(l->shm[i]), lp.ring),
	     srdma_relay_why(r));
	must(srdma_leg_shm_region(REGION, &mp.region.fd, &memory), "no memory");
	l->memory[i] = memory;
	mp.region.addr = (uintptr_t)memory;
	must(srdma_relay_mr_reg(r, l->leg[i], &mp, &l->key[i]), "no region");
	close(mp.region.fd);
}

static void open_relays(struct crowd *c, uint8_t mode, uint32_t key_cache)
{
	struct srdma_port *host, *wire;

	pair_defaults(&c->pair);
	c->pair.mode = mode;
	c->pair.key_cache = key_cache;
	c->pair.qps = MOST;
	must(srdma_provider_create(&c->pair.provider, NULL), "no provider");
	strcpy(c->dir, "/tmp/srdma-many-XXXXXX");
	must(!mkdtemp(c->dir), "no directory");
	for (int i = 0; i < 2; i++) {
		must(srdma_port_shm_create_host(&host) ||
			     srdma_port_shm_create_wire(&wire, c->dir,
							i ? "b" : "a", 0),
		     "no ports");
		pair_open_relay(&c->pair, i, host, wire);
	}
	c->leg_count = (c->count + OF_LEG - 1) / OF_LEG;
	for (uint32_t l = 0; l < c->leg_count; l++)
		for (int i = 0; i < 2; i++)
			open_leg(c, &c->legs[l], i);
	turn(c);
}

static uint32_t depth_of(const struct crowd *c)
{
	return c->count == 1 ? UNDER_WAY : DEPTH;
}

/* INIT and KEYS of both ends of one. */
static void open_qp(struct crowd *c, struct target *t)
{
	struct pair *p = &c->pair;
	struct legs *l = &c->legs[t->leg];
	struct srdma_qp_keys k;

	p->depth = depth_of(c);
	for (int i = 0; i < 2; i++)
		p->side[i].leg = l->leg[i];
	pair_init_qp(p, 0);
	for (int i = 1; i >= 0; i--) {
		struct srdma_relay *r = p->side[i].relay;

		pair_keys(p, i, 0, &k);
		must(srdma_relay_qp_keys(r, l->leg[i], &k), srdma_relay_why(r));
		must(srdma_host_qp_add(l->host[i], p->side[i].qp[0].qpn,
				       p->depth, p->depth),
		     "no QP of a host");
	}
	t->qpn = p->side[0].qp[0].qpn;
}

static int is_connected(const struct crowd *c, uint32_t i)
{
	uint32_t reason;

	return srdma_relay_qp_state(c->pair.side[0].relay,
				    c->legs[c->qps[i].leg].leg[0],
				    c->qps[i].qpn, &reason) == SRDMA_QP_RTS;
}

static void open_qps(struct crowd *c)
{
	for (uint32_t i = 0, done = 0; i < c->count; i++) {
		c->qps[i].leg = (uint16_t)(i / OF_LEG);
		open_qp(c, &c->qps[i]);
		if (i + 1 < c->count && i + 1 - done < GROUP)
			continue;
		for (; done <= i; done++)
			while (!is_connected(c, done))
				turn(c);
	}
}

static struct crowd *open_crowd(uint32_t count, uint8_t mode, uint32_t cache)
{
	struct crowd *c = calloc(1, sizeof(*c));
	uint64_t before, start;

	must(!c, "no memory");
	c->count = count;
	c->random = 88172645463325252;
	c->qps = calloc(count, sizeof(*c->qps));
	must(!c->qps, "no memory");
	open_relays(c, mode, cache);
	before = resident();
	start = worked();
	open_qps(c);
	c->set_up = (double)(worked() - start) / 1e9;
	c->rested = resident() - before;
	return c;
}

static void close_crowd(struct crowd *c)
{
	for (int i = 0; i < 2; i++) {
		srdma_relay_destroy(c->pair.side[i].relay);
		for (uint32_t l = 0; l < c->leg_count; l++) {
			struct legs *legs = &c->legs[l];

			srdma_host_destroy(legs->host[i]);
			srdma_leg_shm_destroy(legs->shm[i]);
			srdma_leg_shm_region_free(legs->memory[i], REGION);
		}
	}
	srdma_provider_destroy(c->pair.provider);
	rmdir(c->dir);
	free(c->qps);
	free(c);
}

/* --- work ------------------------------------------------------------------- */

static uint32_t choose(struct crowd *c, int at_random)
{
	uint32_t i;

	do {
		if (at_random) {
			c->random ^= c->random << 13;
			c->random ^= c->random >> 7;
			c->random ^= c->random << 17;
			i = (uint32_t)(c->random % c->count);
		} else {
			i = c->next++ % c->count;
		}
	} while (c->qps[i].under_way == depth_of(c));
	return i;
}

static void post(struct crowd *c, uint32_t i, uint32_t payload)
{
	struct legs *l = &c->legs[c->qps[i].leg];
	const struct srdma_desc d = {
		.opcode = SRDMA_DESC_WRITE,
		.flags = SRDMA_DESC_SIGNALED,
		.id = i,
		.qpn = c->qps[i].qpn,
		.length = payload,
		.local_addr = (uintptr_t)l->memory[0],
		.local_key = l->key[0],
		.remote_addr = (uintptr_t)l->memory[1],
		.rkey = l->key[1],
	};
	uint8_t *slot = srdma_leg_shm_slot(l->shm[0]);
	int len;

	must(!slot, "a ring is full");
	len = srdma_host_post(l->host[0], &d, NULL, slot);
	must(len < 0 || srdma_leg_shm_post(l->shm[0], (uint32_t)len),
	     "a request was refused");
	c->qps[i].under_way++;
}

static uint32_t take(struct crowd *c)
{
	struct srdma_record r[UNDER_WAY];
	uint32_t done = 0;

	for (uint32_t l = 0; l < c->leg_count; l++) {
		int n = srdma_host_poll(c->legs[l].host[0], r, UNDER_WAY);

		for (int i = 0; i < n; i++) {
			must(r[i].status, "a WRITE failed");
			c->qps[r[i].id].under_way--;
		}
		done += (uint32_t)n;
	}
	return done;
}

/* Nanoseconds of a message. */
static double work(struct crowd *c, uint32_t payload, int at_random)
{
	const uint64_t start = worked();
	uint32_t posted = 0, done = 0;

	while (done < messages) {
		for (; posted < messages && posted - done < UNDER_WAY; posted++)
			post(c, choose(c, at_random), payload);
		for (uint32_t l = 0; l < c->leg_count; l++)
			srdma_leg_shm_flush(c->legs[l].shm[0]);
		turn(c);
		done += take(c);
	}
	return (double)(worked() - start) / messages;
}

/* --- what comes out --------------------------------------------------------- */

static const struct {
	uint32_t payload;
	int at_random;
} cases[CASES] = { { 32, 0 }, { 32, 1 }, { 2048, 0 }, { 2048, 1 } };

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void print(const struct crowd *c, const struct crowd *one, int rounds)
{
	printf("%7u QPs: %.1f KiB each at rest; %.2f in tables now; %.0f set up per s\n",
	       c->count, (double)c->rested / 2048 / c->count,
	       (double)c->pair.side[0].relay->tables.used / 1024 / c->count,
	       c->count / c->set_up);
	for (int k = 0; k < CASES; k++) {
		double ns[MAX_ROUNDS], ratio[MAX_ROUNDS];

		for (int r = 0; r < rounds; r++) {
			ns[r] = c->ns[k][r];
			ratio[r] = one->ns[k][r] / ns[r];
		}
		qsort(ns, (size_t)rounds, sizeof(*ns), compare);
		qsort(ratio, (size_t)rounds, sizeof(*ratio), compare);
		printf("  %4u B %-8s %8.0f ns  %.2f [%.2f-%.2f] of one QP\n",
		       cases[k].payload,
		       cases[k].at_random ? "random" : "in order",
		       ns[rounds / 2], ratio[rounds / 2], ratio[rounds / 4],
		       ratio[rounds * 3 / 4]);
	}
}

static void measure(struct crowd **crowds, int n, int rounds)
{
	for (int r = -1; r < rounds; r++) /* the first one warms up */
		for (int k = 0; k < CASES; k++)
			for (int i = 0; i < n; i++) {
				double ns = work(crowds[i], cases[k].payload,
						 cases[k].at_random);

				if (r >= 0)
					crowds[i]->ns[k][r] = ns;
			}
}

static const struct option table[] = {
	{ "qps", required_argument, NULL, 'q' },
	{ "mode", required_argument, NULL, 'm' },
	{ "key-cache", required_argument, NULL, 'c' },
	{ "rounds", required_argument, NULL, 'r' },
	{ "messages", required_argument, NULL, 'n' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"Usage: many [--qps N] [--mode basic|pd] [--key-cache N] [--rounds N]\n"
	"            [--messages N]\n"
	"1, 64, 1,000 ... N QPs (default 100000) between two embedded NICs:\n"
	"memory, set-up, and messages in order and at random over those of one\n"
	"QP; medians of N rounds (default 9) of N messages (default 20000).\n";

static uint32_t number(const char *text, long most)
{
	char *end;
	const long n = strtol(text, &end, 10);

	if (*end || n < 1 || n > most) {
		fprintf(stderr, "many: %s: 1 to %ld would be right\n", text,
			most);
		exit(2);
	}
	return (uint32_t)n;
}

struct wanted {
	uint32_t qps, key_cache, rounds;
	uint8_t mode;
};

static void take_option(struct wanted *w, int opt)
{
	if (opt == 'q') {
		w->qps = number(optarg, MOST);
	} else if (opt == 'c') {
		w->key_cache = number(optarg, SRDMA_MAX_KEY_CACHE);
	} else if (opt == 'r') {
		w->rounds = number(optarg, MAX_ROUNDS);
	} else if (opt == 'n') {
		messages = number(optarg, 100000000);
	} else if (opt == 'm' && !strcmp(optarg, "pd")) {
		w->mode = SRDMA_MODE_PD;
	} else if (opt == 'h') {
		fputs(help, stdout);
		exit(0);
	} else if (opt != 'm' || strcmp(optarg, "basic")) {
		fputs(help, stderr);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	static const uint32_t sizes[] = { 1, 64, 1000, 10000, MOST };
	enum { SIZES = sizeof(sizes) / sizeof(*sizes) };
	struct wanted w = { MOST, 1024, 9, SRDMA_MODE_BASIC };
	struct crowd *crowds[SIZES];
	int opt, n = 0;

	while ((opt = getopt_long(argc, argv, "", table, NULL)) != -1)
		take_option(&w, opt);
	for (; n < SIZES && (!n || sizes[n - 1] < w.qps); n++) {
		const uint32_t size = sizes[n] < w.qps ? sizes[n] : w.qps;

		crowds[n] = open_crowd(size, w.mode, w.key_cache);
	}
	measure(crowds, n, (int)w.rounds);
	for (int i = 0; i < n; i++)
		print(crowds[i], crowds[0], (int)w.rounds);
	while (n--)
		close_crowd(crowds[n]);
	return 0;
}
