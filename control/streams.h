/* The streams of one link, by their numbers. */
#ifndef CONTROL_STREAMS_H
#define CONTROL_STREAMS_H

#include "control/stream.h"

enum { STREAMS_MAX = 4096 };

/* All zero: empty. Open addressing: half of the places at least are empty. */
struct streams {
	struct stream *place[2 * STREAMS_MAX];
	unsigned count;
};

/* The caller adds at most STREAMS_MAX. */
void streams_add(struct streams *t, struct stream *s);
/* Does not destroy it. */
void streams_remove(struct streams *t, const struct stream *s);
/* NULL: there is no such stream. */
struct stream *streams_find(const struct streams *t, uint32_t number);

#endif
