#include "storm_memory.h"

#include <stdlib.h>
#include <string.h>

#include "memory/mr.h"
#include "qp/op.h"

/* difference between consecutive words of a pattern */
static const uint64_t pace = UINT64_C(0x9d3f84d5b5470917);

static const uint32_t access_of[STORM_AREAS] = { 15, 15, 1, 0 };

void storm_memory_fill(uint8_t *at, uint32_t len, uint64_t word)
{
	for (; len >= sizeof(word); len -= (uint32_t)sizeof(word)) {
		memcpy(at, &word, sizeof(word));
		at += sizeof(word);
		word += pace;
	}
	memcpy(at, &word, len);
}

int storm_memory_shows(const uint8_t *at, uint32_t len)
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
static int all_are(const struct storm_leg *leg, uint32_t from, uint32_t len,
		   int kind)
{
	const uint8_t *at = leg->kind + from;

	return *at == kind && !memcmp(at, at + 1, len - 1);
}

static int is_after(const struct storm_leg *leg, uint32_t i, uint8_t is)
{
	uint8_t after = leg->after[i], moved = (uint8_t)~after;

	return is == after || (leg->kind[i] & STORM_MOVED && is == moved);
}

static void check_byte(const struct storm_leg *leg, uint32_t i)
{
	uint8_t is = leg->mem[i];
	int kind = leg->kind[i] & STORM_KIND;
	int good = kind == STORM_ANY || is == leg->shadow[i] ||
		   leg->kind[i] & STORM_ATOMIC ||
		   (kind == STORM_DONE && is_after(leg, i, is));

	STORM_CHECK(leg->w, good,
		    "byte %#x of leg %u of side %d is %02x; it was %02x, "
		    "kind %#x",
		    i, leg->id, leg->side, is, leg->shadow[i], leg->kind[i]);
}

static void check_range(const struct storm_leg *leg, uint32_t from, uint32_t to)
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

static void register_area(struct storm *w, struct storm_leg *leg, int i)
{
	struct storm_area *a = &leg->area[i];
	struct srdma_mr_params mp = { .region.fd = -1 };

	a->len = w->area_len;
	a->at = STORM_GAP + (uint32_t)i * (w->area_len + STORM_GAP);
	a->next = a->at;
	if (access_of[i] & SRDMA_ACCESS_REMOTE_ATOMIC)
		memset(leg->kind + a->at, STORM_TAKEN | STORM_ATOMIC,
		       STORM_COUNTERS * SRDMA_ATOMIC_LEN);
	a->access = access_of[i];
	a->state = STORM_LIVE;
	if (w->guarded && i == STORM_GUARDED) {
		a->access |= SRDMA_ACCESS_PROOF;
		mp.log2_block = w->log2_block;
		mp.depth = w->tree_depth;
	}
	mp.region.addr = (uintptr_t)(leg->mem + a->at);
	mp.region.length = a->len;
	mp.region.access = a->access;
	STORM_CHECK(w,
		    !srdma_relay_mr_reg(w->side[leg->side].relay, leg->leg, &mp,
					&a->key),
		    "REG_MR");
}

/*
 * All arrays are in one allocation: a write of the relay beyond an arena
 * changes another array.
 */
static void make_room(struct storm *w, struct storm_leg *leg)
{
	leg->size = STORM_GAP + STORM_AREAS * (w->area_len + STORM_GAP);
	if (leg->mem)
		return;
	leg->mem = storm_trace_arena(leg, 4 * (size_t)leg->size);
	STORM_CHECK(w, leg->mem, "no memory");
	leg->shadow = leg->mem + leg->size;
	leg->after = leg->shadow + leg->size;
	leg->kind = leg->after + leg->size;
}

void storm_memory_open(struct storm *w, struct storm_leg *leg)
{
	make_room(w, leg);
	leg->tainted = 0;
	storm_memory_fill(leg->mem, leg->size, w->seed);
	memcpy(leg->shadow, leg->mem, leg->size);
	memset(leg->kind, STORM_EXACT, leg->size);
	for (int i = 0; i < STORM_AREAS; i++)
		register_area(w, leg, i);
}

void storm_memory_again(struct storm_leg *leg, int area)
{
	struct storm_area *a = &leg->area[area];

	check_range(leg, a->at, a->at + a->len);
	memset(leg->kind + a->at, STORM_EXACT, a->len);
	register_area(leg->w, leg, area);
}

void storm_memory_close(struct storm_leg *leg)
{
	storm_trace_free(leg, 4 * (size_t)leg->size);
}

uint32_t storm_memory_index(const struct storm_leg *leg, const uint8_t *at)
{
	return (uint32_t)(at - leg->mem);
}

struct storm_area *storm_memory_area(struct storm_leg *leg, const uint8_t *at)
{
	uint32_t i =
		storm_memory_index(leg, at) / (leg->area[0].len + STORM_GAP);

	return &leg->area[i < STORM_AREAS ? i : STORM_AREAS - 1];
}

int storm_memory_pure(struct storm_leg *leg, const uint8_t *at)
{
	return !leg->tainted ||
	       storm_memory_area(leg, at)->access & SRDMA_ACCESS_PROOF ||
	       storm_memory_index(leg, at) >= leg->area[2].at;
}

/* --- ranges --------------------------------------------------------------- */

/*
 * Index of the last byte of [from, from + len) that is taken; from + len: none.
 */
static uint32_t last_taken(const struct storm_leg *leg, uint32_t from,
			   uint32_t len)
{
	const uint64_t taken = STORM_TAKEN * UINT64_C(0x0101010101010101);
	uint32_t i = from + len;
	uint64_t kinds;

	for (; i - from >= sizeof(kinds); i -= (uint32_t)sizeof(kinds)) {
		memcpy(&kinds, leg->kind + i - sizeof(kinds), sizeof(kinds));
		if (kinds & taken)
			break;
	}
	while (i-- > from)
		if (leg->kind[i] & STORM_TAKEN)
			return i;
	return from + len;
}

static void be(struct storm_leg *leg, const uint8_t *at, uint32_t len, int kind)
{
	if (!storm_memory_pure(leg, at))
		kind = STORM_ANY | (kind & (STORM_TAKEN | STORM_SOURCE));
	memset(leg->kind + storm_memory_index(leg, at), kind, len);
}

uint8_t *storm_memory_take(struct storm *w, struct storm_leg *leg, uint32_t i,
			   uint32_t len)
{
	struct storm_area *a = &leg->area[i];
	uint32_t at = a->next + storm_random(w, 65);

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
			be(leg, leg->mem + at, len, STORM_TAKEN);
			a->next = at + len;
			return leg->mem + at;
		}
		at = taken + 1 + storm_random(w, 65);
	}
	return NULL;
}

static int is_frozen(struct storm_leg *leg, const uint8_t *at)
{
	return storm_memory_area(leg, at)->state == STORM_FROZEN;
}

/* Revoked ranges must not change, whatever request still names them. */
static void keep_fixed(struct storm_leg *leg, uint32_t from, uint32_t len)
{
	for (uint32_t i = 0; i < leg->revocations; i++) {
		const struct storm_revoked *r = &leg->revoked[i];
		uint32_t lo = r->lo > from ? r->lo : from;
		uint32_t hi = r->hi < from + len ? r->hi : from + len;

		if (r->done && lo < hi)
			memset(leg->kind + lo, STORM_TAKEN, hi - lo);
	}
}

static void change(struct storm_leg *leg, uint8_t *at, uint32_t len)
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
	memcpy(leg->shadow + storm_memory_index(leg, at), at, len);
}

void storm_memory_give(struct storm_leg *leg, uint8_t *at, uint32_t len)
{
	if (!len || !leg->open || is_frozen(leg, at))
		return;
	change(leg, at, len);
	be(leg, at, len, STORM_EXACT);
}

void storm_memory_put(struct storm_leg *leg, uint8_t *at, uint32_t len,
		      uint64_t word)
{
	storm_memory_fill(at, len, word);
	storm_memory_fill(leg->shadow + storm_memory_index(leg, at), len, word);
}

void storm_memory_lend(struct storm_leg *leg, const uint8_t *at, uint32_t len)
{
	be(leg, at, len, STORM_EXACT | STORM_TAKEN | STORM_SOURCE);
}

void storm_memory_expect(struct storm_leg *leg, const uint8_t *at, uint32_t len,
			 uint64_t word, int any)
{
	uint32_t i = storm_memory_index(leg, at);

	if (!len || is_frozen(leg, at))
		return;
	be(leg, at, len, STORM_TAKEN | (any ? STORM_ANY : STORM_ONCE));
	keep_fixed(leg, i, len);
	storm_memory_fill(leg->after + i, len, word);
}

void storm_memory_doubt(struct storm_leg *leg, uint32_t area)
{
	const struct storm_area *a = &leg->area[area];

	if (a->state == STORM_FROZEN)
		return;
	for (uint32_t i = a->at; i < a->at + a->len; i++)
		leg->kind[i] |= STORM_ANY;
}

void storm_memory_answer(struct storm_leg *leg, const uint8_t *at,
			 uint64_t found)
{
	storm_memory_expect(leg, at, sizeof(found), 0, 0);
	memcpy(leg->after + storm_memory_index(leg, at), &found, sizeof(found));
}

void storm_memory_move(struct storm_leg *leg, uint8_t *at, uint32_t len)
{
	if (!is_frozen(leg, at))
		change(leg, at, len);
}

void storm_memory_follow(struct storm_leg *leg, const uint8_t *at, uint32_t len)
{
	uint8_t *kind = leg->kind + storm_memory_index(leg, at);

	if (is_frozen(leg, at))
		return;
	for (uint32_t n = 0; n < len; n++)
		if (kind[n] & STORM_KIND)
			kind[n] |= STORM_MOVED;
}

/* --- checks --------------------------------------------------------------- */

void storm_memory_check(struct storm_leg *leg)
{
	check_range(leg, 0, leg->size);
}

void storm_memory_arrived(struct storm_leg *leg, const uint8_t *at,
			  uint32_t len, const char *what)
{
	uint32_t i = storm_memory_index(leg, at);

	if (!len || !storm_memory_pure(leg, at))
		return;
	if (all_are(leg, i, len, STORM_DONE | STORM_TAKEN) &&
	    !memcmp(at, leg->after + i, len)) {
		memcpy(leg->shadow + i, at, len);
		memset(leg->kind + i, STORM_EXACT | STORM_TAKEN, len);
		return;
	}
	for (uint32_t n = i; n < i + len; n++) {
		if ((leg->kind[n] & STORM_KIND) == STORM_EXACT)
			continue; /* revoked or frozen, and checked then */
		STORM_CHECK(leg->w, is_after(leg, n, leg->mem[n]),
			    "%s: byte %u of %u differs from the source", what,
			    n - i, len);
		leg->shadow[n] = leg->mem[n];
		leg->kind[n] = STORM_EXACT | STORM_TAKEN;
	}
}

void storm_memory_settle(struct storm_leg *leg, uint8_t *at, uint32_t len)
{
	uint32_t i = storm_memory_index(leg, at);

	if (!len || !leg->open || is_frozen(leg, at))
		return;
	check_range(leg, i, i + len);
	memcpy(leg->shadow + i, at, len);
	be(leg, at, len, STORM_EXACT);
}

/*
 * No DMA to these counters is in progress. After the death of a host some DMA
 * was not done.
 */
static void check_counters(struct storm_leg *leg, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; leg->open && i < to; i++)
		if ((leg->kind[i] & (STORM_ATOMIC | STORM_KIND)) ==
		    STORM_ATOMIC)
			STORM_CHECK(leg->w, leg->mem[i] == leg->shadow[i],
				    "a counter differs from its shadow");
}

static void fix(struct storm_leg *leg, uint32_t from, uint32_t to)
{
	check_range(leg, from, to);
	check_counters(leg, from, to);
	memcpy(leg->shadow + from, leg->mem + from, to - from);
	for (uint32_t i = from; i < to; i++)
		leg->kind[i] = STORM_EXACT | (leg->kind[i] & STORM_TAKEN);
}

void storm_memory_reclaim(struct storm_leg *leg, uint32_t from, uint32_t to)
{
	fix(leg, from, to);
	change(leg, leg->mem + from, to - from);
}

void storm_memory_freeze(struct storm_leg *leg, int area)
{
	for (int i = 0; i < STORM_AREAS; i++) {
		struct storm_area *a = &leg->area[i];

		if ((area >= 0 && area != i) || a->state == STORM_FROZEN)
			continue;
		fix(leg, a->at, a->at + a->len);
		a->state = STORM_FROZEN;
	}
}

/* --- DMA ------------------------------------------------------------------ */

static struct storm_leg *leg_of(struct storm *w, const struct srdma_dma *d)
{
	for (int i = 0; i < 2 * STORM_LEGS; i++) {
		struct storm_leg *leg = &w->side[i % 2].leg[i / 2];

		if (leg->mem && d->addr - (uintptr_t)leg->mem < leg->size)
			return leg;
	}
	return NULL;
}

/*
 * A worker may read memory with REMOTE_READ, except revoked ranges, and sources
 * of local requests.
 */
static void check_read(struct storm_leg *leg, const struct storm_area *a,
		       uint32_t from, uint32_t len)
{
	if (a->access & SRDMA_ACCESS_REMOTE_READ) {
		for (uint32_t i = 0; i < leg->revocations; i++)
			STORM_CHECK(leg->w,
				    !leg->revoked[i].done ||
					    leg->revoked[i].hi <= from ||
					    from + len <= leg->revoked[i].lo,
				    "a revoked range is read");
		return;
	}
	for (uint32_t i = from; i < from + len; i++)
		STORM_CHECK(leg->w, leg->kind[i] & STORM_SOURCE,
			    "byte %#x is read without permission", i);
}

static void check_write(struct storm_leg *leg, uint32_t from, uint32_t len,
			const uint8_t *data)
{
	if (all_are(leg, from, len, STORM_ONCE | STORM_TAKEN) &&
	    !memcmp(data, leg->after + from, len)) {
		memset(leg->kind + from, STORM_DONE | STORM_TAKEN, len);
		return;
	}
	for (uint32_t i = from; i < from + len; i++, data++) {
		int kind = leg->kind[i] & STORM_KIND;

		if (kind == STORM_ANY)
			continue;
		STORM_CHECK(leg->w, kind == STORM_ONCE,
			    "byte %#x of leg %u of side %d is written, kind %d",
			    i, leg->id, leg->side, kind);
		STORM_CHECK(leg->w, is_after(leg, i, *data),
			    "byte %#x of leg %u of side %d gets wrong data", i,
			    leg->id, leg->side);
		leg->kind[i] ^= STORM_ONCE ^ STORM_DONE;
	}
}

void storm_memory_dma(struct storm *w, const struct srdma_dma *d, int is_write)
{
	const struct srdma_op *op = (struct srdma_op *)(uintptr_t)d->cookie;
	struct storm_leg *leg = leg_of(w, d);
	const struct storm_area *a;
	uint32_t from;

	STORM_CHECK(w, leg, "DMA outside all arenas");
	from = (uint32_t)(d->addr - (uintptr_t)leg->mem);
	a = storm_memory_area(leg, leg->mem + from);
	STORM_CHECK(w,
		    a->state != STORM_FROZEN && from >= a->at &&
			    from + d->len <= a->at + a->len,
		    "DMA of memory that is not registered");
	if (leg->kind[from] & STORM_ATOMIC && op->atomic.kind)
		storm_atomic_dma(w, leg, op);
	else if (is_write)
		check_write(leg, from, d->len, d->buf->data + d->buf_at);
	else
		check_read(leg, a, from, d->len);
}
