/*
 * Positions in the sequence of requests (docs/protocol.md 5): a byte of a
 * message, or the start of an empty message. The only comparators of them.
 */
#ifndef SRDMA_WIRE_POSITION_H
#define SRDMA_WIRE_POSITION_H

#include <stdint.h>

#include "wire/wire.h"

struct srdma_position {
	uint64_t id;	 /* request id */
	uint64_t offset; /* byte of the message; up to 2^32 for an end */
};

static inline int srdma_position_before(struct srdma_position a,
					struct srdma_position b)
{
	return a.id < b.id || (a.id == b.id && a.offset < b.offset);
}

static inline int srdma_position_same(struct srdma_position a,
				      struct srdma_position b)
{
	return a.id == b.id && a.offset == b.offset;
}

/* Where the packet starts. */
static inline struct srdma_position
srdma_position_of(const struct srdma_packet *p)
{
	return (struct srdma_position){ p->request_id, p->offset };
}

/* Where the next packet starts. After a read chunk with bytes: the next chunk
 * of the same READ, if there is one. p->traits must be set. */
static inline struct srdma_position
srdma_position_after(const struct srdma_packet *p)
{
	const int read = (p->traits & SRDMA_T_READ) != 0;
	const uint32_t len = read ? p->dma_len : p->payload_len;

	if (read ? !len : (p->traits & SRDMA_T_LAST) != 0)
		return (struct srdma_position){ p->request_id + 1, 0 };
	return (struct srdma_position){ p->request_id, p->offset + len };
}

#endif
