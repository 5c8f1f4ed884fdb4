/*
 * Keys to values, in memory: the index of MICA (NSDI 2014) in its lossless
 * form. A bucket is one cache line: seven entries of a 16-bit tag and the
 * number of an item, and the number of another bucket. An item is one cache
 * line too, so that a lookup misses the cache twice.
 *
 * A full bucket is continued in a spare one. There are so many spare buckets
 * that they cannot run out before the items do, whatever the keys are. A PUT
 * of another key when all items are in use is refused: nothing is evicted.
 * Keys are hashed with a seed, so that somebody who does not know it can
 * hardly choose keys that share a bucket; the hash is not a cryptographic one.
 *
 * One thread. Nothing is allocated after create.
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
 * For so many keys. buckets: a power of two, or 0 for one per four keys.
 * 0, -EINVAL, -ENOMEM.
 */
int kvs_index_create(struct kvs_index **out, uint32_t items, uint32_t buckets,
		     const uint64_t seed[2]);
/* NULL is allowed. */
void kvs_index_destroy(struct kvs_index *index);

uint64_t kvs_index_hash(const struct kvs_index *index,
			const uint8_t key[KVS_KEY_LEN]);

/*
 * Fetch what a lookup of this hash will read: the bucket, then, once that is
 * there, the item. For a burst do each for all before the lookups.
 */
void kvs_index_prefetch(const struct kvs_index *index, uint64_t hash);
void kvs_index_prefetch_item(const struct kvs_index *index, uint64_t hash);

/* 1, and the value; 0: no such key. hash is that of the key. */
int kvs_index_get(const struct kvs_index *index, uint64_t hash,
		  const uint8_t key[KVS_KEY_LEN], uint8_t value[KVS_VALUE_LEN]);

/* 1: a new key; 0: another value of it; -ENOSPC: no room for a new key. */
int kvs_index_put(struct kvs_index *index, uint64_t hash,
		  const uint8_t key[KVS_KEY_LEN],
		  const uint8_t value[KVS_VALUE_LEN]);

/* Keys in it, and spare buckets in use. */
uint32_t kvs_index_count(const struct kvs_index *index);
uint32_t kvs_index_spares(const struct kvs_index *index);

#endif
