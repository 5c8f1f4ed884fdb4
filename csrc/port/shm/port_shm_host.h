/* Legs of the shared-memory host port, shared by bring-up and DMA. */
#ifndef SRDMA_PORT_SHM_HOST_H
#define SRDMA_PORT_SHM_HOST_H

#include "port/shm/port_shm_impl.h"

struct srdma_shm_leg {
	struct srdma_shm_conn c;
	uint8_t *records; /* completion ring */
	uint32_t ring;
	uint32_t due; /* pending doorbell flags for the host (enum
			 srdma_doorbell_flag) */
	int pid;      /* for process_vm_* access to its memory */
	int pidfd;    /* detects that pid has ended; -1: no pid */
};

struct srdma_shm_host {
	struct srdma_shm_port p;
	bool due; /* some leg has pending doorbell flags */
};

static inline struct srdma_shm_leg *srdma_shm_leg_of(struct srdma_conn *conn)
{
	return (struct srdma_shm_leg *)conn;
}

/*
 * Ring the host's doorbell for flags (enum srdma_doorbell_flag) at the next
 * flush.
 */
static inline void srdma_shm_leg_due(struct srdma_shm_leg *leg, uint32_t flags)
{
	leg->due |= flags;
	((struct srdma_shm_host *)leg->c.conn.port)->due = true;
}

/* Region operations of struct srdma_port_ops. */
int srdma_shm_region_open(struct srdma_conn *conn,
			  const struct srdma_region_params *params,
			  struct srdma_region **out);
void srdma_shm_region_close(struct srdma_region *region);
int srdma_shm_region_read(const struct srdma_dma *dma);
int srdma_shm_region_write(const struct srdma_dma *dma);
/*
 * Mapped region: atomic with respect to the host's CPUs. Otherwise (process
 * memory) atomic only with respect to the DMA of this port.
 */
int srdma_shm_region_atomic(const struct srdma_dma *dma,
			    const struct srdma_atomic *how);

#endif
