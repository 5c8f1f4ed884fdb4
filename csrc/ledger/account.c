/* Accounts, and what is charged to them. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ledger/ledger_impl.h"

/* --- accounts -------------------------------------------------------------- */

/* FNV-1a. Chains are bounded by the number of accounts. */
static struct srdma_account **bucket(struct srdma_ledger *l, unsigned kind,
				     const char *name)
{
	uint32_t hash = 0x811c9dc5 ^ kind;

	for (; *name; name++)
		hash = (hash ^ (uint8_t)*name) * 0x01000193;
	return &l->bucket[(hash ^ hash >> 16) % SRDMA_LEDGER_BUCKETS];
}

static struct srdma_account *find(struct srdma_ledger *l, unsigned kind,
				  const char *name)
{
	struct srdma_account *a = *bucket(l, kind, name);

	while (a && (a->kind != kind || strcmp(a->name, name) != 0))
		a = a->hash_next;
	return a;
}

static void enter(struct srdma_ledger *l, struct srdma_account *a)
{
	struct srdma_account **b = bucket(l, a->kind, a->name);

	a->hash_next = *b;
	*b = a;
	a->serial = ++l->serial;
	a->before = l->last;
	*(l->last ? &l->last->after : &l->first) = a;
	l->last = a;
	l->accounts++;
}

static void leave(struct srdma_ledger *l, struct srdma_account *a)
{
	struct srdma_account **at = bucket(l, a->kind, a->name);

	while (*at != a)
		at = &(*at)->hash_next;
	*at = a->hash_next;
	*(a->before ? &a->before->after : &l->first) = a->after;
	*(a->after ? &a->after->before : &l->last) = a->before;
	if (l->found == a)
		l->found = a->before;
	l->accounts--;
}

static int add(struct srdma_ledger *l, unsigned kind, const char *name,
	       struct srdma_account **out)
{
	const size_t len = strlen(name);
	struct srdma_account *a;

	if (l->accounts == SRDMA_LEDGER_ACCOUNTS ||
	    len >= SRDMA_ACCOUNT_NAME_LEN)
		return -ENOSPC;
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->ledger = l;
	a->kind = (uint8_t)kind;
	memcpy(a->name, name, len);
	memset(a->own_limit, 0xff, sizeof(a->own_limit));
	enter(l, a);
	*out = a;
	return 0;
}

int srdma_account_open(struct srdma_ledger *l, enum srdma_account_kind kind,
		       const char *name, struct srdma_account *parent,
		       struct srdma_account **out)
{
	struct srdma_account *a = find(l, kind, name);
	int err = a ? 0 : add(l, kind, name, &a);

	if (err)
		return err;
	*out = a;
	if (a->users++)
		return 0;
	/* An account that only a quota keeps has no parent yet. */
	if (parent) {
		a->parent = parent;
		srdma_account_hold(parent);
	}
	srdma_quota_apply(a);
	return 0;
}

void srdma_account_hold(struct srdma_account *a)
{
	a->users++;
}

void srdma_account_close(struct srdma_account *a)
{
	struct srdma_account *parent;

	if (!a || --a->users)
		return;
	for (int r = 0; r < SRDMA_RESOURCES; r++)
		assert(!a->place[r].used);
	parent = a->parent;
	a->parent = NULL;
	memset(a->own_limit, 0xff, sizeof(a->own_limit));
	if (a->quota) {
		srdma_quota_apply(a);
	} else {
		srdma_quota_drop(a);
		leave(a->ledger, a);
		free(a);
	}
	srdma_account_close(parent);
}

enum srdma_account_kind srdma_account_kind(const struct srdma_account *a)
{
	return a->kind;
}

const char *srdma_account_name(const struct srdma_account *a)
{
	return a->name;
}

struct srdma_account *srdma_account_parent(const struct srdma_account *a)
{
	return a->parent;
}

uint64_t srdma_account_serial(const struct srdma_account *a)
{
	return a->serial;
}

struct srdma_account_counts *srdma_account_counts(struct srdma_account *a)
{
	return &a->counts;
}

void **srdma_account_objects(struct srdma_account *a)
{
	return &a->objects;
}

uint32_t srdma_account_idle(const struct srdma_account *a)
{
	return a->idle;
}

/* --- charges --------------------------------------------------------------- */

/* 1: n more do not exceed the limit, which may be lower than what is used. */
static int fits(const struct srdma_place *p, uint64_t n)
{
	return p->used <= p->limit && n <= p->limit - p->used;
}

const struct srdma_account *
srdma_account_limited_by(const struct srdma_account *a, enum srdma_resource r,
			 uint64_t n)
{
	while (a && fits(&a->place[r], n))
		a = a->parent;
	return a;
}

/* The part of n that the guarantee covers. */
static uint64_t covered(const struct srdma_place *p, uint64_t n)
{
	const uint64_t unused = srdma_ledger_unused(p);

	return n < unused ? n : unused;
}

/* The part of the reserve that n more may not touch: within its minimum, an
 * account is a newcomer itself. */
static uint64_t held(const struct srdma_place *p, const struct srdma_stock *s,
		     uint64_t n)
{
	return p->used <= p->minimum && n <= p->minimum - p->used ? 0
								  : s->spare;
}

static int has_reserve(const struct srdma_account *a, enum srdma_resource r,
		       uint64_t n)
{
	const struct srdma_place *p = &a->place[r];
	const struct srdma_stock *s = srdma_ledger_stock(a, r);
	const uint64_t rest = n - covered(p, n), left = srdma_ledger_reserve(s);

	return !rest || (rest <= left && left - rest >= held(p, s, n));
}

/* RFC 5042 R3-2, R6.4.1-1, R7.2-2, A6.4.1 */
int srdma_account_take(struct srdma_account *a, enum srdma_resource r,
		       uint64_t n)
{
	struct srdma_stock *s = srdma_ledger_stock(a, r);
	struct srdma_place *p = &a->place[r];

	assert(a->kind != SRDMA_ACCOUNT_GROUP);
	if (srdma_account_limited_by(a, r, n) || !has_reserve(a, r, n)) {
		p->refused++;
		if (a->parent)
			a->parent->place[r].refused++;
		return -EDQUOT;
	}
	s->unused -= covered(p, n);
	s->used += n;
	p->used += n;
	if (a->parent)
		a->parent->place[r].used += n;
	return 0;
}

void srdma_account_give(struct srdma_account *a, enum srdma_resource r,
			uint64_t n)
{
	struct srdma_stock *s = srdma_ledger_stock(a, r);
	struct srdma_place *p = &a->place[r];
	const uint64_t before = srdma_ledger_unused(p);

	assert(p->used >= n && s->used >= n);
	p->used -= n;
	s->used -= n;
	s->unused += srdma_ledger_unused(p) - before;
	if (a->parent)
		a->parent->place[r].used -= n;
	srdma_quota_top_up(s);
}

static uint64_t under_limits(const struct srdma_account *a,
			     enum srdma_resource r)
{
	uint64_t room = UINT64_MAX;

	for (; a; a = a->parent) {
		const struct srdma_place *p = &a->place[r];
		const uint64_t left =
			p->limit > p->used ? p->limit - p->used : 0;

		room = left < room ? left : room;
	}
	return room;
}

uint64_t srdma_account_room(const struct srdma_account *a,
			    enum srdma_resource r)
{
	const struct srdma_place *p = &a->place[r];
	const struct srdma_stock *s = srdma_ledger_stock(a, r);
	const uint64_t most = under_limits(a, r),
		       left = srdma_ledger_reserve(s);
	const uint64_t sure = srdma_ledger_unused(p);
	const uint64_t low = p->minimum > p->used ? p->minimum - p->used : 0;
	uint64_t room = low < sure + left ? low : sure + left;

	if (left > s->spare && sure + left - s->spare > room)
		room = sure + left - s->spare;
	return room < most ? room : most;
}

int srdma_account_is_limited(const struct srdma_account *a,
			     enum srdma_resource r, uint64_t n)
{
	return srdma_account_limited_by(a, r, n) != NULL;
}

int srdma_account_is_short(const struct srdma_account *a, enum srdma_resource r,
			   uint64_t n)
{
	return !srdma_account_limited_by(a, r, n) && !has_reserve(a, r, n);
}

int srdma_account_is_above(const struct srdma_account *a, enum srdma_resource r)
{
	return a->place[r].used > a->place[r].guaranteed;
}

uint64_t srdma_account_used(const struct srdma_account *a,
			    enum srdma_resource r)
{
	return a->place[r].used;
}

void srdma_account_usage(const struct srdma_account *a, enum srdma_resource r,
			 struct srdma_usage *out)
{
	const struct srdma_place *p = &a->place[r];

	*out = (struct srdma_usage){ p->used, p->guaranteed, p->limit,
				     p->refused };
}
