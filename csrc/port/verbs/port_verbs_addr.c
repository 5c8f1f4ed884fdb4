#include "port/verbs/port_verbs_impl.h"

#include <errno.h>
#include <netinet/in.h>

enum { MAX_GIDS = 256 };

static const struct in6_addr *ip_of(const struct ibv_gid_entry *entry)
{
	return (const struct in6_addr *)(const void *)entry->gid.raw;
}

/* Read the GIDs of RoCE v2. Returns their number or -errno. */
static ssize_t read_gids(struct ibv_context *context,
			 struct ibv_gid_entry gids[MAX_GIDS])
{
	ssize_t i, kept = 0,
		   n = ibv_query_gid_table(context, gids, MAX_GIDS, 0);

	for (i = 0; i < n; ++i)
		if (gids[i].gid_type == IBV_GID_TYPE_ROCE_V2)
			gids[kept++] = gids[i];
	return n < 0 ? n : kept;
}

static int is_ipv4(const struct in6_addr *ip)
{
	return IN6_IS_ADDR_V4MAPPED(ip);
}

static int is_global(const struct in6_addr *ip)
{
	return !is_ipv4(ip) && !IN6_IS_ADDR_LINKLOCAL(ip) &&
	       !IN6_IS_ADDR_MULTICAST(ip) && !IN6_IS_ADDR_UNSPECIFIED(ip);
}

int srdma_verbs_addr_of_device(struct ibv_context *context,
			       struct sockaddr_storage *out)
{
	static int (*const usable[])(const struct in6_addr *) = { is_ipv4,
								  is_global };
	struct ibv_gid_entry gids[MAX_GIDS];
	ssize_t i, n = read_gids(context, gids);

	if (n < 0)
		return (int)n;
	for (size_t kind = 0; kind < 2; ++kind) {
		for (i = 0; i < n; ++i) {
			if (!usable[kind](ip_of(&gids[i])))
				continue;
			srdma_addr_of_gid(out, ip_of(&gids[i]));
			return 0;
		}
	}
	return -EADDRNOTAVAIL;
}

void srdma_verbs_addr_scope(struct ibv_context *context,
			    struct sockaddr_storage *addr)
{
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)addr;
	struct ibv_gid_entry gids[MAX_GIDS];
	ssize_t i, n;

	if (!srdma_addr_is_link_local(addr))
		return;
	n = read_gids(context, gids);
	for (i = 0; i < n; ++i)
		if (IN6_ARE_ADDR_EQUAL(ip_of(&gids[i]), &six->sin6_addr))
			six->sin6_scope_id = gids[i].ndev_ifindex;
}

void srdma_verbs_addr_same_scope(struct sockaddr_storage *addr,
				 const struct sockaddr_storage *like)
{
	if (srdma_addr_is_link_local(addr) && srdma_addr_is_link_local(like))
		((struct sockaddr_in6 *)addr)->sin6_scope_id =
			((const struct sockaddr_in6 *)like)->sin6_scope_id;
}
