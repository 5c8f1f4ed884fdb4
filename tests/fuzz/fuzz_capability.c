/*
 * Tokens of arbitrary bytes: the decoder stays in bounds, and an accepted token
 * encodes to the same bytes and can be used and narrowed. Bits of the first
 * byte choose what is corrected in the token, so that more inputs are accepted:
 * the checksum, which a fuzzer cannot find, the magic, and the size of the
 * region.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/sha.h>

#include "memory/capability.h"

#define CHECK(x)                                                               \
	do {                                                                   \
		if (!(x))                                                      \
			abort();                                               \
	} while (0)

enum { FIX_CHECK = 1, FIX_MAGIC = 2, FIX_REGION = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void set_right(uint8_t *token, size_t len, uint8_t how)
{
	uint8_t digest[SHA256_DIGEST_LENGTH];

	if (len < SRDMA_CAPABILITY_HEAD + SRDMA_CAPABILITY_CHECK)
		return;
	if (how & FIX_MAGIC)
		memcpy(token, "sC\1", 3);
	/* at most 2^48 bytes, a legal block size and depth limit */
	if (how & FIX_REGION) {
		memset(token + 8, 0, 10);
		memset(token + 24, 0, 2);
		memset(token + 32, 0, 2);
		token[60] = (uint8_t)(6 + token[60] % 25);
		token[61] = (uint8_t)(1 + token[61] % 48);
	}
	if (how & FIX_CHECK) {
		SHA256(token, len - SRDMA_CAPABILITY_CHECK, digest);
		memcpy(token + len - SRDMA_CAPABILITY_CHECK, digest,
		       SRDMA_CAPABILITY_CHECK);
	}
}

/*
 * Every node is found by its first and its last byte. No byte outside the range
 * is found.
 */
static void find(const struct srdma_capability *cap)
{
	const uint8_t right = cap->scope.rights & -cap->scope.rights;
	struct srdma_capability_entry e;
	uint64_t at = cap->scope.lo;

	for (unsigned i = 0; i < cap->nodes; i++) {
		const struct srdma_memnode *n = &cap->node[i];

		CHECK(n->lo == at && n->hi > at);
		CHECK(!srdma_capability_find(cap, right, n->lo, &e));
		CHECK(e.node == n && e.key == cap->key[i]);
		CHECK(!srdma_capability_find(cap, right, n->hi - 1, &e));
		CHECK(e.node == n);
		at = n->hi;
	}
	CHECK(at == cap->scope.hi);
	CHECK(srdma_capability_find(cap, right, at, &e) == -ERANGE);
	CHECK(srdma_capability_find(cap, right, cap->scope.lo - 1, &e) ==
	      -ERANGE);
}

/*
 * Narrows to the same range, and to the last granule. A sealed token may have
 * no key for the latter.
 */
static void narrow(const struct srdma_capability *cap)
{
	const uint64_t granule = srdma_memtree_granule(&cap->tree);
	struct srdma_capability_scope scope = cap->scope;
	struct srdma_capability part;
	struct srdma_cmac c;

	CHECK(!srdma_cmac_create(&c, SRDMA_MEMKEY_LEN, NULL));
	CHECK(!srdma_capability_narrow(&part, &c, cap, &scope));
	CHECK(part.nodes == cap->nodes);
	CHECK(!memcmp(part.key, cap->key, sizeof(part.key)));
	scope.lo = (scope.hi - 1) / granule * granule;
	if (!srdma_capability_narrow(&part, &c, cap, &scope))
		CHECK(part.nodes == 1);
	else
		CHECK(cap->final);
	srdma_cmac_destroy(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t token[SRDMA_CAPABILITY_MAX + 1], again[SRDMA_CAPABILITY_MAX];
	struct srdma_capability cap;
	const size_t len = size - 1;

	if (size < 1 || len > sizeof(token))
		return 0;
	memcpy(token, data + 1, len);
	set_right(token, len, data[0]);
	if (srdma_capability_decode(&cap, token, len))
		return 0;
	CHECK(srdma_capability_encode(again, &cap) == (int)len);
	CHECK(memcmp(again, token, len) == 0);
	find(&cap);
	narrow(&cap);
	return 0;
}
