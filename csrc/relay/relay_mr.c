/*
 * Memory regions, their capabilities and their revocation: REG_MR, WITHDRAW,
 * DEREG_MR, REPLACE, CAP, REVOKE of the control socket (docs/protocol.md 6;
 * local-interface.md 3, 5).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ledger/ledger.h"
#include "memory/memguard.h"
#include "memory/rights.h"
#include "relay/relay_impl.h"

/* A random key that no region has, deregistered ones with DMA included. */
/* RFC 5042 R5.1.1-1, R6.1.1-4 */
static int new_key(struct srdma_relay *r, uint32_t *key)
{
	int err;

	do {
		err = srdma_relay_random(r, key, sizeof(*key));
	} while (!err && (!*key || srdma_mr_find(&r->env.mrs, *key)));
	return err;
}

/* Serial and salt for new memory keys of a region. */
static int refresh(struct srdma_relay *r, struct srdma_memguard_fresh *fresh)
{
	fresh->serial = ++r->env.mrs.serial;
	return srdma_relay_random(r, fresh->salt, sizeof(fresh->salt));
}

/* Makes the memory keys of a region that demands proofs. */
static int add_guard(struct srdma_relay *r, struct srdma_mr *mr,
		     const struct srdma_mr_params *params)
{
	const struct srdma_memguard_params gp = {
		.tree = srdma_relay_mr_tree(params),
		.rkey = mr->key,
		.cmac = &r->cmac,
		.pd_key = mr->leg->keys.mem,
		.revoked = &mr->leg->revoked,
		.uncached = r->params.key_cache == 0,
	};
	struct srdma_memguard_fresh fresh;
	int err;

	if (!(mr->access & SRDMA_ACCESS_PROOF))
		return 0;
	err = refresh(r, &fresh);
	if (err)
		return err;
	err = srdma_memguard_create(&mr->guard, &gp, &fresh);
	return err ? srdma_relay_refuse(r, err,
					"no memory keys for a region: %s",
					strerror(-err))
		   : 0;
}

/* RFC 5042 R2.3.5-1 */
static int open_region(struct srdma_relay *r, struct srdma_mr *mr,
		       struct srdma_region_params params)
{
	int err;

	params.access &= SRDMA_ACCESS_ALL; /* PROOF is no access of the port */
	r->env.host->why = NULL;
	err = r->env.host->ops->region_open(mr->leg->conn, &params,
					    &mr->region);
	return err ? srdma_relay_refuse(r, err, "%s",
					r->env.host->why ? r->env.host->why
							 : strerror(-err))
		   : 0;
}

static int open_and_expose(struct srdma_relay *r, struct srdma_mr *mr,
			   const struct srdma_region_params *params)
{
	int err = open_region(r, mr, *params);

	if (err)
		return err;
	err = srdma_relay_expose(r, mr);
	if (err)
		r->env.host->ops->region_close(mr->region);
	return err;
}

/* Makes a region that is charged already. 0, or -errno with why. */
static int make_region(struct srdma_relay *r, struct srdma_leg *leg,
		       const struct srdma_mr_params *params, uint32_t key)
{
	struct srdma_mr *mr = calloc(1, sizeof(*mr));
	int err;

	if (!mr)
		return srdma_relay_refuse(r, -ENOMEM, "no memory for a region");
	mr->leg = leg;
	mr->key = key;
	mr->access = params->region.access;
	mr->base = srdma_relay_mr_base(params);
	mr->scope_qpn = params->scope_qpn;
	memcpy(mr->scope_holder, params->scope_holder,
	       sizeof(mr->scope_holder));
	err = add_guard(r, mr, params);
	if (!err)
		err = open_and_expose(r, mr, &params->region);
	if (err) {
		srdma_memguard_destroy(mr->guard);
		free(mr);
		return err;
	}
	srdma_mr_insert(&r->env.mrs, mr);
	leg->mrs++;
	if (r->env.host->ops->keepalive)
		srdma_env_wake(&r->env, r->env.now);
	return 0;
}

/* RFC 5042 R3-2, R2.2.2-2 */
int srdma_relay_mr_reg(struct srdma_relay *r, struct srdma_leg *leg,
		       const struct srdma_mr_params *params, uint32_t *key)
{
	const uint64_t length = params->region.length;
	int err = srdma_relay_mr_check(r, leg, params);

	if (!err)
		err = new_key(r, key);
	if (err)
		return err;
	if (leg->cq.down)
		return srdma_relay_refuse(r, -ENOTCONN, "the leg has ended");
	err = srdma_relay_charge_region(r, leg->account, length);
	if (err)
		return err;
	err = make_region(r, leg, params, *key);
	if (err)
		srdma_relay_release_region(leg->account, length);
	return err;
}

static struct srdma_mr *mr_of(struct srdma_relay *r,
			      const struct srdma_leg *leg, uint32_t key)
{
	struct srdma_mr *mr = srdma_mr_find(&r->env.mrs, key);

	return mr && mr->leg == leg ? mr : NULL;
}

static int unknown_key(struct srdma_relay *r)
{
	return srdma_relay_refuse(r, -ENOENT,
				  "the leg has no region of this key");
}

/* RFC 5042 R6.2.2-2, A6.3.3 */
int srdma_relay_mr_dereg(struct srdma_relay *r, struct srdma_leg *leg,
			 uint32_t key)
{
	struct srdma_mr *mr = mr_of(r, leg, key);

	if (!mr)
		return unknown_key(r);
	srdma_mr_end(&r->env.mrs, mr);
	return srdma_relay_mr_busy(r, leg, key) ? -EINPROGRESS : 0;
}

int srdma_relay_mr_busy(struct srdma_relay *r, struct srdma_leg *leg,
			uint32_t key)
{
	struct srdma_mr *mr = mr_of(r, leg, key);

	if (!mr || !mr->dead)
		return 0;
	if (mr->dmas)
		return 1;
	srdma_relay_free_mr(mr);
	return 0;
}

/* 0: both regions are of the leg and demand no proofs, and `other` lives. */
static int check_replace(struct srdma_relay *r, const struct srdma_mr *mr,
			 const struct srdma_mr *other)
{
	if (!mr || !other || other->dead)
		return unknown_key(r);
	if (mr == other || mr->guard || other->guard)
		return srdma_relay_refuse(
			r, -EINVAL,
			"a region is replaced by another one, and neither may demand proofs");
	return 0;
}

/* RFC 5042 R6.2.2-2 */
int srdma_relay_mr_replace(struct srdma_relay *r, struct srdma_leg *leg,
			   uint32_t key, uint32_t other)
{
	struct srdma_mr *mr = mr_of(r, leg, key), *by = mr_of(r, leg, other);
	int err = check_replace(r, mr, by);

	if (!err)
		srdma_mr_end(&r->env.mrs, mr);
	if (by)
		srdma_mr_set_moving(&r->env.mrs, by, !err);
	if (!err && by->dmas)
		return -EINPROGRESS;
	/* A region that is deregistered is freed, also if the other one has
	 * ended meanwhile. */
	if (srdma_relay_mr_busy(r, leg, key))
		return -EINPROGRESS;
	if (err)
		return err;
	srdma_mr_rename(&r->env.mrs, by, key);
	return 0;
}

int srdma_relay_mr_opening(struct srdma_relay *r, struct srdma_leg *leg,
			   uint32_t key)
{
	const struct srdma_port_ops *ops = r->env.host->ops;
	struct srdma_mr *mr = mr_of(r, leg, key);
	int err;

	if (!mr || mr->dead)
		return unknown_key(r);
	if (!ops->region_ready)
		return 0;
	err = ops->region_ready(mr->region);
	if (!err || err == -EINPROGRESS)
		return err;
	srdma_relay_mr_dereg(r, leg, key);
	return srdma_relay_refuse(r, err, "%s", r->env.host->why);
}

/* RFC 5042 R6.2.2-1, RA-1, R6.2.2-2, A6.2.2 */
int srdma_relay_mr_withdraw(struct srdma_relay *r, struct srdma_leg *leg,
			    uint32_t key, uint64_t *ticket)
{
	struct srdma_mr *mr = mr_of(r, leg, key);

	if (!mr || mr->dead)
		return unknown_key(r);
	srdma_mr_withdraw(&r->env.mrs, mr);
	*ticket = ++r->env.mrs.serial;
	return srdma_relay_mr_withdrawing(r, leg, key, *ticket) ? -EINPROGRESS
								: 0;
}

int srdma_relay_mr_withdrawing(struct srdma_relay *r, struct srdma_leg *leg,
			       uint32_t key, uint64_t ticket)
{
	const struct srdma_mr *mr = mr_of(r, leg, key);

	return mr && srdma_op_busy(&r->env.ops, mr, ticket, mr->base,
				   mr->region->length);
}

/* --- capabilities ------------------------------------------------------ */

/* Finds a region that has memory keys. 0, or -errno with why. */
static int find_guarded(struct srdma_relay *r, const struct srdma_leg *leg,
			uint32_t key, struct srdma_mr **out)
{
	struct srdma_mr *mr = mr_of(r, leg, key);

	if (!mr || mr->dead)
		return unknown_key(r);
	if (!mr->guard)
		return srdma_relay_refuse(
			r, -EPERM,
			"the region demands no proofs: only a region registered with PROOF has capabilities");
	*out = mr;
	return 0;
}

/* Offsets in a region, for error texts. */
struct bytes {
	unsigned long long lo, hi;
};

static struct bytes bytes_of(const struct srdma_mr *mr,
			     const struct srdma_memtree *tree)
{
	return (struct bytes){ tree->start - mr->base, tree->end - mr->base };
}

static int refuse_outside(struct srdma_relay *r, const struct srdma_mr *mr,
			  uint64_t offset, uint64_t length)
{
	return srdma_relay_refuse(
		r, -ERANGE,
		"%llu bytes from byte %llu of a region of %llu: the range must have at least one byte and lie inside",
		(unsigned long long)length, (unsigned long long)offset,
		(unsigned long long)mr->region->length);
}

/* A range must consist of units that are counted from all.lo. */
static int refuse_uneven(struct srdma_relay *r, uint64_t offset,
			 uint64_t length, uint64_t unit, struct bytes all)
{
	return srdma_relay_refuse(
		r, -EINVAL,
		"%llu bytes from byte %llu: it must start at a multiple of %llu bytes from byte %llu on, ending at one or at byte %llu",
		(unsigned long long)length, (unsigned long long)offset,
		(unsigned long long)unit, all.lo, all.hi);
}

static int refuse_capability(struct srdma_relay *r, const struct srdma_mr *mr,
			     const struct srdma_cap_params *p, int err)
{
	const uint64_t end = p->offset + p->length;
	const struct srdma_memtree *tree;
	struct bytes all;

	if (err != -ERANGE && err != -EINVAL)
		return srdma_relay_refuse(r, err, "no keys for a capability");
	if (p->offset >= end || end > mr->region->length)
		return refuse_outside(r, mr, p->offset, p->length);
	srdma_memguard_find(mr->guard, p->offset, end, &tree);
	all = bytes_of(mr, tree);
	if (err == -EINVAL)
		return refuse_uneven(r, p->offset, p->length,
				     srdma_memtree_granule(tree), all);
	return srdma_relay_refuse(
		r, err,
		"bytes %llu to %llu cross an edge of the revoked range %llu to %llu: the range must lie inside of it or outside",
		(unsigned long long)p->offset, (unsigned long long)end, all.lo,
		all.hi);
}

/* Makes an open capability, or a sealed one if a bearer is named. */
static int make_capability(struct srdma_relay *r, const struct srdma_mr *mr,
			   const struct srdma_cap_params *p,
			   struct srdma_capability *cap)
{
	const struct srdma_capability_scope scope = { p->offset,
						      p->offset + p->length,
						      p->rights };
	int err = srdma_memguard_grant(mr->guard, cap, &scope);

	if (err)
		return err;
	err = srdma_capability_seal(cap, &r->cmac, &p->bearer);
	if (err == -EINVAL) /* no holder and no expiry: it stays open */
		return 0;
	if (err)
		srdma_capability_wipe(cap);
	return err;
}

int srdma_relay_mr_capability(struct srdma_relay *r, struct srdma_leg *leg,
			      const struct srdma_cap_params *params,
			      struct srdma_capability *cap)
{
	struct srdma_mr *mr;
	int err = find_guarded(r, leg, params->key, &mr);

	srdma_capability_wipe(cap);
	if (err)
		return err;
	if (!params->rights || params->rights & ~srdma_rights_of(mr->access))
		return srdma_relay_refuse(
			r, -EACCES,
			"rights %#x: of READ 1, WRITE 2 and ATOMIC 4 the region can grant %#x",
			params->rights, srdma_rights_of(mr->access));
	err = make_capability(r, mr, params, cap);
	srdma_cmac_forget(&r->cmac);
	return err ? refuse_capability(r, mr, params, err) : 0;
}

/* --- revocation -------------------------------------------------------- */

static int is_whole(const struct srdma_revoke_params *p)
{
	return !p->offset && !p->length;
}

static uint64_t block_of(const struct srdma_mr *mr)
{
	const struct srdma_memtree *tree;

	srdma_memguard_find(mr->guard, 0, 1, &tree);
	return UINT64_C(1) << tree->log2_block; /* equal in all its trees */
}

static int refuse_revocation(struct srdma_relay *r, const struct srdma_mr *mr,
			     const struct srdma_revoke_params *p, int err)
{
	const struct bytes all = { 0, mr->region->length };

	switch (err) {
	case -ERANGE:
		return refuse_outside(r, mr, p->offset, p->length);
	case -EINVAL:
		return refuse_uneven(r, p->offset, p->length, block_of(mr),
				     all);
	case -ENOSPC:
		return srdma_relay_refuse(
			r, err,
			"the region has its limit of %u revoked ranges; revoke the whole region",
			SRDMA_MAX_REVOKED);
	case -EDQUOT:
		return srdma_relay_refuse(
			r, err,
			"the leg has its limit of %u revoked ranges in all its regions; revoke a whole region, or deregister one",
			SRDMA_MAX_REVOKED_OF_LEG);
	default:
		return srdma_relay_refuse(r, err, "nothing was revoked: %s",
					  strerror(-err));
	}
}

/* RFC 5042 R6.2.2-2, A6.2.2 */
int srdma_relay_mr_revoke(struct srdma_relay *r, struct srdma_leg *leg,
			  const struct srdma_revoke_params *params,
			  uint64_t *ticket)
{
	struct srdma_memguard_fresh fresh;
	struct srdma_mr *mr;
	int err = find_guarded(r, leg, params->key, &mr);

	if (!err)
		err = refresh(r, &fresh);
	if (err)
		return err;
	if (is_whole(params))
		err = srdma_memguard_revoke_all(mr->guard, &fresh);
	else
		err = srdma_memguard_revoke(mr->guard, params->offset,
					    params->offset + params->length,
					    &fresh);
	if (err)
		return refuse_revocation(r, mr, params, err);
	*ticket = fresh.serial;
	return srdma_relay_mr_revoking(r, leg, params, *ticket) ? -EINPROGRESS
								: 0;
}

int srdma_relay_mr_revoking(struct srdma_relay *r, struct srdma_leg *leg,
			    const struct srdma_revoke_params *params,
			    uint64_t ticket)
{
	const struct srdma_mr *mr = mr_of(r, leg, params->key);

	if (!mr)
		return 0;
	if (is_whole(params))
		return srdma_op_busy(&r->env.ops, mr, ticket, mr->base,
				     mr->region->length);
	return srdma_op_busy(&r->env.ops, mr, ticket, mr->base + params->offset,
			     params->length);
}
