#include "index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mix.h"

enum { LINE = 64, PER_BUCKET = 4, TAG_SHIFT = 48 };

/* An entry is tag << 48 | item number, counted from 1; 0: free. */
struct bucket {
	uint64_t entry[KVS_BUCKET_ENTRIES];
	uint32_t next; /* number of a spare bucket, counted from 1; 0: none */
	uint32_t zero;
};

struct item {
	uint8_t key[KVS_KEY_LEN];
	uint8_t value[KVS_VALUE_LEN];
	uint8_t pad[LINE - KVS_KEY_LEN - KVS_VALUE_LEN];
};

_Static_assert(sizeof(struct bucket) == LINE, "a bucket is a cache line");
_Static_assert(sizeof(struct item) == LINE, "an item is a cache line");

struct kvs_index {
	struct bucket *buckets; /* main buckets, followed by the spare ones */
	struct item *items;
	uint64_t seed[2];
	uint32_t main, spares, room;
	uint32_t count, used; /* items and spare buckets in use */
};

/* n zeroed cache lines; zeroing maps the pages before a run. */
static void *lines(size_t n)
{
	const size_t align = n < 1 << 15 ? LINE : 1 << 21;
	size_t len = (n * LINE + align - 1) / align * align;
	void *at = aligned_alloc(align, len);

	if (at)
		memset(at, 0, len);
	return at;
}

static uint32_t default_buckets(uint32_t items)
{
	uint32_t n = 1;

	while (n < items / PER_BUCKET)
		n *= 2;
	return n;
}

int kvs_index_create(struct kvs_index **out, uint32_t items, uint32_t buckets,
		     const uint64_t seed[2])
{
	struct kvs_index *index;

	*out = NULL;
	if (!items || items > KVS_MAX_ITEMS || (buckets & (buckets - 1)) ||
	    buckets > KVS_MAX_ITEMS)
		return -EINVAL;
	index = calloc(1, sizeof(*index));
	if (!index)
		return -ENOMEM;
	index->main = buckets ? buckets : default_buckets(items);
	/*
	 * A spare bucket is used only if the bucket before it holds seven keys.
	 */
	index->spares = items / KVS_BUCKET_ENTRIES;
	index->room = items;
	memcpy(index->seed, seed, sizeof(index->seed));
	index->buckets = lines((size_t)index->main + index->spares);
	index->items = lines(items);
	if (!index->buckets || !index->items) {
		kvs_index_destroy(index);
		return -ENOMEM;
	}
	*out = index;
	return 0;
}

void kvs_index_destroy(struct kvs_index *index)
{
	if (!index)
		return;
	free(index->buckets);
	free(index->items);
	free(index);
}

uint64_t kvs_index_hash(const struct kvs_index *index,
			const uint8_t key[KVS_KEY_LEN])
{
	uint64_t w[2];

	memcpy(w, key, sizeof(w));
	return kvs_mix(kvs_mix(w[0], index->seed[0]) ^ w[1], index->seed[1]);
}

static struct bucket *first(const struct kvs_index *index, uint64_t hash)
{
	return &index->buckets[hash & (index->main - 1)];
}

static struct bucket *next(const struct kvs_index *index,
			   const struct bucket *b)
{
	return b->next ? &index->buckets[index->main + b->next - 1] : NULL;
}

static uint64_t tag_of(uint64_t hash)
{
	return hash >> TAG_SHIFT;
}

static struct item *item_of(const struct kvs_index *index, uint64_t entry)
{
	return &index->items[(uint32_t)entry - 1];
}

void kvs_index_prefetch(const struct kvs_index *index, uint64_t hash)
{
	__builtin_prefetch(first(index, hash));
}

void kvs_index_prefetch_item(const struct kvs_index *index, uint64_t hash)
{
	const struct bucket *b = first(index, hash);

	for (int i = 0; i < KVS_BUCKET_ENTRIES && b->entry[i]; i++)
		if (b->entry[i] >> TAG_SHIFT == tag_of(hash))
			__builtin_prefetch(item_of(index, b->entry[i]), 1);
}

/*
 * Returns the item of a key, or NULL. In the latter case *end is the free entry
 * for the key, or NULL if the last bucket *last is full.
 */
static struct item *find(const struct kvs_index *index, uint64_t hash,
			 const uint8_t *key, struct bucket **last,
			 uint64_t **end)
{
	struct bucket *b;

	*end = NULL;
	for (b = first(index, hash); b; b = next(index, b)) {
		*last = b;
		for (int i = 0; i < KVS_BUCKET_ENTRIES; i++) {
			struct item *item;

			if (!b->entry[i]) {
				*end = &b->entry[i];
				return NULL;
			}
			if (b->entry[i] >> TAG_SHIFT != tag_of(hash))
				continue;
			item = item_of(index, b->entry[i]);
			if (!memcmp(item->key, key, KVS_KEY_LEN))
				return item;
		}
	}
	return NULL;
}

int kvs_index_get(const struct kvs_index *index, uint64_t hash,
		  const uint8_t key[KVS_KEY_LEN], uint8_t value[KVS_VALUE_LEN])
{
	struct bucket *last;
	uint64_t *end;
	const struct item *item = find(index, hash, key, &last, &end);

	if (!item)
		return 0;
	memcpy(value, item->value, KVS_VALUE_LEN);
	return 1;
}

int kvs_index_put(struct kvs_index *index, uint64_t hash,
		  const uint8_t key[KVS_KEY_LEN],
		  const uint8_t value[KVS_VALUE_LEN])
{
	struct bucket *last;
	uint64_t *end;
	struct item *item = find(index, hash, key, &last, &end);

	if (item) {
		memcpy(item->value, value, KVS_VALUE_LEN);
		return 0;
	}
	if (index->count == index->room)
		return -ENOSPC;
	if (!end) {
		last->next = ++index->used;
		end = next(index, last)->entry;
	}
	item = &index->items[index->count++];
	memcpy(item->key, key, KVS_KEY_LEN);
	memcpy(item->value, value, KVS_VALUE_LEN);
	*end = tag_of(hash) << TAG_SHIFT | index->count;
	return 1;
}

uint32_t kvs_index_count(const struct kvs_index *index)
{
	return index->count;
}

uint32_t kvs_index_spares(const struct kvs_index *index)
{
	return index->used;
}
