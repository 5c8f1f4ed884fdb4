/*
 * Memory regions, as the control socket asks for them (docs/protocol.md 6,
 * 10, 12).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "relay_impl.h"

static int check_region(struct srdma_relay *r, struct srdma_leg *leg,
			const struct srdma_mr_params *params)
{
	const struct srdma_region_params *p = &params->region;

	if (!p->length || p->addr + p->length < p->addr)
		return srdma_relay_refuse(
			r, -EINVAL,
			"a region of %llu bytes at %#llx: it must not be empty or wrap",
			(unsigned long long)p->length,
			(unsigned long long)p->addr);
	if (p->access & ~(uint32_t)SRDMA_ACCESS_ALL)
		return srdma_relay_refuse(
			r, -ENOTSUP,
			"access %#x: LOCAL_WRITE 1, REMOTE_WRITE 2, REMOTE_READ 4 are in this version",
			p->access);
	if ((p->access & SRDMA_ACCESS_REMOTE_WRITE) &&
	    !(p->access & SRDMA_ACCESS_LOCAL_WRITE))
		return srdma_relay_refuse(r, -EINVAL,
					  "REMOTE_WRITE needs LOCAL_WRITE too");
	if (leg->mrs == SRDMA_MAX_MRS)
		return srdma_relay_refuse(r, -EDQUOT,
					  "the leg has its limit of %u regions",
					  SRDMA_MAX_MRS);
	return 0;
}

/* A key that no region has, dead ones included. */
static int new_key(struct srdma_relay *r, uint32_t *key)
{
	int err;

	do {
		err = srdma_relay_random(r, key, sizeof(*key));
	} while (!err && (!*key || srdma_mr_find(&r->mrs, *key)));
	return err;
}

int srdma_relay_mr_reg(struct srdma_relay *r, struct srdma_leg *leg,
		       const struct srdma_mr_params *params, uint32_t *key)
{
	int err = check_region(r, leg, params);
	struct srdma_mr *mr;

	if (!err)
		err = new_key(r, key);
	if (err)
		return err;
	if (leg->down)
		return srdma_relay_refuse(r, -ENOTCONN, "the leg has ended");
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return srdma_relay_refuse(r, -ENOMEM, "no memory for a region");
	r->host->why = NULL;
	err = r->host->ops->region_open(leg->conn, &params->region,
					&mr->region);
	if (err) {
		free(mr);
		return srdma_relay_refuse(r, err, "%s",
					  r->host->why ? r->host->why
						       : strerror(-err));
	}
	mr->leg = leg;
	mr->key = *key;
	mr->access = params->region.access;
	mr->scope_qpn = params->scope_qpn;
	srdma_mr_insert(&r->mrs, mr);
	leg->mrs++;
	return 0;
}

static struct srdma_mr *mr_of(struct srdma_relay *r,
			      const struct srdma_leg *leg, uint32_t key)
{
	struct srdma_mr *mr = srdma_mr_find(&r->mrs, key);

	return mr && mr->leg == leg ? mr : NULL;
}

int srdma_relay_mr_dereg(struct srdma_relay *r, struct srdma_leg *leg,
			 uint32_t key)
{
	struct srdma_mr *mr = mr_of(r, leg, key);

	if (!mr || mr->dead)
		return srdma_relay_refuse(r, -ENOENT,
					  "the leg has no region of this key");
	mr->dead = 1;
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
	srdma_mr_free(&r->mrs, mr);
	leg->mrs--;
	return 0;
}
