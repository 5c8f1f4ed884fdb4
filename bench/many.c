/*
 * bench/many: compares a worker with many QPs to a worker with one: memory per
 * QP, set-up rate, and the message rate on QPs in order and at random relative
 * to that of one QP in the same round. Prints medians, with the quartiles as
 * spread.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crowd.h"
#include "number.h"
#include "relay/relay.h"
#include "session/session.h"
#include "spread.h"

enum { MAX_SIZES = 8, MAX_ROUNDS = 101, CASES = 4 };

static const struct {
	const char *order;
	uint32_t payload;
	int at_random;
} cases[CASES] = {
	{ "in order", 32, 0 },
	{ "random", 32, 1 },
	{ "in order", 2048, 0 },
	{ "random", 2048, 1 },
};

struct measured {
	uint32_t qps;
	struct crowd *crowd;
	double ns[CASES][MAX_ROUNDS];
};

struct wanted {
	uint32_t qps[MAX_SIZES];
	int sizes; /* the first size is 1 */
	uint32_t burst, key_cache, rounds, messages;
	uint8_t mode;
	int json;
};

static void measure(struct measured *m, const struct wanted *w)
{
	/* round -1 warms up. */
	for (int r = -1; r < (int)w->rounds; r++)
		for (int k = 0; k < CASES; k++)
			for (int i = 0; i < w->sizes; i++) {
				double ns = crowd_work(m[i].crowd, w->messages,
						       cases[k].payload,
						       cases[k].at_random);

				if (r >= 0)
					m[i].ns[k][r] = ns;
			}
}

/*
 * --- output ----------------------------------------------------------------
 */

static void print_text(const struct measured *m, const struct measured *one,
		       int rounds)
{
	struct crowd_costs costs;

	crowd_cost(m->crowd, &costs);
	printf("%7u QPs: %.1f KiB each at rest, %.2f more in tables; %.0f set up per s\n",
	       m->qps, costs.resident / 1024, costs.tables / 1024,
	       costs.set_ups);
	for (int k = 0; k < CASES; k++) {
		double ns[MAX_ROUNDS], ratios[MAX_ROUNDS];
		struct spread ratio;

		for (int r = 0; r < rounds; r++) {
			ns[r] = m->ns[k][r];
			ratios[r] = one->ns[k][r] / ns[r];
		}
		ratio = spread_of(ratios, (size_t)rounds);
		printf("  %4u B %-8s %8.0f ns  %.2f [%.2f-%.2f] of one QP\n",
		       cases[k].payload, cases[k].order,
		       spread_of(ns, (size_t)rounds).median, ratio.median,
		       ratio.low, ratio.high);
	}
}

static void print_json(const struct measured *m, int rounds)
{
	struct crowd_costs costs;

	crowd_cost(m->crowd, &costs);
	printf("{\"qps\": %u, \"resident\": %.0f, \"tables\": %.0f, \"set_ups\": %.0f, \"cases\": [",
	       m->qps, costs.resident, costs.tables, costs.set_ups);
	for (int k = 0; k < CASES; k++) {
		printf("%s{\"payload\": %u, \"order\": \"%s\", \"ns\": [",
		       k ? ", " : "", cases[k].payload, cases[k].order);
		for (int r = 0; r < rounds; r++)
			printf("%s%.1f", r ? ", " : "", m->ns[k][r]);
		printf("]}");
	}
	printf("]}");
}

static void print(const struct measured *m, const struct wanted *w)
{
	if (w->json)
		printf("[");
	for (int i = 0; i < w->sizes; i++) {
		if (!w->json) {
			print_text(&m[i], m, (int)w->rounds);
			continue;
		}
		print_json(&m[i], (int)w->rounds);
		printf(i + 1 < w->sizes ? ",\n" : "]\n");
	}
}

/*
 * --- options ---------------------------------------------------------------
 */

static const struct option table[] = {
	{ "qps", required_argument, NULL, 'q' },
	{ "burst", required_argument, NULL, 'b' },
	{ "mode", required_argument, NULL, 'm' },
	{ "key-cache", required_argument, NULL, 'c' },
	{ "rounds", required_argument, NULL, 'r' },
	{ "messages", required_argument, NULL, 'n' },
	{ "json", no_argument, NULL, 'j' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"Usage: many [--qps N]... [--burst N] [--mode basic|pd] [--key-cache N]\n"
	"            [--rounds N] [--messages N] [--json]\n"
	"One QP and N QPs (default 64, 1000, 10000, 100000) between two embedded\n"
	"NICs in one thread: memory, set-up, and the CPU time of messages on QPs\n"
	"in order and at random; medians of N rounds (default 9) of N messages\n"
	"(default 20000). --burst: consecutive messages on a QP (default 1); 64\n"
	"messages are in flight in total.\n";

static uint32_t number(const char *text, long most)
{
	long n;

	if (!number_read(text, 1, most, &n)) {
		fprintf(stderr, "many: %s: give 1 to %ld\n", text, most);
		exit(2);
	}
	return (uint32_t)n;
}

static _Noreturn void wrong(void)
{
	fputs(help, stderr);
	exit(2);
}

static void add_size(struct wanted *w, uint32_t qps)
{
	if (w->sizes == MAX_SIZES)
		wrong();
	w->qps[w->sizes++] = qps;
}

static void take_mode(struct wanted *w, const char *name)
{
	if (!strcmp(name, "pd"))
		w->mode = SRDMA_MODE_PD;
	else if (strcmp(name, "basic"))
		wrong();
}

static void take_option(struct wanted *w, int opt)
{
	switch (opt) {
	case 'q':
		add_size(w, number(optarg, CROWD_MOST));
		break;
	case 'b':
		w->burst = number(optarg, CROWD_UNDER_WAY);
		break;
	case 'm':
		take_mode(w, optarg);
		break;
	case 'c':
		w->key_cache = number(optarg, SRDMA_MAX_KEY_CACHE);
		break;
	case 'r':
		w->rounds = number(optarg, MAX_ROUNDS);
		break;
	case 'n':
		w->messages = number(optarg, 100000000);
		break;
	case 'j':
		w->json = 1;
		break;
	case 'h':
		fputs(help, stdout);
		exit(0);
	default:
		wrong();
	}
}

int main(int argc, char **argv)
{
	static const uint32_t usual[] = { 64, 1000, 10000, CROWD_MOST };
	static struct measured m[MAX_SIZES];
	struct wanted w = { .qps = { 1 },
			    .sizes = 1,
			    .burst = 1,
			    .key_cache = 1024,
			    .rounds = 9,
			    .messages = 20000,
			    .mode = SRDMA_MODE_BASIC };
	int opt;

	while ((opt = getopt_long(argc, argv, "", table, NULL)) != -1)
		take_option(&w, opt);
	if (optind < argc)
		wrong();
	if (w.sizes == 1)
		for (size_t i = 0; i < sizeof(usual) / sizeof(*usual); i++)
			add_size(&w, usual[i]);
	for (int i = 0; i < w.sizes; i++) {
		m[i].qps = w.qps[i];
		m[i].crowd = crowd_open(&(struct crowd_params){
			.qps = w.qps[i],
			.burst = w.burst,
			.key_cache = w.key_cache,
			.mode = w.mode,
		});
	}
	measure(m, &w);
	print(m, &w);
	for (int i = 0; i < w.sizes; i++)
		crowd_close(m[i].crowd);
	return 0;
}
