/* Protection domains and memory regions. A PD is a leg. */
#include <errno.h>
#include <stdlib.h>

#include "verbs/objects.h"
#include "verbs/verbs.h"

/* The context has the PD from now on. 0 or errno. */
static int add(struct verbs_root *root, struct verbs_pd *pd)
{
	int err;

	pthread_mutex_lock(&root->lock);
	err = verbs_worker_watch(root, pd->pd->control);
	if (!err) {
		pd->ibv.handle = ++root->handles;
		pd->next = root->pds;
		root->pds = pd;
	}
	pthread_mutex_unlock(&root->lock);
	return err;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct verbs_root *root = verbs_root_of(context);
	const struct srdma_pd_attr attr = { .ring = VERBS_RING };
	struct verbs_pd *pd = calloc(1, sizeof(*pd));
	int r;

	if (!pd)
		return verbs_null(ENOMEM);
	r = verbs_error(srdma_alloc_pd(&pd->pd, root->device, &attr));
	if (!r) {
		pd->ibv.context = context;
		r = add(root, pd);
	}
	if (!r)
		return &pd->ibv;
	srdma_dealloc_pd(pd->pd);
	free(pd);
	return verbs_null(r);
}

/* 0 or -errno. */
static int take_out(struct verbs_root *root, struct verbs_pd *pd)
{
	struct verbs_pd **at = &root->pds;

	if (pd->users || pd->pd->users)
		return -EBUSY;
	verbs_worker_unwatch(root, pd->pd->control);
	while (*at != pd)
		at = &(*at)->next;
	*at = pd->next;
	return srdma_dealloc_pd(pd->pd);
}

int ibv_dealloc_pd(struct ibv_pd *ibv)
{
	struct verbs_pd *pd = (struct verbs_pd *)ibv;
	struct verbs_root *root = verbs_root_of(ibv->context);
	int r;

	if (pd->parent)
		return verbs_dealloc_parent_domain(pd);
	pthread_mutex_lock(&root->lock);
	r = take_out(root, pd);
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
struct verbs_mr **verbs_mrs_of(struct verbs_pd *pd)
{
	return pd->parent ? &pd->parent->mrs : &pd->mrs;
}

/* The memory of a region, and its rights. */
struct memory {
	struct ibv_pd *pd;
	char *addr;
	size_t length;
	uint64_t iova;
	unsigned access;
};

/* Registers memory, and enters it in the range. 0 or -errno. */
static int reg(struct srdma_mr **made, struct verbs_range *range,
	       const struct memory *m)
{
	const struct verbs_root *root = verbs_root_of(m->pd->context);
	/* Verbs says that a region belongs to the whole PD. */
	const struct srdma_mr_attr attr = { .addr = m->addr,
					    .length = m->length,
					    .access = m->access & KNOWN,
					    .whole_pd = 1,
					    .iova = m->iova,
					    .has_iova = 1 };
	const int may_move = root->policy->map_memory &&
			     root->device->hello.host_kind == SRDMA_PORT_SHM;
	uint64_t offset;
	int fd, r;

	verbs_map_enter(range, m->addr, m->length, may_move);
	fd = verbs_map_fd(range, &offset);
	r = srdma_reg_mr_of_file(made, ((struct verbs_pd *)m->pd)->pd, &attr,
				 fd, offset);
	if (r)
		verbs_map_leave(range);
	else
		((struct verbs_pd *)m->pd)->users++;
	return r;
}

/* The region is that of range `at` from now on. */
static void set(struct verbs_mr *mr, const struct memory *m, unsigned at)
{
	struct srdma_mr_info info;

	srdma_query_mr(mr->mr, &info);
	mr->ibv.pd = m->pd;
	mr->ibv.addr = m->addr;
	mr->ibv.length = m->length;
	mr->ibv.lkey = mr->ibv.rkey = info.key;
	mr->iova = m->iova;
	mr->access = m->access;
	mr->at = at;
	mr->next = *verbs_mrs_of((struct verbs_pd *)m->pd);
	*verbs_mrs_of((struct verbs_pd *)m->pd) = mr;
}

/* The PD of the region has it no longer. */
static void leave(const struct verbs_mr *mr)
{
	struct verbs_pd *pd = (struct verbs_pd *)mr->ibv.pd;
	struct verbs_mr **at = verbs_mrs_of(pd);

	while (*at != mr)
		at = &(*at)->next;
	*at = mr->next;
	pd->users--;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				uint64_t iova, unsigned int access)
{
	const struct memory m = { pd, addr, length, iova, access };
	struct verbs_root *root = verbs_root_of(pd->context);
	struct verbs_mr *mr;
	int err = check_access(access), r;

	if (err)
		return verbs_null(err);
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return verbs_null(ENOMEM);
	mr->ibv.context = pd->context;
	pthread_mutex_lock(&root->lock);
	mr->ibv.handle = ++root->handles;
	r = reg(&mr->mr, &mr->range[0], &m);
	if (!r)
		set(mr, &m, 0);
	pthread_mutex_unlock(&root->lock);
	if (!r)
		return &mr->ibv;
	free(mr);
	return verbs_null(verbs_error(r));
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

int ibv_dereg_mr(struct ibv_mr *ibv)
{
	struct verbs_mr *mr = (struct verbs_mr *)ibv;
	struct verbs_root *root = verbs_root_of(ibv->context);
	int r;

	pthread_mutex_lock(&root->lock);
	r = mr->imports ? -EBUSY : srdma_dereg_mr(mr->mr);
	if (!r) {
		verbs_map_leave(&mr->range[mr->at]);
		leave(mr);
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
	const struct verbs_mr *mr = *verbs_mrs_of((struct verbs_pd *)ibv);

	while (mr && mr->ibv.lkey != sge->lkey)
		mr = mr->next;
	if (!mr || (mr->access & access) != access || !has_bytes(mr, sge))
		return NULL;
	return (char *)mr->ibv.addr + (sge->addr - mr->iova);
}

/* --- registering again ------------------------------------------------------------- */

enum {
	REREG_KNOWN = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD |
		      IBV_REREG_MR_CHANGE_ACCESS,
};

/* 0 or errno. */
static int check_again(const struct ibv_mr *mr, int flags,
		       const struct ibv_pd *pd, const void *addr, size_t length,
		       int access)
{
	if (!flags || flags & ~REREG_KNOWN)
		return EINVAL;
	if (flags & IBV_REREG_MR_CHANGE_PD &&
	    (!pd || pd->context != mr->context))
		return EINVAL;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION && (!addr || !length))
		return EINVAL;
	return flags & IBV_REREG_MR_CHANGE_ACCESS
		       ? check_access((unsigned)access)
		       : 0;
}

/* The former region ends. The new one gets its key, if both have the same leg. 0 or
 * -errno: the former region must not be used. */
static int replace(struct srdma_mr **mr, struct srdma_mr *made, int same_leg)
{
	int r;

	if (same_leg)
		return srdma_replace_mr(mr, made);
	r = srdma_dereg_mr(*mr);
	if (!r)
		*mr = made;
	return r;
}

/* 0, or an enum ibv_rereg_mr_err_code with errno. */
static int reg_again(struct verbs_mr *mr, const struct memory *m)
{
	struct verbs_pd *from = (struct verbs_pd *)mr->ibv.pd,
			*to = (struct verbs_pd *)m->pd;
	const unsigned at = !mr->at;
	struct srdma_mr *made;
	int r = reg(&made, &mr->range[at], m);

	if (r) {
		errno = verbs_error(r);
		return IBV_REREG_MR_ERR_INPUT;
	}
	r = replace(&mr->mr, made, from->pd == to->pd);
	if (r) {
		errno = verbs_error(r);
		/* Without an answer the worker may still do it. */
		if (!srdma_dereg_mr(made))
			to->users--;
		verbs_map_leave(&mr->range[at]);
		return IBV_REREG_MR_ERR_CMD;
	}
	verbs_map_leave(&mr->range[mr->at]);
	leave(mr);
	set(mr, m, at);
	return 0;
}

#undef ibv_rereg_mr
int ibv_rereg_mr(struct ibv_mr *ibv, int flags, struct ibv_pd *pd, void *addr,
		 size_t length, int access)
{
	struct verbs_mr *mr = (struct verbs_mr *)ibv;
	struct verbs_root *root = verbs_root_of(ibv->context);
	struct memory m = { ibv->pd, ibv->addr, ibv->length, mr->iova,
			    mr->access };

	errno = check_again(ibv, flags, pd, addr, length, access);
	if (errno)
		return IBV_REREG_MR_ERR_INPUT;
	if (flags & IBV_REREG_MR_CHANGE_PD)
		m.pd = pd;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		m.addr = addr;
		m.length = length;
		m.iova = (uintptr_t)addr;
	}
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		m.access = (unsigned)access;
	pthread_mutex_lock(&root->lock);
	flags = reg_again(mr, &m);
	pthread_mutex_unlock(&root->lock);
	return flags;
}
