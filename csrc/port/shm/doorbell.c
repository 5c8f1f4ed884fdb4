#include "port/shm/doorbell.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

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

int srdma_ringer_open(struct srdma_ringer *ringer, int eventfd, int bell_fd)
{
	int r = check_eventfd(eventfd);

	if (r)
		return r;
	r = srdma_shm_map(&ringer->page, bell_fd, 0, SRDMA_PAGE, 0);
	if (r)
		return r;
	ringer->eventfd = fcntl(eventfd, F_DUPFD_CLOEXEC, 0);
	if (ringer->eventfd >= 0)
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
	close(ringer->eventfd);
}

void srdma_ringer_ring(const struct srdma_ringer *ringer, uint32_t flags)
{
	const uint64_t one = 1;
	ssize_t ignored;

	if (!(atomic_load_explicit(flag(&ringer->page), memory_order_relaxed) &
	      flags))
		return;
	/*
	 * EAGAIN: the counter is at its maximum, so the sleeper is woken
	 * anyway.
	 */
	ignored = write(ringer->eventfd, &one, sizeof(one));
	(void)ignored;
}
