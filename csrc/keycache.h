/*
 * Keyed contexts of flows whose keys are derived when a packet needs them
 * (docs/protocol.md 3.4): those used last, bounded. One thread at a time.
 */
#ifndef SRDMA_KEYCACHE_H
#define SRDMA_KEYCACHE_H

struct srdma_keycache;

/* contexts: how many are kept, 0 for none: each packet derives its key. 0,
 * -ENOMEM. */
int srdma_keycache_create(struct srdma_keycache **out, unsigned contexts);

/* After all its sessions. Wipes; NULL is allowed. */
void srdma_keycache_destroy(struct srdma_keycache *c);

#endif
