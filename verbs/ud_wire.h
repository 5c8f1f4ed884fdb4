/* The messages between UD QPs (docs/run.md 4.1). */
#ifndef VERBS_UD_WIRE_H
#define VERBS_UD_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "srdma/types.h"

enum {
	UD_VERSION = 1,	      /* of a datagram */
	UD_VERSION_GROUP = 2, /* of one for a multicast group */
	UD_HELLO_VERSION = 2,
	UD_HELLO = 12,	  /* bytes of a message in a talk */
	UD_HEAD = 8,	  /* bytes before the payload of a datagram */
	UD_HEAD_MAX = 24, /* of one for a group */
	UD_GRH = 40, /* bytes before the payload in the memory of a receive */
	UD_QPN_MOST = 0xffffff,
};

enum ud_hello_kind {
	UD_REQUEST = 1, /* of the caller */
	UD_REPLY = 2,
	UD_READY = 3, /* of an end whose keys are confirmed */
};

/* A message in the talk that makes a session. */
struct ud_hello {
	enum ud_hello_kind kind;
	uint32_t ud;	  /* QPN of the caller's UD QP; of others 0 */
	uint32_t session; /* QPN of the sender's QP of the session */
};

void ud_hello_write(uint8_t out[UD_HELLO], const struct ud_hello *h);
/* 0, or -EPROTO: another length, version or kind, a field that is not 0, or a QPN
 * out of range. */
int ud_hello_read(struct ud_hello *h, const uint8_t *in, size_t len);

/* The head of a datagram. */
struct ud_head {
	uint32_t qkey;
	const uint8_t
		*group; /* GID of a multicast group; NULL: for one UD QP */
};

static inline uint32_t ud_head_len(const struct ud_head *h)
{
	return h->group ? UD_HEAD_MAX : UD_HEAD;
}

void ud_head_write(uint8_t out[UD_HEAD_MAX], const struct ud_head *h);
/* Reads the head of a datagram of len bytes, into which h->group points. 0, or
 * -EPROTO: it is too short, of another version, or names no group. */
int ud_head_read(struct ud_head *h, const uint8_t *in, size_t len);

/* The ends of a datagram, and the length of its payload in bytes. */
struct ud_route {
	const uint8_t *from, *to; /* GIDs, SRDMA_GID_LEN bytes */
	uint16_t len;
};

/* Writes a GRH (IBA 8.3), also for GIDs that are IPv4-mapped. */
void ud_grh_write(uint8_t out[UD_GRH], const struct ud_route *r);

#endif
