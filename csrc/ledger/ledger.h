/*
 * The ledger of a worker process (docs/local-interface.md 3.10): accounts of
 * local programs and of remote identities, and what each of them holds of every
 * limited resource. RFC 5042 R6.4.1-1: every scarce resource is taken here
 * first, and given back here when it ends.
 *
 * A resource has two sides, local and remote, each with a capacity. An account
 * has of each resource a limit and a guaranteed minimum. The part of the
 * capacity that no account uses, and that no minimum holds back, is the shared
 * reserve. At all times, for each side and resource:
 *
 *     used of all accounts + guarantees not used yet <= capacity
 *
 * so that a take within the guarantee does not fail for lack of capacity.
 *
 * take and give are O(1) and do not allocate. Calls that open accounts, set
 * quotas or iterate belong to the control path.
 */
#ifndef SRDMA_LEDGER_LEDGER_H
#define SRDMA_LEDGER_LEDGER_H

#include <stddef.h>
#include <stdint.h>

#include "ledger/resource.h"

enum srdma_account_kind {
	SRDMA_ACCOUNT_PROGRAM = 1,  /* local: account text of RESTRICT (3.9) */
	SRDMA_ACCOUNT_PROCESS = 2,  /* local: process of an unrestricted
				      connection */
	SRDMA_ACCOUNT_GROUP = 3,    /* local: a user or a host. It has limits,
				      and no minima */
	SRDMA_ACCOUNT_IDENTITY = 4, /* remote: URI of KEYS */
	SRDMA_ACCOUNT_KINDS
};

enum {
	SRDMA_ACCOUNT_NAME_LEN = 256, /* with the terminating zero */
	/* accounts of a ledger: those in use, and those that quotas name */
	SRDMA_LEDGER_ACCOUNTS = 16384,
	SRDMA_LEDGER_QUOTAS = 1024, /* quotas with a name */
	/* Accounts of each side, yet to come, for whose minima room is held
	 * back: at most the eighth part of a capacity. */
	SRDMA_LEDGER_NEWCOMERS = 16,
	SRDMA_LEDGER_PART = 8,
	/* The minima that are not those of a quota with a name are guaranteed
	 * of this part of a capacity, together. */
	SRDMA_LEDGER_POOL_PART = 2,
};

/* A minimum or limit that is not given: that of the kind, else none. */
#define SRDMA_QUOTA_DEFAULT UINT64_MAX

struct srdma_quota {
	struct {
		uint64_t minimum, limit;
	} of[SRDMA_RESOURCES];
	uint32_t idle; /* s after which a QP may be reclaimed; 0: never */
};

struct srdma_ledger;
struct srdma_account;

struct srdma_ledger_params {
	uint64_t capacity[SRDMA_SIDES][SRDMA_RESOURCES];
	int minima; /* 1: accounts without a quota have the minima of
		       local-interface.md 5; 0: they have none */
};

/* 0 or -ENOMEM. */
int srdma_ledger_create(struct srdma_ledger **out,
			const struct srdma_ledger_params *params);
/* Frees also the accounts that are open. NULL is allowed. */
void srdma_ledger_destroy(struct srdma_ledger *l);

/* --- accounts -------------------------------------------------------------- */

/*
 * The account of this kind and name, which exists until as many calls of
 * srdma_account_close() as of this one and of srdma_account_hold(). A new one
 * has this parent, of kind GROUP, or NULL; it holds the parent. Returns 0,
 * -ENOMEM, or -ENOSPC: the ledger has SRDMA_LEDGER_ACCOUNTS.
 */
int srdma_account_open(struct srdma_ledger *l, enum srdma_account_kind kind,
		       const char *name, struct srdma_account *parent,
		       struct srdma_account **out);
void srdma_account_hold(struct srdma_account *a);
/* All that the account took must have been given back before the last one. NULL
 * is allowed. */
void srdma_account_close(struct srdma_account *a);

enum srdma_account_kind srdma_account_kind(const struct srdma_account *a);
const char *srdma_account_name(const struct srdma_account *a);
/* NULL: none. */
struct srdma_account *srdma_account_parent(const struct srdma_account *a);
/* Number of the account, from 1 in the order of their creation. */
uint64_t srdma_account_serial(const struct srdma_account *a);
/* To count in. */
struct srdma_account_counts *srdma_account_counts(struct srdma_account *a);
/* A pointer for the owner of what is charged; NULL at first. */
void **srdma_account_objects(struct srdma_account *a);

/* --- charges --------------------------------------------------------------- */

/*
 * Charges n of a resource to an account and to its parent. 0, or -EDQUOT, and
 * nothing changes but the number of refusals: the limit of one of both, or the
 * shared reserve.
 */
int srdma_account_take(struct srdma_account *a, enum srdma_resource r,
		       uint64_t n);
void srdma_account_give(struct srdma_account *a, enum srdma_resource r,
			uint64_t n);

/* Most that a take could charge now. */
uint64_t srdma_account_room(const struct srdma_account *a,
			    enum srdma_resource r);
/* 1: the limit of the account or of its parent refuses a take of n. */
int srdma_account_is_limited(const struct srdma_account *a,
			     enum srdma_resource r, uint64_t n);
/* 1: a take of n fails for lack of reserve; 0: it succeeds, or a limit refuses
 * it. */
int srdma_account_is_short(const struct srdma_account *a, enum srdma_resource r,
			   uint64_t n);
/* 1: the account has more than its guarantee. */
int srdma_account_is_above(const struct srdma_account *a,
			   enum srdma_resource r);
/* s of the quota's idle. */
uint32_t srdma_account_idle(const struct srdma_account *a);

/* Says why a take of n was refused, right after it: account, resource, used and
 * limit, and what to do. */
void srdma_account_why(const struct srdma_account *a, enum srdma_resource r,
		       uint64_t n, char *out, size_t len);

/* Use of an account of one resource. */
struct srdma_usage {
	uint64_t used;
	uint64_t minimum; /* that is guaranteed now */
	uint64_t limit;	  /* UINT64_MAX: none */
	uint64_t refused; /* takes, since the account was opened */
};
void srdma_account_usage(const struct srdma_account *a, enum srdma_resource r,
			 struct srdma_usage *out);
uint64_t srdma_account_used(const struct srdma_account *a,
			    enum srdma_resource r);
/* Used by all accounts of a side. */
uint64_t srdma_ledger_used(const struct srdma_ledger *l, enum srdma_side side,
			   enum srdma_resource r);

/* The account with the lowest serial above `after`; NULL: there is none. */
struct srdma_account *srdma_ledger_next(struct srdma_ledger *l, uint64_t after);

/* --- quotas ---------------------------------------------------------------- */

/*
 * Sets the quota of a name, which keeps it also while its account is not in use,
 * or that of a kind, name "", which new accounts and accounts without a quota
 * of their own have. revision: see srdma_quota_prune(). A limit below what is
 * used ends nothing. A minimum is guaranteed as far as there is capacity, and the
 * rest as soon as there is. 0, -EINVAL: a minimum for a GROUP, or one above
 * its limit; -ENOSPC: SRDMA_LEDGER_QUOTAS, or SRDMA_LEDGER_ACCOUNTS; -ENOMEM.
 */
int srdma_quota_set(struct srdma_ledger *l, enum srdma_account_kind kind,
		    const char *name, const struct srdma_quota *quota,
		    uint32_t revision);
/* Drops the quotas of names with another revision. */
void srdma_quota_prune(struct srdma_ledger *l, uint32_t revision);
/* Sets limits of one account (RESTRICT): those of `quota` that are given. They
 * hold until the account ends, or a quota with its name has such a limit. */
void srdma_account_limit(struct srdma_account *a,
			 const struct srdma_quota *quota);

#endif
