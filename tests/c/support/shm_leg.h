/* Fixture: a host's leg at a shared-memory host port. */
#ifndef SHM_LEG_H
#define SHM_LEG_H

#include <stddef.h>

#include "host/leg_shm.h"
#include "port/port.h"

enum { SHM_RING = 64 };

struct shm_leg {
	struct srdma_port *port;
	struct srdma_leg_shm *host;
	struct srdma_conn *leg; /* the port's end, established */
	struct srdma_leg_answer answer;
};

/* cmocka's setup and teardown; *state is a struct shm_leg. */
int shm_leg_setup(void **state);
int shm_leg_teardown(void **state);

/* qemu-user runs programs of another CPU and lacks process_vm_readv and
 * process_vm_writev. Skips the test then. */
void skip_without_process_vm(void);

/* The parameters of OPEN for this host: ring SHM_RING, pid of this process. Their
 * pidfd stays open. */
struct srdma_leg_params shm_leg_params(const struct srdma_leg_shm *host);

/* Opens a leg of this process id by such parameters. */
struct srdma_conn *shm_leg_open(struct shm_leg *f,
				struct srdma_leg_params params, int pid);

/* Creates a memfd of len bytes with these seals (0: none). The caller closes it.
 */
int shm_memfd(size_t len, unsigned int seals);

/* Waits until the region is ready. Returns 0, or -errno with port->why. */
int shm_region_ready(struct srdma_port *port, struct srdma_region *region);

/*
 * Starts a DMA by this operation of the port, and waits until it has ended.
 * Returns 1 or -errno, as an operation that ends at once does.
 */
int shm_dma(int (*start)(const struct srdma_dma *dma),
	    const struct srdma_dma *dma);
int shm_atomic(const struct srdma_dma *dma, const struct srdma_atomic *how);

/* Returns 1 if fd is readable now. */
int shm_readable(int fd);

#endif
