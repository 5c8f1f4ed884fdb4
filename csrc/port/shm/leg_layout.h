/*
 * Limits and offsets of a leg over shared memory. The worker's port and the
 * host library both use them (docs/local-interface.md, Shared memory).
 */
#ifndef SRDMA_LEG_LAYOUT_H
#define SRDMA_LEG_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

enum srdma_leg_shm_limits {
	SRDMA_LEG_SHM_MIN_RING = 64,
	SRDMA_LEG_SHM_MAX_RING = 65536,
	SRDMA_LEG_SHM_OPEN_FDS = 3,   /* leg memfd, wake-up socket,
					 doorbell */
	SRDMA_LEG_SHM_ANSWER_FDS = 2, /* worker's eventfd, worker's doorbell */
	SRDMA_LEG_SHM_SEQUENCE = 28,  /* offset of the sequence in a record;
					 stored last (release) */
};

/* Offset of the completion ring in the leg's memfd, bytes; ring: its
 * records. */
size_t srdma_leg_layout_records_at(uint32_t ring);

#endif
