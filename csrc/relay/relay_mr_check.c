/* Checks of the parameters of REG_MR (docs/local-interface.md 3.5). */
#include <errno.h>

#include "memory/memtree.h"
#include "memory/rights.h"
#include "relay/leg.h"
#include "relay/relay_impl.h"

uint64_t srdma_relay_mr_base(const struct srdma_mr_params *params)
{
	return params->region.addr - params->bias;
}

struct srdma_memtree srdma_relay_mr_tree(const struct srdma_mr_params *params)
{
	const uint64_t base = srdma_relay_mr_base(params);

	return (struct srdma_memtree){ base, base + params->region.length,
				       params->log2_block, params->depth };
}

static int check_proofs(struct srdma_relay *r,
			const struct srdma_mr_params *params)
{
	const struct srdma_memtree tree = srdma_relay_mr_tree(params);
	const uint32_t access = params->region.access;

	if (!(access & SRDMA_ACCESS_PROOF)) {
		if (!params->log2_block && !params->depth)
			return 0;
		return srdma_relay_refuse(
			r, -EINVAL,
			"a block size or a depth limit, but no PROOF: set PROOF, or let both be 0");
	}
	if (!(access & SRDMA_RIGHTS_REMOTE))
		return srdma_relay_refuse(
			r, -EINVAL,
			"PROOF needs REMOTE_READ, REMOTE_WRITE or REMOTE_ATOMIC: only remote accesses are proven");
	if (srdma_memtree_check(&tree))
		return srdma_relay_refuse(
			r, -EINVAL,
			"%llu bytes, blocks of 2^%u, a depth limit of %u: at most 2^63, 2^%u..2^%u, 1..%u are allowed",
			(unsigned long long)params->region.length,
			params->log2_block, params->depth,
			SRDMA_MEMTREE_BLOCK_MIN, SRDMA_MEMTREE_BLOCK_MAX,
			SRDMA_MEMTREE_DEPTH_MAX);
	return 0;
}

/* The addresses in requests. */
static int check_base(struct srdma_relay *r,
		      const struct srdma_mr_params *params)
{
	const uint64_t base = srdma_relay_mr_base(params);

	if (base + params->region.length < base)
		return srdma_relay_refuse(
			r, -EINVAL,
			"a region of %llu bytes at 0x%llx: it must end inside the address space",
			(unsigned long long)params->region.length,
			(unsigned long long)base);
	if ((params->region.access & SRDMA_ACCESS_REMOTE_ATOMIC) &&
	    params->bias % SRDMA_ATOMIC_LEN)
		return srdma_relay_refuse(
			r, -EINVAL,
			"a bias of 0x%llx: with REMOTE_ATOMIC it must be a multiple of 8",
			(unsigned long long)params->bias);
	return check_proofs(r, params);
}

int srdma_relay_mr_check(struct srdma_relay *r, struct srdma_leg *leg,
			 const struct srdma_mr_params *params)
{
	const struct srdma_region_params *p = &params->region;

	if (!p->length || p->addr + p->length < p->addr)
		return srdma_relay_refuse(
			r, -EINVAL,
			"a region of %llu bytes at %#llx: it must not be empty or wrap",
			(unsigned long long)p->length,
			(unsigned long long)p->addr);
	if (p->access & ~(uint32_t)(SRDMA_ACCESS_ALL | SRDMA_ACCESS_PROOF |
				    SRDMA_ACCESS_SHARED))
		return srdma_relay_refuse(
			r, -ENOTSUP,
			"access %#x: LOCAL_WRITE 1, REMOTE_WRITE 2, REMOTE_READ 4, REMOTE_ATOMIC 8, PROOF 0x100, SHARED 0x200 are in this version",
			p->access);
	if ((p->access & SRDMA_RIGHTS_WRITTEN) &&
	    !(p->access & SRDMA_ACCESS_LOCAL_WRITE))
		return srdma_relay_refuse(
			r, -EINVAL,
			"REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE too");
	if ((p->access & SRDMA_ACCESS_SHARED) &&
	    !(p->access & SRDMA_RIGHTS_REMOTE))
		return srdma_relay_refuse(
			r, -EINVAL,
			"SHARED needs REMOTE_READ, REMOTE_WRITE or REMOTE_ATOMIC: without them peers have no access");
	if (leg->mrs == SRDMA_MAX_MRS)
		return srdma_relay_refuse(r, -EDQUOT,
					  "the leg has its limit of %u regions",
					  SRDMA_MAX_MRS);
	return check_base(r, params);
}
