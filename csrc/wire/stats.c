#include "wire/stats.h"

#include <stddef.h>

#include "wire/reason.h"

static const char *const names[] = {
#define X(name) #name,
	SRDMA_COUNTS(X) SRDMA_GAUGES(X) SRDMA_WIRE_COUNTS(X)
#undef X
		NULL, /* SRDMA_REFUSED_NOT */
#define X(NAME, name) "refused_" #name,
	SRDMA_REFUSALS(X)
#undef X
};

/* Index of the first reason; reason.c has the names from here on. */
enum { FIXED = sizeof(names) / sizeof(names[0]) };

_Static_assert(offsetof(struct srdma_stats, reason) == FIXED * sizeof(uint64_t),
	       "one name per counter");

const char *srdma_stats_name(unsigned i)
{
	return i < FIXED ? names[i] : srdma_reason(i - FIXED)->counter;
}

unsigned srdma_stats_count(void)
{
	return sizeof(struct srdma_stats) / sizeof(uint64_t);
}
