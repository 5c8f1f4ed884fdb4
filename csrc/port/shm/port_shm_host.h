/* Legs of the shared-memory host port, shared by bring-up and DMA. */
#ifndef SRDMA_PORT_SHM_HOST_H
#define SRDMA_PORT_SHM_HOST_H

#include <sys/queue.h>

#include "port/shm/port_shm_impl.h"

struct srdma_shm_process;

struct srdma_shm_leg {
	struct srdma_shm_conn c;
	uint8_t *records; /* completion ring */
	uint32_t ring;
	uint32_t due; /* pending doorbell flags for the host (enum
			 srdma_doorbell_flag) */
	int pid;      /* whose memory regions without a memfd are */
	int pidfd;    /* detects that pid has ended; -1: no pid */
	struct srdma_shm_process *process; /* NULL: not joined */
};

struct srdma_shm_region {
	struct srdma_region r;
	struct srdma_shm map; /* at NULL: memory of the leg's process */
	int opening;	      /* 1: the probe has not ended */
	int status;	      /* result of the probe */
	bool waits;	      /* for a copy of the probe */
	TAILQ_ENTRY(srdma_shm_region) next_probe; /* if it waits */
};

struct srdma_shm_host {
	struct srdma_shm_port p;
	bool due; /* some leg has pending doorbell flags */
	int (*spawn)(void *(*run)(void *), void *arg); /* NULL: regions must be
							  memfds */
	struct srdma_shm_process *processes;
	struct srdma_shm_process *served; /* last by srdma_shm_process_poll();
					     NULL: none */
	uint32_t process_count;
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
int srdma_shm_region_ready(struct srdma_region *region);
void srdma_shm_region_close(struct srdma_region *region);
int srdma_shm_region_read(const struct srdma_dma *dma);
int srdma_shm_region_write(const struct srdma_dma *dma);
/*
 * Mapped region: atomic with respect to the host's CPUs. Otherwise (process
 * memory) atomic only with respect to the DMA of the process's regions of this
 * kind.
 */
int srdma_shm_region_atomic(const struct srdma_dma *dma,
			    const struct srdma_atomic *how);

struct srdma_shm_task;
/* Finish a DMA: in mapped memory all of it, else with the bytes of the copier. */
void srdma_shm_region_finish(const struct srdma_shm_task *task,
			     const uint8_t *copied);
/* Write a completion record into the leg's ring (port_shm_host.c). */
void srdma_shm_leg_record(struct srdma_shm_leg *leg, uint32_t slot,
			  const uint8_t *record);

#endif
