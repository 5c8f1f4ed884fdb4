/*
 * bench/ladder: the cost of each layer per packet, in ns and cycles, or in
 * instructions. All rungs run in turn, round after round, so that noise of the
 * machine affects them equally. The median of the rounds is printed, with the
 * quartiles as its spread.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "number.h"
#include "rung.h"
#include "spread.h"

enum { MAX_RUNGS = 64, MAX_ROUNDS = 101, BATCHES = 47, MAX_ONLY = 16 };

struct measured {
	const struct rung *rung;
	void *state;
	double rounds[MAX_ROUNDS]; /* units per packet (ticks.h) */
	struct spread cost;
};

static struct measured list[MAX_RUNGS];
static int count;
static const char *only[MAX_ONLY]; /* empty: all rungs */
static int only_count;
static int ends; /* number of --end */

static const struct rung *const tables[] = {
	rungs_raw, rungs_derive, rungs_frame, rungs_mem,
	rungs_udp, rungs_relay,	 rungs_nic,
};

enum { TABLES = sizeof(tables) / sizeof(tables[0]) };

static const struct option table[] = {
	{ "payload", required_argument, NULL, 'p' },
	{ "suite", required_argument, NULL, 's' },
	{ "provider", required_argument, NULL, 'P' },
	{ "rounds", required_argument, NULL, 'r' },
	{ "rung", required_argument, NULL, 'R' },
	{ "end", required_argument, NULL, 'e' },
	{ "instructions", required_argument, NULL, 'i' },
	{ "json", no_argument, NULL, 'j' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"Usage: ladder [--payload BYTES] [--suite NAME] [--provider NAME]\n"
	"              [--rounds N] [--rung NAME]... [--instructions FILE] [--json]\n"
	"              [--end NETNS,IPV4,IPV6 --end NETNS,IPV4,IPV6]\n"
	"The cost of each layer per packet: ns, cycles, and the difference to\n"
	"the rung below; medians of N rounds (default 21), quartiles as spread.\n"
	"--rung: only rungs whose names begin with NAME; up to 16 times.\n"
	"--instructions: counts instructions, not time; FILE is the counter of\n"
	"the plugin bench/arm64/count.c of QEMU (make bench-arm64).\n"
	"--end: both ends of the rungs over UDP, in network namespaces; by\n"
	"default both are on the loopback interface.\n";

void wrong(const char *rung, const char *what)
{
	fprintf(stderr, "ladder: %s: %s\n", rung, what);
	exit(1);
}

/* Print the usage and exit. */
static _Noreturn void usage(void)
{
	fputs(help, stderr);
	exit(2);
}

static _Noreturn void refuse(const char *flag, const char *text,
			     const char *right)
{
	fprintf(stderr, "ladder: %s %s: give %s\n", flag, text, right);
	exit(2);
}

static int begins(const struct rung *rung, const char *name)
{
	return !strncmp(rung->name, name, strlen(name));
}

static int wanted(const struct rung *rung)
{
	for (int i = 0; i < only_count; i++)
		if (begins(rung, only[i]))
			return 1;
	return !only_count;
}

static void open_some(const struct rung *rungs, const struct shape *shape)
{
	for (; rungs->name; rungs++) {
		struct measured m = { .rung = rungs };

		if (!wanted(rungs))
			continue;
		m.state = rungs->open(shape);
		if (!m.state)
			continue;
		if (count == MAX_RUNGS)
			wrong(rungs->name, "too many rungs: raise MAX_RUNGS");
		list[count++] = m;
	}
}

static void open_all(const struct shape *shape)
{
	for (int i = 0; i < TABLES; i++)
		open_some(tables[i], shape);
}

/* 1 if a rung's name begins with name, in any build or shape. */
static int exists(const char *name)
{
	for (int i = 0; i < TABLES; i++)
		for (const struct rung *r = tables[i]; r->name; r++)
			if (begins(r, name))
				return 1;
	return 0;
}

static void ask_for(const char *name)
{
	if (only_count == MAX_ONLY)
		refuse("--rung", name, "at most 16 of them");
	if (!exists(name))
		refuse("--rung", name, "the beginning of a rung's name");
	only[only_count++] = name;
}

static void take_end(struct shape *s, const char *text)
{
	if (ends == 2 || !end_read(&s->end[ends++], text))
		refuse("--end", text, "NETNS,IPV4,IPV6, twice");
}

/* Ticks of the median batch, which excludes preempted batches. */
static double batch(const struct measured *m)
{
	double took[BATCHES];

	for (int b = 0; b < BATCHES; b++)
		took[b] = (double)m->rung->run(m->state, RUNG_BATCH);
	return spread_of(took, BATCHES).median;
}

static void measure(int rounds, double per_tick)
{
	for (int r = -1; r < rounds; r++) { /* round -1 warms up */
		for (int i = 0; i < count; i++) {
			const double took = batch(&list[i]);

			if (r >= 0)
				list[i].rounds[r] =
					took * per_tick / RUNG_BATCH;
		}
	}
	for (int i = 0; i < count; i++) {
		struct measured *m = &list[i];

		m->cost = spread_of(m->rounds, (size_t)rounds);
		m->rung->close(m->state);
	}
}

/* The cheapest of the rungs whose names begin with the `below` of m. */
static const struct measured *below(const struct measured *m)
{
	const struct measured *best = NULL;

	for (int i = 0; m->rung->below && i < count; i++)
		if (!strncmp(list[i].rung->name, m->rung->below,
			     strlen(m->rung->below)) &&
		    &list[i] != m &&
		    (!best || list[i].cost.median < best->cost.median))
			best = &list[i];
	return best;
}

/* The column "ticks" has cycles where ticks() counts them. */
static void print_text(const struct shape *s, double per_tick)
{
	printf("%s by %s, payload %u bytes, in %s\n", s->suite->name,
	       srdma_provider_name(s->provider), s->payload, ticks_unit());
	printf("%-16s %9s %17s %9s %9s  %s\n", "rung", "median", "quartiles",
	       "ticks", "added", "");
	for (int i = 0; i < count; i++) {
		const struct measured *m = &list[i], *b = below(m);

		printf("%-16s %9.1f %8.1f-%8.1f %9.0f ", m->rung->name,
		       m->cost.median, m->cost.low, m->cost.high,
		       m->cost.median / per_tick);
		if (b)
			printf("%+9.1f  over %s: %s\n",
			       m->cost.median - b->cost.median, b->rung->name,
			       m->rung->what);
		else
			printf("%9s  %s\n", "", m->rung->what);
	}
}

static void print_json(const struct shape *s, double per_tick)
{
	const char *unit = ticks_unit();

	printf("{\"suite\": \"%s\", \"provider\": \"%s\", \"payload\": %u, "
	       "\"%s_per_tick\": %.6f, \"rungs\": [",
	       s->suite->name, srdma_provider_name(s->provider), s->payload,
	       unit, per_tick);
	for (int i = 0; i < count; i++) {
		const struct measured *m = &list[i], *b = below(m);

		printf("%s{\"name\": \"%s\", \"%s\": %.2f, \"low\": %.2f, "
		       "\"high\": %.2f, \"over\": ",
		       i ? ", " : "", m->rung->name, unit, m->cost.median,
		       m->cost.low, m->cost.high);
		if (b)
			printf("\"%s\", \"added\": %.2f}", b->rung->name,
			       m->cost.median - b->cost.median);
		else
			printf("null}");
	}
	printf("]}\n");
}

/* Ends the program if a call for an argument failed. err: 0 or -errno. */
static void need(const char *argument, int err)
{
	if (err)
		wrong(argument, strerror(-err));
}

static void take(struct shape *s, int opt, int *rounds)
{
	long n = 0;

	switch (opt) {
	case 'p':
		if (!number_read(optarg, 4, 4096, &n))
			refuse("--payload", optarg, "4 to 4096 bytes");
		s->payload = (uint32_t)n;
		break;
	case 's':
		s->suite = srdma_suite_by_name(optarg);
		if (!s->suite || !s->suite->answer->out)
			refuse("--suite", optarg, "an AEAD");
		break;
	case 'P':
		need(optarg, srdma_provider_create(&s->provider, optarg));
		break;
	case 'r':
		if (!number_read(optarg, 1, MAX_ROUNDS, &n))
			refuse("--rounds", optarg, "1 to 101");
		*rounds = (int)n;
		break;
	case 'R':
		ask_for(optarg);
		break;
	case 'e':
		take_end(s, optarg);
		break;
	case 'i':
		need(optarg, ticks_count_instructions(optarg));
		break;
	case 'h':
		fputs(help, stdout);
		exit(0);
	case '?':
		usage();
	}
}

int main(int argc, char **argv)
{
	struct shape shape = {
		.suite = srdma_suite_by_name("aes-128-gcm"),
		.payload = 2048,
		.end = { { "", "127.0.0.1", "::1" },
			 { "", "127.0.0.1", "::1" } },
	};
	int opt, rounds = 21, json = 0, provider = 0;
	double per_tick;

	while ((opt = getopt_long(argc, argv, "", table, NULL)) != -1) {
		json |= opt == 'j';
		provider |= opt == 'P';
		take(&shape, opt, &rounds);
	}
	if (optind < argc || ends == 1)
		usage();
	if (!provider && srdma_provider_create(&shape.provider, NULL))
		wrong("provider", "its self-test failed");
	per_tick = ticks_to_unit();
	open_all(&shape);
	measure(rounds, per_tick);
	(json ? print_json : print_text)(&shape, per_tick);
	srdma_provider_destroy(shape.provider);
	return 0;
}
