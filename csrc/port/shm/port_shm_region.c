#include "port/shm/port_shm_host.h"
#include "port/shm/port_shm_process.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "wire/wire.h"

enum {
	WRITABLE = 1 | 2,
	REMOTE_ATOMIC = 8
}; /* IBV_ACCESS_* values: 1 LOCAL_WRITE, 2 REMOTE_WRITE */

static struct srdma_shm_region *region_of(struct srdma_region *region)
{
	return (struct srdma_shm_region *)region;
}

/* --- regions ---------------------------------------------------------- */

static int refuse(struct srdma_conn *leg, int err, const char *why)
{
	leg->port->why = why;
	return err;
}

/* The probe goes ahead of all DMA of the region. */
static int start_probe(struct srdma_conn *conn, struct srdma_shm_region *region)
{
	int r = srdma_shm_process_join(srdma_shm_leg_of(conn));

	if (r)
		return r;
	r = srdma_shm_process_probe(region);
	return r ? refuse(conn, r,
			  "the memory of this process did not answer for 4 s: "
			  "the leg has ended")
		 : 0;
}

int srdma_shm_region_ready(struct srdma_region *base)
{
	struct srdma_shm_region *region = region_of(base);

	if (region->opening)
		return -EINPROGRESS;
	if (!region->status)
		return 0;
	if (region->status == -EFAULT)
		return refuse(base->leg, region->status,
			      "the process has no memory at the region's first "
			      "or last byte");
	return refuse(base->leg, region->status,
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

static int map_region(struct srdma_conn *conn, struct srdma_shm_region *region,
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

/* RFC 5042 R7.3-1, R2.2.2-1, A6.5a, A7.3 */
int srdma_shm_region_open(struct srdma_conn *conn,
			  const struct srdma_region_params *p,
			  struct srdma_region **out)
{
	struct srdma_shm_region *region;
	int r;

	if (!p->length || p->addr + p->length - 1 < p->addr)
		return refuse(conn, -EINVAL,
			      "the region must have 1 byte or more and end "
			      "inside the address space");
	region = calloc(1, sizeof(*region));
	if (!region)
		return refuse(conn, -ENOMEM, "out of memory");
	region->r.leg = conn;
	region->r.base = p->addr;
	region->r.length = p->length;
	r = check_aligned(conn, p);
	if (!r)
		r = p->fd < 0 ? start_probe(conn, region)
			      : map_region(conn, region, p);
	if (r) {
		free(region);
		return r;
	}
	*out = &region->r;
	return 0;
}

void srdma_shm_region_close(struct srdma_region *base)
{
	struct srdma_shm_region *region = region_of(base);

	srdma_shm_process_forget(region);
	srdma_shm_unmap(&region->map);
	free(region);
}

/* --- DMA -------------------------------------------------------------- */

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

/* Where the addresses permit it, 8 bytes are one store, behind all earlier ones
 * (docs/local-interface.md 4.4). */
static void store(uint8_t *theirs, const uint8_t *mine, size_t len)
{
	uint64_t value;

	if (len != sizeof(value) || (uintptr_t)theirs % sizeof(value)) {
		memcpy(theirs, mine, len);
		return;
	}
	memcpy(&value, mine, sizeof(value));
	__atomic_store_n((uint64_t *)(void *)theirs, value, __ATOMIC_RELEASE);
}

/* Makes a DMA in mapped memory. how: of an atomic only. */
static void access_mapped(enum srdma_shm_task_kind kind,
			  const struct srdma_dma *dma,
			  const struct srdma_atomic *how)
{
	const struct srdma_shm_region *region = region_of(dma->region);
	uint8_t *theirs = region->map.at + (dma->addr - region->r.base);
	uint8_t *mine = dma->buf->data + dma->buf_at;
	uint64_t original;

	switch (kind) {
	case SRDMA_SHM_READ:
		memcpy(mine, theirs, dma->len);
		break;
	case SRDMA_SHM_WRITE:
		store(theirs, mine, dma->len);
		break;
	default:
		original = change((uint64_t *)(void *)theirs, how);
		memcpy(mine, &original, sizeof(original));
		break;
	}
}

/* A host that sleeps until its memory changes is woken at flush. */
void srdma_shm_region_finish(const struct srdma_shm_task *task,
			     const uint8_t *copied)
{
	const struct srdma_dma *dma = &task->dma;

	if (task->region->map.at)
		access_mapped(task->kind, dma, &task->how);
	else if (task->kind != SRDMA_SHM_WRITE)
		memcpy(dma->buf->data + dma->buf_at, copied, dma->len);
	if (task->kind != SRDMA_SHM_READ)
		srdma_shm_leg_due(task->leg, SRDMA_DOORBELL_MEMORY);
}

/* A DMA that a copier makes, or that follows tasks of the leg. */
static int start_task(enum srdma_shm_task_kind kind,
		      const struct srdma_dma *dma,
		      const struct srdma_atomic *how)
{
	struct srdma_shm_task task = {
		.kind = kind,
		.leg = srdma_shm_leg_of(dma->region->leg),
		.region = region_of(dma->region),
		.dma = *dma,
	};

	if (how)
		task.how = *how;
	return srdma_shm_process_start(&task);
}

static int start(enum srdma_shm_task_kind kind, const struct srdma_dma *dma,
		 const struct srdma_atomic *how)
{
	struct srdma_shm_leg *leg = srdma_shm_leg_of(dma->region->leg);

	/* Tasks of the leg that are under way come first. */
	if (!region_of(dma->region)->map.at || leg->c.under_way)
		return start_task(kind, dma, how);
	access_mapped(kind, dma, how);
	if (kind != SRDMA_SHM_READ)
		srdma_shm_leg_due(leg, SRDMA_DOORBELL_MEMORY);
	return 1;
}

int srdma_shm_region_read(const struct srdma_dma *dma)
{
	return start(SRDMA_SHM_READ, dma, NULL);
}

int srdma_shm_region_write(const struct srdma_dma *dma)
{
	return start(SRDMA_SHM_WRITE, dma, NULL);
}

int srdma_shm_region_atomic(const struct srdma_dma *dma,
			    const struct srdma_atomic *how)
{
	return start(SRDMA_SHM_ATOMIC, dma, how);
}
