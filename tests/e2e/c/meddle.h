/*
 * Faults on a cable, chosen at random from one seed. About half of the changed
 * packets get a correct checksum, as from an attacker. The others keep the
 * wrong one, as on a bad link.
 */
#ifndef MEDDLE_H
#define MEDDLE_H

#include "cable.h"

enum meddle_fault {
	MEDDLE_FLIP, /* of a bit */
	MEDDLE_DROP,
	MEDDLE_TWICE,
	/* by an older packet of the same side, or by random bytes */
	MEDDLE_REPLACE,
	MEDDLE_LATE, /* 1 to 8 packets of the same side overtake it */
	MEDDLE_FAULTS,
};

enum { MEDDLE_OF = 10000, MEDDLE_PAST = 256, MEDDLE_HELD = 16 };

struct meddle_copy {
	struct frame frame; /* its data points to bytes */
	uint32_t wait;	    /* packets that still overtake it; 0: unused */
	uint8_t bytes[FRAME_MAX];
};

struct meddle {
	struct cable *cable;
	uint64_t random;
	uint32_t rates[MEDDLE_FAULTS]; /* per MEDDLE_OF packets */
	uint32_t swallow; /* bits of the sides whose packets are all dropped */

	uint64_t packets;	      /* packets received */
	uint64_t hits[MEDDLE_FAULTS]; /* packets hit, by fault */
	uint64_t swallowed;

	struct meddle_copy past[SIDES][MEDDLE_PAST];
	uint32_t pasts[SIDES]; /* counters, never reset */
	struct meddle_copy held[SIDES][MEDDLE_HELD];
};

/* A cable_sink: applies a fault, or none, and gives the result to the cable. */
void meddle_pass(void *meddle, struct frame *frame);

/*
 * Sends held packets, when no more packets arrive. Returns 0 if there were
 * none.
 */
int meddle_release(struct meddle *m);

#endif
