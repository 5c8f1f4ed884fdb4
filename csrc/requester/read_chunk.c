#include "requester/read_chunk.h"

#include <errno.h>

#include "base/time.h"

enum {
	REORDERED = 3, /* later responses that mean a loss */
	SLAB = 16,     /* chunks per allocation */
};

struct srdma_read_chunk_slab {
	struct srdma_read_chunk_slab *next;
	struct srdma_read_chunk chunk[SLAB];
};

void srdma_read_chunk_create(struct srdma_read_chunks *t,
			     struct srdma_table_memory *memory, uint32_t size)
{
	*t = (struct srdma_read_chunks){ .memory = memory, .size = size };
}

void srdma_read_chunk_clear(struct srdma_read_chunks *t)
{
	struct srdma_read_chunk_slab *c = t->chunks, *next;

	for (; c; c = next) {
		next = c->next;
		srdma_table_give(t->memory, c, 1, sizeof(*c));
	}
	t->chunks = NULL;
	t->free = t->head = t->tail = NULL;
	t->room = t->count = t->due = t->wanted = 0;
	t->late = 0;
}

void srdma_read_chunk_destroy(struct srdma_read_chunks *t)
{
	srdma_read_chunk_clear(t);
	*t = (struct srdma_read_chunks){ 0 };
}

void srdma_read_chunk_shrink(struct srdma_read_chunks *t)
{
	if (!t->count && t->chunks)
		srdma_read_chunk_clear(t);
}

/* A free chunk; NULL: no room, or no memory. */
static struct srdma_read_chunk *take(struct srdma_read_chunks *t)
{
	struct srdma_read_chunk_slab *c;
	struct srdma_read_chunk *p;

	if (!t->free && t->room < t->size) {
		c = srdma_table_take(t->memory, 1, sizeof(*c));
		if (!c)
			return NULL;
		c->next = t->chunks;
		t->chunks = c;
		for (int i = SLAB; i-- > 0 && t->room < t->size; t->room++) {
			c->chunk[i].next = t->free;
			t->free = &c->chunk[i];
		}
	}
	p = t->free;
	if (p)
		t->free = p->next;
	return p;
}

uint32_t srdma_read_chunk_responses(const struct srdma_read_chunks *t,
				    uint32_t len)
{
	return len ? (len + t->mtu - 1) / t->mtu : 1;
}

static void append(struct srdma_read_chunks *t, struct srdma_read_chunk *p)
{
	p->next = NULL;
	p->before = t->tail;
	if (t->tail)
		t->tail->next = p;
	else
		t->head = p;
	t->tail = p;
}

/* The time-out of the chunk that becomes the oldest starts now. */
static void unlink_chunk(struct srdma_read_chunks *t,
			 struct srdma_read_chunk *p, uint64_t now)
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

/* RFC 5042 R6.4.3.3-2 */
struct srdma_read_chunk *srdma_read_chunk_add(struct srdma_read_chunks *t,
					      uint64_t id, uint32_t start,
					      uint32_t end)
{
	struct srdma_read_chunk *p = take(t);

	if (!p)
		return NULL;
	*p = (struct srdma_read_chunk){ .request_id = id,
					.flight = SRDMA_NO_FLIGHT,
					.start = start,
					.end = end,
					.from = start,
					.until = end,
					.left = srdma_read_chunk_responses(
						t, end - start) };
	append(t, p);
	t->count++;
	t->due += p->left;
	return p;
}

static uint64_t oldest_atomic(const struct srdma_read_chunks *t)
{
	uint64_t oldest = t->atomics + 1;

	for (const struct srdma_read_chunk *p = t->head; p; p = p->next)
		if (p->atomic && p->atomic < oldest)
			oldest = p->atomic;
	return oldest;
}

/* 1: after one more atomic, the peer keeps the results of all that are not
 * answered. */
static int has_result(const struct srdma_read_chunks *t)
{
	return t->atomics + 1 - t->oldest < t->results;
}

struct srdma_read_chunk *
srdma_read_chunk_add_atomic(struct srdma_read_chunks *t, uint64_t id)
{
	struct srdma_read_chunk *p;

	if (!has_result(t)) {
		t->oldest = oldest_atomic(t);
		if (!has_result(t))
			return NULL;
	}
	p = srdma_read_chunk_add(t, id, 0, SRDMA_ATOMIC_LEN);
	if (p)
		p->atomic = ++t->atomics;
	return p;
}

static void drop(struct srdma_read_chunks *t, struct srdma_read_chunk *p,
		 uint64_t now)
{
	t->wanted -= p->state == SRDMA_READ_CHUNK_WANTED;
	unlink_chunk(t, p, now);
	p->next = t->free;
	t->free = p;
	t->count--;
}

struct srdma_read_chunk *
srdma_read_chunk_find(const struct srdma_read_chunks *t, uint64_t id,
		      uint32_t from, uint32_t until)
{
	struct srdma_read_chunk *p = t->tail; /* new chunks are at the tail */

	while (p &&
	       !(p->request_id == id && p->from == from && p->until == until &&
		 (p->state == SRDMA_READ_CHUNK_NEW ||
		  p->state == SRDMA_READ_CHUNK_CUT)))
		p = p->before;
	return p;
}

void srdma_read_chunk_asked(struct srdma_read_chunks *t,
			    struct srdma_read_chunk *chunk, uint64_t flight,
			    uint64_t now)
{
	if (chunk->state == SRDMA_READ_CHUNK_CUT) {
		unlink_chunk(t, chunk, now);
		append(t, chunk);
	}
	chunk->state = SRDMA_READ_CHUNK_ASKED;
	chunk->flight = flight;
	chunk->asked = chunk->since = now;
	chunk->later = 0;
	chunk->late = 0;
}

struct srdma_read_chunk *srdma_read_chunk_next(struct srdma_read_chunks *t)
{
	struct srdma_read_chunk *p = t->wanted ? t->head : NULL;

	while (p && p->state != SRDMA_READ_CHUNK_WANTED)
		p = p->next;
	if (!p)
		return NULL;
	p->state = SRDMA_READ_CHUNK_CUT;
	t->wanted--;
	return p;
}

void srdma_read_chunk_not_yet(struct srdma_read_chunks *t,
			      struct srdma_read_chunk *chunk)
{
	chunk->state = SRDMA_READ_CHUNK_WANTED;
	t->wanted++;
}

void srdma_read_chunk_executed(struct srdma_read_chunk *chunk, uint64_t now)
{
	chunk->executed = 1;
	chunk->since = now;
}

/* --- places -------------------------------------------------------------- */

/* RFC 5042 A6.2.1 */
static uint32_t place_of(const struct srdma_read_chunks *t,
			 const struct srdma_read_chunk *p, uint32_t offset)
{
	return (offset - p->start) / t->mtu;
}

static int is_filled(const struct srdma_read_chunk *p, uint32_t place)
{
	return p->filled[place / 8] >> place % 8 & 1;
}

static void fill(struct srdma_read_chunk *p, uint32_t place)
{
	p->filled[place / 8] |= (uint8_t)(1u << place % 8);
	p->left--;
}

/* Finds the first run of empty places [*from, *to) from *from on. 0: none. */
static int find_run(const struct srdma_read_chunks *t,
		    const struct srdma_read_chunk *p, uint32_t *from,
		    uint32_t *to)
{
	uint32_t n = srdma_read_chunk_responses(t, p->end - p->start);

	while (*from < n && is_filled(p, *from))
		++*from;
	for (*to = *from; *to < n && !is_filled(p, *to);)
		++*to;
	return *from < n;
}

static uint32_t offset_of(const struct srdma_read_chunks *t,
			  const struct srdma_read_chunk *p, uint32_t place)
{
	uint64_t at = (uint64_t)p->start + (uint64_t)place * t->mtu;

	return at < p->end ? (uint32_t)at : p->end;
}

static void want(struct srdma_read_chunks *t, struct srdma_read_chunk *p)
{
	if (p->state != SRDMA_READ_CHUNK_WANTED)
		t->wanted++;
	p->state = SRDMA_READ_CHUNK_WANTED;
	p->executed = 1;
	p->flight = SRDMA_NO_FLIGHT;
}

/* Requests again: the first run of empty places by this chunk, other runs by
 * chunks of their own; a run for which there is no room waits. */
static void ask_again(struct srdma_read_chunks *t, struct srdma_read_chunk *p)
{
	uint32_t from = 0, to;

	find_run(t, p, &from, &to);
	p->from = offset_of(t, p, from);
	p->until = offset_of(t, p, to);
	want(t, p);
	for (from = to; find_run(t, p, &from, &to); from = to) {
		struct srdma_read_chunk *q = srdma_read_chunk_add(
			t, p->request_id, offset_of(t, p, from),
			offset_of(t, p, to));

		if (!q)
			return;
		t->due -= q->left; /* they were counted for p */
		for (; from < to; from++)
			fill(p, from);
		q->asked = p->asked;
		want(t, q);
	}
}

/* --- responses ----------------------------------------------------------- */

static int has_empty(const struct srdma_read_chunks *t,
		     const struct srdma_read_chunk *p,
		     const struct srdma_read_chunk_response *a)
{
	uint32_t len;

	if (p->state == SRDMA_READ_CHUNK_NEW ||
	    p->request_id != a->request_id || !p->atomic != !a->atomic ||
	    a->offset < p->start || (a->offset >= p->end && p->start < p->end))
		return 0;
	len = p->end - a->offset;
	if (len > t->mtu)
		len = t->mtu;
	return (a->offset - p->start) % t->mtu == 0 && a->len == len &&
	       !is_filled(p, place_of(t, p, a->offset));
}

/* 1: the response that the chunk waits for is lost, as a later one arrived. On a
 * wire that reorders: as three later ones arrived, or `patience` passed. */
static int is_lost(const struct srdma_read_chunks *t,
		   const struct srdma_read_chunk *p, uint32_t passed,
		   const struct srdma_read_chunk_response *a)
{
	return t->ordered || passed >= REORDERED ||
	       a->now - p->late >= a->patience;
}

/* A response arrived that was sent after the one that the chunk waits for. */
static void pass(struct srdma_read_chunks *t, struct srdma_read_chunk *p,
		 uint32_t passed, const struct srdma_read_chunk_response *a)
{
	if (!p->late)
		p->late = a->now;
	if (is_lost(t, p, passed, a))
		ask_again(t, p);
	else if (!t->late)
		t->late = p->late;
}

/* A response to the chunk itself arrived. */
static void look_at(struct srdma_read_chunks *t, struct srdma_read_chunk *p,
		    const struct srdma_read_chunk_response *a)
{
	uint32_t empty = 0, to, filled = 0;
	uint32_t end = place_of(t, p, p->until - 1) + 1;

	if (p->state != SRDMA_READ_CHUNK_ASKED) {
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

/* The response overtook those to all chunks that were requested earlier. */
static void pass_older(struct srdma_read_chunks *t, struct srdma_read_chunk *p,
		       const struct srdma_read_chunk_response *a)
{
	while ((p = p->before)) {
		p->executed |= p->flight < a->flights;
		if (p->state == SRDMA_READ_CHUNK_ASKED && p->executed)
			pass(t, p, ++p->later, a);
	}
}

int srdma_read_chunk_fill(struct srdma_read_chunks *t,
			  const struct srdma_read_chunk_response *a,
			  uint64_t *flight)
{
	struct srdma_read_chunk *p = t->head;

	while (p && !has_empty(t, p, a))
		p = p->next;
	if (!p)
		return -ENOENT;
	*flight = p->flight;
	fill(p, place_of(t, p, a->offset));
	t->due--;
	p->executed = 1;
	p->since = a->now;
	if (p->state == SRDMA_READ_CHUNK_ASKED)
		pass_older(t, p, a);
	if (p->left)
		look_at(t, p, a);
	else
		drop(t, p, a->now);
	return 0;
}

uint64_t srdma_read_chunk_expire(struct srdma_read_chunks *t, uint64_t now,
				 uint64_t patience)
{
	uint64_t first = 0;

	if (!t->late || now < t->late + patience)
		return t->late ? t->late + patience : SRDMA_NEVER;
	for (struct srdma_read_chunk *p = t->head; p; p = p->next) {
		if (p->state != SRDMA_READ_CHUNK_ASKED || !p->late)
			continue;
		if (now >= p->late + patience)
			ask_again(t, p);
		else if (!first || p->late < first)
			first = p->late;
	}
	t->late = first;
	return first ? first + patience : SRDMA_NEVER;
}

void srdma_read_chunk_lose(struct srdma_read_chunks *t)
{
	ask_again(t, t->head);
}
