#include "port/shm/port_shm_host.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "wire/wire.h"

enum {
	WRITABLE = 1 | 2,
	REMOTE_ATOMIC = 8
}; /* IBV_ACCESS_* values: 1 LOCAL_WRITE, 2 REMOTE_WRITE */

struct region {
	struct srdma_region r;
	struct srdma_shm map; /* at NULL: access by process_vm_* */
};

static struct region *region_of(struct srdma_region *region)
{
	return (struct region *)region;
}

/* --- memory of another process ---------------------------------------- */

/*
 * 1 if the leg's process is alive. After it ended and was reaped, pid may name
 * another process.
 */
static bool alive(const struct srdma_shm_leg *leg)
{
	struct pollfd p = { .fd = leg->pidfd, .events = POLLIN };

	return leg->pidfd >= 0 && poll(&p, 1, 0) == 0;
}

static int remote_copy(const struct srdma_shm_leg *leg, uint64_t addr,
		       void *mine, size_t len, bool to_host)
{
	struct iovec local = { .iov_base = mine, .iov_len = len };
	struct iovec remote = { .iov_base = (void *)(uintptr_t)addr,
				.iov_len = len };
	ssize_t n;

	if (!alive(leg))
		return -ESRCH;
	n = to_host ? process_vm_writev(leg->pid, &local, 1, &remote, 1, 0)
		    : process_vm_readv(leg->pid, &local, 1, &remote, 1, 0);
	if (n < 0)
		return -errno;
	return (size_t)n == len ? 0 : -EFAULT;
}

/* --- regions ---------------------------------------------------------- */

static int refuse(struct srdma_conn *leg, int err, const char *why)
{
	leg->port->why = why;
	return err;
}

static int probe(struct srdma_conn *conn, const struct srdma_region_params *p)
{
	const struct srdma_shm_leg *leg = srdma_shm_leg_of(conn);
	uint8_t byte;
	int r = remote_copy(leg, p->addr, &byte, 1, false);

	if (!r)
		r = remote_copy(leg, p->addr + p->length - 1, &byte, 1, false);
	if (!r)
		return 0;
	if (r == -EFAULT)
		return refuse(conn, r,
			      "the process has no memory at the region's first "
			      "or last byte");
	return refuse(conn, r,
		      "the kernel does not let the worker reach this process's "
		      "memory: use pd.alloc(), or run both as one user with "
		      "ptrace permitted");
}

/* Several descriptors and mappings of a memfd have the same device and inode. */
static int identify(struct srdma_region *region,
		    const struct srdma_region_params *p)
{
	struct stat st;

	if (fstat(p->fd, &st))
		return -errno;
	region->dev = st.st_dev;
	region->ino = st.st_ino;
	region->file_at = p->fd_offset;
	return 0;
}

static int map_region(struct srdma_conn *conn, struct region *region,
		      const struct srdma_region_params *p)
{
	int r = identify(&region->r, p);

	if (!r)
		r = srdma_shm_map(&region->map, p->fd, p->fd_offset, p->length,
				  p->access & WRITABLE);
	if (!r)
		return 0;
	if (r == -EPERM)
		return refuse(conn, r,
			      "the region must be a memfd with F_SEAL_SHRINK "
			      "that may be mapped: use pd.alloc()");
	if (r == -ERANGE)
		return refuse(conn, r,
			      "the region does not lie inside its memfd");
	return refuse(conn, r,
		      "the region cannot be mapped with this access: "
		      "use pd.alloc()");
}

/*
 * A host address aligned to 8 must map to an aligned address here, or the CPU
 * cannot change it atomically.
 */
static int check_aligned(struct srdma_conn *conn,
			 const struct srdma_region_params *p)
{
	if (!(p->access & REMOTE_ATOMIC) || p->fd < 0 ||
	    (p->addr - p->fd_offset) % SRDMA_ATOMIC_LEN == 0)
		return 0;
	return refuse(conn, -EINVAL,
		      "REMOTE_ATOMIC needs a region whose address and offset "
		      "in its memfd are the same modulo 8: use pd.alloc()");
}

int srdma_shm_region_open(struct srdma_conn *conn,
			  const struct srdma_region_params *p,
			  struct srdma_region **out)
{
	struct region *region;
	int r;

	if (!p->length || p->addr + p->length - 1 < p->addr)
		return refuse(conn, -EINVAL,
			      "the region must have 1 byte or more and end "
			      "inside the address space");
	region = calloc(1, sizeof(*region));
	if (!region)
		return refuse(conn, -ENOMEM, "out of memory");
	r = check_aligned(conn, p);
	if (!r)
		r = p->fd < 0 ? probe(conn, p) : map_region(conn, region, p);
	if (r) {
		free(region);
		return r;
	}
	region->r.leg = conn;
	region->r.base = p->addr;
	region->r.length = p->length;
	*out = &region->r;
	return 0;
}

void srdma_shm_region_close(struct srdma_region *region)
{
	struct region *mine = region_of(region);

	srdma_shm_unmap(&mine->map);
	free(mine);
}

/* --- DMA -------------------------------------------------------------- */

int srdma_shm_region_read(const struct srdma_dma *dma)
{
	struct region *region = region_of(dma->region);
	uint8_t *to = dma->buf->data + dma->buf_at;
	int r;

	if (region->map.at) {
		memcpy(to, region->map.at + (dma->addr - region->r.base),
		       dma->len);
		return 1;
	}
	r = remote_copy(srdma_shm_leg_of(region->r.leg), dma->addr, to,
			dma->len, false);
	return r ? r : 1;
}

/* A host that sleeps until its memory changes is woken at flush. */
int srdma_shm_region_write(const struct srdma_dma *dma)
{
	struct region *region = region_of(dma->region);
	struct srdma_shm_leg *leg = srdma_shm_leg_of(region->r.leg);
	uint8_t *from = dma->buf->data + dma->buf_at;
	int r = 0;

	if (region->map.at)
		memcpy(region->map.at + (dma->addr - region->r.base), from,
		       dma->len);
	else
		r = remote_copy(leg, dma->addr, from, dma->len, true);
	if (r)
		return r;
	srdma_shm_leg_due(leg, SRDMA_DOORBELL_MEMORY);
	return 1;
}

/* Atomic with respect to the host's CPUs. */
static uint64_t change(uint64_t *at, const struct srdma_atomic *how)
{
	uint64_t expected = how->compare;

	if (how->kind == SRDMA_ATOMIC_FETCH_ADD)
		return __atomic_fetch_add(at, how->swap_add, __ATOMIC_SEQ_CST);
	__atomic_compare_exchange_n(at, &expected, how->swap_add, 0,
				    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return expected;
}

/*
 * A read followed by a write: atomic only with respect to accesses by this
 * thread.
 */
static int remote_change(const struct srdma_shm_leg *leg, uint64_t addr,
			 const struct srdma_atomic *how, uint64_t *original)
{
	uint64_t value;
	int r = remote_copy(leg, addr, original, sizeof(*original), false);

	if (r)
		return r;
	value = srdma_atomic_apply(how, *original);
	if (value == *original)
		return 0;
	return remote_copy(leg, addr, &value, sizeof(value), true);
}

int srdma_shm_region_atomic(const struct srdma_dma *dma,
			    const struct srdma_atomic *how)
{
	struct region *region = region_of(dma->region);
	struct srdma_shm_leg *leg = srdma_shm_leg_of(region->r.leg);
	uint8_t *at = region->map.at;
	uint64_t original;
	int r = 0;

	if (at)
		original = change(
			(uint64_t *)(void *)(at + (dma->addr - region->r.base)),
			how);
	else
		r = remote_change(leg, dma->addr, how, &original);
	if (r)
		return r;
	memcpy(dma->buf->data + dma->buf_at, &original, sizeof(original));
	srdma_shm_leg_due(leg, SRDMA_DOORBELL_MEMORY);
	return 1;
}
