/* Reasons of END and REFUSED (docs/control-link.md 2.1): a code and a text. */
#ifndef CONTROL_REASON_H
#define CONTROL_REASON_H

#include <stddef.h>
#include <stdint.h>

#include "control/frame.h"

struct reason {
	char code[33];
	char text[512]; /* longer ones are cut */
};

/* Returns -EPROTO, so that a caller can return a refusal at once. */
__attribute__((format(printf, 3, 4))) int
reason_set(struct reason *r, const char *code, const char *format, ...);

/* Appends END or REFUSED to a queue. 0 or -ENOMEM. */
int reason_put(struct queue *q, uint32_t stream, enum frame_type type,
	       const struct reason *r);

/*
 * Parses the body of END or REFUSED. An empty body results in empty texts.
 * -EPROTO: the body is malformed, and *r is the reason to refuse it.
 */
int reason_decode(struct reason *r, const uint8_t *body, size_t len);

#endif
