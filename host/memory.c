#include "host/objects.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/error.h"
#include "memory/rights.h"

enum { DEFAULT_LOG2_BLOCK = 12, DEFAULT_DEPTH = 48 };

static int check_scope(const struct srdma_pd *pd, const struct srdma_mr_attr *a)
{
	const int scopes = !!a->qp + !!a->identity + !!a->whole_pd;

	if (a->qp && a->qp->pd != pd)
		return srdma_error_set(-EINVAL, "the QP is of another PD than "
						"the region");
	if (scopes > 1)
		return srdma_error_set(-EINVAL,
				       "qp, identity and whole_pd are three "
				       "scopes: give one");
	if (a->identity &&
	    (!*a->identity || strlen(a->identity) >= SRDMA_IDENTITY_LEN))
		return srdma_error_set(-EINVAL,
				       "identity: it must have 1 to %d bytes",
				       SRDMA_IDENTITY_LEN - 1);
	if (!scopes && (a->access & SRDMA_RIGHTS_REMOTE) &&
	    !(a->access & SRDMA_ACCESS_PROOF))
		return srdma_error_set(
			-EINVAL,
			"access has remote rights: give the qp or the identity "
			"that may use the region, or whole_pd for all peers of "
			"the PD");
	return 0;
}

static int check(const struct srdma_pd *pd, const struct srdma_mr_attr *a)
{
	const int proof = !!(a->access & SRDMA_ACCESS_PROOF);
	int r;

	if (!a->length)
		return srdma_error_set(-EINVAL, "a region of 0 bytes: it must "
						"have at least one");
	r = check_scope(pd, a);
	if (r)
		return r;
	if (!proof && (a->block_size || a->depth_limit))
		return srdma_error_set(-EINVAL,
				       "block_size and depth_limit "
				       "are for SRDMA_ACCESS_PROOF only");
	if (a->block_size & (a->block_size - 1))
		return srdma_error_set(-EINVAL,
				       "block_size %u: it must be a "
				       "power of two",
				       a->block_size);
	return 0;
}

static void fill(struct srdma_ctl_msg *m, const struct srdma_mr *mr,
		 const struct srdma_mr_attr *a)
{
	struct srdma_mr_params *p = &m->reg_mr.mr;

	m->kind = SRDMA_CTL_REG_MR;
	m->reg_mr.leg = mr->pd->number;
	p->region.addr = (uintptr_t)mr->memory.addr;
	p->region.length = mr->memory.length;
	p->region.access = a->access;
	p->region.host_rkey = mr->memory.rkey;
	p->region.fd_offset = mr->memory.offset;
	p->scope_qpn = a->qp ? a->qp->made.qp.qpn : 0;
	if (a->has_iova)
		p->bias = p->region.addr - a->iova;
	if (a->identity)
		strcpy(m->reg_mr.identity, a->identity);
	if (!(a->access & SRDMA_ACCESS_PROOF))
		return;
	p->log2_block = a->block_size ? (uint8_t)__builtin_ctz(a->block_size)
				      : DEFAULT_LOG2_BLOCK;
	p->depth = a->depth_limit ? a->depth_limit : DEFAULT_DEPTH;
}

/* Registers mr->memory with the NIC, then with the worker. */
static int reg(struct srdma_mr *mr, const struct srdma_mr_attr *a)
{
	const struct srdma_socket_fds out = { .fd = { mr->memory.fd },
					      .n = mr->memory.fd >= 0 };
	struct srdma_host_leg *leg = mr->pd->leg;
	struct srdma_ctl_msg m = { 0 };
	int r = leg->ops->reg(leg, &mr->memory);

	if (r)
		return r;
	fill(&m, mr, a);
	r = srdma_pd_call(mr->pd, &m, &out);
	if (r) {
		leg->ops->dereg(leg, &mr->memory);
		return r;
	}
	mr->key = m.key;
	mr->pd->users++;
	return 0;
}

static struct srdma_mr *new_mr(struct srdma_pd *pd,
			       const struct srdma_mr_attr *a)
{
	struct srdma_mr *mr = calloc(1, sizeof(*mr));

	if (!mr) {
		srdma_error_set(-ENOMEM, "no memory");
		return NULL;
	}
	mr->pd = pd;
	mr->memory = (struct srdma_host_leg_region){ .addr = a->addr,
						     .length = a->length,
						     .access = a->access,
						     .fd = -1 };
	return mr;
}

static void free_mr(struct srdma_mr *mr)
{
	if (mr->allocated)
		mr->pd->leg->ops->free(&mr->memory);
	free(mr);
}

static int alloc_and_reg(struct srdma_mr *mr, const struct srdma_mr_attr *a)
{
	int r = mr->pd->leg->ops->alloc(&mr->memory);

	if (r)
		return srdma_error_set(r, "%zu bytes of memory: %s", a->length,
				       strerror(-r));
	mr->allocated = 1;
	r = reg(mr, a);
	if (mr->memory.fd >= 0)
		close(mr->memory.fd);
	return r;
}

int srdma_alloc_mr(struct srdma_mr **mr, struct srdma_pd *pd,
		   const struct srdma_mr_attr *attr)
{
	struct srdma_mr *made;
	int r = check(pd, attr);

	*mr = NULL;
	if (!r && attr->addr)
		r = srdma_error_set(-EINVAL,
				    "addr must be NULL: "
				    "srdma_reg_mr() registers existing "
				    "memory");
	if (r)
		return r;
	made = new_mr(pd, attr);
	if (!made)
		return -ENOMEM;
	r = alloc_and_reg(made, attr);
	if (r)
		free_mr(made);
	else
		*mr = made;
	return r;
}

int srdma_reg_mr(struct srdma_mr **mr, struct srdma_pd *pd,
		 const struct srdma_mr_attr *attr)
{
	return srdma_reg_mr_of_file(mr, pd, attr, -1, 0);
}

int srdma_reg_mr_of_file(struct srdma_mr **mr, struct srdma_pd *pd,
			 const struct srdma_mr_attr *attr, int fd,
			 uint64_t offset)
{
	struct srdma_mr *made;
	int r = check(pd, attr);

	*mr = NULL;
	if (!r && !attr->addr)
		r = srdma_error_set(-EINVAL, "addr is NULL: srdma_alloc_mr() "
					     "allocates memory");
	if (r)
		return r;
	made = new_mr(pd, attr);
	if (!made)
		return -ENOMEM;
	made->memory.fd = fd;
	made->memory.offset = offset;
	r = reg(made, attr);
	if (r)
		free_mr(made);
	else
		*mr = made;
	return r;
}

/* RFC 5042 R6.2.2-1, RA-1 */
int srdma_withdraw_mr(struct srdma_mr *mr)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_WITHDRAW };

	m.dereg_mr.leg = mr->pd->number;
	m.dereg_mr.key = mr->key;
	return srdma_pd_call(mr->pd, &m, NULL);
}

/* The worker has no such region any more. */
static void forget(struct srdma_mr *mr)
{
	mr->pd->leg->ops->dereg(mr->pd->leg, &mr->memory);
	mr->pd->users--;
	free_mr(mr);
}

int srdma_replace_mr(struct srdma_mr **mr, struct srdma_mr *made)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_REPLACE };
	int r;

	m.replace = (struct srdma_ctl_replace){ .leg = made->pd->number,
						.key = (*mr)->key,
						.other = made->key };
	r = srdma_pd_call(made->pd, &m, NULL);
	if (r) {
		(*mr)->deregistering = 1;
		return r;
	}
	made->key = (*mr)->key;
	forget(*mr);
	*mr = made;
	return 0;
}

int srdma_dereg_mr(struct srdma_mr *mr)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_DEREG_MR };
	int r;

	if (!mr)
		return 0;
	m.dereg_mr.leg = mr->pd->number;
	m.dereg_mr.key = mr->key;
	r = srdma_pd_call(mr->pd, &m, NULL);
	/* -ENOENT: a former call has timed out, and its request succeeded */
	if (r && r != -ENOTCONN && !(mr->deregistering && r == -ENOENT)) {
		mr->deregistering = 1;
		return r;
	}
	forget(mr);
	return 0;
}

void srdma_query_mr(const struct srdma_mr *mr, struct srdma_mr_info *info)
{
	*info = (struct srdma_mr_info){ .addr = mr->memory.addr,
					.length = mr->memory.length,
					.key = mr->key };
}
