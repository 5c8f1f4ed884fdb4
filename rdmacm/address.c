/* Addresses of RDMA-CM are IP addresses, which are GIDs here (docs/run.md 5). */
#include <errno.h>
#include <string.h>

#include "rdmacm/objects.h"

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

int cm_address_gid(uint8_t gid[SRDMA_GID_LEN], const struct sockaddr *a)
{
	if (a->sa_family == AF_INET6) {
		memcpy(gid, &((const struct sockaddr_in6 *)a)->sin6_addr,
		       SRDMA_GID_LEN);
		return 0;
	}
	if (a->sa_family != AF_INET)
		return -EAFNOSUPPORT;
	memcpy(gid, mapped, sizeof(mapped));
	memcpy(gid + sizeof(mapped), &((const struct sockaddr_in *)a)->sin_addr,
	       4);
	return 0;
}

void cm_address_of(struct sockaddr_storage *a, const uint8_t gid[SRDMA_GID_LEN],
		   uint16_t port)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)a;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)a;

	memset(a, 0, sizeof(*a));
	if (!memcmp(gid, mapped, sizeof(mapped))) {
		v4->sin_family = AF_INET;
		memcpy(&v4->sin_addr, gid + sizeof(mapped), 4);
	} else {
		v6->sin6_family = AF_INET6;
		memcpy(&v6->sin6_addr, gid, SRDMA_GID_LEN);
	}
	cm_address_set_port((struct sockaddr *)a, port);
}

socklen_t cm_address_len(const struct sockaddr *a)
{
	return a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					: sizeof(struct sockaddr_in);
}

/* Both families have the port at the same place. */
_Static_assert(offsetof(struct sockaddr_in, sin_port) ==
		       offsetof(struct sockaddr_in6, sin6_port),
	       "place of the port");

uint16_t cm_address_port(const struct sockaddr *a)
{
	return ntohs(((const struct sockaddr_in *)a)->sin_port);
}

void cm_address_set_port(struct sockaddr *a, uint16_t port)
{
	((struct sockaddr_in *)a)->sin_port = htons(port);
}

int cm_address_any(const struct sockaddr *a)
{
	static const uint8_t zero[SRDMA_GID_LEN];
	uint8_t gid[SRDMA_GID_LEN];

	if (cm_address_gid(gid, a))
		return 0;
	return !memcmp(gid, zero, sizeof(zero)) ||
	       (!memcmp(gid, mapped, sizeof(mapped)) &&
		!memcmp(gid + sizeof(mapped), zero, 4));
}
