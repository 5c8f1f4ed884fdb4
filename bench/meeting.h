/*
 * A temporary directory through which the wire ports of two embedded NICs
 * connect. It is removed right after that, so that an interrupted program
 * leaves nothing behind.
 */
#ifndef BENCH_MEETING_H
#define BENCH_MEETING_H

#include "support/relay_pair.h"

struct meeting {
	char dir[32];
};

/*
 * Open both relays of a pair on shared-memory ports. Returns NULL, or the text
 * of the failure.
 */
const char *meeting_open(struct meeting *m, struct pair *p);
/*
 * Remove the directory; call when the relays are connected. Returns NULL, or
 * the text of the failure.
 */
const char *meeting_end(const struct meeting *m);

#endif
