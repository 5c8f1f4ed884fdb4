/*
 * Consistency check of a key-value store. A history records each request with
 * the times of sending and response on one clock; all times differ. A GET may
 * return the value of a PUT unless another PUT of the key started after that
 * PUT had ended and ended before the GET started: that is, the value of the
 * last PUT or of one concurrent with it.
 */
#ifndef KVS_MODEL_H
#define KVS_MODEL_H

#include <stdint.h>

/* The version reported by a GET of a missing key. */
#define KVS_ABSENT UINT64_MAX

struct kvs_event {
	uint64_t start, end;
	uint64_t version; /* version found by a GET, or written by a PUT (its
			     start) */
	uint32_t id;
	uint32_t put; /* 1 for a PUT, 0 for a GET */
};

struct kvs_history;

/* capacity: maximum number of events. Returns 0, -EINVAL or -ENOMEM. */
int kvs_history_create(struct kvs_history **out, uint32_t capacity);
/* history may be NULL. */
void kvs_history_destroy(struct kvs_history *history);

/* Returns 0 or -ENOSPC. */
int kvs_history_add(struct kvs_history *history, const struct kvs_event *e);
uint32_t kvs_history_count(const struct kvs_history *history);

/*
 * Check all GETs against a store that initially had version 0 of the keys 0 to
 * keys - 1 and no others. Returns 1 if they are consistent; 0 with the first
 * inconsistent GET in *wrong; or -ENOMEM. Sorts the history.
 */
int kvs_history_check(struct kvs_history *history, uint32_t keys,
		      struct kvs_event *wrong);

#endif
