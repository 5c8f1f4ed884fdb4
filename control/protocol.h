/*
 * The agent's side of the protocol of docs/control-link.md 2 and 3, without I/O:
 * which frames are legal, and what they mean.
 */
#ifndef CONTROL_PROTOCOL_H
#define CONTROL_PROTOCOL_H

#include "control/frame.h"
#include "control/reason.h"

enum { PROTOCOL_NAME_MAX = 64 }; /* bytes of a host name in HELLO */

/* All zero except `next`, which is 1, before the first frame. */
struct protocol {
	int greeted;   /* HELLO came */
	uint32_t next; /* number of the next stream */
	int64_t time;  /* of HELLO: seconds since 1970 */
	char name[PROTOCOL_NAME_MAX + 1];
};

enum protocol_event {
	PROTOCOL_NOTHING,
	PROTOCOL_GREETED,
	PROTOCOL_OPEN,
	PROTOCOL_DATA,	  /* of a live stream, not empty */
	PROTOCOL_END,	  /* of a live stream; *r is the peer's reason */
	PROTOCOL_REFUSED, /* the peer ends the link; *r is its reason */
};

/*
 * Takes a frame. live: its stream is open. Returns what it means, or -EPROTO: the
 * frame is not legal, and *r is the reason to refuse it.
 */
int protocol_take(struct protocol *p, const struct frame *f, int live,
		  struct reason *r);

/* The fields of OPEN. path points into the frame. */
struct protocol_open {
	int to_worker; /* else to an agent */
	const char *path;
	size_t path_len;
};

/* Parses the body of OPEN. 0, or -EPROTO: *r is the reason to refuse it. */
int protocol_open(struct protocol_open *o, const struct frame *f,
		  struct reason *r);

#endif
