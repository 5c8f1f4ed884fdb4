#include "host/objects.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "host/error.h"

enum { DEFAULT_LOG2_BLOCK = 12, DEFAULT_DEPTH = 48 };

static int check(const struct srdma_pd *pd, const struct srdma_mr_attr *a)
{
	const int proof = !!(a->access & SRDMA_ACCESS_PROOF);

	if (!a->length)
		return srdma_error_set(-EINVAL, "a region of 0 bytes: it must "
						"have at least one");
	if (a->qp && a->qp->pd != pd)
		return srdma_error_set(-EINVAL, "the QP is of another PD than "
						"the region");
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
	p->region.addr = (uintptr_t)mr->info.addr;
	p->region.length = mr->info.length;
	p->region.access = a->access;
	p->scope_qpn = a->qp ? a->qp->made.qp.qpn : 0;
	if (!(a->access & SRDMA_ACCESS_PROOF))
		return;
	p->log2_block = a->block_size ? (uint8_t)__builtin_ctz(a->block_size)
				      : DEFAULT_LOG2_BLOCK;
	p->depth = a->depth_limit ? a->depth_limit : DEFAULT_DEPTH;
}

/* Registers mr->info. fd: memfd of the region, or -1. */
static int reg(struct srdma_mr *mr, const struct srdma_mr_attr *a, int fd)
{
	const struct srdma_socket_fds out = { .fd = { fd }, .n = fd >= 0 };
	struct srdma_ctl_msg m = { 0 };
	int r;

	fill(&m, mr, a);
	r = srdma_pd_call(mr->pd, &m, &out);
	if (r)
		return r;
	mr->info.key = m.key;
	mr->access = a->access;
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
	mr->info.addr = a->addr;
	mr->info.length = a->length;
	return mr;
}

static void free_mr(struct srdma_mr *mr)
{
	if (mr->allocated)
		srdma_leg_shm_region_free(mr->info.addr, mr->info.length);
	free(mr);
}

static int alloc_and_reg(struct srdma_mr *mr, const struct srdma_mr_attr *a)
{
	int fd, r = srdma_leg_shm_region(a->length, &fd, &mr->info.addr);

	if (r)
		return srdma_error_set(r, "%zu bytes of memory: %s", a->length,
				       strerror(-r));
	mr->allocated = 1;
	r = reg(mr, a, fd);
	close(fd);
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
	/* Needed where Yama restricts ptrace; fails where there is no Yama, and
	 * then it is not needed. */
	if (!pd->device->restricted)
		prctl(PR_SET_PTRACER,
		      (unsigned long)srdma_control_pid(pd->control), 0UL, 0UL,
		      0UL);
	r = reg(made, attr, -1);
	if (r)
		free_mr(made);
	else
		*mr = made;
	return r;
}

int srdma_dereg_mr(struct srdma_mr *mr)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_DEREG_MR };
	int r;

	if (!mr)
		return 0;
	m.dereg_mr.leg = mr->pd->number;
	m.dereg_mr.key = mr->info.key;
	r = srdma_pd_call(mr->pd, &m, NULL);
	/* -ENOENT: a former call has timed out, and its request succeeded */
	if (r && r != -ENOTCONN && !(mr->deregistering && r == -ENOENT)) {
		mr->deregistering = 1;
		return r;
	}
	mr->pd->users--;
	free_mr(mr);
	return 0;
}

void srdma_query_mr(const struct srdma_mr *mr, struct srdma_mr_info *info)
{
	*info = mr->info;
}
