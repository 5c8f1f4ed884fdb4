/* Legs of the shared-memory host port, between bring-up and DMA. */
#ifndef SRDMA_PORT_SHM_HOST_H
#define SRDMA_PORT_SHM_HOST_H

#include "port/shm/port_shm_impl.h"

struct srdma_shm_leg {
	struct srdma_shm_conn c;
	uint8_t *records; /* completion ring */
	uint32_t ring;
	uint32_t due; /* enum srdma_doorbell_flag to ring the host for */
	int pid;      /* its memory is reached by process_vm_* */
	int pidfd;    /* says that pid is still this process; -1: no pid */
};

struct srdma_shm_host {
	struct srdma_shm_port p;
	bool due; /* of some leg */
};

static inline struct srdma_shm_leg *srdma_shm_leg_of(struct srdma_conn *conn)
{
	return (struct srdma_shm_leg *)conn;
}

/* The host must be woken, if it sleeps, for flags (enum srdma_doorbell_flag). */
static inline void srdma_shm_leg_due(struct srdma_shm_leg *leg, uint32_t flags)
{
	leg->due |= flags;
	((struct srdma_shm_host *)leg->c.conn.port)->due = true;
}

/* Ops of regions. */
int srdma_shm_region_open(struct srdma_conn *conn,
			  const struct srdma_region_params *params,
			  struct srdma_region **out);
void srdma_shm_region_close(struct srdma_region *region);
int srdma_shm_region_read(const struct srdma_dma *dma);
int srdma_shm_region_write(const struct srdma_dma *dma);
/* One step to the host's CPUs where the region is mapped; else, as memory of a
 * process, to the DMA of this port only. */
int srdma_shm_region_atomic(const struct srdma_dma *dma,
			    const struct srdma_atomic *how);

#endif
