#include "port/shm/doorbell.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { RINGS = 64 }; /* received at a time */

static _Atomic uint32_t *flag(const struct srdma_shm *page)
{
	return (_Atomic uint32_t *)(void *)page->at;
}

int srdma_doorbell_create(struct srdma_doorbell *bell)
{
	int r = srdma_shm_create(&bell->page, "srdma-bell", SRDMA_PAGE);

	if (r < 0)
		return r;
	bell->fd = r;
	/*
	 * After this seal no process can create a writable mapping; the
	 * sleeper's own mapping exists already.
	 */
	if (fcntl(bell->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE)) {
		r = -errno;
		srdma_doorbell_destroy(bell);
		return r;
	}
	return 0;
}

void srdma_doorbell_destroy(struct srdma_doorbell *bell)
{
	if (!bell->page.at)
		return;
	srdma_shm_unmap(&bell->page);
	close(bell->fd);
}

void srdma_doorbell_arm(struct srdma_doorbell *bell, uint32_t flags)
{
	atomic_store_explicit(flag(&bell->page), flags, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
}

void srdma_doorbell_disarm(struct srdma_doorbell *bell)
{
	atomic_store_explicit(flag(&bell->page), 0, memory_order_relaxed);
}

int srdma_doorbell_eventfd(void)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	return fd < 0 ? -errno : fd;
}

/*
 * Few rings fit into the smallest buffer that the kernel grants, so that drain
 * has little to read when the worker rings a host that does not run.
 */
int srdma_doorbell_socket(int ends[2])
{
	const int least = 1, on = 1;
	int r;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
		       ends))
		return -errno;
	/* SO_OOBINLINE: recv() would discard an out-of-band byte unseen. */
	if (!setsockopt(ends[SRDMA_DOORBELL_RINGER], SOL_SOCKET, SO_SNDBUF,
			&least, sizeof(least)) &&
	    !setsockopt(ends[SRDMA_DOORBELL_SLEEPER], SOL_SOCKET, SO_OOBINLINE,
			&on, sizeof(on)))
		return 0;
	r = -errno;
	close(ends[0]);
	close(ends[1]);
	return r;
}

void srdma_doorbell_drain(int end)
{
	char rings[RINGS];

	while (recv(end, rings, sizeof(rings), MSG_DONTWAIT) == sizeof(rings))
		;
}

/*
 * MSG_PEEK without room for control messages reports files by MSG_CTRUNC, and
 * closes none of them. It sees no bytes behind those that carry files.
 */
int srdma_doorbell_drain_checked(int end)
{
	char rings[RINGS];
	struct iovec iov = { .iov_base = rings, .iov_len = sizeof(rings) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n = recvmsg(end, &msg, MSG_PEEK | MSG_DONTWAIT);

	if (n <= 0)
		return 0;
	if (msg.msg_flags & MSG_CTRUNC)
		return -EPROTO;
	/* Exactly the bytes that were seen: the ringer may send more. */
	recv(end, rings, (size_t)n, MSG_DONTWAIT);
	return 0;
}

/*
 * A write to an eventfd received from a peer must not block. All eventfds share
 * one inode of the anonymous inode file system; the other file types on that
 * inode fail writes immediately.
 */
static int check_eventfd(int fd)
{
	int flags = fcntl(fd, F_GETFL), own = srdma_doorbell_eventfd();
	struct stat theirs, ours;
	int r = 0;

	if (own < 0)
		return own;
	if (flags < 0 || !(flags & O_NONBLOCK) || fstat(fd, &theirs) ||
	    fstat(own, &ours) || theirs.st_dev != ours.st_dev ||
	    theirs.st_ino != ours.st_ino)
		r = -EINVAL;
	close(own);
	return r;
}

static int socket_is(int fd, int option, int value)
{
	socklen_t len = sizeof(int);
	int got;

	return !getsockopt(fd, SOL_SOCKET, option, &got, &len) && got == value;
}

/*
 * An end of a socketpair() stays connected, and neither end has a name.
 * A socket that was connected to a service has one: the worker must not write
 * to a service in the place of a program.
 */
static int is_pair(int fd)
{
	struct sockaddr_un name;
	socklen_t own = sizeof(name), peer = sizeof(name);

	return socket_is(fd, SO_DOMAIN, AF_UNIX) &&
	       socket_is(fd, SO_TYPE, SOCK_STREAM) &&
	       !getsockname(fd, (struct sockaddr *)&name, &own) &&
	       !getpeername(fd, (struct sockaddr *)&name, &peer) &&
	       own == sizeof(sa_family_t) && peer == sizeof(sa_family_t);
}

/*
 * Only calls that take no mutex which a program may hold: recv() takes one, and
 * blocks while another thread receives into memory whose fault handler hangs.
 * The queue of the ringer's end stays empty, because files in it would be
 * closed by the process that closes the end last, and that may block.
 */
static int check_socket(int fd)
{
	int waiting = 0;

	if (!is_pair(fd) || shutdown(fd, SHUT_RD) ||
	    ioctl(fd, FIONREAD, &waiting) || waiting)
		return -EINVAL;
	return 0;
}

int srdma_ringer_open(struct srdma_ringer *ringer, enum srdma_wake wake, int fd,
		      int bell_fd)
{
	int r = wake == SRDMA_WAKE_SOCKET ? check_socket(fd)
					  : check_eventfd(fd);

	if (r)
		return r;
	r = srdma_shm_map(&ringer->page, bell_fd, 0, SRDMA_PAGE, 0);
	if (r)
		return r;
	ringer->wake = wake;
	ringer->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (ringer->fd >= 0)
		return 0;
	r = -errno;
	srdma_shm_unmap(&ringer->page);
	return r;
}

void srdma_ringer_close(struct srdma_ringer *ringer)
{
	if (!ringer->page.at)
		return;
	srdma_shm_unmap(&ringer->page);
	close(ringer->fd);
}

void srdma_ringer_ring(const struct srdma_ringer *ringer, uint32_t flags)
{
	const uint64_t one = 1;
	ssize_t ignored;

	if (!(atomic_load_explicit(flag(&ringer->page), memory_order_relaxed) &
	      flags))
		return;
	/*
	 * EAGAIN: the counter is at its maximum or the buffer is full, so the
	 * sleeper is woken anyway. EPIPE: the sleeper has ended.
	 */
	if (ringer->wake == SRDMA_WAKE_SOCKET)
		ignored =
			send(ringer->fd, &one, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	else
		ignored = write(ringer->fd, &one, sizeof(one));
	(void)ignored;
}
