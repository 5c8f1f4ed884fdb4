/* State of the ledger, shared by the files of this folder only. */
#ifndef SRDMA_LEDGER_LEDGER_IMPL_H
#define SRDMA_LEDGER_LEDGER_IMPL_H

#include "ledger/ledger.h"

enum { SRDMA_LEDGER_BUCKETS = 4096 };

/* The share of an account in one resource. */
struct srdma_place {
	uint64_t used;
	uint64_t minimum;    /* of its quota */
	uint64_t guaranteed; /* at most minimum */
	uint64_t limit;	     /* UINT64_MAX: none */
	uint64_t refused;
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

/* One side of a resource. */
struct srdma_stock {
	uint64_t capacity;
	uint64_t used;
	uint64_t unused; /* sum of the guarantees that are not used */
	uint64_t spare;	 /* held back for newcomers */
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

/* account.c: the account, or its parent, whose limit n more exceed; NULL:
 * neither. */
const struct srdma_account *
srdma_account_limited_by(const struct srdma_account *a, enum srdma_resource r,
			 uint64_t n);

/* --- quota.c --- */
/* Gives an account the minima and limits that quotas and kinds say now. */
void srdma_quota_apply(struct srdma_account *a);
/* Computes what is held back for newcomers. */
void srdma_quota_hold_back(struct srdma_ledger *l);

#endif
