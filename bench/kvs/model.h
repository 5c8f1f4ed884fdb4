/*
 * What a key-value store may answer. A history is told of every request with
 * the times at which it was sent and answered, on one clock that no two
 * events share. A GET may return the value of a PUT that no other PUT of the
 * key followed wholly before the GET began: the last one, or one of those
 * that were under way at the same time.
 */
#ifndef KVS_MODEL_H
#define KVS_MODEL_H

#include <stdint.h>

/* The version that a GET of no such key finds. */
#define KVS_ABSENT UINT64_MAX

struct kvs_event {
	uint64_t start, end;
	uint64_t version; /* GET: found; PUT: written, which is its start */
	uint32_t id;
	uint32_t put; /* 1; GET: 0 */
};

struct kvs_history;

/* Of capacity events at most. 0, -EINVAL, -ENOMEM. */
int kvs_history_create(struct kvs_history **out, uint32_t capacity);
/* NULL is allowed. */
void kvs_history_destroy(struct kvs_history *history);

/* 0 or -ENOSPC. */
int kvs_history_add(struct kvs_history *history, const struct kvs_event *e);
uint32_t kvs_history_count(const struct kvs_history *history);

/*
 * Were all GETs answered right by a store that began with version 0 of the
 * first keys ids, and none else? 1; 0, and the first GET that was not; or
 * -ENOMEM. The history is sorted by it.
 */
int kvs_history_check(struct kvs_history *history, uint32_t keys,
		      struct kvs_event *wrong);

#endif
