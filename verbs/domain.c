/*
 * Thread domains and parent domains (ibv_alloc_parent_domain(3)). A parent domain
 * stands for its PD. Its thread domain has no effect: the library takes its locks
 * in any case. Its allocator gives the memory that a QP needs in the program; queues
 * are memory that the worker shares.
 */
#include <errno.h>
#include <stdalign.h>
#include <stddef.h>
#include <stdlib.h>

#include "verbs/objects.h"
#include "verbs/verbs.h"

struct ibv_td *verbs_alloc_td(struct ibv_context *context,
			      struct ibv_td_init_attr *attr)
{
	struct verbs_td *td;

	if (attr->comp_mask)
		return verbs_null(EOPNOTSUPP);
	td = calloc(1, sizeof(*td));
	if (!td)
		return verbs_null(ENOMEM);
	td->ibv.context = context;
	return &td->ibv;
}

int verbs_dealloc_td(struct ibv_td *ibv)
{
	struct verbs_td *td = (struct verbs_td *)ibv;
	struct verbs_root *root = verbs_root_of(ibv->context);
	unsigned users;

	pthread_mutex_lock(&root->lock);
	users = td->users;
	pthread_mutex_unlock(&root->lock);
	if (users)
		return verbs_result(EBUSY);
	free(td);
	return 0;
}

/* --- memory ---------------------------------------------------------------------- */

enum {
	OF_QP = 1 /* a resource type; the upper 32 bits are RDMA_DRIVER_UNKNOWN */
};

void *verbs_domain_alloc(struct verbs_pd *pd, size_t len, int *of_program)
{
	const struct ibv_parent_domain_init_attr *a = &pd->allocators;
	void *memory = IBV_ALLOCATOR_USE_DEFAULT;

	if (a->alloc)
		memory = a->alloc(&pd->ibv, a->pd_context, len,
				  alignof(max_align_t), OF_QP);
	*of_program = memory != IBV_ALLOCATOR_USE_DEFAULT;
	return *of_program ? memory : calloc(1, len);
}

void verbs_domain_free(struct verbs_pd *pd, void *memory, int of_program)
{
	const struct ibv_parent_domain_init_attr *a = &pd->allocators;

	if (!of_program)
		free(memory);
	else if (memory)
		a->free(&pd->ibv, a->pd_context, memory, OF_QP);
}

/* --- parent domains ---------------------------------------------------------------- */

static int check(const struct ibv_parent_domain_init_attr *attr)
{
	const uint32_t mask = attr->comp_mask;

	if (mask & ~(uint32_t)(IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			       IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT))
		return EOPNOTSUPP;
	if (mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS &&
	    !(attr->alloc && attr->free))
		return EINVAL;
	return !attr->pd || ((struct verbs_pd *)attr->pd)->parent ? EINVAL : 0;
}

/* The fields that the program has set. */
static void keep(struct ibv_parent_domain_init_attr *to,
		 const struct ibv_parent_domain_init_attr *from)
{
	if (from->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) {
		to->alloc = from->alloc;
		to->free = from->free;
	}
	if (from->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		to->pd_context = from->pd_context;
}

struct ibv_pd *
verbs_alloc_parent_domain(struct ibv_context *context,
			  struct ibv_parent_domain_init_attr *attr)
{
	struct verbs_root *root = verbs_root_of(context);
	struct verbs_pd *domain;
	int err = check(attr);

	if (err)
		return verbs_null(err);
	domain = calloc(1, sizeof(*domain));
	if (!domain)
		return verbs_null(ENOMEM);
	domain->ibv.context = context;
	domain->parent = (struct verbs_pd *)attr->pd;
	domain->pd = domain->parent->pd;
	domain->td = (struct verbs_td *)attr->td;
	keep(&domain->allocators, attr);
	pthread_mutex_lock(&root->lock);
	domain->parent->users++;
	if (domain->td)
		domain->td->users++;
	pthread_mutex_unlock(&root->lock);
	return &domain->ibv;
}

int verbs_dealloc_parent_domain(struct verbs_pd *domain)
{
	struct verbs_root *root = verbs_root_of(domain->ibv.context);
	unsigned users;

	pthread_mutex_lock(&root->lock);
	users = domain->users;
	if (!users) {
		domain->parent->users--;
		if (domain->td)
			domain->td->users--;
	}
	pthread_mutex_unlock(&root->lock);
	if (users)
		return verbs_result(EBUSY);
	free(domain);
	return 0;
}
