/*
 * Fixture for responder tests: handmade packets of side 0's QPs arrive at side
 * 1 in any order. The responses of side 1 are recorded.
 */
#ifndef SRDMA_TEST_ARRIVING_H
#define SRDMA_TEST_ARRIVING_H

#include <string.h>

#include "support/inside.h"
#include "support/relay_pair.h"

struct scene {
	struct pair pair;
	/* Free buffers and reorder entries of side 1 at rest. */
	uint32_t bufs, records;
	struct srdma_ack_body ack;	      /* latest that side 1 sent */
	unsigned acks, naks, closes, answers; /* sent by side 1 */
	int deaf;			      /* 1: side 0 receives nothing */
};

static inline enum srdma_mem_fate listen(void *ctx,
					 struct srdma_mem_datagram *d)
{
	struct scene *s = ctx;
	struct srdma_packet p;

	if (d->side != 1)
		return SRDMA_MEM_PASS;
	assert_int_equal(srdma_wire_parse(&p, d->data, d->len, s->pair.tag_len,
					  s->pair.mtu),
			 0);
	if (srdma_wire_traits(p.opcode) & SRDMA_T_ANSWER)
		s->answers++;
	if (p.opcode == SRDMA_OP_ACKNOWLEDGE) {
		s->ack = p.ack;
		s->acks += p.ack.kind == SRDMA_ACK_ACK;
		s->naks += p.ack.kind == SRDMA_ACK_NAK;
		s->closes += p.ack.kind == SRDMA_ACK_CLOSE;
	}
	return s->deaf ? SRDMA_MEM_DROP : SRDMA_MEM_PASS;
}

/* Sets defaults, which the caller may change before scene_open(). */
static inline void scene_begin(struct scene *s)
{
	memset(s, 0, sizeof(*s));
	pair_defaults(&s->pair);
	s->pair.wire.ctx = s;
	s->pair.wire.fate = listen;
	s->pair.wire.slots = 1000;
	s->pair.wire.window = 1024;
	s->pair.host[1].bufs = 1024;
}

/* Buffers of side 1 that are free or hold no packet. */
static inline int buffers(const struct scene *s)
{
	const struct srdma_relay *r = s->pair.side[1].relay;

	return r->env.host->ops->buf_free(r->env.host) + (r->spare != NULL);
}

/* Opens QPs [0, qps). */
static inline void scene_open(struct scene *s, int qps)
{
	pair_open(&s->pair);
	s->bufs = (uint32_t)buffers(s);
	s->records = s->pair.side[1].relay->reorder.left;
	for (int i = 0; i < qps; i++)
		pair_connect(&s->pair, i);
}

/* Asserts that no buffer, reorder entry or op is in use. */
static inline void scene_at_rest(struct scene *s)
{
	const struct srdma_relay *r = s->pair.side[1].relay;

	assert_int_equal(buffers(s), s->bufs);
	assert_int_equal(r->reorder.left, s->records);
	assert_int_equal(r->env.ops.left, SRDMA_OPS);
}

static inline void scene_close(struct scene *s)
{
	scene_at_rest(s);
	pair_close(&s->pair);
}

static inline struct srdma_qp *qp_at(struct scene *s, int side, int i)
{
	return srdma_relay_qp(s->pair.side[side].relay,
			      s->pair.side[side].qp[i].qpn);
}

static inline const struct srdma_stats *target_stats(const struct scene *s)
{
	return srdma_relay_stats(s->pair.side[1].relay);
}

/* Payload byte at this offset of a request. */
static inline uint8_t byte_of(uint64_t id, uint32_t at)
{
	return (uint8_t)(1 + (id * 37 + at) % 251);
}

/* Returns the last packet number that side 1 has sent on QP i. */
static inline uint64_t last_sent(struct scene *s, int i)
{
	return srdma_session_next_pn(srdma_qp_session(qp_at(s, 1, i))) - 1;
}

/* Seals a packet on QP i of side 0 and injects it at side 1, on its end of a
 * connection. An ack without a
 * highest packet number names the last one sent. */
static inline void put_at(struct scene *s, int i, struct srdma_conn *conn,
			  struct srdma_packet p)
{
	uint8_t payload[SRDMA_MAX_PAYLOAD], out[SRDMA_MAX_PACKET];
	int len;

	if (p.opcode == SRDMA_OP_ACKNOWLEDGE && !p.ack.highest_pn)
		p.ack.highest_pn = (uint32_t)last_sent(s, i);
	for (uint32_t k = 0; k < p.payload_len; k++)
		payload[k] = byte_of(p.request_id, p.offset + k);
	len = srdma_session_seal(srdma_qp_session(qp_at(s, 0, i)), &p, payload,
				 out, sizeof(out));
	assert_true(len > 0);
	assert_int_equal(srdma_port_mem_inject(conn, out, (uint32_t)len), 0);
}

/* The same, on the connection on which side 1 sends. */
static inline void put_on(struct scene *s, int i, struct srdma_packet p)
{
	put_at(s, i, srdma_path_conn(qp_at(s, 1, i)), p);
}

/* put_on() for QP 0; then both sides run two turns. */
static inline void arrive(struct scene *s, struct srdma_packet p)
{
	put_on(s, 0, p);
	pair_run(&s->pair, 2);
}

enum { PIECE = 64, PLACE = 16384 };

/* Offset of a request's destination in the memory of side 1. */
static inline uint64_t place_of(uint64_t id)
{
	return id * PLACE % (PAIR_MEMORY / 2);
}

/* Packet k of n of a WRITE. */
static inline struct srdma_packet piece(const struct scene *s, uint64_t id,
					uint32_t k, uint32_t n)
{
	const struct side *target = &s->pair.side[1];
	static const uint8_t opcodes[2][2] = {
		{ SRDMA_OP_WRITE_MIDDLE, SRDMA_OP_WRITE_LAST },
		{ SRDMA_OP_WRITE_FIRST, SRDMA_OP_WRITE_ONLY },
	};

	return (struct srdma_packet){
		.opcode = opcodes[k == 0][k == n - 1],
		.request_id = id,
		.offset = k * PIECE,
		.va = (uintptr_t)target->memory + place_of(id),
		.rkey = target->key,
		.dma_len = n * PIECE,
		.payload_len = PIECE,
	};
}

/* A read chunk: len bytes of a READ from offset. */
static inline struct srdma_packet part(const struct scene *s, uint64_t id,
				       uint32_t offset, uint32_t len)
{
	struct srdma_packet p = piece(s, id, 0, 1);

	p.opcode = SRDMA_OP_READ_REQUEST;
	p.offset = offset;
	p.dma_len = len;
	p.payload_len = 0;
	return p;
}

/* A single-packet SEND. */
static inline struct srdma_packet message(uint64_t id, uint32_t len)
{
	return (struct srdma_packet){ .opcode = SRDMA_OP_SEND_ONLY,
				      .request_id = id,
				      .payload_len = len };
}

/* Number of bytes of [from, to) of a request that are placed. */
static inline uint32_t bytes_there(const struct scene *s, uint64_t id,
				   uint32_t from, uint32_t to)
{
	const uint8_t *at = s->pair.side[1].memory + place_of(id);
	uint32_t n = 0;

	for (uint32_t k = from; k < to; k++)
		n += at[k] == byte_of(id, k);
	return n;
}

/* Reason of QP i of side 1; NONE while it is in RTS. */
static inline uint32_t reason_of(struct scene *s, int i)
{
	uint32_t why = SRDMA_REASON_NONE;

	return pair_state(&s->pair, 1, i, &why) == SRDMA_QP_RTS
		       ? SRDMA_REASON_NONE
		       : why;
}

#define EXPECT_POSITION(s, id_, offset_)                                       \
	do {                                                                   \
		assert_int_equal((s)->ack.request_id, id_);                    \
		assert_int_equal((s)->ack.offset, offset_);                    \
	} while (0)

#define EXPECT_GAP(s, i, id_, offset_, extent)                                 \
	do {                                                                   \
		assert_true((i) < (s)->ack.gaps);                              \
		assert_int_equal((s)->ack.gap[i].request_id, id_);             \
		assert_int_equal((s)->ack.gap[i].offset, offset_);             \
		assert_int_equal((s)->ack.gap[i].length, extent);              \
	} while (0)

#endif
