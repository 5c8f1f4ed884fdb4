#include "responder/reorder.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "port/port.h"

int srdma_reorder_pool_create(struct srdma_reorder_pool *pool, uint32_t n)
{
	pool->free = NULL;
	pool->left = n;
	LIST_INIT(&pool->groups);
	pool->all = calloc(n ? n : 1, sizeof(*pool->all));
	if (!pool->all)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		pool->all[i].next = pool->free;
		pool->free = &pool->all[i];
	}
	return 0;
}

void srdma_reorder_pool_destroy(struct srdma_reorder_pool *pool)
{
	free(pool->all);
	pool->all = pool->free = NULL;
}

/* 1: a read chunk that may be the last one of its READ. */
static int may_end(const struct srdma_packet *p)
{
	return (p->traits & SRDMA_T_READ) && p->dma_len;
}

/* 1: no byte is missing between at and next (5). reading: at may be the end of
 * its READ. */
static int follows(struct srdma_position at, int reading,
		   struct srdma_position next)
{
	return srdma_position_same(at, next) ||
	       (reading && next.id == at.id + 1 && !next.offset);
}

void srdma_reorder_count(struct srdma_reorder *b, uint64_t pn)
{
	b->later += pn > b->pn;
}

void srdma_reorder_note(struct srdma_reorder *b, const struct srdma_packet *p)
{
	const struct srdma_position end = srdma_position_after(p);

	if (!srdma_position_before(b->furthest, end))
		return;
	b->furthest = end;
	b->pn = p->pn;
	b->later = 0;
}

/* The last entry that does not start after p; NULL: p is the first. */
static struct srdma_reorder_entry *find(const struct srdma_reorder *b,
					const struct srdma_packet *p)
{
	const struct srdma_position at = srdma_position_of(p);
	struct srdma_reorder_entry *k, *prev = NULL;

	if (b->tail &&
	    !srdma_position_before(at, srdma_position_of(&b->tail->packet)))
		return b->tail;
	for (k = b->head; k; k = k->next) {
		if (srdma_position_before(at, srdma_position_of(&k->packet)))
			break;
		prev = k;
	}
	return prev;
}

/* 1: p shares bytes with its neighbours. */
static int overlaps(const struct srdma_packet *p,
		    const struct srdma_reorder_entry *prev,
		    const struct srdma_reorder_entry *next)
{
	if (prev && srdma_position_before(srdma_position_of(p),
					  srdma_position_after(&prev->packet)))
		return 1;
	return next && srdma_position_before(srdma_position_of(&next->packet),
					     srdma_position_after(p));
}

static void insert(struct srdma_reorder *b, struct srdma_reorder_entry *prev,
		   struct srdma_reorder_entry *k)
{
	struct srdma_reorder_entry **at = prev ? &prev->next : &b->head;

	k->prev = prev;
	k->next = *at;
	*at = k;
	*(k->next ? &k->next->prev : &b->tail) = k;
	srdma_share_take(&b->pool->groups, &b->share);
}

static void release(struct srdma_reorder *b, struct srdma_reorder_entry *k)
{
	*(k->prev ? &k->prev->next : &b->head) = k->next;
	*(k->next ? &k->next->prev : &b->tail) = k->prev;
	if (k->buf)
		k->buf->port->ops->buf_put(k->buf);
	k->next = b->pool->free;
	b->pool->free = k;
	b->pool->left++;
	srdma_share_give(&b->share);
	srdma_account_give(b->account, SRDMA_RES_KEPT, 1);
}

static struct srdma_reorder *of_share(struct srdma_share *share)
{
	return (struct srdma_reorder *)(void *)((char *)share -
						offsetof(struct srdma_reorder,
							 share));
}

/* 1: an entry is free, and no quota holds it back for others. */
static int has_entry(const struct srdma_reorder *b)
{
	return b->pool->left &&
	       !srdma_account_is_short(b->account, SRDMA_RES_KEPT, 1);
}

/* 1: an entry is free, and a buffer where `bufs` is 0. */
static int make_room(struct srdma_reorder *b, int bufs)
{
	while (!has_entry(b) || !bufs) {
		struct srdma_share *larger =
			srdma_share_yielding(&b->pool->groups, &b->share);
		struct srdma_reorder_entry *last;

		if (!larger ||
		    !srdma_account_is_above(of_share(larger)->account,
					    SRDMA_RES_KEPT))
			return 0;
		last = of_share(larger)->tail;
		if (has_entry(b) && !last->buf)
			return 0; /* its end would free no buffer */
		bufs |= last->buf != NULL;
		release(of_share(larger), last);
	}
	return 1;
}

/* An atomic needs a buffer for the original value. */
static int needs_buf(const struct srdma_packet *p)
{
	return p->payload_len || (p->traits & SRDMA_T_ATOMIC);
}

/* 1: an entry is charged, with a buffer if the packet needs one. No holder gives
 * way to an identity at its limit. */
static int take_entry(struct srdma_reorder *b, int bufs,
		      const struct srdma_packet *p)
{
	if (!srdma_account_is_limited(b->account, SRDMA_RES_KEPT, 1) &&
	    !make_room(b, bufs || !needs_buf(p)))
		return 0;
	return !srdma_account_take(b->account, SRDMA_RES_KEPT, 1);
}

static int is_same(const struct srdma_packet *p,
		   const struct srdma_reorder_entry *k)
{
	return k &&
	       srdma_position_same(srdma_position_of(p),
				   srdma_position_of(&k->packet)) &&
	       srdma_position_same(srdma_position_after(p),
				   srdma_position_after(&k->packet));
}

int srdma_reorder_keep(struct srdma_reorder *b, const struct srdma_packet *p,
		       struct srdma_buf **buf, int bufs,
		       struct srdma_reorder_entry **out)
{
	struct srdma_reorder_pool *pool = b->pool;
	struct srdma_reorder_entry *prev = find(b, p);
	struct srdma_reorder_entry *k;

	if (overlaps(p, prev, prev ? prev->next : b->head))
		return is_same(p, prev) ? -EALREADY : -EINVAL;
	if (b->share.count == SRDMA_REORDER_MAX || !take_entry(b, bufs, p))
		return -ENOSPC;
	k = pool->free;
	pool->free = k->next;
	pool->left--;
	k->packet = *p;
	k->claim_len = 0;
	k->buf = NULL;
	if (needs_buf(p)) {
		k->buf = *buf;
		*buf = NULL;
	}
	insert(b, prev, k);
	*out = k;
	return 0;
}

void srdma_reorder_pop(struct srdma_reorder *b)
{
	release(b, b->head);
}

void srdma_reorder_drop(struct srdma_reorder *b)
{
	while (b->head)
		srdma_reorder_pop(b);
}

/* --- gaps --------------------------------------------------------------- */

/* One fewer than fit: a full list would mean that more follow (2.4). */
enum { NEWEST = SRDMA_MAX_GAPS - 1 };

struct list {
	struct srdma_gap newest[NEWEST]; /* a ring */
	uint32_t count;			 /* of all gaps */
	struct srdma_gap page[SRDMA_MAX_GAPS];
	uint32_t before, paged;		  /* gaps before the page, and on it */
	struct srdma_position from, next; /* starts of this and the next page */
};

static void add(struct list *l, struct srdma_position at, uint32_t extent)
{
	const struct srdma_gap gap = { (uint32_t)at.id, (uint32_t)at.offset,
				       extent };

	l->newest[l->count++ % NEWEST] = gap;
	if (srdma_position_before(at, l->from))
		l->before++;
	else if (l->paged < SRDMA_MAX_GAPS)
		l->page[l->paged++] = gap;
	else if (!l->next.id && !l->next.offset)
		l->next = at;
}

/* Adds what is missing from at to next: whole ids, then bytes of the last id. */
static void add_missing(struct list *l, struct srdma_position at,
			struct srdma_position next)
{
	if (at.id != next.id) {
		add(l, at, SRDMA_GAP_IDS + (uint32_t)(next.id - at.id));
		at = (struct srdma_position){ next.id, 0 };
	}
	if (at.offset != next.offset)
		add(l, at, (uint32_t)(next.offset - at.offset));
}

/* 1: some packets that were sent after the furthest one did not arrive. */
static int misses_later(const struct srdma_reorder *b,
			const struct srdma_reorder_from *from)
{
	return from->highest > b->pn && from->highest - b->pn > b->later;
}

static void add_all(const struct srdma_reorder *b,
		    const struct srdma_reorder_from *from, struct list *l)
{
	struct srdma_position at = from->at, end = b->furthest;
	int reading = from->reading;

	for (const struct srdma_reorder_entry *k = b->head; k; k = k->next) {
		const struct srdma_position next =
			srdma_position_of(&k->packet);

		if (!follows(at, reading, next))
			add_missing(l, at, next);
		at = srdma_position_after(&k->packet);
		reading = may_end(&k->packet);
	}
	if (misses_later(b, from))
		end = (struct srdma_position){ from->credit, 0 };
	if (srdma_position_before(at, end))
		add_missing(l, at, end);
}

static int misses_nothing(const struct srdma_reorder *b,
			  const struct srdma_reorder_from *from)
{
	return !b->head && !srdma_position_before(from->at, b->furthest) &&
	       !misses_later(b, from);
}

void srdma_reorder_gaps(struct srdma_reorder *b,
			const struct srdma_reorder_from *from,
			struct srdma_reorder_gaps *out)
{
	struct list l;

	*out = (struct srdma_reorder_gaps){ 0 };
	if (misses_nothing(b, from)) {
		b->newest = 0;
		b->page = (struct srdma_position){ 0 };
		return;
	}
	l = (struct list){ .from = b->page };
	add_all(b, from, &l);
	b->newest = !b->newest && l.count > SRDMA_MAX_GAPS;
	if (b->newest) {
		out->count = NEWEST;
		for (uint32_t i = 0; i < NEWEST; i++)
			out->gap[i] = l.newest[(l.count + i) % NEWEST];
		out->skips = 1;
		return;
	}
	if (l.before &&
	    !l.paged) { /* no gap after the last page: start again */
		l = (struct list){ 0 };
		add_all(b, from, &l);
	}
	out->count = (uint8_t)l.paged;
	memcpy(out->gap, l.page, sizeof(l.page));
	out->skips = l.before > 0;
	b->page = l.next;
}
