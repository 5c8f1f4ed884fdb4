/*
 * bench/primitives: the rate at which one or several cores compute MACs over
 * blocks and derive keys of memory ranges, in CPU time. Prints one line of JSON
 * per size or depth. For a median, run it repeatedly.
 */
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "memory/memkey.h"
#include "number.h"
#include "process.h"
#include "crypto/provider.h"
#include "crypto/suite.h"

enum { MAX_THREADS = 64, BATCH = 16, MAX_BYTES = 65536, LOG2_BLOCK = 12 };

/* Parameters of all worker processes. */
struct job {
	const char *provider; /* NULL: the fastest */
	const struct srdma_suite *suite;
	unsigned bytes; /* bytes of a block; 0: derive keys */
	unsigned depth;
	uint64_t ns; /* minimum CPU time */
};

struct runner {
	uint64_t count, ns;
};

/*
 * Shared state. The "threads" are processes, like the worker processes of a
 * worker (docs/performance.md, Worker processes).
 */
struct crew {
	pthread_barrier_t start;
	struct runner runner[MAX_THREADS];
};

/* State of one process. */
struct bench {
	const struct job *job;
	struct srdma_provider *provider;
	const struct srdma_suite_verbs *verbs;
	struct srdma_suite_ctx *ctx;
	uint8_t *block, nonce[16], tag[SRDMA_SUITE_MAX_TAG];
	struct srdma_cmac cmac;
	struct srdma_memtree tree;
	uint8_t root[SRDMA_MEMKEY_LEN], key[SRDMA_MEMKEY_LEN];
	uint64_t leaf;
};

static _Noreturn void wrong(const char *what)
{
	fprintf(stderr, "primitives: %s\n", what);
	exit(1);
}

/*
 * --- MACs over blocks ------------------------------------------------------
 */

static struct srdma_suite_io block_of(const struct bench *b)
{
	return (struct srdma_suite_io){ .nonce = b->nonce,
					.ad = b->nonce,
					.in = b->block,
					.in_len = b->job->bytes };
}

static int code(struct bench *b)
{
	const struct srdma_suite_io io = block_of(b);

	return b->verbs->seal(b->ctx, &io, b->tag);
}

static int refused(const struct bench *b, struct srdma_suite_ctx *check)
{
	const struct srdma_suite_io io = block_of(b);

	return b->verbs->open(check, &io, b->tag);
}

static void open_code(struct bench *b)
{
	static const uint8_t key[SRDMA_SUITE_MAX_KEY] = { 1, 2, 3 };
	const struct srdma_suite *s = b->job->suite;
	struct srdma_suite_key k = { s, SRDMA_SUITE_OPEN, s->tag_len, key };
	struct srdma_suite_ctx *check;

	b->verbs = srdma_provider_verbs(b->provider, s);
	b->block = malloc(b->job->bytes);
	if (!b->block || b->verbs->create(&check, b->provider, &k))
		wrong("cannot create a suite context");
	memset(b->block, 0x5a, b->job->bytes);
	k.use = SRDMA_SUITE_SEAL;
	if (b->verbs->create(&b->ctx, b->provider, &k) || code(b) ||
	    refused(b, check))
		wrong("a correct MAC was rejected");
	b->block[0] ^= 1;
	if (!refused(b, check))
		wrong("a wrong MAC was accepted");
	b->verbs->destroy(check);
}

static void run_code(struct bench *b, uint64_t count)
{
	while (count--) {
		b->nonce[0]++;
		if (code(b))
			wrong("sealing failed");
	}
}

/* --- keys of memory ranges ------------------------------------------------ */

/* Derive the key of a leaf from the root without a cache. */
static void derive(struct bench *b, unsigned depth, unsigned from)
{
	struct srdma_memnode node;

	if (srdma_memtree_find(&b->tree, depth, b->leaf << LOG2_BLOCK, &node) ||
	    srdma_memkey_walk(&b->cmac, b->key, &b->tree, from, &node))
		wrong("cannot derive a key");
}

static void open_keys(struct bench *b)
{
	const unsigned depth = b->job->depth;
	uint8_t straight[SRDMA_MEMKEY_LEN];

	b->tree = (struct srdma_memtree){
		.end = (uint64_t)1 << (LOG2_BLOCK + depth),
		.log2_block = LOG2_BLOCK,
		.depth_limit = SRDMA_MEMTREE_DEPTH_MAX,
	};
	if (srdma_cmac_create(&b->cmac, SRDMA_MEMKEY_LEN, b->provider))
		wrong("cannot create a CMAC context");
	memset(b->root, 7, sizeof(b->root));
	b->leaf = ((uint64_t)1 << depth) - 1;
	memcpy(b->key, b->root, sizeof(b->root));
	derive(b, depth, 0);
	memcpy(straight, b->key, sizeof(straight));
	memcpy(b->key, b->root, sizeof(b->root));
	derive(b, depth - 1, 0);
	if (!memcmp(b->key, straight, sizeof(straight)))
		wrong("a node has its parent's key");
	derive(b, depth, depth - 1);
	if (memcmp(b->key, straight, sizeof(straight)))
		wrong("two derivations of a key differ");
}

static void run_keys(struct bench *b, uint64_t count)
{
	const uint64_t leaves = (uint64_t)1 << b->job->depth;

	while (count--) {
		b->leaf = (b->leaf + 1) % leaves;
		memcpy(b->key, b->root, sizeof(b->root));
		derive(b, b->job->depth, 0);
	}
}

/*
 * --- processes
 * ----------------------------------------------------------------
 */

static void stay_on(int core)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(core, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		wrong("a process cannot be pinned to its core");
}

/* CPU time of this thread, ns: preemption does not count. */
static uint64_t cpu_time_of(void (*what)(struct bench *, uint64_t),
			    struct bench *b, uint64_t count)
{
	const uint64_t from = clock_ns(CLOCK_THREAD_CPUTIME_ID);

	what(b, count);
	return clock_ns(CLOCK_THREAD_CPUTIME_ID) - from;
}

static void run(const struct job *job, pthread_barrier_t *start,
		struct runner *r)
{
	struct bench b = { .job = job };
	void (*run_this)(struct bench *, uint64_t) =
		job->bytes ? run_code : run_keys;

	if (srdma_provider_create(&b.provider, job->provider))
		wrong("this build or CPU has no such provider");
	(job->bytes ? open_code : open_keys)(&b);
	pthread_barrier_wait(start);
	for (r->count = BATCH; r->ns < job->ns; r->count *= 2)
		r->ns = cpu_time_of(run_this, &b, r->count);
	r->count /= 2;
	if (b.ctx)
		b.verbs->destroy(b.ctx);
	srdma_cmac_destroy(&b.cmac);
	srdma_provider_destroy(b.provider);
	free(b.block);
}

/* The i-th of the cores that this process may use. */
static int core_at(unsigned i)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		wrong("cannot determine the cores");
	for (int core = 0; core < CPU_SETSIZE; core++)
		if (CPU_ISSET(core, &set) && i-- == 0)
			return core;
	wrong("more threads than cores");
}

static void print(const struct job *job, const struct runner *r, unsigned n)
{
	double rate = 0, ns = 0; /* total per second; ns in one process */

	for (unsigned i = 0; i < n; i++) {
		rate += (double)r[i].count / (double)r[i].ns * 1e9;
		ns += (double)r[i].ns / (double)r[i].count / n;
	}
	if (job->bytes)
		printf("{\"suite\": \"%s\", \"bytes\": %u, ", job->suite->name,
		       job->bytes);
	else
		printf("{\"depth\": %u, ", job->depth);
	printf("\"threads\": %u, \"ns\": %.2f, \"per_second\": %.0f}\n", n, ns,
	       rate);
	fflush(stdout);
}

static struct crew *crew_open(unsigned threads)
{
	struct crew *c = mmap(NULL, sizeof(*c), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_t shared;

	if (c == MAP_FAILED)
		wrong("out of memory");
	pthread_barrierattr_init(&shared);
	pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&c->start, &shared, threads);
	pthread_barrierattr_destroy(&shared);
	return c;
}

static void start(struct crew *c, unsigned i, const struct job *job)
{
	const pid_t child = process_fork("primitives");

	if (child < 0)
		wrong("cannot create a process");
	if (child)
		return;
	stay_on(core_at(i));
	run(job, &c->start, &c->runner[i]);
	exit(0);
}

static void measure(const struct job *job, unsigned threads)
{
	struct crew *c = crew_open(threads);
	int status;

	core_at(threads - 1); /* check the number of cores */
	for (unsigned i = 0; i < threads; i++)
		start(c, i, job);
	for (unsigned i = 0; i < threads; i++)
		if (wait(&status) < 0 || status)
			exit(1); /* the child has reported the cause; the
				    other children end with this process */
	print(job, c->runner, threads);
	pthread_barrier_destroy(&c->start);
	munmap(c, sizeof(*c));
}

/*
 * --- the command line --------------------------------------------------------
 */

static const char help[] =
	"Usage: primitives [--provider NAME] [--threads N] [--ms N] WHAT...\n"
	"  WHAT  SUITE:BYTES  MACs over blocks, by a suite that only\n"
	"                     authenticates\n"
	"        depth:N      keys of memory ranges at this depth of the tree\n"
	"A line of JSON for each, in CPU time: ns per operation in one thread, and\n"
	"operations per second of all threads.\n";

static const struct option table[] = {
	{ "provider", required_argument, NULL, 'P' },
	{ "threads", required_argument, NULL, 't' },
	{ "ms", required_argument, NULL, 'm' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static _Noreturn void refuse(const char *text, const char *right)
{
	fprintf(stderr, "primitives: %s: give %s\n", text, right);
	exit(2);
}

static unsigned number(const char *text, unsigned most, const char *right)
{
	long n;

	if (!number_read(text, 1, most, &n))
		refuse(text, right);
	return (unsigned)n;
}

static struct job job_of(const char *text)
{
	const char *colon = strchr(text, ':');
	struct job job = { 0 };
	char name[32];

	if (!colon || colon - text >= (ptrdiff_t)sizeof(name))
		refuse(text, "SUITE:BYTES or depth:N");
	memcpy(name, text, (size_t)(colon - text));
	name[colon - text] = '\0';
	if (!strcmp(name, "depth")) {
		job.depth = number(colon + 1, 40, "a depth of 1 to 40");
		return job;
	}
	job.suite = srdma_suite_by_name(name);
	if (!job.suite || job.suite->answer->out)
		refuse(name, "a suite that only authenticates");
	job.bytes = number(colon + 1, MAX_BYTES, "1 to 65536 bytes");
	return job;
}

int main(int argc, char **argv)
{
	const char *provider = NULL;
	unsigned threads = 1, ms = 20;
	int opt;

	while ((opt = getopt_long(argc, argv, "", table, NULL)) != -1) {
		switch (opt) {
		case 'P':
			provider = optarg;
			break;
		case 't':
			threads = number(optarg, MAX_THREADS, "1 to 64");
			break;
		case 'm':
			ms = number(optarg, 60000, "1 to 60000");
			break;
		case 'h':
			fputs(help, stdout);
			return 0;
		default:
			fputs(help, stderr);
			return 2;
		}
	}
	if (optind == argc) {
		fputs(help, stderr);
		return 2;
	}
	for (; optind < argc; optind++) {
		struct job job = job_of(argv[optind]);

		job.provider = provider;
		job.ns = (uint64_t)ms * 1000000;
		measure(&job, threads);
	}
	return 0;
}
