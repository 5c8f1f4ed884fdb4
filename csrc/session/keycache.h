/*
 * LRU cache of the keyed contexts of flows whose traffic keys are derived on
 * demand (docs/protocol.md 3.4). One thread at a time.
 */
#ifndef SRDMA_KEYCACHE_H
#define SRDMA_KEYCACHE_H

#include <stddef.h>
#include <stdint.h>

struct srdma_keycache;
struct srdma_provider;

/* contexts: capacity; 0: nothing is kept, and each packet derives its key.
 * provider (NULL: OpenSSL) must outlive the cache. 0, -ENOMEM, -EIO. */
int srdma_keycache_create(struct srdma_keycache **out, unsigned contexts,
			  struct srdma_provider *provider);

/* Called after all its sessions are destroyed. Wipes keys. NULL is allowed. */
void srdma_keycache_destroy(struct srdma_keycache *c);

struct srdma_keycache_counts {
	uint64_t hits;	 /* packets that found their context */
	uint64_t misses; /* packets that derived their key */
	uint32_t kept;	 /* contexts in use now */
};
void srdma_keycache_count(const struct srdma_keycache *c,
			  struct srdma_keycache_counts *counts);

/* --- for flows (epoch.c) only ------------------------------------------ */

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

/* Destroys the context and wipes the IV. */
void srdma_keyed_wipe(struct srdma_keyed *k,
		      const struct srdma_suite_verbs *verbs);

/* Cache entry of a flow. The flow's link points to it; the link is NULL if the
 * flow has no entry. */
struct srdma_keyslot {
	struct srdma_keyslot *newer, *older;
	struct srdma_keyslot **link;	       /* NULL: the entry is free */
	const struct srdma_suite *suite;       /* of keyed.ctx */
	const struct srdma_suite_verbs *verbs; /* of keyed.ctx */
	struct srdma_keyed keyed;
};

/*
 * Finds or takes the entry of the flow that owns *link.
 * Returns 1 if the flow had an entry, with its key. Returns 0 if *link is now
 * an entry without a key: a free one, or the least recently used one, whose
 * flow lost it. The caller then fills (*link)->keyed or drops the entry. Its
 * ctx may be an unkeyed context of the same suite, to be keyed again. The entry
 * becomes the most recently used one. The link's address must not change while
 * the flow has the entry (see srdma_keycache_move()).
 */
int srdma_keycache_take(struct srdma_keycache *c, struct srdma_keyslot **link,
			const struct srdma_suite *suite,
			const struct srdma_suite_verbs *verbs);

/* Called after each packet. A cache of capacity 0 wipes the key. */
void srdma_keycache_release(struct srdma_keycache *c,
			    struct srdma_keyslot **link);

/* Wipes and frees the entry of a flow. *link may be NULL. */
void srdma_keycache_drop(struct srdma_keycache *c, struct srdma_keyslot **link);

/* Moves the entry, if there is one, from link *from to link *to of the same
 * flow; *to must be NULL before. */
void srdma_keycache_move(struct srdma_keyslot **to,
			 struct srdma_keyslot **from);

/* The cache's CMAC context for derivations from parents of 16 or 32 bytes. */
struct srdma_cmac *srdma_keycache_prf(struct srdma_keycache *c, size_t key_len);

#endif
