#include "bench_leg.h"

#include <string.h>
#include <unistd.h>

#include "memory/mr.h"

static const char *open_host(struct bench_leg *l, struct srdma_relay *r,
			     uint32_t ring)
{
	struct srdma_leg_params lp = { .ring = ring };
	struct srdma_leg_answer answer;

	if (srdma_leg_shm_create(&l->shm, ring))
		return "cannot create a leg";
	memcpy(lp.fds, srdma_leg_shm_fds(l->shm), sizeof(lp.fds));
	if (srdma_relay_leg_open(r, &lp, &l->leg, &answer))
		return srdma_relay_why(r);
	if (srdma_leg_shm_attach(l->shm, answer.fds) ||
	    srdma_host_create(&l->host, srdma_leg_shm_ring(l->shm), ring))
		return "cannot attach the leg or create its host";
	return NULL;
}

static const char *open_region(struct bench_leg *l, struct srdma_relay *r)
{
	struct srdma_mr_params mp = {
		.region = { .length = l->length, .access = SRDMA_ACCESS_ALL },
	};
	void *memory;
	int err;

	if (srdma_leg_shm_region(l->length, &mp.region.fd, &memory))
		return "out of memory for a region";
	l->memory = memory;
	mp.region.addr = (uintptr_t)memory;
	err = srdma_relay_mr_reg(r, l->leg, &mp, &l->key);
	close(mp.region.fd);
	return err ? srdma_relay_why(r) : NULL;
}

const char *bench_leg_open(struct bench_leg *l, struct srdma_relay *r,
			   uint32_t ring, uint32_t length)
{
	const char *why = open_host(l, r, ring);

	l->length = length;
	return why ? why : open_region(l, r);
}

void bench_leg_close(struct bench_leg *l)
{
	srdma_host_destroy(l->host);
	srdma_leg_shm_destroy(l->shm);
	srdma_leg_shm_region_free(l->memory, l->length);
}

const char *bench_leg_post(struct bench_leg *l, const struct srdma_desc *d)
{
	uint8_t *slot = srdma_leg_shm_slot(l->shm);
	int len;

	if (!slot)
		return "a ring is full";
	len = srdma_host_post(l->host, d, NULL, slot);
	if (len < 0 || srdma_leg_shm_post(l->shm, (uint32_t)len))
		return "a request was refused";
	return NULL;
}
