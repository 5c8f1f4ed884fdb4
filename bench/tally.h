/*
 * Counters of a pair's relays while a rung ran. They check that the packets had
 * the protection that the rung claims to measure.
 */
#ifndef BENCH_TALLY_H
#define BENCH_TALLY_H

#include "support/relay_pair.h"
#include "wire/stats.h"

struct tally {
	struct srdma_stats before[2];
};

/* Save the counters of both relays. */
void tally_begin(struct tally *t, const struct pair *p);

/*
 * Check that side 0 sent n messages since tally_begin(): at least n packets
 * that it sealed and side 1 verified, and responses likewise; or, if the pair
 * has no protection, only unprotected packets. Exits the program otherwise.
 */
void tally_check(const struct tally *t, const struct pair *p, const char *rung,
		 unsigned n);
/*
 * Check that side 1 refused exactly this number of packets, all of them for
 * reason why.
 */
void tally_check_refused(const struct tally *t, const struct pair *p,
			 const char *rung, enum srdma_refusal why,
			 uint64_t forgeries);

#endif
