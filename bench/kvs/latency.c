#include "latency.h"

/* The middle of a class, ns. */
static uint64_t middle(unsigned class)
{
	unsigned shift;

	if (class < 1 << KVS_CLASS_BITS)
		return class;
	shift = (class >> KVS_CLASS_BITS) - 1;
	return (((uint64_t) class - (shift << KVS_CLASS_BITS)) << shift) +
	       (((uint64_t)1 << shift) - 1) / 2;
}

uint64_t kvs_latency_quantile(const struct kvs_latency *l, double q)
{
	const double wanted = q * (double)l->total;
	uint64_t seen = 0;

	for (unsigned i = 0; i < KVS_CLASSES; i++) {
		seen += l->counts[i];
		if (seen && (double)seen >= wanted)
			return middle(i);
	}
	return 0;
}
