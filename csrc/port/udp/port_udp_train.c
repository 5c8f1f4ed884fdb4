#include "port/udp/port_udp_impl.h"

#include <netinet/udp.h>
#include <string.h>

uint32_t srdma_udp_train_size(struct mmsghdr *msg)
{
	struct msghdr *m = &msg->msg_hdr;
	struct cmsghdr *c = CMSG_FIRSTHDR(m);
	int size = 0;

	while (c && (c->cmsg_level != SOL_UDP || c->cmsg_type != UDP_GRO))
		c = CMSG_NXTHDR(m, c);
	if (c && c->cmsg_len == CMSG_LEN(sizeof(size)) &&
	    !(m->msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		memcpy(&size, CMSG_DATA(c), sizeof(size));
	return size > 0 && (uint32_t)size < msg->msg_len ? (uint32_t)size
							 : msg->msg_len;
}
