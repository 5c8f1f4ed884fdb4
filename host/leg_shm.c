#include "host/leg_shm.h"

#include "port/shm/doorbell.h"
#include "port/shm/ring.h"
#include "port/shm/shm.h"
#include "wire/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { LEG, WAKE, BELL };

struct srdma_leg_shm {
	struct srdma_host_leg base;
	pid_t tracer;
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

/* --- the interface of leg.h ---------------------------------------------- */

static struct srdma_leg_shm *shm_of(struct srdma_host_leg *leg)
{
	return (struct srdma_leg_shm *)leg;
}

static uint8_t *shm_slot(struct srdma_host_leg *leg)
{
	return srdma_leg_shm_slot(shm_of(leg));
}

static int shm_post(struct srdma_host_leg *leg, uint32_t len)
{
	return srdma_leg_shm_post(shm_of(leg), len);
}

static void shm_flush(struct srdma_host_leg *leg)
{
	srdma_leg_shm_flush(shm_of(leg));
}

static const uint8_t *shm_ring(const struct srdma_host_leg *leg)
{
	return srdma_leg_shm_ring((const struct srdma_leg_shm *)leg);
}

/* The worker writes the ring by itself, so that there is nothing to handle. */
static void shm_nothing(struct srdma_host_leg *leg)
{
	(void)leg;
}

/* The end of the worker shows at the control connection. */
static const char *shm_ended(struct srdma_host_leg *leg)
{
	(void)leg;
	return NULL;
}

static void shm_keepalive(struct srdma_host_leg *leg, int64_t now)
{
	(void)leg;
	(void)now;
}

static void shm_arm(struct srdma_host_leg *leg)
{
	srdma_leg_shm_arm(shm_of(leg), 0);
}

static int shm_fd(const struct srdma_host_leg *leg)
{
	return srdma_leg_shm_fd((const struct srdma_leg_shm *)leg);
}

static void shm_disarm(struct srdma_host_leg *leg)
{
	srdma_leg_shm_disarm(shm_of(leg));
}

static int shm_alloc(struct srdma_host_leg_region *m)
{
	return srdma_leg_shm_region(m->length, &m->fd, &m->addr);
}

static void shm_free(struct srdma_host_leg_region *m)
{
	srdma_leg_shm_region_free(m->addr, m->length);
}

/* The permission is needed where Yama restricts ptrace; the call fails where
 * there is no Yama, and then it is not needed. */
static int shm_reg(struct srdma_host_leg *leg, struct srdma_host_leg_region *m)
{
	const pid_t tracer = shm_of(leg)->tracer;

	if (m->fd < 0 && tracer)
		prctl(PR_SET_PTRACER, (unsigned long)tracer, 0UL, 0UL, 0UL);
	return 0;
}

static void shm_dereg(struct srdma_host_leg *leg,
		      struct srdma_host_leg_region *m)
{
	(void)leg;
	(void)m;
}

static void shm_destroy(struct srdma_host_leg *leg)
{
	srdma_leg_shm_destroy(shm_of(leg));
}

static const struct srdma_host_leg_ops ops = {
	.slot = shm_slot,
	.post = shm_post,
	.flush = shm_flush,
	.ring = shm_ring,
	.poll = shm_nothing,
	.ended = shm_ended,
	.stop = shm_nothing,
	.keepalive = shm_keepalive,
	.arm = shm_arm,
	.fd = shm_fd,
	.disarm = shm_disarm,
	.alloc = shm_alloc,
	.free = shm_free,
	.reg = shm_reg,
	.dereg = shm_dereg,
	.destroy = shm_destroy,
};

struct srdma_host_leg *srdma_leg_shm_base(struct srdma_leg_shm *leg,
					  pid_t tracer)
{
	leg->base.ops = &ops;
	leg->tracer = tracer;
	return &leg->base;
}
