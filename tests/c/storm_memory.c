#include "storm_memory.h"

#include <stdlib.h>
#include <string.h>

#include "mr.h"

static const uint32_t access_of[STORM_AREAS] = { 7, 7, 1, 0 };

/* Each word of a fill gives the next one. */
static uint64_t follow(uint64_t word)
{
	return word * UINT64_C(6364136223846793005) + 99;
}

void storm_memory_fill(struct storm *w, uint8_t *at, uint32_t len)
{
	uint64_t r = storm_random(w, UINT32_MAX);

	while (len) {
		uint32_t n = len < 8 ? len : 8;

		r = follow(r);
		memcpy(at, &r, n);
		at += n;
		len -= n;
	}
}

int storm_memory_shows(const uint8_t *at, uint32_t len)
{
	uint64_t word[2];

	for (; len >= sizeof(word); at++, len--) {
		memcpy(word, at, sizeof(word));
		if (word[1] == follow(word[0]))
			return 1;
	}
	return 0;
}

static void register_area(struct storm *w, struct storm_leg *leg, int i)
{
	struct storm_area *a = &leg->area[i];
	struct srdma_mr_params mp = { .region.fd = -1 };

	a->len = w->area_len;
	a->at = STORM_GAP + (uint32_t)i * (w->area_len + STORM_GAP);
	a->next = a->at;
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

void storm_memory_open(struct storm *w, struct storm_leg *leg)
{
	leg->size = STORM_GAP + STORM_AREAS * (w->area_len + STORM_GAP);
	leg->mem = malloc(leg->size);
	leg->shadow = malloc(leg->size);
	leg->after = calloc(1, leg->size);
	leg->kind = calloc(1, leg->size);
	STORM_CHECK(w, leg->mem && leg->shadow && leg->after && leg->kind,
		    "no memory");
	storm_memory_fill(w, leg->mem, leg->size);
	memcpy(leg->shadow, leg->mem, leg->size);
	for (int i = 0; i < STORM_AREAS; i++)
		register_area(w, leg, i);
}

void storm_memory_close(struct storm_leg *leg)
{
	free(leg->mem);
	free(leg->shadow);
	free(leg->after);
	free(leg->kind);
}

uint32_t storm_memory_index(const struct storm_leg *leg, const uint8_t *at)
{
	return (uint32_t)(at - leg->mem);
}

uint8_t *storm_memory_take(struct storm *w, struct storm_leg *leg, uint32_t i,
			   uint32_t len)
{
	struct storm_area *a = &leg->area[i];
	uint32_t at = a->next + storm_random(w, 65);

	if (!len)
		return leg->mem + a->at;
	if (at + len > a->at + a->len)
		return NULL;
	a->next = at + len;
	return leg->mem + at;
}

const struct storm_area *storm_memory_area(const struct storm_leg *leg,
					   const uint8_t *at)
{
	uint32_t i =
		storm_memory_index(leg, at) / (leg->area[0].len + STORM_GAP);

	return &leg->area[i < STORM_AREAS ? i : STORM_AREAS - 1];
}

int storm_memory_pure(const struct storm_leg *leg, const uint8_t *at)
{
	const struct storm_area *a = storm_memory_area(leg, at);

	return !leg->tainted || a->access & SRDMA_ACCESS_PROOF ||
	       storm_memory_index(leg, at) >= leg->area[2].at;
}

int storm_memory_fixed(const struct storm_leg *leg, uint32_t i)
{
	for (uint32_t n = 0; n < leg->revocations; n++)
		if (leg->revoked[n].done && leg->revoked[n].lo <= i &&
		    i < leg->revoked[n].hi)
			return 1;
	return 0;
}

/* What was revoked stays as it is, whoever still asks for it. */
static void keep_fixed(struct storm_leg *leg, uint32_t from, uint32_t to)
{
	for (uint32_t i = 0; i < leg->revocations; i++) {
		const struct storm_revoked *r = &leg->revoked[i];
		uint32_t lo = r->lo > from ? r->lo : from;
		uint32_t hi = r->hi < to ? r->hi : to;

		if (r->done && lo < hi)
			memset(leg->kind + lo, STORM_EXACT, hi - lo);
	}
}

void storm_memory_expect(struct storm_leg *leg, const uint8_t *at, uint32_t len,
			 int kind, const uint8_t *after)
{
	uint32_t i = storm_memory_index(leg, at);

	memset(leg->kind + i, storm_memory_pure(leg, at) ? kind : STORM_ANY,
	       len);
	keep_fixed(leg, i, i + len);
	if (after)
		memcpy(leg->after + i, after, len);
}

void storm_memory_spoil(struct storm_leg *leg, uint8_t *at, uint32_t len)
{
	uint32_t i = storm_memory_index(leg, at);

	if (!leg->open || storm_memory_area(leg, at)->state == STORM_FROZEN)
		return;
	for (uint32_t n = 0; n < len; n++)
		at[n] = (uint8_t)(at[n] * 5 + 0x5b);
	memcpy(leg->shadow + i, at, len);
	storm_memory_expect(leg, at, len, STORM_EXACT, NULL);
}

static void check_byte(const struct storm_leg *leg, uint32_t i)
{
	uint8_t is = leg->mem[i];
	int good = leg->kind[i] == STORM_ANY || is == leg->shadow[i] ||
		   (leg->kind[i] == STORM_EITHER && is == leg->after[i]);

	STORM_CHECK(leg->w, good,
		    "byte %#x of leg %u of side %d is %02x; it was %02x, "
		    "kind %u",
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

void storm_memory_check(struct storm_leg *leg)
{
	check_range(leg, 0, leg->size);
}

void storm_memory_fix(struct storm_leg *leg, uint32_t from, uint32_t to)
{
	check_range(leg, from, to);
	memcpy(leg->shadow + from, leg->mem + from, to - from);
	memset(leg->kind + from, STORM_EXACT, to - from);
}

void storm_memory_freeze(struct storm_leg *leg, int area)
{
	for (int i = 0; i < STORM_AREAS; i++) {
		struct storm_area *a = &leg->area[i];

		if ((area >= 0 && area != i) || a->state == STORM_FROZEN)
			continue;
		storm_memory_fix(leg, a->at, a->at + a->len);
		a->state = STORM_FROZEN;
	}
}
