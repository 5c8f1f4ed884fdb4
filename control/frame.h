/*
 * Frames of the control link (docs/control-link.md 2.1): length (4) | stream (4)
 * | type (1) | body, big-endian. The length counts the bytes behind it.
 */
#ifndef CONTROL_FRAME_H
#define CONTROL_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "control/queue.h"
#include "host/message.h"

enum {
	FRAME_HEAD = 9, /* bytes before the body */
	FRAME_BODY_MAX = 65535,
	FRAME_MAX = FRAME_HEAD + FRAME_BODY_MAX,
};

enum frame_type {
	FRAME_HELLO,
	FRAME_HEARTBEAT,
	FRAME_OPEN,
	FRAME_OPENED,
	FRAME_DATA,
	FRAME_END,
	FRAME_REFUSED,
};

struct frame {
	uint32_t stream;
	uint8_t type; /* enum frame_type, or an unknown one */
	const uint8_t *body;
	size_t len; /* of the body */
};

/*
 * Parses the first frame of `have` bytes. f->body points into them. Returns the
 * size of the frame; 0: it is not complete; -EMSGSIZE: its body would be longer
 * than FRAME_BODY_MAX; -EPROTO: it has no stream or no type.
 */
int frame_parse(struct frame *f, const uint8_t *in, size_t have);

/* Appends a frame to a queue. 0 or -ENOMEM. */
int frame_put(struct queue *q, uint32_t stream, enum frame_type type,
	      const uint8_t *body, size_t len);
/* The same for a map, which it frees. */
int frame_put_map(struct queue *q, uint32_t stream, enum frame_type type,
		  struct srdma_message *map);

#endif
