/*
 * A shared-memory leg with one region, and its host in this process, set up as
 * a host program does (docs/local-interface.md 2, 4).
 */
#ifndef BENCH_LEG_H
#define BENCH_LEG_H

#include "host/host.h"
#include "host/leg_shm.h"
#include "relay/relay.h"

struct bench_leg {
	struct srdma_leg *leg; /* the relay's object */
	struct srdma_leg_shm *shm;
	struct srdma_host *host;
	uint8_t *memory; /* the region, with all rights */
	uint32_t length, key;
};

/* length: bytes of the region. Returns NULL, or the text of the failure. */
const char *bench_leg_open(struct bench_leg *l, struct srdma_relay *r,
			   uint32_t ring, uint32_t length);
/* Call this after the relay was destroyed. */
void bench_leg_close(struct bench_leg *l);

/*
 * Post a descriptor; srdma_leg_shm_flush() publishes it. Returns NULL, or the
 * text of the failure.
 */
const char *bench_leg_post(struct bench_leg *l, const struct srdma_desc *d);

#endif
