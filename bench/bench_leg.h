/*
 * A leg of shared memory with a region, and its host in this process, as a
 * program has them (docs/protocol.md 9, 11).
 */
#ifndef BENCH_LEG_H
#define BENCH_LEG_H

#include "host/host.h"
#include "host/leg_shm.h"
#include "relay.h"

struct bench_leg {
	struct srdma_leg *leg; /* as the relay knows it */
	struct srdma_leg_shm *shm;
	struct srdma_host *host;
	uint8_t *memory; /* a region with all rights */
	uint32_t length, key;
};

/* length: of the region. NULL, or what failed. */
const char *bench_leg_open(struct bench_leg *l, struct srdma_relay *r,
			   uint32_t ring, uint32_t length);
/* Once the relay is gone. */
void bench_leg_close(struct bench_leg *l);

/* The relay sees it after srdma_leg_shm_flush(). NULL, or what failed. */
const char *bench_leg_post(struct bench_leg *l, const struct srdma_desc *d);

#endif
