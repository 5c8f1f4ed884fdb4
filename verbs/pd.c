/* Protection domains and memory regions. A PD is a leg. */
#include <errno.h>
#include <stdlib.h>

#include "verbs/objects.h"
#include "verbs/verbs.h"

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct verbs_root *root = verbs_root_of(context);
	const struct srdma_pd_attr attr = { .ring = VERBS_RING };
	struct verbs_pd *pd = calloc(1, sizeof(*pd));
	int r;

	if (!pd)
		return verbs_null(ENOMEM);
	r = srdma_alloc_pd(&pd->pd, root->device, &attr);
	if (r) {
		free(pd);
		return verbs_null(verbs_error(r));
	}
	pd->ibv.context = context;
	pthread_mutex_lock(&root->lock);
	pd->next = root->pds;
	root->pds = pd;
	pthread_mutex_unlock(&root->lock);
	return &pd->ibv;
}

int ibv_dealloc_pd(struct ibv_pd *ibv)
{
	struct verbs_pd *pd = (struct verbs_pd *)ibv, **at;
	struct verbs_root *root = verbs_root_of(ibv->context);
	int r = -EBUSY;

	if (pd->parent)
		return verbs_dealloc_parent_domain(pd);
	pthread_mutex_lock(&root->lock);
	if (!pd->users)
		r = srdma_dealloc_pd(pd->pd);
	if (!r) {
		at = &root->pds;
		while (*at != pd)
			at = &(*at)->next;
		*at = pd->next;
	}
	pthread_mutex_unlock(&root->lock);
	if (!r)
		free(pd);
	return verbs_result(verbs_error(r));
}

/* --- regions --------------------------------------------------------------------- */

enum {
	KNOWN = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
		IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
};

/* The rights of libsrdma have the values of verbs. */
_Static_assert((int)SRDMA_ACCESS_LOCAL_WRITE == (int)IBV_ACCESS_LOCAL_WRITE &&
		       (int)SRDMA_ACCESS_REMOTE_WRITE ==
			       (int)IBV_ACCESS_REMOTE_WRITE &&
		       (int)SRDMA_ACCESS_REMOTE_READ ==
			       (int)IBV_ACCESS_REMOTE_READ &&
		       (int)SRDMA_ACCESS_REMOTE_ATOMIC ==
			       (int)IBV_ACCESS_REMOTE_ATOMIC,
	       "access rights");

/* 0, or errno: IBA 10.6.6.3.1 forbids to let a peer write what the program may
 * not. */
static int check_access(unsigned access)
{
	const unsigned writes =
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

	if (access & ~(unsigned)(KNOWN | IBV_ACCESS_OPTIONAL_RANGE))
		return EOPNOTSUPP;
	return access & writes && !(access & IBV_ACCESS_LOCAL_WRITE) ? EINVAL
								     : 0;
}

/* A PD and its parent domains have the same regions. */
static struct verbs_mr **mrs_of(struct verbs_pd *pd)
{
	return pd->parent ? &pd->parent->mrs : &pd->mrs;
}

static int reg(struct verbs_mr *mr, uint64_t iova, unsigned access)
{
	struct verbs_pd *pd = (struct verbs_pd *)mr->ibv.pd;
	struct verbs_root *root = verbs_root_of(mr->ibv.context);
	/* Verbs says that a region belongs to the whole PD. */
	const struct srdma_mr_attr attr = { .addr = mr->ibv.addr,
					    .length = mr->ibv.length,
					    .access = access & KNOWN,
					    .whole_pd = 1,
					    .iova = iova,
					    .has_iova = 1 };
	const int may_move = root->policy->map_memory &&
			     root->device->hello.host_kind == SRDMA_PORT_SHM;
	struct srdma_mr_info info;
	uint64_t offset;
	int fd, r;

	pthread_mutex_lock(&root->lock);
	verbs_map_enter(&mr->range, mr->ibv.addr, mr->ibv.length, may_move);
	fd = verbs_map_fd(&mr->range, &offset);
	r = srdma_reg_mr_of_file(&mr->mr, pd->pd, &attr, fd, offset);
	if (r)
		verbs_map_leave(&mr->range);
	if (!r) {
		srdma_query_mr(mr->mr, &info);
		mr->ibv.lkey = mr->ibv.rkey = info.key;
		mr->iova = iova;
		mr->access = access;
		mr->next = *mrs_of(pd);
		*mrs_of(pd) = mr;
		pd->users++;
	}
	pthread_mutex_unlock(&root->lock);
	return verbs_error(r);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				uint64_t iova, unsigned int access)
{
	struct verbs_mr *mr;
	int err = check_access(access);

	if (err)
		return verbs_null(err);
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return verbs_null(ENOMEM);
	mr->ibv.context = pd->context;
	mr->ibv.pd = pd;
	mr->ibv.addr = addr;
	mr->ibv.length = length;
	err = reg(mr, iova, access);
	if (!err)
		return &mr->ibv;
	free(mr);
	return verbs_null(err);
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			  int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr,
				(unsigned)access);
}

#undef ibv_reg_mr_iova
struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
			       uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned)access);
}

static void forget(struct verbs_pd *pd, const struct verbs_mr *mr)
{
	struct verbs_mr **at = mrs_of(pd);

	while (*at != mr)
		at = &(*at)->next;
	*at = mr->next;
	pd->users--;
}

int ibv_dereg_mr(struct ibv_mr *ibv)
{
	struct verbs_mr *mr = (struct verbs_mr *)ibv;
	struct verbs_root *root = verbs_root_of(ibv->context);
	struct verbs_pd *pd = (struct verbs_pd *)ibv->pd;
	int r;

	pthread_mutex_lock(&root->lock);
	r = srdma_dereg_mr(mr->mr);
	if (!r) {
		verbs_map_leave(&mr->range);
		forget(pd, mr);
	}
	pthread_mutex_unlock(&root->lock);
	if (!r)
		free(mr);
	return verbs_result(verbs_error(r));
}

static int has_bytes(const struct verbs_mr *mr, const struct ibv_sge *sge)
{
	const uint64_t at = sge->addr - mr->iova;

	return sge->addr >= mr->iova && at <= mr->ibv.length &&
	       sge->length <= mr->ibv.length - at;
}

void *verbs_mr_at(struct ibv_pd *ibv, const struct ibv_sge *sge,
		  unsigned access)
{
	const struct verbs_mr *mr = *mrs_of((struct verbs_pd *)ibv);

	while (mr && mr->ibv.lkey != sge->lkey)
		mr = mr->next;
	if (!mr || (mr->access & access) != access || !has_bytes(mr, sge))
		return NULL;
	return (char *)mr->ibv.addr + (sge->addr - mr->iova);
}
