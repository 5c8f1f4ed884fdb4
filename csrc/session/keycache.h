/*
 * Keyed contexts of flows whose keys are derived when a packet needs them
 * (docs/protocol.md 3.4): those used last, bounded. One thread at a time.
 */
#ifndef SRDMA_KEYCACHE_H
#define SRDMA_KEYCACHE_H

#include <stddef.h>
#include <stdint.h>

struct srdma_keycache;
struct srdma_provider;

/* contexts: how many are kept, 0 for none: each packet derives its key.
 * provider: what derives, NULL for OpenSSL; it outlives the cache. 0, -ENOMEM,
 * -EIO. */
int srdma_keycache_create(struct srdma_keycache **out, unsigned contexts,
			  struct srdma_provider *provider);

/* After all its sessions. Wipes; NULL is allowed. */
void srdma_keycache_destroy(struct srdma_keycache *c);

struct srdma_keycache_counts {
	uint64_t hits;	 /* packets whose context was there */
	uint64_t misses; /* packets whose key had to be derived */
	uint32_t kept;	 /* contexts that are there now */
};
void srdma_keycache_count(const struct srdma_keycache *c,
			  struct srdma_keycache_counts *counts);

/* --- for flows (flow.c) only ------------------------------------------- */

struct srdma_cmac;
struct srdma_suite;
struct srdma_suite_ctx;
struct srdma_suite_verbs;

enum { SRDMA_NONCE_LEN = 12 };

/* A traffic key in use: key | iv of 3.2. */
struct srdma_keyed {
	struct srdma_suite_ctx *ctx;
	uint8_t iv[SRDMA_NONCE_LEN];
};

void srdma_keyed_wipe(struct srdma_keyed *k,
		      const struct srdma_suite_verbs *verbs);

/* What the cache keeps of a flow; the flow's link points to it and is NULL
 * where it keeps nothing. */
struct srdma_keyslot {
	struct srdma_keyslot *newer, *older;
	struct srdma_keyslot **link;	       /* NULL: the slot is free */
	const struct srdma_suite *suite;       /* of keyed.ctx */
	const struct srdma_suite_verbs *verbs; /* likewise */
	struct srdma_keyed keyed;
};

/*
 * For a packet of the flow that *link belongs to. Returns 1: *link is its
 * slot, which is now the newest. 0: *link is a slot that has no key yet, taken
 * from the flow that used its own least recently if all were in use: fill
 * (*link)->keyed, or drop it. Its ctx may be there, of the suite and without a
 * key. link stays where it is until then.
 */
int srdma_keycache_take(struct srdma_keycache *c, struct srdma_keyslot **link,
			const struct srdma_suite *suite,
			const struct srdma_suite_verbs *verbs);

/* The packet is done: a cache that keeps nothing wipes the key. */
void srdma_keycache_release(struct srdma_keycache *c,
			    struct srdma_keyslot **link);

/* Wipe what the cache keeps of a flow; nothing if *link is NULL. */
void srdma_keycache_drop(struct srdma_keycache *c, struct srdma_keyslot **link);

/* The slot, if there is one, belongs to another link of the flow from now on:
 * *to, which had none. */
void srdma_keycache_move(struct srdma_keyslot **to,
			 struct srdma_keyslot **from);

/* A context to derive with, for parents of 16 or 32 bytes. */
struct srdma_cmac *srdma_keycache_prf(struct srdma_keycache *c, size_t key_len);

#endif
