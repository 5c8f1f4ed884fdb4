/*
 * Thread domains and parent domains (ibv_alloc_parent_domain(3)). A parent domain
 * stands for its PD. Its thread domain has no effect: the library takes its locks
 * in any case.
 */
#include <errno.h>
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
		return EBUSY;
	free(td);
	return 0;
}

/* The queues of this library are memory that the worker shares, so that the
 * program's allocators cannot make it. */
static int check(const struct ibv_parent_domain_init_attr *attr)
{
	if (attr->comp_mask & ~(uint32_t)IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		return EOPNOTSUPP;
	return !attr->pd || ((struct verbs_pd *)attr->pd)->parent ? EINVAL : 0;
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
		return EBUSY;
	free(domain);
	return 0;
}
