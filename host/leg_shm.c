#include "host/leg_shm.h"

#include "port/shm/doorbell.h"
#include "port/shm/ring.h"
#include "port/shm/shm.h"
#include "wire/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { LEG, WAKE, BELL };

struct srdma_leg_shm {
	struct srdma_shm map;
	struct srdma_ring ring;
	struct srdma_doorbell bell;
	struct srdma_ringer worker;
	const uint8_t *records;
	int fds[SRDMA_LEG_SHM_OPEN_FDS];
	int wake; /* sleeper's end; the ringer's is in fds */
};

static int open_fds(struct srdma_leg_shm *leg, uint32_t ring)
{
	size_t at = srdma_leg_layout_records_at(ring);
	int ends[2], r;

	r = srdma_shm_create(&leg->map, "srdma-leg",
			     at + (size_t)ring * SRDMA_RECORD_LEN);
	if (r < 0)
		return r;
	leg->fds[LEG] = r;
	leg->records = leg->map.at + at;
	r = srdma_doorbell_socket(ends);
	if (r)
		return r;
	leg->wake = ends[SRDMA_DOORBELL_SLEEPER];
	leg->fds[WAKE] = ends[SRDMA_DOORBELL_RINGER];
	r = srdma_doorbell_create(&leg->bell);
	leg->fds[BELL] = leg->bell.fd;
	return r;
}

int srdma_leg_shm_create(struct srdma_leg_shm **out, uint32_t ring)
{
	struct srdma_leg_shm *leg;
	int r;

	if (ring < SRDMA_LEG_SHM_MIN_RING || ring > SRDMA_LEG_SHM_MAX_RING ||
	    (ring & (ring - 1)))
		return -EINVAL;
	leg = calloc(1, sizeof(*leg));
	if (!leg)
		return -ENOMEM;
	leg->fds[LEG] = leg->fds[WAKE] = -1;
	r = open_fds(leg, ring);
	if (r) {
		srdma_leg_shm_destroy(leg);
		return r;
	}
	srdma_ring_init(&leg->ring, leg->map.at, ring, SRDMA_DESC_SLOT);
	*out = leg;
	return 0;
}

void srdma_leg_shm_destroy(struct srdma_leg_shm *leg)
{
	if (!leg)
		return;
	srdma_ringer_close(&leg->worker);
	srdma_doorbell_destroy(&leg->bell);
	srdma_shm_unmap(&leg->map);
	if (leg->fds[WAKE] >= 0) {
		close(leg->fds[WAKE]);
		close(leg->wake);
	}
	if (leg->fds[LEG] >= 0)
		close(leg->fds[LEG]);
	free(leg);
}

const int *srdma_leg_shm_fds(const struct srdma_leg_shm *leg)
{
	return leg->fds;
}

int srdma_leg_shm_attach(struct srdma_leg_shm *leg,
			 const int fds[SRDMA_LEG_SHM_ANSWER_FDS])
{
	if (leg->worker.page.at)
		return -EISCONN;
	return srdma_ringer_open(&leg->worker, SRDMA_WAKE_EVENTFD, fds[0],
				 fds[1]);
}

uint8_t *srdma_leg_shm_slot(struct srdma_leg_shm *leg)
{
	return leg->worker.page.at ? srdma_ring_reserve(&leg->ring) : NULL;
}

int srdma_leg_shm_post(struct srdma_leg_shm *leg, uint32_t len)
{
	return srdma_ring_commit(&leg->ring, len);
}

void srdma_leg_shm_flush(struct srdma_leg_shm *leg)
{
	if (!srdma_ring_show(&leg->ring))
		return;
	atomic_thread_fence(memory_order_seq_cst);
	srdma_ringer_ring(&leg->worker, SRDMA_DOORBELL_NEWS);
}

const uint8_t *srdma_leg_shm_ring(const struct srdma_leg_shm *leg)
{
	return leg->records;
}

void srdma_leg_shm_arm(struct srdma_leg_shm *leg, int memory)
{
	srdma_leg_shm_flush(leg);
	srdma_doorbell_arm(&leg->bell,
			   memory ? SRDMA_DOORBELL_NEWS | SRDMA_DOORBELL_MEMORY
				  : SRDMA_DOORBELL_NEWS);
}

int srdma_leg_shm_fd(const struct srdma_leg_shm *leg)
{
	return leg->wake;
}

void srdma_leg_shm_disarm(struct srdma_leg_shm *leg)
{
	srdma_doorbell_disarm(&leg->bell);
	srdma_doorbell_drain(leg->wake);
}

int srdma_leg_shm_region(size_t size, int *fd, void **addr)
{
	struct srdma_shm shm;
	int r;

	if (!size || size > SIZE_MAX - SRDMA_PAGE)
		return -EINVAL;
	r = srdma_shm_create(&shm, "srdma-region", srdma_shm_round(size));
	if (r < 0)
		return r;
	*fd = r;
	*addr = shm.at;
	return 0;
}

void srdma_leg_shm_region_free(void *addr, size_t size)
{
	struct srdma_shm shm = { .at = addr, .len = srdma_shm_round(size) };

	srdma_shm_unmap(&shm);
}
