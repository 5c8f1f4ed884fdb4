/*
 * Memory proofs at the target: 2 KiB at random in a region of 1 GiB, checked
 * with its key tree (docs/protocol.md 6.1).
 */
#include <stdlib.h>
#include <string.h>

#include "memory/memkey.h"
#include "rung.h"

enum {
	LOG2_REGION = 30,
	LOG2_BLOCK = 11,
	DEPTH = LOG2_REGION - LOG2_BLOCK,
	CLAIMS = RUNG_BATCH,
	CLAIM = 8 + RUNG_AD + 12, /* bytes covered by a proof */
};

struct judge {
	struct srdma_cmac cmac;
	struct srdma_memkey_cache cache;
	uint8_t mr_key[SRDMA_MEMKEY_LEN];
	struct srdma_memtree tree;
	struct srdma_memnode node[CLAIMS];
	uint8_t proof[CLAIMS][SRDMA_MEMKEY_PROOF_LEN];
	uint64_t seed;
};

static const uint8_t ad[CLAIM] = { 7 };
static const struct srdma_memkey_bearer bearer = { .expiry = 2 };

static void *open_judge(const struct shape *s)
{
	struct judge *j = calloc(1, sizeof(*j));

	if (!j || srdma_cmac_create(&j->cmac, SRDMA_MEMKEY_LEN, s->provider))
		wrong("mem", "no memory");
	j->tree = (struct srdma_memtree){
		.end = UINT64_C(1) << LOG2_REGION,
		.log2_block = LOG2_BLOCK,
		.depth_limit = DEPTH,
	};
	j->seed = 88172645463325252;
	srdma_memkey_cache_init(&j->cache, &j->tree, j->mr_key);
	return j;
}

static void close_judge(void *state)
{
	struct judge *j = state;

	srdma_memkey_cache_wipe(&j->cache);
	srdma_cmac_destroy(&j->cmac);
	free(j);
}

/* Draw new ranges, with the proofs that a holder of each would compute. */
static void claim_anew(struct judge *j)
{
	uint8_t key[SRDMA_MEMKEY_LEN];

	for (int i = 0; i < CLAIMS; i++) {
		struct srdma_memnode *node = &j->node[i];

		j->seed ^= j->seed << 13;
		j->seed ^= j->seed >> 7;
		j->seed ^= j->seed << 17;
		if (srdma_memtree_find(&j->tree, DEPTH,
				       j->seed >> (64 - LOG2_REGION), node) ||
		    srdma_memkey_root(&j->cmac, key, j->mr_key,
				      SRDMA_MEMKEY_WRITE) ||
		    srdma_memkey_walk(&j->cmac, key, &j->tree, 0, node) ||
		    srdma_memkey_access(&j->cmac, key, key, node, &bearer) ||
		    srdma_memkey_proof(&j->cmac, j->proof[i], key, ad,
				       sizeof(ad)))
			wrong("mem", "no proof");
	}
}

static void check(struct judge *j, unsigned i)
{
	const struct srdma_memkey_claim claim = {
		.right = SRDMA_MEMKEY_WRITE,
		.depth = DEPTH,
		.addr = j->node[i].lo,
		.len = j->node[i].hi - j->node[i].lo,
		.bearer = bearer,
		.ad = ad,
		.ad_len = sizeof(ad),
		.proof = j->proof[i],
	};

	if (srdma_memkey_check(&j->cache, &j->cmac, &claim, 1))
		wrong("mem", "a correct proof was refused");
}

static uint64_t run_random(void *state, unsigned n)
{
	struct judge *j = state;
	uint64_t start;

	claim_anew(j);
	start = ticks();
	for (unsigned i = 0; i < n; i++)
		check(j, i);
	return ticks() - start;
}

/* The tree's key cache is cleared before each check. */
static uint64_t run_cold(void *state, unsigned n)
{
	struct judge *j = state;
	uint64_t start, sum = 0;

	claim_anew(j);
	for (unsigned i = 0; i < n; i++) {
		srdma_memkey_cache_init(&j->cache, &j->tree, j->mr_key);
		start = ticks();
		check(j, i);
		sum += ticks() - start;
	}
	return sum;
}

static uint64_t run_hot(void *state, unsigned n)
{
	struct judge *j = state;
	uint64_t start;

	claim_anew(j);
	check(j, 0);
	start = ticks();
	while (n--)
		check(j, 0);
	return ticks() - start;
}

/* The elementary step: the key of a child node. */
static uint64_t run_step(void *state, unsigned n)
{
	struct judge *j = state;
	const uint64_t start = ticks();
	uint8_t key[SRDMA_MEMKEY_LEN] = { 1 };

	for (unsigned i = 0; i < n; i++)
		if (srdma_memkey_child(&j->cmac, key, key, &j->node[i]))
			wrong("mem", "no key");
	return ticks() - start;
}

/* A proof whose key is known. */
static uint64_t run_proof(void *state, unsigned n)
{
	struct judge *j = state;
	const uint64_t start = ticks();
	uint8_t proof[SRDMA_MEMKEY_PROOF_LEN];

	for (unsigned i = 0; i < n; i++)
		if (srdma_memkey_proof(&j->cmac, proof, j->mr_key, ad,
				       sizeof(ad)))
			wrong("mem", "no proof");
	return ticks() - start;
}

const struct rung rungs_mem[] = {
	{ "tree step", "derive step", "the key of a tree's child", open_judge,
	  run_step, close_judge },
	{ "proof", NULL, "a memory proof with a known key", open_judge,
	  run_proof, close_judge },
	{ "mem cold", "proof", "checked at the target, 19 levels down",
	  open_judge, run_cold, close_judge },
	{ "mem random", "proof", "upper levels of the tree cached", open_judge,
	  run_random, close_judge },
	{ "mem cached", "proof", "the same range again", open_judge, run_hot,
	  close_judge },
	{ 0 },
};
