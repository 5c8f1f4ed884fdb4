#include "beyond.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "port/port.h"

enum { SHARE = 3 }; /* a QP may keep so many times what is left */

int srdma_beyond_pool_create(struct srdma_beyond_pool *pool, uint32_t n)
{
	pool->free = NULL;
	pool->left = n;
	pool->all = calloc(n ? n : 1, sizeof(*pool->all));
	if (!pool->all)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		pool->all[i].next = pool->free;
		pool->free = &pool->all[i];
	}
	return 0;
}

void srdma_beyond_pool_destroy(struct srdma_beyond_pool *pool)
{
	free(pool->all);
	pool->all = pool->free = NULL;
}

struct srdma_position srdma_position_after(const struct srdma_packet *p)
{
	const uint32_t traits = srdma_wire_traits(p->opcode);
	const int read = (traits & SRDMA_T_READ) != 0;
	const uint32_t len = read ? p->dma_len : p->payload_len;

	if (read ? !len : (traits & SRDMA_T_LAST) != 0)
		return (struct srdma_position){ p->request_id + 1, 0 };
	return (struct srdma_position){ p->request_id, p->offset + len };
}

static int same(struct srdma_position a, struct srdma_position b)
{
	return a.id == b.id && a.offset == b.offset;
}

/* 1: a part of a READ, perhaps the last one. */
static int may_end(const struct srdma_packet *p)
{
	return p->opcode == SRDMA_OP_READ_REQUEST && p->dma_len;
}

/* Whether nothing is missing between at and next (5). */
static int follows(struct srdma_position at, int reading,
		   struct srdma_position next)
{
	return same(at, next) ||
	       (reading && next.id == at.id + 1 && !next.offset);
}

void srdma_beyond_count(struct srdma_beyond *b, uint64_t pn)
{
	b->later += pn > b->pn;
}

void srdma_beyond_note(struct srdma_beyond *b, const struct srdma_packet *p)
{
	const struct srdma_position end = srdma_position_after(p);

	if (!srdma_position_before(b->furthest, end))
		return;
	b->furthest = end;
	b->pn = p->pn;
	b->later = 0;
}

/* The last one that does not begin behind p; NULL: it is the first. */
static struct srdma_kept *find(const struct srdma_beyond *b,
			       const struct srdma_packet *p)
{
	const struct srdma_position at = srdma_position_of(p);
	struct srdma_kept *k, *before = NULL;

	if (b->tail &&
	    !srdma_position_before(at, srdma_position_of(&b->tail->packet)))
		return b->tail;
	for (k = b->head; k; k = k->next) {
		if (srdma_position_before(at, srdma_position_of(&k->packet)))
			break;
		before = k;
	}
	return before;
}

/* 1: p has something that its neighbours have. */
static int overlaps(const struct srdma_packet *p,
		    const struct srdma_kept *before,
		    const struct srdma_kept *next)
{
	if (before &&
	    srdma_position_before(srdma_position_of(p),
				  srdma_position_after(&before->packet)))
		return 1;
	return next && srdma_position_before(srdma_position_of(&next->packet),
					     srdma_position_after(p));
}

static void insert(struct srdma_beyond *b, struct srdma_kept *before,
		   struct srdma_kept *k)
{
	struct srdma_kept **at = before ? &before->next : &b->head;

	k->next = *at;
	*at = k;
	if (b->tail == before)
		b->tail = k;
	b->count++;
}

/* An atomic takes it for what it finds. */
static int needs_buf(const struct srdma_packet *p)
{
	return p->payload_len ||
	       (srdma_wire_traits(p->opcode) & SRDMA_T_ATOMIC);
}

static int is_same(const struct srdma_packet *p, const struct srdma_kept *k)
{
	return k && same(srdma_position_of(p), srdma_position_of(&k->packet)) &&
	       same(srdma_position_after(p), srdma_position_after(&k->packet));
}

int srdma_beyond_keep(struct srdma_beyond *b, const struct srdma_packet *p,
		      struct srdma_buf **buf, struct srdma_kept **out)
{
	struct srdma_beyond_pool *pool = b->pool;
	struct srdma_kept *before = find(b, p);
	struct srdma_kept *k = pool->free;

	if (overlaps(p, before, before ? before->next : b->head))
		return is_same(p, before) ? -EALREADY : -EINVAL;
	if (b->count == SRDMA_BEYOND_MAX || b->count >= SHARE * pool->left)
		return -ENOSPC;
	pool->free = k->next;
	pool->left--;
	k->packet = *p;
	k->claim_len = 0;
	k->buf = NULL;
	if (needs_buf(p)) {
		k->buf = *buf;
		*buf = NULL;
	}
	insert(b, before, k);
	*out = k;
	return 0;
}

void srdma_beyond_pop(struct srdma_beyond *b)
{
	struct srdma_kept *k = b->head;

	b->head = k->next;
	if (!b->head)
		b->tail = NULL;
	b->count--;
	if (k->buf)
		k->buf->port->ops->buf_put(k->buf);
	k->next = b->pool->free;
	b->pool->free = k;
	b->pool->left++;
}

void srdma_beyond_drop(struct srdma_beyond *b)
{
	while (b->head)
		srdma_beyond_pop(b);
}

/* --- gaps --------------------------------------------------------------- */

enum { NEWEST = SRDMA_MAX_GAPS - 1 }; /* fewer: those are the last (2.4) */

struct list {
	struct srdma_gap newest[NEWEST]; /* a ring */
	uint32_t count;			 /* of all */
	struct srdma_gap page[SRDMA_MAX_GAPS];
	uint32_t before, paged;		  /* gaps before the page, and on it */
	struct srdma_position from, next; /* the page begins, the next one */
};

static void add(struct list *l, struct srdma_position at, uint32_t extent)
{
	const struct srdma_gap gap = { (uint32_t)at.id, at.offset, extent };

	l->newest[l->count++ % NEWEST] = gap;
	if (srdma_position_before(at, l->from))
		l->before++;
	else if (l->paged < SRDMA_MAX_GAPS)
		l->page[l->paged++] = gap;
	else if (!l->next.id && !l->next.offset)
		l->next = at;
}

/* All from at to next. */
static void add_missing(struct list *l, struct srdma_position at,
			struct srdma_position next)
{
	if (at.id != next.id) {
		add(l, at, SRDMA_GAP_IDS + (uint32_t)(next.id - at.id));
		at = (struct srdma_position){ next.id, 0 };
	}
	if (at.offset != next.offset)
		add(l, at, next.offset - at.offset);
}

static void add_all(const struct srdma_beyond *b,
		    const struct srdma_beyond_from *from, struct list *l)
{
	struct srdma_position at = from->at, end = b->furthest;
	int reading = from->reading;

	for (const struct srdma_kept *k = b->head; k; k = k->next) {
		const struct srdma_position next =
			srdma_position_of(&k->packet);

		if (!follows(at, reading, next))
			add_missing(l, at, next);
		at = srdma_position_after(&k->packet);
		reading = may_end(&k->packet);
	}
	/* Of what was sent behind the furthest, something did not come. */
	if (from->highest > b->pn && from->highest - b->pn > b->later)
		end = (struct srdma_position){ from->credit, 0 };
	if (srdma_position_before(at, end))
		add_missing(l, at, end);
}

void srdma_beyond_gaps(struct srdma_beyond *b,
		       const struct srdma_beyond_from *from,
		       struct srdma_beyond_gaps *out)
{
	struct list l = { .from = b->page };

	*out = (struct srdma_beyond_gaps){ 0 };
	add_all(b, from, &l);
	b->newest = !b->newest && l.count > SRDMA_MAX_GAPS;
	if (b->newest) {
		out->count = NEWEST;
		for (uint32_t i = 0; i < NEWEST; i++)
			out->gap[i] = l.newest[(l.count + i) % NEWEST];
		out->skips = 1;
		return;
	}
	if (l.before && !l.paged) { /* the last page was the last one */
		l = (struct list){ 0 };
		add_all(b, from, &l);
	}
	out->count = (uint8_t)l.paged;
	memcpy(out->gap, l.page, sizeof(l.page));
	out->skips = l.before > 0;
	b->page = l.next;
}
