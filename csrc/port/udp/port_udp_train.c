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

uint32_t srdma_udp_train_length(const struct srdma_udp_tx *tx, uint32_t at,
				uint32_t end)
{
	const size_t each = tx->iov[at].iov_len;
	size_t len = each, all = each;
	uint32_t next = at + 1;

	if (end > at + SRDMA_UDP_TRAIN)
		end = at + SRDMA_UDP_TRAIN;
	/* a shorter datagram is the last one */
	for (; next < end && len == each; next++) {
		len = tx->iov[next].iov_len;
		all += len;
		if (len > each || all > SRDMA_UDP_TRAIN_BYTES ||
		    !srdma_udp_addr_same(&tx->to[at], &tx->to[next]))
			break;
	}
	return next - at;
}

void srdma_udp_train_mark(struct msghdr *msg, union srdma_udp_control *control)
{
	const uint16_t size = (uint16_t)msg->msg_iov->iov_len;
	struct cmsghdr *c = &control->align;

	*c = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(size)),
			       .cmsg_level = SOL_UDP,
			       .cmsg_type = UDP_SEGMENT };
	memcpy(CMSG_DATA(c), &size, sizeof(size));
	msg->msg_control = control;
	msg->msg_controllen = CMSG_SPACE(sizeof(size));
}
