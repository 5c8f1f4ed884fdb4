/*
 * The ladder: a packet's path layer by layer. Each rung does the work of the
 * rung below it and more. A rung is a row of a table.
 */
#ifndef BENCH_RUNG_H
#define BENCH_RUNG_H

#include <stdint.h>

#include "crypto/provider.h"
#include "ticks.h"
#include "udp_end.h"

/* Parameters common to all rungs of a run. */
struct shape {
	const struct srdma_suite *suite; /* an AEAD; relay rungs also use
					    other suites */
	struct srdma_provider *provider;
	uint32_t payload;  /* bytes */
	struct end end[2]; /* of the rungs over UDP */
};

struct rung {
	const char *name;
	const char *below; /* name, or beginning of the names, of the rungs
			      it is compared with, or NULL */
	const char *what;  /* description of one line */
	/*
	 * Returns a state for run, or NULL if this build or shape does not have
	 * the rung.
	 */
	void *(*open)(const struct shape *shape);
	/*
	 * Process n packets, at most RUNG_BATCH. Returns the ticks taken,
	 * without preparation and checks. A wrong result exits the program.
	 */
	uint64_t (*run)(void *state, unsigned n);
	void (*close)(void *state);
};

enum { RUNG_BATCH = 64, RUNG_AD = 104 };

extern const struct rung rungs_raw[], rungs_derive[], rungs_frame[],
	rungs_mem[], rungs_udp[], rungs_relay[], rungs_nic[];

/* Ticks of n calls of once(). */
static inline uint64_t timed(void *state, unsigned n,
			     void (*once)(void *state, unsigned i))
{
	const uint64_t start = ticks();

	for (unsigned i = 0; i < n; i++)
		once(state, i);
	return ticks() - start;
}

/* Define a rung's run() that calls once() n times. */
#define DEFINE_RUN(run, once)                                                  \
	static uint64_t run(void *state, unsigned n)                           \
	{                                                                      \
		return timed(state, n, once);                                  \
	}

/* Report a wrong result of a rung and exit with status 1. */
void wrong(const char *rung, const char *what);

#endif
