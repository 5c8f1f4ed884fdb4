#include "wire/wire.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"

enum { DESC_QPN_AT = 4, DESC_ZERO_AT = 56, DESC_FLAGS = 0x07 };

uint32_t srdma_desc_encode(uint8_t *out, const struct srdma_desc *d)
{
	memset(out, 0, SRDMA_DESC_LEN);
	out[0] = d->opcode;
	out[1] = d->flags;
	out[2] = d->sges;
	srdma_store32(out + DESC_QPN_AT, d->qpn);
	srdma_store64(out + 8, d->id);
	srdma_store32(out + 16, d->consumed);
	srdma_store32(out + 20, d->length);
	srdma_store64(out + 24, d->local_addr);
	srdma_store32(out + 32, d->local_key);
	srdma_store32(out + 36, d->rkey);
	srdma_store64(out + 40, d->remote_addr);
	srdma_store32(out + 48, d->imm);
	srdma_store32(out + 52, d->capability);
	if (!srdma_desc_is_atomic(d->opcode))
		return SRDMA_DESC_LEN;
	srdma_store64(out + SRDMA_DESC_LEN, d->swap_add);
	srdma_store64(out + SRDMA_DESC_LEN + 8, d->compare);
	return SRDMA_DESC_LEN + SRDMA_OPERANDS_LEN;
}

void srdma_sgl_encode(uint8_t *out, const struct srdma_sge *sgl, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++, out += SRDMA_SGE_LEN) {
		srdma_store64(out, sgl[i].addr);
		srdma_store32(out + 8, sgl[i].length);
		srdma_store32(out + 12, sgl[i].lkey);
	}
}

void srdma_sgl_decode(struct srdma_sge *sgl, const uint8_t *in, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++, in += SRDMA_SGE_LEN)
		sgl[i] = (struct srdma_sge){ srdma_load64(in),
					     srdma_load32(in + 8),
					     srdma_load32(in + 12) };
}

uint32_t srdma_desc_qpn(const uint8_t *in, size_t len)
{
	return len < DESC_QPN_AT + sizeof(uint32_t)
		       ? 0
		       : srdma_load32(in + DESC_QPN_AT);
}

static void load(struct srdma_desc *d, const uint8_t *in)
{
	d->opcode = in[0];
	d->flags = in[1];
	d->sges = in[2];
	d->qpn = srdma_load32(in + DESC_QPN_AT);
	d->id = srdma_load64(in + 8);
	d->consumed = srdma_load32(in + 16);
	d->length = srdma_load32(in + 20);
	d->local_addr = srdma_load64(in + 24);
	d->local_key = srdma_load32(in + 32);
	d->rkey = srdma_load32(in + 36);
	d->remote_addr = srdma_load64(in + 40);
	d->imm = srdma_load32(in + 48);
	d->capability = srdma_load32(in + 52);
}

/* The opcode is one of table 9.1. INLINE is legal only if the request sends
 * local data. */
static int opcode_legal(const struct srdma_desc *d)
{
	switch (d->opcode) {
	case SRDMA_DESC_WRITE:
	case SRDMA_DESC_WRITE_IMM:
	case SRDMA_DESC_SEND:
	case SRDMA_DESC_SEND_IMM:
		return 1;
	case SRDMA_DESC_READ:
	case SRDMA_DESC_COMPARE_SWAP:
	case SRDMA_DESC_FETCH_ADD:
	case SRDMA_DESC_RECV:
	case SRDMA_DESC_CREDIT:
		return !(d->flags & SRDMA_DESC_INLINE);
	default:
		return 0;
	}
}

static int zeros_legal(const uint8_t *in)
{
	static const uint8_t zero[SRDMA_DESC_LEN - DESC_ZERO_AT];

	return !in[3] && memcmp(in + DESC_ZERO_AT, zero, sizeof(zero)) == 0;
}

/* Reads the operands after an atomic's descriptor. 0 or -EPROTO. */
static int load_operands(struct srdma_desc *d, const uint8_t *in, size_t len)
{
	if (len < SRDMA_OPERANDS_LEN)
		return -EPROTO;
	d->swap_add = srdma_load64(in);
	d->compare = srdma_load64(in + 8);
	return !d->sges && srdma_desc_operands_ok(d) ? 0 : -EPROTO;
}

/* in: len bytes behind the descriptor. 1: they hold its SGL, whose sum is the
 * length of the message. */
static int sgl_legal(const struct srdma_desc *d, const uint8_t *in, size_t len)
{
	uint64_t sum = 0;

	if ((d->flags & SRDMA_DESC_INLINE) || !srdma_desc_has_sgl(d->opcode) ||
	    (size_t)d->sges * SRDMA_SGE_LEN > len)
		return 0;
	for (unsigned i = 0; i < d->sges; i++)
		sum += srdma_load32(in + i * SRDMA_SGE_LEN + 8);
	return sum == d->length;
}

int srdma_desc_decode(struct srdma_desc *d, const uint8_t *in, size_t len)
{
	*d = (struct srdma_desc){ 0 };
	if (len < SRDMA_DESC_LEN || len > SRDMA_DESC_SLOT)
		return -EPROTO;
	load(d, in);
	if (!zeros_legal(in) || (d->flags & ~DESC_FLAGS) || !opcode_legal(d) ||
	    (d->capability && !srdma_desc_names_memory(d->opcode)))
		return -EPROTO;
	if (srdma_desc_is_atomic(d->opcode))
		return load_operands(d, in + SRDMA_DESC_LEN,
				     len - SRDMA_DESC_LEN);
	if (d->sges && !sgl_legal(d, in + SRDMA_DESC_LEN, len - SRDMA_DESC_LEN))
		return -EPROTO;
	if (d->length > SRDMA_MAX_MESSAGE)
		return -EMSGSIZE;
	if ((d->flags & SRDMA_DESC_INLINE) && d->length > len - SRDMA_DESC_LEN)
		return -EPROTO;
	return 0;
}

void srdma_record_encode(uint8_t out[SRDMA_RECORD_LEN],
			 const struct srdma_record *r)
{
	srdma_store64(out, r->id);
	srdma_store32(out + 8, r->qpn);
	out[12] = r->opcode;
	out[13] = r->status;
	srdma_store16(out + 14, r->flags);
	srdma_store32(out + 16, r->vendor_err);
	srdma_store32(out + 20, r->byte_len);
	srdma_store32(out + 24, r->imm);
	srdma_store32(out + 28, r->sequence);
}

void srdma_record_decode(struct srdma_record *r,
			 const uint8_t in[SRDMA_RECORD_LEN])
{
	r->id = srdma_load64(in);
	r->qpn = srdma_load32(in + 8);
	r->opcode = in[12];
	r->status = in[13];
	r->flags = srdma_load16(in + 14);
	r->vendor_err = srdma_load32(in + 16);
	r->byte_len = srdma_load32(in + 20);
	r->imm = srdma_load32(in + 24);
	r->sequence = srdma_load32(in + 28);
}

int srdma_desc_wc_opcode(uint8_t opcode)
{
	switch (opcode) {
	case SRDMA_DESC_WRITE:
	case SRDMA_DESC_WRITE_IMM:
		return SRDMA_WC_RDMA_WRITE;
	case SRDMA_DESC_READ:
		return SRDMA_WC_RDMA_READ;
	case SRDMA_DESC_COMPARE_SWAP:
		return SRDMA_WC_COMP_SWAP;
	case SRDMA_DESC_FETCH_ADD:
		return SRDMA_WC_FETCH_ADD;
	case SRDMA_DESC_SEND:
	case SRDMA_DESC_SEND_IMM:
		return SRDMA_WC_SEND;
	case SRDMA_DESC_ATOMIC_WRITE:
		return SRDMA_WC_ATOMIC_WRITE;
	case SRDMA_DESC_RECV:
		return SRDMA_WC_RECV;
	default:
		return -1;
	}
}
