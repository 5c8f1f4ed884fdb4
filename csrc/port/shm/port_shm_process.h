/*
 * Processes whose memory the shared-memory host port reaches by a copier (docs/
 * local-interface.md 4.4). All legs of a process share its copier. Its copies
 * are the DMAs that are under way. While a leg has some, its DMA into mapped
 * memory and its records wait behind them, so that all take effect in order.
 *
 * A process whose copy takes longer than SRDMA_SHM_COPY_LIMIT_MS loses its legs:
 * its DMAs fail, and SRDMA_EV_DOWN follows with -ETIMEDOUT.
 */
#ifndef SRDMA_PORT_SHM_PROCESS_H
#define SRDMA_PORT_SHM_PROCESS_H

#include "port/shm/copier.h"
#include "port/shm/port_shm_host.h"

enum {
	SRDMA_SHM_COPY_LIMIT_MS = 4000,
	SRDMA_SHM_COPY_LOOK_MS = 1000, /* between two looks at the limit */
	SRDMA_SHM_PROCESSES = 256,     /* together with those whose last copy
					  does not end */
};

enum srdma_shm_task_kind {
	SRDMA_SHM_PROBE, /* of a region that is being opened */
	SRDMA_SHM_READ,	 /* DMAs */
	SRDMA_SHM_WRITE,
	SRDMA_SHM_ATOMIC,
	SRDMA_SHM_RECORD, /* a completion record */
};

/* The work that follows a copy. */
struct srdma_shm_task {
	enum srdma_shm_task_kind kind;
	struct srdma_shm_leg *leg;	 /* NULL: it was closed */
	struct srdma_shm_region *region; /* PROBE; NULL: it was closed. And
					    DMAs */
	struct srdma_dma dma;
	struct srdma_atomic how;
	uint32_t slot;
	uint8_t record[SRDMA_RECORD_LEN];
};

/*
 * Let the leg use the copier of its process. Returns 0 or -errno, explained in
 * port->why.
 */
int srdma_shm_process_join(struct srdma_shm_leg *leg);
/* The leg is about to be freed. It need not have joined. */
void srdma_shm_process_leave(struct srdma_shm_leg *leg);
/* All legs are gone: forget all processes. */
void srdma_shm_process_clear(struct srdma_shm_host *h);
/* The region is about to be freed. */
void srdma_shm_process_forget(struct srdma_shm_region *region);

/*
 * Start a task of a leg that has joined; the caller sets its kind, leg and
 * parameters. Returns 0, -EAGAIN (all copies are under way) or -ETIMEDOUT (the
 * process lost its legs).
 */
int srdma_shm_process_start(const struct srdma_shm_task *task);

/*
 * Start the probe of a region whose leg has joined. It waits while all copies are
 * under way; new DMA waits behind it. Returns 0 or -ETIMEDOUT, as above.
 */
int srdma_shm_process_probe(struct srdma_shm_region *region);

/* Finish the tasks whose copies have been made: fills up to n events. */
int srdma_shm_process_poll(struct srdma_shm_host *h, struct srdma_event *ev,
			   int n);
/* 1: srdma_shm_process_poll() has something to do. */
int srdma_shm_process_has_work(const struct srdma_shm_host *h);
/* keepalive of struct srdma_port_ops. */
uint64_t srdma_shm_process_look(struct srdma_port *port, uint64_t now);

#endif
