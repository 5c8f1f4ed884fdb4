/* GIDs of multicast groups (IBA 4.1.1). */
#ifndef VERBS_GROUP_GID_H
#define VERBS_GROUP_GID_H

#include <stdint.h>
#include <string.h>

enum { VERBS_GROUP_QPN = 0xffffff }; /* that a message for a group names */

/* 1: ff00::/8, or an IPv4-mapped address of 224.0.0.0/4, as RoCEv2 has them. */
static inline int verbs_gid_is_group(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return gid[0] == 0xff ||
	       (!memcmp(gid, mapped, sizeof(mapped)) && gid[12] >> 4 == 0xe);
}

#endif
