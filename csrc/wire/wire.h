/*
 * Wire formats of srdma-1: packets, host descriptors, completion records, with
 * their lengths and limits (docs/protocol.md 2; local-interface.md 2, 5).
 * Section numbers in comments are those of docs/protocol.md.
 *
 * The parser accepts any input: it reads only [data, data + len) and never
 * asserts on received data. Lengths are in bytes; integers in structs are in
 * host byte order.
 */
#ifndef SRDMA_WIRE_H
#define SRDMA_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "srdma/types.h"

enum srdma_wire_limits {
	SRDMA_MAX_QPN = 0xffffff, /* 24 bits; 0 is no QP */
	SRDMA_BTH_LEN = 12,
	SRDMA_RETH_LEN = 16,
	SRDMA_ATOMIC_ETH_LEN = 28,
	SRDMA_AETH_LEN = 4,
	SRDMA_ATOMIC_ACK_ETH_LEN = 8,
	SRDMA_IMM_LEN = 4,
	SRDMA_STH_LEN = 8,
	SRDMA_STH_PROOF_LEN = 32,
	SRDMA_PROOF_LEN = 16,
	SRDMA_ACK_BODY_LEN = 28,
	SRDMA_GAP_LEN = 12,
	SRDMA_MAX_GAPS = 8,
	SRDMA_MAX_TAG = 64,
	SRDMA_MAX_PAYLOAD = 4096,
	/* ACKNOWLEDGE with all gaps: BTH, AETH, STH, tag, body, gaps */
	SRDMA_MAX_HEADER = 12 + 4 + 8 + 64 + 28 + 8 * 12,
	SRDMA_MAX_PACKET = SRDMA_MAX_HEADER + SRDMA_MAX_PAYLOAD + 3,
	SRDMA_MAX_MESSAGE = 1 << 30,
	SRDMA_MAX_READ_CHUNK = 65536,
	SRDMA_ATOMIC_LEN = 8,	     /* operand size of an atomic */
	SRDMA_ATOMIC_RESULTS = 1024, /* that the target of a QP keeps (5.3) */
};

/* BTH OpCode: RC opcodes of IBTA (2.2). */
enum srdma_opcode {
	SRDMA_OP_SEND_FIRST = 0x00,
	SRDMA_OP_SEND_MIDDLE = 0x01,
	SRDMA_OP_SEND_LAST = 0x02,
	SRDMA_OP_SEND_LAST_IMM = 0x03,
	SRDMA_OP_SEND_ONLY = 0x04,
	SRDMA_OP_SEND_ONLY_IMM = 0x05,
	SRDMA_OP_WRITE_FIRST = 0x06,
	SRDMA_OP_WRITE_MIDDLE = 0x07,
	SRDMA_OP_WRITE_LAST = 0x08,
	SRDMA_OP_WRITE_LAST_IMM = 0x09,
	SRDMA_OP_WRITE_ONLY = 0x0a,
	SRDMA_OP_WRITE_ONLY_IMM = 0x0b,
	SRDMA_OP_READ_REQUEST = 0x0c,
	SRDMA_OP_READ_RESPONSE_FIRST = 0x0d,
	SRDMA_OP_READ_RESPONSE_MIDDLE = 0x0e,
	SRDMA_OP_READ_RESPONSE_LAST = 0x0f,
	SRDMA_OP_READ_RESPONSE_ONLY = 0x10,
	SRDMA_OP_ACKNOWLEDGE = 0x11,
	SRDMA_OP_ATOMIC_ACKNOWLEDGE = 0x12,
	SRDMA_OP_COMPARE_SWAP = 0x13,
	SRDMA_OP_FETCH_ADD = 0x14,
	SRDMA_OP_SEND_LAST_INV = 0x16,
	SRDMA_OP_SEND_ONLY_INV = 0x17,
	SRDMA_OP_COUNT = 0x18,
};

/* Kind of an opcode and the headers it has; see srdma_wire_traits(). */
enum srdma_trait {
	SRDMA_T_SEND = 1 << 0,
	SRDMA_T_WRITE = 1 << 1,
	SRDMA_T_READ = 1 << 2, /* READ_REQUEST */
	SRDMA_T_ATOMIC = 1 << 3,
	/* request_id names a request of the packet's sender (4.2) */
	SRDMA_T_REQUEST = 1 << 4,
	SRDMA_T_ANSWER = 1 << 5, /* READ_RESPONSE_*, ATOMIC_ACKNOWLEDGE */
	SRDMA_T_ACK = 1 << 6,
	SRDMA_T_FIRST = 1 << 7, /* FIRST, ONLY: begins a message or chunk */
	SRDMA_T_LAST = 1 << 8,	/* LAST, ONLY: ends a message or chunk */
	SRDMA_T_RETH = 1 << 9,
	SRDMA_T_ATOMIC_ETH = 1 << 10,
	SRDMA_T_AETH = 1 << 11,
	SRDMA_T_ATOMIC_ACK_ETH = 1 << 12,
	SRDMA_T_IMM = 1 << 13,
	SRDMA_T_IETH = 1 << 14,
	SRDMA_T_PAYLOAD = 1 << 15, /* may carry a payload */
	SRDMA_T_KNOWN = 1 << 16,
};

/* Traits of an opcode (enum srdma_trait), with other bits that wire.c uses; 0 if
 * table 2.2 has no such opcode. */
uint32_t srdma_wire_traits(uint8_t opcode);

enum srdma_sth_flag {
	SRDMA_STH_PROOF = 0x80,
	SRDMA_STH_HOLDER = 0x40,
	SRDMA_STH_ACK_NOW = 0x20,
	SRDMA_STH_BARE = 0x10, /* the sender takes bare datagrams (11a) */
};

enum srdma_ack_kind {
	SRDMA_ACK_OPEN = 1,
	SRDMA_ACK_PING = 2,
	SRDMA_ACK_CLOSE = 3,
	SRDMA_ACK_ACK = 4,
	SRDMA_ACK_NAK = 5,
	SRDMA_ACK_RNR = 6,
};

/* Flag in srdma_gap.length. Set: the other bits are n, and the gap ends where
 * request_id + n begins. Clear: length is in bytes from offset on (5.2). */
#define SRDMA_GAP_IDS (UINT32_C(1) << 31)

struct srdma_gap {
	uint32_t request_id;
	uint32_t offset;
	uint32_t length;
};

/* Fields of srdma_ack_body.path (7.3): a token, and a flag of the sender. */
#define SRDMA_PATH_LIMITED (UINT32_C(1) << 31) /* its path is not validated */
#define SRDMA_PATH_TOKEN   (SRDMA_PATH_LIMITED - 1)

struct srdma_ack_body {
	uint8_t kind;
	uint8_t reason; /* enum srdma_reason */
	uint8_t gaps;
	/* 1: missing ranges before the first gap are not listed */
	uint8_t skips;
	uint32_t request_id; /* position: id, low 32 bits */
	uint32_t offset;
	uint32_t highest_pn; /* low 32 bits of a packet number */
	uint32_t recv_credit;
	uint32_t request_credit;
	uint32_t path; /* UDP, else 0: SRDMA_PATH_LIMITED, SRDMA_PATH_TOKEN */
	struct srdma_gap gap[SRDMA_MAX_GAPS];
};

/*
 * A packet as fields: input of the sealer and output of the parser.
 * Sealer: reads opcode, request_id, flags, offset and the fields that the
 * opcode's traits require. The session adds QPN, PSN, epoch, tag code and pad.
 * Parser: fills all fields but pn and the high bits of request_id, which
 * srdma_session_open() infers.
 */
struct srdma_packet {
	uint8_t opcode;
	uint8_t tag_code; /* parser only */
	uint8_t epoch; /* 2 bits; like qpn and psn, set by parser or session */
	uint8_t pad;
	/* srdma_wire_traits(opcode), set by parser and builder */
	uint32_t traits;
	uint32_t qpn;	     /* SRC QPN of the receiver */
	uint32_t psn;	     /* low 24 bits of pn */
	uint64_t pn;	     /* 62 bits; set by seal and open */
	uint64_t request_id; /* parser: low 24 bits; after open: all 62 */
	uint32_t offset;     /* of the first payload byte in its message */
	uint8_t flags;	     /* enum srdma_sth_flag */
	uint8_t depth;	     /* with flag P only, like expiry and proof */
	uint32_t expiry;
	uint8_t proof[SRDMA_PROOF_LEN];
	/* Sealer only: K_access (6.1), from which seal computes the proof.
	 * NULL: `proof` is sent unchanged. */
	const uint8_t *access_key;
	uint64_t va; /* RETH, AtomicETH: virtual address */
	uint32_t rkey;
	uint32_t dma_len;  /* RETH: length of the message or read chunk */
	uint64_t swap_add; /* AtomicETH: swap or add operand */
	uint64_t compare;
	uint64_t original; /* AtomicAckETH: original value */
	uint32_t imm;	   /* ImmDt, IETH: the 4 bytes read as big-endian */
	uint32_t payload_len;
	/* Positions and lengths in the datagram, set by parser and builder. */
	uint32_t tag_at;
	uint32_t tag_len;
	uint32_t payload_at;
	uint32_t len;
	const uint8_t *data;
	struct srdma_ack_body ack; /* ACKNOWLEDGE only; last: see below */
};

/* Sets all fields to 0 except ack.gap, of which only ack.gaps entries are used. */
static inline void srdma_packet_clear(struct srdma_packet *p)
{
	memset(p, 0, offsetof(struct srdma_packet, ack.gap));
}

/*
 * Parses a datagram (2.5) and fills *p. tag_len is the tag length of the QP's
 * suite; mtu is the largest payload accepted. *p keeps pointers into data;
 * nothing is allocated.
 * Returns 0, or a negative enum srdma_refusal (stats.h) for the first check
 * that failed.
 */
int srdma_wire_parse(struct srdma_packet *p, const uint8_t *data, size_t len,
		     uint32_t tag_len, uint32_t mtu);

/*
 * The destination QPN (the receiver's SRC QPN) of a datagram; nothing else is
 * checked.
 * Returns the 24-bit number, or -1 if the datagram is shorter than a BTH.
 */
int32_t srdma_wire_qpn(const uint8_t *data, size_t len);

/*
 * Writes BTH, extension headers, STH, ack body and pad bytes of *p to out
 * (SRDMA_MAX_PACKET bytes). The caller writes the tag (tag_len bytes) at
 * p->tag_at and the payload at p->payload_at; both positions, pad, tag_code,
 * data and len are set here. p->qpn, psn and epoch are written unchanged.
 * Returns the length of the datagram, or -EINVAL if the fields make no legal
 * packet of the opcode or no size code exists for tag_len.
 */
int srdma_wire_build(struct srdma_packet *p, uint8_t *out, uint32_t tag_len);

/* Tag size code of a tag length in bytes (2.1); -1 if no code exists. */
int srdma_wire_tag_code(uint32_t tag_len);

/* --- host leg (9) --------------------------------------------------- */

enum {
	SRDMA_DESC_LEN = 64,
	SRDMA_MAX_INLINE = 448,
	SRDMA_DESC_SLOT = SRDMA_DESC_LEN + SRDMA_MAX_INLINE,
	SRDMA_OPERANDS_LEN = 16, /* follow an atomic's descriptor */
	SRDMA_SGE_LEN = 16,
	SRDMA_MAX_SGES = SRDMA_MAX_INLINE / SRDMA_SGE_LEN,
	SRDMA_RECORD_LEN = 32,
};

enum srdma_desc_op {
	SRDMA_DESC_WRITE = 1,
	SRDMA_DESC_WRITE_IMM = 2,
	SRDMA_DESC_READ = 3,
	SRDMA_DESC_SEND = 4,
	SRDMA_DESC_SEND_IMM = 5,
	SRDMA_DESC_COMPARE_SWAP = 6,
	SRDMA_DESC_FETCH_ADD = 7,
	SRDMA_DESC_ATOMIC_WRITE =
		8, /* of a program; its descriptor is a WRITE */
	SRDMA_DESC_RECV = 16,
	SRDMA_DESC_CREDIT = 17,
};

enum srdma_desc_flag {
	SRDMA_DESC_SIGNALED = 0x01,
	SRDMA_DESC_FENCE = 0x02,
	SRDMA_DESC_INLINE = 0x04,
};

struct srdma_desc {
	uint8_t opcode;
	uint8_t flags;
	uint8_t sges; /* entries of the SGL; 0: the local buffer is below */
	uint32_t qpn;
	uint64_t id;
	uint32_t consumed; /* completion records consumed, mod 2^32 */
	uint32_t length;   /* bytes */
	uint64_t local_addr;
	uint32_t local_key;
	uint32_t rkey;
	uint64_t remote_addr;
	uint32_t imm;
	uint32_t capability; /* handle from INSTALL; 0: none */
	uint64_t swap_add;   /* atomics only, follow the descriptor */
	uint64_t compare;    /* COMPARE_SWAP only, else 0 */
};

static inline int srdma_desc_is_atomic(uint8_t opcode)
{
	return opcode == SRDMA_DESC_COMPARE_SWAP ||
	       opcode == SRDMA_DESC_FETCH_ADD;
}

/* 1 if length and operands of an atomic are legal. */
static inline int srdma_desc_operands_ok(const struct srdma_desc *d)
{
	return d->length == SRDMA_ATOMIC_LEN &&
	       (d->opcode == SRDMA_DESC_COMPARE_SWAP || !d->compare);
}

/* 1 if the request is answered by a response (READ, atomic). It completes when
 * the response is in host memory. */
static inline int srdma_desc_is_answered(uint8_t opcode)
{
	return opcode == SRDMA_DESC_READ || srdma_desc_is_atomic(opcode);
}

/* 1 if the request names memory of the target, and so may use a capability. */
static inline int srdma_desc_names_memory(uint8_t opcode)
{
	return opcode == SRDMA_DESC_WRITE || opcode == SRDMA_DESC_WRITE_IMM ||
	       opcode == SRDMA_DESC_ATOMIC_WRITE ||
	       srdma_desc_is_answered(opcode);
}

/* 1 if the local memory of the request may be an SGL. */
static inline int srdma_desc_has_sgl(uint8_t opcode)
{
	return opcode != SRDMA_DESC_CREDIT && !srdma_desc_is_atomic(opcode);
}

/* 1 if the request consumes a receive of the target. */
static inline int srdma_desc_consumes_recv(uint8_t opcode)
{
	return opcode == SRDMA_DESC_SEND || opcode == SRDMA_DESC_SEND_IMM ||
	       opcode == SRDMA_DESC_WRITE_IMM;
}

/* out: SRDMA_DESC_LEN bytes, plus SRDMA_OPERANDS_LEN for an atomic. Returns the
 * number of bytes written. Inline data or the SGL follow. */
uint32_t srdma_desc_encode(uint8_t *out, const struct srdma_desc *d);
/* An SGL as it follows the descriptor: n * SRDMA_SGE_LEN bytes. */
void srdma_sgl_encode(uint8_t *out, const struct srdma_sge *sgl, uint32_t n);
void srdma_sgl_decode(struct srdma_sge *sgl, const uint8_t *in, uint32_t n);

/*
 * Decodes a descriptor slot of len bytes, inline data included.
 * Returns 0;
 * -EPROTO if the length, the opcode or a flag is not legal, bytes that must be
 * zero are not, INLINE, an SGL or a capability is set for an opcode that has
 * none, inline data or SGL is longer than the slot, the length is not the sum of
 * the SGL, or the length or operands of an atomic are not legal
 * (srdma_desc_operands_ok());
 * -EMSGSIZE if the message is longer than SRDMA_MAX_MESSAGE.
 * On failure *d holds the decoded fields if SRDMA_DESC_LEN <= len <=
 * SRDMA_DESC_SLOT, else zeros.
 */
int srdma_desc_decode(struct srdma_desc *d, const uint8_t *in, size_t len);
/* The QPN of a descriptor, nothing else decoded; 0 if in is too short. */
uint32_t srdma_desc_qpn(const uint8_t *in, size_t len);
/* enum srdma_wc_opcode of the completion of a descriptor; -1: it has none. */
int srdma_desc_wc_opcode(uint8_t opcode);

enum { SRDMA_RECORD_WITH_IMM = 1 };

/* Completion record (9.2). */
struct srdma_record {
	uint64_t id;
	uint32_t qpn;
	uint8_t opcode; /* enum srdma_wc_opcode */
	uint8_t status; /* value of enum ibv_wc_status */
	uint16_t flags;
	uint32_t vendor_err; /* enum srdma_reason */
	uint32_t byte_len;
	uint32_t imm;
	uint32_t sequence;
};

void srdma_record_encode(uint8_t out[SRDMA_RECORD_LEN],
			 const struct srdma_record *r);
void srdma_record_decode(struct srdma_record *r,
			 const uint8_t in[SRDMA_RECORD_LEN]);

#endif
