/*
 * A digest of everything in a simulation that can be observed from outside the
 * relays. Two builds that behave alike give the same digest. Each entry is its
 * kind, the virtual time, the length and the bytes. Packets contain addresses
 * in the arenas. While there is a trace, the arenas are at fixed addresses, so
 * that entries do not depend on the allocator.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>
#include <openssl/evp.h>

#include "base/bytes.h"
#include "qp/op.h"
#include "simulation/sim.h"

/* Where arenas begin: a range that the address sanitizer leaves free. */
#define ARENAS	    UINT64_C(0x200000000000)
#define ARENA_SPACE (UINT64_C(1) << 32)

enum kind {
	TRACE_PACKET = 1,
	TRACE_RECORD,
	TRACE_READ,
	TRACE_WRITE,
	TRACE_ATOMIC,
	TRACE_REFUSED, /* a DMA that fails */
	TRACE_CALL,
};

int sim_traced;

void sim_trace_begin(struct sim *w)
{
	if (!sim_traced)
		return;
	w->trace = EVP_MD_CTX_new();
	assert_non_null(w->trace);
	assert_int_equal(EVP_DigestInit_ex(w->trace, EVP_sha256(), NULL), 1);
}

void sim_trace_end(struct sim *w, uint8_t digest[SIM_DIGEST_LEN])
{
	if (!w->trace)
		return;
	assert_int_equal(EVP_DigestFinal_ex(w->trace, digest, NULL), 1);
	EVP_MD_CTX_free(w->trace);
	w->trace = NULL;
}

/* where: the side, the side and leg, or the address that the entry is about. */
static void add(struct sim *w, enum kind kind, uint64_t where, const void *data,
		uint32_t len)
{
	uint8_t head[24];

	srdma_store32(head, kind);
	srdma_store64(head + 4, w->now);
	srdma_store64(head + 12, where);
	srdma_store32(head + 20, len);
	assert_int_equal(EVP_DigestUpdate(w->trace, head, sizeof(head)), 1);
	if (len)
		assert_int_equal(EVP_DigestUpdate(w->trace, data, len), 1);
}

void sim_trace_packet(struct sim *w, const struct srdma_mem_datagram *d)
{
	if (w->trace)
		add(w, TRACE_PACKET, (uint64_t)d->side, d->data, d->len);
}

void sim_trace_call(struct sim *w, int side)
{
	if (w->trace)
		add(w, TRACE_CALL, (uint64_t)side, NULL, 0);
}

void sim_trace_record(const struct sim_leg *leg, const uint8_t *record)
{
	if (leg->w->trace)
		add(leg->w, TRACE_RECORD, (uint64_t)leg->side << 32 | leg->id,
		    record, SRDMA_RECORD_LEN);
}

static void add_atomic(struct sim *w, const struct srdma_dma *d,
		       const struct srdma_atomic *how)
{
	uint8_t bytes[17];

	bytes[0] = (uint8_t)how->kind;
	srdma_store64(bytes + 1, how->swap_add);
	srdma_store64(bytes + 9, how->compare);
	add(w, TRACE_ATOMIC, d->addr, bytes, sizeof(bytes));
}

void sim_trace_dma(struct sim *w, const struct srdma_dma *d, int writes,
		   int status)
{
	const struct srdma_op *op =
		(const struct srdma_op *)(uintptr_t)d->cookie;

	if (!w->trace)
		return;
	if (status)
		add(w, TRACE_REFUSED, d->addr, NULL, 0);
	else if (op->atomic.kind)
		add_atomic(w, d, &op->atomic);
	else if (writes)
		add(w, TRACE_WRITE, d->addr, d->buf->data + d->buf_at, d->len);
	else
		add(w, TRACE_READ, d->addr, (const void *)(uintptr_t)d->addr,
		    d->len);
}

/* --- arenas --------------------------------------------------------------- */

uint8_t *sim_trace_arena(const struct sim_leg *leg, size_t len)
{
	const struct sim *w = leg->w;
	const uint64_t i = (uint64_t)(leg - w->side[leg->side].leg) +
			   (uint64_t)leg->side * SIM_LEGS;
	void *at;

	if (!w->trace)
		return malloc(len);
	at = mmap((void *)(uintptr_t)(ARENAS + i * ARENA_SPACE), len,
		  PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	return at == MAP_FAILED ? NULL : at;
}

void sim_trace_free(const struct sim_leg *leg, size_t len)
{
	if (leg->w->trace)
		munmap(leg->mem, len);
	else
		free(leg->mem);
}
