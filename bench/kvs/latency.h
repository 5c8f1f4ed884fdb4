/*
 * Histogram of latencies in ns. A class is 1/64 of a power of two wide, so a
 * quantile, reported as the middle of its class, has an error of at most 0.8
 * per cent.
 */
#ifndef KVS_LATENCY_H
#define KVS_LATENCY_H

#include <stdint.h>

enum { KVS_CLASS_BITS = 6, KVS_CLASSES = (64 - KVS_CLASS_BITS + 1) * 64 };

struct kvs_latency {
	uint64_t counts[KVS_CLASSES];
	uint64_t total;
};

/* Below 64 ns each value has its own class. */
static inline unsigned kvs_latency_class(uint64_t ns)
{
	unsigned shift;

	if (ns < 1 << KVS_CLASS_BITS)
		return (unsigned)ns;
	shift = 63 - (unsigned)__builtin_clzll(ns) - KVS_CLASS_BITS;
	return (shift << KVS_CLASS_BITS) + (unsigned)(ns >> shift);
}

static inline void kvs_latency_add(struct kvs_latency *l, uint64_t ns)
{
	l->counts[kvs_latency_class(ns)]++;
	l->total++;
}

/*
 * The latency in ns that a share q (0 to 1) of the requests did not exceed; 0
 * if there were none.
 */
uint64_t kvs_latency_quantile(const struct kvs_latency *l, double q);

#endif
