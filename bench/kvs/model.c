#include "model.h"

#include <errno.h>
#include <stdlib.h>

struct kvs_history {
	struct kvs_event *events;
	uint32_t capacity, count;
};

/*
 * PUTs of one key: once sorted by start and once by end; the latter has at each
 * entry the latest start of the entries up to it.
 */
struct puts {
	const struct kvs_event *by_start;
	struct done {
		uint64_t end, newest;
	} * by_end;
	uint32_t n;
};

int kvs_history_create(struct kvs_history **out, uint32_t capacity)
{
	struct kvs_history *history;

	*out = NULL;
	if (!capacity)
		return -EINVAL;
	history = calloc(1, sizeof(*history));
	if (!history)
		return -ENOMEM;
	history->events = malloc(capacity * sizeof(*history->events));
	if (!history->events) {
		free(history);
		return -ENOMEM;
	}
	history->capacity = capacity;
	*out = history;
	return 0;
}

void kvs_history_destroy(struct kvs_history *history)
{
	if (!history)
		return;
	free(history->events);
	free(history);
}

int kvs_history_add(struct kvs_history *history, const struct kvs_event *e)
{
	if (history->count == history->capacity)
		return -ENOSPC;
	history->events[history->count++] = *e;
	return 0;
}

uint32_t kvs_history_count(const struct kvs_history *history)
{
	return history->count;
}

/* Order by key, PUTs first, then by start. */
static int compare_events(const void *a, const void *b)
{
	const struct kvs_event *x = a, *y = b;

	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	if (x->put != y->put)
		return x->put ? -1 : 1;
	return (x->start > y->start) - (x->start < y->start);
}

static int compare_ends(const void *a, const void *b)
{
	const struct done *x = a, *y = b;

	return (x->end > y->end) - (x->end < y->end);
}

static void order_by_end(struct puts *p)
{
	for (uint32_t i = 0; i < p->n; i++)
		p->by_end[i] = (struct done){ .end = p->by_start[i].end,
					      .newest = p->by_start[i].start };
	qsort(p->by_end, p->n, sizeof(*p->by_end), compare_ends);
	for (uint32_t i = 1; i < p->n; i++)
		if (p->by_end[i].newest < p->by_end[i - 1].newest)
			p->by_end[i].newest = p->by_end[i - 1].newest;
}

/* The latest start of the PUTs that ended before time; 0: none ended. */
static uint64_t newest_before(const struct puts *p, uint64_t time)
{
	uint32_t low = 0, high = p->n;

	while (low < high) {
		const uint32_t mid = (low + high) / 2;

		if (p->by_end[mid].end < time)
			low = mid + 1;
		else
			high = mid;
	}
	return low ? p->by_end[low - 1].newest : 0;
}

static const struct kvs_event *put_of(const struct puts *p, uint64_t version)
{
	const struct kvs_event put = { .id = p->by_start->id,
				       .put = 1,
				       .start = version };

	return bsearch(&put, p->by_start, p->n, sizeof(put), compare_events);
}

static int legal(const struct puts *p, const struct kvs_event *get,
		 uint64_t initial)
{
	const struct kvs_event *put;

	if (get->version == initial)
		return !newest_before(p, get->start);
	put = put_of(p, get->version);
	return put && put->start < get->end &&
	       newest_before(p, get->start) < put->end;
}

/* Check the events of one key from *at on, and advance *at past them. */
static int check_key(const struct kvs_history *h, uint32_t *at, uint32_t keys,
		     struct done *scratch, struct kvs_event *wrong)
{
	const struct kvs_event *e = &h->events[*at];
	const uint64_t initial = e->id < keys ? 0 : KVS_ABSENT;
	struct puts p = { .by_start = e, .by_end = scratch };
	const uint32_t id = e->id;

	for (; *at < h->count && e->id == id && e->put; e = &h->events[*at]) {
		p.n++;
		++*at;
	}
	order_by_end(&p);
	for (; *at < h->count && e->id == id; e = &h->events[*at]) {
		if (!legal(&p, e, initial)) {
			*wrong = *e;
			return 0;
		}
		++*at;
	}
	return 1;
}

int kvs_history_check(struct kvs_history *history, uint32_t keys,
		      struct kvs_event *wrong)
{
	struct done *scratch;
	uint32_t at = 0;
	int right = 1;

	scratch = malloc((history->count + 1) * sizeof(*scratch));
	if (!scratch)
		return -ENOMEM;
	qsort(history->events, history->count, sizeof(*history->events),
	      compare_events);
	while (right && at < history->count)
		right = check_key(history, &at, keys, scratch, wrong);
	free(scratch);
	return right;
}
