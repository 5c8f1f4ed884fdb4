/*
 * Requests of clients: the mixes of YCSB, and GET or PUT only. They are drawn
 * before a run, so that no random numbers are drawn during it.
 */
#ifndef KVS_TRACE_H
#define KVS_TRACE_H

#include <stdint.h>

struct kvs_mix_row {
	const char *name;
	const char *what;
	uint8_t reads;	/* percentage of reads */
	uint8_t insert; /* 1: a write inserts a new key; 0: it replaces a
			   value */
	uint8_t latest; /* 1: ranks count down from the newest key */
};

/* Row i, or NULL past the last one. */
const struct kvs_mix_row *kvs_mix_at(unsigned i);
/* NULL: no such mix. */
const struct kvs_mix_row *kvs_mix_named(const char *name);

/* A request to send: the rank of its key, and whether it is a read. */
struct kvs_wish {
	uint32_t rank : 31;
	uint32_t read : 1;
};

enum { KVS_MAX_RANKS = 1 << 26 };

/*
 * Draw n requests for `keys` ranks with theta as in zipf.h. Returns 0, or
 * -EINVAL: keys or theta out of range.
 */
int kvs_trace_throw(struct kvs_wish *out, uint32_t n,
		    const struct kvs_mix_row *mix, uint32_t keys, double theta,
		    uint64_t seed);

#endif
