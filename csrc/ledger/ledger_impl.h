/* State of the ledger, shared by the files of this folder only. */
#ifndef SRDMA_LEDGER_LEDGER_IMPL_H
#define SRDMA_LEDGER_LEDGER_IMPL_H

#include <stdbool.h>

#include "ledger/ledger.h"

enum { SRDMA_LEDGER_BUCKETS = 4096 };

/* The share of an account in one resource. */
struct srdma_place {
	uint64_t used;
	uint64_t minimum;    /* of its quota */
	uint64_t guaranteed; /* at most minimum */
	uint64_t limit;	     /* UINT64_MAX: none */
	uint64_t refused;
	bool pooled; /* the minimum is not that of the account's name: the
			guarantee comes out of the pool of the stock */
	/* In a queue of the stock while guaranteed < minimum; at: the pointer
	 * to this place; NULL: in none. */
	struct srdma_place *next, **at;
};

struct srdma_account {
	struct srdma_ledger *ledger;
	struct srdma_account *parent;	 /* NULL: none */
	struct srdma_account *hash_next; /* in the bucket */
	struct srdma_account *before, *after;
	uint64_t serial;
	uint32_t users; /* opens and holds */
	uint8_t kind;	/* enum srdma_account_kind */
	uint32_t idle;
	struct srdma_quota *quota;	     /* of its name; NULL: none */
	uint32_t revision;		     /* of that quota */
	uint64_t own_limit[SRDMA_RESOURCES]; /* srdma_account_limit() */
	struct srdma_place place[SRDMA_RESOURCES];
	struct srdma_account_counts counts;
	void *objects; /* srdma_account_objects() */
	char name[SRDMA_ACCOUNT_NAME_LEN];
};

/* Places whose minima are not guaranteed in full, in the order in which they
 * are to be. */
struct srdma_places {
	struct srdma_place *first, **end;
};

/* One side of a resource. */
struct srdma_stock {
	uint64_t capacity;
	uint64_t used;
	uint64_t unused; /* sum of the guarantees that are not used */
	uint64_t spare;	 /* held back for newcomers */
	uint64_t pooled; /* sum of the guarantees of pooled places */
	struct srdma_places short_[2]; /* not pooled, pooled */
};

struct srdma_ledger {
	struct srdma_account *bucket[SRDMA_LEDGER_BUCKETS];
	struct srdma_account *first, *last;
	/* The account that srdma_ledger_next() returned last, or one before
	 * it; NULL: none. */
	struct srdma_account *found;
	uint64_t serial;
	uint32_t accounts, quotas;
	int minima;
	struct srdma_quota kind[SRDMA_ACCOUNT_KINDS];
	struct srdma_stock stock[SRDMA_SIDES][SRDMA_RESOURCES];
};

static inline enum srdma_side srdma_ledger_side(unsigned kind)
{
	return kind == SRDMA_ACCOUNT_IDENTITY ? SRDMA_SIDE_REMOTE
					      : SRDMA_SIDE_LOCAL;
}

static inline struct srdma_stock *
srdma_ledger_stock(const struct srdma_account *a, enum srdma_resource r)
{
	return &a->ledger->stock[srdma_ledger_side(a->kind)][r];
}

/* The part of the guarantee that is not used. */
static inline uint64_t srdma_ledger_unused(const struct srdma_place *p)
{
	return p->guaranteed > p->used ? p->guaranteed - p->used : 0;
}

/* The part of the capacity that is neither used nor guaranteed. */
static inline uint64_t srdma_ledger_reserve(const struct srdma_stock *s)
{
	return s->capacity - s->used - s->unused;
}

/* account.c: the account, or its parent, whose limit n more exceed; NULL:
 * neither. */
const struct srdma_account *
srdma_account_limited_by(const struct srdma_account *a, enum srdma_resource r,
			 uint64_t n);

/* --- quota.c --- */
void srdma_quota_init(struct srdma_stock *s);
/* Guarantees of minima what there is room for now. Constant time, and that of
 * each minimum that becomes complete. */
void srdma_quota_top_up(struct srdma_stock *s);
/* Ends the guarantees of an account that ends. */
void srdma_quota_drop(struct srdma_account *a);
/* Gives an account the minima and limits that quotas and kinds say now. */
void srdma_quota_apply(struct srdma_account *a);
/* Computes what is held back for newcomers. */
void srdma_quota_hold_back(struct srdma_ledger *l);

#endif
