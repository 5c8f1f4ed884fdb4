#include "simulation/sim_memory.h"

#include <stdlib.h>
#include <string.h>

#include "memory/mr.h"
#include "qp/op.h"

/* difference between consecutive words of a pattern */
static const uint64_t pace = UINT64_C(0x9d3f84d5b5470917);

static const uint32_t access_of[SIM_AREAS] = { 15, 15, 1, 0 };

void sim_memory_fill(uint8_t *at, uint32_t len, uint64_t word)
{
	for (; len >= sizeof(word); len -= (uint32_t)sizeof(word)) {
		memcpy(at, &word, sizeof(word));
		at += sizeof(word);
		word += pace;
	}
	memcpy(at, &word, len);
}

int sim_memory_shows(const uint8_t *at, uint32_t len)
{
	uint64_t word[2];

	for (; len >= sizeof(word); at++, len--) {
		memcpy(word, at, sizeof(word));
		if (word[1] - word[0] == pace)
			return 1;
	}
	return 0;
}

/* Returns 1 if these bytes all are of this kind. len is not 0. */
static int all_are(const struct sim_leg *leg, uint32_t from, uint32_t len,
		   int kind)
{
	const uint8_t *at = leg->kind + from;

	return *at == kind && !memcmp(at, at + 1, len - 1);
}

static int is_after(const struct sim_leg *leg, uint32_t i, uint8_t is)
{
	uint8_t after = leg->after[i], moved = (uint8_t)~after;

	return is == after || (leg->kind[i] & SIM_MOVED && is == moved);
}

static void check_byte(const struct sim_leg *leg, uint32_t i)
{
	uint8_t is = leg->mem[i];
	int kind = leg->kind[i] & SIM_KIND;
	int good = kind == SIM_ANY || is == leg->shadow[i] ||
		   leg->kind[i] & SIM_ATOMIC ||
		   (kind == SIM_DONE && is_after(leg, i, is));

	SIM_CHECK(leg->w, good,
		  "byte %#x of leg %u of side %d is %02x; it was %02x, "
		  "kind %#x",
		  i, leg->id, leg->side, is, leg->shadow[i], leg->kind[i]);
}

static void check_range(const struct sim_leg *leg, uint32_t from, uint32_t to)
{
	for (uint32_t n; from < to; from += n) {
		n = to - from < 256 ? to - from : 256;
		if (!memcmp(leg->mem + from, leg->shadow + from, n))
			continue;
		for (uint32_t i = from; i < from + n; i++)
			check_byte(leg, i);
	}
}

/* --- areas ---------------------------------------------------------------- */

static void register_area(struct sim *w, struct sim_leg *leg, int i)
{
	struct sim_area *a = &leg->area[i];
	struct srdma_mr_params mp = { .region.fd = -1 };

	a->len = w->area_len;
	a->at = SIM_GAP + (uint32_t)i * (w->area_len + SIM_GAP);
	a->next = a->at;
	if (access_of[i] & SRDMA_ACCESS_REMOTE_ATOMIC)
		memset(leg->kind + a->at, SIM_TAKEN | SIM_ATOMIC,
		       SIM_COUNTERS * SRDMA_ATOMIC_LEN);
	a->access = access_of[i];
	a->state = SIM_LIVE;
	if (w->guarded && i == SIM_GUARDED) {
		a->access |= SRDMA_ACCESS_PROOF;
		mp.log2_block = w->log2_block;
		mp.depth = w->tree_depth;
	}
	mp.region.addr = (uintptr_t)(leg->mem + a->at);
	mp.region.length = a->len;
	mp.region.access = a->access;
	SIM_CHECK(w,
		  !srdma_relay_mr_reg(w->side[leg->side].relay, leg->leg, &mp,
				      &a->key),
		  "REG_MR");
}

/*
 * All arrays are in one allocation, so that a write of the relay beyond an
 * arena changes another array and is detected.
 */
static void make_room(struct sim *w, struct sim_leg *leg)
{
	leg->size = SIM_GAP + SIM_AREAS * (w->area_len + SIM_GAP);
	if (leg->mem)
		return;
	leg->mem = sim_trace_arena(leg, 4 * (size_t)leg->size);
	SIM_CHECK(w, leg->mem, "no memory");
	leg->shadow = leg->mem + leg->size;
	leg->after = leg->shadow + leg->size;
	leg->kind = leg->after + leg->size;
}

void sim_memory_open(struct sim *w, struct sim_leg *leg)
{
	make_room(w, leg);
	leg->tainted = 0;
	sim_memory_fill(leg->mem, leg->size, w->seed);
	memcpy(leg->shadow, leg->mem, leg->size);
	memset(leg->kind, SIM_EXACT, leg->size);
	for (int i = 0; i < SIM_AREAS; i++)
		register_area(w, leg, i);
}

void sim_memory_again(struct sim_leg *leg, int area)
{
	struct sim_area *a = &leg->area[area];

	check_range(leg, a->at, a->at + a->len);
	memset(leg->kind + a->at, SIM_EXACT, a->len);
	register_area(leg->w, leg, area);
}

void sim_memory_close(struct sim_leg *leg)
{
	sim_trace_free(leg, 4 * (size_t)leg->size);
}

uint32_t sim_memory_index(const struct sim_leg *leg, const uint8_t *at)
{
	return (uint32_t)(at - leg->mem);
}

struct sim_area *sim_memory_area(struct sim_leg *leg, const uint8_t *at)
{
	uint32_t i = sim_memory_index(leg, at) / (leg->area[0].len + SIM_GAP);

	return &leg->area[i < SIM_AREAS ? i : SIM_AREAS - 1];
}

int sim_memory_pure(struct sim_leg *leg, const uint8_t *at)
{
	return !leg->tainted ||
	       sim_memory_area(leg, at)->access & SRDMA_ACCESS_PROOF ||
	       sim_memory_index(leg, at) >= leg->area[2].at;
}

/* --- ranges --------------------------------------------------------------- */

/*
 * Index of the last byte of [from, from + len) that is taken; from + len: none.
 */
static uint32_t last_taken(const struct sim_leg *leg, uint32_t from,
			   uint32_t len)
{
	const uint64_t taken = SIM_TAKEN * UINT64_C(0x0101010101010101);
	uint32_t i = from + len;
	uint64_t kinds;

	for (; i - from >= sizeof(kinds); i -= (uint32_t)sizeof(kinds)) {
		memcpy(&kinds, leg->kind + i - sizeof(kinds), sizeof(kinds));
		if (kinds & taken)
			break;
	}
	while (i-- > from)
		if (leg->kind[i] & SIM_TAKEN)
			return i;
	return from + len;
}

static void be(struct sim_leg *leg, const uint8_t *at, uint32_t len, int kind)
{
	if (!sim_memory_pure(leg, at))
		kind = SIM_ANY | (kind & (SIM_TAKEN | SIM_SOURCE));
	memset(leg->kind + sim_memory_index(leg, at), kind, len);
}

uint8_t *sim_memory_take(struct sim *w, struct sim_leg *leg, uint32_t i,
			 uint32_t len)
{
	struct sim_area *a = &leg->area[i];
	uint32_t at = a->next + sim_random(w, 65);

	if (!len)
		return leg->mem + a->at;
	for (int tries = 0; tries < 8; tries++) {
		uint32_t taken;

		if (at + len > a->at + a->len)
			at = a->at;
		if (len > a->len)
			return NULL;
		taken = last_taken(leg, at, len);
		if (taken == at + len) {
			be(leg, leg->mem + at, len, SIM_TAKEN);
			a->next = at + len;
			return leg->mem + at;
		}
		at = taken + 1 + sim_random(w, 65);
	}
	return NULL;
}

static int is_frozen(struct sim_leg *leg, const uint8_t *at)
{
	return sim_memory_area(leg, at)->state == SIM_FROZEN;
}

/*
 * Marks revoked ranges as unchangeable again, even if an outstanding request
 * names them.
 */
static void keep_fixed(struct sim_leg *leg, uint32_t from, uint32_t len)
{
	for (uint32_t i = 0; i < leg->revocations; i++) {
		const struct sim_revoked *r = &leg->revoked[i];
		uint32_t lo = r->lo > from ? r->lo : from;
		uint32_t hi = r->hi < from + len ? r->hi : from + len;

		if (r->done && lo < hi)
			memset(leg->kind + lo, SIM_TAKEN, hi - lo);
	}
}

static void change(struct sim_leg *leg, uint8_t *at, uint32_t len)
{
	uint32_t n = 0;
	uint64_t word;

	for (; len - n >= sizeof(word); n += (uint32_t)sizeof(word)) {
		memcpy(&word, at + n, sizeof(word));
		word = ~word;
		memcpy(at + n, &word, sizeof(word));
	}
	for (; n < len; n++)
		at[n] = (uint8_t)~at[n];
	memcpy(leg->shadow + sim_memory_index(leg, at), at, len);
}

void sim_memory_give(struct sim_leg *leg, uint8_t *at, uint32_t len)
{
	if (!len || !leg->open || is_frozen(leg, at))
		return;
	change(leg, at, len);
	be(leg, at, len, SIM_EXACT);
}

void sim_memory_put(struct sim_leg *leg, uint8_t *at, uint32_t len,
		    uint64_t word)
{
	sim_memory_fill(at, len, word);
	sim_memory_fill(leg->shadow + sim_memory_index(leg, at), len, word);
}

void sim_memory_lend(struct sim_leg *leg, const uint8_t *at, uint32_t len)
{
	be(leg, at, len, SIM_EXACT | SIM_TAKEN | SIM_SOURCE);
}

void sim_memory_expect(struct sim_leg *leg, const uint8_t *at, uint32_t len,
		       uint64_t word, int any)
{
	uint32_t i = sim_memory_index(leg, at);

	if (!len || is_frozen(leg, at))
		return;
	be(leg, at, len, SIM_TAKEN | (any ? SIM_ANY : SIM_ONCE));
	keep_fixed(leg, i, len);
	sim_memory_fill(leg->after + i, len, word);
}

void sim_memory_doubt(struct sim_leg *leg, uint32_t area)
{
	const struct sim_area *a = &leg->area[area];

	if (a->state == SIM_FROZEN)
		return;
	for (uint32_t i = a->at; i < a->at + a->len; i++)
		leg->kind[i] |= SIM_ANY;
}

void sim_memory_answer(struct sim_leg *leg, const uint8_t *at, uint64_t found)
{
	sim_memory_expect(leg, at, sizeof(found), 0, 0);
	memcpy(leg->after + sim_memory_index(leg, at), &found, sizeof(found));
}

void sim_memory_move(struct sim_leg *leg, uint8_t *at, uint32_t len)
{
	if (!is_frozen(leg, at))
		change(leg, at, len);
}

void sim_memory_follow(struct sim_leg *leg, const uint8_t *at, uint32_t len)
{
	uint8_t *kind = leg->kind + sim_memory_index(leg, at);

	if (is_frozen(leg, at))
		return;
	for (uint32_t n = 0; n < len; n++)
		if (kind[n] & SIM_KIND)
			kind[n] |= SIM_MOVED;
}

/* --- checks --------------------------------------------------------------- */

void sim_memory_check(struct sim_leg *leg)
{
	check_range(leg, 0, leg->size);
}

void sim_memory_arrived(struct sim_leg *leg, const uint8_t *at, uint32_t len,
			const char *what)
{
	uint32_t i = sim_memory_index(leg, at);

	if (!len || !sim_memory_pure(leg, at))
		return;
	if (all_are(leg, i, len, SIM_DONE | SIM_TAKEN) &&
	    !memcmp(at, leg->after + i, len)) {
		memcpy(leg->shadow + i, at, len);
		memset(leg->kind + i, SIM_EXACT | SIM_TAKEN, len);
		return;
	}
	for (uint32_t n = i; n < i + len; n++) {
		if ((leg->kind[n] & SIM_KIND) == SIM_EXACT)
			continue; /* revoked or frozen, and checked then */
		SIM_CHECK(leg->w, is_after(leg, n, leg->mem[n]),
			  "%s: byte %u of %u differs from the source", what,
			  n - i, len);
		leg->shadow[n] = leg->mem[n];
		leg->kind[n] = SIM_EXACT | SIM_TAKEN;
	}
}

void sim_memory_settle(struct sim_leg *leg, uint8_t *at, uint32_t len)
{
	uint32_t i = sim_memory_index(leg, at);

	if (!len || !leg->open || is_frozen(leg, at))
		return;
	check_range(leg, i, i + len);
	memcpy(leg->shadow + i, at, len);
	be(leg, at, len, SIM_EXACT);
}

/*
 * Checks counters to which no DMA is in progress. A host that died is exempt,
 * because some of its DMA was never done.
 */
static void check_counters(struct sim_leg *leg, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; leg->open && i < to; i++)
		if ((leg->kind[i] & (SIM_ATOMIC | SIM_KIND)) == SIM_ATOMIC)
			SIM_CHECK(leg->w, leg->mem[i] == leg->shadow[i],
				  "a counter differs from its shadow");
}

static void fix(struct sim_leg *leg, uint32_t from, uint32_t to)
{
	check_range(leg, from, to);
	check_counters(leg, from, to);
	memcpy(leg->shadow + from, leg->mem + from, to - from);
	for (uint32_t i = from; i < to; i++)
		leg->kind[i] = SIM_EXACT | (leg->kind[i] & SIM_TAKEN);
}

void sim_memory_reclaim(struct sim_leg *leg, uint32_t from, uint32_t to)
{
	fix(leg, from, to);
	change(leg, leg->mem + from, to - from);
}

void sim_memory_freeze(struct sim_leg *leg, int area)
{
	for (int i = 0; i < SIM_AREAS; i++) {
		struct sim_area *a = &leg->area[i];

		if ((area >= 0 && area != i) || a->state == SIM_FROZEN)
			continue;
		fix(leg, a->at, a->at + a->len);
		a->state = SIM_FROZEN;
	}
}

/* --- DMA ------------------------------------------------------------------ */

static struct sim_leg *leg_of(struct sim *w, const struct srdma_dma *d)
{
	for (int i = 0; i < 2 * SIM_LEGS; i++) {
		struct sim_leg *leg = &w->side[i % 2].leg[i / 2];

		if (leg->mem && d->addr - (uintptr_t)leg->mem < leg->size)
			return leg;
	}
	return NULL;
}

/*
 * A worker may read memory with REMOTE_READ except revoked ranges. Of other
 * memory it may read only the sources of local requests.
 */
static void check_read(struct sim_leg *leg, const struct sim_area *a,
		       uint32_t from, uint32_t len)
{
	if (a->access & SRDMA_ACCESS_REMOTE_READ) {
		for (uint32_t i = 0; i < leg->revocations; i++)
			SIM_CHECK(leg->w,
				  !leg->revoked[i].done ||
					  leg->revoked[i].hi <= from ||
					  from + len <= leg->revoked[i].lo,
				  "a revoked range is read");
		return;
	}
	for (uint32_t i = from; i < from + len; i++)
		SIM_CHECK(leg->w, leg->kind[i] & SIM_SOURCE,
			  "byte %#x is read without permission", i);
}

static void check_write(struct sim_leg *leg, uint32_t from, uint32_t len,
			const uint8_t *data)
{
	if (all_are(leg, from, len, SIM_ONCE | SIM_TAKEN) &&
	    !memcmp(data, leg->after + from, len)) {
		memset(leg->kind + from, SIM_DONE | SIM_TAKEN, len);
		return;
	}
	for (uint32_t i = from; i < from + len; i++, data++) {
		int kind = leg->kind[i] & SIM_KIND;

		if (kind == SIM_ANY)
			continue;
		SIM_CHECK(leg->w, kind == SIM_ONCE,
			  "byte %#x of leg %u of side %d is written, kind %d",
			  i, leg->id, leg->side, kind);
		SIM_CHECK(leg->w, is_after(leg, i, *data),
			  "byte %#x of leg %u of side %d gets wrong data", i,
			  leg->id, leg->side);
		leg->kind[i] ^= SIM_ONCE ^ SIM_DONE;
	}
}

void sim_memory_dma(struct sim *w, const struct srdma_dma *d, int is_write)
{
	const struct srdma_op *op = (struct srdma_op *)(uintptr_t)d->cookie;
	struct sim_leg *leg = leg_of(w, d);
	const struct sim_area *a;
	uint32_t from;

	SIM_CHECK(w, leg, "DMA outside all arenas");
	from = (uint32_t)(d->addr - (uintptr_t)leg->mem);
	a = sim_memory_area(leg, leg->mem + from);
	SIM_CHECK(w,
		  a->state != SIM_FROZEN && from >= a->at &&
			  from + d->len <= a->at + a->len,
		  "DMA of memory that is not registered");
	if (leg->kind[from] & SIM_ATOMIC && op->atomic.kind)
		sim_atomic_dma(w, leg, op);
	else if (is_write)
		check_write(leg, from, d->len, d->buf->data + d->buf_at);
	else
		check_read(leg, a, from, d->len);
}
