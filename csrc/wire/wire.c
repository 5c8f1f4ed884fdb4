#include "wire/wire.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "wire/stats.h"

/* BTH (2.1) and AETH (2.4) */
enum {
	MIN_LEN = SRDMA_BTH_LEN + SRDMA_STH_LEN,
	PKEY = 0xffff,
	TVER_SE_M = 0xcf,	/* byte 1: every bit but PadCnt */
	ACKREQ_RESERVED = 0x83, /* byte 8: every bit but tag size code, epoch */
	MASK24 = 0xffffff,
	SYNDROME_ACK = 0x1f,
	SYNDROME_RNR = 0x20,
	EXTENSION = 24,
};

/* Combinations of traits for the table below. The length of the extension headers
 * is in the bits from EXTENSION on: where an opcode has two headers, the sum of
 * their lengths is their OR, as asserted below for each such pair. */
#define REQ	   (SRDMA_T_KNOWN | SRDMA_T_REQUEST)
#define SEND	   (REQ | SRDMA_T_SEND | SRDMA_T_PAYLOAD)
#define WRITE	   (REQ | SRDMA_T_WRITE | SRDMA_T_PAYLOAD)
#define ATOM	   (REQ | SRDMA_T_ATOMIC | ATOMIC_ETH | ONLY)
#define ANSW	   (SRDMA_T_KNOWN | SRDMA_T_ANSWER)
#define RESP	   (ANSW | SRDMA_T_PAYLOAD)
#define ONLY	   (SRDMA_T_FIRST | SRDMA_T_LAST)
#define RETH	   (SRDMA_T_RETH | SRDMA_RETH_LEN << EXTENSION)
#define AETH	   (SRDMA_T_AETH | SRDMA_AETH_LEN << EXTENSION)
#define IMM	   (SRDMA_T_IMM | SRDMA_IMM_LEN << EXTENSION)
#define IETH	   (SRDMA_T_IETH | SRDMA_IMM_LEN << EXTENSION)
#define ATOMIC_ETH (SRDMA_T_ATOMIC_ETH | SRDMA_ATOMIC_ETH_LEN << EXTENSION)
#define ATOMIC_ACK_ETH                                                         \
	(SRDMA_T_ATOMIC_ACK_ETH | SRDMA_ATOMIC_ACK_ETH_LEN << EXTENSION)

_Static_assert((SRDMA_RETH_LEN & SRDMA_IMM_LEN) == 0, "RETH and ImmDt");
_Static_assert((SRDMA_AETH_LEN & SRDMA_ATOMIC_ACK_ETH_LEN) == 0,
	       "AETH and AtomicAckETH");

static const uint32_t traits[SRDMA_OP_COUNT] = {
	[SRDMA_OP_SEND_FIRST] = SEND | SRDMA_T_FIRST,
	[SRDMA_OP_SEND_MIDDLE] = SEND,
	[SRDMA_OP_SEND_LAST] = SEND | SRDMA_T_LAST,
	[SRDMA_OP_SEND_LAST_IMM] = SEND | SRDMA_T_LAST | IMM,
	[SRDMA_OP_SEND_ONLY] = SEND | ONLY,
	[SRDMA_OP_SEND_ONLY_IMM] = SEND | ONLY | IMM,
	[SRDMA_OP_WRITE_FIRST] = WRITE | SRDMA_T_FIRST | RETH,
	[SRDMA_OP_WRITE_MIDDLE] = WRITE,
	[SRDMA_OP_WRITE_LAST] = WRITE | SRDMA_T_LAST,
	[SRDMA_OP_WRITE_LAST_IMM] = WRITE | SRDMA_T_LAST | IMM,
	[SRDMA_OP_WRITE_ONLY] = WRITE | ONLY | RETH,
	[SRDMA_OP_WRITE_ONLY_IMM] = WRITE | ONLY | RETH | IMM,
	[SRDMA_OP_READ_REQUEST] = REQ | SRDMA_T_READ | RETH | ONLY,
	[SRDMA_OP_READ_RESPONSE_FIRST] = RESP | SRDMA_T_FIRST | AETH,
	[SRDMA_OP_READ_RESPONSE_MIDDLE] = RESP,
	[SRDMA_OP_READ_RESPONSE_LAST] = RESP | SRDMA_T_LAST | AETH,
	[SRDMA_OP_READ_RESPONSE_ONLY] = RESP | ONLY | AETH,
	[SRDMA_OP_ACKNOWLEDGE] = SRDMA_T_KNOWN | SRDMA_T_ACK | AETH,
	[SRDMA_OP_ATOMIC_ACKNOWLEDGE] = ANSW | ONLY | AETH | ATOMIC_ACK_ETH,
	[SRDMA_OP_COMPARE_SWAP] = ATOM,
	[SRDMA_OP_FETCH_ADD] = ATOM,
	[SRDMA_OP_SEND_LAST_INV] = SEND | SRDMA_T_LAST | IETH,
	[SRDMA_OP_SEND_ONLY_INV] = SEND | ONLY | IETH,
};

/* Tag length in bytes by size code (2.1). */
static const uint8_t tag_sizes[8] = { 0, 12, 16, 20, 28, 32, 48, 64 };

uint32_t srdma_wire_traits(uint8_t opcode)
{
	return opcode < SRDMA_OP_COUNT ? traits[opcode] : 0;
}

int srdma_wire_tag_code(uint32_t tag_len)
{
	for (int code = 0; code < 8; code++)
		if (tag_sizes[code] == tag_len)
			return code;
	return -1;
}

int32_t srdma_wire_qpn(const uint8_t *data, size_t len)
{
	return len < SRDMA_BTH_LEN ? -1
				   : (int32_t)(srdma_load32(data + 4) & MASK24);
}

/* Bytes of the extension headers of an opcode with traits t. */
static uint32_t extension_len(uint32_t t)
{
	return t >> EXTENSION;
}

static uint32_t sth_len(uint8_t flags)
{
	return flags & SRDMA_STH_PROOF ? SRDMA_STH_PROOF_LEN : SRDMA_STH_LEN;
}

static uint32_t body_len(uint8_t gaps)
{
	return SRDMA_ACK_BODY_LEN + SRDMA_GAP_LEN * (uint32_t)gaps;
}

/* Flag P is legal on packets that name memory, flag H only with P, flag B on
 * ACKNOWLEDGE (2.3). */
static int flags_legal(uint32_t t, uint8_t flags)
{
	const uint8_t known = SRDMA_STH_PROOF | SRDMA_STH_HOLDER |
			      SRDMA_STH_ACK_NOW |
			      (t & SRDMA_T_ACK ? SRDMA_STH_BARE : 0);
	const uint32_t memory = SRDMA_T_WRITE | SRDMA_T_READ | SRDMA_T_ATOMIC;

	if (flags & ~known)
		return 0;
	if ((flags & SRDMA_STH_HOLDER) && !(flags & SRDMA_STH_PROOF))
		return 0;
	return !(flags & SRDMA_STH_PROOF) || (t & memory);
}

/* Only an ONLY packet may have an empty payload (2.2). */
static int payload_legal(uint32_t t, size_t len)
{
	if (!(t & SRDMA_T_PAYLOAD))
		return len == 0;
	return len > 0 || (t & ONLY) == ONLY;
}

/* The AETH syndrome is determined by opcode, ack kind and reason (2.2, 2.4). */
static uint8_t syndrome(const struct srdma_packet *p)
{
	if (p->opcode != SRDMA_OP_ACKNOWLEDGE)
		return SYNDROME_ACK;
	if (p->ack.kind == SRDMA_ACK_NAK)
		return srdma_reason(p->ack.reason)->nak;
	return p->ack.kind == SRDMA_ACK_RNR ? SYNDROME_RNR : SYNDROME_ACK;
}

/* Gaps are not empty, are in order, do not overlap, and lie at or after the
 * position. Ids are compared as serial numbers, so a gap ends at most 2^31 ids
 * after the position (5.2). */
static int gaps_legal(const struct srdma_ack_body *a)
{
	uint64_t end = a->offset; /* (id - id of the position) << 32 | offset */

	for (uint8_t i = 0; i < a->gaps; i++) {
		const struct srdma_gap *g = &a->gap[i];
		const uint64_t id = g->request_id - a->request_id;
		const uint32_t n = g->length & ~SRDMA_GAP_IDS;

		if (!n || id > SRDMA_GAP_IDS || (id << 32 | g->offset) < end)
			return 0;
		if (g->length & SRDMA_GAP_IDS)
			end = (id + n) << 32;
		else if (n <= SRDMA_MAX_MESSAGE)
			end = (id << 32 | g->offset) + n;
		else
			return 0;
		if (end >> 32 > SRDMA_GAP_IDS ||
		    g->offset > SRDMA_MAX_MESSAGE ||
		    (uint32_t)end > SRDMA_MAX_MESSAGE)
			return 0;
	}
	return 1;
}

static int is_final(uint8_t kind)
{
	return kind == SRDMA_ACK_NAK || kind == SRDMA_ACK_CLOSE;
}

/* Kind and reason must agree, and the STH must repeat the position (2.4). */
static int ack_legal(const struct srdma_packet *p)
{
	const struct srdma_ack_body *a = &p->ack;
	const struct srdma_reason_row *row = srdma_reason(a->reason);

	if (a->kind < SRDMA_ACK_OPEN || a->kind > SRDMA_ACK_RNR ||
	    a->gaps > SRDMA_MAX_GAPS || a->skips > (a->gaps > 0))
		return 0;
	if (a->kind == SRDMA_ACK_NAK && !row->nak)
		return 0;
	if (is_final(a->kind) && a->path)
		return 0;
	if (a->kind == SRDMA_ACK_CLOSE ? !row->close
				       : a->kind != SRDMA_ACK_NAK && a->reason)
		return 0;
	return ((p->request_id ^ a->request_id) & MASK24) == 0 &&
	       p->offset == a->offset && gaps_legal(a);
}

/* RFC 5042 X1 */
static int parse_bth(struct srdma_packet *p, const uint8_t *d)
{
	p->opcode = d[0];
	if (!srdma_wire_traits(p->opcode))
		return -SRDMA_REFUSED_OPCODE;
	if ((d[1] & TVER_SE_M) || srdma_load16(d + 2) != PKEY ||
	    (d[8] & ACKREQ_RESERVED))
		return -SRDMA_REFUSED_HEADER;
	p->pad = d[1] >> 4 & 3;
	p->qpn = srdma_load32(d + 4) & MASK24;
	p->tag_code = d[8] >> 4 & 7;
	p->epoch = d[8] >> 2 & 3;
	p->psn = srdma_load32(d + 8) & MASK24;
	return 0;
}

/* Reads the extension headers at d; the caller has checked the length.
 * parse_aeth() checks an AETH. */
static void parse_extensions(struct srdma_packet *p, uint32_t t,
			     const uint8_t *d)
{
	if (t & (SRDMA_T_RETH | SRDMA_T_ATOMIC_ETH)) {
		p->va = srdma_load64(d);
		p->rkey = srdma_load32(d + 8);
	}
	if (t & SRDMA_T_RETH) {
		p->dma_len = srdma_load32(d + 12);
		d += SRDMA_RETH_LEN;
	}
	if (t & SRDMA_T_ATOMIC_ETH) {
		p->swap_add = srdma_load64(d + 12);
		p->compare = srdma_load64(d + 20);
	}
	if (t & SRDMA_T_ATOMIC_ACK_ETH)
		p->original = srdma_load64(d + SRDMA_AETH_LEN);
	if (t & (SRDMA_T_IMM | SRDMA_T_IETH))
		p->imm = srdma_load32(d);
}

static int parse_sth(struct srdma_packet *p, uint32_t t, const uint8_t *d)
{
	p->request_id = srdma_load32(d) >> 8;
	p->offset = srdma_load32(d + 4);
	if (!flags_legal(t, p->flags))
		return -SRDMA_REFUSED_OPCODE;
	if (!(p->flags & SRDMA_STH_PROOF))
		return 0;
	if (srdma_load24(d + 9))
		return -SRDMA_REFUSED_HEADER;
	p->depth = d[8];
	p->expiry = srdma_load32(d + 12);
	memcpy(p->proof, d + 16, SRDMA_PROOF_LEN);
	return 0;
}

/* d has body_len(p->ack.gaps) bytes. */
static int parse_body(struct srdma_packet *p, const uint8_t *d)
{
	struct srdma_ack_body *a = &p->ack;

	a->kind = d[0];
	a->reason = d[1];
	a->skips = d[3];
	a->request_id = srdma_load32(d + 4);
	a->offset = srdma_load32(d + 8);
	a->highest_pn = srdma_load32(d + 12);
	a->recv_credit = srdma_load32(d + 16);
	a->request_credit = srdma_load32(d + 20);
	a->path = srdma_load32(d + 24);
	d += SRDMA_ACK_BODY_LEN;
	for (uint8_t i = 0; i < a->gaps; i++, d += SRDMA_GAP_LEN) {
		a->gap[i].request_id = srdma_load32(d);
		a->gap[i].offset = srdma_load32(d + 4);
		a->gap[i].length = srdma_load32(d + 8);
	}
	return ack_legal(p) ? 0 : -SRDMA_REFUSED_ACK_BODY;
}

/*
 * Finds tag, ack body and payload from the packet's own fields and the QP's tag
 * length. Refuses a datagram that is too short for them.
 */
static int parse_layout(struct srdma_packet *p, uint32_t t, uint32_t tag_len)
{
	const uint32_t sth_at = SRDMA_BTH_LEN + extension_len(t);
	uint32_t need = sth_at + SRDMA_STH_LEN;

	if (p->len < need)
		return -SRDMA_REFUSED_SHORT;
	p->flags = p->data[sth_at + 3];
	p->tag_at = sth_at + sth_len(p->flags);
	p->tag_len = tag_len;
	need = p->tag_at + tag_len;
	if (t & SRDMA_T_ACK) {
		if (p->len < need + SRDMA_ACK_BODY_LEN)
			return -SRDMA_REFUSED_SHORT;
		p->ack.gaps = p->data[need + 2];
		if (p->ack.gaps > SRDMA_MAX_GAPS)
			return -SRDMA_REFUSED_ACK_BODY;
		need += body_len(p->ack.gaps);
	}
	if (p->len < need)
		return -SRDMA_REFUSED_SHORT;
	p->payload_at = need;
	return 0;
}

static int parse_payload(struct srdma_packet *p, uint32_t t, uint32_t mtu)
{
	const uint32_t rest = p->len - p->payload_at;

	if (rest < p->pad || rest - p->pad > mtu ||
	    !payload_legal(t, rest - p->pad))
		return -SRDMA_REFUSED_LENGTH;
	p->payload_len = rest - p->pad;
	if (rest % 4)
		return -SRDMA_REFUSED_PAD;
	for (uint32_t i = p->payload_len; i < rest; i++)
		if (p->data[p->payload_at + i])
			return -SRDMA_REFUSED_PAD;
	return 0;
}

static int parse_aeth(const struct srdma_packet *p, const uint8_t *d)
{
	if (d[0] != syndrome(p) || srdma_load24(d + 1) != p->request_id)
		return -SRDMA_REFUSED_HEADER;
	return 0;
}

/* RFC 5042 R6.4-1 */
int srdma_wire_parse(struct srdma_packet *p, const uint8_t *data, size_t len,
		     uint32_t tag_len, uint32_t mtu)
{
	const uint8_t *ext = data + SRDMA_BTH_LEN;
	uint32_t t;
	int r;

	srdma_packet_clear(p);
	if (len < MIN_LEN)
		return -SRDMA_REFUSED_SHORT;
	p->data = data;
	/* One byte more than the longest packet is enough to refuse it. */
	p->len = len > SRDMA_MAX_PACKET ? SRDMA_MAX_PACKET + 1 : (uint32_t)len;
	r = parse_bth(p, data);
	if (r)
		return r;
	if (tag_sizes[p->tag_code] != tag_len)
		return -SRDMA_REFUSED_TAG_CODE;
	t = p->traits = srdma_wire_traits(p->opcode);
	r = parse_layout(p, t, tag_len);
	if (r)
		return r;
	parse_extensions(p, t, ext);
	r = parse_sth(p, t, ext + extension_len(t));
	if (!r)
		r = parse_payload(p, t, mtu);
	if (!r && (t & SRDMA_T_ACK))
		r = parse_body(p, data + p->tag_at + tag_len);
	if (!r && (t & SRDMA_T_AETH))
		r = parse_aeth(p, ext);
	return r;
}

static void build_bth(const struct srdma_packet *p, uint8_t *d)
{
	d[0] = p->opcode;
	d[1] = (uint8_t)(p->pad << 4);
	srdma_store16(d + 2, PKEY);
	srdma_store32(d + 4, p->qpn & MASK24);
	srdma_store32(d + 8, (uint32_t)p->tag_code << 28 |
				     (uint32_t)(p->epoch & 3) << 26 |
				     (p->psn & MASK24));
}

static void build_extensions(const struct srdma_packet *p, uint32_t t,
			     uint8_t *d)
{
	if (t & (SRDMA_T_RETH | SRDMA_T_ATOMIC_ETH)) {
		srdma_store64(d, p->va);
		srdma_store32(d + 8, p->rkey);
	}
	if (t & SRDMA_T_RETH) {
		srdma_store32(d + 12, p->dma_len);
		d += SRDMA_RETH_LEN;
	}
	if (t & SRDMA_T_ATOMIC_ETH) {
		srdma_store64(d + 12, p->swap_add);
		srdma_store64(d + 20, p->compare);
	}
	if (t & SRDMA_T_AETH) {
		d[0] = syndrome(p);
		srdma_store24(d + 1, (uint32_t)p->request_id);
	}
	if (t & SRDMA_T_ATOMIC_ACK_ETH)
		srdma_store64(d + SRDMA_AETH_LEN, p->original);
	if (t & (SRDMA_T_IMM | SRDMA_T_IETH))
		srdma_store32(d, p->imm);
}

static void build_sth(const struct srdma_packet *p, uint8_t *d)
{
	srdma_store32(d, (uint32_t)p->request_id << 8 | p->flags);
	srdma_store32(d + 4, p->offset);
	if (!(p->flags & SRDMA_STH_PROOF))
		return;
	d[8] = p->depth;
	srdma_store24(d + 9, 0);
	srdma_store32(d + 12, p->expiry);
	memcpy(d + 16, p->proof, SRDMA_PROOF_LEN);
}

static void build_body(const struct srdma_ack_body *a, uint8_t *d)
{
	d[0] = a->kind;
	d[1] = a->reason;
	d[2] = a->gaps;
	d[3] = a->skips;
	srdma_store32(d + 4, a->request_id);
	srdma_store32(d + 8, a->offset);
	srdma_store32(d + 12, a->highest_pn);
	srdma_store32(d + 16, a->recv_credit);
	srdma_store32(d + 20, a->request_credit);
	srdma_store32(d + 24, a->path);
	d += SRDMA_ACK_BODY_LEN;
	for (uint8_t i = 0; i < a->gaps; i++, d += SRDMA_GAP_LEN) {
		srdma_store32(d, a->gap[i].request_id);
		srdma_store32(d + 4, a->gap[i].offset);
		srdma_store32(d + 8, a->gap[i].length);
	}
}

int srdma_wire_build(struct srdma_packet *p, uint8_t *out, uint32_t tag_len)
{
	const uint32_t t = srdma_wire_traits(p->opcode);
	const int code = srdma_wire_tag_code(tag_len);
	uint8_t *sth = out + SRDMA_BTH_LEN + extension_len(t);

	if (!t || code < 0 || p->payload_len > SRDMA_MAX_PAYLOAD ||
	    !payload_legal(t, p->payload_len) || !flags_legal(t, p->flags) ||
	    ((t & SRDMA_T_ACK) && !ack_legal(p)))
		return -EINVAL;
	p->traits = t;
	p->tag_code = (uint8_t)code;
	p->pad = -p->payload_len & 3;
	p->tag_len = tag_len;
	p->tag_at = (uint32_t)(sth - out) + sth_len(p->flags);
	p->payload_at = p->tag_at + tag_len;
	build_bth(p, out);
	build_extensions(p, t, out + SRDMA_BTH_LEN);
	build_sth(p, sth);
	if (t & SRDMA_T_ACK) {
		build_body(&p->ack, out + p->payload_at);
		p->payload_at += body_len(p->ack.gaps);
	}
	p->len = p->payload_at + p->payload_len + p->pad;
	memset(out + p->payload_at + p->payload_len, 0, p->pad);
	p->data = out;
	return (int)p->len;
}
