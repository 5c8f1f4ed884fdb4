/*
 * What the relays of a pair counted while a rung ran: one whose packets were
 * not protected as it says has measured something else.
 */
#ifndef BENCH_TALLY_H
#define BENCH_TALLY_H

#include "relay_pair.h"
#include "wire/stats.h"

struct tally {
	struct srdma_stats before[2];
};

void tally_begin(struct tally *t, const struct pair *p);

/*
 * Side 0 has sent n messages since. Each was at least one packet that it sealed
 * and side 1 verified, and there were such answers; or, if the pair has no
 * protection, no packet was. Else it ends the program.
 */
void tally_check(const struct tally *t, const struct pair *p, const char *rung,
		 unsigned n);
/* Side 1 has refused so many packets since, all of them for this reason. */
void tally_check_refused(const struct tally *t, const struct pair *p,
			 const char *rung, enum srdma_refusal why,
			 uint64_t forgeries);

#endif
