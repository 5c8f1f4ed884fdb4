#include "port/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

size_t srdma_shm_round(size_t n)
{
	return (n + SRDMA_PAGE - 1) / SRDMA_PAGE * SRDMA_PAGE;
}

static int map(struct srdma_shm *shm, int fd, uint64_t offset, size_t len,
	       int prot)
{
	size_t inside = offset % SRDMA_PAGE;
	void *at = mmap(NULL, inside + len, prot, MAP_SHARED, fd,
			(off_t)(offset - inside));

	if (at == MAP_FAILED)
		return -errno;
	shm->at = (uint8_t *)at + inside;
	shm->len = len;
	return 0;
}

int srdma_shm_create(struct srdma_shm *shm, const char *name, size_t len)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int r;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)len) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)) {
		r = -errno;
		goto close_fd;
	}
	r = map(shm, fd, 0, len, PROT_READ | PROT_WRITE);
	if (!r)
		return fd;
close_fd:
	close(fd);
	return r;
}

/*
 * Only tmpfs is accepted: a fault in hugetlbfs raises SIGBUS if no huge page is
 * available, and other file systems may block a fault for an unbounded time.
 */
static int check(int fd, uint64_t offset, size_t len)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct statfs fs;
	struct stat st;

	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return -EPERM;
	if (fstatfs(fd, &fs) || fs.f_type != TMPFS_MAGIC)
		return -EPERM;
	if (fstat(fd, &st))
		return -errno;
	if (!len || len > (uint64_t)st.st_size ||
	    offset > (uint64_t)st.st_size - len)
		return -ERANGE;
	return 0;
}

int srdma_shm_map(struct srdma_shm *shm, int fd, uint64_t offset, size_t len,
		  int writable)
{
	int r = check(fd, offset, len);

	if (r)
		return r;
	return map(shm, fd, offset, len,
		   writable ? PROT_READ | PROT_WRITE : PROT_READ);
}

void srdma_shm_unmap(struct srdma_shm *shm)
{
	size_t inside = (uintptr_t)shm->at % SRDMA_PAGE;

	if (!shm->at)
		return;
	munmap(shm->at - inside, inside + shm->len);
	shm->at = NULL;
	shm->len = 0;
}
