/*
 * Multicast groups of an id (docs/run.md 5.1). A group is named by its address, which
 * is its GID. The QP of the id is attached in the call, and the event follows at once.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rdmacm/objects.h"
#include "verbs/group_gid.h"

static struct cm_group **find(struct cm_id *id, const uint8_t *gid)
{
	struct cm_group **at = &id->groups;

	while (*at && memcmp((*at)->gid, gid, sizeof((*at)->gid)) != 0)
		at = &(*at)->next;
	return at;
}

/* 1: the program has not destroyed the QP of the id itself. */
static int has_qp(const struct cm_id *id)
{
	return id->rdma.qp &&
	       srdma_private_link(id->rdma.verbs, id->qp_num) != -ENOENT;
}

/* 0 or errno: of the event. */
static int use(const struct cm_id *id, const struct cm_group *g)
{
	return has_qp(id) ? srdma_private_use_group(id->rdma.qp, g->gid,
						    !g->send_only)
			  : 0;
}

static void detach(const struct cm_id *id, const struct cm_group *g)
{
	union ibv_gid gid;

	memcpy(gid.raw, g->gid, sizeof(gid.raw));
	if (!has_qp(id))
		return;
	if (g->send_only)
		srdma_private_leave_group(id->rdma.qp, g->gid);
	else
		ibv_detach_mcast(id->rdma.qp, &gid, 0);
}

static void leave(struct cm_id *id, struct cm_group **at)
{
	struct cm_group *g = *at;

	if (!g->failed)
		detach(id, g);
	*at = g->next;
	free(g);
}

/* 0 or errno. */
static int join(struct cm_id *id, const struct cm_group *what)
{
	struct cm_group **former = find(id, what->gid), *g;
	int err;

	if (!cm_is_ud(id) || !id->rdma.verbs || (*former && !(*former)->failed))
		return EINVAL;
	if (*former)
		leave(id, former);
	g = malloc(sizeof(*g));
	if (!g)
		return ENOMEM;
	*g = *what;
	g->next = id->groups;
	id->groups = g;
	err = use(id, g);
	g->failed = err != 0;
	err = -cm_report_group(id, g, -err);
	if (err) /* the program does not learn that it has joined */
		leave(id, &id->groups);
	return err;
}

int rdma_join_multicast_ex(struct rdma_cm_id *id,
			   struct rdma_cm_join_mc_attr_ex *attr, void *context)
{
	struct cm_id *own = cm_id_of(id);
	struct cm_group what = { .context = context };

	if (!attr || !(attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS) ||
	    !attr->addr || cm_address_gid(what.gid, attr->addr) ||
	    !verbs_gid_is_group(what.gid))
		return cm_fail(EINVAL);
	if (attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED)
		return cm_fail(EOPNOTSUPP);
	if (attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS) {
		if (attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
			return cm_fail(EINVAL);
		what.send_only = attr->join_flags ==
				 RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
	}
	if (cm_hold(own) || cm_done(own, join(own, &what)))
		return -1;
	return cm_complete(own);
}

int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr,
			void *context)
{
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS,
		.addr = addr,
	};

	return rdma_join_multicast_ex(id, &attr, context);
}

int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr)
{
	struct cm_id *own = cm_id_of(id);
	uint8_t gid[SRDMA_GID_LEN];
	struct cm_group **at;

	if (!addr || cm_address_gid(gid, addr))
		return cm_fail(EINVAL);
	if (cm_hold(own))
		return -1;
	at = find(own, gid);
	if (!*at)
		return cm_done(own, EADDRNOTAVAIL);
	leave(own, at);
	return cm_done(own, 0);
}

void cm_group_leave_all(struct cm_id *id)
{
	while (id->groups)
		leave(id, &id->groups);
}
