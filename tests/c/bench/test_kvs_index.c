/*
 * The index of the benchmark's key-value store (bench/kvs/index.h): every
 * stored key is found, also in shared buckets, and a full index loses nothing.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "index.h"
#include "keys.h"
#include "zipf.h"

static const uint64_t seed[2] = { 1, 2 };

static struct kvs_index *make(uint32_t items, uint32_t buckets)
{
	struct kvs_index *index;

	assert_int_equal(kvs_index_create(&index, items, buckets, seed), 0);
	return index;
}

static int put(struct kvs_index *index, uint64_t id, uint64_t version)
{
	uint8_t key[KVS_KEY_LEN], value[KVS_VALUE_LEN];

	kvs_key_make(key, id);
	kvs_value_make(value, id, version);
	return kvs_index_put(index, kvs_index_hash(index, key), key, value);
}

/* Returns the version; -1: no such key. */
static int64_t get(const struct kvs_index *index, uint64_t id)
{
	uint8_t key[KVS_KEY_LEN], value[KVS_VALUE_LEN];
	uint64_t version;

	kvs_key_make(key, id);
	if (!kvs_index_get(index, kvs_index_hash(index, key), key, value))
		return -1;
	assert_int_equal(kvs_value_read(value, id, &version), 0);
	return (int64_t)version;
}

static void test_illegal_sizes_are_refused(void **state)
{
	struct kvs_index *index;

	(void)state;
	assert_int_equal(kvs_index_create(&index, 0, 0, seed), -EINVAL);
	assert_int_equal(kvs_index_create(&index, KVS_MAX_ITEMS + 1, 0, seed),
			 -EINVAL);
	assert_int_equal(kvs_index_create(&index, 8, 3, seed), -EINVAL);
	assert_int_equal(kvs_index_create(&index, 8, 2 * KVS_MAX_ITEMS, seed),
			 -EINVAL);
	assert_null(index);
	kvs_index_destroy(NULL);
}

static void test_put_and_get(void **state)
{
	struct kvs_index *index = make(100, 0);

	(void)state;
	assert_int_equal(get(index, 5), -1);
	assert_int_equal(put(index, 5, 1), 1);
	assert_int_equal(get(index, 5), 1);
	assert_int_equal(put(index, 5, 2), 0);
	assert_int_equal(get(index, 5), 2);
	assert_int_equal(get(index, 6), -1);
	assert_int_equal(kvs_index_count(index), 1);
	kvs_index_destroy(index);
}

/* All keys in one bucket: six full ones before the last. */
static void test_full_bucket_gets_spare(void **state)
{
	enum { KEYS = 7 * KVS_BUCKET_ENTRIES };
	struct kvs_index *index = make(KEYS, 1);

	(void)state;
	for (uint32_t i = 0; i < KEYS; i++) {
		assert_int_equal(put(index, i, i), 1);
		assert_int_equal(kvs_index_spares(index),
				 i / KVS_BUCKET_ENTRIES);
	}
	for (uint32_t i = 0; i < KEYS; i++)
		assert_int_equal(get(index, i), i);
	kvs_index_destroy(index);
}

/* For any number of buckets, the items run out before the spare buckets do. */
static void test_full_index_refuses_and_keeps(void **state)
{
	(void)state;
	for (uint32_t items = 1; items < 60; items++) {
		for (uint32_t buckets = 1; buckets <= 64; buckets *= 4) {
			struct kvs_index *index = make(items, buckets);

			for (uint32_t i = 0; i < items; i++)
				assert_int_equal(put(index, i, 1), 1);
			assert_int_equal(put(index, items, 1), -ENOSPC);
			assert_int_equal(get(index, items), -1);
			assert_int_equal(put(index, 0, 2), 0);
			assert_int_equal(get(index, 0), 2);
			for (uint32_t i = 1; i < items; i++)
				assert_int_equal(get(index, i), 1);
			assert_int_equal(kvs_index_count(index), items);
			kvs_index_destroy(index);
		}
	}
}

/* Keys of the same bucket and tag are distinguished by their bytes. */
static void test_collisions_of_tags(void **state)
{
	struct kvs_index *index = make(3, 1);
	uint8_t key[KVS_KEY_LEN] = { 0 }, value[KVS_VALUE_LEN] = { 0 };

	(void)state;
	for (uint8_t i = 1; i <= 3; i++) {
		key[15] = value[0] = i;
		assert_int_equal(kvs_index_put(index, 7, key, value), 1);
	}
	kvs_index_prefetch(index, 7);
	kvs_index_prefetch_item(index, 7);
	for (uint8_t i = 1; i <= 3; i++) {
		key[15] = i;
		assert_int_equal(kvs_index_get(index, 7, key, value), 1);
		assert_int_equal(value[0], i);
	}
	key[15] = 4;
	assert_int_equal(kvs_index_get(index, 7, key, value), 0);
	kvs_index_destroy(index);
}

/* 10^6 operations compared with an array, in crowded buckets. */
static void test_random_operations(void **state)
{
	enum { KEYS = 20000, OPERATIONS = 1000000 };
	struct kvs_index *index = make(KEYS / 2, 1024);
	int64_t *model = malloc(KEYS * sizeof(*model));
	uint64_t dice = 1;
	uint32_t count = 0;

	(void)state;
	assert_non_null(model);
	for (uint32_t i = 0; i < KEYS; i++)
		model[i] = -1;
	for (uint32_t i = 0; i < OPERATIONS; i++) {
		const uint64_t id = kvs_dice_below(&dice, KEYS);
		int want = model[id] < 0;

		if (kvs_dice(&dice) & 1) {
			assert_int_equal(get(index, id), model[id]);
			continue;
		}
		if (want && count == KEYS / 2)
			want = -ENOSPC;
		assert_int_equal(put(index, id, i), want);
		if (want >= 0)
			model[id] = i;
		count += want == 1;
	}
	for (uint32_t i = 0; i < KEYS; i++)
		assert_int_equal(get(index, i), model[i]);
	assert_int_equal(count, KEYS / 2);
	assert_int_equal(kvs_index_count(index), count);
	assert_true(kvs_index_spares(index) > 100);
	free(model);
	kvs_index_destroy(index);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_illegal_sizes_are_refused),
		cmocka_unit_test(test_put_and_get),
		cmocka_unit_test(test_full_bucket_gets_spare),
		cmocka_unit_test(test_full_index_refuses_and_keeps),
		cmocka_unit_test(test_collisions_of_tags),
		cmocka_unit_test(test_random_operations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
