#include "trace.h"

#include <errno.h>
#include <string.h>

#include "zipf.h"

static const struct kvs_mix_row mixes[] = {
	{ "a", "YCSB A: half GET, half PUT", 50, 0, 0 },
	{ "b", "YCSB B: 95 % GET, 5 % PUT", 95, 0, 0 },
	{ "c", "YCSB C: GET alone", 100, 0, 0 },
	{ "d", "YCSB D: 95 % GET of the newest keys, 5 % new keys", 95, 1, 1 },
	{ "get", "GET alone", 100, 0, 0 },
	{ "put", "PUT alone", 0, 0, 0 },
};

enum { MIXES = sizeof(mixes) / sizeof(mixes[0]) };

const struct kvs_mix_row *kvs_mix_at(unsigned i)
{
	return i < MIXES ? &mixes[i] : NULL;
}

const struct kvs_mix_row *kvs_mix_named(const char *name)
{
	for (unsigned i = 0; i < MIXES; i++)
		if (!strcmp(mixes[i].name, name))
			return &mixes[i];
	return NULL;
}

int kvs_trace_throw(struct kvs_wish *out, uint32_t n,
		    const struct kvs_mix_row *mix, uint32_t keys, double theta,
		    uint64_t seed)
{
	struct kvs_zipf zipf;
	int r;

	if (keys > KVS_MAX_RANKS)
		return -EINVAL;
	r = kvs_zipf_init(&zipf, keys, theta);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < n; i++) {
		out[i].read = kvs_dice_below(&seed, 100) < mix->reads;
		out[i].rank = (uint32_t)kvs_zipf_draw(&zipf, &seed) &
			      (KVS_MAX_RANKS - 1);
	}
	return 0;
}
