/*
 * The ladder: one packet on its way, layer by layer; each rung does what the
 * one below does, and more. A rung is a row; adding one is adding a row.
 */
#ifndef BENCH_RUNG_H
#define BENCH_RUNG_H

#include <stdint.h>

#include "crypto/provider.h"

/* What all rungs of a run have in common. */
struct shape {
	const struct srdma_suite *suite; /* an AEAD; relays also use others */
	struct srdma_provider *provider;
	uint32_t payload; /* bytes */
};

struct rung {
	const char *name;
	const char *below; /* the rung it is compared with, or NULL */
	const char *what;  /* one line */
	/* A state for run, or NULL: not in this build or shape. */
	void *(*open)(const struct shape *shape);
	/* Do n packets, at most RUNG_BATCH; returns the ticks it took. What it
	 * only prepares or checks is outside. A wrong result ends the program. */
	uint64_t (*run)(void *state, unsigned n);
	void (*close)(void *state);
};

enum { RUNG_BATCH = 64, RUNG_AD = 104 };

extern const struct rung rungs_raw[], rungs_derive[], rungs_frame[],
	rungs_mem[], rungs_relay[], rungs_nic[];

/* Of a clock that never stops: cycles of the time-stamp counter where there is
 * one, else nanoseconds. */
uint64_t ticks(void);

/* Ticks of once() for each of n. */
static inline uint64_t timed(void *state, unsigned n,
			     void (*once)(void *state, unsigned i))
{
	const uint64_t start = ticks();

	for (unsigned i = 0; i < n; i++)
		once(state, i);
	return ticks() - start;
}

/* A rung's run() that only does once() for each. */
#define DEFINE_RUN(run, once)                                                  \
	static uint64_t run(void *state, unsigned n)                           \
	{                                                                      \
		return timed(state, n, once);                                  \
	}

/* A wrong result: says which and ends the program with 1. */
void wrong(const char *rung, const char *what);

#endif
