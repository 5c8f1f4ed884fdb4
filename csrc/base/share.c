#include "base/share.h"

#include <stddef.h>

void srdma_share_take(struct srdma_share_groups *groups,
		      struct srdma_share *holder)
{
	struct srdma_share_group *group = holder->group;

	if (!group->count++)
		LIST_INSERT_HEAD(groups, group, next);
	if (!holder->count++)
		LIST_INSERT_HEAD(&group->holders, holder, next);
}

void srdma_share_give(struct srdma_share *holder)
{
	if (!--holder->count)
		LIST_REMOVE(holder, next);
	if (!--holder->group->count)
		LIST_REMOVE(holder->group, next);
}

/* The group that holds the most; NULL: none holds anything. */
static struct srdma_share_group *
largest_group(const struct srdma_share_groups *groups)
{
	struct srdma_share_group *group, *largest = NULL;

	LIST_FOREACH(group, groups, next) {
		if (!largest || group->count > largest->count)
			largest = group;
	}
	return largest;
}

static struct srdma_share *largest_of(const struct srdma_share_group *group)
{
	struct srdma_share *holder, *largest = NULL;

	LIST_FOREACH(holder, &group->holders, next) {
		if (!largest || holder->count > largest->count)
			largest = holder;
	}
	return largest;
}

struct srdma_share *
srdma_share_yielding(const struct srdma_share_groups *groups,
		     const struct srdma_share *claimant)
{
	const struct srdma_share_group *own = claimant->group;
	const struct srdma_share_group *group = largest_group(groups);
	struct srdma_share *holder;

	if (group && group != own && group->count > own->count + 1)
		return largest_of(group);
	holder = largest_of(own);
	return holder && holder->count > claimant->count + 1 ? holder : NULL;
}
