/*
 * What clients ask for: the mixes of YCSB, and GET and PUT alone, thrown
 * before a run so that no dice are thrown during it.
 */
#ifndef KVS_TRACE_H
#define KVS_TRACE_H

#include <stdint.h>

struct kvs_mix_row {
	const char *name;
	const char *what;
	uint8_t reads;	/* per cent */
	uint8_t insert; /* what is no read is a new key, else another value */
	uint8_t latest; /* ranks count from the newest key */
};

/* Row i, or NULL behind the last. */
const struct kvs_mix_row *kvs_mix_at(unsigned i);
/* NULL: no such mix. */
const struct kvs_mix_row *kvs_mix_named(const char *name);

/* One request to be: the rank of its key, and whether it reads. */
struct kvs_wish {
	uint32_t rank : 31;
	uint32_t read : 1;
};

enum { KVS_MAX_RANKS = 1 << 26 };

/*
 * Throw n wishes over keys ranks, theta as in zipf.h. 0, or -EINVAL: keys
 * or theta out of range.
 */
int kvs_trace_throw(struct kvs_wish *out, uint32_t n,
		    const struct kvs_mix_row *mix, uint32_t keys, double theta,
		    uint64_t seed);

#endif
