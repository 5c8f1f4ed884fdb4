/*
 * Functions of librdmacm that srdma does not have (docs/run.md 5): they fail with
 * EOPNOTSUPP. They are rsockets and enhanced connection establishment.
 *
 * This file includes no header of librdmacm: the parameters do not matter.
 */
#include <errno.h>
#include <stddef.h>
#include <sys/types.h>

/* clang-format off */
#define ABSENT(TYPE, NAME)                                                     \
	TYPE NAME(void);                                                       \
	TYPE NAME(void) { errno = EOPNOTSUPP; return (TYPE)-1; }

ABSENT(int, raccept)
ABSENT(int, rbind)
ABSENT(int, rclose)
ABSENT(int, rconnect)
ABSENT(int, rfcntl)
ABSENT(int, rgetpeername)
ABSENT(int, rgetsockname)
ABSENT(int, rgetsockopt)
ABSENT(off_t, riomap)
ABSENT(int, riounmap)
ABSENT(size_t, riowrite)
ABSENT(int, rlisten)
ABSENT(int, rpoll)
ABSENT(ssize_t, rread)
ABSENT(ssize_t, rreadv)
ABSENT(ssize_t, rrecv)
ABSENT(ssize_t, rrecvfrom)
ABSENT(ssize_t, rrecvmsg)
ABSENT(int, rselect)
ABSENT(ssize_t, rsend)
ABSENT(ssize_t, rsendmsg)
ABSENT(ssize_t, rsendto)
ABSENT(int, rsetsockopt)
ABSENT(int, rshutdown)
ABSENT(int, rsocket)
ABSENT(ssize_t, rwrite)
ABSENT(ssize_t, rwritev)

ABSENT(int, rdma_get_remote_ece)
ABSENT(int, rdma_reject_ece)
ABSENT(int, rdma_set_local_ece)
