/* Quotas of names and of kinds (docs/local-interface.md 3.10). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ledger/ledger_impl.h"

/* Minima of an account without a quota (docs/local-interface.md 5). */
static const uint64_t base[SRDMA_SIDES][SRDMA_RESOURCES] = {
	[SRDMA_SIDE_LOCAL] = {
		[SRDMA_RES_CONNECTIONS] = 4,
		[SRDMA_RES_LEGS] = 4,
		[SRDMA_RES_QPS] = 8,
		[SRDMA_RES_REGIONS] = 32,
		[SRDMA_RES_BYTES] = UINT64_C(1) << 30,
		[SRDMA_RES_RECORDS] = 16384,
		[SRDMA_RES_ENTRIES] = 4096,
		[SRDMA_RES_CAPABILITIES] = 16,
	},
	[SRDMA_SIDE_REMOTE] = {
		[SRDMA_RES_QPS] = 8,
		[SRDMA_RES_READS] = 16,
		[SRDMA_RES_ADDRESSES] = 4,
		[SRDMA_RES_HOMES] = 4,
	},
};

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* So many newcomers get it, from the part of the capacity for them. */
static uint64_t base_minimum(const struct srdma_ledger *l, unsigned kind,
			     unsigned r)
{
	const enum srdma_side side = srdma_ledger_side(kind);

	if (!l->minima || kind == SRDMA_ACCOUNT_GROUP)
		return 0;
	return least(base[side][r], l->stock[side][r].capacity /
					    SRDMA_LEDGER_PART /
					    SRDMA_LEDGER_NEWCOMERS);
}

static uint64_t minimum_of_kind(const struct srdma_ledger *l, unsigned kind,
				unsigned r)
{
	const uint64_t given = l->kind[kind].of[r].minimum;

	return given == SRDMA_QUOTA_DEFAULT ? base_minimum(l, kind, r) : given;
}

void srdma_quota_hold_back(struct srdma_ledger *l)
{
	static const unsigned kinds[SRDMA_SIDES] = { SRDMA_ACCOUNT_PROCESS,
						     SRDMA_ACCOUNT_IDENTITY };

	for (unsigned side = 0; side < SRDMA_SIDES; side++) {
		for (unsigned r = 0; r < SRDMA_RESOURCES; r++) {
			struct srdma_stock *s = &l->stock[side][r];
			const uint64_t most = s->capacity / SRDMA_LEDGER_PART;
			const uint64_t each =
				minimum_of_kind(l, kinds[side], r);

			s->spare = each > most / SRDMA_LEDGER_NEWCOMERS
					   ? most
					   : each * SRDMA_LEDGER_NEWCOMERS;
		}
	}
}

/* --- guarantees ------------------------------------------------------------ */

void srdma_quota_init(struct srdma_stock *s)
{
	for (int i = 0; i < 2; i++)
		s->short_[i].end = &s->short_[i].first;
}

static void queue(struct srdma_places *q, struct srdma_place *p)
{
	p->next = NULL;
	p->at = q->end;
	*q->end = p;
	q->end = &p->next;
}

static void unqueue(struct srdma_places *q, struct srdma_place *p)
{
	*p->at = p->next;
	if (p->next)
		p->next->at = p->at;
	else
		q->end = p->at;
	p->at = NULL;
}

/* The part of a minimum that the capacity permits, and the pool for a pooled place.
 * The guarantee of the place itself is not in the sums of the stock now. */
static uint64_t permitted(const struct srdma_stock *s,
			  const struct srdma_place *p)
{
	const uint64_t left = srdma_ledger_reserve(s);
	uint64_t most =
		left > UINT64_MAX - p->used ? UINT64_MAX : p->used + left;

	if (p->pooled)
		most = least(most,
			     s->capacity / SRDMA_LEDGER_POOL_PART - s->pooled);
	return least(p->minimum, most);
}

/* Takes the guarantee of a place out of the sums of the stock. */
static void forget(struct srdma_stock *s, struct srdma_place *p)
{
	s->unused -= srdma_ledger_unused(p);
	if (p->pooled)
		s->pooled -= p->guaranteed;
	p->guaranteed = 0;
}

static void guarantee(struct srdma_stock *s, struct srdma_place *p)
{
	forget(s, p);
	p->guaranteed = permitted(s, p);
	s->unused += srdma_ledger_unused(p);
	if (p->pooled)
		s->pooled += p->guaranteed;
}

/* Gives a place another minimum. One that is short stays in its queue. */
static void change(struct srdma_stock *s, struct srdma_place *p,
		   uint64_t minimum, bool pooled)
{
	forget(s, p);
	if (p->at && (pooled != p->pooled || !minimum))
		unqueue(&s->short_[p->pooled], p);
	p->minimum = minimum;
	p->pooled = pooled;
	guarantee(s, p);
	if (!p->at && p->guaranteed < minimum)
		queue(&s->short_[pooled], p);
	srdma_quota_top_up(s);
}

void srdma_quota_top_up(struct srdma_stock *s)
{
	for (int i = 0; i < 2; i++) {
		struct srdma_place *p;

		while ((p = s->short_[i].first)) {
			guarantee(s, p);
			if (p->guaranteed < p->minimum)
				break;
			unqueue(&s->short_[i], p);
		}
	}
}

void srdma_quota_drop(struct srdma_account *a)
{
	for (unsigned r = 0; r < SRDMA_RESOURCES; r++)
		change(srdma_ledger_stock(a, r), &a->place[r], 0, false);
}

/* --- what quotas and kinds say --------------------------------------------- */

/* The given one of two values; the first has precedence. */
static uint64_t given(uint64_t first, uint64_t second)
{
	return first == SRDMA_QUOTA_DEFAULT ? second : first;
}

static void apply_one(struct srdma_account *a, unsigned r)
{
	const struct srdma_ledger *l = a->ledger;
	const struct srdma_quota *kind = &l->kind[a->kind];
	/* An account that is not in use has no minimum but that of its name. */
	uint64_t minimum = a->users ? minimum_of_kind(l, a->kind, r) : 0;
	uint64_t limit = kind->of[r].limit;
	bool pooled = true;

	if (a->quota) {
		pooled = a->quota->of[r].minimum == SRDMA_QUOTA_DEFAULT;
		minimum = given(a->quota->of[r].minimum, minimum);
		limit = given(a->quota->of[r].limit, limit);
	}
	limit = given(a->own_limit[r], limit);
	a->place[r].limit = limit;
	change(srdma_ledger_stock(a, r), &a->place[r], least(minimum, limit),
	       pooled);
}

void srdma_quota_apply(struct srdma_account *a)
{
	a->idle = a->quota ? a->quota->idle : a->ledger->kind[a->kind].idle;
	for (unsigned r = 0; r < SRDMA_RESOURCES; r++)
		apply_one(a, r);
}

static int is_legal(unsigned kind, const struct srdma_quota *q)
{
	for (int r = 0; r < SRDMA_RESOURCES; r++) {
		const uint64_t minimum = q->of[r].minimum;

		if (minimum == SRDMA_QUOTA_DEFAULT)
			continue;
		if (kind == SRDMA_ACCOUNT_GROUP ? minimum != 0
						: minimum > q->of[r].limit)
			return 0;
	}
	return kind > 0 && kind < SRDMA_ACCOUNT_KINDS;
}

static void set_kind(struct srdma_ledger *l, unsigned kind,
		     const struct srdma_quota *quota)
{
	l->kind[kind] = *quota;
	srdma_quota_hold_back(l);
	for (struct srdma_account *a = l->first; a; a = a->after)
		if (a->kind == kind)
			srdma_quota_apply(a);
}

/* Keeps the account from now on, as one of its users. */
static int add_quota(struct srdma_ledger *l, struct srdma_account *a)
{
	if (l->quotas == SRDMA_LEDGER_QUOTAS)
		return -ENOSPC;
	a->quota = malloc(sizeof(*a->quota));
	if (!a->quota)
		return -ENOMEM;
	l->quotas++;
	return 0;
}

/* The quota comes after the limits of RESTRICT. */
static void replace_limits(struct srdma_account *a, const struct srdma_quota *q)
{
	for (int r = 0; r < SRDMA_RESOURCES; r++)
		if (q->of[r].limit != SRDMA_QUOTA_DEFAULT)
			a->own_limit[r] = SRDMA_QUOTA_DEFAULT;
}

/* RFC 5042 R3-4 */
int srdma_quota_set(struct srdma_ledger *l, enum srdma_account_kind kind,
		    const char *name, const struct srdma_quota *quota,
		    uint32_t revision)
{
	struct srdma_account *a;
	int err;

	if (!is_legal(kind, quota))
		return -EINVAL;
	if (!*name) {
		set_kind(l, kind, quota);
		return 0;
	}
	err = srdma_account_open(l, kind, name, NULL, &a);
	if (err)
		return err;
	err = a->quota ? 0 : add_quota(l, a);
	if (!err) {
		*a->quota = *quota;
		a->revision = revision;
		replace_limits(a, quota);
		srdma_quota_apply(a);
	}
	srdma_account_close(a);
	return err;
}

void srdma_quota_prune(struct srdma_ledger *l, uint32_t revision)
{
	struct srdma_account *a, *next;

	for (a = l->first; a; a = next) {
		next = a->after;
		if (!a->quota || a->revision == revision)
			continue;
		free(a->quota);
		a->quota = NULL;
		l->quotas--;
		srdma_quota_apply(a);
		srdma_account_hold(a);
		srdma_account_close(a);
	}
}

void srdma_account_limit(struct srdma_account *a,
			 const struct srdma_quota *quota)
{
	for (int r = 0; r < SRDMA_RESOURCES; r++)
		a->own_limit[r] = quota->of[r].limit;
	srdma_quota_apply(a);
}
