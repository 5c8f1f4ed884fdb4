/* rdma_getaddrinfo(): names become addresses, as by getaddrinfo(3). */
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "rdmacm/objects.h"

static int copy_address(struct sockaddr **to, socklen_t *len,
			const struct sockaddr *from, socklen_t from_len)
{
	*to = malloc(from_len);
	if (!*to)
		return -1;
	memcpy(*to, from, from_len);
	*len = from_len;
	return 0;
}

static int copy_name(char **to, const char *from)
{
	if (!from)
		return 0;
	*to = strdup(from);
	return *to ? 0 : -1;
}

/* The port space of a type of QP, or the type of a port space. */
static int set_types(struct rdma_addrinfo *r, const struct rdma_addrinfo *h)
{
	r->ai_qp_type = h->ai_qp_type;
	r->ai_port_space = h->ai_port_space;
	if (!r->ai_qp_type)
		r->ai_qp_type =
			cm_type_usual((enum rdma_port_space)r->ai_port_space);
	if (!r->ai_port_space)
		r->ai_port_space =
			r->ai_qp_type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
	return cm_type_check((enum ibv_qp_type)r->ai_qp_type,
			     (enum rdma_port_space)r->ai_port_space);
}

/* --- resolution -------------------------------------------------------------------- */

/* 0 or EAI_*; with EAI_SYSTEM errno, as getaddrinfo(3). */
static int find(struct rdma_addrinfo *r, const char *node, const char *service,
		const struct rdma_addrinfo *h)
{
	const int passive = h->ai_flags & RAI_PASSIVE;
	const struct addrinfo hints = {
		.ai_flags =
			(passive ? AI_PASSIVE : 0) |
			(h->ai_flags & RAI_NUMERICHOST ? AI_NUMERICHOST : 0),
		.ai_family = h->ai_family,
		.ai_socktype =
			r->ai_qp_type == IBV_QPT_UD ? SOCK_DGRAM : SOCK_STREAM,
	};
	struct addrinfo *found;
	int e = getaddrinfo(node, service, &hints, &found);

	if (e)
		return e;
	r->ai_family = found->ai_family;
	if (passive)
		e = copy_address(&r->ai_src_addr, &r->ai_src_len,
				 found->ai_addr, found->ai_addrlen) ||
		    copy_name(&r->ai_src_canonname, found->ai_canonname);
	else
		e = copy_address(&r->ai_dst_addr, &r->ai_dst_len,
				 found->ai_addr, found->ai_addrlen) ||
		    copy_name(&r->ai_dst_canonname, found->ai_canonname);
	freeaddrinfo(found);
	return e ? EAI_MEMORY : 0;
}

/* Addresses that the program has. 0 or EAI_MEMORY. */
static int take_hints(struct rdma_addrinfo *r, const struct rdma_addrinfo *h)
{
	int e = 0;

	if (h->ai_src_len && !r->ai_src_addr)
		e = copy_address(&r->ai_src_addr, &r->ai_src_len,
				 h->ai_src_addr, h->ai_src_len);
	if (!e && h->ai_dst_len && !r->ai_dst_addr)
		e = copy_address(&r->ai_dst_addr, &r->ai_dst_len,
				 h->ai_dst_addr, h->ai_dst_len);
	return e ? EAI_MEMORY : 0;
}

/* As rdma_getaddrinfo(3): 0; -1, and errno; or EAI_*. */
static int fill(struct rdma_addrinfo *r, const char *node, const char *service,
		const struct rdma_addrinfo *h)
{
	int e = set_types(r, h);

	if (e)
		return cm_fail(e);
	r->ai_flags = h->ai_flags;
	r->ai_family = h->ai_family;
	if (node || service)
		e = find(r, node, service, h);
	return e ? e : take_hints(r, h);
}

int rdma_getaddrinfo(const char *node, const char *service,
		     const struct rdma_addrinfo *hints,
		     struct rdma_addrinfo **res)
{
	static const struct rdma_addrinfo none;
	struct rdma_addrinfo *r;
	int e;

	if (!node && !service && !hints)
		return cm_fail(EINVAL);
	r = calloc(1, sizeof(*r));
	if (!r)
		return -1;
	e = fill(r, node, service, hints ? hints : &none);
	if (!e) {
		*res = r;
		return 0;
	}
	rdma_freeaddrinfo(r);
	return e;
}

void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	struct rdma_addrinfo *next;

	for (; res; res = next) {
		next = res->ai_next;
		free(res->ai_src_addr);
		free(res->ai_dst_addr);
		free(res->ai_src_canonname);
		free(res->ai_dst_canonname);
		free(res);
	}
}
