/*
 * What somebody on a cable does to the packets that pass, at random from one
 * seed. Whoever changes a packet makes its checksum right again every second
 * time, as an attacker would; a bad link does not.
 */
#ifndef MEDDLE_H
#define MEDDLE_H

#include "cable.h"

enum meddle_fault {
	MEDDLE_FLIP, /* a bit */
	MEDDLE_DROP,
	MEDDLE_TWICE,
	MEDDLE_REPLACE, /* by an older one of the same side, or random bytes */
	MEDDLE_LATE,	/* 1 to 8 packets of the same side overtake it */
	MEDDLE_FAULTS,
};

enum { MEDDLE_OF = 10000, MEDDLE_PAST = 256, MEDDLE_HELD = 16 };

struct meddle_copy {
	struct frame frame; /* its data is bytes */
	uint32_t wait;	    /* held: so many more overtake it; 0: free */
	uint8_t bytes[FRAME_MAX];
};

struct meddle {
	struct cable *cable;
	uint64_t random;
	uint32_t rates[MEDDLE_FAULTS]; /* of MEDDLE_OF packets */
	uint32_t swallow;	       /* bit of a side: nothing of it passes */

	uint64_t packets;	      /* that came */
	uint64_t hits[MEDDLE_FAULTS]; /* of them */
	uint64_t swallowed;

	struct meddle_copy past[SIDES][MEDDLE_PAST];
	uint32_t pasts[SIDES]; /* runs free */
	struct meddle_copy held[SIDES][MEDDLE_HELD];
};

/* A cable_sink: what becomes of the frame is given to the cable. */
void meddle_pass(void *meddle, struct frame *frame);

/* No more packets come for now: those held go on. Returns 0 if none were. */
int meddle_release(struct meddle *m);

#endif
