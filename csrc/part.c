#include "part.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mutant.h"

enum { REORDERED = 3 };

int srdma_part_create(struct srdma_parts *t, uint32_t size)
{
	*t = (struct srdma_parts){ .size = size };
	t->part = calloc(size, sizeof(*t->part));
	return t->part ? 0 : -ENOMEM;
}

void srdma_part_destroy(struct srdma_parts *t)
{
	free(t->part);
	*t = (struct srdma_parts){ 0 };
}

void srdma_part_clear(struct srdma_parts *t)
{
	t->count = t->due = t->wanted = 0;
}

uint32_t srdma_part_answers(const struct srdma_parts *t, uint32_t len)
{
	return len ? (len + t->mtu - 1) / t->mtu : 1;
}

struct srdma_part *srdma_part_add(struct srdma_parts *t, uint64_t id,
				  uint32_t start, uint32_t end)
{
	struct srdma_part *p = &t->part[t->count];

	if (t->count == t->size)
		return NULL;
	*p = (struct srdma_part){ .request_id = id,
				  .flight = SRDMA_NO_FLIGHT,
				  .start = start,
				  .end = end,
				  .from = start,
				  .until = end,
				  .left = srdma_part_answers(t, end - start) };
	t->count++;
	t->due += p->left;
	return p;
}

static uint64_t oldest_atomic(const struct srdma_parts *t)
{
	uint64_t oldest = t->atomics + 1;

	for (uint32_t i = 0; i < t->count; i++)
		if (t->part[i].atomic && t->part[i].atomic < oldest)
			oldest = t->part[i].atomic;
	return oldest;
}

struct srdma_part *srdma_part_add_atomic(struct srdma_parts *t, uint64_t id)
{
	struct srdma_part *p;

	if (t->atomics + 1 - oldest_atomic(t) >= t->size)
		return NULL;
	p = srdma_part_add(t, id, 0, SRDMA_ATOMIC_LEN);
	if (p)
		p->atomic = ++t->atomics;
	return p;
}

struct srdma_part *srdma_part_find(const struct srdma_parts *t, uint64_t id,
				   uint32_t from, uint32_t until)
{
	for (uint32_t i = 0; i < t->count; i++) {
		struct srdma_part *p = &t->part[i];

		if (p->request_id == id && p->from == from &&
		    p->until == until &&
		    (p->state == SRDMA_PART_NEW || p->state == SRDMA_PART_CUT))
			return p;
	}
	return NULL;
}

/* Take one out; who is the oldest then has waited for it. */
static struct srdma_part take(struct srdma_parts *t, uint32_t i, uint64_t now)
{
	struct srdma_part p = t->part[i];

	t->count--;
	memmove(&t->part[i], &t->part[i + 1],
		(t->count - i) * sizeof(*t->part));
	if (!i && t->count)
		t->part[0].since = now;
	return p;
}

void srdma_part_asked(struct srdma_parts *t, struct srdma_part *part,
		      uint64_t flight, uint64_t now)
{
	uint32_t i = (uint32_t)(part - t->part);
	struct srdma_part p;

	part->since = now;
	part->later = 0;
	part->flight = flight;
	if (part->state == SRDMA_PART_CUT) {
		p = take(t, i, now);
		part = &t->part[t->count++];
		*part = p;
	}
	part->state = SRDMA_PART_ASKED;
}

struct srdma_part *srdma_part_next(struct srdma_parts *t)
{
	for (uint32_t i = 0; t->wanted && i < t->count; i++) {
		if (t->part[i].state != SRDMA_PART_WANTED)
			continue;
		t->part[i].state = SRDMA_PART_CUT;
		t->wanted--;
		return &t->part[i];
	}
	return NULL;
}

void srdma_part_not_yet(struct srdma_parts *t, struct srdma_part *part)
{
	part->state = SRDMA_PART_WANTED;
	t->wanted++;
}

void srdma_part_executed(struct srdma_part *part, uint64_t now)
{
	part->executed = 1;
	part->since = now;
}

/* --- places ------------------------------------------------------------ */

static uint32_t place_of(const struct srdma_parts *t,
			 const struct srdma_part *p, uint32_t offset)
{
	return (offset - p->start) / t->mtu;
}

static int is_filled(const struct srdma_part *p, uint32_t place)
{
	return p->filled[place / 8] >> place % 8 & 1;
}

static void fill(struct srdma_part *p, uint32_t place)
{
	p->filled[place / 8] |= (uint8_t)(1u << place % 8);
	p->left--;
}

/* Places [*from, *to) are the first that are empty, from *from on. */
static int find_run(const struct srdma_parts *t, const struct srdma_part *p,
		    uint32_t *from, uint32_t *to)
{
	uint32_t n = srdma_part_answers(t, p->end - p->start);

	while (*from < n && is_filled(p, *from))
		++*from;
	for (*to = *from; *to < n && !is_filled(p, *to);)
		++*to;
	return *from < n;
}

static uint32_t offset_of(const struct srdma_parts *t,
			  const struct srdma_part *p, uint32_t place)
{
	uint64_t at = (uint64_t)p->start + (uint64_t)place * t->mtu;

	return at < p->end ? (uint32_t)at : p->end;
}

static void want(struct srdma_parts *t, struct srdma_part *p)
{
	if (p->state != SRDMA_PART_WANTED)
		t->wanted++;
	p->state = SRDMA_PART_WANTED;
	p->executed = 1;
	p->flight = SRDMA_NO_FLIGHT;
	p->later = 0;
}

/* Ask for the first run of empty places in the part's own place, for the
 * others as parts of their own, or later if there is no room. */
static void ask_again(struct srdma_parts *t, struct srdma_part *p)
{
	uint32_t from = 0, to;

	find_run(t, p, &from, &to);
	p->from = offset_of(t, p, from);
	p->until = offset_of(t, p, to);
	want(t, p);
	for (from = to; find_run(t, p, &from, &to); from = to) {
		struct srdma_part *q =
			srdma_part_add(t, p->request_id, offset_of(t, p, from),
				       offset_of(t, p, to));

		if (!q)
			return;
		t->due -= q->left; /* they were the part's */
		for (; from < to; from++)
			fill(p, from);
		want(t, q);
	}
}

/* --- answers ------------------------------------------------------------ */

static int has_empty(const struct srdma_parts *t, const struct srdma_part *p,
		     const struct srdma_part_answer *a)
{
	uint32_t len;

	if (p->state == SRDMA_PART_NEW || p->request_id != a->request_id ||
	    !p->atomic != !a->atomic || a->offset < p->start ||
	    (a->offset >= p->end && p->start < p->end))
		return 0;
	len = p->end - a->offset;
	if (len > t->mtu)
		len = t->mtu;
	return (a->offset - p->start) % t->mtu == 0 && a->len == len &&
	       (!is_filled(p, place_of(t, p, a->offset)) ||
		SRDMA_MUTANT(ANSWERED_TWICE));
}

/* What is asked for has come, or passed what is missing. */
static int is_over(const struct srdma_parts *t, const struct srdma_part *p)
{
	uint32_t empty = 0, to, filled = 0;
	uint32_t end = place_of(t, p, p->until - 1) + 1;

	if (p->state != SRDMA_PART_ASKED)
		return is_filled(p, place_of(t, p, p->from));
	find_run(t, p, &empty, &to);
	if (empty >= end)
		return 1;
	if (!is_filled(p, end - 1))
		return 0;
	for (uint32_t i = empty; i < end; i++)
		filled += (uint32_t)is_filled(p, i);
	return t->ordered || filled >= REORDERED;
}

/* Parts that were asked for earlier have been passed by this answer. */
static void pass_older(struct srdma_parts *t, uint32_t younger)
{
	for (uint32_t i = 0; i < younger; i++) {
		struct srdma_part *p = &t->part[i];

		if (p->state == SRDMA_PART_ASKED && p->executed &&
		    ++p->later >= (t->ordered ? 1 : REORDERED))
			ask_again(t, p);
	}
}

int srdma_part_fill(struct srdma_parts *t, const struct srdma_part_answer *a,
		    uint64_t *flight)
{
	struct srdma_part *p;
	uint32_t i = 0;

	while (i < t->count && !has_empty(t, &t->part[i], a))
		i++;
	if (i == t->count)
		return -ENOENT;
	p = &t->part[i];
	*flight = p->flight;
	fill(p, place_of(t, p, a->offset));
	t->due--;
	p->executed = 1;
	p->since = a->now;
	if (p->state == SRDMA_PART_ASKED)
		pass_older(t, i);
	if (!p->left) {
		t->wanted -= p->state == SRDMA_PART_WANTED;
		take(t, i, a->now);
	} else if (is_over(t, p)) {
		ask_again(t, p);
	}
	return 0;
}

void srdma_part_lose(struct srdma_parts *t)
{
	ask_again(t, &t->part[0]);
}
