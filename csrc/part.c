#include "part.h"

#include <errno.h>

#include "mutant.h"

enum { REORDERED = 3, CHUNK = 16 };

struct srdma_part_chunk {
	struct srdma_part_chunk *next;
	struct srdma_part part[CHUNK];
};

void srdma_part_create(struct srdma_parts *t, struct srdma_table_memory *memory,
		       uint32_t size)
{
	*t = (struct srdma_parts){ .memory = memory, .size = size };
}

void srdma_part_clear(struct srdma_parts *t)
{
	struct srdma_part_chunk *c = t->chunks, *next;

	for (; c; c = next) {
		next = c->next;
		srdma_table_give(t->memory, c, 1, sizeof(*c));
	}
	t->chunks = NULL;
	t->free = t->head = t->tail = NULL;
	t->room = t->count = t->due = t->wanted = 0;
	t->late = 0;
}

void srdma_part_destroy(struct srdma_parts *t)
{
	srdma_part_clear(t);
	*t = (struct srdma_parts){ 0 };
}

void srdma_part_shrink(struct srdma_parts *t)
{
	if (!t->count && t->chunks)
		srdma_part_clear(t);
}

/* One that is free; NULL: no room, or no memory. */
static struct srdma_part *take(struct srdma_parts *t)
{
	struct srdma_part_chunk *c;
	struct srdma_part *p;

	if (!t->free && t->room < t->size) {
		c = srdma_table_take(t->memory, 1, sizeof(*c));
		if (!c)
			return NULL;
		c->next = t->chunks;
		t->chunks = c;
		for (int i = CHUNK; i-- > 0 && t->room < t->size; t->room++) {
			c->part[i].next = t->free;
			t->free = &c->part[i];
		}
	}
	p = t->free;
	if (p)
		t->free = p->next;
	return p;
}

uint32_t srdma_part_answers(const struct srdma_parts *t, uint32_t len)
{
	return len ? (len + t->mtu - 1) / t->mtu : 1;
}

static void append(struct srdma_parts *t, struct srdma_part *p)
{
	p->next = NULL;
	p->before = t->tail;
	if (t->tail)
		t->tail->next = p;
	else
		t->head = p;
	t->tail = p;
}

/* Who is the oldest then has waited for it. */
static void unlink_part(struct srdma_parts *t, struct srdma_part *p,
			uint64_t now)
{
	if (p->before)
		p->before->next = p->next;
	else
		t->head = p->next;
	if (p->next)
		p->next->before = p->before;
	else
		t->tail = p->before;
	if (!p->before && t->head)
		t->head->since = now;
}

struct srdma_part *srdma_part_add(struct srdma_parts *t, uint64_t id,
				  uint32_t start, uint32_t end)
{
	struct srdma_part *p = take(t);

	if (!p)
		return NULL;
	*p = (struct srdma_part){ .request_id = id,
				  .flight = SRDMA_NO_FLIGHT,
				  .start = start,
				  .end = end,
				  .from = start,
				  .until = end,
				  .left = srdma_part_answers(t, end - start) };
	append(t, p);
	t->count++;
	t->due += p->left;
	return p;
}

static uint64_t oldest_atomic(const struct srdma_parts *t)
{
	uint64_t oldest = t->atomics + 1;

	for (const struct srdma_part *p = t->head; p; p = p->next)
		if (p->atomic && p->atomic < oldest)
			oldest = p->atomic;
	return oldest;
}

/* The peer keeps that of one more, and of all that are not answered. */
static int has_result(const struct srdma_parts *t)
{
	return t->atomics + 1 - t->oldest < t->results;
}

struct srdma_part *srdma_part_add_atomic(struct srdma_parts *t, uint64_t id)
{
	struct srdma_part *p;

	if (!has_result(t)) {
		t->oldest = oldest_atomic(t);
		if (!has_result(t))
			return NULL;
	}
	p = srdma_part_add(t, id, 0, SRDMA_ATOMIC_LEN);
	if (p)
		p->atomic = ++t->atomics;
	return p;
}

static void drop(struct srdma_parts *t, struct srdma_part *p, uint64_t now)
{
	t->wanted -= p->state == SRDMA_PART_WANTED;
	unlink_part(t, p, now);
	p->next = t->free;
	t->free = p;
	t->count--;
}

struct srdma_part *srdma_part_find(const struct srdma_parts *t, uint64_t id,
				   uint32_t from, uint32_t until)
{
	struct srdma_part *p = t->tail; /* the new ones are there */

	while (p &&
	       !(p->request_id == id && p->from == from && p->until == until &&
		 (p->state == SRDMA_PART_NEW || p->state == SRDMA_PART_CUT)))
		p = p->before;
	return p;
}

void srdma_part_asked(struct srdma_parts *t, struct srdma_part *part,
		      uint64_t flight, uint64_t now)
{
	if (part->state == SRDMA_PART_CUT) {
		unlink_part(t, part, now);
		append(t, part);
	}
	part->state = SRDMA_PART_ASKED;
	part->flight = flight;
	part->asked = part->since = now;
	part->later = 0;
	part->late = 0;
}

struct srdma_part *srdma_part_next(struct srdma_parts *t)
{
	struct srdma_part *p = t->wanted ? t->head : NULL;

	while (p && p->state != SRDMA_PART_WANTED)
		p = p->next;
	if (!p)
		return NULL;
	p->state = SRDMA_PART_CUT;
	t->wanted--;
	return p;
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
		q->asked = p->asked;
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

/* What was passed by an answer is lost, where order may change only after a
 * third one or a time. */
static int is_lost(const struct srdma_parts *t, const struct srdma_part *p,
		   uint32_t passed, const struct srdma_part_answer *a)
{
	return t->ordered || passed >= REORDERED ||
	       a->now - p->late >= a->patience;
}

/* An answer came behind what the part waits for. */
static void pass(struct srdma_parts *t, struct srdma_part *p, uint32_t passed,
		 const struct srdma_part_answer *a)
{
	if (!p->late)
		p->late = a->now;
	if (is_lost(t, p, passed, a))
		ask_again(t, p);
	else if (!t->late)
		t->late = p->late;
}

/* An answer to the part itself came. */
static void look_at(struct srdma_parts *t, struct srdma_part *p,
		    const struct srdma_part_answer *a)
{
	uint32_t empty = 0, to, filled = 0;
	uint32_t end = place_of(t, p, p->until - 1) + 1;

	if (p->state != SRDMA_PART_ASKED) {
		if (is_filled(p, place_of(t, p, p->from)))
			ask_again(t, p);
		return;
	}
	find_run(t, p, &empty, &to);
	if (empty >= end) {
		ask_again(t, p);
		return;
	}
	if (!is_filled(p, end - 1))
		return;
	for (uint32_t i = empty; i < end; i++)
		filled += (uint32_t)is_filled(p, i);
	pass(t, p, filled, a);
}

/* Parts that were asked for earlier have been passed by this answer. */
static void pass_older(struct srdma_parts *t, struct srdma_part *p,
		       const struct srdma_part_answer *a)
{
	while ((p = p->before)) {
		p->executed |= p->flight < a->flights;
		if (p->state == SRDMA_PART_ASKED && p->executed)
			pass(t, p, ++p->later, a);
	}
}

int srdma_part_fill(struct srdma_parts *t, const struct srdma_part_answer *a,
		    uint64_t *flight)
{
	struct srdma_part *p = t->head;

	while (p && !has_empty(t, p, a))
		p = p->next;
	if (!p)
		return -ENOENT;
	*flight = p->flight;
	fill(p, place_of(t, p, a->offset));
	t->due--;
	p->executed = 1;
	p->since = a->now;
	if (p->state == SRDMA_PART_ASKED)
		pass_older(t, p, a);
	if (p->left)
		look_at(t, p, a);
	else
		drop(t, p, a->now);
	return 0;
}

uint64_t srdma_part_expire(struct srdma_parts *t, uint64_t now,
			   uint64_t patience)
{
	uint64_t first = 0;

	if (!t->late || now < t->late + patience)
		return t->late ? t->late + patience : UINT64_MAX;
	for (struct srdma_part *p = t->head; p; p = p->next) {
		if (p->state != SRDMA_PART_ASKED || !p->late)
			continue;
		if (now >= p->late + patience)
			ask_again(t, p);
		else if (!first || p->late < first)
			first = p->late;
	}
	t->late = first;
	return first ? first + patience : UINT64_MAX;
}

void srdma_part_lose(struct srdma_parts *t)
{
	ask_again(t, t->head);
}
