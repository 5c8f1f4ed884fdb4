/*
 * Shares of a pool: who holds how many of its places. Holders belong to groups.
 * When no place is free, the largest holder of the largest group gives way to
 * one that holds less. Therefore no group can take the share of others, however
 * many holders a group has, and a pool without need has no limit.
 */
#ifndef SRDMA_SHARE_H
#define SRDMA_SHARE_H

#include <stdint.h>
#include <sys/queue.h>

struct srdma_share_group;

/* A holder. All zero, except group. */
struct srdma_share {
	LIST_ENTRY(srdma_share) next; /* of the holders of the group */
	struct srdma_share_group *group;
	uint32_t count; /* places held */
};

/* All zero: the group holds nothing. */
struct srdma_share_group {
	LIST_ENTRY(srdma_share_group) next; /* of the groups of the pool */
	LIST_HEAD(, srdma_share) holders;   /* with count > 0 */
	uint32_t count;			    /* of all of them */
};

/* The groups that hold something of a pool. */
LIST_HEAD(srdma_share_groups, srdma_share_group);

/* The holder took a place. */
void srdma_share_take(struct srdma_share_groups *groups,
		      struct srdma_share *holder);
/* The holder gave a place back. */
void srdma_share_give(struct srdma_share *holder);
/*
 * The holder that gives a place to `claimant`; NULL: none has to. It is of
 * another group if that holds at least 2 places more than the claimant's group,
 * else of the same group if it holds at least 2 places more than the claimant.
 * Examines each group and each holder of one group.
 */
struct srdma_share *
srdma_share_yielding(const struct srdma_share_groups *groups,
		     const struct srdma_share *claimant);

#endif
