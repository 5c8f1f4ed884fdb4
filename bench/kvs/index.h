/*
 * An in-memory map of keys to values: the index of MICA (NSDI 2014) in its
 * lossless form. A bucket is one cache line: seven entries, each a 16-bit tag
 * and an item number, and the number of the next bucket. An item is one cache
 * line too, so a lookup causes two cache misses.
 *
 * A full bucket is continued in a spare one. There are enough spare buckets for
 * every distribution of keys. A PUT of a new key fails if all items are in use:
 * nothing is evicted. Keys are hashed with a secret seed, so that a client that
 * does not know it cannot easily choose keys that share a bucket; the hash is
 * not cryptographic.
 *
 * Used by one thread. Nothing is allocated after create.
 */
#ifndef KVS_INDEX_H
#define KVS_INDEX_H

#include <stdint.h>

#include "protocol.h"

struct kvs_index;

enum kvs_index_limits {
	KVS_BUCKET_ENTRIES = 7,
	KVS_MAX_ITEMS = 1 << 26,
};

/*
 * Create an index for up to `items` keys. buckets: a power of two, or 0 for
 * about one per four keys. Returns 0, -EINVAL or -ENOMEM.
 */
int kvs_index_create(struct kvs_index **out, uint32_t items, uint32_t buckets,
		     const uint64_t seed[2]);
/* index may be NULL. */
void kvs_index_destroy(struct kvs_index *index);

/* The seeded hash of a key, for the functions below. */
uint64_t kvs_index_hash(const struct kvs_index *index,
			const uint8_t key[KVS_KEY_LEN]);

/*
 * Prefetch the bucket of a hash; then, when it has arrived, the item. For a
 * burst, call each function for all requests before the lookups.
 */
void kvs_index_prefetch(const struct kvs_index *index, uint64_t hash);
void kvs_index_prefetch_item(const struct kvs_index *index, uint64_t hash);

/*
 * hash must be that of key. Returns 1 and the value, or 0 if there is no such
 * key.
 */
int kvs_index_get(const struct kvs_index *index, uint64_t hash,
		  const uint8_t key[KVS_KEY_LEN], uint8_t value[KVS_VALUE_LEN]);

/*
 * Returns 1 for a new key, 0 if the value of a key was replaced, or -ENOSPC: no
 * room for a new key.
 */
int kvs_index_put(struct kvs_index *index, uint64_t hash,
		  const uint8_t key[KVS_KEY_LEN],
		  const uint8_t value[KVS_VALUE_LEN]);

/* Number of keys, and of spare buckets in use. */
uint32_t kvs_index_count(const struct kvs_index *index);
uint32_t kvs_index_spares(const struct kvs_index *index);

#endif
